# ruff: noqa: F821  (t only counts; intrinsics need no import)
"""Kernels of the PolyBench kind through @scop: the original body, and the Scop run instance by instance, give the same bits."""

import numpy as np
import pytest
from interpret import run_scop

from polyopt.frontends.python_loops import ScopFunction, dims, local, scop, zeros
from polyopt.ir.dtype import f32, f64, i32

M, N, K = dims("M N K")


@scop
def gemm(alpha: f32, beta: f32, A: f32[M, K], B: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] *= beta
        for k in range(K):
            for j in range(N):
                C[i, j] += alpha * A[i, k] * B[k, j]


@scop
def lu(A: f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


@scop
def cholesky(A: f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = sqrt(A[i, i])


@scop
def jacobi_1d(T: int, A: f32[N], B: f32[N]):
    for t in range(T):
        for i in range(1, N - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, N - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])


@scop
def seidel_2d(T: int, A: f64[N, N]):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j] + A[i, j + 1]
                    + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip


@scop
def durbin(r: f64[N], y: f64[N]):
    assert N >= 1
    z = local(f64[N])
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1.0 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


@scop
def gramschmidt(A: f64[M, N], R: f64[N, N], Q: f64[M, N]):
    for k in range(N):
        nrm = 0.0
        for i in range(M):
            nrm += A[i, k] * A[i, k]
        R[k, k] = sqrt(nrm)
        for i in range(M):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            R[k, j] = 0.0
            for i in range(M):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(M):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]


@scop
def nussinov(seq: i32[N], table: i32[N, N]):
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + (1 if seq[i] + seq[j] == 3 else 0))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])


@scop
def floyd_warshall(path: i32[N, N]):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                path[i, j] = path[i, j] if path[i, j] < path[i, k] + path[k, j] else path[i, k] + path[k, j]


@scop
def trisolv(L: f64[N, N], x: f64[N], b: f64[N]):
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


@scop
def adi(T: int, u: f64[N, N]):
    assert N >= 3
    v = zeros(f64[N, N])
    p = zeros(f64[N, N])
    q = zeros(f64[N, N])
    dx = 1.0 / float(N)
    dt = 1.0 / float(T)
    mul1 = 2.0 * dt / (dx * dx)
    a = -mul1 / 2.0
    b = 1.0 + mul1
    for t in range(1, T + 1):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -a / (a * p[i, j - 1] + b)
                q[i, j] = (-a * u[j, i - 1] + (1.0 + 2.0 * a) * u[j, i] - a * u[j, i + 1] - a * q[i, j - 1]) / (a * p[i, j - 1] + b)
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                u[i, j] = v[i, j]


@scop
def correlation(data: f64[M, N], corr: f64[N, N]):
    assert M >= 1
    mean = local(f64[N])
    stddev = local(f64[N])
    for j in range(N):
        mean[j] = 0.0
        for i in range(M):
            mean[j] += data[i, j]
        mean[j] /= M
    for j in range(N):
        stddev[j] = 0.0
        for i in range(M):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] = sqrt(stddev[j] / M)
        stddev[j] = 1.0 if stddev[j] <= 0.1 else stddev[j]
    for i in range(M):
        for j in range(N):
            data[i, j] -= mean[j]
            data[i, j] /= sqrt(float(M)) * stddev[j]
    for i in range(N - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, N):
            corr[i, j] = 0.0
            for k in range(M):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    if N >= 1:
        corr[N - 1, N - 1] = 1.0


def _run(fn: ScopFunction, sizes: dict[str, int], scalars: dict[str, float]) -> None:
    rng = np.random.default_rng(7)
    first, params, second = [], dict(sizes), {}
    for name, kind in fn.signature:
        if kind is None:
            first.append(sizes[name])
        elif name in scalars:
            first.append(scalars[name])
        else:
            shape = tuple(x if isinstance(x, int) else x.evaluate(params) for x in kind.shape)
            integer = kind.dtype is i32
            a = rng.integers(0, 4, shape).astype(np.int32) if integer else (rng.random(shape) + 0.5).astype(kind.dtype.numpy)
            if len(shape) == 2 and shape[0] == shape[1] and not integer:
                a += 4 * np.eye(shape[0], dtype=a.dtype)
                a = ((a + a.T) / 2).astype(a.dtype)
            first.append(a)
            second[name] = a.copy()
    fn.reference(*first)
    run_scop(fn.scop, second, scalars, {p: params[p] for p in fn.scop.params})
    for (name, _), a in zip(fn.signature, first):
        if name in second:
            assert np.array_equal(a, second[name], equal_nan=True), name


ALL = [gemm, lu, cholesky, jacobi_1d, seidel_2d, durbin, gramschmidt, nussinov, floyd_warshall, trisolv, adi, correlation]


@pytest.mark.parametrize("fn", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [3, 7])
def test_reference_and_interpreter_agree(fn: ScopFunction, n: int) -> None:
    sizes = {"N": n, "M": n + 1, "K": n - 1, "T": 2}
    _run(fn, sizes, {k: v for k, v in {"alpha": 1.5, "beta": 1.2}.items() if fn is gemm})


@pytest.mark.parametrize("fn", [gemm, lu, cholesky, jacobi_1d, seidel_2d, gramschmidt, nussinov, trisolv], ids=lambda f: f.__name__)
def test_empty_sizes(fn: ScopFunction) -> None:
    _run(fn, {"N": 0, "M": 0, "K": 0, "T": 0}, {"alpha": 1.5, "beta": 1.2} if fn is gemm else {})


def test_roles() -> None:
    def roles(fn: ScopFunction) -> dict[str, str]:
        return {t.name: t.role for t in fn.scop.tensors}

    assert roles(gemm) == {"A": "input", "B": "input", "C": "inout"}
    assert roles(trisolv) == {"L": "input", "x": "output", "b": "input"}
    assert roles(durbin) == {"r": "input", "y": "output", "z": "local", "beta": "local", "alpha": "local", "total": "local"}
    assert roles(gramschmidt)["R"] == "inout"  # the lower triangle is never written
    assert roles(gramschmidt)["Q"] == "output"
    assert roles(nussinov)["table"] == "inout"


def test_reductions() -> None:
    assert [s.reduction for s in gemm.scop.statements] == ["*", "+"]
    assert [s.reduction for s in lu.scop.statements] == ["+", None, "+"]  # the operands are other cells of the tensor
    assert [s.reduction for s in durbin.scop.statements if s.write.tensor == "total"] == [None, "+"]
    assert "+" in [s.reduction for s in correlation.scop.statements]
