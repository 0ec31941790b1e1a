"""Data movement: Transpose, Concat, Split, Slice, Expand, Tile, Trilu.

Takes and gives what `registry.Op` says. One nest per piece; pieces are disjoint boxes whose indices are affine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Value
from . import exprs as e
from .build import (
    Ins,
    Typed,
    align,
    array,
    axes_of,
    axis_of,
    broadcast,
    dtype_of,
    fail,
    iters,
    known_array,
    known_dims,
    known_ints,
    maybe,
    need,
    operand,
    operator,
    points,
    present,
    raw,
    shape_of,
    show,
    static,
    store,
)  # fmt: skip
from .pointwise import same_dtype
from .registry import Array, Definition, Known


# ---- Transpose
def _perm(node: Node, rank: int) -> list[int]:
    perm = [int(p) for p in node.attr("perm") or range(rank)[::-1]]
    if sorted(perm) != list(range(rank)):
        fail(f"perm {perm} is not a permutation of {rank} dims")
    return perm


def _infer_transpose(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = shape_of(need(ins, 0))
    return [(dtype_of(ins[0]), tuple(shape[p] for p in _perm(node, len(shape))))]


def _define_transpose(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    its = iters(shape_of(out))
    at = points(its)
    source = [at[k] for k in np.argsort(_perm(node, len(at)))]
    return Definition((store(out, at, its, raw(x, source)),))


operator("Transpose", _infer_transpose, _define_transpose, lambda n, a: [np.transpose(array(a, 0), n.attr("perm"))])


# ---- Concat and Split
def _infer_concat(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shapes = [shape_of(v) for v in ins]
    axis = axis_of(node.attr("axis"), len(shapes[0]))
    for s in shapes:
        if len(s) != len(shapes[0]) or any(a != b for k, (a, b) in enumerate(zip(s, shapes[0])) if k != axis):
            fail(f"shapes {' and '.join(map(show, shapes))} differ outside axis {axis}")
    total = affine(0)
    for s in shapes:
        total = total + s[axis]
    return [(same_dtype(ins), (*shapes[0][:axis], total, *shapes[0][axis + 1 :]))]


def _define_concat(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    axis, offset, nests = axis_of(node.attr("axis"), len(shape_of(outs[0]))), affine(0), []
    for v in ins:
        assert v is not None
        its = iters(shape_of(v))
        at = points(its)
        nests.append(store(outs[0], [i + offset if k == axis else i for k, i in enumerate(at)], its, raw(v, at)))
        offset = offset + shape_of(v)[axis]
    return Definition(tuple(nests))


def _np_concat(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    return [np.concatenate([a for a in arrays if a is not None], node.attr("axis"))]


operator("Concat", _infer_concat, _define_concat, _np_concat, arity=(1, 2**31))


def _pieces(node: Node, ins: Ins, known: Known) -> tuple[int, list[Affine]]:
    shape = shape_of(need(ins, 0))
    axis = axis_of(node.attr("axis", 0), len(shape))
    if present(ins, 1) is not None:
        return axis, known_dims(ins, 1, known, "split")
    n = int(node.attr("num_outputs") or len(node.outputs))
    size = (shape[axis] + (n - 1)) // n
    return axis, [size] * (n - 1) + [shape[axis] - size * (n - 1)]


def _infer_split(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape, (axis, sizes) = shape_of(x), _pieces(node, ins, known)
    total = affine(0)
    for n in sizes:
        total = total + n
    if total != shape[axis] or len(sizes) != len(node.outputs):
        fail(f"split {show(tuple(sizes))} does not cut {shape[axis]} into {len(node.outputs)} outputs")
    return [(dtype_of(x), (*shape[:axis], n, *shape[axis + 1 :])) for n in sizes]


def _define_split(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    (axis, sizes), offset, nests = _pieces(node, ins, known), affine(0), []
    for k, size in enumerate(sizes):
        if node.outputs[k]:
            its = iters(size if d == axis else n for d, n in enumerate(shape_of(x)))
            at = points(its)
            nests.append(store(outs[k], at, its, raw(x, [i + offset if d == axis else i for d, i in enumerate(at)])))
        offset = offset + size
    return Definition(tuple(nests))


def _np_split(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, given, axis = array(arrays, 0), maybe(arrays, 1), node.attr("axis", 0)
    if given is None:
        n = int(node.attr("num_outputs") or len(node.outputs))
        size = -(-x.shape[axis] // n)
        cuts = [min(size * k, x.shape[axis]) for k in range(1, n)]
    else:
        cuts = [int(c) for c in np.cumsum(given.reshape(-1))[:-1]]
    return list(np.split(x, cuts, axis))


operator("Split", _infer_split, _define_split, _np_split, arity=(1, 2), consts=(1,))


# ---- Slice
@dataclass(frozen=True)
class _Cut:
    axis: int
    start: Affine
    step: int
    size: Affine


FAR = 2**31 - 1


def _bound(x: Affine, n: Affine, low: Affine, high: Affine, is_end: bool) -> Affine:
    """A start or end in a dim of size n, counted from the end where negative, clamped to [low, high]; named dims are at least 1."""
    if x.is_const and n.is_const:
        return affine(min(max(x.const + (n.const if x.const < 0 else 0), low.const), high.const))
    if not x.is_const:
        upper = x.bounds({v: (1, None) for v in x.names()})[1]
        x = x + n if upper is not None and upper < 0 else x
        over = x - high
        return high if over.is_const and over.const >= 0 else x
    if abs(x.const) >= FAR:
        return high if x.const > 0 else low
    if x.const == -1 or (x.const < 0 and is_end):
        return n + x
    if x == 0 or (x == 1 and high == n):
        return x
    return fail(f"a slice at {x} of a dim of size {n} depends on the size: bind {', '.join(sorted(n.names()))}")


def _cuts(node: Node, ins: Ins, known: Known) -> list[_Cut]:
    shape = shape_of(need(ins, 0))
    starts, ends = known_dims(ins, 1, known, "starts"), known_dims(ins, 2, known, "ends")
    axes = axes_of(known_ints(ins, 3, known, "axes"), len(shape)) if present(ins, 3) else list(range(len(starts)))
    steps = known_ints(ins, 4, known, "steps") if present(ins, 4) else [1] * len(starts)
    out = []
    for axis, start, end, step in zip(axes, starts, ends, steps):
        n = shape[axis]
        if step == 0:
            fail("a step of 0")
        if step > 0:
            first, last = _bound(start, n, affine(0), n, False), _bound(end, n, affine(0), n, True)
            size = (last - first + (step - 1)) // step
        else:
            first, last = _bound(start, n, affine(0), n - 1, False), _bound(end, n, affine(-1), n - 1, True)
            size = (first - last + (-step - 1)) // -step
        out.append(_Cut(axis, first, step, affine(max(size.const, 0)) if size.is_const else size))
    return out


def _infer_slice(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = list(shape_of(need(ins, 0)))
    for c in _cuts(node, ins, known):
        shape[c.axis] = c.size
    return [(dtype_of(ins[0]), tuple(shape))]


def _define_slice(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    its = iters(shape_of(outs[0]))
    at = points(its)
    source = list(at)
    for c in _cuts(node, ins, known):
        source[c.axis] = at[c.axis] * c.step + c.start
    return Definition((store(outs[0], at, its, raw(need(ins, 0), source)),))


def _np_slice(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    starts, ends = ([int(v) for v in array(arrays, k).reshape(-1)] for k in (1, 2))
    given, steps = maybe(arrays, 3), maybe(arrays, 4)
    axes = range(len(starts)) if given is None else [int(a) for a in given.reshape(-1)]
    strides = [1] * len(starts) if steps is None else [int(s) for s in steps.reshape(-1)]
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, strides):
        n = x.shape[axis]
        cut[axis] = slice(start, None if step < 0 and end < -n else end, step)
    return [x[tuple(cut)]]


operator("Slice", _infer_slice, _define_slice, _np_slice, arity=(3, 5), consts=(1, 2, 3, 4))


# ---- Expand and Tile
def _infer_expand(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    return [(dtype_of(need(ins, 0)), broadcast([shape_of(ins[0]), tuple(known_dims(ins, 1, known, "the shape"))]))]


def _define_expand(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, shape = need(ins, 0), shape_of(outs[0])
    its = iters(shape)
    return Definition((store(outs[0], points(its), its, operand(x, align(shape_of(x), shape, points(its)), known)),))


def _np_expand(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, shape = array(arrays, 0), tuple(int(d) for d in array(arrays, 1).reshape(-1))
    return [np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))]


operator("Expand", _infer_expand, _define_expand, _np_expand, arity=(2, 2), consts=(1,))


def _infer_tile(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape, repeats = shape_of(need(ins, 0)), known_dims(ins, 1, known, "repeats")
    if len(repeats) != len(shape):
        fail(f"repeats {show(tuple(repeats))} must have one entry for each of {len(shape)} dims")
    out = []
    for d, r in zip(shape, repeats):
        if not (d.is_const or r.is_const):
            fail(f"{r} repeats of a dim of size {d} are not affine: bind one of them")
        out.append(d * r)
    return [(dtype_of(ins[0]), tuple(out))]


def _define_tile(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    its = iters(shape_of(outs[0]))
    source = []
    for i, n, r in zip(points(its), shape_of(x), known_dims(ins, 1, known, "repeats")):
        source.append(i if r == 1 else affine(0) if n == 1 else i % static(n, "the size of a tiled dim"))
    return Definition((store(outs[0], points(its), its, raw(x, source)),))


def _np_tile(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    return [np.tile(array(arrays, 0), [int(r) for r in array(arrays, 1).reshape(-1)])]


operator("Tile", _infer_tile, _define_tile, _np_tile, arity=(2, 2), consts=(1,))


# ---- Trilu
def _infer_trilu(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = shape_of(need(ins, 0))
    if len(shape) < 2:
        fail(f"input {show(shape)} must have rank 2 or more")
    return [(dtype_of(ins[0]), shape)]


def _define_trilu(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    k = affine(int(known_array(ins, 1, known, "k").reshape(-1)[0])) if present(ins, 1) is not None else affine(0)
    its = iters(shape_of(x))
    at = points(its)
    diagonal = e.value_of(at[-1] - at[-2] - k)
    inside = e.compare(">=" if node.attr("upper", 1) else "<=", diagonal, 0)
    return Definition((store(outs[0], at, its, e.select(inside, raw(x, at), 0)),))


def _np_trilu(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, k = array(arrays, 0), maybe(arrays, 1)
    cut = np.triu if node.attr("upper", 1) else np.tril
    return [cut(x, 0 if k is None else int(k.reshape(-1)[0])) if x.size else x]


operator("Trilu", _infer_trilu, _define_trilu, _np_trilu, arity=(1, 2), consts=(1,))
