"""How a verb ends: the new schedule is checked against the dependences, recorded and labelled.

Takes the scop before and the schedule after; gives the scop after or raises IllegalSchedule. A schedule that only reorders an associative
reduction is legal and labelled *reassociates*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import islpy as isl

from ..ir.scop import Scop, Step
from ..isl_ext import IN, OperationBudget, max_operations
from ..poly.deps import BUDGET, compute_dependences
from ..poly.legality import check_schedule, find_violation


def with_dependences(scop: Scop) -> Scop:
    """The scop with its dependences computed (once)."""
    return scop if scop.dependences is not None else compute_dependences(scop)


def checked(scop: Scop, schedule: isl.Schedule, step: Step, *, reassociate: bool = True) -> Scop:
    """The scop under the new schedule. Raises IllegalSchedule with a witness where a dependence would break."""
    scop = with_dependences(scop)
    check_schedule(scop, schedule, str(step), reassociate=reassociate)
    return labelled(scop.with_schedule(schedule, step), lambda: find_violation(scop, schedule, False))


def labelled(scop: Scop, find: Callable[[], tuple[str, isl.Map] | None]) -> Scop:
    """The scop with the label that says whose updates it reorders; `find` gives dependences that break, those among updates included.

    Where isl's budget is spent on the question, the label does not promise what is not proven.
    """
    assert scop.dependences is not None
    if scop.label != "bit-identical" or scop.dependences.reduction.is_empty():
        return scop
    try:
        with max_operations(BUDGET):
            broken = find()
        name = broken[1].get_tuple_name(IN) if broken is not None else None
    except OperationBudget:
        name = next(s.name for s in scop.statements if s.reduction is not None)
    return scop if name is None else replace(scop, label=f"reassociates {name}")
