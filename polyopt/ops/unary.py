"""Functions of one tensor: elementary functions and activations, all pointwise.

Takes and gives what `registry.Op` says. Formulas in the type of arithmetic, beside their NumPy twins.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, pi, sqrt
from typing import Any

import numpy as np

from ..ir.dtype import bool_
from ..ir.expr import Expr
from ..ir.graph import Node, Value
from . import exprs as e
from .build import FLOATS, NUMBERS, SIGNED, Ins, Typed, align, array, broadcast, fail, iters, need, operand, operator, points, shape_of, store, widen
from .pointwise import elementwise, same_dtype
from .registry import Array, Definition, Known


# ---- functions of one float
def _intrinsic(name: str, numpy: Any, fn: str = "") -> None:
    elementwise(name, lambda n, x: e.call(fn or name.lower(), x), lambda n, x: numpy(x))


def np_erf(x: Array) -> Array:
    """erf of each element (NumPy has none)."""
    return np.asarray(np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64)) if x.size else x, dtype=x.dtype)


def np_sigmoid(x: Array) -> Array:
    """1/(1 + exp(-x)) without overflow."""
    t = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + t), t / (1 + t)), dtype=x.dtype)


for _name in ("Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Floor", "Ceil"):
    _intrinsic(_name, getattr(np, _name.lower()))
for _name in ("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"):
    _intrinsic(_name, getattr(np, "arc" + _name[1:]))
_intrinsic("Round", np.rint)
_intrinsic("Erf", np_erf)
_intrinsic("Sigmoid", np_sigmoid)
elementwise("Reciprocal", lambda n, x: e.div(1, x), lambda n, x: x.dtype.type(1) / x)
elementwise("IsNaN", lambda n, x: e.call("isnan", x), lambda n, x: np.isnan(x), result=bool_)


def _isinf(node: Node, x: Expr) -> Expr:
    up, down = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    if up and down:
        return e.call("isinf", x)
    return e.compare("==", x, float("inf")) if up else e.compare("==", x, float("-inf")) if down else e.lit(False, bool_)


def _np_isinf(node: Node, x: Array) -> Array:
    up, down = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    return np.asarray((np.isposinf(x) & bool(up)) | (np.isneginf(x) & bool(down)))


elementwise("IsInf", _isinf, _np_isinf, result=bool_)


# ---- functions of one number
def _abs(node: Node, x: Expr) -> Expr:
    return e.call("abs", x) if x.dtype.is_float else e.maximum(x, e.neg(x)) if x.dtype.kind == "i" else x


def _sign(node: Node, x: Expr) -> Expr:
    if x.dtype.is_float:
        return e.call("sign", x)
    return e.sub(e.cast(e.compare(">", x, 0), x.dtype), e.cast(e.compare("<", x, 0), x.dtype))


elementwise("Neg", lambda n, x: e.neg(x), lambda n, x: -x, (*FLOATS, *SIGNED))
elementwise("Abs", _abs, lambda n, x: np.abs(x), NUMBERS)
elementwise("Sign", _sign, lambda n, x: np.sign(x), NUMBERS)
elementwise("Relu", lambda n, x: e.maximum(x, 0), lambda n, x: np.maximum(x, x.dtype.type(0)), (*FLOATS, *SIGNED))

# ---- activations
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _expm1(x: Expr) -> Expr:
    return e.sub(e.call("exp", x), 1)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return e.maximum(e.minimum(e.add(e.mul(x, alpha), beta), 1), 0)


def _np_hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(np.maximum(0, np.minimum(1, x * x.dtype.type(alpha) + x.dtype.type(beta))))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow."""
    return e.add(e.maximum(x, 0), e.log1p(e.call("exp", e.neg(e.call("abs", x)))))


def _gelu(node: Node, x: Expr) -> Expr:
    if node.attr("approximate", "none") == "tanh":
        inner = e.mul(e.add(x, e.mul(e.mul(e.mul(x, x), x), 0.044715)), sqrt(2 / pi))
        return e.mul(e.mul(x, 0.5), e.add(e.call("tanh", inner), 1))
    return e.mul(e.mul(x, 0.5), e.add(e.call("erf", e.mul(x, sqrt(0.5))), 1))


def _np_gelu(node: Node, x: Array) -> Array:
    t = x.dtype.type
    if node.attr("approximate", "none") == "tanh":
        return np.asarray(t(0.5) * x * (1 + np.tanh(t(sqrt(2 / pi)) * (x + t(0.044715) * x * x * x))))
    return np.asarray(t(0.5) * x * (1 + np_erf(x * t(sqrt(0.5)))))


def _selu(node: Node, x: Expr) -> Expr:
    alpha, gamma = node.attr("alpha", SELU_ALPHA), node.attr("gamma", SELU_GAMMA)
    return e.mul(e.select(e.compare(">", x, 0), x, e.mul(_expm1(x), alpha)), gamma)


