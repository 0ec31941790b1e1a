"""The recipe: which verbs a scop gets, chosen by its structure. Takes a scop and a target; gives a scheduled scop, always legal.

A recipe that does not apply, is refused, or exceeds isl's budget gives way to the next simpler one; the untransformed order comes last.
"""

from __future__ import annotations

from ..errors import ScheduleError
from ..ir.scop import Scop
from ..isl_ext import OperationBudget
from ..options import Options
from ..target import Target
from . import contraction, rows, time_tiles
from .checked import with_dependences


def apply_recipe(scop: Scop, target: Target, options: Options | None = None) -> Scop:
    """The scop, scheduled for the target."""
    scop = with_dependences(scop)
    strict = options is not None and options.fp == "strict"
    if not strict:
        update = contraction.find_update(scop, target)
        if update is not None:
            try:
                return contraction.apply(scop, update, target)
            except (ScheduleError, OperationBudget):
                pass
    try:
        tiled = time_tiles.apply(scop, target)
        if tiled is not None:
            return tiled
    except (ScheduleError, OperationBudget):
        pass
    try:
        return rows.apply(scop, target, reassociate=not strict)
    except (ScheduleError, OperationBudget):
        return scop
