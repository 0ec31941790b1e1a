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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod

import islpy as isl

from ..ir.affine import Affine
from ..ir.scop import Scop
from ..ir.tensor import Tensor
from ..isl_ext import PARAM, SET, fix_params
from .convert import from_pw_aff
from .counting import Count, Piece, count
from .loop_tree import Place, Ref, elements_below
from .quasipoly import lift

SAMPLES = (7, 7, 3, 1)  # iterations at which a loop is looked at, by how many loops are around it, besides the first and the last
EFFORT = 4000  # runs of places that are looked at for one cost; beyond, one iteration stands for all of a loop
BUDGET = 60_000  # isl operations for the closed form of one footprint
LOOKED = (16, 2048)  # rows, and lines of them, whose place in a cache is looked at
APART = 1.25  # how much more lines groups have one by one than together, at most, to count as apart
THIN = 1.5  # lines of a row of what counts as a column
SHARED = 0.5  # how much two groups have in common in neighbouring iterations to count as one

Values = Mapping[str, int]
Loads = dict[int, float]  # how many lines a set of the cache gets → the share of the sets


@dataclass(frozen=True)
class Cache:
    """A cache of least recent use: its size in bytes, and how many lines a set holds."""

    size: int
    ways: int = 8
    line: int = 64

    @property
    def sets(self) -> int:
        """How many sets."""
        return max(1, self.size // (self.line * self.ways))


@dataclass(frozen=True)
class Stretch:
    """Lines in memory: `rows` runs of `run` lines each, `pitch` lines from one start to the next."""

    rows: int
    run: float
    pitch: float

    @property
    def lines(self) -> float:
        """How many lines."""
        return self.rows * self.run

    def part(self, share: float) -> Stretch:
        """The first part of it."""
        return Stretch(max(1, round(self.rows * share)), self.run, self.pitch) if self.rows > 1 else Stretch(1, self.run * share, self.pitch)


@lru_cache(maxsize=4096)
def loads(s: Stretch, sets: int) -> Loads:
    """How lines fall on the sets of a cache."""
    if s.rows == 1:
        whole, part = divmod(s.run, sets)
        share = part / sets
        return {int(whole): 1 - share, int(whole) + 1: share} if share else {int(whole): 1.0}
    per: dict[int, float] = {}
    looked = min(s.rows, max(LOOKED[0], int(LOOKED[1] / max(1.0, s.run))))
    for k in range(looked):
        at, left = int(k * s.pitch), min(s.run, float(sets))
        while left > 0:
            per[at % sets] = per.get(at % sets, 0.0) + min(1.0, left)
            at, left = at + 1, left - 1
    more = s.rows / looked * max(1.0, s.run / sets)
    out: Loads = {0: 1 - len(per) / sets}
    for x in per.values():
        whole, part = divmod(x * more, 1)
        out[int(whole)] = out.get(int(whole), 0.0) + (1 - part) / sets
        if part:
            out[int(whole) + 1] = out.get(int(whole) + 1, 0.0) + part / sets
    return out


@dataclass(frozen=True)
class Ends:
    """A piecewise affine function of dates: where each piece holds, and its value."""

    pieces: tuple[tuple[Piece, Affine], ...]

    def names(self) -> frozenset[str]:
        """The dates that matter."""
        conditions = {n for where, _ in self.pieces for row in where.rows for e, _ in row for n in e.names()}
        return frozenset(conditions | {n for _, x in self.pieces for n in x.names()})

    def at(self, values: Values) -> int:
        """The value at given dates."""
        return next((x.evaluate(values) for where, x in self.pieces if where.holds(values)), 0)


def ends(p: isl.PwAff) -> Ends:
    """The function that isl gives."""
    return Ends(tuple((Piece(where, lift(0)), x) for where, x in from_pw_aff(p)))


@dataclass(frozen=True, eq=False)
class Region:
    """The elements of a tensor that some references touch in one run of a place, as a function of the dates of the loops around."""

    tensor: Tensor
    points: isl.Set
    row: int | None  # elements from one row to the next, where known
    line: int
    around: isl.Set | None = None  # where the dates lie
    at: Values | None = None  # where alone the forms have to hold

    @cached_property
    def elements(self) -> Count:
        """How many elements."""
        return count(self.points, self.around, BUDGET, self.at)

    @cached_property
    def rows(self) -> Count:
        """How many rows (the last dim runs along a row)."""
        n = self.points.dim(SET)
        return count(self.points.project_out(SET, n - 1, 1), self.around, BUDGET, self.at) if n else self.elements

    @cached_property
    def is_closed(self) -> bool:
        """Whether elements and rows have closed forms; else the box around them counts."""
        return self.elements.is_closed and self.rows.is_closed

    @cached_property
    def box(self) -> tuple[tuple[Ends, Ends], ...]:
        """The least and the greatest index in each dim."""
        points = self.points if self.around is None else self.points.gist_params(self.around)
        return tuple((ends(points.dim_min(d)), ends(points.dim_max(d))) for d in range(points.dim(SET)))

    def numbers(self, values: Values) -> tuple[float, float]:
        """Elements and rows; at most, where they have no closed form."""
        if self.is_closed:
            return float(self.elements.at(values)), float(self.rows.at(values))
        extents = [max(0, high.at(values) - low.at(values) + 1) for low, high in self.box]
        rows = float(prod(extents[:-1]))
        return rows * (extents[-1] if extents else 1), rows

    @cached_property
    def exact(self) -> Count | None:
        """How many lines, where rows start at lines and there is a closed form."""
        n, per = self.points.dim(SET), self.line // self.itemsize
        if per < 1 or n == 0 or (n > 1 and (self.row is None or self.row % per)) or not self.is_closed:
            return None
        lines = count(self.points.reset_tuple_id().apply(to_lines(n, per)), self.around, BUDGET, self.at)
        return lines if lines.is_closed else None

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(1, self.tensor.dtype.bits // 8)

    @cached_property
    def names(self) -> frozenset[str]:
        """The dates that matter."""
        if not self.is_closed:
            return frozenset(n for low, high in self.box for e in (low, high) for n in e.names())
        counts = [self.elements, self.rows] if self.exact is None else [self.exact]
        return frozenset(n for c in counts for n in c.names())

    @cached_property
    def _share(self) -> float:
        """The part of a line that one element takes."""
        n = self.points.dim(SET)
        step = int(self.points.get_stride(n - 1).to_python()) if n else 1
        return min(1.0, max(1, step) * self.itemsize / self.line)

    def stretch(self, values: Values) -> Stretch:
        """The lines as runs in memory."""
        lines, n = self.lines(values), self.points.dim(SET)
        rows = round(self.numbers(values)[1]) if n > 1 and self.row is not None else 1
        if rows <= 1 or self.row is None or lines >= rows * self.row * self.itemsize / self.line:
            return Stretch(1, lines, lines)
        step = max(1, int(self.points.get_stride(n - 2).to_python()))
        return Stretch(rows, lines / rows, step * self.row * self.itemsize / self.line)

    def lines(self, values: Values) -> float:
        """The lines that hold the elements: exact, or on average over where rows start."""
        if self.exact is not None:
            return float(self.exact.at(values))
        (elements, rows), share = self.numbers(values), self._share
        out = rows * (1 - share) + elements * share
        if self.row is not None and rows:  # rows that follow one another share lines
            out = min(out, rows * self.row * self.itemsize / self.line + 1 - self.itemsize / self.line)
        return out


@cache
def to_lines(n: int, per: int) -> isl.Map:
    """The map from n indices to the same with the last one divided by the number of elements in a line."""
    outer = "".join(f"i{k}, " for k in range(n - 1))
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{outer}x] -> [{outer}q] : {per}q <= x < {per}q + {per} }}")


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
        return int(self.trip_count(loop).at(at))

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


