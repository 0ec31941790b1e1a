"""Which cache lines a schedule moves: footprints of each loop, and misses of a cache of a given size, at given sizes of the parameters.

Takes the places of a schedule (`loop_tree`); gives numbers of lines by tensor. The cache is one of least recent use. For a loop, three cases:
- what one run touches fits: each line comes once;
- what one iteration touches fits: what the next iteration shares with it is still there, so the loop brings the lines of its whole footprint,
  once for each group of references that moves over the same elements in neighbouring iterations;
- neither: each iteration brings its own lines again, which is asked of the body.
A sequence keeps what the next part needs, if what lies between two uses fits. Sums over iterations are taken at samples, since footprints are
(quasi-)polynomials. (Layer conditions: Rivera and Tseng, SC 2000; Stengel et al., ICS 2015; loops as here: Ferrante, Sarkar and Thrash, LCPC 1991.)
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from ..ir.scop import Scop
from ..isl_ext import PARAM, SET, fix_params
from .caches import Cache, Stretch, stays
from .counting import Count, count
from .loop_tree import Place, Ref, elements_below
from .regions import BUDGET, Ends, Region, Values, ends, to_lines
from .summation import NoClosedForm

SAMPLES = (7, 7, 3, 1)  # iterations at which a loop is looked at, by how many loops are around it, besides the first and the last
EFFORT = 4000  # runs of places that are looked at for one cost; beyond, one iteration stands for all of a loop
APART = 1.25  # how much more lines groups have one by one than together, at most, to count as apart
THIN = 1.5  # lines of a row of what counts as a column
SHARED = 0.5  # how much two groups have in common in neighbouring iterations to count as one


class Traffic:
    """Footprints and misses of a schedule whose sizes are known. `places`: its tree, read with these sizes.

    forms: the places still have parameters, and closed forms are wanted around `sizes` only.
    """

    def __init__(self, scop: Scop, places: Place, sizes: Values, line: int, forms: bool = False) -> None:
        self.scop, self.root, self.line = scop, places, line
        self.rows = {t.name: (t.shape[-1].evaluate(sizes) if t.shape else None) for t in scop.tensors}
        self.forms, self.asked = forms, 0
        self.start = {n: sizes[n] for n in self._params()}
        self._regions: dict[tuple[str, tuple[int, ...], int], Region] = {}
        self._lines: dict[tuple[int, tuple[int, ...]], float] = {}
        self._ends: dict[Place, tuple[Ends, Ends]] = {}
        self._trips: dict[Place, Count] = {}
        self._depends: dict[Place, frozenset[str]] = {}
        self._groups: dict[Place, dict[str, list[tuple[Ref, ...]]]] = {}
        self._misses: dict[tuple[Place, Cache, tuple[int, ...]], dict[str, float]] = {}
        self._kept: dict[tuple[Place, Cache, tuple[int, ...]], dict[str, float]] = {}

    def _params(self) -> list[str]:
        """The parameters that the places still have."""
        return [p for p in self.scop.params if any(r.elements.find_dim_by_name(PARAM, p) >= 0 for r in self.root.refs)]

    # ---- footprints
    def region(self, tensor: str, refs: Sequence[Ref], place: Place) -> Region:
        """What references touch in one run of a place."""
        depth = len(place.path)
        key = (tensor, tuple(sorted(map(id, refs))), depth)
        if key not in self._regions:
            at = self.middle(place) if self.forms else None
            points = elements_below(refs, depth)
            self._regions[key] = Region(self.scop.tensor(tensor), points, self.rows[tensor], self.line, place.around, at)
        return self._regions[key]

    def lines_of(self, tensor: str, refs: Sequence[Ref], place: Place, at: Values) -> float:
        """How many lines that are."""
        region = self.region(tensor, refs, place)
        key = (id(region), tuple(at[n] for n in sorted(region.names)))
        if key not in self._lines:
            self._lines[key] = region.lines(at)
        return self._lines[key]

    def lines(self, place: Place, at: Values) -> dict[str, float]:
        """The lines of each tensor in one run of a place."""
        return {t: self.lines_of(t, _of(place.refs, t), place, at) for t in place.tensors}

    def total(self, place: Place, at: Values) -> float:
        """The lines of all tensors."""
        return sum(self.lines(place, at).values())

    def all_closed(self) -> bool:
        """Whether all footprints asked for so far have closed forms."""
        return all(r.is_closed for r in self._regions.values())

    # ---- iterations
    def trips(self, loop: Place, at: Values) -> int:
        """How many iterations a loop has."""
        number = self.trip_count(loop)
        if number.is_closed:
            return int(number.at(at))
        low, high = self.range(loop, at)  # at most
        return max(0, high - low + 1)

    def depends(self, place: Place) -> frozenset[str]:
        """The dates of the loops around that matter below a place."""
        if place not in self._depends:
            used = {n for t in place.tensors for n in self.region(t, _of(place.refs, t), place).names}
            for child in place.children:
                used |= self.depends(child)
            if place.kind == "loop":
                used |= self.trip_count(place).names()
                used |= {n for e in self._limits(place) for n in e.names()}
            self._depends[place] = frozenset(used) & frozenset(place.path)
        return self._depends[place]

    def trip_count(self, loop: Place) -> Count:
        """The same as a function of the dates of the loops around."""
        if loop not in self._trips:
            assert loop.dates is not None
            self._trips[loop] = count(loop.dates, loop.around, BUDGET)
        return self._trips[loop]

    def range(self, loop: Place, at: Values) -> tuple[int, int]:
        """The first and the last date of a loop that has iterations."""
        low, high = self._limits(loop)
        return low.at(at), high.at(at)

    def _limits(self, loop: Place) -> tuple[Ends, Ends]:
        if loop not in self._ends:
            assert loop.dates is not None
            dates = loop.dates if loop.around is None else loop.dates.gist_params(loop.around)
            self._ends[loop] = (ends(dates.dim_min(0)), ends(dates.dim_max(0)))
        return self._ends[loop]

    def samples(self, loop: Place, at: Values, looked: Sequence[int] = SAMPLES) -> list[tuple[dict[str, int], float]]:
        """Iterations that stand for all, with weights that add up to their number: the first, some in between, the last."""
        n = self.trips(loop, at)
        if n <= 0:
            return []
        low, high = self.range(loop, at)
        step = (high - low) // (n - 1) if n > 1 else 1
        if loop.name not in self.depends(loop.children[0]):
            return [({**at, loop.name: low + (n // 2) * step}, float(n))]
        k = looked[min(len(loop.path), len(looked) - 1)] if self.asked < EFFORT else 0
        if n <= k + 2:
            return [({**at, loop.name: low + x * step}, 1.0) for x in range(n)]
        if k == 0:
            return [({**at, loop.name: low + (n // 2) * step}, float(n))]
        inner = [({**at, loop.name: low + (1 + int((2 * x + 1) * (n - 2) / (2 * k))) * step}, (n - 2) / k) for x in range(k)]
        return [({**at, loop.name: low}, 1.0), *inner, ({**at, loop.name: high}, 1.0)]

    def middle(self, place: Place) -> dict[str, int] | None:
        """Dates of the loops around a place, in the middle of each, or else at its start; None where it runs at neither."""
        for middle in (True, False):
            at = dict(self.start)
            here = self.root
            while here is not place and (here.kind != "loop" or self.trips(here, at) > 0):
                if here.kind == "loop":
                    low, high = self.range(here, at)
                    at[here.name] = (low + high) // 2 if middle else low
                here = next(c for c in here.children if any(p is place for p in c.walk()))
            if here is place and (place.kind != "loop" or self.trips(place, at) > 0):
                return at
        return None

    # ---- groups
    def groups(self, place: Place) -> dict[str, list[tuple[Ref, ...]]]:
        """By tensor, the references that move over the same elements in neighbouring iterations of the loops from here inwards."""
        if place not in self._groups:
            if place.kind == "leaf":
                by: dict[tuple[str, object], list[Ref]] = {}
                for ref in place.refs:
                    by.setdefault((ref.access.tensor, ref.linear), []).append(ref)
                found: dict[str, list[tuple[Ref, ...]]] = {}
                for (t, _), refs in by.items():
                    found.setdefault(t, []).append(tuple(refs))
            else:
                found = {}
                for c in place.children:
                    for t, groups in self.groups(c).items():
                        found.setdefault(t, []).extend(groups)
                if place.kind == "loop":
                    found = {t: self._merge(place, groups) for t, groups in found.items()}
            self._groups[place] = found
        return self._groups[place]

    def _merge(self, loop: Place, groups: list[tuple[Ref, ...]]) -> list[tuple[Ref, ...]]:
        at = self.middle(loop.children[0]) if len(groups) > 1 else None
        if at is None:
            return groups
        out: list[tuple[Ref, ...]] = []
        for g in groups:
            for k, h in enumerate(out):
                if self._meet(loop, g, h, at):
                    out[k] = (*h, *g)
                    break
            else:
                out.append(g)
        return out

    def _meet(self, loop: Place, g: Sequence[Ref], h: Sequence[Ref], at: Values) -> bool:
        depth = len(loop.path) + 1
        one, other = (self._in_lines(elements_below(x, depth)) for x in (g, h))
        here = _at(one, at)
        near = _at(other, at)
        for d in (-1, 1):
            near = near.union(_at(other, {**at, loop.name: at[loop.name] + d}))
        least = min(_size(here), _size(_at(other, at)))
        return least > 0 and _size(here.intersect(near)) >= SHARED * least

    def _in_lines(self, s: isl.Set) -> isl.Set:
        """The lines of elements, as if rows started at lines."""
        n = s.dim(SET)
        if not n:
            return s
        bits = self.scop.tensor(s.get_tuple_name()).dtype.bits
        return s.reset_tuple_id().apply(to_lines(n, max(1, 8 * self.line // bits)))

    # ---- misses
    def misses(self, cache: Cache, place: Place | None = None, at: Values | None = None) -> dict[str, float]:
        """The lines of each tensor that one run of a place brings into a cache that holds none of them."""
        return dict(self._brought(self.root if place is None else place, cache, at or {}))

    def stretches(self, place: Place, at: Values) -> list[tuple[str, Stretch]]:
        """What one run of a place touches, as runs in memory."""
        out = []
        for t in place.tensors:
            together = self.region(t, _of(place.refs, t), place).stretch(at)
            groups = self.groups(place)[t]
            apart = [self.region(t, g, place).stretch(at) for g in groups] if 1 < len(groups) <= 4 else []
            thin = all(s.rows == 1 or s.run <= THIN for s in apart)  # rows and columns fall on the sets each in its own way
            apart = apart if together.rows > 1 and thin and sum(s.lines for s in apart) <= APART * together.lines else []
            out += [(t, s) for s in apart] or [(t, together)]
        return out

    def _stays(self, place: Place, cache: Cache, at: Values) -> dict[str, float]:
        key = (place, cache, tuple(at[n] for n in sorted(self.depends(place))))
        if key not in self._kept:
            self._kept[key] = stays(self.stretches(place, at), cache)
        return self._kept[key]

    def _brought(self, place: Place, cache: Cache, at: Values) -> dict[str, float]:
        key = (place, cache, tuple(at[n] for n in sorted(self.depends(place))))
        if key not in self._misses:
            self.asked += 1
            if place.kind == "leaf":
                self._misses[key] = self.lines(place, at)
            elif place.kind == "sequence":
                self._misses[key] = self._sequence(place, cache, at)
            else:
                self._misses[key] = self._loop(place, cache, at)
        return self._misses[key]

    def _loop(self, loop: Place, cache: Cache, at: Values) -> dict[str, float]:
        once = self.lines(loop, at)
        kept = self._stays(loop, cache, at)
        if all(k == 1 for k in kept.values()):
            return once
        body = loop.children[0]
        samples = self.samples(loop, at)
        number = sum(w for _, w in samples)
        share, again = dict.fromkeys(once, 0.0), dict.fromkeys(once, 0.0)

        def look(x: Values) -> tuple[dict[str, float], dict[str, float]]:
            stay = self._stays(body, cache, x)
            return stay, self._brought(body, cache, x) if any(k < 1 for k in stay.values()) else {}

        alike = len(samples) > 5 and look(samples[1][0]) == look(samples[len(samples) // 2][0]) == look(samples[-2][0])
        for k, (x, w) in enumerate(samples):
            inside = 0 < k < len(samples) - 1
            stay, brought = look(samples[1][0] if alike and inside else x)
            for t, part in stay.items():
                share[t] += w * part / number
                again[t] += w * (1 - part) * brought.get(t, 0.0)
        out = {}
        for t, f in once.items():
            new = sum(self.lines_of(t, g, loop, at) for g in self.groups(loop)[t])
            out[t] = kept[t] * f + (1 - kept[t]) * max(f, share[t] * new + again[t])
        return out

    def _sequence(self, place: Place, cache: Cache, at: Values) -> dict[str, float]:
        out = dict.fromkeys(place.tensors, 0.0)
        for k, c in enumerate(place.children):
            if not self._runs(c, at):
                continue
            for t, m in self._brought(c, cache, at).items():
                out[t] += max(0.0, m - self._left(place, k, t, cache, at))
        return {t: max(n, self.lines_of(t, _of(place.refs, t), place, at)) if n else n for t, n in out.items()}

    def _left(self, place: Place, k: int, tensor: str, cache: Cache, at: Values) -> float:
        """The lines of a tensor that the parts of a sequence before number k have left in the cache, and that part k uses."""
        now = _of(place.children[k].refs, tensor)
        refs: tuple[Ref, ...] = ()
        left = known = 0.0
        for j in range(k - 1, -1, -1):
            earlier = _of(place.children[j].refs, tensor)
            if not earlier:
                continue
            refs = (*earlier, *refs)
            parts = [self.lines_of(tensor, x, place, at) for x in (refs, now, (*refs, *now))]
            both = parts[0] + parts[1] - parts[2]
            if both > known:
                between = [s for x in place.children[j + 1 : k] for s in self.stretches(x, at) if s[0] != tensor]
                ways = self._distances(place.children[j], place.children[k], tensor, at)
                left += (both - known) * sum(stays(between + d, cache).get(tensor, 0.0) for d in ways) / len(ways)
                known = both
        return left

    def _runs(self, place: Place, at: Values) -> bool:
        return place.kind != "loop" or self.trips(place, at) > 0

    def _distances(self, before: Place, after: Place, tensor: str, at: Values) -> list[list[tuple[str, Stretch]]]:
        """What lies between the last use of a tensor's lines in one part of a sequence and their first use in the next.

        Two sweeps over the tensor: what is left of the first and what has been done of the second, at some points on the way.
        """
        (a, whole_a), (b, whole_b) = self._core(before, tensor, at), self._core(after, tensor, at)
        if not (whole_a and whole_b):
            return [a + [x for x in b if x[0] != tensor]]
        mine = [x for x in a if x[0] == tensor]
        others_a, others_b = ([x for x in s if x[0] != tensor] for s in (a, b))
        return [[*mine, *((t, s.part(1 - p)) for t, s in others_a), *((t, s.part(p)) for t, s in others_b)] for p in (1 / 6, 1 / 2, 5 / 6)]

    def _core(self, place: Place, tensor: str, at: Values) -> tuple[list[tuple[str, Stretch]], bool]:
        """What the innermost run touches that touches all of a tensor's part; True where that is the place as a whole."""
        here, values = place, dict(at)
        mine = self.lines(place, at).get(tensor, 0.0)
        while here.kind == "loop" and self.trips(here, values) > 0:
            low, high = self.range(here, values)
            x = {**values, here.name: (low + high) // 2}
            body = here.children[0]
            if self.lines(body, x).get(tensor, 0.0) < 0.9 * mine:
                break
            here, values = body, x
        return self.stretches(here, values), here is place


def _of(refs: Sequence[Ref], tensor: str) -> tuple[Ref, ...]:
    return tuple(r for r in refs if r.access.tensor == tensor)


def _at(s: isl.Set, values: Values) -> isl.Set:
    names = [str(s.get_dim_name(PARAM, i)) for i in range(s.dim(PARAM))]
    fixed: isl.Set = fix_params(s, {n: values[n] for n in names})
    return fixed.project_out(PARAM, 0, fixed.dim(PARAM))


def _size(s: isl.Set) -> int:
    try:
        return int(count(s, None, BUDGET).at({}))
    except NoClosedForm:
        return 0
