"""Short names for scalar expressions, so that an operator's formula reads like the formula.

Takes and gives `Expr`s of `ir.expr`; both operands of a binary operator have one dtype (a Python number takes the other operand's).
"""

from __future__ import annotations

from typing import Union

from ..ir.affine import Affine, AffineLike, affine
from ..ir.dtype import DType, bf16, f16, f32, i64
from ..ir.expr import Binary, Call, Cast, Compare, Const, Expr, IndexValue, Select, Unary

Operand = Union[Expr, float, int]

LIMITS = {"i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1),
          "u8": (0, 2**8 - 1), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1), "u64": (0, 2**64 - 1)}  # fmt: skip


def wide(dtype: DType) -> DType:
    """The type that arithmetic on `dtype` is done in: f32 for the 16-bit floats, else itself."""
    return f32 if dtype in (f16, bf16) else dtype


def lit(value: float | int | bool, dtype: DType) -> Const:
    """A literal of a dtype; the value gets the Python type that fits it."""
    return Const(float(value) if dtype.is_float else bool(value) if dtype.kind == "b" else int(value), dtype)


def lowest(dtype: DType) -> Const:
    """The identity of max: -inf, the least integer, or False."""
    return lit(float("-inf") if dtype.is_float else LIMITS[dtype.name][0] if dtype.is_integer else False, dtype)


def highest(dtype: DType) -> Const:
    """The identity of min: inf, the greatest integer, or True."""
    return lit(float("inf") if dtype.is_float else LIMITS[dtype.name][1] if dtype.is_integer else True, dtype)


def _pair(x: Operand, y: Operand) -> tuple[Expr, Expr]:
    if isinstance(x, Expr):
        return x, y if isinstance(y, Expr) else lit(y, x.dtype)
    assert isinstance(y, Expr)
    return lit(x, y.dtype), y


def binary(op: str, x: Operand, y: Operand) -> Expr:
    """x op y."""
    return Binary(op, *_pair(x, y))


def add(x: Operand, y: Operand) -> Expr:
    """x + y."""
    return binary("+", x, y)


def sub(x: Operand, y: Operand) -> Expr:
    """x - y."""
    return binary("-", x, y)


def mul(x: Operand, y: Operand) -> Expr:
    """x * y."""
    return binary("*", x, y)


def div(x: Operand, y: Operand) -> Expr:
    """x / y of floats; integers truncate toward zero, as ONNX and C divide."""
    a, b = _pair(x, y)
    if not a.dtype.is_integer:
        return Binary("/", a, b)
    q = Binary("//", a, b)
    if a.dtype.kind == "u":
        return q
    inexact = Compare("!=", mul(q, b), a)
    return select(both(compare("<", q, 0), inexact), add(q, 1), q)


def remainder(x: Operand, y: Operand) -> Expr:
    """C's remainder: the sign of x."""
    a, b = _pair(x, y)
    return Call("fmod", (a, b)) if a.dtype.is_float else sub(a, mul(div(a, b), b))


def minimum(x: Operand, y: Operand) -> Expr:
    """min(x, y); NaN wins."""
    return binary("min", x, y)


def maximum(x: Operand, y: Operand) -> Expr:
    """max(x, y); NaN wins."""
    return binary("max", x, y)


def both(x: Expr, y: Expr) -> Expr:
    """x and y."""
    return Binary("and", x, y)


def either(x: Expr, y: Expr) -> Expr:
    """x or y."""
    return Binary("or", x, y)


def invert(x: Expr) -> Expr:
    """not x."""
    return Unary("not", x)


def neg(x: Expr) -> Expr:
    """-x."""
    return Unary("-", x)


def compare(op: str, x: Operand, y: Operand) -> Expr:
    """x op y as a bool."""
    return Compare(op, *_pair(x, y))


def select(cond: Expr, yes: Operand, no: Operand) -> Expr:
    """yes if cond else no; one of them may be a number."""
    return Select(cond, *_pair(yes, no))


def call(fn: str, *args: Expr) -> Expr:
    """An intrinsic."""
    return Call(fn, args)


def cast(x: Expr, dtype: DType) -> Expr:
    """x as a dtype; itself where it already is."""
    return x if x.dtype == dtype else Cast(x, dtype)


def value_of(x: AffineLike, dtype: DType = i64) -> Expr:
    """An affine expression as a value of any dtype."""
    a: Affine = affine(x)
    if a.is_const:
        return lit(a.const, dtype)
    return IndexValue(a, dtype) if dtype.is_integer else cast(IndexValue(a, i64), dtype)


def log1p(u: Expr) -> Expr:
    """log(1 + u) for u >= 0, accurate for small u (Kahan: u · log(t)/(t - 1) with t = 1 + u)."""
    t = add(u, 1)
    return select(compare("==", t, 1), u, select(call("isinf", t), t, div(mul(u, call("log", t)), sub(t, 1))))
