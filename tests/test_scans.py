"""Linear recurrences run as scans in vector loops: x[j] = c·x[j - 1] + …; what is none is refused, and stays a plain loop in strict arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyopt as po
from polyopt.ir.affine import var
from polyopt.ir.dtype import f64
from polyopt.ir.expr import Access, Binary, Const, Load, Unary, split_linear

n, m = po.dims("n m")
ISAS = ("scalar", "avx2", "avx512")


@po.scop
def prefix(x: po.f64[n], y: po.f64[n]):
    for j in range(1, n):
        y[j] = y[j - 1] + x[j]


@po.scop
def smooth(x: po.f32[m, n], y: po.f32[m, n]):
    for i in range(m):
        for j in range(1, n):
            y[i, j] = (3.0 * x[i, j] - y[i, j - 1]) / 4.0


@po.scop
def backwards(x: po.f64[n], y: po.f64[n]):
    for j in range(n - 2, -1, -1):
        y[j] = 0.5 * (y[j + 1] + x[j]) - x[j + 1]


@po.scop
def rows_and_columns(a: po.f64[m, n]):
    for i in range(1, m - 1):
        for j in range(1, n - 1):
            a[i, j] = (a[i - 1, j - 1] + a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j]) / 6.0


@po.scop
def products(x: po.f64[n], y: po.f64[n]):
    for j in range(1, n):
        y[j] = y[j - 1] * x[j]


@po.scop
def squares(x: po.f64[n], y: po.f64[n]):
    for j in range(1, n):
        y[j] = x[j] - 0.1 * y[j - 1] * y[j - 1]


@po.scop
def second_order(x: po.f64[n], y: po.f64[n]):
    for j in range(2, n):
        y[j] = x[j] + 0.25 * y[j - 1] + 0.25 * y[j - 2]


@po.scop
def two_writers(x: po.f64[n], y: po.f64[n]):
    for j in range(1, n):
        y[j - 1] = y[j - 1] + x[j]
        y[j] = 0.5 * y[j - 1]


@po.scop
def integers(x: po.i64[n], y: po.i64[n]):
    for j in range(1, n):
        y[j] = y[j - 1] + x[j]


LINEAR = {f.scop.name: f for f in (prefix, smooth, backwards, rows_and_columns)}
OTHERS = {f.scop.name: f for f in (products, squares, second_order, two_writers, integers)}


def arrays(f: Any, rows: int, columns: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(rows * 100 + columns)
    sizes = {"m": rows, "n": columns}
    shapes = [tuple(x.evaluate(sizes) for x in t.shape) for t in f.scop.tensors if t.role != "local"]
    types = [t.dtype.numpy for t in f.scop.tensors if t.role != "local"]
    return [(rng.standard_normal(s) * 4).astype(d) for s, d in zip(shapes, types, strict=True)]


def compare(f: Any, kernel: Callable[..., Any], rows: int, columns: int, exact: bool) -> None:
    given = arrays(f, rows, columns)
    want, got = [a.copy() for a in given], [a.copy() for a in given]
    f.reference(*want)
    kernel(*got)
    for a, b in zip(want, got, strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(b, a, rtol=1e-5 if a.dtype == np.float32 else 1e-12, atol=1e-5 if a.dtype == np.float32 else 1e-12)


@pytest.mark.cc
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LINEAR)
def test_scans_compute_what_the_loops_do(name: str, isa: str) -> None:
    f = LINEAR[name]
    s = po.schedule(f).vectorize("j", 8) if f is backwards else po.auto(f, isa=isa)
    scanned = isa != "scalar"
    assert ("po_scan" in s.source(isa=isa).text) == scanned
    kernel = s.compile(isa=isa)
    for columns in (*range(1, 20), 31, 32, 33, 64, 100, 257):
        compare(f, kernel, 5, columns, exact=not scanned and s.label == "bit-identical")
    if scanned:
        assert s.label.startswith("reassociates") and s.verify().ok


@pytest.mark.cc
@pytest.mark.parametrize("name", LINEAR)
def test_strict_arithmetic_keeps_the_order(name: str) -> None:
    f = LINEAR[name]
    s = po.auto(f, fp="strict")
    assert s.label == "bit-identical" and "po_scan" not in s.source(fp="strict").text
    compare(f, s.compile(fp="strict"), 6, 45, exact=True)


@pytest.mark.cc
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_linear_recurrence_is_no_scan(name: str) -> None:
    f = OTHERS[name]
    with pytest.raises(po.IllegalSchedule):
        po.schedule(f).vectorize("j", 4)
    s = po.auto(f)
    assert "po_scan" not in s.source().text
    compare(f, s.compile(), 1, 41, exact=f is integers)


@pytest.mark.cc
def test_a_strip_of_a_user_is_a_scan() -> None:
    s = po.schedule(smooth).vectorize("j", 4)
    assert s.label == "reassociates S0" and "po_scan" in s.source().text
    for columns in (1, 2, 5, 8, 9, 50):
        compare(smooth, s.compile(), 3, columns, exact=False)


@pytest.mark.cc
def test_factors_whose_powers_overflow_stay_in_order() -> None:
    @po.scop
    def wild(x: po.f64[n], y: po.f64[n]):
        for j in range(1, n):
            y[j] = 1e-300 * y[j - 1] + x[j]

    s = po.auto(wild)
    assert "po_scan" not in s.source().text
    y = np.array([np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    s.compile()(np.ones(10), y)
    assert np.isinf(y).all()


def test_linear_parts() -> None:
    x, y = Access("a", (var("j") - 1,)), Access("a", (var("j"),))
    lx, ly = Load(x, f64), Load(y, f64)
    half = Const(0.5, f64)
    assert split_linear(lx, x) == (1.0, None)
    assert split_linear(ly, x) == (0.0, ly)
    assert split_linear(Binary("/", Binary("+", Binary("*", half, lx), ly), Const(4.0, f64)), x) == (0.125, Binary("/", ly, Const(4.0, f64)))
    assert split_linear(Binary("-", ly, Unary("-", lx)), x) == (1.0, ly)
    assert split_linear(Binary("*", lx, ly), x) is None
    assert split_linear(Binary("/", half, lx), x) is None
    assert split_linear(Binary("max", lx, ly), x) is None
