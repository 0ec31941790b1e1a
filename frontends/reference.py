"""The original body of a loop nest as plain Python: the oracle. Takes the function's source and the arguments of a call; runs the body in
place on NumPy arrays, with the dims bound from the arrays' shapes.

The body is the user's text. Only names are given a meaning: dims become ints; calls of intrinsics, of min and max (which
propagate NaN), of dtypes and of local() and zeros() go to scalar functions that keep dtypes. Scalar arguments have their declared
dtype, so that every operation rounds as NumPy scalars do (NEP 50); floating-point warnings are off.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np

from polyopt.errors import ArgumentError
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.tensor import Tensor

from .assignments import local, zeros
from .intrinsics import SCALAR, callee, numpy_dtype
from .pysource import PySource

_PREFIX = "_polyopt_"


class _Rename(ast.NodeTransformer):
    """Gives dims, intrinsics, casts and local arrays names of their own."""

    def __init__(self, src: PySource) -> None:
        self.src = src
        self.dims: dict[str, Affine] = {}
        self.fixed: dict[str, Any] = {}

    def _known(self, name: str, value: Any) -> ast.expr:
        self.fixed[_PREFIX + name] = value
        return ast.Name(_PREFIX + name, ast.Load())

    def _dim(self, node: ast.expr) -> ast.expr | None:
        found = self.src.look_up(node)
        if not isinstance(found, Affine):
            return None
        name = f"{_PREFIX}dim{len(self.dims)}"
        self.dims[name] = found.substitute(self.src.sizes)
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return (self._dim(node) if isinstance(node.ctx, ast.Load) else None) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._dim(node) or self.generic_visit(node)  # type: ignore[return-value]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        dtype = self.src.resolve(node.annotation)
        self.generic_visit(node)
        if not isinstance(dtype, DType) or node.value is None:
            return node
        value = ast.Call(self._known(f"to_{dtype.name}", _caster(dtype)), [node.value], [])
        return ast.copy_location(ast.Assign([ast.Name(node.target.id, ast.Store())], value), node)  # type: ignore[union-attr]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        made = self.src.resolve(node.func)
        fn = callee(self.src, node.func)
        self.generic_visit(node)
        if made is local or made is zeros:
            node.func = self._known("local" if made is local else "zeros", _make_local if made is local else _make_zeros)
        elif isinstance(fn, DType):
            node.func = self._known(f"to_{fn.name}", _caster(fn))
        elif fn is not None:
            node.func = self._known(fn, SCALAR[fn])
        return node


def _caster(t: DType) -> Callable[[Any], Any]:
    made = numpy_dtype(t)
    return lambda x: np.asarray(x).astype(made)[()] if not isinstance(x, np.generic) else x.astype(made)


def _make_local(t: Any) -> Any:
    dtype = numpy_dtype(t.dtype)
    return np.full(t.shape, np.nan if t.dtype.is_float else 0).astype(dtype)


def _make_zeros(t: Any) -> Any:
    return np.zeros(t.shape, numpy_dtype(t.dtype))


class Reference:
    """The compiled original body. Call it with the arguments in order; dims that no shape gives are keywords."""

    def __init__(self, src: PySource) -> None:
        self.src = src
        tree = copy.deepcopy(src.tree)
        rename = _Rename(src)
        plain = ast.FunctionDef(tree.name, tree.args, [rename.visit(s) for s in tree.body], [], None)
        plain.type_params = []  # type: ignore[attr-defined]
        for a in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]:
            a.annotation = None
        ast.copy_location(plain, tree)
        module = ast.fix_missing_locations(ast.Module([plain], []))
        self.dims, self.fixed = rename.dims, rename.fixed
        self.code: CodeType = compile(module, src.filename, "exec")

    def run(self, args: list[Any], params: Mapping[str, int]) -> None:
        """Run on arrays and scalars of the right dtypes, with every dim given."""
        names: dict[str, Any] = dict(self.src.names)
        names |= self.fixed
        try:
            names |= {k: a.evaluate(params) for k, a in self.dims.items()}
        except KeyError as e:
            raise ArgumentError(f"{self.src.name}: the dim {e.args[0]} is in no array's shape: give it as a keyword") from None
        exec(self.code, names)
        with np.errstate(all="ignore"):
            names[self.src.name](*args)


def bind_dims(name: str, tensors: list[Tensor], arrays: list[Any], given: Mapping[str, int]) -> dict[str, int]:
    """The values of the dims from the shapes of the arrays; raises ArgumentError where they disagree."""
    values = dict(given)
    pairs = []
    for t, a in zip(tensors, arrays):
        if len(a.shape) != len(t.shape):
            raise ArgumentError(f"{name}: argument {t.name} has {len(a.shape)} dims, {len(t.shape)} are declared")
        pairs += [(t, k, x, int(n)) for k, (x, n) in enumerate(zip(t.shape, a.shape))]
    while True:
        before = len(values)
        for _, _, x, n in pairs:
            free = [v for v in x.names() if v not in values]
            if len(free) == 1 and x.is_linear_in(free[0]):
                rest = x.evaluate({**values, free[0]: 0})
                k = x.coefficient(free[0])
                if k and (n - rest) % k == 0:
                    values[free[0]] = (n - rest) // k
        if len(values) == before:
            break
    for t, axis, x, n in pairs:
        if any(v not in values for v in x.names()):
            raise ArgumentError(f"{name}: the size {x} of {t.name} gives no whole value for its dims, the array has {n}")
        if x.evaluate(values) != n:
            known = ", ".join(f"{k}={values[k]}" for k in sorted(x.names()))
            raise ArgumentError(f"{name}: dim {axis} of {t.name} is {n}, but {x} is {x.evaluate(values)}{' with ' + known if known else ''}")
    negative = [k for k, v in values.items() if v < 0]
    if negative:
        raise ArgumentError(f"{name}: {negative[0]} = {values[negative[0]]} is negative")
    return values
