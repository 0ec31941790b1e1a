"""Linear algebra, kernels: 2mm, 3mm, atax, bicg, doitgen, mvt. Loop order and statements are those of the suite."""

from __future__ import annotations

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

M, N, NI, NJ, NK, NL, NM, NP, NQ, NR = po.dims("M N NI NJ NK NL NM NP NQ NR")


@po.scop
def two_mm(
    alpha: po.f64, beta: po.f64, tmp: po.f64[NI, NJ], A: po.f64[NI, NK], B: po.f64[NK, NJ], C: po.f64[NJ, NL], D: po.f64[NI, NL]
):  # fmt: skip
    for i in range(NI):
        for j in range(NJ):
            tmp[i, j] = 0.0
            for k in range(NK):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(NI):
        for j in range(NL):
            D[i, j] *= beta
            for k in range(NJ):
                D[i, j] += tmp[i, k] * C[k, j]


@po.scop
def three_mm(
    E: po.f64[NI, NJ], A: po.f64[NI, NK], B: po.f64[NK, NJ], F: po.f64[NJ, NL], C: po.f64[NJ, NM], D: po.f64[NM, NL], G: po.f64[NI, NL]
):  # fmt: skip
    for i in range(NI):
        for j in range(NJ):
            E[i, j] = 0.0
            for k in range(NK):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(NJ):
        for j in range(NL):
            F[i, j] = 0.0
            for k in range(NM):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(NI):
        for j in range(NL):
            G[i, j] = 0.0
            for k in range(NJ):
                G[i, j] += E[i, k] * F[k, j]


@po.scop
def atax(A: po.f64[M, N], x: po.f64[N], y: po.f64[N], tmp: po.f64[M]):
    for i in range(N):
        y[i] = 0.0
    for i in range(M):
        tmp[i] = 0.0
        for j in range(N):
            tmp[i] += A[i, j] * x[j]
        for j in range(N):
            y[j] += A[i, j] * tmp[i]


@po.scop
def bicg(A: po.f64[N, M], s: po.f64[M], q: po.f64[N], p: po.f64[M], r: po.f64[N]):
    for i in range(M):
        s[i] = 0.0
    for i in range(N):
        q[i] = 0.0
        for j in range(M):
            s[j] += r[i] * A[i, j]
            q[i] += A[i, j] * p[j]


@po.scop
def doitgen(A: po.f64[NR, NQ, NP], C4: po.f64[NP, NP], sum: po.f64[NP]):
    for r in range(NR):
        for q in range(NQ):
            for p in range(NP):
                sum[p] = 0.0
                for s in range(NP):
                    sum[p] += A[r, q, s] * C4[s, p]
            for p in range(NP):
                A[r, q, p] = sum[p]


@po.scop
def mvt(x1: po.f64[N], x2: po.f64[N], y_1: po.f64[N], y_2: po.f64[N], A: po.f64[N, N]):
    for i in range(N):
        for j in range(N):
            x1[i] += A[i, j] * y_1[j]
    for i in range(N):
        for j in range(N):
            x2[i] += A[j, i] * y_2[j]


def _two_mm(NI, NJ, NK, NL):
    return {
        "alpha": 1.5, "beta": 1.2, "tmp": np.zeros((NI, NJ)), "A": fill(lambda i, j: ((i * j + 1) % NI) / NI, NI, NK),
        "B": fill(lambda i, j: (i * (j + 1) % NJ) / NJ, NK, NJ), "C": fill(lambda i, j: ((i * (j + 3) + 1) % NL) / NL, NJ, NL),
        "D": fill(lambda i, j: (i * (j + 2) % NK) / NK, NI, NL),
    }  # fmt: skip


def _three_mm(NI, NJ, NK, NL, NM):
    return {
        "E": np.zeros((NI, NJ)), "F": np.zeros((NJ, NL)), "G": np.zeros((NI, NL)), "A": fill(lambda i, j: ((i * j + 1) % NI) / (5 * NI), NI, NK),
        "B": fill(lambda i, j: ((i * (j + 1) + 2) % NJ) / (5 * NJ), NK, NJ), "C": fill(lambda i, j: (i * (j + 3) % NL) / (5 * NL), NJ, NM),
        "D": fill(lambda i, j: ((i * (j + 2) + 2) % NK) / (5 * NK), NM, NL),
    }  # fmt: skip


def _atax(M, N):
    return {
        "A": fill(lambda i, j: ((i + j) % N) / (5 * M), M, N), "x": 1 + np.arange(N) / N, "y": np.zeros(N), "tmp": np.zeros(M),
    }  # fmt: skip


def _bicg(M, N):
    return {
        "A": fill(lambda i, j: (i * (j + 1) % N) / N, N, M), "s": np.zeros(M), "q": np.zeros(N), "p": np.arange(M) % M / M,
        "r": np.arange(N) % N / N,
    }  # fmt: skip


def _doitgen(NQ, NR, NP):
    return {
        "A": fill(lambda i, j, k: ((i * j + k) % NP) / NP, NR, NQ, NP), "C4": fill(lambda i, j: (i * j % NP) / NP, NP, NP), "sum": np.zeros(NP),
    }  # fmt: skip


def _mvt(N):
    i = np.arange(N)
    return {
        "x1": i % N / N, "x2": (i + 1) % N / N, "y_1": (i + 3) % N / N, "y_2": (i + 4) % N / N, "A": fill(lambda i, j: (i * j % N) / N, N, N),
    }  # fmt: skip


KERNELS = (
    Kernel(
        "2mm", two_mm,
        {"NI": (16, 40, 180, 800, 1600), "NJ": (18, 50, 190, 900, 1800), "NK": (22, 70, 210, 1100, 2200), "NL": (24, 80, 220, 1200, 2400)},
        _two_mm, ("D",),
    ),
    Kernel(
        "3mm", three_mm,
        {"NI": (16, 40, 180, 800, 1600), "NJ": (18, 50, 190, 900, 1800), "NK": (20, 60, 200, 1000, 2000), "NL": (22, 70, 210, 1100, 2200),
         "NM": (24, 80, 220, 1200, 2400)},
        _three_mm, ("G",),
    ),
    Kernel("atax", atax, {"M": (38, 116, 390, 1900, 1800), "N": (42, 124, 410, 2100, 2200)}, _atax, ("y",)),
    Kernel("bicg", bicg, {"M": (38, 116, 390, 1900, 1800), "N": (42, 124, 410, 2100, 2200)}, _bicg, ("s", "q")),
    Kernel(
        "doitgen", doitgen, {"NQ": (8, 20, 40, 140, 220), "NR": (10, 25, 50, 150, 250), "NP": (12, 30, 60, 160, 270)}, _doitgen, ("A",)
    ),
    Kernel("mvt", mvt, {"N": (40, 120, 400, 2000, 4000)}, _mvt, ("x1", "x2")),
)  # fmt: skip
