"""diamond: tiles of a stencil that is iterated over time, such that all tiles along the grid can start at once (*concurrent start*).

    for t: for i: S(t, i)          diamond("t", "i", size=16)          for w: for ti: for t: for i: S(t, i)          (ti is parallel)

With τ the step in time (P t + p for the p-th of P statements in the time loop) and i the first space loop, tiles are cut by two hyperplanes,
u = a τ + i and v = b τ - i, of the least slopes a and b under which no dependence goes back in either.
Formally the outer loops are w = floor(u / size) + floor(v / size) and ti = floor(u / size); other space loops j are tiled by floor((c τ + j) / size).
Concurrent start exists where both a and b do: each dependence that moves along i must move on in time. In-place stencils (Gauss-Seidel) have none.
(Bandishti, Pananilath and Bondhugula 2012, Tiling stencil computations to maximize parallelism.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine
from ..ir.scop import Scop, Step
from ..isl_ext import CTX, IN, OUT, SET, maps_of
from ..poly.convert import columns, to_multi_aff
from ..poly.legality import check_parallel
from ..poly.witness import small_pair
from .arguments import check_count
from .checked import checked, with_dependences
from .promote import date_of, make_member
from .tree import (
    Chain,
    Loop,
    Member,
    Seq,
    Tree,
    band_node,
    chains,
    find_chain,
    fresh_name,
    read_tree,
    statements_below,
    with_members,
)
from .wavefront import wave_name

STEEPEST = 8  # grid points that a dependence may move in one step in time


@dataclass(frozen=True)
class Grid:
    """The dates of each statement: τ, then its coordinate in each space loop."""

    place: Mapping[str, tuple[Affine, ...]]

    def map_of(self, scop: Scop, s: str) -> isl.Map:
        """The relation from a statement's instances to their place."""
        st = scop.statement(s)
        space = st.domain.get_space()
        return isl.Map.from_multi_aff(to_multi_aff(list(self.place[s]), space, None, columns(space, st.iters)))


def diamond(scop: Scop, time: str, *space: str, size: int | Sequence[int], of: str | None = None) -> Scop:
    """Tile the nest of the loop `time` in diamonds along the first loop of `space`, and in skewed tiles along the others.

    size: the width of a tile along its hyperplanes (in steps of τ and grid points), one for all space loops or one each. Raises ScheduleError where
    concurrent start does not exist, with two instances that show why.
    """
    scop = with_dependences(scop)
    if not space:
        raise ScheduleError('diamond: name the time loop and at least one space loop, such as diamond("t", "i", size=16)')
    several = isinstance(size, Sequence) and not isinstance(size, str)
    sizes = list(size) if isinstance(size, Sequence) and several else [size] * len(space)
    if len(sizes) != len(space):
        raise ScheduleError(f"diamond: size has {len(sizes)} numbers for {len(space)} space loops; give one number or one a loop")
    widths = [check_count("diamond", "size", x, 2) for x in sizes]
    if len({time, *space}) != len(space) + 1:
        raise ScheduleError(f"diamond: a loop is named twice in {', '.join((time, *space))}")
    chain = find_chain(scop, "diamond", [time], of)
    marked = next((m for m in chain.members[: chain.index(time) + 1] if m.mark and m.name == time), None)
    if marked is not None:
        raise ScheduleError(f"diamond: the loop {time} is marked {marked.mark}; tile it before it is marked")
    grid = find_grid(scop, chain, time, space)
    distances = find_distances(scop, chain, time, grid)
    up, down = (_slope(scop, distances, 0, sign, time, space) for sign in (1, -1))
    if up + down == 0:  # nothing moves along the grid: any slope will do
        up = down = 1
    others = [_slope(scop, distances, d, 1, time, space) for d in range(1, len(space))]
    step = Step("diamond", (time, *space), (("size", tuple(widths) if several else widths[0]), *((("of", of),) if of else ())))
    out = checked(scop, with_members(scop, chain, _members(scop, chain, time, space, grid, (up, down, *others), widths)), step)
    after = next(c for c in chains(read_tree(out.schedule)) if c.path == chain.path)
    check_parallel(scop, band_node(out.schedule, after, after.members[chain.index(time) + 1].name), 0, str(step))
    return out


