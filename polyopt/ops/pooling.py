"""Pooling: reductions over a sliding window, or over all spatial dims.

Takes and gives what `registry.Op` says. Padding is a constraint of the domain; the count that an average divides by is a constant
where no window touches padding that does not count, else an exact min/max of index values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import i8, i64, u8
from ..ir.expr import Expr, IndexValue, walk
from ..ir.graph import Node, Value
from . import exprs as e
from .build import (
    FLOATS,
    Ins,
    Iters,
    Typed,
    array,
    check_dtype,
    count,
    dtype_of,
    fail,
    iters,
    load,
    need,
    nonempty_outputs,
    operator,
    points,
    raw,
    shape_of,
    show,
    store,
    widen,
)  # fmt: skip
from .contraction import SPACE, TAPS, spatial
from .reduction import accumulate, keep_index, kept, reduce_nests, same
from .registry import Array, Definition, Known, Nest
from .tidy import lower_bound
from .window import Window, concrete, numpy_taps, window


def _window(node: Node, x: Value) -> Window:
    shape = shape_of(x)
    if len(shape) < 3:
        fail(f"input {show(shape)} must have at least one spatial dim")
    return window(node, shape[2:], node.attr("kernel_shape") or ())


def _infer_pool(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    dtype = check_dtype(x, (*FLOATS, i8, u8) if node.op == "MaxPool" else FLOATS)
    shape = (*shape_of(x)[:2], *_window(node, x).out)
    return [(dtype, shape), (i64, shape)][: max(1, len(node.outputs))]


class _Sweep:
    """Iterators and indices of one sweep of a window over x."""

    def __init__(self, node: Node, x: Value) -> None:
        shape, self.win = shape_of(x), _window(node, x)
        kernel = [affine(k) for k in self.win.kernel]
        space, taps = spatial(SPACE, self.win.out, "h"), spatial(TAPS, kernel, "r")
        self.outer: Iters = (("n", shape[0]), ("c", shape[1]), *space)
        self.inner: Iters = taps
        self.at = points(self.outer)
        inside = self.win.index(points(space), points(taps))
        self.index = (*self.at[:2], *inside)
        self.where = self.win.inside(inside)


def _define_max_pool(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    s, dtype = _Sweep(node, x), dtype_of(x)
    nests = [store(out, s.at, s.outer, e.lowest(dtype)), store(out, s.at, s.outer + s.inner, raw(x, s.index), "max", s.where)]
    positions = nonempty_outputs(node, outs, 1)
    if positions is not None:
        nests += _argmax_nests(node, x, out, positions, s)
    return Definition(tuple(nests))


def _argmax_nests(node: Node, x: Value, best: Value, out: Value, s: _Sweep) -> list[Nest]:
    """The least row-major position in x that holds the maximum of each window; then column-major where storage_order says so."""
    shape = shape_of(x)
    position: Expr = e.lit(0, i64)
    for i, d in zip(s.index, shape):
        position = e.add(e.mul(position, e.value_of(d)), e.value_of(i))
    hit = same(load(x, s.index), load(best, s.at))
    nests = [store(out, s.at, s.outer, e.highest(i64)),
             store(out, s.at, s.outer + s.inner, e.select(hit, position, e.highest(i64)), "min", s.where)]  # fmt: skip
    if node.attr("storage_order", 0):
        rest, plane, coords = raw(out, s.at), count(shape[2:], i64), []
        at = e.binary("%", rest, plane)
        for d in reversed(shape[2:]):
            coords.append(e.binary("%", at, e.value_of(d)))
            at = e.binary("//", at, e.value_of(d))
        linear: Expr = e.lit(0, i64)
        for c, d in zip(coords, reversed(shape[2:])):
            linear = e.add(e.mul(linear, e.value_of(d)), c)
        nests.append(store(out, s.at, s.outer, e.add(e.mul(e.binary("//", rest, plane), plane), linear)))
    return nests


def _np_max_pool(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    v = widen(x)
    w = concrete(node, x.shape[2:], node.attr("kernel_shape"))
    fill: Any = -np.inf if v.dtype.kind == "f" else np.iinfo(v.dtype).min
    taps = np.stack([t for _, t in numpy_taps(v, w, fill)])
    y = np.max(taps, axis=0).astype(x.dtype)
    if len(node.outputs) < 2:
        return [y]
    order = "F" if node.attr("storage_order", 0) else "C"
    plane = np.arange(prod(x.shape[2:])).reshape(x.shape[2:])
    base = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * w.rank) * plane.size
    place = np.stack([np.broadcast_to(t, taps.shape[1:]) for _, t in numpy_taps(base + plane, w, np.iinfo(np.int64).max)])
    hit = ((taps == np.max(taps, axis=0)) | (taps != taps)) & (place != np.iinfo(np.int64).max)
    best = np.min(np.where(hit, place, np.iinfo(np.int64).max), axis=0)
    if order == "F":
        coords = np.unravel_index(best % plane.size, x.shape[2:])
        best = best - best % plane.size + np.ravel_multi_index(coords, x.shape[2:], order="F")
    return [y, best.astype(np.int64)]


operator("MaxPool", _infer_pool, _define_max_pool, _np_max_pool)


# ---- averages
def _tap_count(w: Window, k: int, at: Affine, padding: bool) -> Expr:
    """How many taps of the window at output `at` count in dim k: those inside the input, or inside input and padding."""
    low, high = (-w.before[k], w.size[k] + w.after[k] - 1) if padding else (affine(0), w.size[k] - 1)
    start = at * w.stride[k] - w.before[k]
    d, last = w.dilation[k], affine(w.kernel[k] - 1)
    first_tap, last_tap = -((start - low) // d), (high - start) // d
    it: Iters = ((next(iter(at.names())), w.out[k]),)
    first = _clamped("max", first_tap, affine(0), it)
    final = _clamped("min", last_tap, last, it)
    return e.add(e.sub(final, first), 1)


def _clamped(op: str, x: Affine, limit: Affine, it: Iters) -> Expr:
    """min or max of x and its limit; the limit alone where x is proven to lie beyond it."""
    slack = lower_bound(x - limit if op == "min" else limit - x, it)
    return e.value_of(limit) if slack is not None and slack >= 0 else e.binary(op, e.value_of(x), e.value_of(limit))


def _define_average_pool(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    s, kind = _Sweep(node, x), e.wide(dtype_of(x))
    acc, locals_ = accumulate(node, out)
    n: Expr = e.lit(1, i64)
    constant = 1
    for k, at in enumerate(s.at[2:]):
        c = _tap_count(s.win, k, at, bool(node.attr("count_include_pad", 0)))
        if not list(_index_values(c)):
            constant *= s.win.kernel[k]
        else:
            n = e.mul(n, c) if n != e.lit(1, i64) else c
    taps = e.lit(constant, kind) if n == e.lit(1, i64) else e.cast(e.mul(n, constant) if constant > 1 else n, kind)
    nests = (
        store(acc, s.at, s.outer, 0),
        store(acc, s.at, s.outer + s.inner, load(x, s.index), "+", s.where),
        store(out, s.at, s.outer, e.div(raw(acc, s.at), taps)),
    )
    return Definition(nests, locals_)


def _index_values(x: Expr) -> list[Expr]:
    return [v for v in walk(x) if isinstance(v, IndexValue)]


def _np_average_pool(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    v = widen(x)
    w = concrete(node, x.shape[2:], node.attr("kernel_shape"))
    total = sum(t for _, t in numpy_taps(v, w, 0))
    counted = np.ones(x.shape[2:], v.dtype)
    if node.attr("count_include_pad", 0):
        counted = np.pad(counted, [(p.const, q.const) for p, q in zip(w.before, w.after)], constant_values=1)
        shifted = Window(w.kernel, w.stride, w.dilation, (affine(0),) * w.rank, (affine(0),) * w.rank,
                         tuple(map(affine, counted.shape)), w.out)  # fmt: skip
        taps = sum(t for _, t in numpy_taps(counted, shifted, 0))
    else:
        taps = sum(t for _, t in numpy_taps(counted, w, 0))
    return [np.asarray(total / taps).astype(x.dtype)]


operator("AveragePool", _infer_pool, _define_average_pool, _np_average_pool)


# ---- Lp norms
def _power_term(x: Expr, p: float) -> Expr:
    size = e.call("abs", x)
    return size if p == 1 else e.mul(x, x) if p == 2 else e.binary("pow", size, float(p))


def _root(x: Expr, p: float) -> Expr:
    return x if p == 1 else e.call("sqrt", x) if p == 2 else e.binary("pow", x, 1.0 / p)


def _define_lp_pool(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out, p = need(ins, 0), outs[0], node.attr("p", 2)
    s = _Sweep(node, x)
    acc, locals_ = accumulate(node, out)
    nests = (
        store(acc, s.at, s.outer, 0),
        store(acc, s.at, s.outer + s.inner, _power_term(load(x, s.index), p), "+", s.where),
        store(out, s.at, s.outer, _root(raw(acc, s.at), p)),
    )
    return Definition(nests, locals_)


def _np_lp_pool(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, p = array(arrays, 0), node.attr("p", 2)
    w = concrete(node, x.shape[2:], node.attr("kernel_shape"))
    total = sum(np.abs(t) ** p for _, t in numpy_taps(widen(x), w, 0))
    return [np.asarray(total ** (1.0 / p)).astype(x.dtype)]


operator("LpPool", _infer_pool, _define_lp_pool, _np_lp_pool)


# ---- pooling over all spatial dims
def _infer_global(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    shape = shape_of(x)
    if len(shape) < 3:
        fail(f"input {show(shape)} must have at least one spatial dim")
    return [(check_dtype(x, FLOATS), kept(shape, range(2, len(shape))))]


def _define_global(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out, p = need(ins, 0), outs[0], node.attr("p", 2)
    shape, kind = shape_of(x), e.wide(dtype_of(x))
    axes = range(2, len(shape))
    most = node.op == "GlobalMaxPool"
    acc, locals_ = (out, ()) if most else accumulate(node, out)

    def term(i: Sequence[Affine]) -> Expr:
        v = load(x, i)
        return _power_term(v, p) if node.op == "GlobalLpPool" else v

    nests = reduce_nests(acc, shape, axes, keep_index(axes), e.lowest(dtype_of(x)) if most else 0, term, "max" if most else "+")
    if not most:
        its = iters(shape_of(out))
        total = raw(acc, points(its))
        average = node.op == "GlobalAveragePool"
        nests.append(store(out, points(its), its, e.div(total, count(shape[2:], kind)) if average else _root(total, p)))
    return Definition(tuple(nests), locals_)


def _np_global(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, p = array(arrays, 0), node.attr("p", 2)
    v, axes = widen(x), tuple(range(2, x.ndim))
    if node.op == "GlobalMaxPool":
        return [np.max(x, axis=axes, keepdims=True)]
    if node.op == "GlobalAveragePool":
        return [np.mean(v, axis=axes, keepdims=True, dtype=v.dtype).astype(x.dtype)]
    return [(np.sum(np.abs(v) ** p, axis=axes, keepdims=True) ** (1.0 / p)).astype(x.dtype)]


for _name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
    operator(_name, _infer_global, _define_global, _np_global)
