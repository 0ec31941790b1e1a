"""Shapes as data, and tensors that constants describe: Shape, Size, Constant, ConstantOfShape, Range, EyeLike, OneHot.

Takes and gives what `registry.Op` says. Named dims appear as index values in the nests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import BY_NUMPY, bf16, i64
from ..ir.graph import Node, Shape, Value
from . import exprs as e
from .build import (
    NUMBERS,
    Ins,
    Typed,
    array,
    axis_of,
    check_dtype,
    count,
    dtype_of,
    fail,
    iters,
    known_array,
    known_dims,
    known_ints,
    need,
    np_dtype,
    onnx_dtype,
    operand,
    operator,
    points,
    raw,
    shape_of,
    show,
    static,
    store,
)  # fmt: skip
from .registry import Array, Definition, Known


# ---- Shape, Size
def shape_slice(node: Node, rank: int) -> slice:
    """The dims that a Shape node gives."""
    return slice(*slice(node.attr("start", 0), node.attr("end")).indices(rank)[:2])


def _infer_shape(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    if node.op == "Size":
        return [(i64, ())]
    return [(i64, (affine(len(shape_of(need(ins, 0))[shape_slice(node, len(shape_of(ins[0])))])),))]


def _define_shape(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    shape = shape_of(need(ins, 0))
    if node.op == "Size":
        return Definition((store(outs[0], (), (), count(shape, i64)),))
    dims = shape[shape_slice(node, len(shape))]
    return Definition(tuple(store(outs[0], (k,), (), e.value_of(d)) for k, d in enumerate(dims)))


def _np_shape(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    return [np.asarray(x.size if node.op == "Size" else x.shape[shape_slice(node, x.ndim)], np.int64)]


operator("Shape", _infer_shape, _define_shape, _np_shape)
operator("Size", _infer_shape, _define_shape, _np_shape)


# ---- Constant
def constant_value(node: Node) -> Array:
    """The array of a Constant node, of whichever attribute holds it."""
    kinds: dict[str, Any] = {"value": None, "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
                             "value_ints": np.int64}  # fmt: skip
    key = next((k for k in kinds if node.attr(k) is not None), None)
    if key is not None:
        return np.asarray(node.attr(key), kinds[key])
    return fail(f"only dense numeric constants are supported (attributes: {', '.join(sorted(node.attrs)) or 'none'})")


def _dtype_from(a: Array) -> Any:
    if a.dtype == np_dtype(bf16):
        return bf16
    if a.dtype.name not in BY_NUMPY:
        fail(f"dtype {a.dtype} is not supported")
    return BY_NUMPY[a.dtype.name]


def _infer_constant(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    a = constant_value(node)
    return [(_dtype_from(a), tuple(map(affine, a.shape)))]


operator("Constant", _infer_constant, None, lambda n, a: [constant_value(n)], arity=(0, 0))


# ---- ConstantOfShape
def _fill(node: Node) -> Array:
    value = node.attr("value")
    return np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)


def _infer_constant_of_shape(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    return [(_dtype_from(_fill(node)), tuple(known_dims(ins, 0, known, "the shape")))]


def _define_constant_of_shape(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    its = iters(shape_of(outs[0]))
    value = e.cast(e.lit(_fill(node)[0].item(), e.wide(dtype_of(outs[0]))), dtype_of(outs[0]))
    return Definition((store(outs[0], points(its), its, value),))


def _np_constant_of_shape(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    value = _fill(node)
    return [np.full([int(d) for d in array(arrays, 0).reshape(-1)], value[0], value.dtype)]


operator("ConstantOfShape", _infer_constant_of_shape, _define_constant_of_shape, _np_constant_of_shape, consts=(0,))


# ---- Range
def _range_size(ins: Ins, known: Known) -> Affine:
    if dtype_of(ins[0]).is_float:
        start, limit, delta = (float(known_array(ins, k, known, "start, limit and delta").reshape(-1)[0]) for k in range(3))
        return affine(max(0, int(np.ceil((limit - start) / delta)))) if delta else fail("a delta of 0")
    first, last = (known_dims(ins, k, known, "start and limit")[0] for k in (0, 1))
    step = known_ints(ins, 2, known, "delta")[0]
    if step == 0:
        fail("a delta of 0")
    size = -((first - last) // step) if step > 0 else -((last - first) // -step)
    return affine(max(0, size.const)) if size.is_const else size


def _infer_range(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    return [(check_dtype(need(ins, 0), NUMBERS), (_range_size(ins, known),))]


def _define_range(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    out, its = outs[0], iters(shape_of(outs[0]))
    (i,) = points(its)
    start, delta = need(ins, 0), need(ins, 2)
    if not dtype_of(out).is_float:
        step = known_ints(ins, 2, known, "delta")[0]
        return Definition((store(out, (i,), its, e.value_of(known_dims(ins, 0, known, "start")[0] + i * step, dtype_of(out))),))
    kind = e.wide(dtype_of(out))
    step_by = e.mul(e.value_of(i, kind), operand(delta, (0,) * len(shape_of(delta)), known))
    return Definition((store(out, (i,), its, e.add(operand(start, (0,) * len(shape_of(start)), known), step_by)),))


def _np_range(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    start, limit, delta = (array(arrays, k).reshape(-1)[0] for k in range(3))
    size = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    if start.dtype.kind in "iu":
        size = max(0, -((int(start) - int(limit)) // int(delta)))
    return [(start + np.arange(size) * delta).astype(start.dtype)]


operator("Range", _infer_range, _define_range, _np_range, arity=(3, 3), consts=(0, 1, 2))


# ---- EyeLike, OneHot
def _infer_eye(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    if len(shape_of(x)) != 2:
        fail(f"input {show(shape_of(x))} must be a matrix")
    return [(dtype_of(x) if node.attr("dtype") is None else onnx_dtype(node.attr("dtype")), shape_of(x))]


def _define_eye(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    out, its = outs[0], iters(shape_of(outs[0]))
    i, j = points(its)
    on = e.compare("==", e.value_of(j - i - int(node.attr("k", 0))), 0)
    return Definition((store(out, (i, j), its, e.cast(on, dtype_of(out))),))


def _np_eye(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    dtype = x.dtype if node.attr("dtype") is None else np_dtype(onnx_dtype(node.attr("dtype")))
    return [np.eye(x.shape[0], x.shape[1], k=int(node.attr("k", 0)), dtype=np.int64).astype(dtype)]


operator("EyeLike", _infer_eye, _define_eye, _np_eye)


def _one_hot_shape(node: Node, ins: Ins, known: Known) -> tuple[int, Shape]:
    shape = shape_of(need(ins, 0))
    axis = axis_of(node.attr("axis", -1), len(shape) + 1)
    return axis, (*shape[:axis], affine(int(known_array(ins, 1, known, "depth").reshape(-1)[0])), *shape[axis:])


def _infer_one_hot(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    if shape_of(need(ins, 2)) != (affine(2),):
        fail(f"values of shape {show(shape_of(ins[2]))} must be [off, on]")
    return [(dtype_of(ins[2]), _one_hot_shape(node, ins, known)[1])]


def _define_one_hot(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    indices, values = need(ins, 0), need(ins, 2)
    axis, shape = _one_hot_shape(node, ins, known)
    its = iters(shape)
    at = points(its)
    depth = static(shape[axis], "depth")
    which = e.cast(raw(indices, (*at[:axis], *at[axis + 1 :])), i64)
    on = e.compare("==", e.select(e.compare("<", which, 0), e.add(which, depth), which), e.value_of(at[axis]))
    return Definition((store(outs[0], at, its, e.select(on, raw(values, (1,)), raw(values, (0,)))),))


def _np_one_hot(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    which, values = array(arrays, 0).astype(np.int64), array(arrays, 2)
    depth = int(array(arrays, 1).reshape(-1)[0])
    axis = node.attr("axis", -1) % (which.ndim + 1)
    hot = np.expand_dims(np.where(which < 0, which + depth, which), axis)
    ramp = np.arange(depth).reshape(-1, *(1,) * (which.ndim - axis))
    return [np.where(hot == ramp, values[1], values[0]).astype(values.dtype)]


operator("OneHot", _infer_one_hot, _define_one_hot, _np_one_hot, arity=(3, 3), consts=(1,))
