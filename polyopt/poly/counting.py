"""How many integer points a parametric set has, in closed form where that is possible.

Takes isl sets; gives a `Count`: quasi-polynomials in the parameters, each with the condition under which it holds, exact. Dims are summed out one
after the other (Faulhaber), split where several bounds compete; the floors of strided sets become dims of their own first. Sets of another form
(and those that need too many pieces) are counted point by point at given sizes, and say so. Every isl call has an operation budget.
(Pugh, Counting solutions to Presburger formulas, PLDI 1994; Verdoolaege et al., Algorithmica 48, 2007, solve the general case.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import islpy as isl

from ..errors import UserError
from ..ir.affine import Affine, var
from ..isl_ext import PARAM, OperationBudget, fix_params, max_operations
from .quasipoly import QuasiPolynomial, collect
from .summation import NoClosedForm, Row, rows_of, set_of, sum_points

BUDGET = 300_000  # isl operations for a closed form
POINTS_BUDGET = 1_000_000  # isl operations for counting point by point
CHAMBERS = 8  # conditions that a closed form may distinguish


@dataclass(frozen=True)
class Piece:
    """Where a quasi-polynomial holds."""

    where: isl.Set
    value: QuasiPolynomial

    @cached_property
    def rows(self) -> tuple[tuple[tuple[Affine, bool], ...], ...]:
        """The condition: one of these lists of (expression, whether it is 0 instead of >= 0) holds."""
        return tuple(rows_of(b) for b in self.where.compute_divs().get_basic_sets())

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the condition holds at a point."""
        return any(all((e.evaluate(values) == 0) if eq else (e.evaluate(values) >= 0) for e, eq in row) for row in self.rows)

    def condition(self) -> str:
        """The condition as text, empty where there is none."""
        text = str(self.where)
        return text[text.index("{") + 1 : text.rindex("}")].strip().removeprefix(":").strip()


@dataclass(frozen=True)
class Count:
    """A number of points: a sum of quasi-polynomials, each where its condition on the parameters holds, and of sets without closed form.

    `terms` may overlap; `pieces` exclude each other, are simplified within `context`, and are what is printed.
    """

    terms: tuple[tuple[Row, QuasiPolynomial], ...] = ()
    context: isl.Set | None = field(default=None, compare=False, repr=False)
    counted: tuple[tuple[int, isl.Set], ...] = ()
    _known: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_closed(self) -> bool:
        """Whether there is a closed form."""
        return not self.counted

    def at(self, values: Mapping[str, int]) -> Fraction:
        """The number at given parameter values. Raises NoClosedForm where points would have to be counted, and there are too many."""
        total = Fraction(0)
        for row, value in self.terms:
            if all(e.evaluate(values) >= 0 for e in row):
                total += value.evaluate(values)
        if self.counted:
            key = tuple(sorted(values.items()))
            if key not in self._known:
                self._known[key] = sum(k * count_points(s, values) for k, s in self.counted)
            total += self._known[key]
        return total

    def at_large(self, values: Mapping[str, int]) -> QuasiPolynomial | None:
        """The quasi-polynomial that holds around a point; None without a closed form."""
        if self.counted:
            return None
        return collect(t for row, value in self.terms if all(e.evaluate(values) >= 0 for e in row) for t in value.terms)

    def names(self) -> frozenset[str]:
        """The parameters that the number depends on."""
        used = {n for row, _ in self.terms for e in row for n in e.names()}
        used |= {n for _, value in self.terms for n in value.names()}
        used |= {str(s.get_dim_name(PARAM, i)) for _, s in self.counted for i in range(s.dim(PARAM)) if s.involves_dims(PARAM, i, 1)}
        return frozenset(used)

    def __add__(self, other: Count) -> Count:
        return Count(self.terms + other.terms, self.context if self.context is not None else other.context, self.counted + other.counted)

    def scale(self, k: int) -> Count:
        """k times this number."""
        return Count(tuple((row, value * k) for row, value in self.terms), self.context, tuple((k * n, s) for n, s in self.counted))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The closed form by cases. Raises NoClosedForm where it has too many."""
        try:
            with max_operations(BUDGET):
                return _pieces(self.terms, self.context)
        except OperationBudget:
            raise NoClosedForm("the cases cannot be told apart within the budget") from None

    def __str__(self) -> str:
        try:
            parts = [f"{p.value} if {c}" if (c := p.condition()) else str(p.value) for p in self.pieces if p.value.terms]
        except NoClosedForm:
            parts = [f"a sum of {len(self.terms)} cases"]
        text = "; ".join(parts)
        if self.counted:
            return f"{text} + (no closed form)" if text else "(no closed form)"
        return text or "0"


def count(points: isl.Set, context: isl.Set | None = None, budget: int = BUDGET, at: Mapping[str, int] | None = None) -> Count:
    """The number of points of a set, as a function of its parameters (which lie in `context`).

    at: values around which alone the result has to hold.
    A set without closed form gives a Count that counts at concrete sizes. Raises UserError for a set that has infinitely many points.
    """
    if context is not None:
        points = points.gist_params(context)
    try:
        with max_operations(budget):
            return Count(tuple(sum_points(points, at)), context)
    except (NoClosedForm, OperationBudget):
        return Count((), context, ((1, points),))


def count_points(points: isl.Set, values: Mapping[str, int]) -> int:
    """The number of points at given sizes, by isl's enumeration. Raises NoClosedForm where that exceeds its budget."""
    names = {str(points.get_dim_name(PARAM, i)) for i in range(points.dim(PARAM))}
    missing = sorted(names - set(values))
    if missing:
        raise UserError(f"a count needs values for {', '.join(missing)}")
    try:
        with max_operations(POINTS_BUDGET):
            fixed = fix_params(points, {n: values[n] for n in sorted(names)})
            return int(fixed.project_out(PARAM, 0, fixed.dim(PARAM)).count_val().to_python())  # of a parametric set it would be 0
    except OperationBudget:
        raise NoClosedForm("a set has no closed form, and too many points to be counted") from None


