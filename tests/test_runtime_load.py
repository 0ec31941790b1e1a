"""Kernels and programs called from Python: results, arguments that are wrong, symbolic dims, threads, cost of a call."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import timeit
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from runtime_samples import GEMM, REVERSE, M, N, pointwise, shape, static_program, static_reference, symbolic_program, symbolic_reference, tensor

from polyopt.errors import ArgumentError, InternalError, UserError
from polyopt.ir.affine import affine
from polyopt.ir.dtype import ALL, BY_NUMPY, f16, i32
from polyopt.ir.program import Arg, Buffer, KernelCall, Port, Program
from polyopt.ir.source import Source
from polyopt.ir.tensor import ScalarArg
from polyopt.runtime import compiler
from polyopt.runtime.arrays import numpy_dtype
from polyopt.runtime.cache import Cache
from polyopt.runtime.entry import check_program
from polyopt.runtime.load import load_kernel, load_program
from polyopt.runtime.model import CompiledModel
from polyopt.runtime.shapes import bind_dims
from polyopt.target import cpu_flags

cc = pytest.mark.cc


class Foreign:
    """An array of another library: DLPack only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Unversioned(Foreign):
    """As older libraries export: no `max_version`, and `__array__` that shares memory."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def copy_kernel(dtype_name: str) -> Source:
    dtype = BY_NUMPY[dtype_name]
    t = dtype.ctype
    return Source(
        text=f"#include <stdint.h>\nvoid copy(const {t} *restrict x, {t} *restrict y, {t} s, int64_t N) {{\n"
        "  for (int64_t i = 0; i < N; i++) y[i] = i ? x[i] : s;\n}\n",
        entry="copy",
        tensors=(tensor("x", (N,), "input", dtype), tensor("y", (N,), "output", dtype)),
        scalars=(ScalarArg("s", dtype),),
        params=("N",),
    )


# ---- binding dims
def test_bind_dims() -> None:
    two = [("input 'x'", shape(N, 2 * M + 1)), ("input 'y'", shape((N + M) // 2, 3))]
    assert bind_dims(("N", "M"), two, [(5, 9), (4, 3)]) == {"N": 5, "M": 4}
    with pytest.raises(ArgumentError, match=r"input 'y': expected shape \(floor.*axis 0 is 7, expected 4"):
        bind_dims(("N", "M"), two, [(5, 9), (7, 3)])
    with pytest.raises(ArgumentError, match=r"which has 2 axes, got \(5,\), which has 1"):
        bind_dims(("N", "M"), two, [(5,), (7, 3)])
    with pytest.raises(ArgumentError, match="dim T follows from no argument's shape"):
        bind_dims(("N", "T"), [("input 'x'", shape(N))], [(5,)])
    assert bind_dims(("N", "T"), [("input 'x'", shape(N))], [(5,)], {"T": 3}) == {"N": 5, "T": 3}
    with pytest.raises(ArgumentError, match="expected 4"):
        bind_dims(("N",), [("input 'x'", shape(N))], [(5,)], {"N": 4})
    with pytest.raises(ArgumentError, match="there is no dim 'Q'"):
        bind_dims(("N",), [("input 'x'", shape(N))], [(5,)], {"Q": 4})
    with pytest.raises(ArgumentError, match="dim N follows from no"):  # 2M + 1 = 8 has no solution
        bind_dims(("N",), [("input 'x'", shape(2 * N + 1))], [(8,)])
    # solved in the second sweep, when the other dim is known
    assert bind_dims(("N", "M"), [("a", shape(N + M)), ("b", shape(N))], [(7,), (3,)]) == {"N": 3, "M": 4}


# ---- kernels
@cc
@pytest.mark.parametrize("command", ["gcc", "clang-19"])
def test_gemm_with_each_compiler(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler.shutil.which(command) is None:
        pytest.skip(f"{command} not found")
    monkeypatch.setenv("POLYOPT_CC", command)
    f = load_kernel(GEMM)
    rng = np.random.default_rng(0)
    for m, n, k in ((3, 5, 4), (1, 1, 1), (0, 3, 2), (7, 2, 0)):
        a, b, c = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.full((m, n), np.nan, np.float32)
        assert f(a, b, c, 2.0) is None
        np.testing.assert_allclose(c, 2 * (a @ b), rtol=1e-5)
        f(a, C=c, B=b, alpha=np.float32(-1), N=n)
        np.testing.assert_allclose(c, -(a @ b), rtol=1e-5)


@cc
@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
def test_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_CC", f"{sys.executable} -m ziglang cc")
    x = np.random.default_rng(0).random((2, 8), np.float32)
    got = load_program(static_program()).run({"x": x})
    np.testing.assert_allclose(got["z"], static_reference(x)["z"], rtol=1e-6)


@cc
def test_kernel_inputs_of_all_kinds() -> None:
    f = load_kernel(GEMM)
    rng = np.random.default_rng(0)
    a, b, c = rng.random((4, 3), np.float32), rng.random((4, 8), np.float32), np.zeros((3, 4), np.float32)
    f(a.T, b[:, ::2], c, 1)  # strided inputs are copied
    np.testing.assert_allclose(c, a.T @ b[:, ::2], rtol=1e-5)
    a.setflags(write=False)
    f(np.ascontiguousarray(a.T), Foreign(np.ascontiguousarray(b[:, ::2])), c, 3)
    np.testing.assert_allclose(c, 3 * (a.T @ b[:, ::2]), rtol=1e-5)
    f(np.ones((3, 4), np.float32), np.ones((4, 4), np.float32), Foreign(c), 1)
    np.testing.assert_array_equal(c, np.full((3, 4), 4))
    f(np.ones((3, 4), np.float32), Unversioned(np.ones((4, 4), np.float32)), Unversioned(c), 2)
    np.testing.assert_array_equal(c, np.full((3, 4), 8))


@cc
def test_kernel_arguments_that_are_wrong() -> None:
    f = load_kernel(GEMM)
    a, b, c = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.zeros((3, 5), np.float32)

    def refused(pattern: str, *args: Any, **named: Any) -> None:
        with pytest.raises(ArgumentError, match=pattern) as e:
            f(*args, **named)
        assert "\n" not in str(e.value)

    refused("argument 'alpha' is missing", a, b, c)
    refused("takes 4 arguments .A, B, C, alpha., got 5", a, b, c, 1, 2)
    refused("has no argument 'beta'", a, b, c, 1, beta=2)
    refused("argument 'A' is given twice", a, b, c, 1, A=a)
    refused("argument 'A': expected dtype float32, got float64", a.astype(float), b, c, 1)
    refused("argument 'B': expected an array .NumPy or DLPack., got list", a, [[1]], c, 1)
    refused(r"argument 'B': expected shape \(K, N\), got \(3, 5\): axis 0 is 3, expected 4", a, b[:3], c, 1)
    refused(r"argument 'C': expected shape \(M, N\), which has 2 axes", a, b, c[0], 1)
    refused("argument 'C': is written in place and must be dense", a, b, np.zeros((5, 3), np.float32).T, 1)
    refused("argument 'alpha': expected a scalar of dtype float32, got 'x'", a, b, c, "x")
    square = np.ones((3, 3), np.float32)
    refused("arguments 'B' and 'C' share memory", np.ones((3, 3), np.float32), square, square, 1)
    refused(r"axis 1 is 5, expected 6 \(N = 6\)", a, b, c, 1, N=6)
    f(a, b, c, 1, N=5)
    refused("whole number", a, b, c, 1, N=5.0)
    c.setflags(write=False)
    refused("argument 'C': is written to and the array given is read-only", a, b, c, 1)
    integer = load_kernel(copy_kernel("int8"))
    with pytest.raises(ArgumentError, match="expected a scalar of dtype int8, got 300"):
        integer(np.zeros(2, np.int8), np.zeros(2, np.int8), 300)
    with pytest.raises(ArgumentError, match=r"expected a scalar of dtype int8, got 1\.5"):
        integer(np.zeros(2, np.int8), np.zeros(2, np.int8), 1.5)


@cc
@pytest.mark.parametrize("dtype", [t.numpy for t in ALL])
def test_every_dtype_goes_through(dtype: str) -> None:
    d = numpy_dtype(BY_NUMPY[dtype])
    x = np.array([0, 1, 0, 1, 1], dtype=d)
    y = np.zeros(5, dtype=d)
    scalar: Any = np.array(1, d).view(np.uint16)[()] if dtype == "bfloat16" else True if dtype == "bool" else 1
    kernel = load_kernel(copy_kernel(dtype))
    kernel(x, y, scalar if dtype != "bfloat16" else ml_dtypes.bfloat16(1))
    np.testing.assert_array_equal(y.astype(float), [1, 1, 0, 1, 1])
    assert y.dtype == d


@cc
def test_scratch_locals_and_unbound_params() -> None:
    f = load_kernel(REVERSE)
    for n in (5, 1000, 3, 0):
        x = np.arange(n, dtype=np.float32)
        f(x)
        np.testing.assert_array_equal(x, np.arange(n, dtype=np.float32)[::-1])
    # a dim that is no C identifier: the emitter renames it, in the scratch expression too
    odd = {"params": ("seq-len",), "tensors": (tensor("X", (affine("seq-len"),), "inout"),), "scratch_bytes": "4 * n_1"}
    g = load_kernel(Source(**{**REVERSE.__dict__, **odd, "text": REVERSE.text.replace("N", "n_1")}))
    x = np.arange(77, dtype=np.float32)
    g(x)
    np.testing.assert_array_equal(x, np.arange(77, dtype=np.float32)[::-1])
    steps = Source(
        text="""#include <stdint.h>
