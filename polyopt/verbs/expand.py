"""Scalar expansion: a local scalar that carries no value from one iteration of a loop to the next becomes a row with a cell for each iteration.

    for i: for j: { t = 0; for k: t += …; C[i, j] = t }          for i: for j: { t[j] = 0; for k: t[j] += …; C[i, j] = t[j] }

The storage no longer orders the iterations of j, so that loops can be interchanged and statements be told apart. Takes a scop with dependences;
gives one in which every value flows as before: each read of the scalar must see a write of its own iteration, which is asked of isl's
value-based flow. (Allen & Kennedy, Optimizing Compilers for Modern Architectures, 5.3.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine
from ..ir.expr import Access, Expr, Load, rewrite
from ..ir.scop import Scop, Statement, Step
from ..ir.tensor import Tensor
from ..poly.convert import from_pw_aff
from ..poly.deps import compute_flow_through
from .checked import with_dependences
from .promote import date_of
from .tree import Member, chains, read_tree


def expand_scalars(scop: Scop, wanted: Callable[[Statement], bool]) -> Scop:
    """Each local scalar that may be, and that a wanted statement uses, expanded along the innermost loop around all its uses."""
    for t in scop.tensors:
        if t.role != "local" or t.shape or t.scope != "heap":
            continue
        users = [s.name for s in scop.statements if any(a.tensor == t.name for a in (s.write, *s.reads()))]
        around = _loops_around(scop, users)
        if around and len(users) > 1 and any(wanted(scop.statement(n)) for n in users) and _stays_inside(scop, t.name, around):
            scop = _expanded(scop, t, users, around[-1]) or scop
    return with_dependences(scop)


def _loops_around(scop: Scop, users: Sequence[str]) -> list[Member]:
    """The loops around all of some statements, outermost first."""
    out: list[Member] = []
    for c in chains(read_tree(scop.schedule)):
        if set(users) <= set(c.statements):
            out += c.members
    return out


def _stays_inside(scop: Scop, tensor: str, around: Sequence[Member]) -> bool:
    """Whether every value of a tensor is read in the iteration of the loops around that wrote it."""
    flow = compute_flow_through(scop, tensor)
    same = flow
    for m in around:
        same = same.eq_at_multi_union_pw_aff(isl.MultiUnionPwAff.from_union_pw_aff(m.upa))
    return bool(flow.is_subset(same))


def _expanded(scop: Scop, t: Tensor, users: Sequence[str], loop: Member) -> Scop | None:
    """The scop with a cell of the scalar for each iteration of a loop; None where the loop's range is not 0 <= date < affine."""
    try:
        dates = {n: date_of(loop, scop.statement(n)) for n in users}
    except ScheduleError:
        return None
    extent: Affine | None = None
    for n in users:
        low, high = _range(scop.statement(n), dates[n])
        if low is None or high is None or low < 0 or (extent is not None and not (high - extent).is_const):
            return None
        extent = high if extent is None or (high - extent).const > 0 else extent
    assert extent is not None
    wide = Tensor(t.name, t.dtype, (extent + 1,), t.role, t.scope)

    def turn(s: Statement) -> Statement:
        if s.name not in users:
            return s
        cell = Access(t.name, (dates[s.name],))

        def visit(x: Expr) -> Expr | None:
            return Load(cell, x.dtype) if isinstance(x, Load) and x.access.tensor == t.name else None

        return replace(s, write=cell if s.write.tensor == t.name else s.write, expr=rewrite(s.expr, visit))

    return replace(
        scop, tensors=tuple(wide if x.name == t.name else x for x in scop.tensors), statements=tuple(turn(s) for s in scop.statements),
        dependences=None, history=(*scop.history, Step("expand", (t.name, loop.name))),
    )  # fmt: skip


def _range(s: Statement, date: Affine) -> tuple[int | None, Affine | None]:
    """The least date as a number, the largest as one affine expression of the parameters."""
    if len(date.terms) != 1 or date.const or date.terms[0][1] != 1 or date.terms[0][0] not in s.iters:
        return None, None
    q = s.iters.index(str(date.terms[0][0]))
    low = s.domain.dim_min_val(q)
    pieces = from_pw_aff(s.domain.dim_max(q), ())
    return (int(low.to_python()) if low.is_int() else None), (pieces[0][1] if len(pieces) == 1 else None)

