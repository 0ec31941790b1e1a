"""Questions about loop nests, answered from their accesses: what kind of nest, which index map, is it a contraction, is it invertible.

Takes `Nest`s and index maps whose variables are d0, d1, … (a tensor's logical indices); gives plain values. No operator name occurs here:
fusion, layouts and lowering decide by what nests do. Index maps are digit rearrangements where they can be inverted (reshapes,
transposes and their compositions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..errors import ModelError
from ..ir.affine import Affine, AffineLike, FloorDiv, Range, affine, var
from ..ir.expr import Access, Binary, Cast, Expr, IndexValue, Load, loads, rewrite, rewrite_access, substitute, walk
from ..ir.graph import Graph, Node, Shape, Value
from ..ir.tensor import Tensor
from .registry import Definition, Nest, Op, lookup

Map = tuple[Affine, ...]


def op_of(node: Node) -> Op:
    """The operator of a node; a ModelError names one that is not known."""
    op = lookup(node.op, node.domain)
    if op is None:
        name = f"{node.domain}.{node.op}" if node.domain not in ("", "ai.onnx") else node.op
        raise ModelError(f"node {node.name!r}: operator {name} is not supported")
    return op


def define(graph: Graph, node: Node) -> Definition | None:
    """The nests of a node; None for an operator without an affine form."""
    op = op_of(node)
    if op.define is None:
        return None
    ins = [graph.values[i] if i else None for i in node.inputs]
    outs = [graph.values[o] if o else Value("", None, None) for o in node.outputs]
    dims = {n for v in (*ins, *outs) if v is not None for d in v.shape or () for n in d.names()}
    apart = {n: f"{n}__dim" for n in dims}  # a dim may have the name of an iterator
    try:
        d = op.define(node, [v and _with_dims(v, apart) for v in ins], [_with_dims(v, apart) for v in outs], graph.constants)
    except ModelError as e:
        raise ModelError(f"node {node.name!r} ({node.op}): {e}") from e
    if not dims:
        return d
    back = {v: k for k, v in apart.items()}
    locals_ = tuple(replace(t, shape=tuple(x.substitute(back) for x in t.shape)) for t in d.locals)
    return Definition(tuple(_dims_back(n, back) for n in d.nests), locals_)


def _with_dims(v: Value, names: Mapping[str, str]) -> Value:
    return v if v.shape is None or not names else replace(v, shape=tuple(d.substitute(names) for d in v.shape))


def _dims_back(n: Nest, back: Mapping[str, str]) -> Nest:
    """The nest with the dims' own names, and other names for iterators that are called like a dim."""
    dims = set(back.values())
    taken = dims | {i for i, _ in n.iters}
    fresh: dict[str, str] = {}
    for i, _ in n.iters:
        if i in dims:
            fresh[i] = next(c for k in range(1, len(taken) + 2) if (c := i + "_" * k) not in taken)
            taken.add(fresh[i])
    names = {**fresh, **back}
    return Nest(
        tuple((fresh.get(i, i), e.substitute(back)) for i, e in n.iters), substitute_all(n.write, names),
        substitute(n.expr, names), n.reduction, tuple(c.substitute(names) for c in n.where),
    )  # fmt: skip


# ---- boxes and index maps
def dim_vars(rank: int) -> Map:
    """d0, d1, …"""
    return tuple(var(f"d{k}") for k in range(rank))


def ranges_of(iters: Sequence[tuple[str, Affine]]) -> dict[str, Range]:
    """The range of each iterator."""
    return {n: (0, e.const - 1 if e.is_const else None) for n, e in iters}


def dim_ranges(shape: Shape) -> dict[str, Range]:
    """The range of each index of a tensor of that shape."""
    return ranges_of([(f"d{k}", e) for k, e in enumerate(shape)])


def compose(outer: Map, inner: Map, shape: Shape) -> Map:
    """outer(inner(d)) for d in a box of that shape, simplified."""
    values = {f"d{k}": x for k, x in enumerate(inner)}
    ranges = dim_ranges(shape)
    return tuple(x.substitute(values).simplify(ranges) for x in outer)


def floors(xs: Sequence[Affine]) -> int:
    """How many floors occur: how unpleasant an index map is."""
    return sum(_floors(x) for x in xs)