def stays(stretches: Sequence[tuple[str, Stretch]], cache: Cache) -> dict[str, float]:
    """The part of each tensor's lines that is still in a cache when all of these lines have been used once more in between.

    The lines of each tensor fall on the sets as its rows lie in memory, those of different tensors independently. A set that gets more lines than
    it holds keeps none of them (least recent use, in cyclic order).
    """
    total = sum(s.lines for _, s in stretches)
    if all(s.rows == 1 for _, s in stretches) and total > 2 * cache.sets * cache.ways:
        return {t: 0.0 for t, _ in stretches}
    fallen = [loads(s, cache.sets) for _, s in stretches]
    out: dict[str, float] = {}
    for k, (t, _) in enumerate(stretches):
        others: Loads = {0: 1.0}
        for j, other in enumerate(fallen):
            if j != k:
                others = _sum(others, other, cache.ways + 1)
        held = sum(p * n * sum(q for m, q in others.items() if n + m <= cache.ways) for n, p in fallen[k].items())
        mine = sum(p * n for n, p in fallen[k].items())
        out[t] = min(out.get(t, 1.0), held / mine if mine else 1.0)
    return {t: 1.0 if k > 0.999 else k for t, k in out.items()}


def _sum(a: Loads, b: Loads, most: int) -> Loads:
    """How the lines of two independent groups fall on the sets together; loads over `most` count as `most`."""
    out: Loads = {}
    for n, p in a.items():
        for m, q in b.items():
            at = min(most, n + m)
            out[at] = out.get(at, 0.0) + p * q
    return out


def _of(refs: Sequence[Ref], tensor: str) -> tuple[Ref, ...]:
    return tuple(r for r in refs if r.access.tensor == tensor)


def _at(s: isl.Set, values: Values) -> isl.Set:
    names = [str(s.get_dim_name(PARAM, i)) for i in range(s.dim(PARAM))]
    fixed = fix_params(s, {n: values[n] for n in names})
    return fixed.project_out(PARAM, 0, fixed.dim(PARAM))


def _size(s: isl.Set) -> int:
    return int(count(s).at({}))
