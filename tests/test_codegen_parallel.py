"""Parallel loops with OpenMP: outlined bodies, a piece of scratch for each thread, thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_common import HERE, call, target
from codegen_reference import interpret
from test_codegen import I, J, array, at, ld, loop, put, tensor

from polyopt.codegen.c import emit_kernel
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Binary, Const
from polyopt.ir.loops import Declare, LoopNest

pytestmark = pytest.mark.cc


def nest(rows: Affine, cols: Affine, params: tuple[str, ...] = ()) -> LoopNest:
    """Each row goes through a buffer of its own thread, and through one that is filled before the parallel loop."""
    body = (
        Declare("bias"),
        loop("j", 0, cols, put(at("bias", J), Binary("*", ld(f32, "x", 0, J), Const(0.5, f32)))),
        loop("i", 0, rows, Declare("row"),
             loop("j", 0, cols, put(at("row", J), Binary("+", ld(f32, "x", I, J), ld(f32, "bias", J)))),
             loop("j", 0, cols, put(at("y", I, J), Binary("*", ld(f32, "row", cols - 1 - J), ld(f32, "row", J)))), mark="parallel"),
    )  # fmt: skip
    tensors = (tensor("x", f32, rows, cols), tensor("y", f32, rows, cols, role="output"),
               tensor("bias", f32, cols, role="local", scope="heap"), tensor("row", f32, cols, role="local", scope="cache"))  # fmt: skip
    return LoopNest("rows", params, tensors, (), body, tuple((p, (1, 4096)) for p in params))


@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("parametric", [False, True])
@pytest.mark.parametrize("openmp", [True, False])
def test_threads_do_not_share_private_scratch(isa: str, parametric: bool, openmp: bool) -> None:
    m, n = 97, 400
    params = {"M": m, "N": n} if parametric else {}
    kernel = nest(var("M"), var("N"), ("M", "N")) if parametric else nest(affine(m), affine(n))
    src = emit_kernel(kernel, target(isa, threads=4), openmp=openmp)
    assert ("#pragma omp parallel" in src.text) == openmp == ("-fopenmp" in src.flags)
    x = array(f32, m, n)
    expected = x + 0.5 * x[0]
    expected = expected[:, ::-1] * expected
    for _ in range(5):
        arrays = {"x": x, "y": np.zeros_like(x)}
        call(src, arrays, params=params)
        np.testing.assert_allclose(arrays["y"], expected, rtol=1e-5, atol=1e-6)


def test_small_regions_stay_serial() -> None:
    kernel = nest(affine(4), affine(8))
    src = emit_kernel(kernel, target("scalar", threads=4), openmp=True)
    assert "omp" not in src.text and not src.flags
    arrays = {"x": array(f32, 4, 8), "y": np.zeros((4, 8), np.float32)}
    expected = interpret(kernel, arrays)["y"]
    call(src, arrays)
    np.testing.assert_allclose(arrays["y"], expected, rtol=1e-6)