def _floors(x: Affine) -> int:
    return sum(1 + _floors(a.num) for a, _ in x.terms if isinstance(a, FloorDiv))


def is_identity(indices: Sequence[Affine | Expr], iters: Sequence[tuple[str, Affine]]) -> bool:
    """Whether the indices are exactly the iterators in order (an iterator of extent 1 may stand as 0)."""
    return len(indices) == len(iters) and all(x == var(n) or (e == affine(1) and x == affine(0)) for x, (n, e) in zip(indices, iters))


# ---- kinds of nests
def is_map(nest: Nest, shape: Shape) -> bool:
    """Whether the nest writes each element of a tensor of that shape once, from expressions of its own index."""
    return nest.reduction is None and not nest.where and is_identity(nest.write.indices, nest.iters) and tuple(e for _, e in nest.iters) == shape


def kind_of(d: Definition, outs: Sequence[Value]) -> str:
    """move (a pure renaming of indices), map (element by element), pieces (disjoint nests without reduction) or anchor (reduces)."""
    if any(n.reduction for n in d.nests) or d.locals:
        return "anchor"
    if len(d.nests) == 1 and len(outs) == 1 and is_map(d.nests[0], outs[0].shape or ()):
        e = d.nests[0].expr
        return "move" if isinstance(e, Load) and e.access.is_affine else "map"
    if len(d.nests) == len(outs) > 1 and all(is_map(n, o.shape or ()) for n, o in zip(d.nests, outs)):
        return "moves" if all(isinstance(n.expr, Load) and n.expr.access.is_affine for n in d.nests) else "maps"
    return "pieces"


def move_map(nest: Nest) -> Map:
    """For a move: the source's index as a function of the written tensor's index d0, d1, …"""
    assert isinstance(nest.expr, Load)
    values = {n: f"d{k}" for k, (n, _) in enumerate(nest.iters)}
    shape = tuple(e for _, e in nest.iters)
    return tuple(x.substitute(values).simplify(dim_ranges(shape)) for x in nest.expr.access.affine_indices())


def factors(nest: Nest) -> tuple[Load, ...] | None:
    """For a sum of products: the loads that are multiplied, at least two of different tensors. None for any other nest."""
    if nest.reduction != "+":
        return None
    out: list[Load] = []
    for e in _multiplied(nest.expr):
        inner = loads(e)
        if len(inner) > 1 or any(isinstance(x, Binary) and x.op not in "+-" for x in walk(e)):
            return None
        out += inner
    return tuple(out) if len({x.access.tensor for x in out}) > 1 else None


def _multiplied(e: Expr) -> list[Expr]:
    """The operands of a product of products, in order."""
    return [*_multiplied(e.x), *_multiplied(e.y)] if isinstance(e, Binary) and e.op == "*" else [e]


def is_plain_factor(nest: Nest, load: Load) -> bool:
    """Whether the loaded value itself is multiplied, so that a zero makes the product zero."""
    for e in _multiplied(nest.expr):
        while isinstance(e, Cast):
            e = e.x
        if e is load or e == load:
            return True
    return False


def spatial_operand(nest: Nest) -> Load | None:
    """For a convolution-like contraction: the operand that slides with the output's dims 2, 3, …; None for any other contraction.

    Each output iterator of a dim >= 2 occurs in the same dim of the operand and in no other factor; that of dim 0 in its dim 0.
    """
    fs = factors(nest)
    if fs is None or not nest.write.is_affine or not 3 <= len(nest.write.indices) <= 5:
        return None
    names = [next(iter(x.names()), None) if len(x.names()) == 1 else None for x in nest.write.affine_indices()]
    extent = dict(nest.iters)
    for f in fs:
        if len(f.access.indices) != len(names) or not f.access.is_affine:
            continue
        idx = f.access.affine_indices()
        others = frozenset().union(*(x.names() for g in fs if g is not f for x in g.access.indices if isinstance(x, Affine)))
        slides = [n is None or extent.get(n) == affine(1) or (n in idx[k].names() and n not in others)
                  for k, n in enumerate(names) if k != 1]  # fmt: skip
        if all(slides) and any(n is not None for n in names[1:]):
            return f
    return None


