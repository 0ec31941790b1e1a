"""Element offsets and affine expressions as C text. Takes affine indices, shapes and ranges; gives row-major offsets and integer C.

A stride that depends on parameters is a symbol (a C constant declared at the head of the function); an offset is then a sum of an
affine part and affine parts times symbols. 32-bit arithmetic is used where the ranges prove that it cannot overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from polyopt.ir.affine import Affine, AffineLike, FloorDiv, Range, affine
from polyopt.ir.tensor import Tensor

INT_MAX = 2**31 - 1
ZERO = affine(0)


@dataclass(frozen=True)
class Offset:
    """`plain + sum(symbol * affine)`, in elements."""

    plain: Affine
    scaled: tuple[tuple[str, Affine], ...] = ()

    def substitute(self, values: Mapping[str, AffineLike]) -> Offset:
        """Replace variables by affine expressions."""
        return make_offset(self.plain.substitute(values), {s: a.substitute(values) for s, a in self.scaled})

    def names(self) -> frozenset[str]:
        """All variables."""
        return frozenset().union(self.plain.names(), *(a.names() for _, a in self.scaled))

    def stride(self, var: str) -> int | None:
        """The change of the offset when `var` grows by one, where that is a known constant."""
        if not self.plain.is_linear_in(var) or any(var in a.names() for _, a in self.scaled):
            return None
        return self.plain.coefficient(var)

    def shift(self, elements: int) -> Offset:
        """The offset moved by a constant."""
        return Offset(self.plain + elements, self.scaled)

    @property
    def is_const(self) -> bool:
        """Whether the offset is a number."""
        return self.plain.is_const and not self.scaled


def make_offset(plain: Affine, scaled: Mapping[str, Affine]) -> Offset:
    """An offset without zero parts."""
    return Offset(plain, tuple(sorted((s, a) for s, a in scaled.items() if a.terms or a.const)))


def split_affine(a: Affine, varying: Callable[[str], bool]) -> tuple[Affine, Affine]:
    """(invariant part without constant, varying part with the constant)."""
    inv = [(t, k) for t, k in a.terms if not any(map(varying, Affine(((t, 1),)).names()))]
    var = [(t, k) for t, k in a.terms if any(map(varying, Affine(((t, 1),)).names()))]
    return Affine(tuple(inv)), Affine(tuple(var), a.const)


def split_offset(off: Offset, varying: Callable[[str], bool]) -> tuple[Offset, Offset]:
    """(invariant part, varying part): the constant of the plain part goes to the varying one, those of the scaled parts do not."""
    inv, var = split_affine(off.plain, varying)
    si: dict[str, Affine] = {}
    sv: dict[str, Affine] = {}
    for sym, a in off.scaled:
        i, v = split_affine(a, varying)
        si[sym], sv[sym] = i + v.const, v - v.const
    return make_offset(inv, si), make_offset(var, sv)


def product(dims: tuple[Affine, ...]) -> int | None:
    """The product of constant dims, None where one is not constant."""
    total = 1
    for d in dims:
        if not d.is_const:
            return None
        total *= d.const
    return total


@dataclass
class IntText:
    """Prints affine expressions as C integers. `ranges` and `ctypes` (int or int64_t) of each variable, `ident` its C name."""

    ranges: dict[str, Range]
    ctypes: dict[str, str]
    ident: dict[str, str]
    need_floor: Callable[[], str]

    def fits(self, a: Affine) -> bool:
        """Whether every partial result of the expression provably fits 32 bits and all variables are 32-bit."""
        total = abs(a.const)
        for t, k in a.terms:
            if isinstance(t, FloorDiv):
                if not self.fits(t.num):
                    return False
            elif self.ctypes.get(t) != "int":
                return False
            lo, hi = Affine(((t, 1),)).bounds(self.ranges)
            if lo is None or hi is None:
                return False
            total += abs(k) * max(abs(lo), abs(hi))
        return total <= INT_MAX

    def affine(self, a: Affine, wide: bool | None = None) -> str:
        """C text, parenthesised where it is a sum; `wide` forces 64-bit arithmetic."""
        if wide is None:
            wide = not self.fits(a)
        parts: list[str] = []
        for t, k in a.terms if len(a.terms) < 2 else sorted(a.terms, key=self._age()):
            text = self._atom(t, wide)
            parts.append(text if k == 1 else f"-{text}" if k == -1 else f"{literal(k)} * {text}")
        if a.const or not parts:
            parts.append(literal(a.const))
        text = " + ".join(parts).replace("+ -", "- ")
        return f"({text})" if len(parts) > 1 or text.startswith("-") else text

    def _age(self) -> Callable[[tuple[str | FloorDiv, int]], tuple[object, ...]]:
        """The order of printing: as variables were defined, outer loops first, so that it does not hang on their names."""
        place = {name: i for i, name in enumerate(self.ident)}

        def key(term: tuple[str | FloorDiv, int]) -> tuple[object, ...]:
            t = term[0]
            if isinstance(t, str):
                return 0, (place.get(t, -1),), 0, term[1]
            return 1, tuple(sorted(place.get(n, -1) for n in t.num.names())), t.den, term[1]

        return key

    def _atom(self, t: str | FloorDiv, wide: bool) -> str:
        if isinstance(t, str):
            name = self.ident[t]
            return f"(int64_t){name}" if wide and self.ctypes.get(t) == "int" else name
        num = self.affine(t.num, wide)
        lo, _ = t.num.bounds(self.ranges)
        if lo is not None and lo >= 0:
            return f"({num} / {literal(t.den)})"
        cast = "" if wide else "(int)"
        return f"{cast}{self.need_floor()}({num}, {literal(t.den)})"

    def offset(self, off: Offset) -> str:
        """C text of an offset."""
        parts = [f"{sym} * {self.affine(a)}" for sym, a in off.scaled]
        if off.plain.terms or off.plain.const or not parts:
            parts.append(self.affine(off.plain))
        text = " + ".join(parts)
        return text[1:-1] if len(parts) == 1 and text.startswith("(") and _matched(text) else text

    def type_of(self, lo: int | None, hi: int | None) -> str:
        """The C type that holds a value of this range."""
        return "int" if lo is not None and hi is not None and lo >= -INT_MAX and hi <= INT_MAX else "int64_t"


def _matched(text: str) -> bool:
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def literal(k: int) -> str:
    """An integer literal wide enough for its value."""
    if abs(k) <= INT_MAX:
        return str(k)
    return "INT64_MIN" if k == -(2**63) else f"{k}LL"


def in_bounds(indices: tuple[object, ...], tensor: Tensor, ranges: Mapping[str, Range]) -> bool:
    """Whether every index is affine and provably inside the tensor's shape."""
    for x, dim in zip(indices, tensor.shape, strict=True):
        if not isinstance(x, Affine):
            return False
        lo = x.bounds(ranges)[0]
        room = (dim - 1 - x).bounds(ranges)[0]
        if lo is None or lo < 0 or room is None or room < 0:
            return False
    return True
