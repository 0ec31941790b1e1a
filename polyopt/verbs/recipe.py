"""The recipe: which verbs a scop gets, chosen by its structure. Takes a scop and a target; gives a scheduled scop, always legal.

A scop with several compute-bound statements is cut into parts first. Each part gets the first recipe that applies: contraction, blocks of
time steps, rows. One that is refused, or exceeds isl's budget, gives way to the next simpler one; the untransformed order comes last.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ..errors import ScheduleError
from ..ir.scop import Scop
from ..isl_ext import OperationBudget
from ..options import Options
from ..target import Target
from . import contraction, edges, parts, rows, time_tiles
from .checked import with_dependences
from .extrema import as_updates
from .privatize import expand
from .split_points import split_points
from .tree import chains, read_tree


def apply_recipe(scop: Scop, target: Target, options: Options | None = None) -> Scop:
    """The scop, scheduled for the target."""
    strict = options is not None and options.fp == "strict"
    scop = with_dependences(as_updates(scop) if options is not None and options.fp == "fast" else scop)
    scop = with_dependences(split_points(_expand_scalars(scop)))
    if not strict:
        scop = _split_triangles(scop, target)
    if strict or contraction.find_update(scop, target) is not None:
        return _schedule(scop, target, strict)
    groups = parts.cut(scop)
    if len(groups) < 2 or not any(parts.is_compute_bound(s) for s in scop.statements):
        return _schedule(scop, target, strict)
    try:
        apart = parts.distribute_groups(scop, groups)
    except (ScheduleError, OperationBudget):
        return _schedule(scop, target, strict)
    done: list[Scop] = []
    for part in parts.split(apart, groups):
        taken = {t.name: t for p in done for t in p.tensors}
        part = replace(part, tensors=(*part.tensors, *(t for n, t in taken.items() if n not in {x.name for x in part.tensors})))
        done.append(_schedule(part, target, strict))
    return parts.join(apart, done)


def _expand_scalars(scop: Scop) -> Scop:
    """Local scalars of compute-bound statements, and of nests that run in lanes, a copy for each iteration of the innermost loop around all
    their uses, where that may be."""
    in_lanes = rows.statements_in_lanes(scop)
    for t in scop.tensors:
        users = [s.name for s in scop.statements if t.name in {a.tensor for a in (s.write, *s.reads())}]
        wanted = set(users) <= in_lanes or any(parts.is_compute_bound(scop.statement(n)) for n in users)
        if t.role != "local" or t.shape or len(users) < 2 or not wanted:
            continue
        around = [c for c in chains(read_tree(scop.schedule)) if c.members and set(users) <= set(c.statements)]
        if around:
            with contextlib.suppress(ScheduleError, OperationBudget):
                scop = expand(scop, t.name, around[-1].names()[-1], users[0])
    return with_dependences(scop)


def _split_triangles(scop: Scop, target: Target) -> Scop:
    """Compute-bound updates of triangles in whole blocks and edges, where the blocks can then be scheduled on their own."""
    for s in scop.statements:
        if not parts.is_compute_bound(s) or not edges.coupled_iterators(s):
            continue
        try:
            alone = parts.split(scop, [[s.name]])[0]
            update = contraction.find_update(alone, target)
            if update is not None and edges.coupled_iterators(s) <= set(update.results):
                split = edges.split_edges(scop, s.name, contraction.block_size(alone, update, target))
                if parts.is_alone(split, s.name):
                    scop = split
        except (ScheduleError, OperationBudget):
            continue
    return scop


def _schedule(scop: Scop, target: Target, strict: bool) -> Scop:
    """The scop by the first recipe that applies."""
    update = None if strict else contraction.find_update(scop, target)
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
