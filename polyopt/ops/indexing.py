"""Reads at computed positions: Gather, GatherElements, GatherND.

Takes and gives what `registry.Op` says. Positions known at compile time become affine indices where they form one arithmetic
progression; others are indirect reads, whose negative values count from the end. Positions outside the dim are refused where they are
known; data that holds one reads the nearest element, never memory of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import i32, i64
from ..ir.expr import Expr
from ..ir.graph import Node, Shape, Value
from . import exprs as e
from .build import (
    Ins,
    Typed,
    array,
    axis_of,
    check_dtype,
    dtype_of,
    fail,
    iters,
    need,
    operator,
    points,
    raw,
    shape_of,
    show,
    static,
    store,
)  # fmt: skip
from .registry import Array, Definition, Known

Index = Union[Affine, Expr]


def position(t: Value, at: Sequence[Affine], size: Affine, known: Known) -> Index:
    """The position that `t[at]` holds, in a dim of that size: affine where `t` is known and linear, else an indirect index."""
    values = known.get(t.name)
    if values is not None:
        linear = _linear(np.asarray(values), at, size)
        if linear is not None:
            return linear
    x = raw(t, at)
    proven = values is not None and np.asarray(values).dtype != object and size.is_const  # by _check_positions
    if proven and (np.asarray(values) >= 0).all():
        return x
    wide = e.cast(x, i64)
    counted = e.select(e.compare("<", wide, 0), e.add(wide, e.value_of(size)), wide)
    return counted if proven else e.maximum(e.minimum(counted, e.value_of(size - 1)), 0)


def _linear(values: Array, at: Sequence[Affine], size: Affine) -> Affine | None:
    """values[at] as one affine expression, or None."""
    if values.size == 0:
        return affine(0)
    if values.dtype == object:
        return None if values.size > 1 else _wrapped(affine(values.reshape(-1)[0]), size)
    if (values < 0).any():
        if not size.is_const:
            return _wrapped(affine(int(values.reshape(-1)[0])), size) if values.size == 1 else None
        values = np.where(values < 0, values + size.const, values)
    first = int(values[(0,) * values.ndim])
    steps = [int(np.take(values, 1, k).reshape(-1)[0]) - first if n > 1 else 0 for k, n in enumerate(values.shape)]
    grid = np.full(values.shape, first, np.int64)
    for k, (n, step) in enumerate(zip(values.shape, steps)):
        grid = grid + step * np.arange(n).reshape(-1, *(1,) * (values.ndim - 1 - k))
    if not np.array_equal(grid, values):
        return None
    out = affine(first)
    for i, step in zip(at, steps):
        out = out + i * step
    return out


def _wrapped(x: Affine, size: Affine) -> Affine:
    return x + size if x.is_const and x.const < 0 else x


def _check_positions(t: Value, sizes: Sequence[Affine], known: Known) -> None:
    """Refuse an index that lies outside its dim: sizes[k] holds entry k of the tuples, or there is one size for all entries."""
    check_dtype(t, (i32, i64))
    values = known.get(t.name)
    if values is None or np.asarray(values).dtype == object:
        return
    for k, size in enumerate(sizes):
        part = np.asarray(values) if len(sizes) == 1 else np.asarray(values)[..., k]
        if size.is_const and part.size and not -size.const <= part.min() <= part.max() < size.const:
            worst = part.max() if part.max() >= size.const else part.min()
            fail(f"the index {worst} lies outside a dim of {size.const}")


# ---- Gather
def _infer_gather(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, t = need(ins, 0), need(ins, 1)
    shape = shape_of(x)
    axis = axis_of(node.attr("axis", 0), len(shape))
    _check_positions(t, shape[axis : axis + 1], known)
    return [(dtype_of(x), (*shape[:axis], *shape_of(t), *shape[axis + 1 :]))]


def _define_gather(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, t = need(ins, 0), need(ins, 1)
    shape, rank = shape_of(x), len(shape_of(t))
    axis = axis_of(node.attr("axis", 0), len(shape))
    its = iters(shape_of(outs[0]))
    at = points(its)
    which = position(t, at[axis : axis + rank], shape[axis], known)
    return Definition((store(outs[0], at, its, raw(x, (*at[:axis], which, *at[axis + rank :]))),))


def _np_gather(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    return [np.take(array(arrays, 0), array(arrays, 1), node.attr("axis", 0))]


operator("Gather", _infer_gather, _define_gather, _np_gather, arity=(2, 2))


# ---- GatherElements
def _infer_gather_elements(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, t = need(ins, 0), need(ins, 1)
    if len(shape_of(x)) != len(shape_of(t)):
        fail(f"data {show(shape_of(x))} and indices {show(shape_of(t))} must have one rank")
    axis = axis_of(node.attr("axis", 0), len(shape_of(x)))
    _check_positions(t, shape_of(x)[axis : axis + 1], known)
    return [(dtype_of(x), shape_of(t))]


def _define_gather_elements(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, t = need(ins, 0), need(ins, 1)
    shape = shape_of(x)
    axis = axis_of(node.attr("axis", 0), len(shape))
    its = iters(shape_of(t))
    at = points(its)
    which = position(t, at, shape[axis], known)
    return Definition((store(outs[0], at, its, raw(x, (*at[:axis], which, *at[axis + 1 :]))),))


def _np_gather_elements(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, which, axis = array(arrays, 0), array(arrays, 1).astype(np.int64), node.attr("axis", 0)
    cut = tuple(slice(None) if k == axis % x.ndim else slice(0, n) for k, n in enumerate(which.shape))
    return [np.take_along_axis(x[cut], np.where(which < 0, which + x.shape[axis], which), axis)]


operator("GatherElements", _infer_gather_elements, _define_gather_elements, _np_gather_elements, arity=(2, 2))


# ---- GatherND
def _gather_nd_shapes(node: Node, ins: Ins) -> tuple[int, int, Shape]:
    """(batch dims, indexed dims, output shape)."""
    x, t = shape_of(need(ins, 0)), shape_of(need(ins, 1))
    batch, depth = int(node.attr("batch_dims", 0)), static(t[-1], "the length of an index tuple")
    if batch + depth > len(x) or x[:batch] != t[:batch]:
        fail(f"indices {show(t)} do not fit data {show(x)} with {batch} batch dims")
    return batch, depth, (*t[:-1], *x[batch + depth :])


def _infer_gather_nd(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    batch, depth, shape = _gather_nd_shapes(node, ins)
    _check_positions(need(ins, 1), shape_of(need(ins, 0))[batch : batch + depth], known)
    return [(dtype_of(need(ins, 0)), shape)]


def _define_gather_nd(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, t = need(ins, 0), need(ins, 1)
    batch, depth, shape = _gather_nd_shapes(node, ins)
    its = iters(shape)
    at = points(its)
    lead = at[: len(shape_of(t)) - 1]
    which = [position_in_tuple(t, lead, k, shape_of(x)[batch + k], known) for k in range(depth)]
    return Definition((store(outs[0], at, its, raw(x, (*at[:batch], *which, *at[len(lead) :]))),))


def position_in_tuple(t: Value, at: Sequence[Affine], k: int, size: Affine, known: Known) -> Index:
    """Entry k of the index tuple at `at`."""
    values = known.get(t.name)
    if values is not None and np.asarray(values).dtype != object:
        linear = _linear(np.asarray(values)[..., k], at, size)
        if linear is not None:
            return linear
    return position(t, (*at, affine(k)), size, {t.name: values[..., k]} if values is not None and values.dtype != object else {})


def _np_gather_nd(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, which, batch = array(arrays, 0), array(arrays, 1), int(node.attr("batch_dims", 0))
    lead = np.indices(which.shape[:-1])[:batch]
    return [x[(*lead, *np.moveaxis(which, -1, 0))]]


operator("GatherND", _infer_gather_nd, _define_gather_nd, _np_gather_nd, arity=(2, 2))
