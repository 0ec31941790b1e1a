"""The contraction recipe over sizes that do not fit: odd, tiny, skinny, symbolic, chunked reductions; on the LoopNest interpreter and in C."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_loops import run_loops
from test_verbs import check_gemm, gemm

import polyopt as po
from polyopt.codegen.c import emit_kernel
from polyopt.ir.loops import Declare, Instance, Loop, walk
from polyopt.lower.loops import lower_to_loops
from polyopt.target import cpu_target
from polyopt.verbs.recipe import apply_recipe

M, N, K = po.dims("M N K")


@po.scop
def matmul(A: po.f32[M, K], B: po.f32[K, N], C: po.f32[M, N]):  # type: ignore[no-untyped-def]
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@po.scop
def affine_layer(X: po.f32[M, K], W: po.f32[K, N], b: po.f32[N], Y: po.f32[M, N]):  # type: ignore[no-untyped-def]
    for i in range(M):
        for j in range(N):
            Y[i, j] = b[j]
    for i in range(M):
        for j in range(N):
            for k in range(K):
                Y[i, j] += X[i, k] * W[k, j]
    for i in range(M):
        for j in range(N):
            Y[i, j] = max(Y[i, j], 0.0)


@po.scop
def joined_columns(X: po.f32[2, 64, 4, 64], Y: po.f32[2, 256]):  # type: ignore[no-untyped-def]
    for n in range(2):
        for a in range(4):
            for b in range(64):
                for i in range(64):
                    Y[n, 64 * a + b] += X[n, i, a, b]


def test_copies_of_a_footprint_with_gaps_have_no_tests() -> None:
    """The tiles of b leave gaps in Y's cells; the flow into the first chunk and into later ones must not become two descriptions of them."""
    target = replace(cpu_target("avx512"), l1=1024, l2=16384)
    scop = apply_recipe(joined_columns.scop, target)
    copies = [s for s in scop.statements if s.name.startswith(("load_", "store_"))]
    assert [s.domain.n_basic_set() for s in copies] == [1, 1]
    nest = lower_to_loops(scop)
    text = emit_kernel(nest, target).text
    assert "if (" not in text and "for (int c1" not in text
    x, y = (np.random.default_rng(5).standard_normal(s).astype("f4") for s in ((2, 64, 4, 64), (2, 256)))
    want = y + x.sum(1).reshape(2, 256)
    run_loops(nest, {"X": x, "Y": y})
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(29, 45, 60), (5, 33, 200), (40, 17, 90)])
def test_chunked_reduction_with_packing(size: tuple[int, int, int]) -> None:
    target = replace(cpu_target("avx2"), l1=1024, l2=8192, l3=1 << 16)
    scop = apply_recipe(gemm(*size), target)
    assert any("ck" in line for line in str(scop.schedule.to_str()).split()) or len(scop.statements) > 3
    check_gemm(scop, *size)


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_epilogue_of_a_chunked_symbolic_reduction(isa: str) -> None:
    target = replace(cpu_target(isa), l2=4096)
    scop = apply_recipe(affine_layer.scop, target)
    assert scop.history[0].verb == "contract"
    nest = lower_to_loops(scop)
    rng = np.random.default_rng(3)
    for m, n, k in ((1, 1, 1), (3, 5, 2), (16, 34, 40), (0, 3, 3), (3, 0, 3), (3, 3, 0)):
        x, w, b = (rng.standard_normal(s).astype("f4") for s in ((m, k), (k, n), (n,)))
        y = np.full((m, n), np.nan, "f4")
        run_loops(nest, {"X": x, "W": w, "b": b, "Y": y}, None, {"M": m, "N": n, "K": k})
        np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.cc
def test_symbolic_gemm_in_c() -> None:
    f = po.auto(matmul).compile()
    rng = np.random.default_rng(4)
    for m, n, k in ((1, 1, 1), (13, 31, 17), (14, 32, 700), (37, 100, 65), (2, 3, 1000), (64, 1, 9)):
        a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
        c = np.full((m, n), np.nan, "f4")
        f(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-4)


def test_a_packed_panel_is_private_to_an_iteration_of_the_parallel_loop() -> None:
    target = replace(cpu_target("avx2", 2), l1=1024, l2=8192, l3=1 << 16)
    nest = lower_to_loops(apply_recipe(gemm(96, 256, 300), target))

    def inside(body: tuple[object, ...], parallel: bool) -> set[str]:
        out: set[str] = set()
        for n in body:
            if isinstance(n, Declare) and parallel:
                out.add(n.tensor)
            elif isinstance(n, Loop):
                out |= inside(n.body, parallel or n.mark == "parallel")
        return out

    packed = {t.name for t in nest.tensors if t.scope == "cache"}
    loops = [n for n in walk(nest.body) if isinstance(n, Loop) and n.mark == "parallel"]
    filled = {n.write.tensor for p in loops for n in walk(p.body) if isinstance(n, Instance) and n.statement.startswith("load_")}
    assert packed and loops and packed & filled <= inside(nest.body, False)


@pytest.mark.cc
def test_threads_agree_on_packed_operands() -> None:
    rng = np.random.default_rng(5)
    f = po.auto(matmul, threads=4).compile(threads=4)
    a, b = rng.standard_normal((300, 257)).astype("f4"), rng.standard_normal((257, 517)).astype("f4")
    want = a.astype("f8") @ b.astype("f8")
    for _ in range(20):
        c = np.full((300, 517), np.nan, "f4")
        f(a, b, c)
        np.testing.assert_allclose(c, want, rtol=1e-3, atol=1e-3)