def padding_tests(nest: Nest, load: Load, shape: Shape) -> dict[Affine, tuple[int, int, int]]:
    """Constraints of `nest` that only test whether `load` is inside its tensor: constraint -> (dim, zeros before, zeros after).

    The two numbers say how far the index leaves the tensor on that dim; a dim whose overhang is not a constant is left out.
    """
    out: dict[Affine, tuple[int, int, int]] = {}
    ranges = ranges_of(nest.iters)
    for k, x in enumerate(load.access.affine_indices()):
        above = shape[k] - 1 - x
        tests = [c for c in nest.where if c.simplify(ranges) in (x, above)]
        if not tests:
            continue
        low, high = x.bounds(ranges)[0], overhang(above, nest)
        if low is None or high is None:
            continue
        for c in tests:
            out[c] = (k, max(0, -low), max(0, high))
    return out


def overhang(above: Affine, nest: Nest) -> int | None:
    """How far the affine `above` falls below 0 at most on the nest's box; None where that is no constant."""
    for name, extent in nest.iters:
        k = above.coefficient(name)
        if k and above.is_linear_in(name):
            above = above.substitute({name: 0 if k > 0 else extent - 1})
    return -above.const if above.is_const else None


def droppable(nest: Nest, load: Load, graph: Graph) -> bool:
    """Whether zeros around the operand may replace the tests of its bounds: the other factors are constants, none infinite or NaN."""
    if not nest.where or not load.access.is_affine or load.access.tensor not in graph.values:
        return False
    others = [x.access.tensor for x in factors(nest) or () if x is not load]
    if not is_plain_factor(nest, load) or not padding_tests(nest, load, graph.values[load.access.tensor].shape or ()):
        return False
    return all(t in graph.constants and bool(np.isfinite(graph.constants[t]).all()) for t in others)


