"""The edges of a kernel's call and of its compiler: indices from data, places of arguments, sizes of nothing, compilers that misbehave."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from runtime_samples import GEMM

import polyopt as po
from polyopt.errors import ArgumentError, CompilerError, NotAffine
from polyopt.runtime import compiler
from polyopt.runtime.cache import Cache
from polyopt.runtime.compiler import Compiler, find_compiler
from polyopt.runtime.kernel import CompiledKernel
from polyopt.runtime.load import load_kernel

pytestmark = pytest.mark.cc

M, K, D = po.dims("M K D")


# ---- indices that data gives
@po.scop
def gather(A: po.f32[M], I: po.i32[K], B: po.f32[K]):
    for k in range(K):
        B[k] = A[I[k]]


@po.scop
def rows(A: po.f32[M, D], I: po.i64[K], B: po.f32[K, D]):
    for k in range(K):
        for d in range(D):
            B[k, d] = A[I[k], d]


@po.scop
def through_two(A: po.f32[5, M], I: po.i32[M], J: po.i8[K], B: po.f32[K]):
    for k in range(K):
        B[k] += A[J[k] * 2, I[J[k]]]


@po.scop
def unsigned(A: po.f32[7], I: po.u64[K], J: po.u8[K], B: po.f32[K]):
    for k in range(K):
        B[k] = A[I[k]] - A[J[k]]


@po.scop
def by_scalar(A: po.f32[M], n: po.i32, B: po.f32[K]):
    for k in range(K):
        B[k] = A[n] * 2.0


def _nearest(i: np.ndarray, n: int) -> np.ndarray:
    i = i.astype(object)
    return np.clip(np.where(i < 0, i + n, i), 0, n - 1).astype(np.int64)


def _wild(n: int, count: int, dtype: type, rng: np.random.Generator) -> np.ndarray:
    ends = np.iinfo(dtype)
    some = np.array([0, n - 1, n, ends.max, ends.min, ends.max - 1, ends.min + 1], object)
    near = rng.integers(-3 * n if ends.min else 0, 3 * n, count)
    return np.concatenate([some, np.clip(near, ends.min, ends.max)]).astype(dtype)


@pytest.mark.parametrize("isa", ["native", "scalar"])
@pytest.mark.parametrize("make", [po.schedule, po.auto], ids=["schedule", "auto"])
def test_index_from_data(make, isa: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(10).astype(np.float32)
    b = np.zeros(3, np.float32)
    kernel = make(gather).compile(isa=isa)
    kernel(a, np.array([0, -1, 9], np.int32), b)
    assert b.tolist() == [a[0], a[9], a[9]]
    for count in (0, 1, 40):
        i = _wild(10, count, np.int32, rng)
        b = np.zeros(len(i), np.float32)
        kernel(a, i, b)
        assert np.array_equal(b, a[_nearest(i, 10)])

    wide = rng.standard_normal((6, 37)).astype(np.float32)
    i = _wild(6, 20, np.int64, rng)
    b2 = np.zeros((len(i), 37), np.float32)
    make(rows).compile(isa=isa)(wide, i, b2)
    assert np.array_equal(b2, wide[_nearest(i, 6)])

    square = rng.standard_normal((5, 4)).astype(np.float32)
    i, j = _wild(4, 0, np.int32, rng)[:4], _wild(4, 30, np.int8, rng)
    b = rng.standard_normal(len(j)).astype(np.float32)
    want = b + square[_nearest(j * np.int8(2), 5), _nearest(i[_nearest(j, 4)], 4)]
    make(through_two).compile(isa=isa)(square, i, j, b)
    assert np.array_equal(b, want)

    i, j = _wild(7, 20, np.uint64, rng), _wild(7, 20, np.uint8, rng)
    b = np.zeros(len(i), np.float32)
    make(unsigned).compile(isa=isa)(a[:7].copy(), i, j, b)
    assert np.array_equal(b, a[_nearest(i, 7)] - a[_nearest(j, 7)])

    for n in (-(2**31), -11, -1, 3, 10, 2**31 - 1):
        b = np.zeros(5, np.float32)
        make(by_scalar).compile(isa=isa)(a, b, n)
        assert np.array_equal(b, np.full(5, a[_nearest(np.array([n]), 10)[0]] * np.float32(2)))


def test_index_from_data_in_an_empty_tensor_reads_zero() -> None:
    b = np.ones(5, np.float32)
    po.auto(gather).compile()(np.zeros(0, np.float32), np.arange(5, dtype=np.int32), b)
    assert not b.any()
    b = np.ones((5, 70000), np.float32)
    po.auto(rows).compile()(np.zeros((0, 70000), np.float32), np.arange(5), b)
    assert not b.any()


def test_reference_keeps_the_index_error() -> None:
    a, b = np.arange(10, dtype=np.float32), np.zeros(2, np.float32)
    gather.reference(a, np.array([-1, -10], np.int32), b)
    assert b.tolist() == [9, 0]
    with pytest.raises(IndexError):
        gather.reference(a, np.array([0, 10], np.int32), b)


def test_index_from_data_keeps_the_vectors_along_rows() -> None:
    text = po.auto(rows).source(isa="avx2").text
    assert "float *p1 = B + stride0 * k" in text and "*(v8f32u *)(p1 + v0)" in text


# ---- compilers that misbehave
def _compiler(host: Compiler, path: Path, broken: str) -> str:
    """The host's compiler, but for `broken`, shell text that runs first with $out the file asked for."""
    run = " ".join(f"'{c}'" for c in host.command) + ' "$@"'
    out = "out=$(echo \" $*\" | sed 's/.* -o \\([^ ]*\\).*/\\1/')"
    path.write_text(f'#!/bin/sh\ncase "$*" in --version*|-dumpmachine*) exec {run};; esac\n{out}\n{broken}\nexec {run}\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "broken",
    ['printf rubbish > "$out"; exit 0', ': > "$out"; exit 0', "printf '\\177ELF' > \"$out\"; exit 0",
     'case "$out" in *.so) echo rubbish > "$out"; exit 0;; esac'],
)  # fmt: skip
def test_a_compiler_that_writes_rubbish_and_is_repaired(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, good = Cache(tmp_path / "cache"), find_compiler()
    monkeypatch.setenv("POLYOPT_CC", _compiler(good, tmp_path / "cc", broken))
    with pytest.raises(CompilerError, match=r"ended with exit code 0, and the \S+ that it made is (no object file|empty|cut off)"):
        load_kernel(GEMM, cache=cache)
    monkeypatch.setenv("POLYOPT_CC", _compiler(good, tmp_path / "cc", ""))
    assert find_compiler().version == good.version
    _check_gemm(load_kernel(GEMM, cache=cache))


@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_rubbish_in_the_cache_is_built_anew(suffix: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    load_kernel(GEMM, cache=cache)
    for file in list(tmp_path.rglob("*.so")) + list(tmp_path.rglob("*.o")):
        data = file.read_bytes()
        file.unlink()
        if file.suffix == suffix:  # right by its name, and good for nothing
            bad = data[:64] + bytes(len(data) - 64)
            (file.parent / f"{blake3(bad).hexdigest()}{suffix}").write_bytes(bad)
    _check_gemm(load_kernel(GEMM, cache=cache))


def _check_gemm(kernel: CompiledKernel) -> None:
    a, b, c = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    kernel(a, b, c, 2.0)
    assert (c == 6).all()


def test_a_compiler_that_does_not_name_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "true"
    path.write_text("#!/bin/sh\ncase $1 in --version) echo true 1;; esac\n")
    path.chmod(0o755)
    monkeypatch.setenv("POLYOPT_CC", str(path))
    with pytest.raises(CompilerError, match=r"true does not name its machine \(`-dumpmachine` answers nothing\)"):
        po.auto(gather).compile(isa="avx2")


def test_a_compiler_that_hangs_is_asked_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = find_compiler()
    monkeypatch.setattr(compiler, "ANSWER_S", 0.5)
    path = tmp_path / "hang"
    path.write_text("#!/bin/sh\nsleep 40 & wait\n")
    path.chmod(0o755)
    monkeypatch.setenv("POLYOPT_CC", str(path))
    start = time.monotonic()
    with pytest.raises(CompilerError, match=r"does not answer `--version` within 0.5 s"):
        po.auto(gather).compile(isa="scalar")
    monkeypatch.setenv("POLYOPT_CC", _compiler(good, tmp_path / "slow", "sleep 40 & wait"))
    monkeypatch.setattr(compiler, "ANSWER_S", 20.0)
    monkeypatch.setenv("POLYOPT_CC_TIMEOUT", "0.5")
    with pytest.raises(CompilerError, match=r"did not end within 0.5 s"):
        po.auto(gather).compile(isa="scalar", threads=2)
    assert time.monotonic() - start < 20


# ---- places of arguments
@po.scop
def mixed(T: int, alpha: po.f32, A: po.f32[M], unused: po.f32[M], B: po.f32[M]):
    for t in range(T):
        for i in range(M):
            B[i] += alpha * A[i] + t * 1.0


def test_arguments_are_placed_as_in_the_python_function() -> None:
    rng = np.random.default_rng(0)
    a, want = rng.standard_normal(9).astype(np.float32), np.zeros(9, np.float32)
    mixed.reference(3, 0.5, a, a, want)
    kernel = po.auto(mixed).compile()
    calls = [
        ((3, 0.5, a, a), {}), ((3, 0.5, a), {"unused": a}), ((3, 0.5), {"A": a, "unused": a}), ((np.int64(3), np.float32(0.5), a, a), {}),
        ((3,), {"A": a, "alpha": 0.5, "unused": a}), ((), {"T": 3, "A": a, "alpha": 0.5, "unused": a}),
    ]  # fmt: skip
    for args, named in calls:
        b = np.zeros(9, np.float32)
        kernel(*args, B=b, **named)
        assert np.array_equal(b, want), (args, named)
    for args, named in (((3, 0.5, a, a, "b"), {}), (("a", "a", "b", 0.5), {"T": 3}), (("a", "a", "b"), {"T": 3, "alpha": 0.5})):
        b = np.zeros(9, np.float32)
        kernel(*(x if not isinstance(x, str) else b if x == "b" else a for x in args), **named)
        assert np.array_equal(b, want), (args, named)
    assert repr(kernel).startswith("<kernel k_mixed: T: int, alpha: float32, A: float32(M,), unused: float32(M,), B: float32(M,)")


def test_arguments_out_of_place_are_told() -> None:
    a, b = np.ones(9, np.float32), np.zeros(9, np.float32)
    kernel = po.auto(mixed).compile()
    wrong = [
        ((a, 0.5, 3), {"B": b}, r"3 arguments by place \(an array of shape \(9,\), float, int\) fit neither the function's order \(T, alpha, A, "),
        ((3, 0.5, a, a, b), {"T": 3}, "argument 'T' is given twice"),
        ((2.5, 0.5, a, a, b), {}, "dim T: expected a whole number"),
        ((3, 0.5, a, a), {}, "argument 'B' is missing"),
        ((3, 0.5, a, a, b, b), {}, "6 arguments by place"),
        ((0.5, a, a, b), {}, "fit neither"),
    ]
    for args, named, text in wrong:
        with pytest.raises(ArgumentError, match=text) as e:
            kernel(*args, **named)
        assert "\n" not in str(e.value)
    with pytest.raises(ArgumentError, match="T follows from no"):
        kernel(a, a, b, 0.5)


def test_a_bound_size_is_no_argument() -> None:
    a, b = np.ones(9, np.float32), np.zeros(9, np.float32)
    fn = mixed.specialize(T=2)
    po.auto(fn).compile()(0.5, a, a, b)
    want = np.zeros(9, np.float32)
    fn.reference(0.5, a, a, want)
    assert np.array_equal(b, want)


def test_sizes_at_which_nothing_runs_are_named() -> None:
    fn = gather.specialize(K=0)
    with pytest.raises(NotAffine, match="`gather` runs no statement at K=0: there is nothing to compile") as e:
        po.auto(fn)
    assert "\n" not in str(e.value)
    b = np.zeros(0, np.float32)
    fn.reference(np.ones(3, np.float32), np.zeros(0, np.int32), b)
    po.auto(gather).compile()(np.ones(3, np.float32), np.zeros(0, np.int32), b)
