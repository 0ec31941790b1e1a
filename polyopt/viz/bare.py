"""Scops made to be looked at: around isl objects that come without one, and in the coordinates of a schedule's loops.

Takes a set, a union set, `Dependences` or a Scop; gives a Scop whose domains and dependences are those to be drawn. Nothing compiles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from ..errors import UserError
from ..ir.dtype import f32
from ..ir.expr import Access, Const
from ..ir.scop import Dependences, Scop, Statement
from ..isl_ext import IN, OUT, PARAM, dim_names, maps_of, param_space, sets_of, union_maps
from ..poly.deps import compute_dependences
from ..verbs.tree import Member, read_tree
from .loops import is_tile_loop, members_around


def bare_scop(value: isl.Set | isl.UnionSet | Dependences) -> Scop:
    """The Scop that has these instances, and these dependences. Raises UserError where there are no instances or a set has no name."""
    if isinstance(value, Dependences):
        every = value.all()
        instances, deps = every.domain().union(every.range()), value
    else:
        instances = isl.UnionSet.from_set(value) if isinstance(value, isl.Set) else value
        none = isl.UnionMap.empty(instances.get_space())
        deps = Dependences(none, none, none, none)
    parts = [s for s in sets_of(instances) if not s.is_empty()]
    if not parts:
        raise UserError("show: there are no dependences to draw" if isinstance(value, Dependences) else "show: the set is empty")
    if any(s.get_tuple_name() is None for s in parts):
        parts = [s if s.get_tuple_name() is not None else s.set_tuple_name("S") for s in parts]
        instances = isl.UnionSet.from_set(parts[0])
        for s in parts[1:]:
            instances = instances.union(isl.UnionSet.from_set(s))
    params = tuple(dict.fromkeys(p for s in parts for p in dim_names(s, PARAM)))
    statements = tuple(Statement(s.get_tuple_name(), _iters(s), s, Access("", ()), Const(0.0, f32)) for s in parts)
    texts = {s.name: f"[{', '.join(s.iters)}]" for s in statements}
    context = isl.Set.universe(param_space(params))
    name = "dependences" if isinstance(value, Dependences) else "the set"
    return Scop(name, params, context, (), statements, isl.Schedule.from_domain(instances), dependences=deps, meta={"text": texts})


def _iters(s: isl.Set) -> tuple[str, ...]:
    """The dims' names, made distinct."""
    names: list[str] = []
    for n in dim_names(s):
        while n in names:
            n += "'"
        names.append(n)
    return tuple(names)


# ---- the coordinates of the schedule
def seen_in(scop: Scop, space: str) -> Scop:
    """The Scop itself in space "iterations"; in "schedule", with the loops of its schedule as iterators. Raises UserError for another word."""
    if space not in ("iterations", "schedule"):
        raise UserError(f"space is {space!r}; it must be iterations or schedule")
    return scop if space == "iterations" else in_schedule_space(scop)


def in_schedule_space(scop: Scop) -> Scop:
    """Each instance at the dates of the loops around it, tile loops left out: what a skew or an interchange has done becomes visible."""
    maps = {s: _loop_map(scop.statement(s), around) for s, around in members_around(read_tree(scop.schedule))}
    move = union_maps(list(maps.values()), scop.params)
    deps = scop.dependences if scop.dependences is not None else compute_dependences(scop).dependences
    assert deps is not None
    flow, anti, output, reduction = (x.apply_domain(move).apply_range(move) for x in (deps.flow, deps.anti, deps.output, deps.reduction))
    moved = Dependences(flow, anti, output, reduction, deps.exact)
    statements = [replace(scop.statement(s), domain=m.range(), iters=dim_names(m, OUT)) for s, m in maps.items()]
    schedule = isl.Schedule.from_domain(isl.UnionSet.from_set(statements[0].domain))
    for s in statements[1:]:
        schedule = schedule.sequence(isl.Schedule.from_domain(isl.UnionSet.from_set(s.domain)))
    return replace(scop, name=f"{scop.name} in the loops of its schedule", statements=tuple(statements), schedule=schedule, dependences=moved)


def _loop_map(s: Statement, around: Sequence[Member]) -> isl.Map:
    """Instance → its dates in the loops that are no tile loops, named like them."""
    out = isl.Map.from_domain(s.domain)
    members = [m for m in around if not is_tile_loop(m, s.name)]
    for m in members:
        one = next(x for x in maps_of(isl.UnionMap.from_union_pw_aff(m.upa)) if x.get_tuple_name(IN) == s.name)
        out = out.flat_range_product(one.intersect_domain(s.domain).reset_tuple_id(OUT))
    out = out.set_tuple_name(OUT, s.name)
    for k, m in enumerate(members):
        out = out.set_dim_name(OUT, k, m.name)
    return out
