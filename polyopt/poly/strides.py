"""How far an iterator moves an access in memory.

Takes accesses and tensor shapes; gives strides in elements and which iterators matter. Only `Affine` arithmetic, no isl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.affine import Affine
from ..ir.expr import Access
from ..ir.scop import Statement
from ..ir.tensor import Tensor

SYMBOLIC_EXTENT = 509  # stands for a dim of unknown size: large, and no power of two


def known_extent(x: Affine) -> int:
    """The value of a dim, or a stand-in where it depends on parameters."""
    return x.const if x.is_const else SYMBOLIC_EXTENT


def element_strides(t: Tensor) -> tuple[int, ...]:
    """The row-major stride of each dim, in elements."""
    out, step = [], 1
    for x in reversed(t.shape):
        out.append(step)
        step *= known_extent(x)
    return tuple(reversed(out))


def stride(a: Access, t: Tensor, it: str) -> int | None:
    """Elements between the cells of iterations 0 and 1 of `it` (the local stride, within a block); None where an index is indirect in it."""
    total = 0
    for x, step in zip(a.indices, element_strides(t)):
        if not isinstance(x, Affine):
            return None
        names = x.names()
        if it in names:
            zero = dict.fromkeys(names, 0)
            total += step * (x.evaluate({**zero, it: 1}) - x.evaluate(zero))
    return total


def iterators_of(a: Access, s: Statement) -> tuple[str, ...]:
    """The iterators that an access depends on, in the statement's order."""
    used: set[str] = set()
    for x in a.indices:
        if isinstance(x, Affine):
            used |= x.names()
        else:
            used |= set(s.iters)
    return tuple(i for i in s.iters if i in used)


def match_iterators(a: Access, a_iters: Sequence[str], b: Access, b_iters: Sequence[str]) -> dict[str, str] | None:
    """A renaming of a's iterators to b's that makes the two accesses equal; None where there is none."""
    out: dict[str, str] = {}
    if len(a.indices) != len(b.indices):
        return None
    for x, y in zip(a.indices, b.indices):
        if not isinstance(x, Affine) or not isinstance(y, Affine):
            return None
        xs = [t for t in _ordered(x) if t in a_iters]
        ys = [t for t in _ordered(y) if t in b_iters]
        if len(xs) != len(ys):
            return None
        for p, q in zip(xs, ys):
            if out.setdefault(p, q) != q:
                return None
    renamed: Mapping[str, Affine] = {p: Affine(((q, 1),)) for p, q in out.items()}
    same = all(isinstance(x, Affine) and x.substitute(renamed) == y for x, y in zip(a.indices, b.indices))
    return out if same and len(set(out.values())) == len(out) else None


def _ordered(x: Affine) -> list[str]:
    """The variables by the size of their coefficient, each once."""
    names: list[tuple[int, str]] = []
    for atom, k in x.terms:
        if isinstance(atom, str):
            names.append((-abs(k) * 1_000_000, atom))
        else:
            names += [(-abs(k), n) for n in _ordered(atom.num)]
    seen: dict[str, None] = {}
    for _, n in sorted(names, key=lambda p: p[0]):
        seen.setdefault(n)
    return list(seen)
