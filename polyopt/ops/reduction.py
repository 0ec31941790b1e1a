"""Reductions along axes, ArgMax/ArgMin, Softmax and friends, CumSum.

Takes and gives what `registry.Op` says. A reduction is an init nest, an associative update over output and reduced iterators, and
where needed a closing pointwise nest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import DType, bool_, f64, i32, i64
from ..ir.expr import Expr
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor
from . import exprs as e
from .build import (
    FLOATS,
    NUMBERS,
    ONE,
    Ins,
    Iters,
    Named,
    Typed,
    array,
    axes_of,
    axis_of,
    check_dtype,
    count,
    dtype_of,
    iters,
    known_ints,
    load,
    local,
    need,
    operator,
    points,
    present,
    raw,
    shape_of,
    store,
    widen,
)  # fmt: skip
from .registry import Array, Definition, Known, Nest


def kept(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape with the reduced axes kept at size 1."""
    return tuple(ONE if k in axes else d for k, d in enumerate(shape))


def reduce_nests(
    target: Named, shape: Shape, axes: Sequence[int], at: Callable[[Sequence[Affine]], Sequence[Affine]], init: e.Operand,
    term: Callable[[Sequence[Affine]], Expr], op: str, where: Sequence[Affine] = (),
) -> list[Nest]:  # fmt: skip
    """Init and update nests: target[at(i)] op= term(i) over the box `shape`, `axes` reduced and innermost."""
    full = iters(shape)
    outer: Iters = tuple(it for k, it in enumerate(full) if k not in axes)
    inner: Iters = tuple(it for k, it in enumerate(full) if k in axes)
    i = points(full)
    return [store(target, at(i), outer, init), store(target, at(i), outer + inner, term(i), op, where)]


def keep_index(axes: Sequence[int]) -> Callable[[Sequence[Affine]], Sequence[Affine]]:
    """Index into a tensor that keeps the reduced axes at size 1."""
    return lambda i: [affine(0) if k in axes else x for k, x in enumerate(i)]


def drop_index(axes: Sequence[int]) -> Callable[[Sequence[Affine]], Sequence[Affine]]:
    """Index into a tensor without the reduced axes."""
    return lambda i: [x for k, x in enumerate(i) if k not in axes]


# ---- Reduce*
def _axes(node: Node, ins: Ins, known: Known) -> list[int]:
    rank = len(shape_of(need(ins, 0)))
    given = known_ints(ins, 1, known, "axes") if present(ins, 1) is not None else list(node.attr("axes") or [])
    if not given:
        return [] if node.attr("noop_with_empty_axes", 0) else list(range(rank))
    return axes_of(given, rank)


