"""Quasi-affine integer expressions over named variables, in a canonical form.

Takes names and integers; gives `Affine`: sum of coefficient × atom + constant, where an atom is a variable or `floor(affine / d)`
with a constant d > 0. `x mod d` is written x - d·floor(x/d). Two equal linear forms are equal Python values.
Printing (`str`) is isl's syntax, so that text goes to isl unchanged. Imports nothing of isl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Union

Range = tuple[int | None, int | None]  # inclusive bounds; None: unbounded


@dataclass(frozen=True)
class FloorDiv:
    """The atom floor(num / den), den a positive constant."""

    num: Affine
    den: int

    def __str__(self) -> str:
        return f"floor(({self.num})/{self.den})"

    def __hash__(self) -> int:
        return hash((self.num, self.den))


Atom = Union[str, FloorDiv]
AffineLike = Union["Affine", int, str]


def _key(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, str(atom))


@dataclass(frozen=True)
class Affine:
    """A canonical quasi-affine expression. Build with `affine(...)`, `var(...)` and operators."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    # ---- arithmetic
    def __add__(self, other: AffineLike) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other) if other else self
        other = affine(other)
        if not other.terms:
            return Affine(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Affine(other.terms, self.const + other.const) if self.const else other
        return _collect([*self.terms, *other.terms], self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: AffineLike) -> Affine:
        return self + (-other if isinstance(other, int) else affine(other) * -1)

    def __rsub__(self, other: AffineLike) -> Affine:
        return affine(other) + self * -1

    def __mul__(self, other: AffineLike) -> Affine:
        if isinstance(other, int):
            if other == 1:
                return self
            return Affine(tuple((a, k * other) for a, k in self.terms), self.const * other) if other else Affine((), 0)
        other = affine(other)
        if other.terms and self.terms:
            raise TypeError(f"({self}) * ({other}) is not affine")
        if other.terms:
            return other * self.const
        c = other.const
        return Affine(tuple((a, k * c) for a, k in self.terms), self.const * c) if c else Affine((), 0)

    __rmul__ = __mul__

    def __floordiv__(self, den: int) -> Affine:
        if not isinstance(den, int) or den <= 0:
            raise TypeError(f"({self}) // ({den}): the divisor must be a positive integer constant")
        if den == 1:
            return self
        # terms divisible by den leave the floor
        out = [(a, k // den) for a, k in self.terms if k % den == 0]
        rest = [(a, k) for a, k in self.terms if k % den]
        whole, c = divmod(self.const, den)
        if not rest:
            return _collect(out, whole)
        g = den
        for _, k in rest:
            g = gcd(g, k)
        if g > 1:  # floor((g·x + c)/(g·d)) = floor((x + floor(c/g))/d)
            inner = _collect([(a, k // g) for a, k in rest], c // g)
            return _collect(out, whole) + inner // (den // g)
        if len(rest) == 1 and isinstance(inner_floor := rest[0][0], FloorDiv) and rest[0][1] == 1:  # floor((floor(x/a) + c)/d)
            return _collect(out, whole) + (inner_floor.num + c * inner_floor.den) // (inner_floor.den * den)
        return _collect([*out, (FloorDiv(_collect(rest, c), den), 1)], whole)

    def __mod__(self, den: int) -> Affine:
        return self - (self // den) * den

    # ---- questions
    def __eq__(self, other: object) -> bool:
        """The same linear form; a constant equals the int of its value."""
        if isinstance(other, Affine):
            return self.const == other.const and self.terms == other.terms
        return not self.terms and self.const == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash((self.terms, self.const)) if self.terms else hash(self.const)
            object.__setattr__(self, "_hash", known)
        return int(known)

    def __reduce__(self) -> tuple[type[Affine], tuple[tuple[tuple[Atom, int], ...], int]]:
        return Affine, (self.terms, self.const)  # without the hash, which holds for one process only

    @property
    def is_const(self) -> bool:
        """Whether no variable occurs."""
        return not self.terms

    def __int__(self) -> int:
        if self.terms:
            raise TypeError(f"{self} is not a constant")
        return self.const

    def names(self) -> frozenset[str]:
        """All variables, also those inside floors."""
        return frozenset(self._names())

    def _names(self) -> Iterator[str]:
        for a, _ in self.terms:
            if isinstance(a, str):
                yield a
            else:
                yield from a.num._names()

    def coefficient(self, name: str) -> int:
        """The coefficient of a variable outside floors."""
        return next((k for a, k in self.terms if a == name), 0)

    def is_linear_in(self, name: str) -> bool:
        """Whether the variable occurs outside floors only (or not at all)."""
        return not any(isinstance(a, FloorDiv) and name in a.num.names() for a, _ in self.terms)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Inclusive bounds when each variable lies in its range (a variable not in `ranges` is unbounded).

        Interval arithmetic, which knows that x - d·floor(x/d) lies in [0, d - 1].
        """
        lo: int | None = self.const
        hi: int | None = self.const
        for a, k in self.terms:
            if isinstance(a, str):
                l, h = ranges.get(a, (None, None))
            else:
                mod = self._without_mod(a, k)
                if mod is not None:
                    rest, m = mod
                    rl, rh = rest.bounds(ranges)
                    top = m * (a.den - 1)
                    return (None if rl is None else rl + min(0, top)), (None if rh is None else rh + max(0, top))
                nl, nh = a.num.bounds(ranges)
                l, h = (None if nl is None else nl // a.den), (None if nh is None else nh // a.den)
            if k < 0:
                l, h = h, l
            lo = None if lo is None or l is None else lo + k * l
            hi = None if hi is None or h is None else hi + k * h
        return lo, hi

    def _without_mod(self, atom: FloorDiv, k: int) -> tuple[Affine, int] | None:
        """(rest, m) where self = rest + m·(num mod den) for this floor of coefficient k = -m·den and all of num's terms occur."""
        if k % atom.den:
            return None
        m = -k // atom.den
        have = dict(self.terms)
        if not all(have.get(a) == m * c for a, c in atom.num.terms):
            return None
        return self - (atom.num - Affine(((atom, atom.den),))) * m, m

    # ---- rewriting
    def substitute(self, values: Mapping[str, AffineLike]) -> Affine:
        """Replace variables by expressions."""
        if not self.terms:
            return self
        terms: list[tuple[Atom, int]] = []
        const, changed = self.const, False
        for a, k in self.terms:
            new: AffineLike | None
            if isinstance(a, str):
                new = values.get(a)
            else:
                num = a.num.substitute(values)
                new = None if num is a.num else num // a.den
            if new is None:
                terms.append((a, k))
                continue
            changed = True
            if isinstance(new, int):
                const += k * new
            elif isinstance(new, str):
                terms.append((new, k))
            else:
                const += k * new.const
                terms += [(b, k * c) for b, c in new.terms]
        return _collect(terms, const) if changed else self

    def simplify(self, ranges: Mapping[str, Range]) -> Affine:
        """Drop floors whose value the ranges decide: floor((d·q + r)/d) = q when 0 <= r < d."""
        if not any(isinstance(a, FloorDiv) for a, _ in self.terms):
            return self
        out = Affine((), self.const)
        for a, k in self.terms:
            out = out + (Affine(((a, 1),)) if isinstance(a, str) else _simplify_floor(a.num.simplify(ranges), a.den, ranges)) * k
        return out

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value at a point."""
        total = self.const
        for a, k in self.terms:
            total += k * (values[a] if isinstance(a, str) else a.num.evaluate(values) // a.den)
        return total

    def __str__(self) -> str:
        parts = []
        for a, k in self.terms:
            text = str(a)
            parts.append(text if k == 1 else f"-{text}" if k == -1 else f"{k}*{text}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Affine({self})"


def _simplify_floor(num: Affine, den: int, ranges: Mapping[str, Range]) -> Affine:
    whole = num // den
    # separate the multiples of den (already done by //), then ask whether the remainder stays inside one multiple
    if len(whole.terms) and isinstance(whole.terms[-1][0], FloorDiv):
        rest = [(a, k) for a, k in whole.terms if isinstance(a, FloorDiv) and a.den <= den and k == 1]
        for atom, _ in rest:
            assert isinstance(atom, FloorDiv)
            lo, hi = atom.num.bounds(ranges)
            if lo is not None and hi is not None and lo // atom.den == hi // atom.den:
                return whole - Affine(((atom, 1),)) + lo // atom.den
            # floor((k·x + r)/d) where the part with gcd g of big terms: split x terms that are multiples of some g with r in [0, g)
            split = _split_floor(atom, ranges)
            if split is not None:
                return whole - Affine(((atom, 1),)) + split
    return whole


def _split_floor(atom: FloorDiv, ranges: Mapping[str, Range]) -> Affine | None:
    """floor((g·x + r)/(g·d)) = floor(x/d) when 0 <= r < g: try each divisor g of den that divides some coefficients."""
    den = atom.den
    candidates = sorted({gcd(k, den) for _, k in atom.num.terms if gcd(k, den) > 1}, reverse=True)
    for g in candidates:
        big = [(a, k // g) for a, k in atom.num.terms if k % g == 0]
        small = Affine(tuple((a, k) for a, k in atom.num.terms if k % g), atom.num.const % g)
        lo, hi = small.bounds(ranges)
        if big and lo is not None and hi is not None and lo >= 0 and hi < g:
            return (_collect(big, atom.num.const // g) // (den // g)).simplify(ranges)
    return None


def _collect(terms: list[tuple[Atom, int]], const: int) -> Affine:
    total: dict[Atom, int] = {}
    names_only = True
    for a, k in terms:
        total[a] = total.get(a, 0) + k
        names_only = names_only and isinstance(a, str)
    items = [(a, k) for a, k in total.items() if k]
    if len(items) > 1:
        if names_only:
            items.sort()
        else:
            items.sort(key=lambda t: _key(t[0]))
    return Affine(tuple(items), const)


def affine(x: AffineLike) -> Affine:
    """An `Affine` from an int, a variable name or an `Affine`."""
    if isinstance(x, Affine):
        return x
    if isinstance(x, str):
        return Affine(((x, 1),), 0)
    return Affine((), int(x))


def var(name: str) -> Affine:
    """The expression that is one variable."""
    return Affine(((name, 1),), 0)


def dims(names: str) -> tuple[Affine, ...] | Affine:
    """`M, N = dims("M N")`: named dims as affine expressions (one name gives one expression)."""
    out = tuple(var(n) for n in names.replace(",", " ").split())
    return out[0] if len(out) == 1 else out
