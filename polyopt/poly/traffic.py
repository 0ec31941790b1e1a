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
from functools import cached_property

import islpy as isl

from ..ir.scop import Scop
from ..ir.tensor import Tensor
from ..isl_ext import PARAM, SET, fix_params
from .counting import Count, count
from .loop_tree import Place, Ref, elements_below

WAYS = 8  # a footprint that is over a cache's size by more than 1/WAYS leaves nothing of itself in it
SAMPLES = 7  # iterations at which a loop is looked at, besides the first and the last
SHARED = 0.5  # how much two groups have in common in neighbouring iterations to count as one

Values = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Region:
    """The elements of a tensor that some references touch in one run of a place, as a function of the dates of the loops around."""

    tensor: Tensor
    points: isl.Set
    row: int | None  # elements from one row to the next, where known
    line: int

    @cached_property
    def elements(self) -> Count:
        """How many elements."""
        return count(self.points)

    @cached_property
    def rows(self) -> Count:
        """How many rows (the last dim runs along a row)."""
        n = self.points.dim(SET)
        return count(self.points.project_out(SET, n - 1, 1)) if n else count(self.points)

    @cached_property
    def exact(self) -> Count | None:
        """How many lines, where rows start at lines and there is a closed form."""
        n, per = self.points.dim(SET), self.line // self.itemsize
        if per < 1 or n == 0 or (n > 1 and (self.row is None or self.row % per)):
            return None
        line = isl.Map.read_from_str(self.points.get_ctx(), f"{{ [x] -> [q] : {per}q <= x < {per}q + {per} }}")
        if n > 1:
            line = isl.Map.identity(isl.Space.set_alloc(self.points.get_ctx(), 0, n - 1).map_from_set()).flat_product(line)
        lines = count(self.points.reset_tuple_id().apply(line))
        return lines if lines.is_closed else None

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(1, self.tensor.dtype.bits // 8)

    @cached_property
    def names(self) -> frozenset[str]:
        """The dates that matter."""
        counts = [self.elements] if self.exact is None else [self.exact]
        if self.exact is None:
            counts.append(self.rows)
        return frozenset(n for c in counts for n in c.names())

    @cached_property
    def _share(self) -> float:
        """The part of a line that one element takes."""
        n = self.points.dim(SET)
        step = int(self.points.get_stride(n - 1).to_python()) if n else 1
        return min(1.0, max(1, step) * self.itemsize / self.line)

    def lines(self, values: Values) -> float:
        """The lines that hold the elements: exact, or on average over where rows start."""
        if self.exact is not None:
            return float(self.exact.at(values))
        elements, rows, share = float(self.elements.at(values)), float(self.rows.at(values)), self._share
        out = rows * (1 - share) + elements * share
        if self.row is not None and rows:  # rows that follow one another share lines
            out = min(out, rows * self.row * self.itemsize / self.line + 1 - self.itemsize / self.line)
        return out


class Traffic:
    """Footprints and misses of a schedule whose sizes are known. `places`: its tree, read with these sizes."""

    def __init__(self, scop: Scop, places: Place, sizes: Values, line: int) -> None:
        self.scop, self.root, self.line = scop, places, line
        self.rows = {t.name: (t.shape[-1].evaluate(sizes) if t.shape else None) for t in scop.tensors}
        self._regions: dict[tuple[str, tuple[int, ...], int], Region] = {}
        self._lines: dict[tuple[int, tuple[int, ...]], float] = {}
        self._ranges: dict[tuple[Place, tuple[int, ...]], tuple[int, int]] = {}
        self._trips: dict[Place, Count] = {}
        self._depends: dict[Place, frozenset[str]] = {}
        self._groups: dict[Place, dict[str, list[tuple[Ref, ...]]]] = {}
        self._misses: dict[tuple[Place, int, tuple[int, ...]], dict[str, float]] = {}

    # ---- footprints
    def region(self, tensor: str, refs: Sequence[Ref], depth: int) -> Region:
        """What references touch in one run of a place inside `depth` loops."""
        key = (tensor, tuple(sorted(map(id, refs))), depth)
        if key not in self._regions:
            self._regions[key] = Region(self.scop.tensor(tensor), elements_below(refs, depth), self.rows[tensor], self.line)
        return self._regions[key]

    def lines_of(self, tensor: str, refs: Sequence[Ref], depth: int, at: Values) -> float:
        """How many lines that are."""
        region = self.region(tensor, refs, depth)
        key = (id(region), tuple(at[n] for n in sorted(region.names)))
        if key not in self._lines:
            self._lines[key] = region.lines(at)
        return self._lines[key]

    def lines(self, place: Place, at: Values) -> dict[str, float]:
        """The lines of each tensor in one run of a place."""
        return {t: self.lines_of(t, _of(place.refs, t), len(place.path), at) for t in place.tensors}

    def total(self, place: Place, at: Values) -> float:
        """The lines of all tensors."""
        return sum(self.lines(place, at).values())

    # ---- iterations
    def trips(self, loop: Place, at: Values) -> int:
        """How many iterations a loop has."""
        return int(self._trip_count(loop).at(at))

    def depends(self, place: Place) -> frozenset[str]:
        """The dates of the loops around that matter below a place."""
        if place not in self._depends:
            used = {n for t in place.tensors for n in self.region(t, _of(place.refs, t), len(place.path)).names}
            for child in place.children:
                used |= self.depends(child)
            if place.kind == "loop":
                used |= self._trip_count(place).names()
                assert place.dates is not None
                space = place.dates
                used |= {str(space.get_dim_name(PARAM, i)) for i in range(space.dim(PARAM)) if space.involves_dims(PARAM, i, 1)}
            self._depends[place] = frozenset(used) & frozenset(place.path)
        return self._depends[place]

    def _trip_count(self, loop: Place) -> Count:
        if loop not in self._trips:
            assert loop.dates is not None
            self._trips[loop] = count(loop.dates)
        return self._trips[loop]

    def range(self, loop: Place, at: Values) -> tuple[int, int]:
        """The first and the last date of a loop that has iterations."""
        assert loop.dates is not None
        key = (loop, tuple(at[n] for n in loop.path))
        if key not in self._ranges:
            fixed = fix_params(loop.dates, {n: at[n] for n in loop.path})
            self._ranges[key] = (int(fixed.dim_min_val(0).to_python()), int(fixed.dim_max_val(0).to_python()))
        return self._ranges[key]

    def samples(self, loop: Place, at: Values) -> list[tuple[dict[str, int], float]]:
        """Iterations that stand for all, with weights that add up to their number."""
        n = self.trips(loop, at)
        if n <= 0:
            return []
        low, high = self.range(loop, at)
        step = (high - low) // (n - 1) if n > 1 else 1
        if loop.name not in self.depends(loop.children[0]):
            return [({**at, loop.name: low + (n // 2) * step}, float(n))]
        if n <= SAMPLES + 2:
            return [({**at, loop.name: low + k * step}, 1.0) for k in range(n)]
        inner = [({**at, loop.name: low + (1 + int((2 * k + 1) * (n - 2) / (2 * SAMPLES))) * step}, (n - 2) / SAMPLES) for k in range(SAMPLES)]
        return [({**at, loop.name: low}, 1.0), *inner, ({**at, loop.name: high}, 1.0)]

    def middle(self, place: Place) -> dict[str, int] | None:
        """Dates of the loops around a place, in the middle of each; None where it does not run there."""
        at: dict[str, int] = {}
        here = self.root
        while here is not place:
            if here.kind == "loop":
                if self.trips(here, at) <= 0:
                    return None
                low, high = self.range(here, at)
                at[here.name] = (low + high) // 2
            here = next(c for c in here.children if any(p is place for p in c.walk()))
        return at

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
        one, other = elements_below(g, depth), elements_below(h, depth)
        here = _at(one, at)
        near = _at(other, at)
        for d in (-1, 1):
            near = near.union(_at(other, {**at, loop.name: at[loop.name] + d}))
        least = min(_size(here), _size(_at(other, at)))
        return least > 0 and _size(here.intersect(near)) >= SHARED * least

    # ---- misses
    def misses(self, capacity: int, place: Place | None = None, at: Values | None = None) -> dict[str, float]:
        """The lines of each tensor that one run of a place brings into a cache of `capacity` bytes that holds none of them."""
        return dict(self._brought(self.root if place is None else place, capacity // self.line, at or {}))

    def _brought(self, place: Place, lines: int, at: Values) -> dict[str, float]:
        key = (place, lines, tuple(at[n] for n in sorted(self.depends(place))))
        if key not in self._misses:
            if place.kind == "leaf":
                self._misses[key] = self.lines(place, at)
            elif place.kind == "sequence":
                self._misses[key] = self._sequence(place, lines, at)
            else:
                self._misses[key] = self._loop(place, lines, at)
        return self._misses[key]

    def _loop(self, loop: Place, lines: int, at: Values) -> dict[str, float]:
        once = self.lines(loop, at)
        kept = stays(sum(once.values()), lines)
        if kept == 1:
            return once
        body = loop.children[0]
        samples = self.samples(loop, at)
        number = sum(w for _, w in samples)
        share = 0.0
        again = dict.fromkeys(once, 0.0)
        for x, w in samples:
            stay = stays(self.total(body, x), lines)
            share += w * stay / number
            if stay < 1:
                for t, m in self._brought(body, lines, x).items():
                    again[t] += w * (1 - stay) * m
        out = {}
        for t, f in once.items():
            new = sum(self.lines_of(t, g, len(loop.path), at) for g in self.groups(loop)[t])
            out[t] = kept * f + (1 - kept) * max(f, share * new + again[t])
        return out

    def _sequence(self, place: Place, lines: int, at: Values) -> dict[str, float]:
        out = dict.fromkeys(place.tensors, 0.0)
        depth = len(place.path)
        for k, c in enumerate(place.children):
            if not self._runs(c, at):
                continue
            for t, m in self._brought(c, lines, at).items():
                j = next((j for j in range(k - 1, -1, -1) if t in place.children[j].tensors), None)
                shared = 0.0
                if j is not None:
                    before, now = _of(place.children[j].refs, t), _of(c.refs, t)
                    both = self.lines_of(t, before, depth, at) + self.lines_of(t, now, depth, at) - self.lines_of(t, (*before, *now), depth, at)
                    between = sum(self.total(x, at) for x in place.children[j + 1 : k])
                    shared = max(0.0, both) * stays(between + self._distance(place.children[j], c, t, at), lines)
                out[t] += max(0.0, m - shared)
        return out

    def _runs(self, place: Place, at: Values) -> bool:
        return place.kind != "loop" or self.trips(place, at) > 0

    def _distance(self, before: Place, after: Place, tensor: str, at: Values) -> float:
        """The lines between the last use of a tensor's lines in one part of a sequence and their first use in the next."""
        (a, whole_a), (b, whole_b) = self._core(before, tensor, at), self._core(after, tensor, at)
        return max(a, b) if whole_a and whole_b else a + b

    def _core(self, place: Place, tensor: str, at: Values) -> tuple[float, bool]:
        """The lines of the innermost run that touches all of a tensor's part; True where that is the place as a whole."""
        here, values = place, dict(at)
        mine = self.lines(place, at).get(tensor, 0.0)
        while here.kind == "loop" and self.trips(here, values) > 0:
            low, high = self.range(here, values)
            x = {**values, here.name: (low + high) // 2}
            body = here.children[0]
            if self.lines(body, x).get(tensor, 0.0) < 0.9 * mine:
                break
            here, values = body, x
        return self.total(here, values), here is place


def stays(footprint: float, lines: int) -> float:
    """The part of a footprint that is still in a cache when it is used again. Beyond its size, sets overflow one after the other."""
    return min(1.0, max(0.0, 1 - WAYS * (footprint / lines - 1))) if lines else 0.0


def _of(refs: Sequence[Ref], tensor: str) -> tuple[Ref, ...]:
    return tuple(r for r in refs if r.access.tensor == tensor)


def _at(s: isl.Set, values: Values) -> isl.Set:
    names = [str(s.get_dim_name(PARAM, i)) for i in range(s.dim(PARAM))]
    fixed = fix_params(s, {n: values[n] for n in names})
    return fixed.project_out(PARAM, 0, fixed.dim(PARAM))


def _size(s: isl.Set) -> int:
    return int(count(s).at({}))
