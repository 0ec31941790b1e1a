"""Error bounds of the vector functions against float64, on random bit patterns, the working range and special values."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from codegen_common import HERE, build

from polyopt.codegen.prelude import Prelude
from polyopt.codegen.vmath import VECTOR_MATH, vector_math
from polyopt.target import ISAS

pytestmark = pytest.mark.cc
BOUNDS = {"exp": 2.0, "log": 2.0, "tanh": 4.0, "erf": 4.0, "sigmoid": 4.0, "sin": 2.0, "cos": 2.0}  # ulp
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 3.4e38, -3.4e38, 88.72, 88.73, -87.3, -103.9, -104.0, 1.0]
_erf = np.frompyfunc(math.erf, 1, 1)
REFERENCE = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "erf": lambda x: _erf(x).astype(np.float64),
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
}  # fmt: skip


def inputs(n: int = 40000) -> np.ndarray:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    near = [rng.uniform(-r, r, n).astype(np.float32) for r in (1, 12, 110)]
    return np.concatenate([bits, *near, np.array(SPECIAL, np.float32)])


@pytest.mark.parametrize("isa, lanes", [(i, w) for i, w in (("avx2", 8), ("avx512", 16), ("avx2", 4)) if i in HERE])
def test_bounds(isa: str, lanes: int) -> None:
    prelude = Prelude(ISAS[isa])
    text = ""
    for fn in sorted(VECTOR_MATH):
        name = vector_math(prelude, fn, lanes)
        text += (f"void run_{fn}(const float *x, float *y, long n)\n{{\n    for (long i = 0; i < n; i += {lanes})\n"
                 f"        *(v{lanes}f32 *)(y + i) = {name}(*(const v{lanes}f32 *)(x + i));\n}}\n")  # fmt: skip
    lib = build(prelude.text().replace(f"vector_size({4 * lanes})", f"vector_size({4 * lanes}), aligned(4)") + text, ISAS[isa].flags)
    x = inputs()
    assert len(x) % lanes == 0
    for fn in sorted(VECTOR_MATH):
        y = np.zeros_like(x)
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, y))
        getattr(lib, f"run_{fn}")(*pointers, ctypes.c_long(len(x)))
        with np.errstate(all="ignore"):
            exact = REFERENCE[fn](x.astype(np.float64))
            rounded = exact.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(rounded), err_msg=fn)
        np.testing.assert_array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)], err_msg=fn)
        finite = np.isfinite(rounded)
        assert np.isfinite(y[finite]).all(), fn
        ulp = np.spacing(np.abs(rounded[finite])).astype(np.float64)
        error = np.abs(y[finite].astype(np.float64) - exact[finite]) / ulp
        worst = int(np.argmax(error))
        assert error[worst] <= BOUNDS[fn], f"{isa} {fn}({x[finite][worst]!r}): {error[worst]:.2f} ulp"