def _members(
    scop: Scop, chain: Chain, time: str, space: Sequence[str], grid: Grid, slopes: Sequence[int], widths: Sequence[int]
) -> list[Member]:
    """The loops of the time loop's chain with the tile loops around it."""

    def dates(f: object) -> dict[str, Affine]:
        return {s: f(grid.place[s]) for s in chain.statements}  # type: ignore[operator]

    up = dates(lambda p: (p[0] * slopes[0] + p[1]) // widths[0])
    down = dates(lambda p: (p[0] * slopes[1] - p[1]) // widths[0])
    tiles = [
        make_member(scop, wave_name(scop, chain), {s: up[s] + down[s] for s in chain.statements}),
        make_member(scop, fresh_name(scop, space[0], chain.statements), up),
    ]
    for d in range(1, len(space)):
        date = dates(lambda p, d=d: (p[0] * slopes[d + 1] + p[d + 1]) // widths[d])
        tiles.append(make_member(scop, fresh_name(scop, space[d], chain.statements), date))
    at = chain.index(time)
    return [*chain.members[:at], *tiles, *chain.members[at:]]


# ---- the grid
def find_grid(scop: Scop, chain: Chain, time: str, space: Sequence[str]) -> Grid:
    """The place of each statement: its step in time and its grid coordinates. A statement without one of the loops (a border) has the coordinate
    that it writes."""
    inside = _loops_inside(Loop(chain.member(time), _below(chain, time)))
    names = list(statements_below(chain.below))
    count = len(names)
    place: dict[str, tuple[Affine, ...]] = {}
    for p, n in enumerate(names):
        s = scop.statement(n)
        step = date_of(chain.member(time), s) * count + p
        place[n] = (step, *(_coordinate(scop, n, x, inside, time) for x in space))
    return Grid(place)


def _below(chain: Chain, loop: str) -> Tree:
    out = chain.below
    for m in reversed(chain.members[chain.index(loop) + 1 :]):
        out = Loop(m, out)
    return out


def _loops_inside(tree: Tree) -> dict[str, dict[str, Member]]:
    """For each statement, the loops around it by name."""
    if isinstance(tree, Seq):
        return {s: m for p in tree.parts for s, m in _loops_inside(p).items()}
    if isinstance(tree, Loop):
        return {s: {tree.member.name: tree.member, **m} for s, m in _loops_inside(tree.body).items()}
    return {s: {} for s in tree.statements}


def _coordinate(scop: Scop, name: str, loop: str, inside: Mapping[str, Mapping[str, Member]], time: str) -> Affine:
    s = scop.statement(name)
    if loop in inside[name]:
        return date_of(inside[name][loop], s)
    for other, own in inside.items():
        if loop not in own or scop.statement(other).write.tensor != s.write.tensor or not s.write.is_affine:
            continue
        date = date_of(own[loop], scop.statement(other))
        for mine, theirs in zip(s.write.affine_indices(), scop.statement(other).write.affine_indices(), strict=True):
            if (theirs - date).is_const:
                return mine - (theirs - date)
    known = dict.fromkeys(x for m in inside.values() for x in m if x != time)
    there = ", ".join(known) or "none"
    raise ScheduleError(f"diamond: the loop {loop} does not stand around {name}, which {time} runs; the loops there are {there}")


# ---- slopes
def find_distances(scop: Scop, chain: Chain, time: str, grid: Grid) -> list[tuple[isl.Map, isl.Map, isl.Map]]:
    """The dependences between statements below the time loop, in one iteration of the loops around it, with the places of both ends."""
    assert scop.dependences is not None
    at = chain.index(time)
    deps = scop.dependences.all()
    node = band_node(scop.schedule, chain, time)
    if at or node.get_schedule_depth():
        deps = deps.eq_at_multi_union_pw_aff(node.get_prefix_schedule_multi_union_pw_aff())
    return [
        (m, grid.map_of(scop, m.get_tuple_name(IN)), grid.map_of(scop, m.get_tuple_name(OUT)))
        for m in maps_of(deps)
        if m.get_tuple_name(IN) in grid.place and m.get_tuple_name(OUT) in grid.place and not m.is_empty()
    ]


def _slope(scop: Scop, distances: Sequence[tuple[isl.Map, isl.Map, isl.Map]], dim: int, sign: int, time: str, space: Sequence[str]) -> int:
    """The least a such that a·τ + sign·x never goes back. Raises ScheduleError where there is none."""
    deltas = [m.apply_domain(a).apply_range(b).deltas() for m, a, b in distances]
    for slope in range(STEEPEST + 1):
        if all(_least(d, slope, dim, sign) for d in deltas):
            return slope
    for m, a, b in distances:
        d = m.apply_domain(a).apply_range(b).deltas()
        if _least(d, STEEPEST, dim, sign):
            continue
        pairs = m.intersect(a.apply_range(_moves_back(d, dim, sign)).apply_range(b.reverse()))
        source, sink, _ = small_pair(pairs.intersect_params(scop.context))
        x, y = (f"{m.get_tuple_name(k)}({', '.join(map(str, p))})" for k, p in ((IN, source), (OUT, sink)))
        raise ScheduleError(
            f"diamond: there is no concurrent start along {space[dim]}: {x} must run before {y}, "
            f"which moves along {space[dim]} by more than {STEEPEST} grid points a step in {time}, or in the same step; "
            f'skew("{space[dim]}", by="{time}") and tile, then wavefront runs the tiles in parallel after a start-up'
        )
    raise ScheduleError(f"diamond: there is no concurrent start along {space[dim]}")


def _affs(space: isl.Space, slope: int, dim: int, sign: int) -> isl.Aff:
    ls = isl.LocalSpace.from_space(space)
    x = isl.Aff.var_on_domain(ls, SET, dim + 1).scale_val(isl.Val.int_from_si(CTX, sign))
    return isl.Aff.var_on_domain(ls, SET, 0).scale_val(isl.Val.int_from_si(CTX, slope)).add(x)


def _least(d: isl.Set, slope: int, dim: int, sign: int) -> bool:
    """Whether slope·δτ + sign·δx is at least 0 for all distances."""
    aff = _affs(d.get_space(), slope, dim, sign)
    return bool(d.is_subset(isl.Set.from_basic_set(aff.ge_basic_set(isl.Aff.zero_on_domain(isl.LocalSpace.from_space(d.get_space()))))))


def _moves_back(d: isl.Set, dim: int, sign: int) -> isl.Map:
    """The pairs of places, a distance in `d` apart, that go back along the steepest slope."""
    aff = _affs(d.get_space(), STEEPEST, dim, sign)
    bad = d.intersect(isl.Set.from_basic_set(aff.lt_basic_set(isl.Aff.zero_on_domain(isl.LocalSpace.from_space(d.get_space())))))
    return bad.translation()
