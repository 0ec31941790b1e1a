"""Resize: nearest in one nest; linear and cubic one axis after another, with weights in small tables.

Takes and gives what `registry.Op` says. Scales or sizes (and the crop box) must be known at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.dtype import DType, f32, f64
from ..ir.expr import Expr
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor
from . import exprs as e
from .build import (
    NUMBERS,
    Ins,
    Named,
    Typed,
    array,
    axes_of,
    check_dtype,
    content,
    dtype_of,
    fail,
    iters,
    known_array,
    known_dims,
    load,
    local,
    maybe,
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
from .sampling import ROUND, Axis, output_size, position, rational, sample


# ---- sizes and scales
def _empty(ins: Ins, k: int, known: Known) -> bool:
    v = present(ins, k)
    return v is None or (v.shape is not None and v.shape == (affine(0),)) or (v.name in known and np.size(known[v.name]) == 0)


Target = tuple[list[int], list[Affine], list[Fraction], list[tuple[float, float]]]


def _targets(node: Node, ins: Ins, known: Known) -> Target:
    """(axes, output sizes, scales, crop boxes) of the axes that the node names."""
    shape = shape_of(need(ins, 0))
    axes = axes_of(node.attr("axes") or range(len(shape)), len(shape))
    crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    boxes = [(0.0, 1.0)] * len(axes)
    if crop:
        roi = [float(v) for v in known_array(ins, 1, known, "roi").reshape(-1)]
        boxes = list(zip(roi[: len(axes)], roi[len(axes) :]))
    if not _empty(ins, 2, known):
        given = [float(v) for v in known_array(ins, 2, known, "scales").reshape(-1)]
        scales = [rational(s) for s in given]
        out = [output_size(shape[a], s, g * (b[1] - b[0]) if crop else g) for a, s, g, b in zip(axes, scales, given, boxes)]
    else:
        out = known_dims(ins, 3, known, "sizes")
        scales = [_ratio(d, shape[a]) for d, a in zip(out, axes)]
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(scales)
            scales = [scale] * len(axes)
            out = [affine(floor(Fraction(_size(shape[a])) * scale + Fraction(1, 2))) for a in axes]
    if len(out) != len(axes):
        fail(f"{len(out)} scales or sizes for {len(axes)} axes")
    return axes, [affine(d) for d in out], scales, boxes


def _size(d: Affine) -> int:
    if not d.is_const:
        fail(f"keep_aspect_ratio_policy needs constant sizes: bind {', '.join(sorted(d.names()))}")
    return d.const


def _ratio(out: Affine, size: Affine) -> Fraction:
    (a, x), (b, y) = content(out), content(size)
    if x != y:
        fail(f"resizing {size} to {out} has no constant scale: bind {', '.join(sorted(out.names() | size.names()))}")
    return Fraction(a, b) if b else Fraction(1)


def _infer_resize(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    if node.attr("mode", "nearest") not in ("nearest", "linear", "cubic"):
        fail(f"mode {node.attr('mode')} is not nearest, linear or cubic")
    shape = list(shape_of(x))
    for axis, d in zip(*_targets(node, ins, known)[:2]):
        shape[axis] = d
    return [(check_dtype(x, NUMBERS), tuple(shape))]


# ---- taps and weights
def _taps(node: Node, scale: Fraction) -> list[int]:
    """Offsets of the taps from the rounded position."""
    mode = node.attr("mode", "nearest")
    if mode == "nearest":
        return [0]
    reach = 1 if mode == "linear" else 2
    if node.attr("antialias", 0) and scale < 1:
        start = floor(-reach / scale) + 1
        return list(range(start, 2 - start))
    return list(range(1 - reach, 1 + reach))


def _coefficient(node: Node, x: Any, ops: Any) -> Any:
    """The kernel at distance x >= 0; `ops` has mul, add, sub, select(cond), less, so that it serves expressions and arrays."""
    if node.attr("mode") == "linear":
        return ops.maximum(ops.sub(1.0, x), 0.0)
    a = float(node.attr("cubic_coeff_a", -0.75))
    x2 = ops.mul(x, x)
    x3 = ops.mul(x2, x)
    near = ops.add(ops.sub(ops.mul(x3, a + 2), ops.mul(x2, a + 3)), 1.0)
    far = ops.sub(ops.add(ops.sub(ops.mul(x3, a), ops.mul(x2, 5 * a)), ops.mul(x, 8 * a)), 4 * a)
    return ops.select(ops.compare("<=", x, 1.0), near, ops.select(ops.compare("<", x, 2.0), far, 0.0))


class _NumPyOps:
    add, sub, mul, maximum = np.add, np.subtract, np.multiply, np.maximum

    @staticmethod
    def compare(op: str, x: Any, y: Any) -> Any:
        return np.less_equal(x, y) if op == "<=" else np.less(x, y)

    select = np.where


def _distance(node: Node, axis_scale: Fraction) -> float:
    """What the distance to a tap is multiplied by: less than 1 only where a downscale is antialiased."""
    return float(min(axis_scale, Fraction(1))) if node.attr("antialias", 0) else 1.0


def _weight_nests(node: Node, a: Axis, taps: Sequence[int], table: Tensor, kind: DType) -> list[Nest]:
    """Fill table[o, k]. Weights depend on the part only where taps outside do not count."""
    exclude, normal = node.attr("exclude_outside", 0), node.attr("antialias", 0) or node.attr("exclude_outside", 0)
    pieces = [(p.start, p.size, p.inside) for p in a.parts if p.taps is not None] if exclude else [(affine(0), a.out, (True,) * len(taps))]
    nests = []
    for start, size, inside in pieces:
        its = (("o", size),)
        o = affine("o") + start
        where = e.add(e.mul(e.value_of(o, f64), float(a.line[0])), float(a.line[1]))
        ratio = e.sub(where, e.value_of(a.base(o), f64))
        terms = [_coefficient(node, e.call("abs", e.mul(e.sub(ratio, t), _distance(node, a.scale))), e) for t in taps]
        counted: list[Expr] = [t for t, i in zip(terms, inside) if i]
        total = counted[0]
        for t in counted[1:]:
            total = e.add(total, t)
        for k, (t, i) in enumerate(zip(terms, inside)):
            nests.append(store(table, (o, k), its, (e.div(t, total) if normal else t) if i else e.lit(0, f64)))
    return nests


# ---- nests
def _define_resize(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out = need(ins, 0), outs[0]
    axes, sizes, scales, boxes = _targets(node, ins, known)
    shape = shape_of(x)
    crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    sampled = {a: sample(node, shape[a], d, s, b, _taps(node, s)) for a, d, s, b in zip(axes, sizes, scales, boxes)
               if d != shape[a] or s != 1 or (crop and b != (0.0, 1.0))}  # fmt: skip
    fill = float(node.attr("extrapolation_value", 0.0))
    if node.attr("mode", "nearest") == "nearest" or not sampled:
        return Definition(tuple(_nearest(x, out, sampled, fill)))
    return _separable(node, x, out, sampled, fill)


def _nearest(x: Value, out: Value, sampled: dict[int, Axis], fill: float) -> list[Nest]:
    shape, nests = shape_of(out), []
    axes = sorted(sampled)
    for parts in product(*(sampled[a].parts for a in axes)):
        chosen = dict(zip(axes, parts))
        its = iters(chosen[k].size if k in chosen else d for k, d in enumerate(shape))
        at = [i + chosen[k].start if k in chosen else i for k, i in enumerate(points(its))]
        if any(p.taps is None for p in parts):
            nests.append(store(out, at, its, e.lit(fill, e.wide(dtype_of(out)))))
        else:
            source = [chosen[k].taps[0](i) if k in chosen else i for k, i in enumerate(at)]  # type: ignore[index]
            nests.append(store(out, at, its, raw(x, source)))
    return nests


def _separable(node: Node, x: Value, out: Value, sampled: dict[int, Axis], fill: float) -> Definition:
    kind = e.wide(dtype_of(x)) if dtype_of(x).is_float else f32
    shape: list[Affine] = list(shape_of(x))
    source: Named = x
    nests: list[Nest] = []
    locals_: list[Tensor] = []
    for n, (axis, a) in enumerate(sorted(sampled.items())):
        taps = _taps(node, a.scale)
        table = local(node, f"weights{axis}", kind, (a.out, affine(len(taps))))
        nests += _weight_nests(node, a, taps, table, kind)
        shape[axis] = a.out
        target: Named = out
        if n < len(sampled) - 1:
            target = local(node, f"axis{axis}", kind, shape)
            locals_.append(target)
        locals_.append(table)
        nests += _axis_nests(source, target, tuple(shape), axis, a, table, kind, fill)
        source = target
    return Definition(tuple(nests), tuple(locals_))


def _axis_nests(source: Named, target: Named, shape: Shape, axis: int, a: Axis, table: Tensor, kind: DType, fill: float) -> list[Nest]:
    nests = []
    for p in a.parts:
        its = iters(p.size if k == axis else d for k, d in enumerate(shape))
        at = [i + p.start if k == axis else i for k, i in enumerate(points(its))]
        if p.taps is None:
            nests.append(store(target, at, its, e.lit(fill, kind)))
            continue
        total: Expr | None = None
        for k, tap in enumerate(p.taps):
            v = e.cast(load(source, [tap(i) if d == axis else i for d, i in enumerate(at)]), kind)
            term = e.mul(v, raw(table, (at[axis], k)))
            total = term if total is None else e.add(total, term)
        assert total is not None
        nests.append(store(target, at, its, total))
    return nests


# ---- reference
def _np_resize(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    ins: list[Value | None] = [Value("x", f32, tuple(map(affine, x.shape)))]
    known: dict[str, Array] = {}
    for k in (1, 2, 3):
        given = maybe(arrays, k)
        ins.append(None if given is None else Value(str(k), f32, tuple(map(affine, given.shape))))
        if given is not None:
            known[str(k)] = given
    y = widen(x)
    if y.dtype.kind != "f" and node.attr("mode", "nearest") != "nearest":
        y = y.astype(np.float32)
    outside = np.zeros((1,) * x.ndim, np.bool_)
    for axis, d, scale, box in zip(*_targets(node, ins, known)):
        matrix, beyond = _matrix(node, x.shape[axis], d.const, scale, box)
        if node.attr("mode", "nearest") == "nearest":
            y = np.take(y, np.argmax(matrix, 1), axis)
        else:
            y = np.moveaxis(np.tensordot(matrix.astype(y.dtype), y, (1, axis)), 0, axis)
        outside = outside | beyond.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    y = np.where(outside, y.dtype.type(node.attr("extrapolation_value", 0.0)), y)
    return [y.astype(x.dtype)]


def _matrix(node: Node, n: int, m: int, scale: Fraction, box: tuple[float, float]) -> tuple[Array, Array]:
    """The m x n matrix that resizes one axis, and which outputs lie outside."""
    slope, offset = position(node, n, m, scale, box)
    taps = _taps(node, scale)
    nearest = node.attr("mode", "nearest") == "nearest"
    crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    out, beyond = np.zeros((m, n)), np.zeros(m, np.bool_)
    for o in range(m):
        x = slope * o + offset
        base = ROUND[node.attr("nearest_mode", "round_prefer_floor")](x) if nearest else floor(x)
        beyond[o] = crop and not 0 <= x <= n - 1
        where = np.array([base + t for t in taps])
        if nearest:
            weights = np.ones(1)
        else:
            weights = _coefficient(node, np.abs([float(x - base - t) * _distance(node, scale) for t in taps]), _NumPyOps)
        if node.attr("exclude_outside", 0) and not nearest:
            weights = np.where((where >= 0) & (where < n), weights, 0)
        if (node.attr("antialias", 0) or node.attr("exclude_outside", 0)) and not nearest:
            weights = weights / np.sum(weights)
        np.add.at(out[o], np.clip(where, 0, n - 1), weights)
    return out, beyond


operator("Resize", _infer_resize, _define_resize, _np_resize, arity=(1, 4), consts=(1, 2, 3))
