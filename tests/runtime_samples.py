"""Hand-written kernels and programs for the runtime's tests. Takes nothing; gives `Source`s and `Program`s in plain C."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import DType, f32
from polyopt.ir.program import Arg, Buffer, KernelCall, Port, Program
from polyopt.ir.source import Source
from polyopt.ir.tensor import ScalarArg, Tensor

N, M, K = var("N"), var("M"), var("K")


def shape(*sizes: Affine | int) -> tuple[Affine, ...]:
    """A shape of ints and affine expressions."""
    return tuple(affine(s) for s in sizes)


def tensor(name: str, sizes: tuple[Any, ...], role: str, dtype: DType = f32) -> Tensor:
    """A kernel's tensor."""
    return Tensor(name, dtype, shape(*sizes), role)


GEMM = Source(
    text="""#include <stdint.h>
void gemm(const float *restrict A, const float *restrict B, float *restrict C, float alpha, int64_t K, int64_t M, int64_t N) {
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      float s = 0.0f;
      for (int64_t k = 0; k < K; k++) s += A[i * K + k] * B[k * N + j];
      C[i * N + j] = alpha * s;
    }
}
""",
    entry="gemm",
    tensors=(tensor("A", (M, K), "input"), tensor("B", (K, N), "input"), tensor("C", (M, N), "output")),
    scalars=(ScalarArg("alpha", f32),),
    params=("K", "M", "N"),
)

# needs a scratch row of N floats, 64-byte aligned
REVERSE = Source(
    text="""#include <stdint.h>
#include <string.h>
void reverse(float *restrict X, int64_t N, char *scratch) {
  float *row = (float *)scratch;
  if ((uintptr_t)scratch % 64) return;
  for (int64_t i = 0; i < N; i++) row[i] = X[N - 1 - i];
  memcpy(X, row, (size_t)N * sizeof *row);
}
""",
    entry="reverse",
    tensors=(tensor("X", (N,), "inout"),),
    params=("N",),
    scratch_bytes="4 * N",
)


def pointwise(entry: str, expression: str, flags: tuple[str, ...] = (), isa: str = "scalar", pragma: str = "") -> Source:
    """`y[i] = expression(x[i], w[i % W])` over N elements, W of them constant."""
    header = "#include <omp.h>\n" if "omp" in pragma else ""
    return Source(
        text=f"""#include <stdint.h>
{header}void {entry}(const float *restrict x, const float *restrict w, float *restrict y, int64_t N) {{
{pragma}
  for (int64_t i = 0; i < N; i++) {{ const float a = x[i], b = w[i % 4]; y[i] = {expression}; }}
}}
""",
        entry=entry,
        tensors=(tensor("x", (N,), "input"), tensor("w", (4,), "input"), tensor("y", (N,), "output")),
        params=("N",),
        isa=isa,
        flags=flags,
    )


ROW_SUM = Source(
    text="""#include <stdint.h>
void row_sum(const float *restrict x, float *restrict y, int64_t M, int64_t N, char *scratch) {
  float *partial = (float *)scratch;
  for (int64_t i = 0; i < M; i++) {
    partial[0] = 0.0f;
    for (int64_t j = 0; j < N; j++) partial[0] += x[i * N + j];
    y[i] = partial[0];
  }
}
""",
    entry="row_sum",
    tensors=(tensor("x", (M, N), "input"), tensor("y", (M,), "output")),
    params=("M", "N"),
    scratch_bytes=64,
)


