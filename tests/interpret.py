"""The second oracle: executes a Scop instance by instance in the order of its schedule. Takes a Scop, arrays by tensor name, scalars and
parameter values; works on the arrays in place.

Slow and simple on purpose. Each instance of the domain runs exactly once; ties of the schedule run in an arbitrary order (`shuffle`
permutes them). Arithmetic is that of NumPy scalars in the dtype of each node, the accumulator included; an index that leaves its
tensor raises IndexError, as does one that would wrap around.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import islpy as isl
import ml_dtypes
import numpy as np

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import OUT, SET, fix_params, maps_of

Array = np.ndarray[Any, Any]
Env = dict[str, int]
Arrays = dict[str, Array]
_INT = re.compile(r"-?\d+")


def numpy_dtype(t: DType) -> np.dtype[Any]:
    """The NumPy dtype of a dtype."""
    return np.dtype(ml_dtypes.bfloat16) if t.name == "bf16" else np.dtype(t.numpy)


def tensor_shape(t: Tensor, params: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor at concrete parameters."""
    return tuple(x.evaluate(params) for x in t.shape)


def run_scop(
    scop: Scop, arrays: Mapping[str, Array], scalars: Mapping[str, Any] | None = None, params: Mapping[str, int] | None = None,
    shuffle: random.Random | None = None,
) -> Arrays:  # fmt: skip
    """Execute a Scop. `arrays` holds every tensor that is not local (constants with a `source` may be left out); written in place.

    Returns all arrays by name, locals included. Locals start as NaN or the least integer, so that an undefined read shows.
    """
    params = dict(params or {})
    missing = [p for p in scop.params if p not in params]
    if missing:
        raise ValueError(f"no value is given for the parameters {missing}")
    if fix_params(scop.context, params).is_empty():
        raise ValueError(f"{params} is outside the context {scop.context}")
    memory = allocate(scop, arrays, params)
    values = {s.name: numpy_dtype(s.dtype).type((scalars or {})[s.name]) for s in scop.scalars}
    runners = {s.name: _statement(scop, s, memory, values) for s in scop.statements}
    iters = {s.name: s.iters for s in scop.statements}
    with np.errstate(all="ignore"):
        for name, point in instances(scop, params, shuffle):
            runners[name]({**params, **dict(zip(iters[name], point))})
    return memory


def allocate(scop: Scop, arrays: Mapping[str, Array], params: Mapping[str, int]) -> Arrays:
    """All arrays of a Scop: those given, with their shapes checked, and fresh ones for locals and repacked constants."""
    memory: Arrays = {}
    for t in sorted(scop.tensors, key=lambda t: t.source is not None):
        shape = tensor_shape(t, params)
        if t.name in arrays:
            memory[t.name] = arrays[t.name]
            if arrays[t.name].shape != shape or arrays[t.name].dtype != numpy_dtype(t.dtype):
                raise ValueError(f"{t.name} is {arrays[t.name].dtype}{arrays[t.name].shape}, not {t.dtype}{shape}")
        elif t.source is not None:
            memory[t.name] = _packed(t, shape, (memory.get(t.source[0]) if t.source[0] in memory else arrays[t.source[0]]), params)
        elif t.role == "local":
            memory[t.name] = np.full(shape, _poison(t.dtype)).astype(numpy_dtype(t.dtype))
        else:
            raise ValueError(f"no array is given for the {t.role} {t.name}")
    return memory


def _poison(t: DType) -> Any:
    return np.nan if t.is_float else False if t.kind == "b" else np.iinfo(numpy_dtype(t)).min


def _packed(t: Tensor, shape: tuple[int, ...], source: Any, params: Mapping[str, int]) -> Array:
    assert t.source is not None
    out = np.zeros(shape, numpy_dtype(t.dtype))
    for point in product(*(range(n) for n in shape)):
        env = {**params, **{f"d{k}": v for k, v in enumerate(point)}}
        index = tuple(x.evaluate(env) for x in t.source[1])
        if all(0 <= i < n for i, n in zip(index, source.shape)):
            out[point] = source[index]
    return out


# ---- order
def instances(scop: Scop, params: Mapping[str, int], shuffle: random.Random | None = None) -> list[tuple[str, tuple[int, ...]]]:
    """The instances of all statements at concrete parameters, in the order of the schedule."""
    dates = fix_params(scop.schedule.get_map().intersect_domain(scop.schedule.get_domain()), params)
    found: list[tuple[tuple[int, ...], float, str, tuple[int, ...]]] = []
    width = max((m.dim(OUT) for m in maps_of(scop.schedule.get_map())), default=0)
    known = {s.name for s in scop.statements}
    for m in maps_of(dates):
        name, n = m.get_tuple_name(isl.dim_type.in_), m.dim(isl.dim_type.in_)
        if name not in known:
            raise AssertionError(f"the schedule orders {name}, which is no statement of {sorted(known)}")
        for point in _points(m.intersect_params(fix_params(scop.context, params)).wrap().flatten()):
            date = point[n:] + (0,) * (width - (len(point) - n))
            found.append((date, shuffle.random() if shuffle else 0.0, name, point[:n]))
    wanted = {(s.name, p) for s in scop.statements for p in _points(fix_params(s.domain, params).intersect_params(fix_params(scop.context, params)))}
    got = [(name, p) for _, _, name, p in found]
    if len(got) != len(set(got)):
        twice = next(x for x in got if got.count(x) > 1)
        raise AssertionError(f"the schedule runs {twice} more than once")
    if set(got) != wanted:
        raise AssertionError(f"the schedule and the domains differ in {sorted(set(got) ^ wanted)[:5]}")
    return [(name, p) for _, _, name, p in sorted(found)]


