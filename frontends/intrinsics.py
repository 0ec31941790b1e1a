"""The functions that a loop nest may call, and what each means on NumPy scalars. Takes call nodes; gives canonical names
(`INTRINSICS`, min, max, pow, int, float, bool) or the dtype of a cast.

The scalar functions serve the reference: a Python int or float stays one (it is weakly typed, as in NumPy), a NumPy scalar keeps its
dtype; integers become float64 where a float is needed. erf, rsqrt and sigmoid are computed in float64 and rounded once.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import ml_dtypes
import numpy as np

from polyopt.ir.dtype import BY_NUMPY, DType
from polyopt.ir.expr import INTRINSICS

from .pysource import MISSING, PySource

_ALIASES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "arctan2": "atan2", "absolute": "abs", "fabs": "abs", "minimum": "min", "maximum": "max", "power": "pow", "rint": "round",
    "float_power": "pow",
}  # fmt: skip
OTHERS = {"min": None, "max": None, "pow": 2, "int": 1, "float": 1, "bool": 1}
"""What may be called besides `INTRINSICS`, with its number of arguments (None: two or more)."""
_CLASSES = {int: "int", float: "float", bool: "bool"}
_PURE_ON_INTEGERS = ("abs", "floor", "ceil", "round", "trunc", "sign")


def numpy_dtype(t: DType) -> np.dtype[Any]:
    """The NumPy dtype of a dtype."""
    return np.dtype(ml_dtypes.bfloat16) if t.name == "bf16" else np.dtype(t.numpy)


def dtype_of_numpy(t: Any) -> DType | None:
    """The dtype of a NumPy dtype, None where there is none."""
    return BY_NUMPY.get(np.dtype(t).name)


def _canonical(name: str) -> str | None:
    name = _ALIASES.get(name, name)
    return name if name in INTRINSICS or name in OTHERS else None


def callee(src: PySource, func: ast.expr) -> str | DType | None:
    """What a call calls: a canonical name, the dtype of a cast, or None where it is neither.

    Bare names of `INTRINSICS` and the prefixes `math.`, `np.` and `numpy.` also work where nothing is imported.
    """
    if isinstance(func, ast.Name) and func.id in src.bound:
        return None
    found = src.resolve(func)
    if found is MISSING:
        if isinstance(func, ast.Name):
            return _canonical(func.id)
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("math", "np", "numpy"):
            return _canonical(func.attr) if src.resolve(func.value) is MISSING else None
        return None
    if isinstance(found, DType):
        return found
    if isinstance(found, type):
        if found in _CLASSES:
            return _CLASSES[found]
        return dtype_of_numpy(found) if issubclass(found, np.generic) or found is ml_dtypes.bfloat16 else None
    if isinstance(found, np.ufunc | BuiltinFunctionType) or found in (np.round,):
        return _canonical(found.__name__)
    return None


# ---- meaning on scalars
def _float_function(exact: Callable[[Any], Any], in_f64: bool) -> Callable[[Any], Any]:
    def apply(x: Any) -> Any:
        if isinstance(x, int | float) and not isinstance(x, np.generic):
            return float(exact(np.float64(x)))
        x = np.asarray(x)[()]
        if x.dtype.kind in "iub":
            return np.float64(exact(np.float64(x)))
        wide = np.float64 if in_f64 or x.dtype.itemsize < 4 else x.dtype.type
        return x.dtype.type(exact(wide(x)))

    return apply


def _keep_integer(name: str, exact: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(x: Any) -> Any:
        if isinstance(x, int) and not isinstance(x, np.generic):
            return abs(x) if name == "abs" else (x > 0) - (x < 0) if name == "sign" else x
        if isinstance(x, float) and not isinstance(x, np.generic):
            return float(exact(np.float64(x)))
        x = np.asarray(x)[()]
        return x if x.dtype.kind in "iub" and name not in ("abs", "sign") else x.dtype.type(exact(x))

    return apply


def _erf(x: Any) -> Any:
    return math.erf(float(x))


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _extreme(pick: Callable[[Any, Any], Any], on_python: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        if all(isinstance(v, int) and not isinstance(v, np.generic) for v in values):
            return on_python(values)
        out = values[0]
        for v in values[1:]:
            weak = not isinstance(out, np.generic) and not isinstance(v, np.generic)
            out = float(pick(float(out), float(v))) if weak else pick(out, v)
        return out

    return apply


def _pow(x: Any, y: Any) -> Any:
    return x**y


def _two(exact: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(x: Any, y: Any) -> Any:
        weak = not isinstance(x, np.generic) and not isinstance(y, np.generic)
        return float(exact(float(x), float(y))) if weak else exact(x, y)

    return apply


def _truth(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: bool(fn(float(x)))


def _scalar_functions() -> dict[str, Callable[..., Any]]:
    names = {v: k for k, v in _ALIASES.items() if k.startswith("arc")}
    out: dict[str, Callable[..., Any]] = {
        n: _float_function(getattr(np, names.get(n, n)), False) for n, arity in INTRINSICS.items() if arity == 1 and hasattr(np, names.get(n, n))
    }
    out |= {n: _keep_integer(n, getattr(np, n)) for n in _PURE_ON_INTEGERS}
    out |= {"erf": _float_function(_erf, True), "sigmoid": _float_function(_sigmoid, True)}
    out |= {"rsqrt": _float_function(lambda x: 1.0 / np.sqrt(x), True)}
    out |= {"isnan": _truth(math.isnan), "isinf": _truth(math.isinf), "fmod": _two(np.fmod), "atan2": _two(np.arctan2), "pow": _pow}
    out |= {"min": _extreme(np.minimum, builtins.min), "max": _extreme(np.maximum, builtins.max)}
    return out | {"int": int, "float": float, "bool": bool}


SCALAR = _scalar_functions()
"""What each callable name computes on Python and NumPy scalars."""
