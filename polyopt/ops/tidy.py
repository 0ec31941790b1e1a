"""The last step of every definition: iterators that no named dim shares, no trivial constraint, no empty nest.

Takes and gives `Nest`s. Named dims are assumed to be at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir.affine import Affine, AffineLike, FloorDiv, Range
from ..ir.expr import Access, Expr, IndexValue, Load, rewrite, rewrite_access, substitute
from ..ir.graph import Value
from .exprs import value_of
from .registry import Array, Nest

Iters = tuple[tuple[str, Affine], ...]


def lower_bound(c: Affine, its: Iters) -> int | None:
    """A constant below `c` on the box of the iterators (named dims >= 1), or None where none is found."""
    for name, extent in its:
        k = c.coefficient(name)
        if k and c.is_linear_in(name):
            c = c.substitute({name: 0 if k > 0 else extent - 1})
    for a, k in c.terms:  # floor(n/d) is within (d-1)/d of n/d
        if isinstance(a, FloorDiv) and k % a.den == 0:
            c = c - Affine(((a, k),)) + (a.num * (k // a.den) if k < 0 else (a.num - (a.den - 1)) * (k // a.den))
    ranges: dict[str, Range] = {n: (1, None) for n in c.names()}
    ranges |= {n: (0, e.const - 1 if e.is_const else None) for n, e in its}
    return c.bounds(ranges)[0]


def tidy(n: Nest) -> Nest | None:
    """Simplified indices and constraints; None for a nest without points."""
    if any(e.is_const and e.const <= 0 for _, e in n.iters):
        return None
    ranges: dict[str, Range] = {name: (0, e.const - 1 if e.is_const else None) for name, e in n.iters}
    where = []
    for c in n.where:
        c = c.simplify(ranges)
        low = lower_bound(c, n.iters)
        if low is not None and low >= 0:
            continue
        high = lower_bound(c * -1, n.iters)
        if high is not None and high > 0:
            return None
        where.append(c)

    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Load):
            return Load(_simple(e.access, ranges), e.dtype)
        return value_of(e.index.simplify(ranges), e.dtype) if isinstance(e, IndexValue) else None

    write = rewrite_access(_simple(n.write, ranges), visit)
    return replace(n, where=tuple(dict.fromkeys(where)), write=write, expr=rewrite(n.expr, visit))


def _simple(a: Access, ranges: dict[str, Range]) -> Access:
    return Access(a.tensor, tuple(i.simplify(ranges) if isinstance(i, Affine) else i for i in a.indices))


MARK = "$"  # no iterator has it: while a definition is built, the named dim h is h$, whatever iterators are called


def hide(v: Value) -> Value:
    """The value with its named dims marked."""
    return v if v.shape is None else replace(v, shape=tuple(map(_marked, v.shape)))


def hide_known(a: Array) -> Array:
    """A known value with its named dims marked."""
    if a.dtype != object:
        return a
    out = np.empty(a.shape, object)
    out.reshape(-1)[:] = [_marked(x) if isinstance(x, Affine) else x for x in a.reshape(-1)]
    return out


def _marked(d: Affine) -> Affine:
    return d.substitute({n: n + MARK for n in d.names()})


def reveal(d: Affine) -> Affine:
    """The expression with its named dims as they are called."""
    return d.substitute({n: n.removesuffix(MARK) for n in d.names() if n.endswith(MARK)})


def reveal_nest(n: Nest, dims: frozenset[str]) -> Nest:
    """The nest with its named dims as they are called, and iterators that share no name with one of them."""
    new: dict[str, AffineLike] = {d + MARK: d for d in dims}
    for name, _ in n.iters:
        fresh = name
        while fresh in dims:
            fresh += "_"
        new[name] = fresh
    its = tuple((str(new[name]), reveal(e)) for name, e in n.iters)
    where = tuple(c.substitute(new) for c in n.where)
    indices = tuple(i.substitute(new) if isinstance(i, Affine) else substitute(i, new) for i in n.write.indices)
    return Nest(its, Access(n.write.tensor, indices), substitute(n.expr, new), n.reduction, where)


def dim_names(ins: Sequence[Value | None], outs: Sequence[Value]) -> frozenset[str]:
    """The named dims of all shapes."""
    return frozenset(n for v in [*ins, *outs] if v is not None for d in v.shape or () for n in d.names())


