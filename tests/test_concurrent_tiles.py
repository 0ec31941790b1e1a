"""Stencils over time in several threads: diamonds where concurrent start exists, and the same bits as the reference at any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import polyopt as po
from benchmarks.polybench import KERNELS
from polyopt.verbs import time_tiles


@pytest.mark.cc
@pytest.mark.parametrize("name, dims", [("jacobi-2d", {"T": 9, "N": 37}), ("fdtd-2d", {"T": 9, "NX": 35, "NY": 27})])
def test_diamonds_in_threads_give_the_reference(name: str, dims: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_tiles, "_pays", lambda *_: True)
    kernel = KERNELS[name]
    nest = kernel.nest.specialize(**dims)
    want = [kernel.init(**dims)[n] for n, _ in nest.signature]
    nest.reference(*want)
    s = po.auto(nest, threads=2, fp="strict")
    assert s.label == "bit-identical" and [x.verb for x in s.history][:2] == ["diamond", "parallelize"]
    for threads in (1, 2, 4):
        got = [kernel.init(**dims)[n] for n, _ in nest.signature]
        s.compile(threads=threads, fp="strict")(*got)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_update_in_place_has_no_concurrent_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_tiles, "_pays", lambda *_: True)
    s = po.auto(KERNELS["seidel-2d"].nest.specialize(T=9, N=37), threads=2)
    assert "diamond" not in [x.verb for x in s.history]
