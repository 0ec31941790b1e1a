"""Run a LoopNest in plain Python: the oracle between lowering and code generation. Small sizes only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyopt.ir.affine import Affine
from polyopt.ir.expr import Access, Binary, Call, Cast, Compare, Const, Expr, IndexValue, Load, Scalar, Select, Unary
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode

Env = dict[str, Any]

_BINARY = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARE = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}
_CALL = {"exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh, "abs": np.abs, "floor": np.floor, "erf": math.erf, "log": np.log}


def run_loops(nest: LoopNest, arrays: Mapping[str, Any], scalars: Mapping[str, Any] | None = None, params: Mapping[str, int] | None = None) -> None:
    """Execute a nest on physical arrays, in place. Locals start as NaN (or the largest integer), so that reading before writing shows."""
    env: Env = {**(scalars or {}), **(params or {})}
    store = dict(arrays)
    for t in nest.tensors:
        if t.role == "local":
            shape = tuple(x.evaluate(params or {}) for x in t.shape)
            store[t.name] = np.full(shape, np.nan if t.dtype.is_float else 77, t.dtype.numpy)
    _run(nest.body, store, env)


def _run(body: tuple[LoopNode, ...], store: dict[str, Any], env: Env) -> None:
    for n in body:
        if isinstance(n, Loop):
            lo = max(x.evaluate(env) for x in n.lower)
            hi = min(x.evaluate(env) for x in n.upper)
            for v in range(lo, hi, n.step):
                env[n.var] = v
                _run(n.body, store, env)
        elif isinstance(n, If):
            _run(n.body if _value(n.cond, store, env) else n.orelse, store, env)
        elif isinstance(n, Instance):
            cell = _cell(n.write, store, env)
            value = _value(n.expr, store, env)
            a = store[n.write.tensor]
            a[cell] = value if n.reduction is None else _BINARY[n.reduction](a[cell], value)
        elif isinstance(n, Declare):
            store[n.tensor][...] = np.nan


def _cell(a: Access, store: dict[str, Any], env: Env) -> tuple[int, ...]:
    out = tuple(x.evaluate(env) if isinstance(x, Affine) else int(_value(x, store, env)) for x in a.indices)
    assert all(0 <= i < n for i, n in zip(out, store[a.tensor].shape)), f"{a} = {out} is out of bounds {store[a.tensor].shape}"
    return out


def _value(e: Expr, store: dict[str, Any], env: Env) -> Any:
    if isinstance(e, Const):
        return np.dtype(e.dtype.numpy).type(e.value)
    if isinstance(e, IndexValue):
        return np.dtype(e.dtype.numpy).type(e.index.evaluate(env))
    if isinstance(e, Scalar):
        return env[e.name]
    if isinstance(e, Load):
        return store[e.access.tensor][_cell(e.access, store, env)]
    if isinstance(e, Unary):
        x = _value(e.x, store, env)
        return -x if e.op == "-" else not x
    if isinstance(e, Binary) and e.op in ("and", "or"):
        return bool(_value(e.y, store, env)) if bool(_value(e.x, store, env)) == (e.op == "and") else e.op == "or"
    if isinstance(e, Binary):
        return _BINARY[e.op](_value(e.x, store, env), _value(e.y, store, env))
    if isinstance(e, Compare):
        return _COMPARE[e.op](_value(e.x, store, env), _value(e.y, store, env))
    if isinstance(e, Select):
        return _value(e.yes if _value(e.cond, store, env) else e.no, store, env)
    if isinstance(e, Cast):
        return np.dtype(e.dtype.numpy).type(_value(e.x, store, env))
    assert isinstance(e, Call)
    return _CALL[e.fn](*(_value(a, store, env) for a in e.args))
