"""Nests to a Scop: isl domains, the original order as a schedule tree, the context.

Takes a plan with storage and a group (or a `Kernel` made of it); gives a `Scop` without dependences. Statements are S0, S1, … in order;
each loop is a band of one member that carries the iterator's name; statements follow each other in a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from ..errors import UserError
from ..ir.graph import Group, Plan
from ..ir.scop import Scop, Statement
from ..ir.tensor import Tensor
from ..isl_ext import CTX, SET, read_set
from ..ops.registry import Nest
from .kernel import Kernel, lower_group


def lower_to_scop(plan: Plan, group: Group) -> Scop:
    """The Scop of a group."""
    return kernel_scop(lower_group(plan, group))


def kernel_scop(kernel: Kernel) -> Scop:
    """The Scop of a kernel."""
    return nests_scop(kernel.name, kernel.params, kernel.tensors, kernel.nests)


def nests_scop(name: str, params: tuple[str, ...], tensors: tuple[Tensor, ...], nests: Sequence[Nest]) -> Scop:
    """A Scop of nests in order; params are at least 1."""
    if not nests:
        raise UserError(f"kernel {name} has no loops: all that it writes is empty")
    statements = tuple(_statement(f"S{k}", n, params) for k, n in enumerate(nests))
    head = f"[{', '.join(params)}] -> " if params else ""
    bounds = " and ".join(f"{p} >= 1" for p in params)
    context = read_set(f"{head}{{ : {bounds} }}")
    return Scop(name, params, context, tensors, statements, _schedule(statements))


def _statement(name: str, n: Nest, params: tuple[str, ...]) -> Statement:
    iters = tuple(i for i, _ in n.iters)
    tests = [f"0 <= {i} < {e}" for i, e in n.iters] + [f"{c} >= 0" for c in n.where]
    head = f"[{', '.join(params)}] -> " if params else ""
    domain = read_set(f"{head}{{ {name}[{', '.join(iters)}] : {' and '.join(tests) or 'true'} }}")
    return Statement(name, iters, domain, n.write, n.expr, n.reduction)


def _schedule(statements: Sequence[Statement]) -> isl.Schedule:
    out: isl.Schedule | None = None
    for s in statements:
        one = _nest_schedule(s)
        out = one if out is None else out.sequence(one)
    assert out is not None
    return out


def _nest_schedule(s: Statement) -> isl.Schedule:
    node = isl.Schedule.from_domain(isl.UnionSet.from_set(s.domain)).get_root().child(0)
    space = s.domain.get_space()
    for k in reversed(range(len(s.iters))):
        aff = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, k)
        upa = isl.UnionPwAff.from_pw_aff(isl.PwAff.from_aff(aff))
        mupa = isl.MultiUnionPwAff.from_union_pw_aff(upa).set_dim_id(SET, 0, isl.Id(s.iters[k], context=CTX))
        node = node.insert_partial_schedule(mupa)
    return node.get_schedule()
