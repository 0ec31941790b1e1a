"""The recipe for nests that are repeated over time (stencils): several time steps run while their rows are in cache.

    for t: for x: …x… ; for x: …x…          for tt: for w: for t in tt: { x = w - a·t - b: … }

A statement's rows are told by the first index of what it writes; w = x + a·t + b with the least skew a, common to all statements, and the least
shifts b under which no dependence goes back in w (a longest-path problem over the dependences' distances). Then (t, w) is permutable, t is
cut into blocks whose rows in flight fit in L2, and rows stay whole: the inner loop is long and plain. Where a row is too large (a plane of a
three-dimensional grid), the next dim is skewed and tiled in the same way. Declines where the data fits in cache anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine, var
from ..ir.scop import Scop, Statement, Step
from ..ir.tensor import Tensor
from ..isl_ext import IN, OUT, SET, maps_of
from ..poly.convert import columns, to_multi_aff
from ..poly.strides import known_extent
from ..target import Target
from . import rows
from .checked import checked, with_dependences
from .diamond import diamond
from .marks import parallelize, vectorize
from .promote import date_of, iterator_ranges, make_member
from .tree import Leaf, Loop, Member, Seq, Tree, chains, loops, read_tree, rewrite_schedule, sequence, split_chain, statements_below

MAX_SKEW = 8
MAX_STEPS = 32
MIN_STEPS = 4


@dataclass(frozen=True)
class Skew:
    """One spatial dim: the coordinate of each statement, the skew against time, the shift of each statement."""

    coordinate: Mapping[str, Affine]
    factor: int
    shift: Mapping[str, int]

    def date(self, s: str, time: Affine) -> Affine:
        """The skewed coordinate."""
        return self.coordinate[s] + time * self.factor + self.shift[s]


@dataclass(frozen=True)
class TimeNest:
    """A nest over time: for each statement its time, and its loops inside, outermost first."""

    time: Mapping[str, Affine]
    inner: Mapping[str, tuple[Member, ...]]


def find_time_nest(scop: Scop) -> TimeNest | None:
    """The nest of all statements under one loop that walks over no tensor dim that they write; None where it is another kind of nest."""
    tree = read_tree(scop.schedule)
    if not isinstance(tree, Loop):
        return None
    time: dict[str, Affine] = {}
    inner: dict[str, tuple[Member, ...]] = {}

    def visit(t: Tree, members: tuple[Member, ...]) -> bool:
        own, below = split_chain(t)
        members = (*members, *own)
        if isinstance(below, Seq):
            return all([visit(p, members) for p in below.parts])
        assert isinstance(below, Leaf)
        if len(below.statements) != 1:
            return False
        s = scop.statement(below.statements[0])
        date = date_of(tree.member, s)
        steps = [x for x in s.iters if date.coefficient(x)]
        if len(steps) != 1 or date != var(steps[0]) or not s.write.is_affine or steps[0] in _names(s):
            return False
        time[s.name], inner[s.name] = date, members
        return True

    try:
        return TimeNest(time, inner) if visit(tree.body, ()) else None
    except ScheduleError:  # a loop without a single affine date
        return None


def _names(s: Statement) -> frozenset[str]:
    return frozenset().union(*(x.names() for x in s.write.affine_indices()))


def apply(scop: Scop, target: Target) -> Scop | None:
    """The scop in blocks of time steps; None where that does not apply or does not pay."""
    scop = with_dependences(scop)
    nest = find_time_nest(scop)
    if nest is None or not _pays(scop, nest, target):
        return None
    if target.threads > 1 and (out := _concurrent(scop, nest, target)) is not None:
        return out
    first = find_skew(scop, nest, 0)
    if first is None or first.factor == 0:
        return None
    steps = _steps(scop, [first], 0, target)
    if steps >= MIN_STEPS:
        return _tiled(scop, nest, [first], steps, 0, target)
    second = find_skew(scop, nest, 1)
    if second is None:
        return None
    sizes = [(s, y) for s in (8, 4) for y in (64, 32, 16) if _steps(scop, [first, second], y, target) >= s]
    return _tiled(scop, nest, [first, second], *sizes[0], target) if sizes else None


def _concurrent(scop: Scop, nest: TimeNest, target: Target) -> Scop | None:
    """Diamonds of whole rows, which several threads run at once; None where concurrent start does not exist, or where diamonds that fit in half of
    L2 have few steps: blocks of time steps then take one thread less time than diamonds take two."""
    time, rows_ = _outermost(scop), [m[0].name for m in nest.inner.values() if len(m) > 1]
    row = sum(prod(map(known_extent, t.shape[1:])) * t.dtype.bytes for t in _grids(scop))
    size = min(MAX_STEPS, target.l2 // 2 // row)
    if not rows_ or size // len(scop.statements) < 2 * MIN_STEPS:  # a step in time is one of each statement
        return None
    try:
        out = diamond(scop, time, rows_[0], size=size)
        tiles = next(c for c in chains(read_tree(out.schedule)) if not c.path)
        out = parallelize(out, tiles.members[tiles.index(time) - 1].name)
        for s in scop.statements:
            inner = nest.inner[s.name][-1].name
            with contextlib.suppress(ScheduleError):
                out = vectorize(out, inner, max(1, rows.vector_lanes(scop, s, target)), of=s.name)
        return out
    except ScheduleError:
        return None


def _outermost(scop: Scop) -> str:
    """The name of the outermost loop."""
    tree = read_tree(scop.schedule)
    assert isinstance(tree, Loop)
    return tree.member.name


def _pays(scop: Scop, nest: TimeNest, target: Target) -> bool:
    """Whether the data exceeds L2 and there are time steps to run together."""
    size = sum(prod(map(known_extent, t.shape)) * t.dtype.bytes for t in _grids(scop))
    known = all(x.is_const for t in _grids(scop) for x in t.shape)
    for s in scop.statements:
        (step,) = nest.time[s.name].names()
        lo, hi = iterator_ranges(s)[step]
        if lo is not None and hi is not None and hi - lo + 1 < 2 * MIN_STEPS:
            return False
    return not known or size > target.l2


def _grids(scop: Scop) -> list[Tensor]:
    used = {a.tensor for s in scop.statements for a in (s.write, *s.reads())}
    return [t for t in scop.tensors if t.name in used and len(t.shape) > 1]


# ---- the skew of a dim
def find_skew(scop: Scop, nest: TimeNest, dim: int) -> Skew | None:
    """The least skew and shifts that make (time, dim) permutable; None where there are none up to MAX_SKEW."""
    coordinate: dict[str, Affine] = {}
    for s in scop.statements:
        if dim >= len(s.write.indices):
            return None
        x = s.write.affine_indices()[dim]
        if not (x.is_const or (len(x.terms) == 1 and isinstance(x.terms[0][0], str) and x.terms[0][1] == 1 and x.terms[0][0] in s.iters)):
            return None
        coordinate[s.name] = x
    deltas = _distances(scop, nest, coordinate)
    names = [s.name for s in scop.statements]
    for factor in range(MAX_SKEW + 1):
        shift = _least_shifts(names, deltas, factor)
        if shift is not None:
            return Skew(coordinate, factor, shift)
    return None


def _distances(scop: Scop, nest: TimeNest, coordinate: Mapping[str, Affine]) -> list[tuple[str, str, isl.Set]]:
    """For each pair of statements the distances (time, coordinate) of their dependences."""
    assert scop.dependences is not None
    place = {}
    for s in scop.statements:
        space = s.domain.get_space()
        place[s.name] = isl.Map.from_multi_aff(to_multi_aff([nest.time[s.name], coordinate[s.name]], space, None, columns(space, s.iters)))
    out = []
    for m in maps_of(scop.dependences.all()):
        if m.is_empty():
            continue
        a, b = m.get_tuple_name(IN), m.get_tuple_name(OUT)
        out.append((str(a), str(b), m.apply_domain(place[str(a)]).apply_range(place[str(b)]).deltas()))
    return out


def _least_shifts(names: Sequence[str], deltas: Sequence[tuple[str, str, isl.Set]], factor: int) -> dict[str, int] | None:
    """Shifts b >= 0 with b[sink] - b[source] >= -(factor·δt + δx) for every distance; None where there are none."""
    edges: list[tuple[str, str, int]] = []
    for a, b, d in deltas:
        ls = isl.LocalSpace.from_space(d.get_space())
        aff = isl.Aff.var_on_domain(ls, SET, 0).scale_val(isl.Val.int_from_si(d.get_ctx(), factor)).add(isl.Aff.var_on_domain(ls, SET, 1))
        least = d.min_val(aff)
        if not least.is_int():  # unbounded
            return None
        edges.append((a, b, -int(least.to_python())))
    shift = dict.fromkeys(names, 0)
    for _ in range(len(names) + 1):
        changed = False
        for a, b, need in edges:
            if shift[b] < shift[a] + need:
                shift[b], changed = shift[a] + need, True
        if not changed:
            return shift
    return None  # a cycle that needs more skew


# ---- sizes
def _steps(scop: Scop, skews: Sequence[Skew], width: int, target: Target) -> int:
    """How many time steps' rows fit in half of L2 together; with two skewed dims, rows of `width` in the second."""

    def in_flight(steps: int) -> int:
        rows_ = skews[0].factor * steps + 3
        total = 0
        for t in _grids(scop):
            shape = [known_extent(x) for x in t.shape]
            if len(skews) > 1:
                shape[1] = min(shape[1], width + skews[1].factor * steps)
            total += min(shape[0], rows_) * prod(shape[1:]) * t.dtype.bytes
        return total

    steps = 0
    while steps < MAX_STEPS and in_flight(steps + 1) <= target.l2 // 2:
        steps += 1
    return steps


