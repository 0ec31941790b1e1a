"""Scalar expressions of a statement. Takes dtypes and affine indices; gives frozen trees whose leaves are loads, constants and indices.

An `Access` names a tensor and one index per dim. An index is `Affine` in the statement's iterators and the parameters, or an
`Expr` of integer dtype that itself loads (an indirect read such as A[idx[i]]).
Operators: `Binary.op` in ``+ - * / // % min max pow & | ^ << >> and or``, `Compare.op` in ``< <= > >= == !=``,
`Unary.op` in ``- not ~``; `Call.fn` in `INTRINSICS`.
min and max propagate NaN like NumPy. ``//`` and ``%`` floor, like Python. Integer ``/`` is refused by the front ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Union

from .affine import Affine, AffineLike, affine
from .dtype import DType, bool_

INTRINSICS = {  # name -> number of arguments
    "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "tanh": 1, "erf": 1, "sigmoid": 1, "sin": 1, "cos": 1, "tan": 1,
    "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "abs": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "sign": 1, "isnan": 1, "isinf": 1, "fmod": 2, "atan2": 2,
}  # fmt: skip


class Expr:
    """Base of all expressions. `dtype` is the type of the value."""

    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        """Direct operands (an indirect index counts as an operand of its load)."""
        return ()


@dataclass(frozen=True)
class Const(Expr):
    """A literal."""

    value: float | int | bool
    dtype: DType


@dataclass(frozen=True)
class IndexValue(Expr):
    """An affine expression of the iterators and parameters used as a value (of an integer dtype)."""

    index: Affine
    dtype: DType


@dataclass(frozen=True)
class Scalar(Expr):
    """A scalar argument of the kernel, such as alpha."""

    name: str
    dtype: DType


Index = Union[Affine, Expr]


@dataclass(frozen=True)
class Access:
    """One element of a tensor: an index for each (physical) dim."""

    tensor: str
    indices: tuple[Index, ...]

    @property
    def is_affine(self) -> bool:
        """Whether no index is indirect."""
        return all(isinstance(x, Affine) for x in self.indices)

    def affine_indices(self) -> tuple[Affine, ...]:
        """The indices, which must all be affine."""
        out = []
        for x in self.indices:
            if not isinstance(x, Affine):
                raise TypeError(f"{self} has an indirect index")
            out.append(x)
        return tuple(out)

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(str(x) for x in self.indices)}]"


@dataclass(frozen=True)
class Load(Expr):
    """A read."""

    access: Access
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return tuple(x for x in self.access.indices if isinstance(x, Expr))

    def __str__(self) -> str:
        return str(self.access)


@dataclass(frozen=True)
class Unary(Expr):
    """-x, not x, ~x."""

    op: str
    x: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_ if self.op == "not" else self.x.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)


@dataclass(frozen=True)
class Binary(Expr):
    """x op y, both operands of the same dtype."""

    op: str
    x: Expr
    y: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_ if self.op in ("and", "or") else self.x.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.x, self.y)


@dataclass(frozen=True)
class Compare(Expr):
    """x op y as a bool, both operands of the same dtype."""

    op: str
    x: Expr
    y: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_

    def children(self) -> tuple[Expr, ...]:
        return (self.x, self.y)


@dataclass(frozen=True)
class Select(Expr):
    """`yes if cond else no`. Only the chosen side's loads need to be in bounds; emitters may evaluate both only where that is safe."""

    cond: Expr
    yes: Expr
    no: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.yes.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.yes, self.no)


@dataclass(frozen=True)
class Cast(Expr):
    """A conversion, as C does it (float to int truncates; to bool is `x != 0`)."""

    x: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)


