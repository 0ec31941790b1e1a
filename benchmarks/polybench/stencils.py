# ruff: noqa: B007
"""Stencils: adi, fdtd-2d, heat-3d, jacobi-1d, jacobi-2d, seidel-2d. Loop order and statements are those of the suite."""

from __future__ import annotations

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

T, N, NX, NY = po.dims("T N NX NY")


@po.scop
def adi(T: int, u: po.f64[N, N], v: po.f64[N, N], p: po.f64[N, N], q: po.f64[N, N]):
    assert N >= 3
    mul1 = 2.0 * N * N / T
    mul2 = 1.0 * N * N / T
    a = -mul1 / 2.0
    b = 1.0 + mul1
    c = a
    d = -mul2 / 2.0
    e = 1.0 + mul2
    f = d
    for t in range(1, T + 1):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]) / (a * p[i, j - 1] + b)
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, N - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, N - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = (-a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]) / (d * p[i, j - 1] + e)
            u[i, N - 1] = 1.0
            for j in range(N - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


@po.scop
def fdtd_2d(ex: po.f64[NX, NY], ey: po.f64[NX, NY], hz: po.f64[NX, NY], fict: po.f64[T]):
    assert NX >= 1
    for t in range(T):
        for j in range(NY):
            ey[0, j] = fict[t]
        for i in range(1, NX):
            for j in range(NY):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(NX):
            for j in range(1, NY):
                ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(NX - 1):
            for j in range(NY - 1):
                hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


@po.scop
def heat_3d(T: int, A: po.f64[N, N, N], B: po.f64[N, N, N]):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    B[i, j, k] = (
                        0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                        + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                        + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                        + A[i, j, k]
                    )
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                for k in range(1, N - 1):
                    A[i, j, k] = (
                        0.125 * (B[i + 1, j, k] - 2.0 * B[i, j, k] + B[i - 1, j, k])
                        + 0.125 * (B[i, j + 1, k] - 2.0 * B[i, j, k] + B[i, j - 1, k])
                        + 0.125 * (B[i, j, k + 1] - 2.0 * B[i, j, k] + B[i, j, k - 1])
                        + B[i, j, k]
                    )


@po.scop
def jacobi_1d(T: int, A: po.f64[N], B: po.f64[N]):
    for t in range(T):
        for i in range(1, N - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, N - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])


@po.scop
def jacobi_2d(T: int, A: po.f64[N, N], B: po.f64[N, N]):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, 1 + j] + A[1 + i, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, 1 + j] + B[1 + i, j] + B[i - 1, j])


@po.scop
def seidel_2d(T: int, A: po.f64[N, N]):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j - 1] + A[i, j] + A[i, j + 1]
                    + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip


def _adi(T, N):
    return {"T": T, "u": fill(lambda i, j: (i + N - j) / N, N, N), "v": np.zeros((N, N)), "p": np.zeros((N, N)), "q": np.zeros((N, N))}


def _fdtd(T, NX, NY):
    return {
        "ex": fill(lambda i, j: i * (j + 1) / NX, NX, NY), "ey": fill(lambda i, j: i * (j + 2) / NY, NX, NY),
        "hz": fill(lambda i, j: i * (j + 3) / NX, NX, NY), "fict": np.arange(T, dtype=np.float64),
    }  # fmt: skip


def _heat(T, N):
    a = fill(lambda i, j, k: (i + j + N - k) * 10 / N, N, N, N)
    return {"T": T, "A": a, "B": a.copy()}


def _jacobi_1d(T, N):
    i = np.arange(N)
    return {"T": T, "A": (i + 2) / N, "B": (i + 3) / N}


def _jacobi_2d(T, N):
    return {"T": T, "A": fill(lambda i, j: (i * (j + 2) + 2) / N, N, N), "B": fill(lambda i, j: (i * (j + 3) + 3) / N, N, N)}


KERNELS = (
    Kernel("adi", adi, {"T": (20, 40, 100, 500, 1000), "N": (20, 60, 200, 1000, 2000)}, _adi, ("u",)),
    Kernel(
        "fdtd-2d", fdtd_2d, {"T": (20, 40, 100, 500, 1000), "NX": (20, 60, 200, 1000, 2000), "NY": (30, 80, 240, 1200, 2600)},
        _fdtd, ("ex", "ey", "hz"),
    ),
    Kernel("heat-3d", heat_3d, {"T": (20, 40, 100, 500, 1000), "N": (10, 20, 40, 120, 200)}, _heat, ("A",)),
    Kernel("jacobi-1d", jacobi_1d, {"T": (20, 40, 100, 500, 1000), "N": (30, 120, 400, 2000, 4000)}, _jacobi_1d, ("A",)),
    Kernel("jacobi-2d", jacobi_2d, {"T": (20, 40, 100, 500, 1000), "N": (30, 90, 250, 1300, 2800)}, _jacobi_2d, ("A",)),
    Kernel(
        "seidel-2d", seidel_2d, {"T": (20, 40, 100, 500, 1000), "N": (40, 120, 400, 2000, 4000)},
        lambda T, N: {"T": T, "A": fill(lambda i, j: (i * (j + 2) + 2) / N, N, N)}, ("A",),
    ),
)  # fmt: skip
