"""Linear algebra, solvers: cholesky, durbin, gramschmidt, lu, ludcmp, trisolv. Loop order and statements are those of the suite.

cholesky, lu and ludcmp start from a diagonally dominant matrix that costs O(N²), where the suite multiplies two matrices to get a positive
definite one. gramschmidt starts from a matrix whose first M columns are well conditioned; the suite has N > M columns, of which the others
depend on the first, so that only M columns of Q and M rows of R are well defined: those are compared. durbin's
recurrence amplifies rounding (every compiler's result is off by 1e-9 at MEDIUM): its tolerance is 1e-7.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

M, N = po.dims("M N")


@po.scop
def cholesky(A: po.f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = sqrt(A[i, i])


@po.scop
def durbin(r: po.f64[N], y: po.f64[N]):
    assert N >= 1
    z = po.local(po.f64[N])
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


@po.scop
def gramschmidt(A: po.f64[M, N], R: po.f64[N, N], Q: po.f64[M, N]):
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


@po.scop
def lu(A: po.f64[N, N]):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


@po.scop
def ludcmp(A: po.f64[N, N], b: po.f64[N], x: po.f64[N], y: po.f64[N]):
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            v = A[i, j]
            for k in range(i):
                v -= A[i, k] * A[k, j]
            A[i, j] = v
    for i in range(N):
        w1 = b[i]
        for j in range(i):
            w1 -= A[i, j] * y[j]
        y[i] = w1
    for i in range(N - 1, -1, -1):
        w2 = y[i]
        for j in range(i + 1, N):
            w2 -= A[i, j] * x[j]
        x[i] = w2 / A[i, i]


@po.scop
def trisolv(L: po.f64[N, N], x: po.f64[N], b: po.f64[N]):
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


def _dominant(N):
    """Symmetric, off the diagonal at most 1, on it above the sum of its row."""
    return fill(lambda i, j: np.where(i == j, N + 1.0, 1.0 - ((i + j) % N) / N), N, N)


def _gramschmidt(M, N):
    return {
        "A": fill(lambda i, j: ((i * j % M) / M) * 0.1 + 10.0 * (i == j) + np.cos(i + 2 * j), M, N), "R": np.zeros((N, N)), "Q": np.zeros((M, N)),
    }  # fmt: skip


def _full_rank(name, array, dims):
    return np.ascontiguousarray(array[: dims["M"]] if name == "R" else array[:, : dims["M"]])


def _ludcmp(N):
    return {"A": _dominant(N), "b": (np.arange(N) + 1) / N / 2 + 4, "x": np.zeros(N), "y": np.zeros(N)}


def _trisolv(N):
    return {"L": fill(lambda i, j: (i + N - j + 1) * 2 / N, N, N), "x": np.full(N, -999.0), "b": np.arange(N, dtype=np.float64)}


_N = {"N": (40, 120, 400, 2000, 4000)}
KERNELS = (
    Kernel("cholesky", cholesky, _N, lambda N: {"A": _dominant(N)}, ("A",)),
    Kernel("durbin", durbin, _N, lambda N: {"r": N + 1 - np.arange(N, dtype=np.float64), "y": np.zeros(N)}, ("y",), 1e-7),
    Kernel("gramschmidt", gramschmidt, {"M": (20, 60, 200, 1000, 2000), "N": (30, 80, 240, 1200, 2600)}, _gramschmidt, ("R", "Q"), part=_full_rank),
    Kernel("lu", lu, _N, lambda N: {"A": _dominant(N)}, ("A",)),
    Kernel("ludcmp", ludcmp, _N, _ludcmp, ("x",)),
    Kernel("trisolv", trisolv, _N, _trisolv, ("x",)),
)
