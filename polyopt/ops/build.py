"""Builders of shape rules and loop nests, so that each operator is a few readable lines.

Takes `Value`s, `Tensor`s and `Known`; gives iterators, accesses, `Nest`s and registered `Op`s. All indices are affine in the
iterators and the named dims, which are assumed to be at least 1. 16-bit floats are loaded as f32 and narrowed when stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, NoReturn, Union

import ml_dtypes
import numpy as np

from ..errors import ModelError
from ..ir.affine import Affine, AffineLike, affine, var
from ..ir.dtype import BY_NAME, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from ..ir.expr import Access, Expr, Load
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor
from .exprs import Operand, cast, lit, mul, value_of, wide
from .registry import Array, Definition, Known, Nest, Op, register
from .tidy import Iters as Iters
from .tidy import dim_names, hide, hide_known, reveal, reveal_nest, tidy

Named = Union[Value, Tensor]
Ins = Sequence[Value | None]
Typed = tuple[DType, Shape | None]
Infer = Callable[[Node, Ins, Known], Sequence[Typed]]
Define = Callable[[Node, Ins, Sequence[Value], Known], Definition]
Reference = Callable[[Node, Sequence[Array | None]], Sequence[Array]]

ONE = affine(1)
FLOATS = (f16, bf16, f32, f64)
SIGNED = (i8, i16, i32, i64)
UNSIGNED = (u8, u16, u32, u64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ONNX_DTYPES = {1: f32, 2: u8, 3: i8, 4: u16, 5: i16, 6: i32, 7: i64, 9: bool_, 10: f16, 11: f64, 12: u32, 13: u64, 16: bf16}


# ---- questions about inputs, answered or refused in one line
def fail(reason: str) -> NoReturn:
    """Refuse the node; the caller adds its name."""
    raise ModelError(reason)


def dtype_of(t: Named | None) -> DType:
    """The dtype, which must be known."""
    if t is None or t.dtype is None:
        fail(f"the dtype of '{t.name if t else ''}' is not known")
    return t.dtype


def shape_of(t: Named | None) -> Shape:
    """The shape, which must be known."""
    if t is None or t.shape is None:
        fail(f"the shape of '{t.name if t else ''}' is not known at compile time")
    return t.shape


def present(ins: Ins, k: int) -> Value | None:
    """Input k, or None where it is absent."""
    return ins[k] if k < len(ins) else None


def need(ins: Ins, k: int) -> Value:
    """Input k, which must be there."""
    v = present(ins, k)
    if v is None:
        fail(f"input {k} is missing")
    return v


def check_dtype(t: Named, allowed: Sequence[DType]) -> DType:
    """The dtype, which must be one of `allowed`."""
    d = dtype_of(t)
    if d not in allowed:
        fail(f"'{t.name}' has dtype {d}, which is not allowed here (allowed: {', '.join(a.name for a in allowed)})")
    return d


def known_array(ins: Ins, k: int, known: Known, what: str) -> Array:
    """The value of input k, which must be known at compile time."""
    v = need(ins, k)
    if v.name not in known:
        fail(f"{what} ('{v.name}') must be known at compile time")
    return np.asarray(known[v.name])


def known_dims(ins: Ins, k: int, known: Known, what: str) -> list[Affine]:
    """The integer vector of input k, entries affine in the named dims."""
    return [affine(x if isinstance(x, Affine) else int(x)) for x in known_array(ins, k, known, what).reshape(-1)]


def known_ints(ins: Ins, k: int, known: Known, what: str) -> list[int]:
    """The integer vector of input k, which must not depend on a named dim."""
    return [static(x, what) for x in known_dims(ins, k, known, what)]


def static(x: AffineLike, what: str) -> int:
    """The value of an affine expression that must be a constant."""
    a = affine(x)
    if not a.is_const:
        fail(f"{what} is {a}, which must be a constant: bind {', '.join(sorted(a.names()))}")
    return a.const


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """The axis counted from 0."""
    if not -rank <= axis < max(rank, 1):
        fail(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def axes_of(axes: Iterable[int], rank: int) -> list[int]:
    """Axes counted from 0, each once."""
    out = [axis_of(int(a), rank) for a in axes]
    if len(set(out)) != len(out):
        fail(f"axes {list(axes)} name one axis twice")
    return out


def show(shape: Shape) -> str:
    """A shape for messages."""
    return f"[{', '.join(map(str, shape))}]"


# ---- dims
def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that all shapes broadcast to."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Affine] = [ONE] * rank
    for s in shapes:
        for k, d in enumerate(s, rank - len(s)):
            if out[k] == ONE:
                out[k] = d
            elif d not in (ONE, out[k]):
                bind = ", ".join(sorted(out[k].names() | d.names()))
                fail(f"shapes {' and '.join(map(show, shapes))} do not broadcast: {out[k]} against {d} in dim {k}"
                     + (f"; bind {bind}" if bind else ""))  # fmt: skip
    return tuple(out)


def content(x: Affine) -> tuple[int, Affine]:
    """(g, x/g) with the greatest constant factor g of the expression; (x, 1) for a constant."""
    if x.is_const:
        return x.const, ONE
    g = abs(x.const)
    for _, k in x.terms:
        g = gcd(g, k)
    return g, Affine(tuple((a, k // g) for a, k in x.terms), x.const // g)


def product(shape: Iterable[Affine], what: str = "a product of dims") -> Affine:
    """The product of dims, of which at most one may be symbolic."""
    out = ONE
    for d in shape:
        if not (out.is_const or d.is_const):
            fail(f"{what} multiplies {out} by {d}, which is not affine: bind one of {', '.join(sorted(out.names() | d.names()))}")
        out = out * d
    return out


def count(shape: Iterable[Affine], dtype: DType) -> Expr:
    """The number of elements as a value, also where two dims are symbolic."""
    dims = list(shape)
    out: Expr = lit(prod(d.const for d in dims if d.is_const), dtype)
    for d in dims:
        if not d.is_const:
            out = mul(out, value_of(d, dtype))
    return out


# ---- iterators, accesses, loads
def iters(shape: Iterable[Affine], prefix: str = "i") -> Iters:
    """Iterators i0, i1, … over a box."""
    return tuple((f"{prefix}{k}", d) for k, d in enumerate(shape))


def points(its: Iters) -> tuple[Affine, ...]:
    """The iterators as indices."""
    return tuple(var(n) for n, _ in its)


def align(shape: Shape, out: Shape, at: Sequence[Affine]) -> tuple[Affine, ...]:
    """The index into a tensor that broadcasts to `out`, at the point `at` of `out`."""
    skip = len(out) - len(shape)
    return tuple(i if d == o else affine(0) for d, o, i in zip(shape, out[skip:], at[skip:]))


def access(t: Named, at: Sequence[AffineLike | Expr]) -> Access:
    """An element of a tensor."""
    return Access(t.name, tuple(i if isinstance(i, Expr) else affine(i) for i in at))


def raw(t: Named, at: Sequence[AffineLike | Expr]) -> Load:
    """A load in the storage type."""
    return Load(access(t, at), dtype_of(t))


def load(t: Named, at: Sequence[AffineLike | Expr]) -> Expr:
    """A load in the type that arithmetic is done in."""
    return cast(raw(t, at), wide(dtype_of(t)))


def scalar_known(t: Named, known: Known) -> Expr | None:
    """The literal that a tensor of one element is known to be, in the type of arithmetic. None where it is not, and for NaN."""
    a = known.get(t.name)
    if a is None or np.size(a) != 1:
        return None
    x, dtype = np.asarray(a).reshape(-1)[0], wide(dtype_of(t))
    if isinstance(x, Affine):
        return value_of(x, dtype)
    return None if dtype.is_float and np.isnan(x) else lit(x.item() if isinstance(x, np.generic) else x, dtype)


def operand(t: Named, at: Sequence[AffineLike | Expr], known: Known) -> Expr:
    """A load, or the literal where the tensor is one known element."""
    literal = scalar_known(t, known)
    return load(t, at) if literal is None else literal


def store(t: Named, at: Sequence[AffineLike | Expr], its: Iters, e: Operand, reduction: str | None = None,
          where: Sequence[Affine] = ()) -> Nest:  # fmt: skip
    """For all iterators: t[at] (reduction)= e, narrowed to the tensor's type."""
    d = dtype_of(t)
    return Nest(its, access(t, at), cast(e, d) if isinstance(e, Expr) else lit(e, d), reduction, tuple(where))


