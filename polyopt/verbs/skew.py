"""skew, reverse and shift: loops' dates become other affine functions.

    for t: for i: S(t, i)          skew("i", by="t", factor=1)          for t: for i' = i + t: S(t, i' - t)
    for t: for i: S(t, i)          skew(t="t + i", i="i")               for t' = t + i: for i: S(t' - i, i)

Formally the dates x of the nest's loops become M x + c, where M has determinant 1 or -1 (it is unimodular): then it maps the integer points one to
one. Skewing an inner loop by an outer one is always legal by itself and makes later tiling legal. reverse runs a loop backwards; shift delays
one statement by a constant number of iterations. Legal iff every dependence stays lexicographically positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine
from ..ir.scop import Scop, Step
from ..isl_ext import CTX
from .arguments import check_count, read_affine
from .checked import checked
from .tree import Chain, Member, find_chain, with_members


def skew(scop: Scop, loop: str | None = None, *, by: str | None = None, factor: int = 1, of: str | None = None, **maps: str | Affine) -> Scop:
    """loop := loop + factor × by; or, for each loop named, the affine expression given for it: skew(i="i + 2*t", j="j - i").

    Raises ScheduleError for a map that is not unimodular, IllegalSchedule where a dependence would break.
    """
    if maps:
        if loop is not None or by is not None or factor != 1:
            raise ScheduleError('skew: give either a loop with by= and factor=, or a map such as skew(i="i + 2*t"), not both')
        return _skew_by_map(scop, maps, of)
    if loop is None or by is None:
        raise ScheduleError('skew: name a loop and by=…, or give a map such as skew(i="i + 2*t")')
    if not isinstance(factor, int) or isinstance(factor, bool) or factor == 0:
        raise ScheduleError(f"skew: factor is {factor!r}; it must be a whole number other than 0")
    check_count("skew", "factor", factor, None)
    if loop == by:
        raise ScheduleError(f"skew: {loop} cannot be skewed by itself; by= names another loop of the nest")
    chain = find_chain(scop, "skew", [loop, by], of)
    rows = {loop: {loop: 1, by: factor}}
    step = Step("skew", (loop,), (("by", by), ("factor", factor), *((("of", of),) if of else ())))
    return checked(scop, with_members(scop, chain, mapped_members(chain, rows, {})), step)


def _skew_by_map(scop: Scop, maps: Mapping[str, str | Affine], of: str | None) -> Scop:
    parsed = {name: read_affine("skew", f"the map of {name}", text) for name, text in maps.items()}
    chain = find_chain(scop, "skew", list(maps), of)
    names = chain.names()
    rows: dict[str, dict[str, int]] = {}
    for name, x in parsed.items():
        rows[name] = {}
        for atom, k in x.terms:
            if not isinstance(atom, str) or atom not in names:
                raise ScheduleError(f"skew: the map of {name} is {x}; it may use whole numbers and the loops of this nest, {', '.join(names)}")
            rows[name][atom] = check_count("skew", f"a factor in the map of {name}", k, None)
        check_count("skew", f"the constant in the map of {name}", x.const, None)
    matrix = [[rows.get(n, {n: 1}).get(m, 0) for m in names] for n in names]
    det = determinant(matrix)
    if det not in (1, -1):
        raise ScheduleError(f"skew: the map has determinant {det}; it must be 1 or -1 (unimodular): then it maps iterations to dates one to one")
    step = Step("skew", kwargs=(*((n, str(x)) for n, x in parsed.items()), *((("of", of),) if of else ())))
    return checked(scop, with_members(scop, chain, mapped_members(chain, rows, {n: x.const for n, x in parsed.items()})), step)


def mapped_members(chain: Chain, rows: Mapping[str, Mapping[str, int]], consts: Mapping[str, int]) -> list[Member]:
    """The loops of a chain, the dates of those in `rows` being sums of the old dates."""
    out = []
    for m in chain.members:
        if m.name in rows:
            m = replace(m, upa=_sum(chain, rows[m.name], consts.get(m.name, 0)))
        out.append(m)
    return out


def _sum(chain: Chain, row: Mapping[str, int], const: int) -> isl.UnionPwAff:
    upa: isl.UnionPwAff | None = None
    for name, k in row.items():
        term = chain.member(name).upa.scale_val(isl.Val.int_from_si(CTX, k))
        upa = term if upa is None else upa.add(term)
    assert upa is not None  # a row of a unimodular matrix has a term
    return upa.add(isl.UnionPwAff.val_on_domain(upa.domain(), isl.Val.int_from_si(CTX, const))) if const else upa


def determinant(matrix: Sequence[Sequence[int]]) -> int:
    """The determinant of a square matrix of whole numbers (Bareiss, without fractions)."""
    a = [list(row) for row in matrix]
    sign, last = 1, 1
    for k in range(len(a) - 1):
        pivot = next((r for r in range(k, len(a)) if a[r][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            a[k], a[pivot], sign = a[pivot], a[k], -sign
        for i in range(k + 1, len(a)):
            for j in range(k + 1, len(a)):
                a[i][j] = (a[i][j] * a[k][k] - a[i][k] * a[k][j]) // last
        last = a[k][k]
    return sign * a[-1][-1] if a else 1


def reverse(scop: Scop, loop: str, *, of: str | None = None) -> Scop:
    """Run a loop backwards. Raises IllegalSchedule where it carries a dependence."""
    chain = find_chain(scop, "reverse", [loop], of)
    members = [replace(x, upa=x.upa.neg()) if x.name == loop else x for x in chain.members]
    return checked(scop, with_members(scop, chain, members), Step("reverse", (loop,), (("of", of),) if of else ()))


def shift(scop: Scop, statement: str, loop: str, amount: int) -> Scop:
    """Delay one statement by `amount` iterations of a loop that it shares with others."""
    check_count("shift", "amount", amount, None)
    chain = find_chain(scop, "shift", [loop], statement)
    members = shifted_members(scop, chain, loop, {statement: amount})
    return checked(scop, with_members(scop, chain, members), Step("shift", (statement, loop, amount)))


def shifted_members(scop: Scop, chain: Chain, loop: str, amounts: Mapping[str, int]) -> list[Member]:
    """The loops of a chain, statements delayed by some iterations of one of them."""
    members = []
    for x in chain.members:
        if x.name == loop:
            for statement, amount in amounts.items():
                own = isl.UnionSet.from_set(isl.Set.universe(scop.statement(statement).domain.get_space()))
                offset = isl.UnionPwAff.val_on_domain(own, isl.Val.int_from_si(CTX, amount))
                mine, rest = x.upa.intersect_domain(own), x.upa.subtract_domain(own)
                x = replace(x, upa=mine.add(offset).union_add(rest))
        members.append(x)
    return members
