"""The symbolic counter against isl's enumeration at concrete sizes, on random sets; its text; what has no closed form."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyopt.errors import UserError
from polyopt.ir.affine import affine, var
from polyopt.isl_ext import read_set
from polyopt.poly.counting import Count, count, count_points
from polyopt.poly.quasipoly import QuasiPolynomial, faulhaber, from_affine, lift, sum_over

SIZES = (-2, 0, 1, 2, 3, 5, 8, 13)


def agrees(text: str, closed: bool = True) -> Count:
    points = read_set(text)
    n = count(points)
    assert n.is_closed == closed, text
    names = [p for p in ("M", "N") if p in text.split("->", maxsplit=1)[0]]
    for sizes in product(SIZES, repeat=len(names)):
        values = dict(zip(names, sizes))
        assert n.at(values) == count_points(points, values), (text, values, str(n))
        if closed:
            found = [p.value.evaluate(values) for p in n.pieces if p.holds(values)]
            assert sum(found) == n.at(values) and len(found) <= 1, (text, values)  # the printed cases, which exclude each other
    return n


@pytest.mark.parametrize(("text", "said"), [
    ("[N] -> { [i] : 0 <= i < N }", "N if N >= 0"),
    ("[M, N] -> { [i, j] : 0 <= i < M and 0 <= j < N }", "M·N if M >= 0 and N >= 0"),
    ("[N] -> { [i, j] : 0 <= i < N and 0 <= j <= i }", "N·(N + 1)/2 if N >= 0"),
    ("[N] -> { [i, j, k] : 0 <= i < N and 0 <= j < i and 0 <= k < j }", "N·(N - 1)·(N - 2)/6 if N >= 0"),
    ("[M, N] -> { [t, i, j] : 0 <= t < M and 0 < i < N - 1 and 0 < j < N - 1 }", "M·(N - 2)² if M >= 0 and N >= 2"),
    ("[N] -> { [i] : 0 <= i < N and i mod 3 = 1 }", "⌊(N + 1)/3⌋ if N >= 2"),
    ("[N] -> { [t, i] : 0 <= i < N and 32t <= i < 32t + 32 }", "N if N >= 0"),
    ("[N] -> { [t] : exists i : 0 <= i < N and 32t <= i < 32t + 32 }", "⌊(N + 31)/32⌋ if N > 0"),
    ("{ [i, j] : 0 <= i < 10 and i <= j < 10 }", "55"),
    ("[N] -> { [i] : 0 <= i < N and N < 0 }", "0"),
])  # fmt: skip
def test_closed_forms_are_exact_and_short(text: str, said: str) -> None:
    assert str(agrees(text)) == said


@pytest.mark.parametrize("text", [
    "[N] -> { [i, j] : i >= 0 and j >= 0 and 2i + 3j <= N }",
    "[M, N] -> { [i, j] : 0 <= i < N and 0 <= j < M and j <= i }",
    "[M, N] -> { [i, j] : 0 <= i < N and 0 <= j <= i and (i + j) mod 2 = 0 }",
    "[N] -> { [i] : 0 <= i < N and (exists a : i = 2a or i = 3a) }",
    "[N] -> { [ti, tj] : exists i, j : 0 <= i < N and 0 <= j <= i and 4ti <= i < 4ti + 4 and 4tj <= j < 4tj + 4 }",
    "[N] -> { [i, j] : 0 < i < N and 0 <= j < N; [i, j] : 0 <= i < N and 0 < j < N; [i, i] : 0 <= i <= N }",
    "[M, N] -> { [i, j, k] : 0 <= i < N and i <= j < N and j <= k < M }",
    "[N] -> { [i, j] : 0 <= 2i < N and 3i <= j <= 4i }",
    "[M, N] -> { [t, w] : 0 <= t < M and 0 <= w - 2t < N }",
])  # fmt: skip
def test_simplices_strides_and_unions(text: str) -> None:
    agrees(text)


def _bound(names: list[str]) -> st.SearchStrategy[str]:
    terms = st.lists(st.tuples(st.sampled_from(names), st.integers(-1, 2)), max_size=2)
    return st.builds(lambda ts, c: " + ".join([*(f"{k}*{n}" for n, k in ts), f"{c}"]), terms, st.integers(-3, 4))


@st.composite
def nests(draw: st.DrawFn) -> str:
    """Up to three dims, each between affine functions of the ones before and the parameters, strided or not."""
    dims: list[str] = []
    rows = []
    for d in ("i", "j", "k")[: draw(st.integers(1, 3))]:
        rows.append(f"{draw(_bound(dims)) if dims else 0} <= {d} < {draw(_bound(['N', 'M', *dims]))}")
        if draw(st.integers(0, 4)) == 0:
            rows.append(f"{d} mod {draw(st.integers(2, 3))} = {draw(st.integers(0, 1))}")
        dims.append(d)
    return f"[{', '.join(dims)}] : {' and '.join(rows)}"


@settings(max_examples=60, deadline=None)
@given(nests())
def test_random_nests(body: str) -> None:
    points = read_set(f"[M, N] -> {{ {body} }}")
    n = count(points)
    for m, k in product((0, 1, 4, 7), (-1, 0, 2, 5, 9)):
        assert n.at({"M": m, "N": k}) == count_points(points, {"M": m, "N": k}), (body, m, k, str(n))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 4, st.sampled_from(["N", "M"])), min_size=1, max_size=3))
def test_unions_of_boxes_that_overlap(boxes: list[tuple[int, int, int, int, str]]) -> None:
    text = "; ".join(f"[i, j] : {a} <= i < {n} + {b} and {c} <= j < {d} + {n}" for a, b, c, d, n in boxes)
    points = read_set(f"[M, N] -> {{ {text} }}")
    n = count(points)
    for m, k in product((0, 1, 4, 9), repeat=2):
        assert n.at({"M": m, "N": k}) == count_points(points, {"M": m, "N": k}), (text, m, k)


def test_what_has_no_closed_form_is_counted_and_says_so() -> None:
    points = read_set("[N] -> { [i, j] : 0 <= i and 0 <= j and 17i + 19j <= N }")
    n = count(points)
    assert not n.is_closed and str(n) == "(no closed form)"
    assert n.at({"N": 100}) == count_points(points, {"N": 100}) == 21
    assert (n + count(read_set("[N] -> { [i] : 0 <= i < N }"))).scale(2).at({"N": 100}) == 242
    with pytest.raises(UserError, match="a count needs values for N"):
        n.at({})


def test_infinite_sets_are_refused() -> None:
    with pytest.raises(UserError, match="infinitely many"):
        count(read_set("[N] -> { [i] : i >= N }"))


def test_polynomials() -> None:
    for k in range(6):
        assert [sum(c * n**e for e, c in enumerate(faulhaber(k))) for n in range(6)] == [sum(x**k for x in range(n + 1)) for n in range(6)]
    x, n = from_affine(var("x")), from_affine(var("N"))
    total = sum_over(x * x + 1, "x", affine(-3), var("N"))
    assert total.evaluate({"N": 4}) == sum(i * i + 1 for i in range(-3, 5))
    assert str((n - 2) * (n - 2) * 3) == "3·(N - 2)²" and str(-n) == "-N" and str(lift(0)) == "0" and str(lift(7)) == "7"
    assert str(((n + 1) * n).scale(Fraction(1, 2))) == "N·(N + 1)/2" and isinstance(total, QuasiPolynomial)
    assert from_affine(-(var("N") // 2) * 3) == from_affine((1 - (var("N") + 1)) // 2 * 3) + from_affine(((var("N") + 1) // 2 - var("N") // 2) * 3)