# ---- the tree
def _tiled(scop: Scop, nest: TimeNest, skews: Sequence[Skew], steps: int, width: int, target: Target) -> Scop:
    """All statements under blocks of time steps, tiles of the second skewed dim, the skewed rows, and time."""
    names = [s.name for s in scop.statements]
    member = partial(make_member, scop)
    outer = [member("tt", {s: nest.time[s] // steps for s in names})]
    if len(skews) > 1:
        outer.append(member("ty", {s: skews[1].date(s, nest.time[s]) // width for s in names}))
    outer.append(member("w", {s: skews[0].date(s, nest.time[s]) for s in names}))
    outer.append(member("t", {s: nest.time[s] for s in names}))
    parts: list[Tree] = []
    for s in statements_below(read_tree(scop.schedule)):
        row = skews[0].coordinate[s].names()
        left = [_own(scop, m, s) for m in nest.inner[s] if date_of(m, scop.statement(s)).names() != row or not row]
        parts.append(rows.schedule_part(scop, loops(left, Leaf((s,))), target))
    step = Step("time_tiles", (steps,), (("skew", tuple(k.factor for k in skews)), *((("width", width),) if len(skews) > 1 else ())))
    out = checked(scop, rewrite_schedule(scop, loops(outer, sequence(parts))), step, marks=False)
    return rows.drop_illegal_marks(out)


def _own(scop: Scop, m: Member, s: str) -> Member:
    return make_member(scop, m.name, {s: date_of(m, scop.statement(s))}, m.mark)
