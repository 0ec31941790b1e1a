"""Merge the nests of a group: intermediates are substituted into their readers, or computed in place of the tensor they end in.

Takes nests in order over logical tensors and the set of tensors that must exist afterwards; gives fewer nests that compute the same.
A tensor that one nest writes element by element is replaced by its expression where no costly work is repeated; a tensor that a
reduction accumulates, and that a later nest only reads at the element it writes, shares that nest's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.affine import Affine
from ..ir.dtype import DType
from ..ir.expr import Access, Binary, Call, Const, Expr, IndexValue, Load, loads, rewrite, rewrite_access, substitute, walk
from ..ir.graph import Shape
from ..ops.registry import Nest
from ..ops.structure import compose, dim_vars, invert, is_identity, is_map, map_accesses, simplify_nest, with_iters

MAX_EXPR = 160  # nodes of a merged expression
Types = Mapping[str, tuple[DType, Shape]]


def merge_nests(nests: Sequence[Nest], types: Types, keep: frozenset[str]) -> tuple[Nest, ...]:
    """Nests without the intermediates that can go; `types` has dtype and shape of each written tensor, `keep` is what must remain."""
    out = list(nests)
    for t in dict.fromkeys(n.write.tensor for n in nests):
        if t not in keep:
            out = _inline(out, t, types[t][1])
    out = [_follow(n, out, types, keep) for n in out]
    for t in dict.fromkeys(n.write.tensor for n in out):
        if t not in keep:
            out = _into_reader(out, t, types)
    return _live(out, keep)


def _live(nests: list[Nest], keep: frozenset[str]) -> tuple[Nest, ...]:
    """The nests whose results are kept or read by one that is."""
    needed, out = set(keep), list[Nest]()
    for n in reversed(nests):
        if n.write.tensor in needed:
            needed |= {x.access.tensor for x in _reads(n)}
            out.append(n)
    return tuple(reversed(out))


# ---- substitution
def _inline(nests: list[Nest], t: str, shape: Shape) -> list[Nest]:
    """The nests without tensor `t`, where its single map nest can be substituted into all readers; else unchanged."""
    writers = [n for n in nests if n.write.tensor == t]
    if len(writers) != 1 or not is_map(writers[0], shape):
        return nests
    w = writers[0]
    if any(x.access.tensor == t for x in loads(w.expr)):
        return nests
    sites = [(n, x) for n in nests for x in _reads(n) if x.access.tensor == t]
    if not sites or any(not x.access.is_affine for _, x in sites) or not _worth(w, sites):
        return nests
    names = [i for i, _ in w.iters]

    def put(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.access.tensor == t:
            return substitute(w.expr, dict(zip(names, e.access.affine_indices())))
        return None

    out = []
    for n in nests:
        if n is w:
            continue
        if any(x.access.tensor == t for x in _reads(n)):
            n = simplify_nest(replace(n, expr=rewrite(n.expr, put), write=rewrite_access(n.write, put)))
            if sum(1 for _ in walk(n.expr)) > MAX_EXPR:
                return nests
        out.append(n)
    return out


def _worth(w: Nest, sites: list[tuple[Nest, Load]]) -> bool:
    """Whether substituting repeats no costly work."""
    if isinstance(w.expr, Load | Const | IndexValue):
        return True
    cheap = is_cheap(w.expr)
    first, x0 = sites[0]
    one_place = all(n is first and x.access == x0.access for n, x in sites)
    if one_place and not _repeats(first, x0):
        return True
    return cheap and not any(_slides(x) for _, x in sites)


def is_cheap(e: Expr) -> bool:
    """Whether an expression may be computed twice: few operators, no function, no division."""
    nodes = [x for x in walk(e) if not isinstance(x, Load)]
    return len(nodes) <= 8 and not any(isinstance(x, Call) or (isinstance(x, Binary) and x.op in ("/", "%", "pow")) for x in nodes)


def _slides(x: Load) -> bool:
    """Whether an index combines iterators, as that of a window does."""
    return any(len(i.names()) > 1 for i in x.access.affine_indices())


def _repeats(n: Nest, x: Load) -> bool:
    used = frozenset().union(*(i.names() for i in x.access.affine_indices())) if x.access.indices else frozenset()
    return _slides(x) or any(i not in used and e != Affine((), 1) for i, e in n.iters)


def _reads(n: Nest) -> tuple[Load, ...]:
    inner = tuple(x for i in n.write.indices if isinstance(i, Expr) for x in loads(i))
    return (*loads(n.expr), *inner)


# ---- one tensor for an accumulator and what is computed from it
def _follow(n: Nest, nests: list[Nest], types: Types, keep: frozenset[str]) -> Nest:
    """A map nest that reads an accumulated tensor through a bijection, over the iterators of that tensor instead of its own."""
    if n.reduction is not None or not is_map(n, types[n.write.tensor][1]):
        return n
    for x in loads(n.expr):
        t = x.access.tensor
        if t in types and t not in keep and x.access.is_affine and not is_identity(x.access.indices, n.iters):
            others = [y for y in loads(n.expr) if y.access.tensor == t]
            shape = types[t][1]
            values = {i: f"d{k}" for k, (i, _) in enumerate(n.iters)}
            m = tuple(i.substitute(values) for i in x.access.affine_indices())
            inverse = invert(m, tuple(e for _, e in n.iters), shape)
            if inverse is None or any(y.access != x.access for y in others) or len(_writers(nests, t)) < 2:
                continue
            its = tuple((f"i{k}", e) for k, e in enumerate(shape))
            at = {f"d{k}": i for k, (i, _) in enumerate(its)}
            return with_iters(n, its, {i: v.substitute(at) for (i, _), v in zip(n.iters, inverse)})
    return n


def _writers(nests: Sequence[Nest], t: str) -> list[Nest]:
    return [n for n in nests if n.write.tensor == t]


def _into_reader(nests: list[Nest], t: str, types: Types) -> list[Nest]:
    """The nests with local `t` held in the output of its last reader, where that nest reads `t` only at the element it writes."""
    users = [k for k, n in enumerate(nests) if any(x.access.tensor == t for x in _reads(n)) and n.write.tensor != t]
    if not users:
        return nests
    last = nests[users[-1]]
    u = last.write.tensor
    if u not in types or types[u][0] != types[t][0] or last.reduction is not None or last.where or len(_writers(nests, u)) != 1:
        return nests
    if max(k for k, n in enumerate(nests) if n.write.tensor == t) > users[-1] or any(
        x.access.tensor == u for k, n in enumerate(nests) if k <= users[-1] for x in _reads(n)
    ):
        return nests
    place = _relation(last, t, types[t][1])
    if place is None:
        return nests

    def moved(a: Access) -> Access:
        if a.tensor != t:
            return a
        values = {f"d{k}": x for k, x in enumerate(a.affine_indices())}
        return Access(u, tuple(x.substitute(values) for x in place))

    if any(not x.access.is_affine for n in nests for x in _reads(n) if x.access.tensor == t):
        return nests
    return [simplify_nest(map_accesses(n, moved)) if _touches(n, t) else n for n in nests]


def _touches(n: Nest, t: str) -> bool:
    return n.write.tensor == t or any(x.access.tensor == t for x in _reads(n))


def _relation(n: Nest, t: str, shape: Shape) -> tuple[Affine, ...] | None:
    """Where `n` writes, as a function of the element d0, d1, … of `t` that it reads; None unless it reads each element exactly once."""
    sites = {x.access for x in _reads(n) if x.access.tensor == t}
    if len(sites) != 1 or not n.write.is_affine:
        return None
    (a,) = sites
    if not a.is_affine or not is_identity(a.indices, n.iters) or tuple(e for _, e in n.iters) != shape:
        return None
    values = {i: f"d{k}" for k, (i, _) in enumerate(n.iters)}
    return compose(tuple(x.substitute(values) for x in n.write.affine_indices()), dim_vars(len(shape)), shape)