def _np_selu(node: Node, x: Array) -> Array:
    t = x.dtype.type
    alpha, gamma = t(node.attr("alpha", SELU_ALPHA)), t(node.attr("gamma", SELU_GAMMA))
    return np.asarray(gamma * np.where(x > 0, x, alpha * (np.exp(x) - 1)))


def _celu(node: Node, x: Expr) -> Expr:
    a = node.attr("alpha", 1.0)
    return e.add(e.maximum(x, 0), e.minimum(e.mul(_expm1(e.div(x, a)), a), 0))


def _np_celu(node: Node, x: Array) -> Array:
    a = x.dtype.type(node.attr("alpha", 1.0))
    return np.asarray(np.maximum(x, 0) + np.minimum(0, a * (np.exp(x / a) - 1)))


def _shrink(node: Node, x: Expr) -> Expr:
    lambd, bias = node.attr("lambd", 0.5), node.attr("bias", 0.0)
    if not x.dtype.is_float:
        lambd, bias = int(lambd), int(bias)
    below = e.select(e.compare("<", x, -lambd), e.add(x, bias), 0)
    return e.select(e.compare(">", x, lambd), e.sub(x, bias), below) if x.dtype.kind != "u" else e.select(
        e.compare(">", x, lambd), e.sub(x, bias), 0)  # fmt: skip


def _np_shrink(node: Node, x: Array) -> Array:
    lambd, bias = node.attr("lambd", 0.5), node.attr("bias", 0.0)
    return np.asarray(np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)))


elementwise("LeakyRelu", lambda n, x: e.select(e.compare("<", x, 0), e.mul(x, n.attr("alpha", 0.01)), x),
            lambda n, x: np.where(x < 0, x * x.dtype.type(n.attr("alpha", 0.01)), x))  # fmt: skip
elementwise("ThresholdedRelu", lambda n, x: e.select(e.compare(">", x, n.attr("alpha", 1.0)), x, 0),
            lambda n, x: np.where(x > x.dtype.type(n.attr("alpha", 1.0)), x, x.dtype.type(0)))  # fmt: skip
elementwise("Elu", lambda n, x: e.select(e.compare("<", x, 0), e.mul(_expm1(x), n.attr("alpha", 1.0)), x),
            lambda n, x: np.where(x < 0, x.dtype.type(n.attr("alpha", 1.0)) * (np.exp(x) - 1), x))  # fmt: skip
elementwise("Selu", _selu, _np_selu)
elementwise("Celu", _celu, _np_celu)
elementwise("Softplus", lambda n, x: softplus(x), lambda n, x: np.logaddexp(x, x.dtype.type(0)))
elementwise("Softsign", lambda n, x: e.div(x, e.add(e.call("abs", x), 1)), lambda n, x: x / (1 + np.abs(x)))
elementwise("Gelu", _gelu, _np_gelu)
elementwise("Mish", lambda n, x: e.mul(x, e.call("tanh", softplus(x))), lambda n, x: x * np.tanh(np.logaddexp(x, x.dtype.type(0))))
elementwise("Swish", lambda n, x: e.mul(x, e.call("sigmoid", e.mul(x, n.attr("alpha", 1.0)))),
            lambda n, x: x * np_sigmoid(x * x.dtype.type(n.attr("alpha", 1.0))))  # fmt: skip
elementwise("Shrink", _shrink, _np_shrink, NUMBERS)
elementwise("HardSigmoid", lambda n, x: _hard_sigmoid(x, n.attr("alpha", 0.2), n.attr("beta", 0.5)),
            lambda n, x: _np_hard_sigmoid(x, n.attr("alpha", 0.2), n.attr("beta", 0.5)))  # fmt: skip
elementwise("HardSwish", lambda n, x: e.mul(x, _hard_sigmoid(x, 1 / 6, 0.5)), lambda n, x: x * _np_hard_sigmoid(x, 1 / 6, 0.5))


# ---- PRelu
def _infer_prelu(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, slope = need(ins, 0), need(ins, 1)
    dtype, shape = same_dtype(ins), shape_of(x)
    if broadcast([shape, shape_of(slope)]) != shape:
        fail("slope does not broadcast to the input")
    return [(dtype, shape)]


def _define_prelu(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, slope = need(ins, 0), need(ins, 1)
    its = iters(shape_of(x))
    at = points(its)
    v = operand(x, at, {})
    s = operand(slope, align(shape_of(slope), shape_of(x), at), known)
    return Definition((store(outs[0], at, its, e.select(e.compare("<", v, 0), e.mul(v, s), v)),))


def _np_prelu(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, slope = widen(array(arrays, 0)), widen(array(arrays, 1))
    return [np.where(x < 0, x * slope, x).astype(array(arrays, 0).dtype)]


operator("PRelu", _infer_prelu, _define_prelu, _np_prelu, arity=(2, 2))
