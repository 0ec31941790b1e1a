"""gemm, batched products and convolutions, each against the library that is best at it: OpenBLAS (through NumPy) for products,
oneDNN (through OpenVINO) and ONNX Runtime's own kernels for convolutions, all on the same number of threads.

    python -m benchmarks.contractions [NAME…] [--threads N] [--seconds S] [--json]

Products are plain Python loops under `@po.scop`, scheduled by `po.auto`; convolutions are one-node ONNX models. Each row's note
gives GFLOP/s and, on one thread, the share of the FMA peak, which is measured here by a loop of independent FMAs."""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from threadpoolctl import threadpool_info, threadpool_limits

import polyopt as po
from benchmarks.timing import Row, finish, interleave, parser, row, run
from polyopt.commands.bench import bench_model
from polyopt.commands.oracle import deviation
from polyopt.runtime.build import build_library
from polyopt.runtime.compiler import Unit
from polyopt.target import ISAS, native_isa

B, M, N, K = po.dims("B M N K")


@po.scop
def gemm(A: po.f32[M, K], B: po.f32[K, N], C: po.f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@po.scop
def gemm_nt(A: po.f32[M, K], B: po.f32[N, K], C: po.f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[j, k]


@po.scop
def batched(A: po.f32[B, M, K], X: po.f32[B, K, N], C: po.f32[B, M, N]):
    for b in range(B):
        for i in range(M):
            for j in range(N):
                C[b, i, j] = 0.0
                for k in range(K):
                    C[b, i, j] += A[b, i, k] * X[b, k, j]


@dataclass(frozen=True)
class Product:
    """A product of arrays: the scop, its dims, the shapes of its operands and what NumPy calls it."""

    scop: Any
    shapes: tuple[tuple[int, ...], ...]
    numpy: Callable[..., Any]
    flops: int


@dataclass(frozen=True)
class Conv:
    """A 2-D convolution with bias: channels in and out, image size, kernel, stride, groups."""

    cin: int
    cout: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        out = -(-self.size // self.stride)
        return 2 * out * out * self.cout * (self.cin // self.groups) * self.kernel**2


def _gemm(m: int, n: int, k: int) -> Product:
    return Product(gemm, ((m, k), (k, n), (m, n)), lambda a, b, c: np.matmul(a, b, out=c), 2 * m * n * k)


def _gemm_nt(m: int, n: int, k: int) -> Product:
    return Product(gemm_nt, ((m, k), (n, k), (m, n)), lambda a, b, c: np.matmul(a, b.T, out=c), 2 * m * n * k)


def _batched(b: int, m: int, n: int, k: int) -> Product:
    return Product(batched, ((b, m, k), (b, k, n), (b, m, n)), lambda x, y, c: np.matmul(x, y, out=c), 2 * b * m * n * k)


CASES: dict[str, Product | Conv] = {
    "gemm_1024": _gemm(1024, 1024, 1024),
    "gemm_1152x1024x1024": _gemm(1152, 1024, 1024),
    "gemm_128x3072x768": _gemm(128, 3072, 768),
    "gemm_nt_512": _gemm_nt(512, 512, 512),
    "gemm_odd_509x253x127": _gemm(509, 253, 127),
    "batched_12x128x128x64": _batched(12, 128, 128, 64),
    "conv7x7s2_3_64_224": Conv(3, 64, 224, 7, 2),
    "conv1x1_64_256_56": Conv(64, 256, 56, 1),
    "conv3x3_64_64_56": Conv(64, 64, 56, 3),
    "conv3x3_128_128_28": Conv(128, 128, 28, 3),
    "conv3x3_256_256_14": Conv(256, 256, 14, 3),
    "conv3x3_512_512_7": Conv(512, 512, 7, 3),
    "conv3x3s2_128_128_56": Conv(128, 128, 56, 3, 2),
    "depthwise3x3_144_56": Conv(144, 144, 56, 3, 1, 144),
}

_PEAK = """#include <stdint.h>
typedef float v __attribute__((vector_size(%(bytes)d)));
float peak(int64_t n, float x) {
  v a[%(count)d], m, c;
  for (int l = 0; l < %(lanes)d; l++) { m[l] = x; c[l] = 1.0f - x; }
  for (int r = 0; r < %(count)d; r++) a[r] = c + (float)r;
  for (int64_t i = 0; i < n; i++) {
%(body)s
  }
  v s = a[0];
  for (int r = 1; r < %(count)d; r++) s += a[r];
  return s[0];
}
"""


def fma_peak() -> float:
    """GFLOP/s of one core on float32 FMAs: independent chains, the best of ten runs."""
    isa = ISAS[native_isa()]
    width, count = isa.bytes or 16, 12
    body = "\n".join(f"    a[{r}] = a[{r}] * m + c;" for r in range(count))
    text = _PEAK % {"bytes": width, "lanes": width // 4, "count": count, "body": body}
    library = ctypes.CDLL(str(build_library([Unit("peak", text, (*isa.flags, "-ffp-contract=fast"))])))
    library.peak.restype, library.peak.argtypes = ctypes.c_float, [ctypes.c_int64, ctypes.c_float]
    rounds, best = 2_000_000, float("inf")
    for _ in range(10):
        start = time.perf_counter()
        library.peak(rounds, 0.999)
        best = min(best, time.perf_counter() - start)
    return 2 * count * (width // 4) * rounds / best / 1e9


def time_product(name: str, p: Product, threads: int, seconds: float) -> Row:
    """One product against NumPy's BLAS."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(-1, 1, s).astype(np.float32) for s in p.shapes)
    reference = np.empty_like(c)
    compiled = po.auto(p.scop, threads=threads).compile(threads=threads)
    compiled(a, b, c)
    with threadpool_limits(threads, "blas"):
        p.numpy(a, b, reference)
        times = interleave({"polyopt": lambda: compiled(a, b, c), "openblas": lambda: p.numpy(a, b, reference)}, seconds)
    return row(name, times, error=deviation(name, c, reference).max_abs)


def conv_model(c: Conv, path: Path) -> None:
    """The one-node model."""
    rng = np.random.default_rng(0)
    weight = (rng.uniform(-1, 1, (c.cout, c.cin // c.groups, c.kernel, c.kernel)) / c.kernel).astype(np.float32)
    bias = rng.uniform(-1, 1, c.cout).astype(np.float32)
    pad = [(c.kernel - 1) // 2] * 4
    out = -(-c.size // c.stride)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", pads=pad, strides=[c.stride] * 2, group=c.groups)
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, c.cin, c.size, c.size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, c.cout, out, out])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def time_conv(name: str, c: Conv, threads: int, seconds: float, folder: Path) -> Row:
    """One convolution against OpenVINO and ONNX Runtime."""
    path = folder / f"{name}.onnx"
    conv_model(c, path)
    return bench_model(str(path), threads, ("onnxruntime", "openvino"), None, seconds)


def with_speed(r: Row, flops: int, peak: float | None) -> Row:
    """The row with GFLOP/s, and the share of the peak, in its note."""
    speed = flops / r.ours / 1e9
    return replace(r, note=f"{speed:.1f} GFLOP/s" + ("" if peak is None else f", {100 * speed / peak:.0f} % of FMA peak"))


def main() -> int:
    """Time the chosen cases; the exit code."""
    p = parser("contractions", "gemm, batched products and convolutions against OpenBLAS and oneDNN")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"cases to run (default all): {', '.join(CASES)}")
    arguments = p.parse_args()
    unknown = [n for n in arguments.names if n not in CASES]
    if unknown:
        raise po.UserError(f"there is no case {unknown[0]}: choose among {', '.join(CASES)}")
    peak = fma_peak() if arguments.threads == 1 else None
    rows, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names or CASES:
            case = CASES[name]
            if isinstance(case, Product):
                r = time_product(name, case, arguments.threads, arguments.seconds)
                limit = 1e-4 * case.shapes[0][-1] ** 0.5
                if r.error is None or r.error > limit:
                    wrong.append(f"{name} differs from OpenBLAS by {r.error}")
            else:
                r = time_conv(name, case, arguments.threads, arguments.seconds, Path(folder))
            rows.append(with_speed(r, case.flops, peak))
    blas = sorted({f"{i['internal_api']} {i.get('version')} {i.get('architecture', '')}".strip() for i in threadpool_info()})
    return finish(rows, wrong, arguments.json, threads=arguments.threads, fma_peak=peak, blas=blas)


if __name__ == "__main__":
    run(main)
