"""The memory plan never lets two live buffers overlap, and reuses bytes; constants are laid out as their index map says."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.program import Arg, KernelCall
from polyopt.ir.tensor import Tensor
from polyopt.passes.memory import live_ranges, plan_memory
from polyopt.passes.memory_constants import materialize


def calls_of(chains: list[list[str]]) -> list[KernelCall]:
    return [KernelCall(f"k{i}", tuple(Arg("arena", b) for b in names)) for i, names in enumerate(chains)]


@pytest.mark.parametrize("seed", range(30))
def test_live_buffers_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"b{k}" for k in range(rng.randint(1, 25))]
    calls = calls_of([rng.sample(names, rng.randint(1, min(4, len(names)))) for _ in range(rng.randint(1, 30))])
    sizes = {n: (((var("N") if rng.random() < 0.3 else affine(rng.randint(1, 500))), affine(3)), rng.choice([1, 4, 8])) for n in names}
    buffers, arena = plan_memory(calls, sizes)
    live = live_ranges(calls)
    assert {b.name for b in buffers} == set(live)
    for a, b in itertools.combinations(buffers, 2):
        if live[a.name][0] <= live[b.name][1] and live[b.name][0] <= live[a.name][1]:
            if a.slot < 0 and b.slot < 0:
                size_a, size_b = (int(x.elements[0]) * 3 * x.itemsize for x in (a, b))
                assert a.offset + size_a <= b.offset or b.offset + size_b <= a.offset
            else:
                assert a.slot != b.slot
    for b in buffers:
        assert b.offset % 64 == 0
        assert (b.slot >= 0) == (not b.elements[0].is_const)
        if b.slot < 0:
            assert b.offset + int(b.elements[0]) * 3 * b.itemsize <= arena


def test_a_chain_needs_two_buffers() -> None:
    calls = calls_of([["a"], ["a", "b"], ["b", "c"], ["c", "d"], ["d"]])
    for size, check in ((affine(100), lambda bs, n: n == 2 * 448), (var("N"), lambda bs, n: {b.slot for b in bs} == {0, 1})):
        buffers, arena = plan_memory(calls, {n: ((size,), 4) for n in "abcd"})
        assert check(buffers, arena)


def test_constants_are_packed_with_zeros_beyond_the_source() -> None:
    w = np.arange(20 * 3, dtype=np.float32).reshape(20, 3)
    d = [var(f"d{k}") for k in range(3)]
    packed = materialize(Tensor("p", f32, (affine(2), affine(3), affine(16)), "constant", "heap", ("w", (d[0] * 16 + d[2], d[1]))), w)
    for i, j, k in np.ndindex(2, 3, 16):
        assert packed[i, j, k] == (w[16 * i + k, j] if 16 * i + k < 20 else 0)
    back = materialize(Tensor("q", f32, (affine(20),), "constant", "heap", ("w", (d[0] // 4, d[0] % 4 - 1))), w)
    assert [back[n] for n in range(20)] == [w[n // 4, n % 4 - 1] if n % 4 else 0 for n in range(20)]
