"""Join adjacent dims: two loops that walk two adjacent dims of every tensor as one, become one loop over one dim.

Takes the nests of a kernel over buffers and the buffers' shapes; gives nests and shapes with fewer dims. A pointwise kernel over dense tensors
becomes one long loop; a 1×1 convolution has one spatial loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.affine import Affine, var
from ..ir.expr import Access, Expr, IndexValue, Load, walk
from ..ir.graph import Shape
from ..ops.registry import Nest
from ..ops.structure import accesses_of, map_accesses

Pair = tuple[str, str]


def collapse(nests: tuple[Nest, ...], shapes: Mapping[str, Shape], fixed: frozenset[str]) -> tuple[tuple[Nest, ...], dict[str, Shape]]:
    """Join dims until no pair is left; tensors in `fixed` keep their shape."""
    now = dict(shapes)
    while True:
        found = _joinable(nests, now, fixed)
        if found is None:
            return nests, now
        tensors, pairs = found
        for t, p in tensors.items():
            s = now[t]
            now[t] = (*s[:p], s[p] * s[p + 1], *s[p + 2 :])
        nests = tuple(_join(n, pair, tensors) for n, pair in zip(nests, pairs))


def _joinable(nests: tuple[Nest, ...], shapes: Mapping[str, Shape], fixed: frozenset[str]) -> tuple[dict[str, int], list[Pair | None]] | None:
    """One dim of each of some tensors, and the pair of loops of each nest that walks it together with the next one."""
    for t, s in shapes.items():
        for p in range(len(s) - 1):
            start = {t: p}
            found = _closure(nests, shapes, fixed, start)
            if found is not None:
                return found
    return None


def _closure(
    nests: tuple[Nest, ...], shapes: Mapping[str, Shape], fixed: frozenset[str], tensors: dict[str, int]
) -> tuple[dict[str, int], list[Pair | None]] | None:
    """All dims and loops that must be joined along with the first dim; None where one of them cannot."""
    pairs: list[Pair | None] = [None] * len(nests)
    changed = True
    while changed:
        changed = False
        for t, p in tensors.items():
            if t in fixed or not shapes[t][p + 1].is_const:
                return None
        for k, n in enumerate(nests):
            pair = pairs[k]
            for a in accesses_of(n):
                at = tensors.get(a.tensor)
                if at is not None:
                    here = _loops_at(n, a, at, shapes[a.tensor])
                    if here is None or (pair is not None and here != pair):
                        return None
                    if pair is None:
                        pair, changed = here, True
            if pair is None:
                continue
            pairs[k] = pair
            more = _dims_of(n, pair, tensors)
            if more is None:
                return None
            for t, p in more.items():
                if t not in tensors:
                    tensors = {**tensors, t: p}
                    changed = True
    return (tensors, pairs) if any(pairs) else None


def _loops_at(n: Nest, a: Access, p: int, shape: Shape) -> Pair | None:
    """The loops that walk dims p and p+1 of an access, the second one all of its dim."""
    x, y = a.indices[p], a.indices[p + 1]
    extent = dict(n.iters)
    for i in extent:
        if x == var(i):
            for j in extent:
                if y == var(j) and i != j and extent[j] == shape[p + 1]:
                    return i, j
    return None


def _dims_of(n: Nest, pair: Pair, tensors: Mapping[str, int]) -> dict[str, int] | None:
    """Where the pair walks adjacent dims of the nest's tensors; None where either loop is used in another way."""
    i, j = var(pair[0]), var(pair[1])
    out: dict[str, int] = {}
    if any(set(pair) & c.names() for c in n.where):
        return None
    for e in walk(n.expr):
        if isinstance(e, IndexValue) and set(pair) & e.index.names():
            return None
    for a in accesses_of(n):
        used = [k for k, x in enumerate(a.indices) if _uses(x, pair)]
        if not used:
            continue
        if len(used) != 2 or used[1] != used[0] + 1 or a.indices[used[0]] != i or a.indices[used[1]] != j:
            return None
        if out.setdefault(a.tensor, used[0]) != used[0] or tensors.get(a.tensor, used[0]) != used[0]:
            return None
    return out


def _uses(x: Affine | Expr, pair: Pair) -> bool:
    if isinstance(x, Affine):
        return bool(set(pair) & x.names())
    return any(isinstance(e, IndexValue) and set(pair) & e.index.names() for e in walk(x)) or any(
        _uses(i, pair) for e in walk(x) if isinstance(e, Load) for i in e.access.indices if isinstance(i, Affine)
    )


def _join(n: Nest, pair: Pair | None, tensors: Mapping[str, int]) -> Nest:
    def joined(a: Access) -> Access:
        p = tensors.get(a.tensor)
        return a if p is None else Access(a.tensor, (*a.indices[: p + 1], *a.indices[p + 2 :]))

    out = map_accesses(n, joined)
    if pair is None:
        return out
    extent = dict(n.iters)
    iters = tuple((i, extent[i] * extent[pair[1]] if i == pair[0] else e) for i, e in n.iters if i != pair[1])
    return replace(out, iters=iters)