void steps(float *restrict x, float *restrict t, int64_t N, int64_t T) {
  for (int64_t s = 0; s < T; s++) {
    for (int64_t i = 0; i < N; i++) t[i] = x[i] + 1.0f;
    for (int64_t i = 0; i < N; i++) x[i] = t[i];
  }
}
""",
        entry="steps",
        tensors=(tensor("x", (N,), "inout"), tensor("t", (N,), "local")),
        params=("N", "T"),
    )
    g = load_kernel(steps)
    x = np.zeros(9, np.float32)
    g(x, T=5)
    g(x, T=2)
    np.testing.assert_array_equal(x, np.full(9, 7))
    with pytest.raises(ArgumentError, match="dim T follows from no"):
        g(x)


@cc
def test_kernel_threads_and_times() -> None:
    text = """#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif
void count(int32_t *restrict n) {
  n[0] = 1;
#ifdef _OPENMP
  n[0] = omp_get_max_threads();
#endif
}
"""
    source = Source(text, "count", (tensor("n", (1,), "output", i32),), flags=("-fopenmp",))
    openmp = compiler.has_openmp(compiler.find_compiler(openmp=True))
    n = np.zeros(1, np.int32)
    load_kernel(source, threads=3)(n)
    assert n[0] == (3 if openmp else 1)
    times = load_kernel(source, threads=1).time(n, repeat=4)
    assert len(times) == 4 and all(0 < t < 1 for t in times) and n[0] == 1
    with pytest.raises(ArgumentError, match="threads=0"):
        load_kernel(source, threads=0)


@cc
@pytest.mark.skipif("avx512_fp16" in cpu_flags() or not cpu_flags(), reason="this CPU has AVX512-FP16, or it is not known")
def test_a_cpu_that_lacks_the_isa_is_told() -> None:
    if not compiler.accepts_flags(compiler.find_compiler(), ("-mavx512fp16",)):
        pytest.skip("the compiler does not know -mavx512fp16")
    fast = pointwise("fast", "a * b", flags=("-mavx512fp16",))
    with pytest.raises(UserError, match="this CPU lacks avx512fp16"):
        load_kernel(fast)
    p = static_program("needs fp16")
    with pytest.raises(UserError, match="model needs fp16 was compiled for a CPU with avx512fp16, which this one lacks"):
        load_program(Program(**{**p.__dict__, "kernels": (pointwise("scale", "a * b", flags=("-mavx512fp16",)), *p.kernels[1:])}))


@cc
@pytest.mark.skipif(not {"avx2", "fma"} <= cpu_flags(), reason="this CPU has no AVX2")
def test_isa_flags_apply() -> None:
    source = pointwise("wide", "__builtin_fmaf(a, b, a)", flags=("-mavx2", "-mfma"), isa="avx2")
    x, w, y = np.arange(64, dtype=np.float32), np.arange(4, dtype=np.float32), np.zeros(64, np.float32)
    load_kernel(source)(x, w, y)
    np.testing.assert_array_equal(y, x * np.tile(w, 16) + x)


# ---- programs
@pytest.fixture(scope="module")
def static() -> CompiledModel:
    return load_program(static_program())


@pytest.fixture(scope="module")
def symbolic() -> CompiledModel:
    return load_program(symbolic_program())


@cc
def test_static_program(static: CompiledModel) -> None:
    x = np.random.default_rng(1).random((2, 8), np.float32)
    want = static_reference(x)
    z, y = static(x)
    for got in ({"z": z, "y": y}, static.run({"x": x}), static.run({"x": Foreign(x)}), static.run({"x": np.asfortranarray(x)})):
        np.testing.assert_allclose(got["z"], want["z"], rtol=1e-6)
        np.testing.assert_array_equal(got["y"], want["y"])
    again = static(x=x)
    assert again[0] is not z and not np.shares_memory(again[1], y)  # fresh arrays
    assert static.arena_bytes >= 128
    assert "x: float32(2, 8)" in repr(static)


@cc
def test_outputs_given(static: CompiledModel) -> None:
    x = np.ones((2, 8), np.float32)
    z, y = np.zeros(2, np.float32), np.zeros((2, 8), np.float32)
    got = static(x, out=(z, y))
    assert got[0] is z and got[1] is y
    np.testing.assert_array_equal(y, static_reference(x)["y"])
    assert static.run({"x": x}, out={"y": y, "z": z})["z"] is z
    for out, pattern in (
        ((z,), "expected 2 arrays"),
        ((z, y.T), r"output 'y': is written in place"),
        ((y, z), r"output 'z': expected shape \(2,\), got \(2, 8\)"),
        ((z, x), "output 'y' shares memory with another argument"),
        ((z.astype(float), y), "output 'z': expected dtype float32, got float64"),
        ({"z": z}, "'y' is unknown or missing"),
    ):
        with pytest.raises(ArgumentError, match=pattern):
            static(x, out=out)


@cc
def test_program_arguments_that_are_wrong(static: CompiledModel, symbolic: CompiledModel) -> None:
    x = np.ones((2, 8), np.float32)
    for call, pattern in (
        (lambda: static(), "input 'x' is missing"),
        (lambda: static(x, x), "takes 1 inputs"),
        (lambda: static(x, x=x), "given twice"),
        (lambda: static.run({"w": x}), "has no input 'w'"),
        (lambda: static(x.astype(np.float16)), "input 'x': expected dtype float32, got float16"),
        (lambda: static(x.astype(">f4")), "expected dtype float32, got >f4"),
        (lambda: static(x[:1]), r"input 'x': expected shape \(2, 8\), got \(1, 8\): axis 0 is 1, expected 2"),
        (lambda: static(x[0]), "which has 2 axes"),
        (lambda: static(None), "got NoneType"),
        (lambda: symbolic(x[:, :7].copy()), "N"),
    ):
        with pytest.raises(ArgumentError, match=pattern) as e:
            call()
        assert "\n" not in str(e.value)


@cc
def test_symbolic_program_follows_the_dims(symbolic: CompiledModel) -> None:
    rng = np.random.default_rng(2)
    for m, n in ((3, 5), (1, 1), (70, 300), (3, 5)):
        x = rng.random((m, 4 * n), np.float32)
        np.testing.assert_allclose(symbolic(x), symbolic_reference(x), rtol=2e-5, atol=1e-6)
    for m, n in ((0, 4), (2, 0)):
        with pytest.raises(ArgumentError, match="is 0: a model's dims are at least 1"):
            symbolic(np.zeros((m, 4 * n), np.float32))
    assert symbolic.arena_bytes >= 70 * 1200 * 4
    times = symbolic.profile([x := rng.random((64, 400), np.float32)], repeat=3)
    assert [label for label, _ in times] == ["rows", "sum"] and all(t > 0 for _, t in times)
    np.testing.assert_allclose(symbolic(x), symbolic_reference(x), rtol=2e-5)


@cc
def test_zero_buffers_are_zero_for_every_size() -> None:
    """A kernel that adds into a buffer that is zero when a context is made, and leaves it zero."""
    text = """#include <stdint.h>
