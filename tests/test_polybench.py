"""The 30 kernels of PolyBench: compiled in the original order, as `auto` schedules them, and as the naive C that peers compile, against the
nest as plain Python; their dependences against a trace of the execution; the benchmark's command."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from poly_programs import brute_force, pairs_of

import polyopt as po
from benchmarks.polybench import KERNELS, SIZES, Kernel
from benchmarks.polybench.__main__ import main
from benchmarks.polybench.measure import deviation
from benchmarks.polybench.naive import emit_naive
from benchmarks.polybench.worker import peer
from polyopt.errors import UserError
from polyopt.poly.deps import compute_dependences
from polyopt.runtime.compiler import find_compiler

NAMES = (
    "correlation covariance gemm gemver gesummv symm syr2k syrk trmm 2mm 3mm atax bicg doitgen mvt cholesky durbin gramschmidt lu ludcmp trisolv "
    "deriche floyd-warshall nussinov adi fdtd-2d heat-3d jacobi-1d jacobi-2d seidel-2d"
)


def test_all_kernels_and_sizes_are_there() -> None:
    assert list(KERNELS) == NAMES.split()
    for k in KERNELS.values():
        flops = [np.prod([float(x) for x in k.dims(s).values()]) for s in SIZES]
        assert all(len(v) == len(SIZES) for v in k.sizes.values()) and flops[:4] == sorted(flops[:4]), k.name


@cache
def plain(name: str) -> dict[str, Any]:
    """The outputs at MINI of the nest as plain Python."""
    kernel, dims = KERNELS[name], KERNELS[name].dims("MINI")
    arguments = kernel.init(**dims)
    kernel.nest.specialize(**dims).reference(*(v for v in order(kernel, arguments) if not isinstance(v, int)))
    return kernel.results(arguments, dims)


def order(kernel: Kernel, arguments: Any) -> list[Any]:
    return [arguments[n] for n, _ in kernel.nest.signature]


def check(name: str, schedule: Any, **sizes: int) -> None:
    kernel, dims = KERNELS[name], KERNELS[name].dims("MINI")
    arguments = kernel.init(**dims)
    tensors = [arguments[t.name] for t in schedule.scop.tensors if t.role != "local"]
    schedule.compile(fp="fast")(*tensors, **{s.name: arguments[s.name] for s in schedule.scop.scalars}, **sizes)
    for k, got in kernel.results(arguments, dims).items():
        assert deviation(got, plain(name)[k]) <= kernel.tolerance, (name, k)


@pytest.mark.cc
@pytest.mark.parametrize("name", KERNELS)
def test_original_order_with_symbolic_sizes_equals_plain_python(name: str) -> None:
    nest = KERNELS[name].nest
    free = [n for n, kind in nest.signature if kind is None]
    check(name, po.schedule(nest), **{n: KERNELS[name].dims("MINI")[n] for n in free})


@pytest.mark.cc
@pytest.mark.parametrize("name", KERNELS)
def test_auto_equals_plain_python(name: str) -> None:
    check(name, po.auto(KERNELS[name].nest.specialize(**KERNELS[name].dims("MINI")), fp="fast"))


@pytest.mark.cc
@pytest.mark.parametrize("name", list(KERNELS))
def test_auto_equals_the_naive_c_at_small(name: str, tmp_path: Path) -> None:
    kernel, dims = KERNELS[name], KERNELS[name].dims("SMALL")
    nest = kernel.nest.specialize(**dims)
    (tmp_path / "naive.c").write_text(emit_naive(nest.scop))
    build = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "naive.c", "-o", "naive.so", "-lm"]
    done = subprocess.run([*find_compiler().command, *build], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want, got = kernel.init(**dims), kernel.init(**dims)
    peer(kernel, "SMALL", str(tmp_path / "naive.so"))(want)
    schedule = po.auto(nest, fp="fast")
    tensors = [got[t.name] for t in schedule.scop.tensors if t.role != "local"]
    schedule.compile(fp="fast")(*tensors, **{x.name: got[x.name] for x in schedule.scop.scalars})
    for k, array in kernel.results(got, dims).items():
        assert deviation(array, kernel.results(want, dims)[k]) <= kernel.tolerance, (name, k)


@pytest.mark.parametrize(("name", "lines"), [
    ("lu", ["for (int i = 1; i < 40; i++) {", "for (int j = 0; j < i; j++) {", "for (int k = 0; k < j; k++) {", "A[i][j] -= A[i][k] * A[k][j];"]),
    ("ludcmp", ["for (int i = 39; i >= 0; i--) {", "for (int j = i + 1; j < 40; j++) {", "w2 -= A[i][j] * x[j];", "x[i] = w2 / A[i][i];"]),
    ("nussinov", ["for (int i = 58; i >= 0; i--) {", "for (int j = i + 1; j < 60; j++) {", "for (int k = i + 1; k < j; k++) {"]),
    ("correlation", ["double (*restrict data)[28], double (*restrict corr)[28]", "corr[i][j] += data[k][i] * data[k][j];"]),
])  # fmt: skip
def test_the_naive_c_has_the_loops_and_subscripts_of_the_source(name: str, lines: list[str]) -> None:
    text = emit_naive(KERNELS[name].nest.specialize(**KERNELS[name].dims("MINI")).scop)
    assert [line for line in lines if line not in text] == [], text


@pytest.mark.cc
@pytest.mark.parametrize("name", KERNELS)
def test_naive_c_equals_plain_python(name: str, tmp_path: Path) -> None:
    kernel, dims = KERNELS[name], KERNELS[name].dims("MINI")
    source, library = tmp_path / "naive.c", tmp_path / "naive.so"
    source.write_text(emit_naive(kernel.nest.specialize(**dims).scop))
    flags = ["-O1", "-Wall", "-Werror", "-Wno-unused-but-set-variable", "-shared", "-fPIC"]
    subprocess.run([*find_compiler().command, *flags, str(source), "-o", str(library), "-lm"], check=True)
    arguments = kernel.init(**dims)
    assert peer(kernel, "MINI", str(library))(arguments) > 0
    for k, got in kernel.results(arguments, dims).items():
        assert deviation(got, plain(name)[k]) <= kernel.tolerance, (name, k)


@pytest.mark.parametrize("name", KERNELS)
def test_dependences_equal_the_trace(name: str) -> None:
    kernel = KERNELS[name]
    params = {d: 2 if d == "T" else 3 + k for k, d in enumerate(kernel.sizes)}
    scop = compute_dependences(kernel.nest.scop)
    want = brute_force(scop, params)
    assert scop.dependences is not None and any(want.values())
    for kind in ("flow", "anti", "output", "reduction"):
        got = pairs_of(getattr(scop.dependences, kind), params)
        assert got == want[kind], (kind, sorted(got - want[kind])[:3], sorted(want[kind] - got)[:3])


@pytest.mark.cc
def test_command() -> None:
    args = ["trisolv", "--size", "SMALL", "--against", "gcc", "--seconds", "0.1", "--json"]
    done = subprocess.run([sys.executable, "-m", "benchmarks.polybench", *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (row,) = found["rows"]
    assert row["name"] == "trisolv" and 0 <= row["error"] <= 1e-9 and row["note"] == "" and row["lines"] > 5
    assert row["ratio"] == row["ours"] / row["peers"]["gcc"] == pytest.approx(found["geomean_ratio"]) and row["ours"] <= row["ours_median"]


@pytest.mark.parametrize(("args", "said"), [
    (["gem"], "there is no kernel 'gem'; choose from correlation, "),
    (["gemm", "--size", "HUGE"], "there is no size 'HUGE'; choose from MINI, SMALL"),
    (["gemm", "--against", "icc"], "there is no peer 'icc'; choose from gcc, clang, polly"),
])  # fmt: skip
def test_wrong_words_are_refused(args: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["polybench", *args])
    with pytest.raises(UserError, match=said):
        main()
