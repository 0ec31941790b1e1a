"""How a verb ends: the new schedule is checked against the dependences, recorded and labelled.

Takes the scop before and the schedule after; gives the scop after or raises IllegalSchedule. A schedule that only reorders an associative
reduction is legal and labelled *reassociates*.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from ..errors import IllegalSchedule
from ..ir.scop import Scop, Step
from ..poly.deps import compute_dependences
from ..poly.legality import check_schedule


def with_dependences(scop: Scop) -> Scop:
    """The scop with its dependences computed (once)."""
    return scop if scop.dependences is not None else compute_dependences(scop)


def checked(scop: Scop, schedule: isl.Schedule, step: Step, *, reassociate: bool = True) -> Scop:
    """The scop under the new schedule. Raises IllegalSchedule with a witness where a dependence would break."""
    scop = with_dependences(scop)
    check_schedule(scop, schedule, str(step), reassociate=reassociate)
    label = scop.label
    assert scop.dependences is not None
    if label == "bit-identical" and not scop.dependences.reduction.is_empty():
        try:
            check_schedule(scop, schedule, str(step), reassociate=False)
        except IllegalSchedule as e:
            label = f"reassociates {e.violation.source[0] if e.violation else 'a reduction'}"
    return replace(scop.with_schedule(schedule, step), label=label)