def local(node: Node, suffix: str, dtype: DType, shape: Sequence[Affine]) -> Tensor:
    """A local tensor of the node."""
    return Tensor(f"{node.name or node.outputs[0]}__{suffix}", dtype, tuple(shape))


def accumulator(node: Node, out: Named, suffix: str = "acc") -> tuple[Named, tuple[Tensor, ...], tuple[Nest, ...]]:
    """Where a sum that ends in `out` is kept: `out` itself, or for 16-bit floats a local in f32 with the nest that stores it."""
    d, shape = dtype_of(out), shape_of(out)
    if wide(d) == d:
        return out, (), ()
    acc = local(node, suffix, wide(d), shape)
    its = iters(shape)
    return acc, (acc,), (store(out, points(its), its, raw(acc, points(its))),)


def nonempty_outputs(node: Node, outs: Sequence[Value], k: int) -> Value | None:
    """Output k where the node has it."""
    return outs[k] if k < len(node.outputs) and node.outputs[k] and k < len(outs) else None


# ---- registration
def operator(
    name: str, infer: Infer, define: Define | None, reference: Reference, *,
    arity: tuple[int, int] = (1, 1), consts: tuple[int, ...] = (), view: bool = False, domain: str = "",
) -> Op:  # fmt: skip
    """Register an operator that takes from arity[0] to arity[1] inputs. Definitions are tidied, references run without warnings."""
    least, most = arity

    def checked(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
        if not least <= len(node.inputs) <= most:
            fail(f"{name} takes {least if least == most else f'{least} to {most}'} inputs, not {len(node.inputs)}")
        for k in range(least):
            need(ins, k)
        return infer(node, ins, known)

    def defined(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
        assert define is not None
        dims = dim_names(ins, outs)
        if not dims:
            d = define(node, ins, outs, known)
            return Definition(tuple(t for n in d.nests if (t := tidy(n)) is not None), d.locals)
        inside = {k: hide_known(np.asarray(known[k])) for k in node.inputs if k in known}
        d = define(node, [None if v is None else hide(v) for v in ins], [hide(v) for v in outs], inside)
        nests = tuple(reveal_nest(t, dims) for n in d.nests if (t := tidy(n)) is not None)
        return Definition(nests, tuple(replace(t, shape=tuple(map(reveal, t.shape))) for t in d.locals))

    def computed(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(a) for a in reference(node, arrays)]

    return register(Op(name, checked, defined if define else None, computed, domain, consts, view))


# ---- NumPy side
def np_dtype(d: DType) -> np.dtype[Any]:
    """The NumPy dtype."""
    return np.dtype(ml_dtypes.bfloat16) if d == bf16 else np.dtype(d.numpy)


def onnx_dtype(code: Any) -> DType:
    """The dtype of an attribute: an ONNX enum value, a name or a `DType`."""
    d = code if isinstance(code, DType) else BY_NAME.get(code) if isinstance(code, str) else ONNX_DTYPES.get(int(code))
    if d is None:
        fail(f"dtype {code} is not supported")
    return d


def widen(a: Array) -> Array:
    """16-bit floats as f32."""
    return a.astype(np.float32) if a.dtype in (np.float16, np.dtype(ml_dtypes.bfloat16)) else a


def array(arrays: Sequence[Array | None], k: int) -> Array:
    """Input k, which is there."""
    a = arrays[k]
    assert a is not None
    return a


def maybe(arrays: Sequence[Array | None], k: int) -> Array | None:
    """Input k, or None where it is absent."""
    return arrays[k] if k < len(arrays) else None