@dataclass(frozen=True)
class Call(Expr):
    """An intrinsic of `INTRINSICS`."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_ if self.fn in ("isnan", "isinf") else self.args[0].dtype

    def children(self) -> tuple[Expr, ...]:
        return self.args


def walk(e: Expr) -> Iterator[Expr]:
    """All nodes, parents first."""
    yield e
    for c in e.children():
        yield from walk(c)


def loads(e: Expr) -> tuple[Load, ...]:
    """All reads of an expression, in evaluation order (reads inside indirect indices included)."""
    return tuple(x for x in walk(e) if isinstance(x, Load))


def rewrite(e: Expr, fn: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up: `fn` is asked for each node after its operands; None keeps the node."""
    new: Expr = e
    if isinstance(e, Load):
        new = replace(e, access=rewrite_access(e.access, fn))
    elif isinstance(e, Unary | Cast):
        new = replace(e, x=rewrite(e.x, fn))
    elif isinstance(e, Binary | Compare):
        new = replace(e, x=rewrite(e.x, fn), y=rewrite(e.y, fn))
    elif isinstance(e, Select):
        new = Select(rewrite(e.cond, fn), rewrite(e.yes, fn), rewrite(e.no, fn))
    elif isinstance(e, Call):
        new = Call(e.fn, tuple(rewrite(a, fn) for a in e.args))
    out = fn(new)
    return new if out is None else out


def rewrite_access(a: Access, fn: Callable[[Expr], Expr | None]) -> Access:
    """Rewrite the indirect indices of an access."""
    if a.is_affine:
        return a
    return Access(a.tensor, tuple(rewrite(x, fn) if isinstance(x, Expr) else x for x in a.indices))


def substitute(e: Expr, values: Mapping[str, AffineLike]) -> Expr:
    """Replace iterators by affine expressions, in indices and index values."""

    def visit(x: Expr) -> Expr | None:
        if isinstance(x, Load):
            return Load(substitute_access(x.access, values), x.dtype)
        if isinstance(x, IndexValue):
            return IndexValue(x.index.substitute(values), x.dtype)
        return None

    return rewrite(e, visit)


def substitute_access(a: Access, values: Mapping[str, AffineLike]) -> Access:
    """Replace iterators in the affine indices of an access (indirect ones are rewritten by `substitute`)."""
    return Access(a.tensor, tuple(x.substitute(values) if isinstance(x, Affine) else x for x in a.indices))


def index(x: AffineLike) -> Affine:
    """An index from an int, a name or an affine expression."""
    return affine(x)


def neutral_element(op: str, dtype: DType) -> float | int:
    """The value that an update by `op` leaves alone (-0.0 for sums: 0.0 would turn -0.0 into 0.0)."""
    if op == "+":
        return -0.0 if dtype.is_float else 0
    if op == "*":
        return 1
    if dtype.is_float:
        return float("inf") if op == "min" else float("-inf")
    signed = dtype.kind == "i"
    top = (1 << (dtype.bits - signed)) - 1
    return top if op == "min" else -top - 1 if signed else 0


def split_linear(e: Expr, x: Access) -> tuple[float, Expr | None] | None:
    """The factor c and the rest r with e = c * x + r in real numbers, where e is linear in the loads of one element; None where it is not.

    A rest of None is zero. Products and quotients by constants are multiplied out, so that rounding differs from that of `e`.
    """
    if isinstance(e, Load) and e.access == x:
        return 1.0, None
    if all(y.access != x for y in loads(e)):
        return 0.0, e
    if isinstance(e, Unary) and e.op == "-":
        part = split_linear(e.x, x)
        return None if part is None else (-part[0], None if part[1] is None else Unary("-", part[1]))
    if not isinstance(e, Binary):
        return None
    if e.op in ("+", "-"):
        left, right = split_linear(e.x, x), split_linear(e.y, x)
        if left is None or right is None:
            return None
        sign = 1.0 if e.op == "+" else -1.0
        return left[0] + sign * right[0], _sum(e.op, left[1], right[1])
    for scale, scaled in ((e.y, e.x), (e.x, e.y)) if e.op == "*" else ((e.y, e.x),):
        if e.op in ("*", "/") and isinstance(scale, Const) and scale.value:
            inner = split_linear(scaled, x)
            k = float(scale.value) if e.op == "*" else 1.0 / float(scale.value)
            return None if inner is None else (inner[0] * k, None if inner[1] is None else Binary(e.op, inner[1], scale))
    return None


def _sum(op: str, x: Expr | None, y: Expr | None) -> Expr | None:
    if y is None:
        return x
    if x is None:
        return y if op == "+" else Unary("-", y)
    return Binary(op, x, y)
