"""Strict arithmetic on halves: each operation is rounded, as NumPy does."""

from typing import Any

import numpy as np
import pytest

import polyopt as po


@pytest.mark.cc
@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512"])
@pytest.mark.parametrize("half", [po.f16, po.bf16], ids=["f16", "bf16"])
def test_strict_arithmetic_rounds_each_operation_on_halves(half: Any, isa: str) -> None:
    n = po.dims("n")

    @po.scop
    def axpy(a: half[n], b: half[n], c: half[n]):
        for i in range(n):
            c[i] = c[i] + a[i] * b[i] / 3.0

    rng = np.random.default_rng(0)
    given = [rng.standard_normal(64).astype(half.numpy) for _ in range(3)]
    want, got = [x.copy() for x in given], [x.copy() for x in given]
    axpy.reference(*want)
    s = po.auto(axpy, isa=isa, fp="strict")
    s.compile(isa=isa, fp="strict")(*got)
    assert s.label == "bit-identical"
    np.testing.assert_array_equal(np.asarray(want[2], np.float32), np.asarray(got[2], np.float32))
