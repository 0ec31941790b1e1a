"""Medley: deriche, floyd-warshall, nussinov. Loop order and statements are those of the suite."""

from __future__ import annotations

from math import exp

import numpy as np

import polyopt as po

from .kernel import Kernel, fill

N, W, H = po.dims("N W H")


@po.scop
def deriche(alpha: po.f32, imgIn: po.f32[W, H], imgOut: po.f32[W, H], y1: po.f32[W, H], y2: po.f32[W, H]):
    k = (1.0 - exp(-alpha)) * (1.0 - exp(-alpha)) / (1.0 + 2.0 * alpha * exp(-alpha) - exp(2.0 * alpha))
    a1 = k
    a2 = k * exp(-alpha) * (alpha - 1.0)
    a3 = k * exp(-alpha) * (alpha + 1.0)
    a4 = -k * exp(-2.0 * alpha)
    b1 = exp(-0.6931471805599453 * alpha)
    b2 = -exp(-2.0 * alpha)
    for i in range(W):
        ym1 = 0.0
        ym2 = 0.0
        xm1 = 0.0
        for j in range(H):
            y1[i, j] = a1 * imgIn[i, j] + a2 * xm1 + b1 * ym1 + b2 * ym2
            xm1 = imgIn[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for i in range(W):
        yp1 = 0.0
        yp2 = 0.0
        xp1 = 0.0
        xp2 = 0.0
        for j in range(H - 1, -1, -1):
            y2[i, j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2
            xp2 = xp1
            xp1 = imgIn[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(W):
        for j in range(H):
            imgOut[i, j] = y1[i, j] + y2[i, j]
    for j in range(H):
        tm1 = 0.0
        um1 = 0.0
        um2 = 0.0
        for i in range(W):
            y1[i, j] = a1 * imgOut[i, j] + a2 * tm1 + b1 * um1 + b2 * um2
            tm1 = imgOut[i, j]
            um2 = um1
            um1 = y1[i, j]
    for j in range(H):
        tp1 = 0.0
        tp2 = 0.0
        vp1 = 0.0
        vp2 = 0.0
        for i in range(W - 1, -1, -1):
            y2[i, j] = a3 * tp1 + a4 * tp2 + b1 * vp1 + b2 * vp2
            tp2 = tp1
            tp1 = imgOut[i, j]
            vp2 = vp1
            vp1 = y2[i, j]
    for i in range(W):
        for j in range(H):
            imgOut[i, j] = y1[i, j] + y2[i, j]


@po.scop
def floyd_warshall(path: po.f64[N, N]):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                path[i, j] = path[i, j] if path[i, j] < path[i, k] + path[k, j] else path[i, k] + path[k, j]


@po.scop
def nussinov(seq: po.f64[N], table: po.f64[N, N]):
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = table[i, j] if table[i, j] >= table[i, j - 1] else table[i, j - 1]
            if i + 1 < N:
                table[i, j] = table[i, j] if table[i, j] >= table[i + 1, j] else table[i + 1, j]
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    m = table[i + 1, j - 1] + (1.0 if seq[i] + seq[j] == 3.0 else 0.0)
                    table[i, j] = table[i, j] if table[i, j] >= m else m
                else:
                    table[i, j] = table[i, j] if table[i, j] >= table[i + 1, j - 1] else table[i + 1, j - 1]
            for k in range(i + 1, j):
                table[i, j] = table[i, j] if table[i, j] >= table[i, k] + table[k + 1, j] else table[i, k] + table[k + 1, j]


def _deriche(W, H):
    image = fill(lambda i, j: ((313 * i + 991 * j) % 65536) / 65535.0, W, H).astype(np.float32)
    zero = [np.zeros((W, H), np.float32) for _ in range(3)]
    return {"alpha": 0.25, "imgIn": image, "imgOut": zero[0], "y1": zero[1], "y2": zero[2]}


def _floyd(N):
    return {"path": fill(lambda i, j: np.where(((i + j) % 13 == 0) | ((i + j) % 7 == 0) | ((i + j) % 11 == 0), 999.0, i * j % 7 + 1), N, N)}


KERNELS = (
    Kernel("deriche", deriche, {"W": (64, 192, 720, 4096, 7680), "H": (64, 128, 480, 2160, 4320)}, _deriche, ("imgOut",), 1e-4),
    Kernel("floyd-warshall", floyd_warshall, {"N": (60, 180, 500, 2800, 5600)}, _floyd, ("path",)),
    Kernel(
        "nussinov", nussinov, {"N": (60, 180, 500, 2500, 5500)},
        lambda N: {"seq": (np.arange(N) + 1) % 4 * 1.0, "table": np.zeros((N, N))}, ("table",),
    ),
)  # fmt: skip
