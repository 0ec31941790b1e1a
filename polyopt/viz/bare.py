"""A Scop around isl objects that come without one, so that a domain or dependences alone can be drawn.

Takes a set, a union set or `Dependences`; gives a Scop with one statement for each tuple name, without accesses, all at one date.
"""

from __future__ import annotations

import islpy as isl

from ..errors import UserError
from ..ir.dtype import f32
from ..ir.expr import Access, Const
from ..ir.scop import Dependences, Scop, Statement
from ..isl_ext import PARAM, dim_names, param_space, sets_of


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
