"""Linear algebra, BLAS: gemm, gemver, gesummv, symm, syr2k, syrk, trmm. Loop order and statements are those of the suite."""

from __future__ import annotations

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

M, N, NI, NJ, NK = po.dims("M N NI NJ NK")


@po.scop
def gemm(alpha: po.f64, beta: po.f64, C: po.f64[NI, NJ], A: po.f64[NI, NK], B: po.f64[NK, NJ]):
    for i in range(NI):
        for j in range(NJ):
            C[i, j] *= beta
        for k in range(NK):
            for j in range(NJ):
                C[i, j] += alpha * A[i, k] * B[k, j]


@po.scop
def gemver(
    alpha: po.f64, beta: po.f64, A: po.f64[N, N], u1: po.f64[N], v1: po.f64[N], u2: po.f64[N], v2: po.f64[N], w: po.f64[N],
    x: po.f64[N], y: po.f64[N], z: po.f64[N],
):  # fmt: skip
    for i in range(N):
        for j in range(N):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        for j in range(N):
            x[i] += beta * A[j, i] * y[j]
    for i in range(N):
        x[i] = x[i] + z[i]
    for i in range(N):
        for j in range(N):
            w[i] += alpha * A[i, j] * x[j]


@po.scop
def gesummv(alpha: po.f64, beta: po.f64, A: po.f64[N, N], B: po.f64[N, N], tmp: po.f64[N], x: po.f64[N], y: po.f64[N]):
    for i in range(N):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(N):
            tmp[i] += A[i, j] * x[j]
            y[i] += B[i, j] * x[j]
        y[i] = alpha * tmp[i] + beta * y[i]


@po.scop
def symm(alpha: po.f64, beta: po.f64, C: po.f64[M, N], A: po.f64[M, M], B: po.f64[M, N]):
    for i in range(M):
        for j in range(N):
            temp2 = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                temp2 += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * temp2


@po.scop
def syr2k(alpha: po.f64, beta: po.f64, C: po.f64[N, N], A: po.f64[N, M], B: po.f64[N, M]):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]


@po.scop
def syrk(alpha: po.f64, beta: po.f64, C: po.f64[N, N], A: po.f64[N, M]):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]


@po.scop
def trmm(alpha: po.f64, A: po.f64[M, M], B: po.f64[M, N]):
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


def _gemm(NI, NJ, NK):
    return {
        "alpha": 1.5, "beta": 1.2, "C": fill(lambda i, j: ((i * j + 1) % NI) / NI, NI, NJ),
        "A": fill(lambda i, j: (i * (j + 1) % NK) / NK, NI, NK), "B": fill(lambda i, j: (i * (j + 2) % NJ) / NJ, NK, NJ),
    }  # fmt: skip


def _gemver(N):
    i = np.arange(N, dtype=np.float64)
    return {
        "alpha": 1.5, "beta": 1.2, "A": fill(lambda i, j: (i * j % N) / N, N, N), "u1": i, "u2": (i + 1) / N / 2, "v1": (i + 1) / N / 4,
        "v2": (i + 1) / N / 6, "y": (i + 1) / N / 8, "z": (i + 1) / N / 9, "x": 0 * i, "w": 0 * i,
    }  # fmt: skip


def _gesummv(N):
    return {
        "alpha": 1.5, "beta": 1.2, "x": np.arange(N) % N / N, "A": fill(lambda i, j: ((i * j + 1) % N) / N, N, N),
        "B": fill(lambda i, j: ((i * j + 2) % N) / N, N, N), "tmp": np.zeros(N), "y": np.zeros(N),
    }  # fmt: skip


def _symm(M, N):
    return {
        "alpha": 1.5, "beta": 1.2, "C": fill(lambda i, j: ((i + j) % 100) / M, M, N), "B": fill(lambda i, j: ((N + i - j) % 100) / M, M, N),
        "A": fill(lambda i, j: np.where(j <= i, ((i + j) % 100) / M, -999.0), M, M),
    }  # fmt: skip


def _syr2k(M, N):
    return {
        "alpha": 1.5, "beta": 1.2, "A": fill(lambda i, j: ((i * j + 1) % N) / N, N, M), "B": fill(lambda i, j: ((i * j + 2) % M) / M, N, M),
        "C": fill(lambda i, j: ((i * j + 3) % N) / M, N, N),
    }  # fmt: skip


def _syrk(M, N):
    return {
        "alpha": 1.5, "beta": 1.2, "A": fill(lambda i, j: ((i * j + 1) % N) / N, N, M), "C": fill(lambda i, j: ((i * j + 2) % M) / M, N, N),
    }  # fmt: skip


def _trmm(M, N):
    return {
        "alpha": 1.5, "A": fill(lambda i, j: np.where(j < i, ((i + j) % M) / M, np.where(i == j, 1.0, 0.0)), M, M),
        "B": fill(lambda i, j: ((N + i - j) % N) / N, M, N),
    }  # fmt: skip


_MN = {"M": (20, 60, 200, 1000, 2000), "N": (30, 80, 240, 1200, 2600)}
_N = {"N": (40, 120, 400, 2000, 4000)}
KERNELS = (
    Kernel("gemm", gemm, {"NI": (20, 60, 200, 1000, 2000), "NJ": (25, 70, 220, 1100, 2300), "NK": (30, 80, 240, 1200, 2600)}, _gemm, ("C",)),
    Kernel("gemver", gemver, _N, _gemver, ("A", "x", "w")),
    Kernel("gesummv", gesummv, {"N": (30, 90, 250, 1300, 2800)}, _gesummv, ("y",)),
    Kernel("symm", symm, _MN, _symm, ("C",)),
    Kernel("syr2k", syr2k, _MN, _syr2k, ("C",)),
    Kernel("syrk", syrk, _MN, _syrk, ("C",)),
    Kernel("trmm", trmm, _MN, _trmm, ("B",)),
)
