"""How a verb ends: the new schedule is checked against the dependences, recorded and labelled.

Takes the scop before and the schedule after; gives the scop after or raises IllegalSchedule. A schedule that only reorders an associative
reduction, or runs a linear recurrence in lanes, is legal and labelled *reassociates*. Marks that stand in the tree are promises: they must hold in
the new order too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from ..isl_ext import IN, OperationBudget, max_operations
from ..poly.deps import BUDGET, compute_dependences
from ..poly.legality import Repair, check_parallel, check_schedule, check_vectorizable, find_reassociation, find_vector_violation
from ..poly.recurrences import has_recurrence, recurrent_loads
from .tree import band_node, chains, read_tree


def with_dependences(scop: Scop) -> Scop:
    """The scop with its dependences computed (once). Raises ScheduleError where no values of its parameters are allowed."""
    if scop.dependences is not None:
        return scop
    check_context(scop)
    return compute_dependences(scop)


def check_context(scop: Scop) -> None:
    """Raises ScheduleError where no values of the parameters are allowed."""
    if scop.context.is_empty():
        raise ScheduleError(f"{scop.name}: no values of {', '.join(scop.params) or 'its parameters'} satisfy its context; nothing can be scheduled")


def checked(
    scop: Scop, schedule: isl.Schedule, step: Step, *, reassociate: bool = True, marks: bool = True, repair: Repair | None = None
) -> Scop:
    """The scop under the new schedule. Raises IllegalSchedule with a witness where a dependence would break.

    marks: also where a loop's mark no longer holds (recipes look after their marks themselves). repair: asked for a repair where it is refused.
    """
    scop = with_dependences(scop)
    check_schedule(scop, schedule, str(step), reassociate=reassociate, repair=repair)
    out = labelled(scop.with_schedule(schedule, step), lambda: find_reassociation(scop, schedule))
    return check_marks(out, step) if marks else out


def check_marks(scop: Scop, step: Step) -> Scop:
    """The scop, labelled, if all its parallel, bound and vector loops may run so. Raises IllegalSchedule."""
    for c in chains(read_tree(scop.schedule)):
        for m in c.members:
            if m.mark in ("", "unroll"):
                continue
            node = band_node(scop.schedule, c, m.name)
            if not m.mark.startswith("vector"):
                check_parallel(scop, node, 0, str(step))
                continue
            check_vectorizable(scop, node, 0, str(step), reassociate=True)
            scop = labelled(scop, partial(find_vector_violation, scop, node, 0, False))
    return scop


def labelled(scop: Scop, find: Callable[[], tuple[str, isl.Map] | None]) -> Scop:
    """The scop with the label that says whose updates it reorders; `find` gives dependences that break, those among updates included.

    Where isl's budget is spent on the question, the label does not promise what is not proven.
    """
    assert scop.dependences is not None
    if scop.label != "bit-identical" or (scop.dependences.reduction.is_empty() and not has_recurrence(scop)):
        return scop
    try:
        with max_operations(BUDGET):
            broken = find()
        name = broken[1].get_tuple_name(IN) if broken is not None else None
    except OperationBudget:
        name = next(s.name for s in scop.statements if s.reduction is not None or recurrent_loads(scop, s))
    return scop if name is None else replace(scop, label=f"reassociates {name}")
