"""The verbs that restructure nests, on Python loops: compiled and compared with the original body; what they refuse, and their repairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_common import call, target

import polyopt as po
from polyopt.api.schedules import Schedule
from polyopt.codegen.c import emit_kernel
from polyopt.errors import IllegalSchedule, ScheduleError, UserError
from polyopt.frontends.python_loops import ScopFunction
from polyopt.ir.affine import affine
from polyopt.isl_ext import read_set
from polyopt.lower.loops import lower_to_loops

M, N, K, T = po.dims("M N K T")
SIZES = {"M": 9, "N": 11, "K": 7, "T": 6}


@po.scop
def gemm(A: po.f64[M, K], B: po.f64[K, N], C: po.f64[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@po.scop
def jacobi(T: int, A: po.f64[M, N], B: po.f64[M, N]):
    for t in range(T):
        for i in range(1, M - 1):
            for j in range(1, N - 1):
                B[i, j] = A[i, j] + A[i - 1, j] - A[i + 1, j] + A[i, j - 1] - A[i, j + 1]
        for i in range(1, M - 1):
            for j in range(1, N - 1):
                A[i, j] = B[i, j] - B[i - 1, j]


@po.scop
def seidel(T: int, A: po.f64[N]):
    for t in range(T):
        for i in range(1, N - 1):
            A[i] = A[i - 1] - A[i] + A[i + 1]


@po.scop
def waves(T: int, E: po.f64[N], H: po.f64[N], F: po.f64[T]):
    assert N >= 2
    for t in range(T):
        E[0] = F[t]
        for i in range(1, N):
            E[i] = E[i] - H[i] + H[i - 1]
        for i in range(N - 1):
            H[i] = H[i] - E[i + 1] + E[i]


@po.scop
def dot(A: po.f64[N], B: po.f64[N], S: po.f64[1]):
    S[0] = 3.0
    for k in range(N):
        S[0] += A[k] * B[k]


@po.scop
def rows(A: po.f64[M, N], B: po.f64[M, N]):
    buffer = po.local(po.f64[N])
    for i in range(M):
        for j in range(N):
            buffer[j] = A[i, j] * 2.0
        for j in range(N):
            B[i, j] = buffer[N - 1 - j] + 1.0


@po.scop
def triangle(A: po.f64[M, M], X: po.f64[M]):
    for i in range(M):
        for j in range(i):
            X[i] = X[i] - A[i, j] * X[j]


def arrays(nest: ScopFunction, sizes: dict[str, int]) -> dict[str, Any]:
    """Small whole numbers for each argument; sizes for those that are sizes."""
    rng = np.random.default_rng(5)
    out: dict[str, Any] = {}
    for name, kind in nest.signature:
        shape = None if kind is None else [affine(x).evaluate(sizes) for x in kind.shape]
        out[name] = sizes[name] if shape is None else rng.integers(-3, 4, shape).astype("f8")
    return out


def check(s: Schedule, nest: ScopFunction, isa: str = "scalar", threads: int = 1, **other: int) -> str:
    """Certify, compile and run a schedule; compare all arrays with the original body. Gives the text."""
    sizes = {**SIZES, **other}
    s.verify()
    src = emit_kernel(lower_to_loops(s.scop), target(isa, threads), "default", threads > 1)
    want = arrays(nest, sizes)
    nest.reference(*want.values())
    got = {k: v for k, v in arrays(nest, sizes).items() if isinstance(v, np.ndarray)}
    call(src, got, params={p: sizes[p] for p in src.params})
    for name, a in got.items():
        np.testing.assert_array_equal(a, want[name], err_msg=f"{name} of {s!r}")
    return str(src.text)


# ---- unroll_jam
@pytest.mark.cc
@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_unroll_jam_goes_below_the_inner_loops(isa: str) -> None:
    s = po.schedule(gemm)
    check(s.unroll_jam("i", 4), gemm, isa)
    check(s.unroll_jam("i", 4, into="j"), gemm, isa)
    check(s.distribute("k").unroll_jam("i", 3, of="S1").unroll_jam("j", 2, of="S1"), gemm, isa)
    wide = s.distribute("k").interchange("i", "k", "j", of="S1").vectorize("j", 4, of="S1").interchange("tj", "k", of="S1")
    check(wide.unroll_jam("i", 4, of="S1"), gemm, isa)
    check(po.schedule(triangle).strip_mine("j", 2), triangle, isa)


@pytest.mark.cc
def test_jammed_copies_share_loads_and_keep_accumulators_in_locals() -> None:
    fixed = gemm.specialize(M=8, N=8, K=16)
    s = po.schedule(fixed).distribute("k").unroll_jam("i", 4, of="S1").unroll_jam("j", 2, of="S1")
    text = check(s, fixed, M=8, N=8, K=16)
    loop = text[text.index("for (int k = 0") :].split("}")[0]
    assert loop.count("fma") + loop.count(" * ") >= 8
    assert "double t" in loop and loop.count("const double") == 6  # four of A, two of B; none of C
    assert not [line for line in loop.splitlines() if line.strip().startswith("p")]  # nothing is stored in the loop


@pytest.mark.cc
def test_unroll_jam_refuses_what_would_run_backwards() -> None:
    with pytest.raises(IllegalSchedule, match=r'Repair: skew\("i", by="t", factor=1\) first'):
        po.schedule(seidel).unroll_jam("t", 2)
    check(po.schedule(seidel).skew("i", by="t", factor=1).unroll_jam("t", 2), seidel)
    check(po.schedule(triangle).interchange("j", "i").unroll_jam("j", 2), triangle)
    for args, kwargs, message in (
        (("i", 1), {}, "the factor of i is 1"),
        (("i", 4), {"into": "zz"}, "into is 'zz'; it must be a loop inside i: j, k"),
        (("k", 2), {"of": "S1"}, r"k has no loop inside; unroll\('k', 2\)"),
    ):
        with pytest.raises(ScheduleError, match=message):
            po.schedule(gemm).unroll_jam(*args, **kwargs)


# ---- skew
@pytest.mark.cc
def test_skew_by_unimodular_maps() -> None:
    s = po.schedule(gemm)
    check(s.skew(i="i + 2*j"), gemm)
    check(s.skew(i="i - j", j="2*j - i + 3"), gemm)
    check(s.distribute("k").skew(i="k", j="-j", k="i + j + k", of="S1"), gemm)
    for text in ("2*i", "i + i", "j"):
        with pytest.raises(ScheduleError, match=r"determinant (2|0)"):
            s.skew(i=text)
    with pytest.raises(ScheduleError, match="it may use whole numbers and the loops of this nest, i, j"):
        s.skew(i="i + N")
    with pytest.raises(ScheduleError, match="not affine"):
        s.skew(i="i * j")
    with pytest.raises(ScheduleError, match="not both"):
        s.skew("i", by="j", i="i + j")
    with pytest.raises(IllegalSchedule):
        po.schedule(seidel).skew(t="i", i="t")


# ---- tiles
@pytest.mark.cc
def test_tiles_of_several_levels() -> None:
    s = po.schedule(gemm).distribute("k")
    levels = s.tile(i=(6, 2), j=(8, 4), k=3, of="S1")
    assert [m for m in ("ti", "tj", "tk", "t2i", "t2j") if m in str(levels)] == ["ti", "tj", "tk", "t2i", "t2j"]
    check(levels, gemm)
    assert str(s.tile(i=6, j=8, k=3, of="S1").tile(i=2, j=4, of="S1").scop.schedule) == str(levels.scop.schedule)
    check(s.tile(i=4, of="S1").tile(ti=2, of="S1"), gemm)
    with pytest.raises(ScheduleError, match="each level must be smaller"):
        s.tile(i=(2, 4), of="S1")
    with pytest.raises(ScheduleError, match="the tile size of i is 5, but the loop runs over 4 dates; give 1 to 4"):
        s.tile(i=4, of="S1").tile(i=5, of="S1")


@pytest.mark.cc
def test_wavefront_of_tiles_is_parallel_inside() -> None:
    s = po.schedule(seidel).skew("i", by="t").tile(t=2, i=3)
    with pytest.raises(IllegalSchedule):
        s.parallelize("ti")
    w = s.wavefront("tt", "ti").parallelize("ti")
    check(w, seidel, threads=2)
    with pytest.raises(IllegalSchedule, match=r'Repair: skew\("i", by="t", factor=1\)') as e:
        po.schedule(seidel).wavefront("t", "i")
    assert e.value.violation.before[0] < e.value.violation.before[1]
    check(po.schedule(seidel).skew("i", by="t", factor=1).wavefront("t", "i").parallelize("i"), seidel)
    with pytest.raises(ScheduleError, match="at least two loops"):
        po.schedule(seidel).wavefront("t")
    with pytest.raises(ScheduleError, match="the dates of i determine those of ti"):
        s.wavefront("ti", "i")
    with pytest.raises(ScheduleError, match="name is 'i'"):
        po.schedule(seidel).skew("i", by="t").wavefront("t", "i", name="i")


@pytest.mark.cc
@pytest.mark.parametrize("size", [2, 3, 8])
def test_diamonds_start_at_once(size: int) -> None:
    check(po.schedule(jacobi).diamond("t", "i", size=size).parallelize("ti"), jacobi, threads=2)
    check(po.schedule(jacobi).diamond("t", "i", "j", size=(size, 4)).parallelize("ti"), jacobi)
    check(po.schedule(waves).diamond("t", "i", size=size).parallelize("ti"), waves, N=13)


def test_all_first_diamonds_of_a_stencil_depend_on_nothing() -> None:
    """Concurrent start: no dependence leads from one tile of a wave to another, and the first wave covers the whole grid."""
    text = str(po.schedule(waves).diamond("t", "i", size=4).parallelize("ti"))
    assert "parallel" in text
    with pytest.raises(ScheduleError, match=r"no concurrent start along i: S0\(0, 1\) must run before S0\(0, 2\)"):
        po.schedule(seidel).diamond("t", "i", size=4)
    with pytest.raises(ScheduleError, match="size has 2 numbers for 1 space loops"):
        po.schedule(waves).diamond("t", "i", size=(4, 4))
    with pytest.raises(ScheduleError, match="size is 1"):
        po.schedule(waves).diamond("t", "i", size=1)
    with pytest.raises(ScheduleError, match="at least one space loop"):
        po.schedule(waves).diamond("t", size=4)


# ---- privatize and software_pipeline
@pytest.mark.cc
def test_a_temporary_of_its_own_for_each_iteration() -> None:
    s = po.schedule(rows)
    with pytest.raises(IllegalSchedule, match=r'Repair: privatize\("buffer", at="i"\) first'):
        s.parallelize("i")
    check(s.privatize("buffer", at="i").parallelize("i"), rows, threads=2)
    check(s.privatize("buffer", at="i", copies=2), rows)
    check(s.privatize("buffer", at="i").distribute("i"), rows)
    with pytest.raises(IllegalSchedule):
        s.distribute("i")
    with pytest.raises(ScheduleError, match=r"reads what .* wrote to buffer.*in another iteration of j"):
        po.schedule(carried).privatize("buffer", at="j")
    with pytest.raises(ScheduleError, match="B is an output of the kernel"):
        s.privatize("B", at="i")
    with pytest.raises(ScheduleError, match="no statement below the loop i writes A"):
        s.privatize("A", at="i")
    with pytest.raises(ScheduleError, match="also used outside the loop j"):
        s.privatize("buffer", at="j", of="S0")


@po.scop
def carried(A: po.f64[M, N], B: po.f64[M, N]):
    buffer = po.local(po.f64[N])
    for i in range(M):
        for j in range(N):
            buffer[j] = A[i, j]
            if j >= 1:
                B[i, j] = buffer[j - 1] + A[i, j]


@pytest.mark.cc
def test_a_reduction_in_partial_results_is_parallel() -> None:
    s = po.schedule(dot)
    with pytest.raises(IllegalSchedule, match=r'Repair: privatize\("S", at="k"\) first'):
        s.parallelize("k")
    p = s.strip_mine("k", 4).privatize("S", at="tk").parallelize("tk")
    assert p.label == "reassociates S1"
    check(p, dot, threads=2)
    check(p, dot, N=0)
    check(s.privatize("S", at="k", name="part").parallelize("k"), dot)
    g = po.schedule(gemm).distribute("k")
    check(g.tile(i=4, j=4, k=3, of="S1").privatize("C", at="tk").parallelize("tk"), gemm, threads=2)
    check(g.interchange("k", "i", "j", of="S1").strip_mine("k", 2).privatize("C", at="tk").parallelize("tk"), gemm, threads=2)
    with pytest.raises(ScheduleError, match="leave out copies"):
        s.privatize("S", at="k", copies=2)


@pytest.mark.cc
def test_an_inner_loop_is_parallel_under_a_sequential_one() -> None:
    check(po.schedule(jacobi).parallelize("i", of="S0").parallelize("i", of="S1"), jacobi, threads=2)
    with pytest.raises(IllegalSchedule):
        po.schedule(jacobi).parallelize("t")


@pytest.mark.cc
def test_stages_of_a_software_pipeline() -> None:
    s = po.schedule(rows)
    with pytest.raises(IllegalSchedule, match=r'Repair: privatize\("buffer", at="i", copies=2\) first'):
        s.software_pipeline("i", stages=[["S0"], ["S1"]])
    piped = s.privatize("buffer", at="i", copies=2).software_pipeline("i", stages=[["S0"], ["S1"]])
    text = check(piped, rows)
    main = text[text.index("for (int64_t i") :]
    assert "if" not in main.split("j_4")[0]  # the first and last iterations are split off
    for m in (0, 1, 2):
        check(piped, rows, M=m)
    loaded = po.schedule(gemm).distribute("k").tile(i=4, j=4, k=2, of="S1").promote("A", at="tk", scope="cache")
    with pytest.raises(IllegalSchedule, match=r'privatize\("A_cache", at="tk", copies=2\)'):
        loaded.software_pipeline("tk")
    check(loaded.privatize("A_cache", at="tk", copies=2).software_pipeline("tk"), gemm)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([["S0", "S1"]], "stages has 1 parts"),
        ([["S0"], ["S0"]], "S0 is in two stages"),
        ([["S0"], ["zz"]], "there is no statement 'zz'"),
        ([["S0"], []], "non-empty"),
        (None, "does not start with statements that only copy"),
    ],
)
def test_stages_must_be_a_partition(stages: list[list[str]] | None, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        po.schedule(rows).software_pipeline("i", stages=stages)


def test_a_context_without_values_is_refused() -> None:
    nothing = replace(gemm.scop, context=read_set("[M, N, K] -> { : M > 5 and M < 3 }").params(), dependences=None)
    with pytest.raises(UserError, match="gemm: no values of M, K, N satisfy its context"):
        po.schedule(nothing)