# ---- digits: inverting reshapes and transposes
def invert(m: Map, shape: Shape, into: Shape) -> Map | None:
    """The inverse of d -> m(d) from a box `shape` onto a box `into`, as a function of d0, d1, … of `into`; None where none is found.

    Each index is read as a number in a mixed radix whose digits are digits of the d's; each digit must occur exactly once.
    """
    radix = _radixes(m, len(shape))
    if radix is None:
        return None
    digits: dict[tuple[int, int], tuple[int, int]] = {}  # (variable, digit) -> (index, weight)
    for i, x in enumerate(m):
        if x.const:
            return None
        for key, weight in _digits(x, radix).items():
            if weight <= 0 or key in digits:
                return None
            digits[key] = (i, weight)
    values: list[Affine] = []
    for k, extent in enumerate(shape):
        total = affine(0)
        for j, unit in enumerate(radix[k]):
            size = _digit_extent(extent, radix[k], j)
            if (k, j) not in digits:
                if size is None or size != affine(1):
                    return None
                continue
            i, weight = digits[(k, j)]
            digit = var(f"d{i}") // weight
            top = all(w <= weight for (kk, jj), (ii, w) in digits.items() if ii == i)
            if not top:
                if size is None or not size.is_const:
                    return None
                digit = digit - (digit // size.const) * size.const
            total = total + digit * unit
        values.append(total)
    inverse = tuple(x.simplify(dim_ranges(into)) for x in values)
    back = compose(m, inverse, into)
    return inverse if all(_same(b, k, into) for k, b in enumerate(back)) and _volume(shape) == _volume(into) else None


def _same(x: Affine, k: int, shape: Shape) -> bool:
    return x == var(f"d{k}") or (shape[k] == affine(1) and x == affine(0))


def _volume(shape: Shape) -> tuple[int, tuple[str, ...]]:
    n = 1
    rest = []
    for e in shape:
        if e.is_const:
            n *= e.const
        else:
            rest.append(str(e))
    return n, tuple(sorted(rest))


def _radixes(m: Map, rank: int) -> list[list[int]] | None:
    """For each variable the divisors of its floors (with 1), each a multiple of the one before."""
    units: list[set[int]] = [{1} for _ in range(rank)]
    for x in m:
        for a, _ in x.terms:
            if isinstance(a, FloorDiv):
                if a.num.const or len(a.num.terms) != 1 or a.num.terms[0][1] != 1 or not isinstance(a.num.terms[0][0], str):
                    return None
                units[int(a.num.terms[0][0][1:])].add(a.den)
            elif not a.startswith("d"):
                return None
    out = [sorted(u) for u in units]
    return out if all(b % a == 0 for u in out for a, b in pairwise(u)) else None


def _digits(x: Affine, radix: list[list[int]]) -> dict[tuple[int, int], int]:
    """The weight of each digit (variable, position) in an index."""
    out: dict[tuple[int, int], int] = {}
    for a, c in x.terms:
        name, den = (a, 1) if isinstance(a, str) else (str(a.num.terms[0][0]), a.den)
        k = int(name[1:])
        for j, unit in enumerate(radix[k]):
            if unit >= den:
                out[(k, j)] = out.get((k, j), 0) + c * (unit // den)
    return {key: w for key, w in out.items() if w}


def _digit_extent(extent: Affine, units: list[int], j: int) -> Affine | None:
    if j + 1 < len(units):
        return affine(units[j + 1] // units[j])
    return (extent + (units[j] - 1)) // units[j] if extent.is_const or units[j] == 1 else None


# ---- rewriting
def rename_iters(nest: Nest, values: Mapping[str, str]) -> Nest:
    """The nest with other iterator names."""
    if all(k == v for k, v in values.items()):
        return nest
    return Nest(
        tuple((values.get(n, n), e) for n, e in nest.iters),
        substitute_all(nest.write, values), substitute(nest.expr, values), nest.reduction, tuple(c.substitute(values) for c in nest.where),
    )  # fmt: skip


def with_iters(nest: Nest, iters: tuple[tuple[str, Affine], ...], values: Mapping[str, Affine]) -> Nest:
    """The nest over other iterators, in which the old ones have these values; indices are simplified by the new ranges."""
    ranges = ranges_of(iters)
    out = replace(
        nest, iters=iters, expr=substitute(nest.expr, values), where=tuple(c.substitute(values).simplify(ranges) for c in nest.where),
        write=substitute_all(nest.write, values),
    )  # fmt: skip
    return simplify_nest(out)


def substitute_all(a: Access, values: Mapping[str, AffineLike]) -> Access:
    """Replace iterators in all indices of an access, indirect ones included."""
    return Access(a.tensor, tuple(substitute(x, values) if isinstance(x, Expr) else x.substitute(values) for x in a.indices))


def simplify_nest(nest: Nest) -> Nest:
    """Indices simplified by the iterators' ranges."""
    from_ranges = ranges_of(nest.iters)
    return map_accesses(nest, lambda a: simplify_access(a, from_ranges))


def simplify_access(a: Access, ranges: Mapping[str, Range]) -> Access:
    """The affine indices simplified by ranges."""
    return Access(a.tensor, tuple(x.simplify(ranges) if isinstance(x, Affine) else x for x in a.indices))


def map_accesses(nest: Nest, fn: Callable[[Access], Access]) -> Nest:
    """The nest with each access rewritten (inner accesses of indirect indices first)."""

    def visit(e: Expr) -> Expr | None:
        return Load(fn(e.access), e.dtype) if isinstance(e, Load) else None

    return replace(nest, write=fn(rewrite_access(nest.write, visit)), expr=rewrite(nest.expr, visit))


# ---- what a nest names
def accesses_of(n: Nest) -> list[Access]:
    """All accesses of a nest: reads in evaluation order, those inside indirect indices, the write last."""
    inner = [x.access for i in n.write.indices if isinstance(i, Expr) for x in loads(i)]
    return [*(x.access for x in loads(n.expr)), *inner, n.write]


def params_of(nests: Sequence[Nest], tensors: Sequence[Tensor]) -> tuple[str, ...]:
    """The named dims that occur, sorted."""
    names: set[str] = {x for t in tensors for d in t.shape for x in d.names()}
    for n in nests:
        mine = {i for i, _ in n.iters}
        used: set[str] = {x for _, e in n.iters for x in e.names()} | {x for c in n.where for x in c.names()}
        used |= {x for a in accesses_of(n) for i in a.indices if isinstance(i, Affine) for x in i.names()}
        used |= {x for e in walk(n.expr) if isinstance(e, IndexValue) for x in e.index.names()}
        names |= used - mine
    return tuple(sorted(names))
