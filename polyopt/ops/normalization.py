"""Normalisation: statistics by reductions (two passes: mean, then the mean of squared differences), then one pointwise nest.

Takes and gives what `registry.Op` says. Statistics of 16-bit floats are kept in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import DType
from ..ir.expr import Expr
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor
from . import exprs as e
from .build import (
    FLOATS,
    Ins,
    Typed,
    align,
    array,
    axes_of,
    axis_of,
    broadcast,
    check_dtype,
    content,
    count,
    dtype_of,
    fail,
    iters,
    load,
    local,
    maybe,
    need,
    nonempty_outputs,
    np_dtype,
    onnx_dtype,
    operator,
    points,
    present,
    raw,
    shape_of,
    show,
    static,
    store,
    widen,
)  # fmt: skip
from .reduction import keep_index, kept, mean_nests, reduce_nests
from .registry import Array, Definition, Known, Nest

Point = Sequence[Affine]
Index = Callable[[Point], Sequence[Affine]]
Term = Callable[[Point], Expr]


def square(x: Expr) -> Expr:
    """x squared."""
    return e.mul(x, x)


def statistics(node: Node, shape: Shape, axes: Sequence[int], cells: Shape, at: Index, x: Term, kind: DType,
               epsilon: float) -> tuple[Tensor, Tensor, list[Nest]]:  # fmt: skip
    """Locals of shape `cells` with the mean and 1/sqrt(variance + epsilon) of x over `axes` of the box, and the nests that fill them."""
    mean, scale = local(node, "mean", kind, cells), local(node, "scale", kind, cells)
    nests = mean_nests(mean, shape, axes, at, x, kind)
    nests += reduce_nests(scale, shape, axes, at, 0, lambda i: square(e.sub(x(i), raw(mean, at(i)))), "+")
    nests.append(inverse_root(scale, nests[-2], [shape[k] for k in axes], kind, epsilon))
    return mean, scale, nests


def inverse_root(total: Tensor, init: Nest, reduced: Sequence[Affine], kind: DType, epsilon: float) -> Nest:
    """total = 1/sqrt(total/count + epsilon)."""
    cell = init.write.affine_indices()
    variance = e.div(raw(total, cell), count(reduced, kind))
    return store(total, cell, init.iters, e.div(1, e.call("sqrt", e.add(variance, epsilon))))


# ---- BatchNormalization
def _infer_batch_norm(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape = shape_of(x)
    if len(shape) < 2:
        fail(f"input {show(shape)} must have rank 2 or more")
    for k in range(1, 5):
        check_dtype(need(ins, k), FLOATS)
        if shape_of(ins[k]) != (shape[1],):
            fail(f"'{need(ins, k).name}' of shape {show(shape_of(ins[k]))} does not match {shape[1]} channels")
    types = [(check_dtype(x, FLOATS), shape), *((dtype_of(ins[3]), (shape[1],)) for _ in range(2))]
    return types[: max(1, len(node.outputs))]


def _define_batch_norm(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, gamma, beta, mean, var = (need(ins, k) for k in range(5))
    shape, kind, eps = shape_of(x), e.wide(dtype_of(x)), node.attr("epsilon", 1e-5)
    its = iters(shape)
    at = points(its)
    c = (at[1],)

    def param(v: Value) -> Expr:
        return e.cast(load(v, c), kind)

    if not node.attr("training_mode", 0):
        scale = e.div(param(gamma), e.call("sqrt", e.add(param(var), eps)))
        return Definition((store(outs[0], at, its, e.add(e.mul(e.sub(load(x, at), param(mean)), scale), param(beta))),))
    axes = [k for k in range(len(shape)) if k != 1]
    cells, index = (shape[1],), lambda i: [i[1]]
    m, v = local(node, "mean", kind, cells), local(node, "var", kind, cells)
    nests = mean_nests(m, shape, axes, index, lambda i: load(x, i), kind)
    nests += mean_nests(v, shape, axes, index, lambda i: square(e.sub(load(x, i), raw(m, [i[1]]))), kind)
    scale = e.div(param(gamma), e.call("sqrt", e.add(raw(v, c), eps)))
    nests.append(store(outs[0], at, its, e.add(e.mul(e.sub(load(x, at), raw(m, c)), scale), param(beta))))
    momentum = node.attr("momentum", 0.9)
    for k, (old, new) in enumerate(((mean, m), (var, v)), 1):
        out = nonempty_outputs(node, outs, k)
        if out is not None:
            each = iters(cells)
            i = points(each)
            mixed = e.add(e.mul(e.cast(load(old, i), kind), momentum), e.mul(raw(new, i), 1 - momentum))
            nests.append(store(out, i, each, mixed))
    return Definition(tuple(nests), (m, v))


def _np_batch_norm(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = widen(array(arrays, 0))
    gamma, beta, mean, var = (widen(array(arrays, k)).astype(x.dtype) for k in range(1, 5))
    per = (-1, *(1,) * (x.ndim - 2))
    types = [array(arrays, 0).dtype, array(arrays, 3).dtype, array(arrays, 4).dtype]
    outs: list[Array] = []
    if node.attr("training_mode", 0):
        axes, t = tuple(k for k in range(x.ndim) if k != 1), x.dtype.type(node.attr("momentum", 0.9))
        m, v = np.mean(x, axis=axes), np.var(x, axis=axes)
        outs = [mean * t + m * (1 - t), var * t + v * (1 - t)]
        mean, var = m, v
    scale = gamma / np.sqrt(var + x.dtype.type(node.attr("epsilon", 1e-5)))
    outs.insert(0, (x - mean.reshape(per)) * scale.reshape(per) + beta.reshape(per))
    return [y.astype(t) for y, t in zip(outs, types)][: max(1, len(node.outputs))]


operator("BatchNormalization", _infer_batch_norm, _define_batch_norm, _np_batch_norm, arity=(5, 5))


# ---- InstanceNormalization, GroupNormalization
def _infer_channel_norm(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape = shape_of(x)
    if len(shape) < 3:
        fail(f"input {show(shape)} must have rank 3 or more")
    groups = node.attr("num_groups")
    if node.op == "GroupNormalization" and (not groups or content(shape[1])[0] % groups):
        fail(f"{shape[1]} channels do not divide into {groups} groups")
    for k in (1, 2):
        if shape_of(need(ins, k)) != (shape[1],):
            fail(f"'{need(ins, k).name}' of shape {show(shape_of(ins[k]))} does not match {shape[1]} channels")
    return [(check_dtype(x, FLOATS), shape)]


def _define_channel_norm(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, gamma, beta = (need(ins, k) for k in range(3))
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    instance = node.op == "InstanceNormalization"
    per = affine(1) if instance else shape[1] // int(node.attr("num_groups"))
    size = static(per, "the number of channels in a group")
    if instance:
        box, axes = shape, range(2, len(shape))
        term: Term = lambda i: load(x, i)  # noqa: E731
    else:  # the box is n, group, channel in the group, spatial dims
        box, axes = (shape[0], affine(int(node.attr("num_groups"))), per, *shape[2:]), range(2, len(shape) + 1)
        term = lambda i: load(x, (i[0], i[1] * size + i[2], *i[3:]))  # noqa: E731
    mean, scale, nests = statistics(node, box, axes, box[:2], lambda i: i[:2], term, kind, node.attr("epsilon", 1e-5))
    its = iters(shape)
    at = points(its)
    cell, c = (at[0], at[1] // size), (at[1],)
    y = e.mul(e.mul(e.sub(load(x, at), raw(mean, cell)), raw(scale, cell)), e.cast(load(gamma, c), kind))
    nests.append(store(outs[0], at, its, e.add(y, e.cast(load(beta, c), kind))))
    return Definition(tuple(nests), (mean, scale))


def _np_channel_norm(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = widen(array(arrays, 0))
    gamma, beta = (widen(array(arrays, k)).astype(x.dtype) for k in (1, 2))
    groups = x.shape[1] if node.op == "InstanceNormalization" else int(node.attr("num_groups"))
    v = x.reshape(x.shape[0], groups, -1)
    v = (v - np.mean(v, 2, keepdims=True)) / np.sqrt(np.var(v, 2, keepdims=True) + x.dtype.type(node.attr("epsilon", 1e-5)))
    per = (-1, *(1,) * (x.ndim - 2))
    return [(v.reshape(x.shape) * gamma.reshape(per) + beta.reshape(per)).astype(array(arrays, 0).dtype)]


for _name in ("InstanceNormalization", "GroupNormalization"):
    operator(_name, _infer_channel_norm, _define_channel_norm, _np_channel_norm, arity=(3, 3))


# ---- LayerNormalization, RMSNormalization
def _infer_layer_norm(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape = shape_of(x)
    axis = axis_of(node.attr("axis", -1), len(shape))
    for v in ins[1:]:
        if v is not None and broadcast([shape_of(v), shape]) != shape:
            fail(f"'{v.name}' of shape {show(shape_of(v))} does not broadcast to {show(shape)}")
    dtype = check_dtype(x, FLOATS)
    if node.op == "RMSNormalization":
        return [(dtype_of(ins[1]), shape)]
    small = kept(shape, range(axis, len(shape)))
    stash = onnx_dtype(node.attr("stash_type", 1))
    return [(dtype, shape), (stash, small), (stash, small)][: max(1, len(node.outputs))]


def _define_layer_norm(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out, rms = need(ins, 0), outs[0], node.op == "RMSNormalization"
    shape, kind, eps = shape_of(x), e.wide(dtype_of(x)), node.attr("epsilon", 1e-5)
    axes = range(axis_of(node.attr("axis", -1), len(shape)), len(shape))
    cells, at = kept(shape, axes), keep_index(axes)
    its = iters(shape)
    i = points(its)
    if rms:
        scale = local(node, "scale", kind, cells)
        nests = reduce_nests(scale, shape, axes, at, 0, lambda i: square(load(x, i)), "+")
        nests.append(inverse_root(scale, nests[0], [shape[k] for k in axes], kind, eps))
        locals_: tuple[Tensor, ...] = (scale,)
        y = e.mul(load(x, i), raw(scale, at(i)))
    else:
        mean, scale, nests = statistics(node, shape, axes, cells, at, lambda i: load(x, i), kind, eps)
        locals_ = (mean, scale)
        y = e.mul(e.sub(load(x, i), raw(mean, at(i))), raw(scale, at(i)))
    for k, op in ((1, e.mul), (2, e.add)):
        v = present(ins, k)
        if v is not None:
            y = op(y, e.cast(load(v, align(shape_of(v), shape, i)), kind))
    nests.append(store(out, i, its, y))
    for k, t in zip((1, 2), locals_):
        extra = nonempty_outputs(node, outs, k)
        if extra is not None and not rms:
            each = iters(cells)
            nests.append(store(extra, points(each), each, raw(t, points(each))))
    return Definition(tuple(nests), locals_)


def _np_layer_norm(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, rms = widen(array(arrays, 0)), node.op == "RMSNormalization"
    axes = tuple(range(node.attr("axis", -1) % x.ndim, x.ndim))
    mean: Any = 0 if rms else np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    scale = 1 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + x.dtype.type(node.attr("epsilon", 1e-5)))
    y = centred * scale
    for k, op in ((1, np.multiply), (2, np.add)):
        v = maybe(arrays, k)
        if v is not None:
            y = op(y, widen(v).astype(x.dtype))
    if rms:
        return [y.astype(array(arrays, 1).dtype)]
    stash = np_dtype(onnx_dtype(node.attr("stash_type", 1)))
    return [y.astype(array(arrays, 0).dtype), mean.astype(stash), scale.astype(stash)][: max(1, len(node.outputs))]


operator("LayerNormalization", _infer_layer_norm, _define_layer_norm, _np_layer_norm, arity=(2, 3))
operator("RMSNormalization", _infer_layer_norm, _define_layer_norm, _np_layer_norm, arity=(2, 2))


# ---- MeanVarianceNormalization, LpNormalization
def _infer_same(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    return [(check_dtype(x, FLOATS), shape_of(x))]


def _define_mvn(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    axes = axes_of(node.attr("axes", [0, 2, 3]), len(shape))
    cells, at = kept(shape, axes), keep_index(axes)
    mean, var = local(node, "mean", kind, cells), local(node, "var", kind, cells)
    nests = mean_nests(mean, shape, axes, at, lambda i: load(x, i), kind)
    nests += mean_nests(var, shape, axes, at, lambda i: square(e.sub(load(x, i), raw(mean, at(i)))), kind)
    its = iters(shape)
    i = points(its)
    spread = e.add(e.call("sqrt", raw(var, at(i))), 1e-9)
    nests.append(store(outs[0], i, its, e.div(e.sub(load(x, i), raw(mean, at(i))), spread)))
    return Definition(tuple(nests), (mean, var))


def _np_mvn(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axes = widen(array(arrays, 0)), tuple(int(a) for a in node.attr("axes", [0, 2, 3]))
    y = (x - np.mean(x, axes, keepdims=True)) / (np.std(x, axes, keepdims=True) + x.dtype.type(1e-9))
    return [y.astype(array(arrays, 0).dtype)]


operator("MeanVarianceNormalization", _infer_same, _define_mvn, _np_mvn)


def _define_lp_norm(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, p = need(ins, 0), node.attr("p", 2)
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    axes = [axis_of(node.attr("axis", -1), len(shape))]
    cells, at = kept(shape, axes), keep_index(axes)
    norm = local(node, "norm", kind, cells)
    nests = reduce_nests(norm, shape, axes, at, 0,
                         lambda i: square(load(x, i)) if p == 2 else e.call("abs", load(x, i)), "+")  # fmt: skip
    its = iters(shape)
    i = points(its)
    size = raw(norm, at(i))
    root = e.call("sqrt", size) if p == 2 else size
    nests.append(store(outs[0], i, its, e.select(e.compare("==", size, 0), 0, e.div(load(x, i), root))))
    return Definition(tuple(nests), (norm,))


def _np_lp_norm(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axis, p = widen(array(arrays, 0)), node.attr("axis", -1), node.attr("p", 2)
    norm = np.sqrt(np.sum(x * x, axis, keepdims=True)) if p == 2 else np.sum(np.abs(x), axis, keepdims=True)
    return [np.where(norm == 0, 0, x / norm).astype(array(arrays, 0).dtype)]


operator("LpNormalization", _infer_same, _define_lp_norm, _np_lp_norm)


# ---- LRN
def _define_lrn(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    shape, kind, size = shape_of(x), e.wide(dtype_of(x)), int(node.attr("size"))
    total = local(node, "squares", kind, shape)
    its, taps = iters(shape), (("r", affine(size)),)
    i = points(its)
    near = i[1] + affine("r") - (size - 1) // 2
    nests = [store(total, i, its, 0),
             store(total, i, its + taps, square(load(x, (i[0], near, *i[2:]))), "+", [near, shape[1] - 1 - near])]  # fmt: skip
    base = e.add(e.mul(raw(total, i), node.attr("alpha", 1e-4) / size), node.attr("bias", 1.0))
    nests.append(store(outs[0], i, its, e.div(load(x, i), e.binary("pow", base, float(node.attr("beta", 0.75))))))
    return Definition(tuple(nests), (total,))


def _np_lrn(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, size, channels = widen(array(arrays, 0)), int(node.attr("size")), array(arrays, 0).shape[1]
    total = np.zeros_like(x)
    for c in range(channels):
        total[:, c] = np.sum(np.square(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]), axis=1)
    t = x.dtype.type
    base = t(node.attr("bias", 1.0)) + t(node.attr("alpha", 1e-4) / size) * total
    return [(x / base ** t(node.attr("beta", 0.75))).astype(array(arrays, 0).dtype)]


operator("LRN", _infer_same, _define_lrn, _np_lrn)