void add_into(const float *restrict x, float *restrict t, float *restrict y, int64_t N) {
  for (int64_t i = 0; i < N; i++) t[i] += x[i];
  for (int64_t i = 0; i < N; i++) y[i] = t[i], t[i] = 0.0f;
}
"""
    kernel = Source(text, "add_into", (tensor("x", (N,), "input"), tensor("t", (N,), "inout"), tensor("y", (N,), "output")), params=("N",))
    ones = Source(
        "#include <stdint.h>\nvoid ones(float *restrict y, int64_t N) {\n  for (int64_t i = 0; i < N; i++) y[i] = 1.0f;\n}\n",
        "ones", (tensor("y", (N,), "output"),), params=("N",),
    )  # fmt: skip
    f32 = BY_NUMPY["float32"]
    program = Program(
        "zeros", (Port("x", f32, shape(N)),), (Port("y", f32, shape(N)),), ("N",), (ones, kernel),
        (
            KernelCall("ones", (Arg("arena", "dirt"),), (affine("N"),)),
            KernelCall("add_into", (Arg("input", "x"), Arg("arena", "t"), Arg("output", "y")), (affine("N"),)),
        ),
        (Buffer("dirt", shape(N), 4, 0, 0), Buffer("t", shape(N), 4, 0, 1, zero=True)), 0, {},
    )  # fmt: skip
    model = load_program(program)
    for n in (100, 3, 70, 100, 5000, 20):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model(x), x)
        np.testing.assert_array_equal(model(x), x)


@cc
def test_sizes_that_overflow_are_refused(symbolic: CompiledModel) -> None:
    error = ctypes.create_string_buffer(512)
    handle = symbolic._create(error, 512)
    library, p = symbolic._library, ctypes.c_void_p * 1
    memory = np.zeros(4, np.float32)
    pointers = p(memory.ctypes.data)
    for dims, pattern in (
        ((2**40, 2**40), "do not fit in 64 bits"),
        ((-1, 2), "dim M is -1"),
        ((2**40, 2**12), "memory"),
    ):
        assert library.run(handle, pointers, pointers, (ctypes.c_int64 * 2)(*dims)) != 0
        assert pattern in library.last_error(handle).decode()
    assert library.run(handle, None, pointers, (ctypes.c_int64 * 2)(1, 1)) != 0 and b"input x is NULL" in library.last_error(handle)
    assert library.run(handle, pointers, pointers, None) != 0 and b"dims is NULL" in library.last_error(handle)
    library.destroy(handle)


@cc
def test_many_threads_at_once(symbolic: CompiledModel) -> None:
    rng = np.random.default_rng(3)
    xs = [rng.random((m, 4 * m), np.float32) for m in (1, 5, 40, 90)]
    wants = [symbolic_reference(x) for x in xs]
    wrong: list[object] = []

    def work(i: int) -> None:
        try:
            for _ in range(30):
                np.testing.assert_allclose(symbolic(xs[i]), wants[i], rtol=2e-5)
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@cc
def test_openmp_program_and_threads() -> None:
    program = symbolic_program("par", flags=("-fopenmp",), pragma="#pragma omp parallel for", threads=2)
    x = np.random.default_rng(4).random((31, 8), np.float32)
    for threads in (None, 1, 2, 64):
        np.testing.assert_allclose(load_program(program, threads=threads)(x), symbolic_reference(x), rtol=2e-5)


@cc
def test_large_outputs_are_aligned_and_contexts_are_freed() -> None:
    big = Program(
        "big", (Port("x", BY_NUMPY["float32"], shape(N)),), (Port("y", BY_NUMPY["float32"], shape(N)),), ("N",),
        (pointwise("scale", "a * b"),),
        (KernelCall("scale", (Arg("input", "x"), Arg("constant", "w"), Arg("output", "y")), (affine("N"),)),), (), 0,
        {"w": np.arange(4, dtype=np.float32)},
    )  # fmt: skip
    model = load_program(big)
    y = model(np.ones(10_000, np.float32))
    assert y.ctypes.data % 64 == 0 and y[3] == 3
    del model
    gc.collect()
    assert y[7] == 3


@pytest.mark.parametrize(
    "change, pattern",
    [
        ({"arena_bytes": 64}, "buffer t1 ends after the arena"),
        ({"constants": {}}, "there is no constant 'w0'"),
        ({"kernels": (pointwise("scale", "a"),)}, "call of shift, which is no kernel"),
        ({"calls": (KernelCall("scale", (Arg("input", "x"),)),)}, "does not fit"),
        ({"calls": (KernelCall("scale", (Arg("input", "x"), Arg("constant", "w0"), Arg("input", "x")), (affine(4),)),)}, "writes the input"),
    ],
)
def test_programs_that_break_the_contract(change: dict[str, Any], pattern: str) -> None:
    with pytest.raises(InternalError, match=pattern):
        check_program(Program(**{**static_program().__dict__, **change}))


@cc
def test_names_from_models_are_only_text(tmp_path: Path) -> None:
    p = symbolic_program('9 "x" */ %s @P@ ??/ \\')
    odd = Program(**{**p.__dict__, "inputs": (Port('in"%d\\\n*/é/*', p.inputs[0].dtype, p.inputs[0].shape),)})
    calls = tuple(
        KernelCall(c.entry, tuple(Arg("input", odd.inputs[0].name) if a.kind == "input" else a for a in c.args), c.params, 'a"b%s@IO@')
        for c in p.calls
    )
    model = load_program(Program(**{**odd.__dict__, "calls": calls}), cache=Cache(tmp_path))
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(model.run({odd.inputs[0].name: x})["z"], symbolic_reference(x))


@cc
def test_a_call_costs_microseconds(symbolic: CompiledModel) -> None:
    """The bound is loose, since tests run beside others; the unit is the time of an empty function call on this machine, now."""
    x, n = np.ones((1, 4), np.float32), 300
    f = load_kernel(GEMM)
    a, b, c = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    unit = min(timeit.repeat(lambda: None, number=n, repeat=20))
    assert min(timeit.repeat(lambda: symbolic(x), number=n, repeat=20)) < 600 * unit
    assert min(timeit.repeat(lambda: f(a, b, c, 1.0), number=n, repeat=20)) < 600 * unit


@cc
def test_half_precision_scalars() -> None:
    f = load_kernel(copy_kernel(f16.numpy))
    y = np.zeros(2, np.float16)
    f(np.ones(2, np.float16), y, 0.5)
    np.testing.assert_array_equal(y, np.array([0.5, 1], np.float16))
