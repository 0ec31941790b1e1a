"""Pointwise operators: one nest over the output's dims, whose write is the identity; inputs broadcast.

Takes and gives what `registry.Op` says. Each line of the tables pairs a formula on `Expr`s with the same formula in NumPy, both in
the type of arithmetic (f32 for 16-bit floats).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtype import DType, bool_, f64
from ..ir.expr import Const, Expr, Unary
from ..ir.graph import Node, Value
from . import exprs as e
from .build import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    Ins,
    Typed,
    align,
    array,
    broadcast,
    check_dtype,
    dtype_of,
    fail,
    iters,
    known_array,
    maybe,
    need,
    np_dtype,
    onnx_dtype,
    operand,
    operator,
    points,
    present,
    raw,
    shape_of,
    store,
    widen,
)  # fmt: skip
from .registry import Array, Definition, Known

Formula = Callable[..., Expr]
NumPy = Callable[..., Array]
ANY = (*NUMBERS, bool_)


def same_dtype(ins: Ins) -> DType:
    """The one dtype of all inputs."""
    types = [dtype_of(v) for v in ins if v is not None]
    if any(t != types[0] for t in types):
        fail(f"inputs have dtypes {', '.join(map(str, types))}, which must be equal")
    return types[0]


def elementwise(
    name: str, formula: Formula, numpy: NumPy, allowed: Sequence[DType] = FLOATS, *,
    arity: tuple[int, int] = (1, 1), result: DType | None = None,
) -> None:  # fmt: skip
    """Register y = formula(node, x0, x1, …) with NumPy twin numpy(node, a0, a1, …); inputs share a dtype, `result` overrides y's."""

    def infer(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
        for v in ins:
            if v is not None:
                check_dtype(v, allowed)
        dtype = same_dtype(ins)
        return [(result or dtype, broadcast([shape_of(v) for v in ins if v is not None]))]

    def define(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
        out = outs[0]
        its = iters(shape_of(out))
        at = points(its)
        args = [operand(v, align(shape_of(v), shape_of(out), at), known) for v in ins if v is not None]
        return Definition((store(out, at, its, formula(node, *args)),))

    def reference(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        given = [a for a in arrays if a is not None]
        y = np.asarray(numpy(node, *[widen(a) for a in given]))
        return [y.astype(np_dtype(result) if result else given[0].dtype, copy=False)]

    operator(name, infer, define, reference, arity=arity)


def _fold(op: Callable[[Expr, Expr], Expr]) -> Formula:
    def formula(node: Node, first: Expr, *rest: Expr) -> Expr:
        for x in rest:
            first = op(first, x)
        return first

    return formula


def _folded(op: Callable[[Any, Any], Any]) -> NumPy:
    def numpy(node: Node, first: Array, *rest: Array) -> Array:
        for x in rest:
            first = op(first, x)
        return first

    return numpy


# ---- arithmetic
def _np_div(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(x / y)
    q = np.floor_divide(x, y)
    return np.asarray(q + ((q < 0) & (q * y != x)).astype(x.dtype))


def _mod(node: Node, x: Expr, y: Expr) -> Expr:
    if node.attr("fmod", 0):
        return e.remainder(x, y)
    if not x.dtype.is_float:
        return e.binary("%", x, y)
    r = e.call("fmod", x, y)  # with the sign of x; the result has that of y, also where it is 0
    signs_differ = e.compare("!=", e.compare("<", r, 0), e.compare("<", y, 0))
    zero = e.select(e.compare("<", y, 0), -0.0, e.select(e.compare("==", r, 0), e.lit(0, r.dtype), r))
    return e.select(e.compare("!=", r, 0), e.select(e.call("isnan", r), r, e.select(signs_differ, e.add(r, y), r)), zero)


def _np_mod(node: Node, x: Array, y: Array) -> Array:
    return np.asarray(np.fmod(x, y) if node.attr("fmod", 0) else np.mod(x, y))


for _name, _op, _np in (("Add", e.add, np.add), ("Sub", e.sub, np.subtract), ("Mul", e.mul, np.multiply), ("Div", e.div, _np_div)):
    elementwise(_name, _fold(_op), _folded(_np), NUMBERS, arity=(2, 2))
elementwise("Mod", _mod, _np_mod, NUMBERS, arity=(2, 2))
elementwise("Sum", _fold(e.add), _folded(np.add), FLOATS, arity=(1, 2**31))
elementwise("Max", _fold(e.maximum), _folded(np.maximum), NUMBERS, arity=(1, 2**31))
elementwise("Min", _fold(e.minimum), _folded(np.minimum), NUMBERS, arity=(1, 2**31))
elementwise("Mean", lambda n, *x: e.div(_fold(e.add)(n, *x), len(x)), lambda n, *x: _folded(np.add)(n, *x) / x[0].dtype.type(len(x)),
            arity=(1, 2**31))  # fmt: skip

# ---- logic and comparison
elementwise("And", _fold(e.both), _folded(np.logical_and), (bool_,), arity=(2, 2))
elementwise("Or", _fold(e.either), _folded(np.logical_or), (bool_,), arity=(2, 2))
elementwise("Xor", lambda n, x, y: e.compare("!=", x, y), _folded(np.logical_xor), (bool_,), arity=(2, 2))
elementwise("Not", lambda n, x: e.invert(x), lambda n, x: np.logical_not(x), (bool_,))


def _comparison(name: str, op: str, numpy: Any, allowed: Sequence[DType] = NUMBERS) -> None:
    elementwise(name, lambda n, x, y: e.compare(op, x, y), lambda n, x, y: numpy(x, y), allowed, arity=(2, 2), result=bool_)


_comparison("Equal", "==", np.equal, ANY)
_comparison("Greater", ">", np.greater)
_comparison("GreaterOrEqual", ">=", np.greater_equal)
_comparison("Less", "<", np.less)
_comparison("LessOrEqual", "<=", np.less_equal)


def _bitwise(name: str, op: str, numpy: Any) -> None:
    elementwise(name, lambda n, x, y: e.binary(op, x, y), lambda n, x, y: numpy(x, y), INTEGERS, arity=(2, 2))


def _shift(node: Node, x: Expr, y: Expr) -> Expr:
    last = x.dtype.bits - 1
    left = node.attr("direction") == "LEFT"
    in_range = e.compare("<=", y, last)
    if y.dtype.kind == "i":
        in_range = e.both(in_range, e.compare(">=", y, 0))
    beyond = e.select(e.compare("<", x, 0), -1, e.lit(0, x.dtype)) if x.dtype.kind == "i" and not left else e.lit(0, x.dtype)
    return e.select(in_range, e.binary("<<" if left else ">>", x, e.maximum(e.minimum(y, last), 0)), beyond)


def _np_shift(node: Node, x: Array, y: Array) -> Array:
    bits, left = x.dtype.itemsize * 8, node.attr("direction") == "LEFT"
    shifted = (np.left_shift if left else np.right_shift)(x, np.clip(y, 0, bits - 1))
    beyond = np.zeros_like(x) if left else np.where(x < 0, -1, 0).astype(x.dtype)
    return np.where((y < 0) | (y >= bits), beyond, shifted)


_bitwise("BitwiseAnd", "&", np.bitwise_and)
_bitwise("BitwiseOr", "|", np.bitwise_or)
_bitwise("BitwiseXor", "^", np.bitwise_xor)
elementwise("BitwiseNot", lambda n, x: Unary("~", x), lambda n, x: np.invert(x), INTEGERS)
elementwise("BitShift", _shift, _np_shift, INTEGERS, arity=(2, 2))


# ---- operators whose inputs differ in dtype or role
def _infer_pow(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, y = need(ins, 0), need(ins, 1)
    check_dtype(y, NUMBERS)
    return [(check_dtype(x, NUMBERS), broadcast([shape_of(x), shape_of(y)]))]


def _power(x: Expr, y: Expr) -> Expr:
    if isinstance(y, Const) and y.value in (1, 2, 3):
        return x if y.value == 1 else e.mul(x, x) if y.value == 2 else e.mul(e.mul(x, x), x)
    if x.dtype.is_float:
        return e.binary("pow", x, e.cast(y, x.dtype))
    return e.cast(e.binary("pow", e.cast(x, f64), e.cast(y, f64)), x.dtype)


def _define_pow(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, y = need(ins, 0), need(ins, 1)
    shape = shape_of(outs[0])
    its = iters(shape)
    at = points(its)
    base, exponent = (operand(v, align(shape_of(v), shape, at), known) for v in (x, y))
    return Definition((store(outs[0], at, its, _power(base, exponent)),))


def _np_pow(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, y = widen(array(arrays, 0)), widen(array(arrays, 1))
    if x.dtype.kind == "f":
        return [np.power(x, y.astype(x.dtype)).astype(array(arrays, 0).dtype)]
    if y.dtype.kind in "iu" and (y.dtype.kind == "u" or not (y < 0).any()):
        return [np.power(x, y.astype(x.dtype))]
    return [np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)]


operator("Pow", _infer_pow, _define_pow, _np_pow, arity=(2, 2))


def _infer_clip(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    same_dtype(ins)
    return [(check_dtype(need(ins, 0), NUMBERS), shape_of(need(ins, 0)))]


def _define_clip(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, low, high = need(ins, 0), present(ins, 1), present(ins, 2)
    its = iters(shape_of(x))
    v = operand(x, points(its), {})
    if low is not None:
        v = e.maximum(v, operand(low, (0,) * len(shape_of(low)), known))
    if high is not None:
        v = e.minimum(v, operand(high, (0,) * len(shape_of(high)), known))
    return Definition((store(outs[0], points(its), its, v),))


def _np_clip(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, low, high = array(arrays, 0), maybe(arrays, 1), maybe(arrays, 2)
    y = x if low is None else np.maximum(x, low.reshape(()))
    return [(y if high is None else np.minimum(y, high.reshape(()))).astype(x.dtype)]


operator("Clip", _infer_clip, _define_clip, _np_clip, arity=(1, 3))


def _infer_where(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    check_dtype(need(ins, 0), (bool_,))
    return [(same_dtype(ins[1:]), broadcast([shape_of(v) for v in ins]))]


def _define_where(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    shape = shape_of(outs[0])
    its = iters(shape)
    at = points(its)
    cond, yes, no = (operand(need(ins, k), align(shape_of(ins[k]), shape, at), known) for k in range(3))
    return Definition((store(outs[0], at, its, e.select(cond, yes, no)),))


operator("Where", _infer_where, _define_where, lambda n, a: [np.where(array(a, 0), array(a, 1), array(a, 2))], arity=(3, 3))


def _cast_target(node: Node, ins: Ins) -> DType:
    return dtype_of(need(ins, 1)) if node.op == "CastLike" else onnx_dtype(node.attr("to"))


def _infer_cast(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    check_dtype(need(ins, 0), ANY)
    return [(_cast_target(node, ins), shape_of(need(ins, 0)))]


def _define_cast(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    its = iters(shape_of(outs[0]))
    return Definition((store(outs[0], points(its), its, operand(need(ins, 0), points(its), known)),))


def _np_cast(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    like = maybe(arrays, 1)
    to = like.dtype if node.op == "CastLike" and like is not None else np_dtype(onnx_dtype(node.attr("to")))
    return [widen(array(arrays, 0)).astype(to)]


operator("Cast", _infer_cast, _define_cast, _np_cast)
operator("CastLike", _infer_cast, _define_cast, _np_cast, arity=(2, 2))


# ---- Dropout at inference time
def _infer_dropout(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x = need(ins, 0)
    training = present(ins, 2)
    if training is not None and bool(known_array(ins, 2, known, "training_mode").reshape(-1)[0]):
        ratio = present(ins, 1)
        if ratio is None or float(known_array(ins, 1, known, "ratio").reshape(-1)[0]) != 0.0:
            fail("training mode is random and not supported: export the model for inference")
    types = [(dtype_of(x), x.shape), (bool_, x.shape)]
    return types[: max(1, len(node.outputs))]


def _define_dropout(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x = need(ins, 0)
    its = iters(shape_of(x))
    at = points(its)
    nests = [store(outs[0], at, its, raw(x, at))]
    if len(node.outputs) > 1 and node.outputs[1]:
        nests.append(store(outs[1], at, its, e.lit(True, bool_)))
    return Definition(tuple(nests))


def _np_dropout(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x = array(arrays, 0)
    return [x, np.ones(x.shape, np.bool_)][: max(1, len(node.outputs))]


operator("Dropout", _infer_dropout, _define_dropout, _np_dropout, arity=(1, 3), consts=(2,))
