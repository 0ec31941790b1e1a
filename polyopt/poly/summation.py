"""The sum over the integer points of a parametric set, dim by dim.

Takes isl sets; gives quasi-polynomials in the parameters, each with the inequalities under which it is to be added. A dim is summed out between its
greatest lower and its least upper bound (Faulhaber), one case for each pair of bounds that compete. Floors of strided sets become dims of
their own first; a sum over a floor is split into residue classes. Raises NoClosedForm where that takes too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, lcm

import islpy as isl

from ..errors import PolyoptError, UserError
from ..ir.affine import Affine, FloorDiv, affine, var
from ..isl_ext import PARAM, SET
from .quasipoly import QuasiPolynomial, lift, sum_over

DIV = isl.dim_type.div
STEPS = 80  # systems of constraints in one count
WORK = 150  # terms of polynomials in one count
RESIDUES = 12  # residue classes that a sum is split into
TERMS = 24  # terms of one polynomial: more cannot be read

Row = tuple[Affine, ...]  # all >= 0


class NoClosedForm(PolyoptError):
    """A set for which the counter has no closed form."""


def sum_points(points: isl.Set, at: Mapping[str, int] | None) -> list[tuple[Row, QuasiPolynomial]]:
    """The number of points: quasi-polynomials, each where its row holds. `at`: parameter values around which alone that has to be right."""
    plain = points.compute_divs().coalesce()
    parts = plain.get_basic_sets()
    if len(parts) > 1:
        parts = plain.make_disjoint().coalesce().compute_divs().get_basic_sets()
        if not _disjoint(parts):
            parts = plain.make_disjoint().compute_divs().get_basic_sets()
    summer = _Summer([str(points.get_dim_name(PARAM, i)) for i in range(points.dim(PARAM))], at)
    for b in parts:
        reader = _Reader(b)
        rows = reader.rows()
        summer.sum(tuple(reader.names), [e for e, eq in rows if not eq], [e for e, eq in rows if eq], lift(1))
    return summer.out


def _disjoint(parts: Sequence[isl.BasicSet]) -> bool:
    return all(parts[i].intersect(parts[j]).is_empty() for i in range(len(parts)) for j in range(i))


def set_of(rows: Sequence[Affine], params: Sequence[str], names: Sequence[str] = ()) -> isl.Set:
    """The isl set of inequalities over parameters and dims."""
    text = " and ".join(f"{_plain(e)} >= 0" for e in rows)
    head = f"[{', '.join(params)}] -> {{ {'[' + ', '.join(map(_plain, names)) + ']' if names else ''} : "
    return isl.Set.read_from_str(isl.DEFAULT_CONTEXT, head + text + " }")


# ---- constraints out of isl
def rows_of(b: isl.BasicSet) -> tuple[tuple[Affine, bool], ...]:
    """The constraints of a basic set: (expression, whether it is 0 instead of >= 0); floors of parameters are left in."""
    return tuple(_Reader(b).rows())


class _Reader:
    """Reads the constraints of a basic set: dims are called #0, #1, …; a floor of dims becomes a dim #q0, … with constraints of its own."""

    def __init__(self, b: isl.BasicSet) -> None:
        self.b = b
        self.params = [str(b.get_dim_name(PARAM, i)) for i in range(b.dim(PARAM))]
        self.names = [f"#{i}" for i in range(b.dim(SET))]
        self.extra: list[tuple[Affine, bool]] = []
        self.divs: list[Affine] = []
        for k in range(b.dim(DIV)):
            div = b.get_div(k)
            den = int(div.get_denominator_val().to_python())
            num = self._expression(div.scale_val(isl.Val.int_from_si(b.get_ctx(), den)), isl.dim_type.in_, len(self.divs))
            if any(n.startswith("#") for n in num.names()):
                name = f"#q{k}"
                self.names.append(name)
                self.extra += [(num - var(name) * den, False), (var(name) * den + (den - 1) - num, False)]
                self.divs.append(var(name))
            else:
                self.divs.append(Affine(((FloorDiv(num, den), 1),)) if num.terms else affine(num.const // den))

    def rows(self) -> list[tuple[Affine, bool]]:
        """The constraints."""
        out = list(self.extra)
        for c in self.b.get_constraints():
            if not c.is_div_constraint():
                out.append((self._expression(c, SET, len(self.divs)), bool(c.is_equality())))
        return out

    def _expression(self, c: isl.Constraint | isl.Aff, kind: isl.dim_type, divs: int) -> Affine:
        terms: list[tuple[str, int]] = []
        for k, names in ((PARAM, self.params), (kind, self.names)):
            for i in range(self.b.dim(PARAM) if k == PARAM else self.b.dim(SET)):
                v = int(c.get_coefficient_val(k, i).to_python())
                if v:
                    terms.append((names[i], v))
        out = Affine(tuple(sorted(terms)), int(c.get_constant_val().to_python()))
        for i in range(divs):
            v = int(c.get_coefficient_val(DIV, i).to_python())
            if v:
                out = out + self.divs[i] * v
        return out


# ---- the sum
class _Summer:
    """Sums over the dims of systems of constraints; `out` collects conditions on the parameters, each with a sum to be added."""

    def __init__(self, params: Sequence[str], at: Mapping[str, int] | None) -> None:
        self.params, self.at = params, at
        self.work = 0
        self.out: list[tuple[Row, QuasiPolynomial]] = []
        self.steps = 0
        self.fresh = 0

    def sum(self, names: tuple[str, ...], inequalities: list[Affine], equalities: list[Affine], value: QuasiPolynomial) -> None:
        """Add the sum of `value` over all points of a system."""
        self.steps += 1
        if self.steps > STEPS:
            raise NoClosedForm("too many pieces")
        self.work += len(value.terms)
        if len(value.terms) > TERMS or self.work > WORK:
            raise NoClosedForm("too many terms")
        while equalities:
            e = equalities.pop()
            pivot = next((n for n in names if abs(e.coefficient(n)) == 1 and e.is_linear_in(n)), None)
            if pivot is None:
                inequalities += [e, -e]
                continue
            x = var(pivot) - e * e.coefficient(pivot)
            inequalities = [c.substitute({pivot: x}) for c in inequalities]
            equalities = [c.substitute({pivot: x}) for c in equalities]
            value = value.substitute(pivot, x)
            names = tuple(n for n in names if n != pivot)
        rows = _tighten(inequalities)
        if rows is None or not value.terms:
            return
        if self.at is not None and any(not e.names() & set(names) and e.evaluate(self.at) < 0 for e in rows):
            return
        if not names:
            self.out.append((tuple(rows), value))
            return
        name = min(names, key=lambda n: self._effort(n, rows, value, names))
        if value.floors_of(name):
            self._split(name, names, rows, value)
        else:
            self._eliminate(name, names, rows, value)

    def _effort(self, name: str, rows: list[Affine], value: QuasiPolynomial, names: tuple[str, ...]) -> tuple[int, int, int]:
        """How bad it is to sum over a dim now: residues to split first, floors of other dims that come of it, pairs of bounds."""
        lows = [e for e in rows if e.coefficient(name) > 0]
        highs = [e for e in rows if e.coefficient(name) < 0]
        floors = sum(abs(e.coefficient(name)) != 1 and any(n in names and n != name for n in e.names()) for e in (*lows, *highs))
        if len(lows) == len(highs) == 1 and (lows[0] + highs[0]) == lows[0].coefficient(name) - 1 and name not in value.atoms():
            floors = -1
        return len(value.floors_of(name)), floors, len(lows) * len(highs)

    def _split(self, name: str, names: tuple[str, ...], rows: list[Affine], value: QuasiPolynomial) -> None:
        """Sum over each residue class, so that no floor contains the dim."""
        period = lcm(*(_period(f, name) for f in value.floors_of(name)))
        if period > RESIDUES:
            raise NoClosedForm(f"a period of {period}")
        self.fresh += 1
        fresh = f"#r{self.fresh}"
        for r in range(period):
            x = var(fresh) * period + r
            new = [e.substitute({name: x}) for e in rows]
            self.sum((*(n for n in names if n != name), fresh), new, [], value.substitute(name, x))

    def _eliminate(self, name: str, names: tuple[str, ...], rows: list[Affine], value: QuasiPolynomial) -> None:
        """Sum over a dim, one case for each pair of a greatest lower bound and a least upper bound."""
        lows = [(e.coefficient(name), e.coefficient(name) * var(name) - e) for e in rows if e.coefficient(name) > 0]  # k·name >= x
        highs = [(-e.coefficient(name), e - e.coefficient(name) * var(name)) for e in rows if e.coefficient(name) < 0]  # k·name <= x
        others = [e for e in rows if not e.coefficient(name)]
        if not lows or not highs:
            raise UserError("a set with infinitely many points cannot be counted")
        left = tuple(n for n in names if n != name)
        if len(lows) == len(highs) == 1 and not value.floors_of(name) and name not in value.atoms():
            (k, low), (m, high) = lows[0], highs[0]
            if k == m and high - low == k - 1:  # a floor: one value for each point of the others
                self.sum(left, others, [], value)
                return
        lows = self._strongest(lows, others, left, 1)
        highs = self._strongest(highs, others, left, -1)
        several = len(lows) * len(highs) > 1
        for i, (k, low) in enumerate(lows):
            for j, (m, high) in enumerate(highs):
                new = list(others)
                new += [low * q - x * k - (1 if h < i else 0) for h, (q, x) in enumerate(lows) if h != i]
                new += [x * m - high * q - (1 if h < j else 0) for h, (q, x) in enumerate(highs) if h != j]
                # the sum is 0 where the bounds just miss each other; so the real shadow is enough
                new.append(high * k - low * m + (1 if k == m == 1 else 0))
                if several and _tighten(new) is None:
                    continue
                if several and set_of(new, self.params, left).is_empty():
                    continue
                self.sum(left, new, [], sum_over(value, name, -((-low) // k), high // m))

    def _strongest(self, bounds: list[tuple[int, Affine]], others: list[Affine], names: tuple[str, ...], sign: int) -> list[tuple[int, Affine]]:
        """Bounds without those that another one implies wherever the other constraints hold."""
        if len(bounds) == 1:
            return bounds
        around: isl.Set | None = None
        kept = list(bounds)
        for b in bounds:
            for other in kept:
                if other is b:
                    continue
                weaker = (other[1] * b[0] - b[1] * other[0]) * sign  # >= 0 where `other` is at least as strong
                if weaker.is_const:
                    implied = weaker.const >= 0
                else:
                    around = set_of(others, self.params, names) if around is None else around
                    implied = around.is_subset(set_of([weaker], self.params, names))
                if implied:
                    kept.remove(b)
                    break
        return kept


def _period(f: FloorDiv, name: str) -> int:
    """The period in a dim of a floor modulo its linear part."""
    own = f.den // gcd(f.den, f.num.coefficient(name)) if f.num.coefficient(name) else 1
    inner = [_period(a, name) for a, _ in f.num.terms if isinstance(a, FloorDiv) and name in a.num.names()]
    return lcm(own, *(p * f.den for p in inner))


def _tighten(rows: Sequence[Affine]) -> list[Affine] | None:
    """Inequalities divided by the gcd of their coefficients, the strongest of each direction; None where one, or two together, never hold."""
    best: dict[tuple[tuple[object, int], ...], Affine] = {}
    for e in rows:
        if not e.terms:
            if e.const < 0:
                return None
            continue
        g = gcd(*(k for _, k in e.terms))
        e = Affine(tuple((a, k // g) for a, k in e.terms), e.const // g)
        old = best.get(e.terms)
        if old is None or e.const < old.const:
            best[e.terms] = e
    for terms, e in best.items():
        opposite = best.get(tuple((a, -k) for a, k in terms))
        if opposite is not None and e.const + opposite.const < 0:
            return None
    return list(best.values())


def _plain(text: object) -> str:
    """Names of dims as isl reads them."""
    return str(text).replace("#", "x_")
