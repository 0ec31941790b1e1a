"""skew, reverse and shift: one loop's dates become another affine function.

    for t: for i: S(t, i)          skew("i", by="t", factor=1)          for t: for i' = i + t: S(t, i' - t)

Skewing an inner loop by an outer one is always legal by itself and makes later tiling legal. reverse runs a loop backwards; shift delays
one statement by a constant number of iterations.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from ..isl_ext import CTX
from .checked import checked
from .tree import find_chain, with_members


def skew(scop: Scop, loop: str, *, by: str, factor: int = 1, of: str | None = None) -> Scop:
    """loop := loop + factor × by. Raises IllegalSchedule where a dependence would break (possible only if `by` is inside `loop`)."""
    if not isinstance(factor, int) or factor == 0:
        raise ScheduleError(f"skew: factor is {factor!r}; it must be a whole number other than 0")
    chain = find_chain(scop, "skew", [loop, by], of)
    m, other = chain.members[chain.index(loop)], chain.members[chain.index(by)]
    upa = m.upa.add(other.upa.scale_val(isl.Val.int_from_si(CTX, factor)))
    members = [replace(x, upa=upa) if x.name == loop else x for x in chain.members]
    step = Step("skew", (loop,), (("by", by), ("factor", factor), *((("of", of),) if of else ())))
    return checked(scop, with_members(scop, chain, members), step)


def reverse(scop: Scop, loop: str, *, of: str | None = None) -> Scop:
    """Run a loop backwards. Raises IllegalSchedule where it carries a dependence."""
    chain = find_chain(scop, "reverse", [loop], of)
    members = [replace(x, upa=x.upa.neg()) if x.name == loop else x for x in chain.members]
    return checked(scop, with_members(scop, chain, members), Step("reverse", (loop,), (("of", of),) if of else ()))


def shift(scop: Scop, statement: str, loop: str, amount: int) -> Scop:
    """Delay one statement by `amount` iterations of a loop that it shares with others."""
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise ScheduleError(f"shift: amount is {amount!r}; it must be a whole number")
    chain = find_chain(scop, "shift", [loop], statement)
    own = isl.UnionSet.from_set(isl.Set.universe(scop.statement(statement).domain.get_space()))
    offset = isl.UnionPwAff.val_on_domain(own, isl.Val.int_from_si(CTX, amount))
    members = []
    for x in chain.members:
        if x.name == loop:
            mine, rest = x.upa.intersect_domain(own), x.upa.subtract_domain(own)
            x = replace(x, upa=mine.add(offset).union_add(rest))
        members.append(x)
    return checked(scop, with_members(scop, chain, members), Step("shift", (statement, loop, amount)))