# ---- cases
def _pieces(terms: Sequence[tuple[Row, QuasiPolynomial]], context: isl.Set | None) -> tuple[Piece, ...]:
    """Cases that exclude each other."""
    names = sorted({n for row, _ in terms for e in row for n in e.names()} | {n for _, v in terms for n in v.names()})
    found: list[Piece] = []
    for row, value in terms:
        where = set_of(row, names)
        if context is not None:
            where = where.align_params(context.get_space()).gist(context.align_params(where.get_space()))
        found = list(_join(found, (Piece(where, value),), context))
    return _merge(found, context)


def _join(a: Sequence[Piece], b: Sequence[Piece], context: isl.Set | None = None) -> tuple[Piece, ...]:
    """The sum of two functions given by pieces."""
    out = list(a)
    for p in b:
        rest = p.where
        new: list[Piece] = []
        for q in out:
            if q.where.plain_is_equal(p.where) or q.where.is_equal(p.where):
                new.append(Piece(q.where, q.value + p.value))
                rest = rest.subtract(q.where)
                continue
            both = q.where.intersect(p.where)
            if (both if context is None else both.intersect(context)).is_empty():
                new.append(q)
                continue
            new.append(Piece(both.coalesce(), q.value + p.value))
            only = q.where.subtract(p.where)
            if not (only if context is None else only.intersect(context)).is_empty():
                new.append(Piece(only.coalesce(), q.value))
            rest = rest.subtract(q.where)
        if not (rest if context is None else rest.intersect(context)).is_empty():
            new.append(Piece(rest.coalesce(), p.value))
        if len(new) > CHAMBERS:
            raise NoClosedForm("too many cases")
        out = new
    return tuple(out)


def _merge(pieces: list[Piece], context: isl.Set | None) -> tuple[Piece, ...]:
    """Pieces with one value put together; a piece of fixed size that another one's polynomial also describes joins it."""
    out: list[Piece] = []
    for p in sorted(pieces, key=lambda p: (-p.value.degree(), -len(p.value.terms), str(p.value))):
        if _agree(QuasiPolynomial(), p):
            continue
        for k, q in enumerate(out):
            if q.value == p.value or _agree(q.value, p):
                out[k] = Piece(q.where.union(p.where).coalesce(), q.value)
                break
        else:
            out.append(p)
    return tuple(p if context is None else Piece(p.where.gist(context), p.value) for p in out if p.value.terms)


def _agree(value: QuasiPolynomial, p: Piece) -> bool:
    """Whether a polynomial equals a piece's own wherever the piece holds: where its parameters are fixed by equalities."""
    fixed: dict[str, Affine] = {}
    rows = p.rows
    if len(rows) != 1:
        return False
    for e, eq in rows[0]:
        names = [n for n in e.names() if abs(e.coefficient(n)) == 1 and e.is_linear_in(n)]
        if eq and names:
            n = sorted(names)[0]
            fixed[n] = (var(n) - e) if e.coefficient(n) == 1 else (var(n) + e)
    difference = value - p.value
    for n, x in fixed.items():
        difference = difference.substitute(n, x)
    return not difference.terms
