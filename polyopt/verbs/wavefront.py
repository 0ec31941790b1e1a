"""wavefront: run a permutable band front by front, so that the loops inside a front are parallel (*hyperplane method*, *pipelined start*).

    for ti: for tj: S          wavefront("ti", "tj")          for w = ti + tj: for tj: S          (tj is parallel)

Formally the outermost of the loops becomes the sum of all of them. Where no dependence goes back in any of the loops, each one that moves in them
at all moves on in the sum: the others carry nothing. Legal iff the new order respects every dependence and the others are parallel.
(Lamport 1974, The parallel execution of DO loops.)
"""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from ..poly.legality import check_parallel
from ..poly.repair import least_skews, shared_loops
from .arguments import is_determined
from .checked import checked, with_dependences
from .tree import Chain, Member, band_node, chains, find_chain, is_taken, read_tree, with_members


def wavefront_schedule(scop: Scop, loops: tuple[str, ...], name: str | None = None, of: str | None = None) -> tuple[isl.Schedule, Chain]:
    """The schedule with the outermost of the loops replaced by the sum of all, and the chain before."""
    if len(loops) < 2:
        raise ScheduleError("wavefront: name at least two loops, such as the tile loops ti and tj")
    chain = find_chain(scop, "wavefront", list(loops), of)
    marked = next((m for m in chain.members if m.name in loops and m.mark), None)
    if marked is not None:
        raise ScheduleError(f"wavefront: the loop {marked.name} is already marked {marked.mark}; make the wavefront first")
    block = next(((a, b) for a in loops for b in loops if a != b and is_determined(scop, chain, a, b)), None)
    if block is not None:
        raise ScheduleError(f"wavefront: the dates of {block[1]} determine those of {block[0]}; name loops that move apart, such as tile loops")
    new = name if name is not None else wave_name(scop, chain)
    if not isinstance(new, str) or not new.isidentifier() or (is_taken(scop, new, chain.statements)):
        raise ScheduleError(f"wavefront: name is {new!r}; it must be an identifier that no loop around {', '.join(chain.statements)} has")
    first = min(chain.index(n) for n in loops)
    total = chain.members[first].upa
    for n in loops:
        if n != chain.members[first].name:
            total = total.add(chain.member(n).upa)
    members = [Member(new, total) if q == first else m for q, m in enumerate(chain.members)]
    return with_members(scop, chain, members), chain


def wave_name(scop: Scop, chain: Chain) -> str:
    """w, or w2, w3, … where that is taken."""
    name, k = "w", 2
    while is_taken(scop, name, chain.statements):
        name, k = f"w{k}", k + 1
    return name


def wavefront(scop: Scop, *loops: str, name: str | None = None, of: str | None = None) -> Scop:
    """Make the outermost of the loops their sum (named `name`, or w); the others are then parallel (parallelize marks them).

    Raises ScheduleError for fewer than two loops, IllegalSchedule where the band is not permutable, with the skew that would make it so.
    """
    scop = with_dependences(scop)
    schedule, chain = wavefront_schedule(scop, loops, name, of)
    step = Step("wavefront", loops, (*((("name", name),) if name else ()), *((("of", of),) if of else ())))
    out = checked(scop, schedule, step, repair=_least_skew(scop, chain, loops))
    after = next(c for c in chains(read_tree(out.schedule)) if c.path == chain.path)
    outer = min(loops, key=chain.index)
    for n in sorted(loops, key=chain.index):
        if n != outer:
            check_parallel(scop, band_node(out.schedule, after, n), 0, str(step), repair=_least_skew(scop, chain, loops))
    return out


def _least_skew(scop: Scop, chain: Chain, loops: tuple[str, ...]) -> Callable[[], str | None]:
    """The repair: skews after which no dependence goes back in the loops."""

    def suggest() -> str | None:
        assert scop.dependences is not None
        around = [x for x in shared_loops(scop.schedule, *chain.statements) if x[0] in loops]
        skews = least_skews(scop.dependences.all(), around)
        return " then ".join(f'skew("{n}", by="{by}", factor={f})' for n, by, f in skews) + " first" if skews else None

    return suggest
