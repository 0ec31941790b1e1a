"""The forms that `po.auto` gives to nests that are no contraction and no stencil: lanes of an outer loop, row-oriented order, split points,
updates by max and min. Each is proven, and executed against the plain loops at odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyopt as po

n, m = po.dims("n m")


@po.scop
def columns(x: po.f32[m, n], y: po.f32[m, n]):
    for j in range(n):
        before = 0.0
        older = 0.0
        for i in range(m):
            y[i, j] = x[i, j] + 0.5 * before - 0.25 * older
            older = before
            before = y[i, j]


@po.scop
def projections(a: po.f64[m, n], q: po.f64[m], r: po.f64[n]):
    for j in range(n):
        r[j] = 0.0
        for i in range(m):
            r[j] += q[i] * a[i, j]
        for i in range(m):
            a[i, j] = a[i, j] - q[i] * r[j]


@po.scop
def lu(a: po.f64[n, n]):
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[k, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            for k in range(i):
                a[i, j] -= a[i, k] * a[k, j]


@po.scop
def lu_by_scalars(a: po.f64[n, n]):
    for i in range(n):
        for j in range(i):
            w = a[i, j]
            for k in range(j):
                w -= a[i, k] * a[k, j]
            a[i, j] = w / a[j, j]
        for j in range(i, n):
            v = a[i, j]
            for k in range(i):
                v -= a[i, k] * a[k, j]
            a[i, j] = v


@po.scop
def intervals(w: po.f64[n], a: po.f64[n, n]):
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            a[i, j] = a[i, j] if a[i, j] >= a[i, j - 1] else a[i, j - 1]
            a[i, j] = a[i, j] if a[i, j] >= w[i] * w[j] else w[i] * w[j]
            for k in range(i + 1, j):
                a[i, j] = a[i, j] if a[i, j] >= a[i, k] + a[k, j] else a[i, k] + a[k, j]


@po.scop
def shortest_paths(a: po.f64[n, n]):
    for k in range(n):
        for i in range(n):
            for j in range(n):
                a[i, j] = a[i, j] if a[i, j] < a[i, k] + a[k, j] else a[i, k] + a[k, j]


@po.scop
def elimination_by_columns(a: po.f64[n, n], x: po.f64[n]):
    for j in range(n):
        for i in range(j + 1, n):
            x[i] -= a[i, j] * x[j]


KERNELS = {f.scop.name: f for f in (columns, projections, lu, lu_by_scalars, intervals, shortest_paths, elimination_by_columns)}
TEXT = {  # what shows that a kernel got its form
    "columns": "before_held", "lu": "v8f64", "lu_by_scalars": "v8f64", "intervals": "po_max_v8f64", "shortest_paths": "po_min_v8f64",
}  # fmt: skip


def arrays(f: Any, rows: int, columns: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(rows * 1000 + columns)
    sizes = {"m": rows, "n": columns}
    out = [rng.random(tuple(x.evaluate(sizes) for x in t.shape)).astype(t.dtype.numpy) for t in f.scop.tensors if t.role != "local"]
    if f in (lu, lu_by_scalars):
        out[0] += columns * np.eye(columns)
    return out


def check(f: Any, kernel: Any, rows: int, columns: int) -> None:
    given = arrays(f, rows, columns)
    want, got = [a.copy() for a in given], [a.copy() for a in given]
    f.reference(*want)
    kernel(*got)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4 if a.dtype == np.float32 else 1e-11, atol=1e-5 if a.dtype == np.float32 else 1e-12)


@pytest.mark.cc
@pytest.mark.parametrize("fp", ["fast", "default", "strict"])
@pytest.mark.parametrize("name", KERNELS)
def test_forms_compute_what_the_loops_do(name: str, fp: str) -> None:
    f = KERNELS[name]
    s = po.auto(f, isa="avx512", fp=fp)
    assert s.verify().ok, str(s.verify())
    if fp == "fast" and name in TEXT:
        assert TEXT[name] in s.source(isa="avx512", fp=fp).text
    kernel = s.compile(isa="avx512", fp=fp)
    for columns in (1, 2, 3, 7, 8, 9, 17, 40):
        check(f, kernel, 5, columns)


@pytest.mark.cc
@pytest.mark.parametrize("name", KERNELS)
def test_forms_at_known_sizes_on_two_threads(name: str) -> None:
    f = KERNELS[name].specialize(**{d: 37 for d in ("m", "n") if d in KERNELS[name].scop.params})
    s = po.auto(f, isa="avx2", threads=2, fp="fast")
    assert s.verify().ok, str(s.verify())
    check(f, s.compile(isa="avx2", threads=2, fp="fast"), 37, 37)


@pytest.mark.cc
def test_selections_keep_their_meaning_unless_fast() -> None:
    a = np.ones((9, 9))
    a[2, 3] = np.nan
    want, got = a.copy(), a.copy()
    shortest_paths.reference(want)
    s = po.auto(shortest_paths)
    assert not any(step.verb == "as_updates" for step in s.history)
    s.compile()(got)
    np.testing.assert_array_equal(want, got)
    assert any(step.verb == "as_updates" for step in po.auto(shortest_paths, fp="fast").history)


def test_a_point_is_split_where_both_sides_run() -> None:
    assert any(step.verb == "split_points" for step in po.auto(shortest_paths).history)
    assert not any(step.verb == "split_points" for step in po.auto(elimination_by_columns).history)


def test_mirrored_selections_are_updates() -> None:
    @po.scop
    def larger(x: po.f64[n], y: po.f64[n], z: po.f64[n]):
        for i in range(n):
            x[i] = y[i] if x[i] < y[i] else x[i]
            y[i] = y[i] if z[i] <= y[i] else z[i]
            z[i] = x[i] if x[i] < y[i] else z[i]

    first, second, third = po.auto(larger, fp="fast").scop.statements
    assert (first.reduction, second.reduction, third.reduction) == ("max", "max", None)
