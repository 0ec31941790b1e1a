"""From logical tensors to buffers: storage maps applied to all accesses, zero borders instead of tests, loops over physical blocks.

Takes nests over logical tensors, each tensor's `Storage`; gives nests over buffers. A contraction's test of an operand's bounds goes
where the operand's storage has zeros there; the group that writes a tensor with a border writes the zeros, as disjoint boxes. A
nest that copies elements onto themselves goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.affine import Affine, FloorDiv, affine, var
from ..ir.dtype import DType, i64
from ..ir.expr import Access, Binary, Const, Expr, IndexValue, Load, loads
from ..ir.graph import Graph, Shape, Storage
from ..ops.registry import Nest
from ..ops.structure import droppable, factors, map_accesses, padding_tests, simplify_nest, with_iters


def place_nests(nests: Sequence[Nest], storage: Mapping[str, Storage], graph: Graph) -> tuple[Nest, ...]:
    """The nests over buffers, without the tests that zeros make needless."""
    return tuple(simplify_nest(map_accesses(_without_tests(n, storage, graph), lambda a: _placed(a, storage))) for n in nests)


def is_noop(n: Nest) -> bool:
    """Whether the nest copies elements onto themselves."""
    return isinstance(n.expr, Load) and n.reduction is None and n.expr.access == n.write


def _placed(a: Access, storage: Mapping[str, Storage]) -> Access:
    s = storage.get(a.tensor)
    if s is None:
        return a
    if a.is_affine:
        values = {f"d{k}": x for k, x in enumerate(a.affine_indices())}
        return Access(s.buffer, tuple(x.substitute(values) for x in s.indices))
    at = {f"d{k}": x for k, x in enumerate(a.indices)}
    return Access(s.buffer, tuple(_index(x, at) for x in s.indices))


def _index(x: Affine, at: Mapping[str, Affine | Expr]) -> Affine | Expr:
    """The index `x` where some of its variables stand for loaded values."""
    known = {k: v for k, v in at.items() if isinstance(v, Affine)}
    if all(n in known for n in x.names()):
        return x.substitute(known)
    dtype = next(v.dtype for v in at.values() if isinstance(v, Expr))
    dtype = dtype if dtype.bits >= 32 else i64
    total: Expr | None = None
    rest = Affine((), x.const)
    for a, k in x.terms:
        if isinstance(a, str) and a in known:
            rest = rest + known[a] * k
            continue
        if isinstance(a, str):
            e = at[a]
            assert isinstance(e, Expr)
        else:
            inner = _index(a.num, at)
            e = Binary("//", _value(inner, dtype), Const(a.den, dtype))
        e = e if k == 1 else Binary("*", e, Const(k, dtype))
        total = e if total is None else Binary("+", total, e)
    assert total is not None
    return total if rest == Affine((), 0) else Binary("+", total, _value(rest, dtype))


def _value(x: Affine | Expr, dtype: DType) -> Expr:
    if isinstance(x, Expr):
        return x
    return Const(x.const, dtype) if x.is_const else IndexValue(x, dtype)


def _without_tests(n: Nest, storage: Mapping[str, Storage], graph: Graph) -> Nest:
    """The nest without tests of an operand's bounds where the operand's storage holds zeros beyond them."""
    gone: set[Affine] = set()
    for x in (factors(n) or ()) if n.where else ():
        s = storage.get(x.access.tensor)
        if s is None or not s.halo or not droppable(n, x, graph):
            continue
        for c, (k, low, high) in padding_tests(n, x, graph.values[x.access.tensor].shape or ()).items():
            if low <= s.halo[k][0] and high <= s.halo[k][1]:
                gone.add(c)
    return replace(n, where=tuple(c for c in n.where if c not in gone)) if gone else n


def border_nests(v: str, dtype: DType, shape: Shape, s: Storage) -> tuple[Nest, ...]:
    """Zeros on the border of a tensor, as disjoint boxes over its logical indices (negative before the tensor)."""
    out = []
    for k, (lo, hi) in enumerate(s.halo):
        for first, size in ((affine(-lo), lo), (shape[k], hi)):
            if size:
                iters, at = [], []
                for j, e in enumerate(shape):
                    a, b = s.halo[j]
                    extent, start = (affine(size), first) if j == k else (e + a + b, affine(-a)) if j > k else (e, affine(0))
                    iters.append((f"z{j}", extent))
                    at.append(var(f"z{j}") + start)
                out.append(Nest(tuple(iters), Access(v, tuple(at)), Const(0.0 if dtype.is_float else 0, dtype)))
    return tuple(out)


# ---- loops over physical blocks
def split_blocks(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Nests whose iterators occur in floor(i/m), over i = m·outer + inner instead, outer and inner in the order of the written buffer."""
    return tuple(_ordered(_split(n)) for n in nests)


def _split(n: Nest) -> Nest:
    for name, extent in n.iters:
        m = _block_of(n, name)
        if m is None or not extent.is_const or extent.const <= m:
            continue
        outer, inner = f"{name}b", f"{name}l"
        if {outer, inner} & {i for i, _ in n.iters}:
            continue
        iters: list[tuple[str, Affine]] = []
        for i, e in n.iters:
            iters += [(outer, affine(-(-extent.const // m))), (inner, affine(m))] if i == name else [(i, e)]
        whole = var(outer) * m + var(inner)
        out = with_iters(n, tuple(iters), {name: whole})
        return replace(out, where=(*out.where, *((extent - 1 - whole,) if extent.const % m else ())))
    return n


def _block_of(n: Nest, name: str) -> int | None:
    """The one m for which floor(name/m) occurs, where each floor over the iterator is of that form."""
    found: set[int] = set()
    for a in (n.write, *(x.access for x in loads(n.expr))):
        for x in a.indices:
            for atom, _ in x.terms if isinstance(x, Affine) else ():
                if isinstance(atom, FloorDiv) and name in atom.num.names():
                    if atom.num.coefficient(name) != 1 or len(atom.num.terms) != 1:
                        return None
                    found.add(atom.den)
    return found.pop() if len(found) == 1 else None


def _ordered(n: Nest) -> Nest:
    """Iterators of the written element in the order of its buffer's dims, then the others."""
    position: dict[str, int] = {}
    for k, x in enumerate(n.write.indices):
        for name in sorted(x.names()) if isinstance(x, Affine) else ():
            position.setdefault(name, k)
    if not position or not n.write.is_affine:
        return n
    mine = sorted((i for i in n.iters if i[0] in position), key=lambda i: position[i[0]])
    return replace(n, iters=(*mine, *(i for i in n.iters if i[0] not in position)))


def drop_single(n: Nest) -> Nest:
    """The nest without iterators of extent 1."""
    gone = {i: affine(0) for i, e in n.iters if e == affine(1)}
    return with_iters(n, tuple((i, e) for i, e in n.iters if i not in gone), gone) if gone else n
