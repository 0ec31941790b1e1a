"""vectorize, unroll and parallelize: say how a loop's iterations are executed.

    for i: S          vectorize("i", 8)          for ti: vector i in 8 lanes: S

vectorize strip-mines by the number of lanes and runs a strip's iterations at once; legal iff no dependence is carried inside a strip (an
associative reduction may be: it is then reassociated). unroll writes the iterations out. parallelize spreads them over threads; legal iff
the loop carries no dependence.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from ..errors import IllegalSchedule, ScheduleError
from ..ir.scop import Scop, Step, Violation
from ..poly.legality import check_parallel
from .arguments import MOST_COPIES, check_count, check_sizes, loop_extent
from .checked import checked, with_dependences
from .privatize import privatize
from .tile import tile_member
from .tree import band_node, find_chain, fresh_name, with_members


def mark_schedule(scop: Scop, verb: str, loop: str, mark: str, of: str | None = None) -> isl.Schedule:
    """The schedule with a mark on a loop."""
    chain = find_chain(scop, verb, [loop], of)
    m = chain.member(loop)
    if m.mark and m.mark != mark:
        raise ScheduleError(f"{verb}: the loop {loop} is already marked {m.mark}")
    return with_members(scop, chain, [replace(x, mark=mark) if x.name == loop else x for x in chain.members])


def strip_schedule(scop: Scop, verb: str, loop: str, size: int, mark: str, of: str | None = None, what: str = "width for") -> isl.Schedule:
    """The schedule with a loop split in strips of `size`, the strip's own loop marked."""
    check_count(verb, f"the {what} {loop}", size, most=MOST_COPIES)
    chain = find_chain(scop, verb, [loop], of)
    m = chain.member(loop)
    if m.mark:
        raise ScheduleError(f"{verb}: the loop {loop} is already marked {m.mark}")
    members = []
    for x in chain.members:
        if x.name == loop:
            members.append(tile_member(x, size, fresh_name(scop, loop, chain.statements)))
            x = replace(x, mark=mark)
        members.append(x)
    return with_members(scop, chain, members)


def vectorize(scop: Scop, loop: str, lanes: int, *, of: str | None = None) -> Scop:
    """Run `lanes` consecutive iterations of a loop at once. The strip loop is named t<loop>; a last, shorter strip is masked.

    Raises ScheduleError for a bad width, IllegalSchedule where iterations of one strip depend on each other.
    """
    step = Step("vectorize", (loop, lanes), (("of", of),) if of else ())
    return checked(scop, strip_schedule(scop, "vectorize", loop, lanes, f"vector:{lanes}", of), step)


def unroll(scop: Scop, loop: str, factor: int | None = None, *, of: str | None = None) -> Scop:
    """Write a loop out: all of it (its trip count must be constant), or `factor` iterations at a time."""
    step = Step("unroll", (loop,) if factor is None else (loop, factor), (("of", of),) if of else ())
    if factor is None:
        extent = loop_extent(scop, find_chain(scop, "unroll", [loop], of), loop)
        if extent is not None and extent > MOST_COPIES:
            raise ScheduleError(f"unroll: the loop {loop} runs over {extent} dates; give a factor of at most {MOST_COPIES}")
        return checked(scop, mark_schedule(scop, "unroll", loop, "unroll", of), step)
    check_count("unroll", f"the factor of {loop}", factor, most=MOST_COPIES)
    check_sizes(scop, "unroll", find_chain(scop, "unroll", [loop], of), [(loop, factor)], "factor")
    return checked(scop, strip_schedule(scop, "unroll", loop, factor, "unroll", of, "factor of"), step)


def parallelize(scop: Scop, loop: str, *, of: str | None = None) -> Scop:
    """Spread a loop's iterations over threads. Raises IllegalSchedule where it carries a dependence: one through a temporary or a reduction goes
    away once that is privatized."""
    step = Step("parallelize", (loop,), (("of", of),) if of else ())
    scop = with_dependences(scop)
    chain = find_chain(scop, "parallelize", [loop], of)
    schedule = mark_schedule(scop, "parallelize", loop, "parallel", of)
    try:
        check_parallel(scop, band_node(scop.schedule, chain, loop), 0, str(step))
    except IllegalSchedule as e:
        own = _privatized(scop, e.violation, loop, of)
        if own is None:
            raise
        other = f"; or {e.violation.repair}" if e.violation.repair else ""
        violation = replace(e.violation, repair=own + other)
        raise IllegalSchedule(str(violation), violation) from None
    return scop.with_schedule(schedule, step)


def _privatized(scop: Scop, v: Violation, loop: str, of: str | None) -> str | None:
    """The repair of a loop whose iterations meet only in a temporary, or in a reduction; None where values go from one to another."""
    if v.cell is None or (v.kind != "reduction" and (v.kind not in ("anti", "output") or scop.tensor(v.cell[0]).role != "local")):
        return None
    try:
        privatize(scop, v.cell[0], at=loop, of=of)
    except ScheduleError:
        return None
    return f'privatize("{v.cell[0]}", at="{loop}") first'


GPU_AXES = ("block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z")


def bind(scop: Scop, loop: str, axis: str, *, of: str | None = None) -> Scop:
    """Map a loop to a GPU axis (block.x … thread.z). Raises IllegalSchedule where it carries a dependence."""
    if axis not in GPU_AXES:
        raise ScheduleError(f"bind: axis is {axis!r}; it must be one of {', '.join(GPU_AXES)}")
    step = Step("bind", (loop, axis), (("of", of),) if of else ())
    scop = with_dependences(scop)
    check_parallel(scop, band_node(scop.schedule, find_chain(scop, "bind", [loop], of), loop), 0, str(step))
    return scop.with_schedule(mark_schedule(scop, "bind", loop, f"bind:{axis}", of), step)