def _points(s: isl.Set) -> list[tuple[int, ...]]:
    if s.is_empty():
        return []
    n = s.dim(SET)
    s = s.project_out(isl.dim_type.param, 0, s.dim(isl.dim_type.param))
    if not s.is_bounded():
        raise AssertionError(f"unbounded at concrete parameters: {s}")
    texts: list[str] = []
    s.foreach_point(lambda p: texts.append(str(p)))
    return [tuple(int(x) for x in _INT.findall(t.split("[", 1)[1].split("]")[0])) if n else () for t in texts]


# ---- statements
def _statement(scop: Scop, s: Statement, memory: Arrays, scalars: Mapping[str, Any]) -> Callable[[Env], None]:
    value = compile_expr(s.expr, memory, scalars)
    place = _cell(s.write, memory, scalars)
    target = memory[s.write.tensor]
    cast = target.dtype.type
    if s.reduction is None:

        def store(env: Env) -> None:
            target[place(env)] = cast(value(env))

        return store
    combine = _BINARY[s.reduction]

    def update(env: Env) -> None:
        at = place(env)
        target[at] = cast(combine(target[at], value(env)))

    return update


def _cell(a: ex.Access, memory: Arrays, scalars: Mapping[str, Any]) -> Callable[[Env], tuple[int, ...]]:
    parts: list[Callable[[Env], Any]] = [x.evaluate if isinstance(x, Affine) else compile_expr(x, memory, scalars) for x in a.indices]
    array = memory[a.tensor]
    if len(parts) != array.ndim:
        raise AssertionError(f"{a} has {len(parts)} indices, the tensor {array.ndim} dims")

    def cell(env: Env) -> tuple[int, ...]:
        index = tuple(int(p(env)) for p in parts)
        for i, n in zip(index, array.shape):
            if not 0 <= i < n:
                raise IndexError(f"{a} at {env} is {index}, out of {array.shape}")
        return index

    return cell


def _floor_div(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y)


def _shift_left(x: Any, y: Any) -> Any:
    return np.left_shift(x, y)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": _floor_div, "%": np.remainder,
    "min": np.minimum, "max": np.maximum, "pow": np.power, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": _shift_left, ">>": np.right_shift,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _double(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: fn(np.float64(x))


_CALLS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": _double(lambda x: 1.0 / np.sqrt(x)), "tanh": np.tanh,
    "erf": _double(math.erf), "sigmoid": _double(lambda x: 1.0 / (1.0 + np.exp(-x))), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.round,
    "trunc": np.trunc, "sign": np.sign, "isnan": np.isnan, "isinf": np.isinf, "fmod": np.fmod, "atan2": np.arctan2,
}  # fmt: skip


def compile_expr(e: ex.Expr, memory: Arrays, scalars: Mapping[str, Any]) -> Callable[[Env], Any]:
    """A function from iterators and parameters to the value of an expression, a NumPy scalar of its dtype."""
    made = numpy_dtype(e.dtype).type
    parts = [] if isinstance(e, ex.Load) else [compile_expr(c, memory, scalars) for c in e.children()]
    if isinstance(e, ex.Const):
        constant = made(e.value)
        return lambda env: constant
    if isinstance(e, ex.IndexValue):
        index = e.index
        return lambda env: made(index.evaluate(env))
    if isinstance(e, ex.Scalar):
        scalar = made(scalars[e.name])
        return lambda env: scalar
    if isinstance(e, ex.Load):
        place, array = _cell(e.access, memory, scalars), memory[e.access.tensor]
        if array.dtype != numpy_dtype(e.dtype):
            raise AssertionError(f"{e} is loaded as {e.dtype} from {array.dtype}")
        return lambda env: array[place(env)]
    if isinstance(e, ex.Unary):
        x = parts[0]
        unary = {"-": np.negative, "not": np.logical_not, "~": np.invert}[e.op]
        return lambda env: unary(x(env))
    if isinstance(e, ex.Binary | ex.Compare):
        return _two(e, parts[0], parts[1], made)
    if isinstance(e, ex.Select):
        cond, yes, no = parts
        if e.yes.dtype != e.no.dtype:
            raise AssertionError(f"a Select of {e.yes.dtype} and {e.no.dtype}")
        return lambda env: yes(env) if cond(env) else no(env)
    if isinstance(e, ex.Cast):
        x = parts[0]
        return (lambda env: np.bool_(x(env) != 0)) if e.dtype.kind == "b" else (lambda env: np.asarray(x(env)).astype(made)[()])
    if isinstance(e, ex.Call):
        fn, wide = _CALLS[e.fn], np.float32 if e.args[0].dtype.bits < 32 and e.args[0].dtype.is_float else None
        if wide is not None:
            return lambda env: np.asarray(fn(*(wide(p(env)) for p in parts))).astype(made)[()]
        return lambda env: made(fn(*(p(env) for p in parts)))
    raise AssertionError(f"unknown expression {type(e).__name__}")


def _two(e: ex.Binary | ex.Compare, x: Callable[[Env], Any], y: Callable[[Env], Any], made: Any) -> Callable[[Env], Any]:
    if e.x.dtype != e.y.dtype:
        raise AssertionError(f"{e.op} of {e.x.dtype} and {e.y.dtype}")
    if e.op == "and":
        return lambda env: np.bool_(x(env) and y(env))
    if e.op == "or":
        return lambda env: np.bool_(x(env) or y(env))
    fn = _COMPARE[e.op] if isinstance(e, ex.Compare) else _BINARY[e.op]
    return lambda env: made(fn(x(env), y(env)))
