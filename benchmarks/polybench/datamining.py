"""Data mining: correlation, covariance. Loop order and statements are those of the suite."""

from __future__ import annotations

from math import sqrt

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

M, N = po.dims("M N")


@po.scop
def correlation(float_n: po.f64, data: po.f64[N, M], corr: po.f64[M, M], mean: po.f64[M], stddev: po.f64[M]):
    assert M >= 1
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] = mean[j] / float_n
    for j in range(M):
        stddev[j] = 0.0
        for i in range(N):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] = stddev[j] / float_n
        stddev[j] = sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= 0.1 else stddev[j]
    for i in range(N):
        for j in range(M):
            data[i, j] = data[i, j] - mean[j]
            data[i, j] = data[i, j] / (sqrt(float_n) * stddev[j])
    for i in range(M - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, M):
            corr[i, j] = 0.0
            for k in range(N):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[M - 1, M - 1] = 1.0


@po.scop
def covariance(float_n: po.f64, data: po.f64[N, M], cov: po.f64[M, M], mean: po.f64[M]):
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] = mean[j] / float_n
    for i in range(N):
        for j in range(M):
            data[i, j] = data[i, j] - mean[j]
    for i in range(M):
        for j in range(i, M):
            cov[i, j] = 0.0
            for k in range(N):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] = cov[i, j] / (float_n - 1.0)
            cov[j, i] = cov[i, j]


def _correlation(M, N):
    return {
        "float_n": float(N), "data": fill(lambda i, j: i * j / M + i, N, M), "corr": np.zeros((M, M)), "mean": np.zeros(M), "stddev": np.zeros(M),
    }  # fmt: skip


def _covariance(M, N):
    return {"float_n": float(N), "data": fill(lambda i, j: i * j / M, N, M), "cov": np.zeros((M, M)), "mean": np.zeros(M)}


_MN = {"M": (28, 80, 240, 1200, 2600), "N": (32, 100, 260, 1400, 3000)}
KERNELS = (
    Kernel("correlation", correlation, _MN, _correlation, ("corr",)),
    Kernel("covariance", covariance, _MN, _covariance, ("cov",)),
)
