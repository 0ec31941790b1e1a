"""Quasi-polynomials: what the number of integer points of a parametric set is.

Takes rational coefficients and atoms of `ir.affine` (names, and floors of affine expressions); gives exact sums of products, which can be
added, multiplied, summed over an interval (Faulhaber), evaluated and printed, factored where that is shorter. No isl here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import comb, gcd, lcm

from ..ir.affine import Affine, Atom, FloorDiv

Monomial = tuple[tuple[Atom, int], ...]  # atoms and exponents, sorted
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
ROOTS = 9  # linear factors (n + c) are looked for with |c| up to this


@dataclass(frozen=True)
class QuasiPolynomial:
    """A sum of coefficient × product of atoms, in canonical order: equal sums are equal values."""

    terms: tuple[tuple[Monomial, Fraction], ...] = ()

    # ---- arithmetic
    def __add__(self, other: QuasiPolynomial | int) -> QuasiPolynomial:
        return collect([*self.terms, *lift(other).terms])

    def __neg__(self) -> QuasiPolynomial:
        return self.scale(Fraction(-1))

    def __sub__(self, other: QuasiPolynomial | int) -> QuasiPolynomial:
        return self + -lift(other)

    def __mul__(self, other: QuasiPolynomial | int) -> QuasiPolynomial:
        return collect((_times(m, n), c * d) for m, c in self.terms for n, d in lift(other).terms)

    def scale(self, k: Fraction) -> QuasiPolynomial:
        """k times this."""
        return QuasiPolynomial(tuple((m, c * k) for m, c in self.terms)) if k else QuasiPolynomial()

    # ---- questions
    def atoms(self) -> set[Atom]:
        """The names and floors that occur."""
        return {a for m, _ in self.terms for a, _ in m}

    def names(self) -> set[str]:
        """All names, those inside floors too."""
        return {n for a in self.atoms() for n in ([a] if isinstance(a, str) else a.num.names())}

    def floors_of(self, name: str) -> list[FloorDiv]:
        """The floors in which a name occurs."""
        return [a for a in self.atoms() if isinstance(a, FloorDiv) and name in a.num.names()]

    def degree(self) -> int:
        """The largest total degree of a term."""
        return max((sum(e for _, e in m) for m, _ in self.terms), default=0)

    def by_power(self, name: str) -> dict[int, QuasiPolynomial]:
        """The coefficient of each power of a name."""
        parts: dict[int, list[tuple[Monomial, Fraction]]] = {}
        for m, c in self.terms:
            power = next((e for a, e in m if a == name), 0)
            parts.setdefault(power, []).append((tuple(x for x in m if x[0] != name), c))
        return {k: collect(v) for k, v in parts.items()}

    def substitute(self, name: str, value: Affine) -> QuasiPolynomial:
        """The name replaced by an expression, in floors too."""
        if not any(a == name or (isinstance(a, FloorDiv) and name in a.num.names()) for a in self.atoms()):
            return self
        out = QuasiPolynomial()
        for m, c in self.terms:
            product = QuasiPolynomial((((), c),))
            for a, e in m:
                new = from_affine(Affine(((a, 1),)).substitute({name: value}))
                for _ in range(e):
                    product = product * new
            out = out + product
        return out

    def evaluate(self, values: Mapping[str, int]) -> Fraction:
        """The value at a point."""
        scale = lcm(*(c.denominator for _, c in self.terms))
        total = 0
        for m, c in self.terms:
            product = c.numerator * (scale // c.denominator)
            for a, e in m:
                product *= (values[a] if isinstance(a, str) else a.num.evaluate(values) // a.den) ** e
            total += product
        return Fraction(total, scale)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        content, factors, rest = _factor(self)
        words = [_atom(a) + _power(e) for a, e in factors]
        if rest.terms != _ONE.terms:
            text = _sum_text(rest)
            words.append(f"({text})" if (words or content != 1) and len(rest.terms) > 1 else text)
        elif content == 1 and len(words) == 1 and words[0].startswith("(") and words[0].endswith(")"):
            words = [words[0][1:-1]]
        if abs(content.numerator) != 1 or not words:
            words.insert(0, str(abs(content.numerator)))
        text = ("-" if content < 0 else "") + "·".join(words)
        return text if content.denominator == 1 else f"{text}/{content.denominator}"


def _times(m: Monomial, n: Monomial) -> Monomial:
    if not m or not n:
        return m or n
    powers: dict[Atom, int] = dict(m)
    for a, e in n:
        powers[a] = powers.get(a, 0) + e
    return tuple(sorted(powers.items(), key=lambda x: _order(x[0])))


def _order(a: Atom) -> tuple[int, str]:
    return (0, a) if isinstance(a, str) else (1, str(a))


def collect(terms: Iterable[tuple[Monomial, Fraction]]) -> QuasiPolynomial:
    """The sum of terms."""
    total: dict[Monomial, Fraction] = {}
    for m, c in terms:
        total[m] = total.get(m, Fraction(0)) + c
    kept = [(m, c) for m, c in total.items() if c]
    kept.sort(key=lambda t: (-sum(e for _, e in t[0]), [(_order(a), -e) for a, e in t[0]]))
    return QuasiPolynomial(tuple(kept))


def lift(x: QuasiPolynomial | int) -> QuasiPolynomial:
    """A constant as a quasi-polynomial."""
    return x if isinstance(x, QuasiPolynomial) else QuasiPolynomial((((), Fraction(x)),)) if x else QuasiPolynomial()


def from_affine(x: Affine) -> QuasiPolynomial:
    """An affine expression. floor(-x/d) is written as -floor((x + d - 1)/d), so that equal values meet."""
    out: list[tuple[Monomial, Fraction]] = [((), Fraction(x.const))]
    for a, k in x.terms:
        if isinstance(a, FloorDiv) and a.num.terms and a.num.terms[0][1] < 0:
            turned = (-a.num + (a.den - 1)) // a.den * -k
            out += [*((((b, 1),), Fraction(m)) for b, m in turned.terms), ((), Fraction(turned.const))]
        else:
            out.append((((a, 1),), Fraction(k)))
    return collect(out)


_ONE = QuasiPolynomial((((), Fraction(1)),))


# ---- summation
@cache
def faulhaber(k: int) -> tuple[Fraction, ...]:
    """The coefficients, from n^0 up, of the polynomial that equals 0^k + 1^k + … + n^k for n >= 0 (Bernoulli numbers with B1 = +1/2)."""
    numbers: list[Fraction] = []
    for m in range(k + 1):
        rest = sum((comb(m + 1, j) * numbers[j] for j in range(m)), Fraction(0))
        numbers.append((m + 1 - rest) / (m + 1))
    out = [Fraction(0)] * (k + 2)
    for j in range(k + 1):
        out[k + 1 - j] += Fraction(comb(k + 1, j), k + 1) * numbers[j]
    if k == 0:
        out[0] += 1  # 0^0 counts
    return tuple(out)


def sum_over(p: QuasiPolynomial, name: str, low: Affine, high: Affine) -> QuasiPolynomial:
    """The sum of p for low <= name <= high, where low <= high + 1. No floor of p may contain the name."""
    below, top = from_affine(low - 1), from_affine(high)
    out = QuasiPolynomial()
    for k, coefficient in p.by_power(name).items():
        part = QuasiPolynomial()
        a, b = _ONE, _ONE
        for c in faulhaber(k):
            part = part + (a - b).scale(c)
            a, b = a * top, b * below
        out = out + coefficient * part
    return out


# ---- text
def _factor(p: QuasiPolynomial) -> tuple[Fraction, list[tuple[Atom, int]], QuasiPolynomial]:
    """Content, factors with exponents (names, floors and n + c as a floor-free atom of text) and what is left."""
    numerator = 0
    for _, c in p.terms:
        numerator = gcd(numerator, c.numerator)
    content = Fraction(numerator or 1, lcm(*(c.denominator for _, c in p.terms)))
    if p.terms[0][1] < 0:
        content = -content
    rest = p.scale(1 / content)
    factors: list[tuple[Atom, int]] = []
    for a in sorted(p.atoms(), key=_order):
        least = min(next((e for b, e in m if b == a), 0) for m, _ in rest.terms)
        if least:
            factors.append((a, least))
            rest = collect((_times(tuple(x for x in m if x[0] != a), ((a, e - least),) if e > least else ()), c)
                           for m, c in rest.terms for e in [next(e for b, e in m if b == a)])  # fmt: skip
    for a in sorted(p.atoms(), key=_order):
        for shift in sorted(range(-ROOTS, ROOTS + 1), key=lambda c: (abs(c), c)):
            power = 0
            while len(rest.terms) > 1 and (less := _divide(rest, a, shift)) is not None:
                rest, power = less, power + 1
            if power:
                factors.append((f"({_atom(a)} {'-' if shift < 0 else '+'} {abs(shift)})", power))
    if content < 0 and len(rest.terms) > 1:
        content, rest = -content, -rest
    if len(rest.terms) == 1 and not rest.terms[0][0]:
        content, rest = content * rest.terms[0][1], _ONE
    return content, factors, rest


def _divide(p: QuasiPolynomial, a: Atom, c: int) -> QuasiPolynomial | None:
    """p / (a + c), None where that leaves a rest (synthetic division; a is taken as a variable)."""
    if c == 0:
        return None
    parts: dict[int, list[tuple[Monomial, Fraction]]] = {}
    for m, k in p.terms:
        power = next((e for b, e in m if b == a), 0)
        parts.setdefault(power, []).append((tuple(x for x in m if x[0] != a), k))
    top = max(parts)
    if not top:
        return None
    out, carry = QuasiPolynomial(), QuasiPolynomial()
    for e in range(top, 0, -1):
        carry = collect(parts.get(e, ())) + carry.scale(Fraction(-c))
        out = out + carry * QuasiPolynomial(((((a, e - 1),) if e > 1 else (), Fraction(1)),))
    last = collect(parts.get(0, ())) + carry.scale(Fraction(-c))
    return None if last.terms else out


def _atom(a: Atom) -> str:
    return a if isinstance(a, str) else f"⌊({a.num})/{a.den}⌋"


def _power(e: int) -> str:
    return str(e).translate(_SUPERSCRIPTS) if e > 1 else ""


def _sum_text(p: QuasiPolynomial) -> str:
    parts = []
    for m, c in p.terms:
        names = "·".join(_atom(a) + _power(e) for a, e in m)
        size = abs(c)
        number = "" if size == 1 and names else str(size.numerator)
        text = "·".join(x for x in (number, names) if x) + (f"/{size.denominator}" if size.denominator != 1 else "")
        parts.append(("- " if c < 0 else "+ ") + text)
    joined = " ".join(parts)
    return joined[2:] if joined.startswith("+ ") else "-" + joined[2:]
