"""Types of the operators. Takes typed expressions; gives typed expressions whose operands have one dtype.

The rules are NumPy's (NEP 50), so that the reference computes the same: the wider dtype wins (f32 op f64 is f64, i32 op f32 is f64), a
Python number takes the dtype of the other operand unless its kind is higher (i32 + 0.5 is f64), and Python numbers among
themselves are float64 and int64. `/` on integer tensors is refused; on Python integers (loop variables) it is Python's true division.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from polyopt.ir.dtype import DType, bool_, f32, f64, i64
from polyopt.ir.expr import INTRINSICS, Binary, Call, Cast, Compare, Const, Expr, IndexValue, Load, Scalar, Select, Unary

from .intrinsics import dtype_of_numpy, numpy_dtype
from .scope import Typed, number


class TypeRule(Exception):
    """Operands that an operator does not take; the text says why and what to do."""


def common_dtype(values: tuple[Typed, ...]) -> tuple[DType, bool]:
    """The dtype that all operands are brought to, and whether it is weak."""
    strong = [v.dtype for v in values if not v.weak]
    kinds = [v.dtype.kind for v in values if v.weak]
    if not strong:
        return (f64 if "f" in kinds else i64), True
    if any(t.name == "bf16" for t in strong):
        return _with_bf16(strong, kinds), False
    weak: list[Any] = [0.0 if k == "f" else 0 for k in kinds]
    found = dtype_of_numpy(np.result_type(*[numpy_dtype(t) for t in strong], *weak))
    if found is None or (found.is_float and all(t.kind in "iub" for t in strong) and "f" not in kinds):
        raise TypeRule(f"{' and '.join(sorted({t.name for t in strong}))} have no common integer dtype: cast one of them")
    return found, False


def _with_bf16(strong: list[DType], kinds: list[str]) -> DType:
    others = [t for t in strong if t.name != "bf16"]
    if any(t.name not in ("f32", "f64") for t in others):
        raise TypeRule(f"bf16 does not mix with {others[0].name}: cast both to f32")
    if others:
        return f64 if f64 in others else f32
    return f32 if "f" in kinds else strong[0]


def coerce(x: Typed | Expr, dtype: DType) -> Expr:
    """The expression as another dtype; constants and indices change their type, others are cast."""
    e = x.expr if isinstance(x, Typed) else x
    if e.dtype == dtype:
        return e
    if isinstance(e, Const) and not (e.dtype.is_float and not dtype.is_float):
        if dtype.is_integer and not _least(dtype) <= e.value <= _least(dtype) + (1 << dtype.bits) - 1:
            raise TypeRule(f"{e.value} does not fit {dtype}")
        value = float(e.value) if dtype.is_float else bool(e.value) if dtype == bool_ else int(e.value)
        return Const(value, dtype)
    if isinstance(e, IndexValue) and dtype.is_integer:
        return IndexValue(e.index, dtype)
    return Cast(e, dtype)


def _least(t: DType) -> int:
    return -(1 << (t.bits - 1)) if t.kind == "i" else 0


def truth(x: Typed) -> Expr:
    """The truth value: a bool as it is, a number as `x != 0`."""
    if x.dtype == bool_:
        return x.expr
    return Compare("!=", x.expr, Const(0.0 if x.dtype.is_float else 0, x.dtype))


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "pow": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def binary(op: str, x: Typed, y: Typed) -> Typed:
    """x op y."""
    if x.weak and y.weak and isinstance(x.expr, Const) and isinstance(y.expr, Const) and op in _FOLD:
        try:
            return number(_FOLD[op](x.expr.value, y.expr.value))
        except (ArithmeticError, TypeError, ValueError) as e:
            raise TypeRule(f"this constant cannot be computed: {e}") from None
    dtype, weak = common_dtype((x, y))
    if op in ("//", "%") and not dtype.is_float and isinstance(y.expr, Const) and not y.expr.value:
        raise TypeRule("this divides by zero")
    if op == "/" and not dtype.is_float:
        if not weak:
            raise TypeRule(f"/ on {dtype} tensors is refused: use // or cast to a float dtype first, as in f32(x)")
        dtype = f64
    if op in ("&", "|", "^", "<<", ">>") and dtype.is_float:
        raise TypeRule(f"{op} needs integers, not {dtype}")
    if dtype == bool_ and op not in ("&", "|", "^", "min", "max"):
        raise TypeRule(f"{op} on two bools is refused: use and, or, not, or cast to a number first")
    if op == "pow":
        return Typed(_power(coerce(x, dtype), coerce(y, dtype)), weak)
    return Typed(Binary(op, coerce(x, dtype), coerce(y, dtype)), weak)


def _power(x: Expr, y: Expr) -> Expr:
    if not isinstance(y, Const):
        return Binary("pow", x, y)
    if not x.dtype.is_float and y.value < 0:
        raise TypeRule("an integer to a negative power is not an integer: cast to a float dtype first")
    if y.value == 1:
        return x
    if y.value == 2 and isinstance(x, Load | Scalar | IndexValue):
        return Binary("*", x, x)
    return Binary("pow", x, y)


def compare(op: str, x: Typed, y: Typed) -> Typed:
    """x op y as a bool."""
    dtype, _ = common_dtype((x, y))
    return Typed(Compare(op, coerce(x, dtype), coerce(y, dtype)))


def select(cond: Expr, yes: Typed, no: Typed) -> Typed:
    """`yes if cond else no`."""
    dtype, weak = common_dtype((yes, no))
    return Typed(Select(cond, coerce(yes, dtype), coerce(no, dtype)), weak)


def negative(x: Typed) -> Typed:
    """-x."""
    if x.dtype == bool_:
        raise TypeRule("- on a bool is refused: use not, or cast to a number first")
    return Typed(negated(x.expr), x.weak)


def negated(e: Expr) -> Expr:
    """-e, folded into constants."""
    if isinstance(e, Const) and (e.dtype.is_float or -e.value >= _least(e.dtype)):
        return Const(-e.value, e.dtype)
    return Unary("-", e)


def cast(x: Typed, dtype: DType, weak: bool = False) -> Typed:
    """x converted as C does it."""
    if isinstance(x.expr, Const) and dtype.is_integer and x.dtype.is_float:
        return Typed(Const(int(x.expr.value), dtype), weak)
    return Typed(coerce(x, dtype), weak)


def call(fn: str, args: tuple[Typed, ...]) -> Typed:
    """An intrinsic. Integers become f64 where the function needs a float; abs and sign keep them, rounding leaves them as they are."""
    if fn in ("min", "max"):
        out = args[0]
        for a in args[1:]:
            out = binary(fn, out, a)
        return out
    if fn == "pow":
        return binary("pow", *args)
    dtype, weak = common_dtype(args) if len(args) > 1 else (args[0].dtype, args[0].weak)
    if not dtype.is_float:
        if fn in ("floor", "ceil", "round", "trunc"):
            return args[0]
        if fn in ("isnan", "isinf"):
            return Typed(Const(False, bool_))
        if fn not in ("abs", "sign") or dtype == bool_:
            dtype = f64
    assert fn in INTRINSICS
    return Typed(Call(fn, tuple(coerce(a, dtype) for a in args)), weak and fn not in ("isnan", "isinf"))
