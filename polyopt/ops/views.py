"""Reshape and its kin: renamings of a dense row-major buffer.

Takes shapes of affine dims; gives index maps. Dims of input and output are matched in groups of equal product, so that a split dim
reads `d*D + e` and a merged one `d // D, d % D`, without one linear index over the whole tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Shape, Value
from .build import (
    ONE,
    Ins,
    Typed,
    array,
    axes_of,
    content,
    dtype_of,
    fail,
    iters,
    known_dims,
    known_ints,
    maybe,
    need,
    operator,
    points,
    present,
    product,
    raw,
    shape_of,
    show,
    static,
    store,
)  # fmt: skip
from .registry import Array, Definition, Known

Size = tuple[int, tuple[str, ...]]


def _times(size: Size, d: Affine) -> Size:
    c, rest = content(d)
    return size[0] * c, size[1] if d.is_const else tuple(sorted((*size[1], str(rest))))


def _prefixes(dims: Sequence[Affine]) -> list[Size]:
    out: list[Size] = [(1, ())]
    for d in dims:
        out.append(_times(out[-1], d))
    return out


def factor_groups(source: Sequence[Affine], target: Sequence[Affine]) -> list[tuple[range, range]]:
    """The finest cut of both dim lists (without ones) into runs of equal product: (range of source, range of target)."""
    a, b = _prefixes(source), _prefixes(target)
    where = {size: k for k, size in enumerate(b)}
    cuts = [(i, where[size]) for i, size in enumerate(a) if size in where]
    if cuts[-1] != (len(source), len(target)):
        fail(f"{show(tuple(source))} and {show(tuple(target))} hold different numbers of elements")
    return [(range(i, k), range(j, l)) for (i, j), (k, l) in pairwise(cuts)]


def reshape_index(source: Shape, target: Shape, at: Sequence[Affine]) -> tuple[Affine, ...]:
    """The index into `source` of the element at `at` of `target`, both row-major."""
    if any(d == 0 for d in target):
        return (affine(0),) * len(source)
    src = [k for k, d in enumerate(source) if d != 1]
    dst = [k for k, d in enumerate(target) if d != 1]
    out = [affine(0)] * len(source)
    for s, t in factor_groups([source[k] for k in src], [target[k] for k in dst]):
        inner, outer = [src[k] for k in s], [dst[k] for k in t]
        linear = affine(0)
        for k in outer:
            linear = linear * (1 if k == outer[0] else static(target[k], f"dim {k} of {show(target)}, inside a merged index,")) + at[k]
        for k in reversed(inner[1:]):
            size = static(source[k], f"dim {k} of {show(source)}, inside a split index,")
            out[k] = linear % size
            linear = linear // size
        out[inner[0]] = linear
    return tuple(out)


def _define_view(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    its = iters(shape_of(out))
    return Definition((store(out, points(its), its, raw(x, reshape_index(shape_of(x), shape_of(out), points(its)))),))


def _reshaped(shape: Shape, wanted: list[Affine], allow_zero: bool) -> Shape:
    if wanted.count(affine(-1)) > 1:
        fail(f"shape {show(tuple(wanted))} has more than one -1")
    out = []
    for k, d in enumerate(wanted):
        if d == 0 and not allow_zero:
            if k >= len(shape):
                fail(f"shape {show(tuple(wanted))} copies dim {k}, which {show(shape)} has not")
            d = shape[k]
        out.append(d)
    if affine(-1) in out:
        k = out.index(affine(-1))
        out[k] = ONE
        out[k] = quotient(shape, out)
    elif not any(d == 0 for d in out):
        if quotient(shape, out) != 1:
            fail(f"cannot reshape {show(shape)} to {show(tuple(out))}")
    return tuple(out)


def quotient(shape: Sequence[Affine], by: Sequence[Affine]) -> Affine:
    """The product of `shape` over that of `by`, symbolic dims cancelled."""
    top, bottom = list(shape), []
    for d in by:
        if not d.is_const and d in top:
            top.remove(d)
        else:
            bottom.append(d)
    symbols = {str(content(d)[1]): content(d)[1] for d in (*top, *bottom) if not d.is_const}
    high, low = prod(content(d)[0] for d in top), prod(content(d)[0] for d in bottom)
    left = [str(content(d)[1]) for d in top if not d.is_const]
    for name in (str(content(d)[1]) for d in bottom if not d.is_const):
        if name not in left:
            fail(f"cannot reshape {show(tuple(shape))}: {name} does not divide it for all values")
        left.remove(name)
    rest = product([symbols[n] for n in left], "the inferred dim")
    if low == 0:
        return affine(0)
    if high % low:
        fail(f"cannot reshape {show(tuple(shape))}: {rest * high} elements do not divide by {low}{'' if rest.is_const else ' for all values'}")
    return (rest * high) // low


def _infer_reshape(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    return [(dtype_of(x), _reshaped(shape_of(x), known_dims(ins, 1, known, "the shape"), bool(node.attr("allowzero", 0))))]


def _np_reshape(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, wanted = array(arrays, 0), [int(d) for d in array(arrays, 1).reshape(-1)]
    if not node.attr("allowzero", 0):
        wanted = [x.shape[k] if d == 0 else d for k, d in enumerate(wanted)]
    return [x.reshape(wanted)]


def _infer_flatten(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = shape_of(need(ins, 0))
    axis = node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        fail(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return [(dtype_of(ins[0]), (product(shape[:axis], "flattening"), product(shape[axis:], "flattening")))]


def _np_flatten(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axis = array(arrays, 0), node.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return [x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))]


def _infer_squeeze(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = shape_of(need(ins, 0))
    if present(ins, 1) is None and node.attr("axes") is None:
        open_dims = [d for d in shape if not d.is_const and (d.bounds({n: (1, None) for n in d.names()})[0] or 1) < 2]
        if open_dims:
            fail(f"without axes, whether it drops {open_dims[0]} of {show(shape)} depends on its value")
        axes = [k for k, d in enumerate(shape) if d == 1]
    else:
        axes = axes_of(known_ints(ins, 1, known, "axes") if present(ins, 1) else node.attr("axes"), len(shape))
    if any(shape[k] != 1 for k in axes):
        fail(f"axes {axes} of {show(shape)} are not all of size 1")
    return [(dtype_of(ins[0]), tuple(d for k, d in enumerate(shape) if k not in axes))]


def _np_squeeze(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, given = array(arrays, 0), maybe(arrays, 1)
    axes = node.attr("axes") if given is None else [int(a) for a in given.reshape(-1)]
    return [np.squeeze(x) if axes is None else np.squeeze(x, tuple(axes))]


def _infer_unsqueeze(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    shape = shape_of(need(ins, 0))
    given = known_ints(ins, 1, known, "axes") if present(ins, 1) else node.attr("axes")
    axes = axes_of(given, len(shape) + len(given))
    rest = iter(shape)
    return [(dtype_of(ins[0]), tuple(ONE if k in axes else next(rest) for k in range(len(shape) + len(axes))))]


def _np_unsqueeze(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, given = array(arrays, 0), maybe(arrays, 1)
    return [np.expand_dims(x, tuple(node.attr("axes")) if given is None else tuple(int(a) for a in given.reshape(-1)))]


def _infer_identity(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    return [(dtype_of(need(ins, 0)), shape_of(ins[0]))]


def _np_identity(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    return [array(arrays, 0)]


operator("Reshape", _infer_reshape, _define_view, _np_reshape, arity=(2, 2), consts=(1,), view=True)
operator("Flatten", _infer_flatten, _define_view, _np_flatten, view=True)
operator("Squeeze", _infer_squeeze, _define_view, _np_squeeze, arity=(1, 2), consts=(1,), view=True)
operator("Unsqueeze", _infer_unsqueeze, _define_view, _np_unsqueeze, arity=(1, 2), consts=(1,), view=True)
operator("Identity", _infer_identity, _define_view, _np_identity, view=True)


# ---- DepthToSpace, SpaceToDepth: a reshape, a transpose and a reshape in one
def _blocks(node: Node, ins: Ins, known: Known) -> tuple[int, Shape]:
    shape, b = shape_of(need(ins, 0)), int(node.attr("blocksize"))
    if len(shape) != 4:
        fail(f"input {show(shape)} must have rank 4")
    n, c, h, w = shape
    if node.op == "DepthToSpace":
        if content(c)[0] % (b * b):
            fail(f"{c} channels do not divide by blocksize {b} squared")
        return b, (n, c // (b * b), h * b, w * b)
    if content(h)[0] % b or content(w)[0] % b:
        fail(f"image {h} x {w} does not divide by blocksize {b}")
    return b, (n, c * (b * b), h // b, w // b)


def _infer_blocks(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    return [(dtype_of(need(ins, 0)), _blocks(node, ins, known)[1])]


def _define_blocks(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    b, shape = _blocks(node, ins, known)
    its = iters(shape)
    n, c, h, w = points(its)
    if node.op == "SpaceToDepth":
        depth = shape_of(x)[1]
        size = static(depth, "the number of channels")
        if node.attr("mode", "DCR") == "CRD":
            at = (n, c // (b * b), h * b + c // b % b, w * b + c % b)
        else:
            at = (n, c % size, h * b + c // (size * b), w * b + c // size % b)
    elif node.attr("mode", "DCR") == "CRD":
        at = (n, c * (b * b) + h % b * b + w % b, h // b, w // b)
    else:
        depth = shape[1]
        size = static(depth, "the number of channels")
        at = (n, (h % b * b + w % b) * size + c, h // b, w // b)
    return Definition((store(out, points(its), its, raw(x, at)),))


def _np_blocks(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, b = array(arrays, 0), int(node.attr("blocksize"))
    n, c, h, w = x.shape
    if node.op == "SpaceToDepth":
        order = (0, 1, 3, 5, 2, 4) if node.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        return [x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)]
    if node.attr("mode", "DCR") == "CRD":
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    return [y.reshape(n, c // (b * b), h * b, w * b)]


operator("DepthToSpace", _infer_blocks, _define_blocks, _np_blocks)
operator("SpaceToDepth", _infer_blocks, _define_blocks, _np_blocks)