def _infer_reduce(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape, axes = shape_of(x), _axes(node, ins, known)
    allowed = (*NUMBERS, bool_) if node.op in ("ReduceMax", "ReduceMin") else NUMBERS
    out = kept(shape, axes) if node.attr("keepdims", 1) else tuple(d for k, d in enumerate(shape) if k not in axes)
    return [(check_dtype(x, allowed), out)]


Term = Callable[[Expr], Expr]


def _reduce(name: str, op: str, numpy: Callable[..., Any], term: Term = lambda x: x, last: Term | None = None) -> None:
    """Register y = last(op over axes of term(x)); numpy(x, axis, keepdims) is the twin."""

    def define(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
        x, out = need(ins, 0), outs[0]
        shape, axes, dtype = shape_of(x), _axes(node, ins, known), dtype_of(x)
        kind = e.wide(dtype)
        start = {"+": e.lit(0, kind), "*": e.lit(1, kind), "max": e.lowest(kind), "min": e.highest(kind)}[op]
        acc, locals_ = accumulate(node, out)
        at = keep_index(axes) if node.attr("keepdims", 1) else drop_index(axes)
        nests = reduce_nests(acc, shape, axes, at, start, lambda i: term(load(x, i)), op)
        its = iters(shape_of(out))
        total = raw(acc, points(its))
        if name == "ReduceMean":
            nests.append(store(out, points(its), its, e.div(total, count((shape[k] for k in axes), kind))))
        elif last is not None or locals_:
            nests.append(store(out, points(its), its, total if last is None else last(total)))
        return Definition(tuple(nests), locals_)

    def reference(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        x, given = array(arrays, 0), arrays[1] if len(arrays) > 1 else None
        axes = list(node.attr("axes") or []) if given is None else [int(a) for a in given.reshape(-1)]
        axis = tuple(axes) if axes or node.attr("noop_with_empty_axes", 0) else None
        y = np.asarray(numpy(widen(x), axis=axis, keepdims=bool(node.attr("keepdims", 1))))
        return [y.astype(x.dtype, copy=False)]

    operator(name, _infer_reduce, define, reference, arity=(1, 2), consts=(1,))


def accumulate(node: Node, out: Named) -> tuple[Named, tuple[Tensor, ...]]:
    """Where a reduction into `out` is kept: `out`, or a local in f32 for 16-bit floats (no closing nest is made)."""
    d = dtype_of(out)
    if e.wide(d) == d:
        return out, ()
    acc = local(node, "acc", e.wide(d), shape_of(out))
    return acc, (acc,)


def _square(x: Expr) -> Expr:
    return e.mul(x, x)


def _magnitude(x: Expr) -> Expr:
    return e.call("abs", x) if x.dtype.is_float else e.maximum(x, e.neg(x)) if x.dtype.kind == "i" else x


def _via_float(fn: str) -> Term:
    return lambda x: e.call(fn, x) if x.dtype.is_float else e.cast(e.call(fn, e.cast(x, f64)), x.dtype)


def _np_mean(x: Array, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind == "f":
        return np.mean(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return np.trunc(total / (x.size // max(np.size(total), 1))).astype(x.dtype)


def _np_extreme(numpy: Any, top: bool) -> Callable[..., Any]:
    def reduce(x: Array, axis: Any, keepdims: bool) -> Any:
        if x.dtype.kind == "f":
            initial: Any = -np.inf if top else np.inf
        elif x.dtype.kind == "b":
            initial = not top
        else:
            initial = np.iinfo(x.dtype).min if top else np.iinfo(x.dtype).max
        return numpy(x, axis=axis, keepdims=keepdims, initial=initial)

    return reduce


def _np_sum_of(term: Callable[[Array], Array], last: Callable[[Any], Any] = lambda s: s) -> Callable[..., Any]:
    return lambda x, axis, keepdims: last(np.sum(term(x), axis=axis, keepdims=keepdims, dtype=x.dtype))


_reduce("ReduceSum", "+", _np_sum_of(lambda x: x))
_reduce("ReduceMean", "+", _np_mean)
_reduce("ReduceProd", "*", lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype))
_reduce("ReduceMax", "max", _np_extreme(np.max, True))
_reduce("ReduceMin", "min", _np_extreme(np.min, False))
_reduce("ReduceL1", "+", _np_sum_of(np.abs), _magnitude)
_reduce("ReduceL2", "+", _np_sum_of(np.square, np.sqrt), _square, _via_float("sqrt"))
_reduce("ReduceSumSquare", "+", _np_sum_of(np.square), _square)
_reduce("ReduceLogSum", "+", _np_sum_of(lambda x: x, np.log), lambda x: x, _via_float("log"))


# ---- LogSumExp, Softmax, LogSoftmax: the maximum is taken off first
def _shift(m: Expr) -> Expr:
    """The maximum, or 0 where it is infinite (so that inf - inf does not make NaN)."""
    return e.select(e.call("isinf", m), 0, m)


def _define_log_sum_exp(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    shape, axes = shape_of(x), _axes(node, ins, known)
    kind = e.wide(dtype_of(x)) if dtype_of(x).is_float else f64
    at = keep_index(axes) if node.attr("keepdims", 1) else drop_index(axes)
    top, total = (local(node, s, kind, shape_of(out)) for s in ("max", "sum"))
    nests = reduce_nests(top, shape, axes, at, e.lowest(kind), lambda i: e.cast(load(x, i), kind), "max")
    nests += reduce_nests(total, shape, axes, at, 0,
                          lambda i: e.call("exp", e.sub(e.cast(load(x, i), kind), _shift(raw(top, at(i))))), "+")  # fmt: skip
    its = iters(shape_of(out))
    i = points(its)
    nests.append(store(out, i, its, e.add(e.call("log", raw(total, i)), _shift(raw(top, i)))))
    return Definition(tuple(nests), (top, total))


def _np_log_sum_exp(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, given = array(arrays, 0), arrays[1] if len(arrays) > 1 else None
    axes = list(node.attr("axes") or []) if given is None else [int(a) for a in given.reshape(-1)]
    axis: Any = tuple(axes) if axes or node.attr("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    v = widen(x) if x.dtype.kind not in "iu" else x.astype(np.float64)
    top = np.max(v, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), 0, top).astype(v.dtype)
    y = np.log(np.sum(np.exp(v - top), axis=axis, keepdims=True)) + top
    return [np.asarray(y if node.attr("keepdims", 1) else np.squeeze(y, axis=axis)).astype(x.dtype)]


operator("ReduceLogSumExp", _infer_reduce, _define_log_sum_exp, _np_log_sum_exp, arity=(1, 2), consts=(1,))


def _infer_softmax(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    axis_of(node.attr("axis", -1), len(shape_of(x)))
    return [(check_dtype(x, FLOATS), shape_of(x))]


def _define_softmax(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    axes = [axis_of(node.attr("axis", -1), len(shape))]
    at, its = keep_index(axes), iters(shape)
    i = points(its)
    top, total = (local(node, s, kind, kept(shape, axes)) for s in ("max", "sum"))
    part = out if kind == dtype_of(out) else local(node, "part", kind, shape)
    logs = node.op == "LogSoftmax"
    shifted = e.sub(load(x, i), raw(top, at(i)))
    nests = reduce_nests(top, shape, axes, at, e.lowest(kind), lambda i: load(x, i), "max")
    first, update = reduce_nests(total, shape, axes, at, 0,
                                 lambda i: e.call("exp", raw(part, i)) if logs else raw(part, i), "+")  # fmt: skip
    nests += [store(part, i, its, shifted if logs else e.call("exp", shifted)), first, update]
    s = raw(total, at(i))
    nests.append(store(out, i, its, e.sub(raw(part, i), e.call("log", s)) if logs else e.div(raw(part, i), s)))
    locals_ = (top, total) if part is out else (top, total, part)
    return Definition(tuple(nests), tuple(t for t in locals_ if isinstance(t, Tensor)))


def _np_softmax(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axis = array(arrays, 0), node.attr("axis", -1)
    v = widen(x)
    if not v.size:
        return [x]
    v = v - np.max(v, axis=axis, keepdims=True)
    t = np.exp(v)
    s = np.sum(t, axis=axis, keepdims=True)
    return [np.asarray(v - np.log(s) if node.op == "LogSoftmax" else t / s).astype(x.dtype)]


operator("Softmax", _infer_softmax, _define_softmax, _np_softmax)
operator("LogSoftmax", _infer_softmax, _define_softmax, _np_softmax)


# ---- ArgMax, ArgMin: the extreme, then the least (or last) position that has it
def _infer_arg(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    check_dtype(x, NUMBERS)
    shape = shape_of(x)
    axis = axis_of(node.attr("axis", 0), len(shape))
    return [(i64, kept(shape, [axis]) if node.attr("keepdims", 1) else shape[:axis] + shape[axis + 1 :])]


def _define_arg(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    axes = [axis_of(node.attr("axis", 0), len(shape))]
    at = keep_index(axes) if node.attr("keepdims", 1) else drop_index(axes)
    best = local(node, "best", kind, shape_of(out))
    top, last = node.op == "ArgMax", bool(node.attr("select_last_index", 0))
    nests = reduce_nests(best, shape, axes, at, e.lowest(kind) if top else e.highest(kind), lambda i: load(x, i), "max" if top else "min")
    none = e.lit(-1, i64) if last else e.highest(i64)
    nests += reduce_nests(out, shape, axes, at, none, lambda i: e.select(
        same(load(x, i), raw(best, at(i))), e.value_of(i[axes[0]]), none), "max" if last else "min")  # fmt: skip
    return Definition(tuple(nests), (best,))


def same(x: Expr, best: Expr) -> Expr:
    """Whether x is the extreme: equal to it, or NaN (which min and max let win)."""
    hit = e.compare("==", x, best)
    return e.either(hit, e.call("isnan", x)) if x.dtype.is_float else hit


def _np_arg(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axis = widen(array(arrays, 0)), node.attr("axis", 0)
    find: Any = np.argmax if node.op == "ArgMax" else np.argmin
    if node.attr("select_last_index", 0):
        y = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis, keepdims=True)
    else:
        y = find(x, axis=axis, keepdims=True)
    return [np.asarray(y if node.attr("keepdims", 1) else np.squeeze(y, axis)).astype(np.int64)]


operator("ArgMax", _infer_arg, _define_arg, _np_arg)
operator("ArgMin", _infer_arg, _define_arg, _np_arg)


# ---- CumSum, CumProd: scans
def _infer_scan(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    check_dtype(need(ins, 1), (i32, i64))
    axis_of(known_ints(ins, 1, known, "axis")[0], len(shape_of(x)))
    return [(check_dtype(x, NUMBERS), shape_of(x))]


def _define_scan(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    shape = shape_of(x)
    axis = axis_of(known_ints(ins, 1, known, "axis")[0], len(shape))
    exclusive, backwards = node.attr("exclusive", 0), node.attr("reverse", 0)
    sum_ = node.op == "CumSum"
    acc, locals_ = accumulate(node, out)
    size = shape[axis]

    def at(i: Sequence[Affine], step: Affine) -> list[Affine]:
        place = size - 1 - step if backwards else step
        return [place if k == axis else v for k, v in enumerate(i)]

    head = iters(ONE if k == axis else d for k, d in enumerate(shape))
    tail = iters(d - 1 if k == axis else d for k, d in enumerate(shape))
    h, t = points(head), points(tail)
    before, here = at(t, t[axis]), at(t, t[axis] + 1)
    term = load(x, before if exclusive else here)
    first: e.Operand = (0 if sum_ else 1) if exclusive else load(x, at(h, affine(0)))
    nests = [store(acc, at(h, affine(0)), head, first),
             store(acc, here, tail, e.binary("+" if sum_ else "*", raw(acc, before), term))]  # fmt: skip
    if locals_:
        its = iters(shape)
        nests.append(store(out, points(its), its, raw(acc, points(its))))
    return Definition(tuple(nests), locals_)


def _np_scan(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, axis = array(arrays, 0), int(array(arrays, 1).reshape(-1)[0])
    v = np.flip(widen(x), axis) if node.attr("reverse", 0) else widen(x)
    y = (np.cumsum if node.op == "CumSum" else np.cumprod)(v, axis=axis, dtype=v.dtype)
    if node.attr("exclusive", 0) and v.shape[axis]:
        first = np.full_like(np.take(y, [0], axis), 0 if node.op == "CumSum" else 1)
        y = np.concatenate([first, np.take(y, range(v.shape[axis] - 1), axis)], axis)
    return [(np.flip(y, axis) if node.attr("reverse", 0) else y).astype(x.dtype)]


operator("CumSum", _infer_scan, _define_scan, _np_scan, arity=(2, 2), consts=(1,))
operator("CumProd", _infer_scan, _define_scan, _np_scan, arity=(2, 2), consts=(1,))


def mean_nests(target: Named, shape: Shape, axes: Sequence[int], at: Callable[[Sequence[Affine]], Sequence[Affine]],
               term: Callable[[Sequence[Affine]], Expr], kind: DType) -> list[Nest]:  # fmt: skip
    """Nests that leave in target the mean of term over `axes` of the box `shape`."""
    nests = reduce_nests(target, shape, axes, at, 0, term, "+")
    its = nests[0].iters
    cell = nests[0].write.affine_indices()
    nests.append(store(target, cell, its, e.div(raw(target, cell), count((shape[k] for k in axes), kind))))
    return nests
