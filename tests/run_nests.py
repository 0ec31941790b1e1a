"""An interpreter of loop nests on NumPy arrays, the oracle's counterpart in tests of `polyopt.ops`.

Takes a `Definition`, the input arrays and the values of named dims; gives the output arrays. All points of a nest are evaluated at
once with index arrays; a nest that reads other cells of the tensor it writes (a scan) runs point by point. Every access is checked
to be in bounds, every plain write to be injective and every cell of an output to be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from polyopt.ir.affine import Affine, FloorDiv
from polyopt.ir.dtype import DType, bf16
from polyopt.ir.expr import (
    Access,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Load,
    Select,
    Unary,
    loads,
)  # fmt: skip
from polyopt.ir.graph import Value
from polyopt.ops.registry import Definition, Nest

Array = np.ndarray[Any, Any]
Points = dict[str, Array]


def np_type(d: DType) -> Any:
    return np.dtype(ml_dtypes.bfloat16) if d == bf16 else np.dtype(d.numpy)


def affine_at(a: Affine, at: Points) -> Array:
    total: Any = np.int64(a.const)
    for atom, k in a.terms:
        value = np.floor_divide(affine_at(atom.num, at), atom.den) if isinstance(atom, FloorDiv) else at[atom]
        total = total + k * value
    return np.asarray(total)


def np_erf(x: Array) -> Array:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype) if x.size else x


CALLS: dict[str, Any] = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "erf": np_erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2, "round": np.rint,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "min": np.minimum, "max": np.maximum,
    "pow": np.power, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": np.left_shift, ">>": np.right_shift,
    "and": np.logical_and, "or": np.logical_or, "/": np.divide,
}  # fmt: skip
COMPARE: dict[str, Any] = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
UPDATE: dict[str, Any] = {"+": np.add, "*": np.multiply, "min": np.minimum, "max": np.maximum}


class _Run:
    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays

    def cell(self, a: Access, at: Points, n: int) -> tuple[Array, ...]:
        shape = self.arrays[a.tensor].shape
        assert len(a.indices) == len(shape), f"{a} on rank {len(shape)}"
        out = []
        for i, size in zip(a.indices, shape):
            v = np.broadcast_to(affine_at(i, at) if isinstance(i, Affine) else self.value(i, at, n), (n,)).astype(np.int64)
            assert n == 0 or (v.min() >= 0 and v.max() < size), f"{a}: index {i} in [{v.min()}, {v.max()}] of a dim of {size}"
            out.append(v)
        return tuple(out)

    def value(self, x: Expr, at: Points, n: int) -> Array:
        if isinstance(x, Const):
            return np.asarray(x.value, np_type(x.dtype))
        if isinstance(x, IndexValue):
            assert x.dtype.is_integer
            return affine_at(x.index, at).astype(np_type(x.dtype))
        if isinstance(x, Load):
            got = self.arrays[x.access.tensor]
            assert got.dtype == np_type(x.dtype), f"{x} is loaded as {x.dtype} from {got.dtype}"
            return np.broadcast_to(got[self.cell(x.access, at, n)], (n,))
        if isinstance(x, Select):
            cond = np.broadcast_to(self.value(x.cond, at, n), (n,))
            out = np.empty(n, np_type(x.dtype))
            for side, mask in ((x.yes, cond), (x.no, ~cond)):
                assert side.dtype == x.dtype, f"select of {x.yes.dtype} and {x.no.dtype}"
                part = {k: v[mask] if np.ndim(v) else v for k, v in at.items()}
                out[mask] = np.broadcast_to(self.value(side, part, int(mask.sum())), (int(mask.sum()),))
            return out
        args = [self.value(c, at, n) for c in x.children()]
        if isinstance(x, Binary | Compare):
            assert x.x.dtype == x.y.dtype, f"{x.x.dtype} {x.op} {x.y.dtype}"
            assert not (x.op == "/" and x.x.dtype.is_integer), "integer /"
            return np.asarray((BINARY if isinstance(x, Binary) else COMPARE)[x.op](*args)).astype(np_type(x.dtype), copy=False)
        if isinstance(x, Unary):
            return np.asarray({"-": np.negative, "not": np.logical_not, "~": np.invert}[x.op](args[0]))
        if isinstance(x, Call):
            assert x.args[0].dtype.is_float, f"{x.fn} of {x.args[0].dtype}"
            return np.asarray(CALLS.get(x.fn, getattr(np, x.fn, None))(*args)).astype(np_type(x.dtype), copy=False)
        assert isinstance(x, Cast), x
        source = args[0].astype(np.float32) if args[0].dtype == ml_dtypes.bfloat16 else args[0]
        return np.asarray(source).astype(np_type(x.dtype))

    def nest(self, s: Nest, dims: Mapping[str, int], written: dict[str, Array]) -> None:
        sizes = [int(affine_at(e, {k: np.asarray(v) for k, v in dims.items()})) for _, e in s.iters]
        names = [n for n, _ in s.iters]
        assert len(set(names)) == len(names) and not set(names) & set(dims), f"iterators {names} with dims {list(dims)}"
        grid = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), np.int64)
        n = grid.shape[1]
        at: Points = {**{k: np.asarray(v) for k, v in dims.items()}, **{k: grid[i] for i, k in enumerate(names)}}
        keep = np.ones(n, np.bool_)
        for c in s.where:
            keep &= np.broadcast_to(affine_at(c, at) >= 0, (n,))
        at = {k: v[keep] if np.ndim(v) else v for k, v in at.items()}
        n = int(keep.sum())
        if any(x.access.tensor == s.write.tensor and x.access != s.write for x in loads(s.expr)):
            for p in range(n):
                self.points(s, {k: v[p : p + 1] if np.ndim(v) else v for k, v in at.items()}, 1)
        else:
            self.points(s, at, n, check=True)
        written[s.write.tensor][self.cell(s.write, at, n)] = True

    def points(self, s: Nest, at: Points, n: int, check: bool = False) -> None:
        target, cell = self.arrays[s.write.tensor], self.cell(s.write, at, n)
        assert np_type(s.expr.dtype) == target.dtype, f"{s.expr.dtype} into {target.dtype}"
        v = np.broadcast_to(self.value(s.expr, at, n), (n,))
        if not cell:  # a scalar is one cell of a vector
            target, cell = target.reshape(1), (np.zeros(n, np.int64),)
        if s.reduction is not None:
            UPDATE[s.reduction].at(target, cell, v)
            return
        if check:
            flat = np.ravel_multi_index(cell, target.shape) if n else np.zeros(0)
            assert len(np.unique(flat)) == n, f"{s.write} is written twice"
        target[cell] = v


def run_definition(d: Definition, inputs: Mapping[str, Array], outs: Sequence[Value], dims: Mapping[str, int] | None = None) -> list[Array]:
    """The outputs that the nests compute. Cells start as garbage; each cell of an output must be written."""
    dims = dims or {}
    arrays = dict(inputs)
    at = {k: np.asarray(v) for k, v in dims.items()}
    for t in [*outs, *d.locals]:
        assert t.shape is not None and t.dtype is not None
        shape = tuple(int(affine_at(s, at)) for s in t.shape)
        assert t.name not in arrays, f"{t.name} is an input"
        arrays[t.name] = np.full(shape, 99, np_type(t.dtype))
    written = {k: np.zeros(v.shape, np.bool_) for k, v in arrays.items()}
    runner = _Run(arrays)
    with np.errstate(all="ignore"):
        for s in d.nests:
            assert s.write.tensor not in inputs, f"{s.write} writes an input"
            for x in loads(s.expr):
                assert x.access.tensor in arrays, f"{x} is not declared"
            runner.nest(s, dims, written)
    for o in outs:
        if o.name:
            assert written[o.name].all(), f"cells of {o.name} are never written"
    return [arrays[o.name] for o in outs]
