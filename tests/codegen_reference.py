"""A LoopNest interpreter: every instance one element at a time with NumPy scalars. The oracle of the code generator's tests."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "bool_": np.bool_, "f32": np.float32, "f64": np.float64} | {
    f"{k}{b}": getattr(np, f"{w}{b}") for k, w in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)
}
CALLS = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "sign": np.sign, "isnan": np.isnan, "isinf": np.isinf, "fmod": np.fmod, "atan2": np.arctan2, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: math.erf(x),
}  # fmt: skip
COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
BINARY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "//": np.floor_divide, "%": np.remainder, "min": np.minimum,
    "max": np.maximum, "pow": np.power, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "<<": np.left_shift,
    ">>": np.right_shift, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def interpret(nest: LoopNest, arrays: Mapping[str, np.ndarray], scalars: Mapping[str, float] | None = None,
              params: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:  # fmt: skip
    """The arrays after the nest ran on copies of them."""
    env = dict(params or {})
    mem = {k: np.array(v) for k, v in arrays.items()}
    for t in nest.tensors:
        if t.role == "local":
            mem[t.name] = np.zeros([d.evaluate(env) for d in t.shape], NUMPY[t.dtype.name])
    with np.errstate(all="ignore"):
        _nodes(nest.body, env, mem, scalars or {})
    return mem


def _nodes(nodes: tuple[LoopNode, ...], env: dict[str, int], mem: dict[str, np.ndarray], scalars: Mapping[str, float]) -> None:
    for n in nodes:
        if isinstance(n, Loop):
            for v in range(max(b.evaluate(env) for b in n.lower), min(b.evaluate(env) for b in n.upper), n.step):
                _nodes(n.body, {**env, n.var: v}, mem, scalars)
        elif isinstance(n, If):
            _nodes(n.body if _value(n.cond, env, mem, scalars) else n.orelse, env, mem, scalars)
        elif isinstance(n, Instance):
            at = _cell(n.write, env, mem, scalars)
            new = _value(n.expr, env, mem, scalars)
            if n.reduction:
                new = BINARY[n.reduction](_wide(mem[n.write.tensor][at]), new)
            mem[n.write.tensor][at] = new
        else:
            assert isinstance(n, Declare | Prefetch)


def _cell(a: ex.Access, env: dict[str, int], mem: dict[str, np.ndarray], scalars: Mapping[str, float]) -> tuple[int, ...]:
    out = tuple(x.evaluate(env) if isinstance(x, Affine) else int(_value(x, env, mem, scalars)) for x in a.indices)
    assert all(0 <= i < n for i, n in zip(out, mem[a.tensor].shape, strict=True)), f"{a} out of bounds at {out}"
    return out


def _wide(x: np.generic) -> np.generic:
    return np.float32(x) if x.dtype in (np.float16, ml_dtypes.bfloat16) else x


def _value(e: ex.Expr, env: dict[str, int], mem: dict[str, np.ndarray], scalars: Mapping[str, float]) -> np.generic:
    kind = NUMPY[e.dtype.name]
    wide = np.float32 if e.dtype.name in ("f16", "bf16") else kind
    if isinstance(e, ex.Const):
        return wide(e.value)
    if isinstance(e, ex.IndexValue):
        return wide(e.index.evaluate(env))
    if isinstance(e, ex.Scalar):
        return wide(scalars[e.name])
    if isinstance(e, ex.Load):
        return _wide(mem[e.access.tensor][_cell(e.access, env, mem, scalars)])
    if isinstance(e, ex.Select):
        return _value(e.yes if _value(e.cond, env, mem, scalars) else e.no, env, mem, scalars)
    args = [_value(c, env, mem, scalars) for c in e.children()]
    if isinstance(e, ex.Unary):
        return {"-": np.negative, "not": np.logical_not, "~": np.invert}[e.op](args[0])
    if isinstance(e, ex.Binary):
        return BINARY[e.op](*args)
    if isinstance(e, ex.Compare):
        return COMPARE[e.op](*args)
    if isinstance(e, ex.Cast):
        return _wide(args[0].astype(kind))
    assert isinstance(e, ex.Call)
    return wide(CALLS[e.fn](*args)) if e.dtype.kind != "b" else CALLS[e.fn](*args)