def static_program(name: str = "tiny model", scale: str = "a * b") -> Program:
    """x[2, 8] → y = scale(x, w), z = row sums of y + w; two calls of one kernel, two buffers in one arena, two constants."""
    w0, w1 = np.array([1, 2, 3, 4], np.float32), np.array([0.5, -1, 2, 8], np.float32)
    return Program(
        name=name,
        inputs=(Port("x", f32, shape(2, 8)),),
        outputs=(Port("z", f32, shape(2)), Port("y", f32, shape(2, 8))),
        dims=(),
        kernels=(pointwise("scale", scale), pointwise("shift", "a + b"), ROW_SUM),
        calls=(
            KernelCall("scale", (Arg("input", "x"), Arg("constant", "w0"), Arg("arena", "t0")), (affine(16),), "scale of x"),
            KernelCall("shift", (Arg("arena", "t0"), Arg("constant", "w1"), Arg("arena", "t1")), (affine(16),)),
            KernelCall("row_sum", (Arg("arena", "t1"), Arg("output", "z")), (affine(2), affine(8))),
            KernelCall("scale", (Arg("input", "x"), Arg("constant", "w0"), Arg("output", "y")), (affine(16),)),
        ),
        buffers=(Buffer("t0", shape(2, 8), 4, 0), Buffer("t1", shape(2, 8), 4, 64)),
        arena_bytes=128,
        constants={"w0": w0, "w1": w1, "unused": np.zeros(3, np.float32)},
    )


def static_reference(x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What `static_program` computes."""
    w0, w1 = np.array([1, 2, 3, 4], np.float32), np.array([0.5, -1, 2, 8], np.float32)
    y = (x.reshape(-1, 4) * w0).reshape(2, 8)
    return {"z": (y.reshape(-1, 4) + w1).reshape(2, 8).sum(axis=1, dtype=np.float32), "y": y}


def symbolic_program(name: str = "sym", flags: tuple[str, ...] = (), pragma: str = "", threads: int = 1) -> Program:
    """x[M, 4*N] → z[M] = row sums of (x * w0 + w1); slots and params follow the dims."""
    w0, w1 = np.array([1, 2, 3, 4], np.float32), np.array([0.5, -1, 2, 8], np.float32)
    wide = Source(
        **{**ROW_SUM.__dict__, "scratch_bytes": "64 + 0 * N"},
    )
    header = "#include <omp.h>\n" if "omp" in pragma else ""
    rows = Source(
        text=f"""#include <stdint.h>
{header}void rows(const float *restrict x, const float *restrict w, const float *restrict v, float *restrict y, int64_t M, int64_t N) {{
{pragma}
  for (int64_t i = 0; i < M; i++) {{
    const int64_t from = {"omp_get_thread_num() < 0" if header else "0"};
    for (int64_t j = from; j < N; j++) y[i * N + j] = x[i * N + j] * w[j % 4] + v[j % 4];
  }}
}}
""",
        entry="rows",
        tensors=(tensor("x", (M, N), "input"), tensor("w", (4,), "constant"), tensor("v", (4,), "constant"), tensor("y", (M, N), "output")),
        params=("M", "N"),
        flags=flags,
    )
    return Program(
        name=name,
        inputs=(Port("x", f32, shape(M, 4 * N)),),
        outputs=(Port("z", f32, shape(M)),),
        dims=("M", "N"),
        kernels=(rows, wide),
        calls=(
            KernelCall("rows", (Arg("input", "x"), Arg("constant", "w0"), Arg("constant", "w1"), Arg("arena", "t")), (M, 4 * N), "rows"),
            KernelCall("row_sum", (Arg("arena", "t"), Arg("output", "z")), (M, 4 * N), "sum"),
        ),
        buffers=(Buffer("t", shape(M, 4 * N), 4, 0, 0), Buffer("spare", shape(3 * N + 1), 4, 0, 1)),
        arena_bytes=0,
        constants={"w0": w0, "w1": w1},
        threads=threads,
    )


def symbolic_reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What `symbolic_program` computes."""
    w0, w1 = np.array([1, 2, 3, 4], np.float32), np.array([0.5, -1, 2, 8], np.float32)
    return (x.reshape(-1, 4) * w0 + w1).reshape(x.shape).sum(axis=1, dtype=np.float32)
