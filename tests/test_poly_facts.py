"""Footprints, classification, conversions and live ranges against enumeration."""

from __future__ import annotations

import random
from itertools import product

import islpy as isl
import pytest
from build_scop import build, statement
from poly_programs import PROGRAMS, cells_of, conv, dates_of, gemm, jacobi, lu, pairs_of, trace, two_updates

from polyopt.errors import ScheduleError
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Binary, Cast, Const, Load
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import CTX, OperationBudget, max_operations, read_map, read_set, read_union_map, sample_map, sample_set, show
from polyopt.poly import deps
from polyopt.poly.classify import (
    access_stride,
    classify_contraction,
    classify_row_reduction,
    contiguous_run,
    is_data_movement,
    is_pointwise,
    unit_stride_iter,
)
from polyopt.poly.convert import columns, from_aff, from_pw_aff, to_aff
from polyopt.poly.deps import compute_dependences, compute_live_in, compute_live_out
from polyopt.poly.footprint import footprint_box


# ---- isl_ext and convert
def test_budget_is_an_exception_and_is_reset() -> None:
    a = read_map("{ S[i,j,k] -> T[i mod 3, j mod 5, k mod 7] : i + j > 4 or k > 0 }")
    b = read_map("{ S[i,j,k] -> T[i mod 3, j mod 4, k mod 7] : i + j > 5 or k > 1 }")
    with pytest.raises(OperationBudget), max_operations(100_000), max_operations(20):
        a.subtract(b).coalesce()
    assert CTX.get_max_operations() == 0
    assert not a.subtract(b).is_empty()


def test_sampling_and_printing() -> None:
    assert sample_set(read_set("[N] -> { S[i] : i = N + 1 and N = 4 }")) == ((5,), {"N": 4})
    assert sample_set(read_set("{ S[i] : 0 < i < 0 }")) is None
    assert sample_map(read_map("{ S[i] -> T[i + 1] : i = 3 }")) == ((3,), (4,), {})
    a = read_union_map("{ B[i] -> A[i]; A[i] -> B[i + 1] }")
    assert show(a) == show(read_union_map("{ A[i] -> B[i + 1]; B[i] -> A[i] }")) and show(a).startswith("{ A[i]")


def random_affine(rng: random.Random, depth: int = 2) -> Affine:
    x = affine(rng.randint(-9, 9))
    for name in ("i", "j", "N"):
        x = x + var(name) * rng.randint(-3, 3)
    if depth and rng.random() < 0.7:
        inner = random_affine(rng, depth - 1)
        x = x + (inner // rng.randint(2, 7) if rng.random() < 0.5 else inner % rng.randint(2, 7)) * rng.randint(-2, 2)
    return x


def test_affine_to_isl_and_back() -> None:
    rng = random.Random(1)
    space = read_set("[N] -> { S[i, j] }").get_space()
    for _ in range(60):
        x = random_affine(rng)
        aff = to_aff(x, space)
        back = from_aff(aff)
        for _ in range(5):
            at = {n: rng.randint(-20, 20) for n in ("i", "j", "N")}
            point = isl.Point.zero(space)
            for n, (kind, q) in columns(space).items():
                kind = isl.dim_type.set if kind == isl.dim_type.in_ else kind
                point = point.set_coordinate_val(kind, q, isl.Val.int_from_si(CTX, at[n]))
            assert aff.eval(point).to_python() == x.evaluate(at) == back.evaluate(at), (x, at)


def test_pieces() -> None:
    p = isl.PwAff.read_from_str(CTX, "{ [i] -> [i] : i > 0; [i] -> [-i] : i <= 0 }")
    assert sorted(str(x) for _, x in from_pw_aff(p, ("i",))) == ["-i", "i"]


# ---- footprints
def check_box(scop: Scop, name: str, tensor: str, prefix: str, coords: tuple[str, ...], params: dict[str, int]) -> tuple[int, ...]:
    """Every element touched is in the box, and at some coordinates the box is as wide as what is touched (in every dim)."""
    s = scop.statement(name)
    accesses = [(s, a) for a in dict.fromkeys((s.write, *s.reads())) if a.tensor == tensor]
    order = read_union_map(prefix)
    box = footprint_box(scop, accesses, order, coords)
    touched: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for (_, point), (_, at) in pairs_of(order.intersect_domain(isl.UnionSet.from_set(s.domain)), params):
        values = dict(zip(s.iters, point))
        for _, a in accesses:
            touched.setdefault(at, set()).update(idx for _, idx in cells_of(scop, a, values, params))
    tight = [False] * len(box.extent)
    for at, cells in touched.items():
        values = {**params, **dict(zip(coords, at))}
        for d in range(len(box.extent)):
            low = box.offset[d].evaluate(values)
            steps = {(c[d] - low) / box.stride[d] for c in cells}
            assert all(x == int(x) and 0 <= x < box.extent[d] for x in steps), (box, at, sorted(cells)[:3])
            tight[d] |= steps <= set(range(box.extent[d])) and max(steps) - min(steps) + 1 == box.extent[d]
    assert all(tight), box
    return box.extent


def test_footprints() -> None:
    g = gemm()
    p = {"M": 13, "N": 11, "K": 9}
    tiles = "[M,N,K] -> { U[i,j,k] -> [floor(i/4), floor(j/3), floor(k/5)] }"
    assert check_box(g, "U", "A", tiles, ("ti", "tj", "tk"), p) == (4, 5)
    assert check_box(g, "U", "B", tiles, ("ti", "tj", "tk"), p) == (5, 3)
    scaled = "[M,N,K] -> { U[i,j,k] -> [4*floor(i/4), j, 5*floor(k/5)] }"
    assert check_box(g, "U", "A", scaled, ("ti", "j", "tk"), p) == (4, 5)
    assert check_box(g, "U", "B", scaled, ("ti", "j", "tk"), p) == (5, 1)
    box = footprint_box(g, [(g.statement("U"), g.statement("U").write)], read_union_map(scaled), ("ti", "j", "tk"))
    assert [str(x) for x in box.offset] == ["ti", "j"]
    c = conv()
    assert check_box(c, "U", "W", "{ U[o,h,w,c,r,s] -> [o, floor(h/2), w] }", ("o", "th", "w"), {}) == (1, 2, 3, 3)
    st = build("s", {"X": "3*N+2", "Y": "N"}, [("S[i]: 0<=i<N", "Y[i]=X[3*i+1]")], '{schedule: "[{S[i]->[i]}]"}', "N", "N>0")
    assert check_box(st, "S", "X", "[N] -> { S[i] -> [floor(i/8)] }", ("t",), {"N": 21}) == (8,)
    stencil = build("t", {"X": "N+2", "Y": "N"}, [("S[i]: 0<=i<N", "Y[i]=X[i]+X[i+1]+X[i+2]")], '{schedule: "[{S[i]->[i]}]"}', "N", "N>0")
    assert check_box(stencil, "S", "X", "[N] -> { S[i] -> [floor(i/8)] }", ("t",), {"N": 21}) == (10,)
    blocked = build("b", {"X": "N//16+1,16", "Y": "N"}, [("S[i]: 0<=i<N", "Y[i]=X[i//16,i%16]")], '{schedule: "[{S[i]->[i]}]"}', "N", "N>0")
    assert check_box(blocked, "S", "X", "[N] -> { S[i] -> [floor(i/8)] }", ("t",), {"N": 41}) == (1, 8)
    assert check_box(blocked, "S", "X", "[N] -> { S[i] -> [floor(i/32)] }", ("t",), {"N": 81}) == (2, 16)


def test_no_constant_extent_is_refused() -> None:
    g = gemm()
    u = g.statement("U")
    with pytest.raises(ScheduleError, match="dim 0 of B has no constant extent below \\[ti\\]"):
        footprint_box(g, [(u, u.reads()[1])], read_union_map("[M,N,K] -> { U[i,j,k] -> [floor(i/4)] }"), ("ti",))


# ---- live ranges
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("gather", "scatter")])
def test_live_in_and_out(name: str) -> None:
    make, params = PROGRAMS[name]
    scop = make()
    written: set = set()
    live_in, last = set(), {}
    updates: dict = {}
    for inst, loads, cells, how in trace(scop, params):
        for c in loads + (cells if how == "update" else []):
            if c not in written:
                live_in.add((inst, c))
        for c in cells:
            if how == "must":
                written.add(c)
                last[c], updates[c] = [inst], []
            else:
                last.setdefault(c, []).append(inst)
    inside = {(a, c) for a, c in pairs_of(compute_live_in(scop), params) if all(x >= 0 for x in c[1])}
    shapes = {t.name: [n.evaluate(params) for n in t.shape] for t in scop.tensors}
    inside = {(a, c) for a, c in inside if all(x < n for x, n in zip(c[1], shapes[c[0]]))}
    assert inside == {(a, c) for a, c in live_in if all(0 <= x < n for x, n in zip(c[1], shapes[c[0]]))}
    assert pairs_of(compute_live_out(scop), params) == {(a, c) for c, who in last.items() for a in who}


def test_memory_based_fallback_is_a_superset(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, params in ((gemm, {"M": 2, "N": 2, "K": 3}), (lu, {"N": 4}), (two_updates, {"N": 3}), (jacobi, {"T": 2, "N": 5})):
        exact = compute_dependences(make()).dependences
        monkeypatch.setattr(deps, "BUDGET", 30)
        coarse = compute_dependences(make()).dependences
        monkeypatch.undo()
        assert exact is not None and coarse is not None
        assert exact.all().is_subset(coarse.all())
        order = dates_of(make().schedule.get_map().intersect_domain(make().domain()), params)
        assert all(order[a] < order[b] for a, b in pairs_of(coarse.all(), params))


# ---- classification
def contraction_of(domain: str, text: str) -> tuple[str, str, str, str] | None:
    c = classify_contraction(statement((), domain, text))
    return None if c is None else ("".join(c.m), "".join(c.n), "".join(c.k), "".join(c.batch))


CONV = "U[n,o,h,w,c,r,s]: 0<=n<2 and 0<=o<8 and 0<=h<9 and 0<=w<9 and 0<=c<4 and 0<=r<3 and 0<=s<3"
CUBE = "U[i,j,k]: 0<=i<8 and 0<=j<8 and 0<=k<8"


@pytest.mark.parametrize(
    "domain, text, want",
    [
        (CUBE, "C[i,j]+=A[i,k]*B[k,j]", ("i", "j", "k", "")),
        (CUBE, "C[i,j]+=B[k,j]*A[i,k]", ("i", "j", "k", "")),
        (CUBE, "C[j,i]+=A[i,k]*B[k,j]", ("j", "i", "k", "")),
        (CUBE, "C[i,j]+=2.0*A[i,k]*B[k,j]", ("i", "j", "k", "")),
        (CUBE, "C[i,j]+=-A[i,k]*A[j,k]", ("i", "j", "k", "")),
        ("U[i,k]: 0<=i<8 and 0<=k<8", "y[i]+=A[i,k]*x[k]", ("", "i", "k", "")),
        ("U[b,i,j,k]: 0<=b<8 and 0<=i<8 and 0<=j<8 and 0<=k<8", "C[b,i,j]+=A[b,i,k]*B[b,k,j]", ("i", "j", "k", "b")),
        (CONV, "Y[n,o,h,w]+=X[n,c,2*h+r-1,2*w+s-1]*W[o,c,r,s]", ("o", "nhw", "crs", "")),
        (CONV, "Y[n,o//4,h,w,o%4]+=X[n,c,2*h+r-1,2*w+s-1]*W[o,c,r,s]", ("nhw", "o", "crs", "")),
        (CONV, "Y[n,o,h,w]+=X[n,o,h+2*r,w+2*s]*W[o,r,s]", ("", "nhw", "crs", "o")),
        (CONV, "Y[n,o,h,w]+=(X[n,c,h+r-1,w+s-1] if 0<=h+r-1<9 else 0.0)*W[o,c,r,s]", ("o", "nhw", "crs", "")),
        (CUBE, "C[i,j]+=A[i,k]+B[k,j]", None),
        (CUBE, "C[i,j]=A[i,k]*B[k,j]", None),
        (CUBE, "C[i,j]+=A[i,k]*B[k,k]*D[k,j]", None),
        (CUBE, "C[i,j]+=A[i,k]*B[i,k]", None),
        ("U[i,j]: 0<=i<8 and 0<=j<8", "C[i,j]+=A[i,j]*B[i,j]", None),
    ],
)
def test_contractions(domain: str, text: str, want: tuple[str, str, str, str] | None) -> None:
    assert contraction_of(domain, text) == want


def test_contraction_is_the_same_under_renaming_and_swaps() -> None:
    for order in (("i", "j", "k"), ("k", "j", "i"), ("j", "k", "i")):
        for text in ("C[i,j]+=A[i,k]*B[k,j]", "Z[i,j]+=Y[k,j]*X[i,k]"):
            c = classify_contraction(statement((), f"T[{','.join(order)}]: 0<=i<8 and 0<=j<8 and 0<=k<8", text))
            assert c is not None and (c.m, c.n, c.k) == (("i",), ("j",), ("k",))
            assert c.swapped().m == ("j",) and c.swapped().swapped() == c


def test_quantised_contraction() -> None:
    s = statement((), CUBE, "C[i,j]+=A[i,k]*B[k,j]")
    a = Binary("-", Cast(Load(Access("A", (var("i"), var("k"))), f32), f32), Load(Access("za", (affine(0),)), f32))
    b = Binary("-", Load(Access("B", (var("k"), var("j"))), f32), Load(Access("zb", (var("j"),)), f32))
    c = classify_contraction(Statement(s.name, s.iters, s.domain, s.write, Binary("*", a, b), "+"))
    assert c is not None and c.b.access.tensor == "B" and c.a_factor == a and c.rest == ()
    assert Const(1.0, f32) not in c.rest


def test_rows_and_pointwise() -> None:
    row = classify_row_reduction(statement((), "R[i,j]: 0<=i<8 and 0<=j<8", "m[i]+=A[i,j]"))
    assert row is not None and (row.rows, row.reduced, row.sliding) == (("i",), ("j",), False)
    pool = classify_row_reduction(statement((), "R[i,r]: 0<=i<8 and 0<=r<3", "m[i]+=A[2*i+r]"))
    assert pool is not None and pool.sliding
    assert classify_row_reduction(statement((), CUBE, "C[i,j]+=A[i,k]*B[k,j]")) is None
    assert is_pointwise(statement((), "S[i,j]: 0<=i<8 and 0<=j<8", "B[j,i]=A[i,j]+A[i,0]"))
    assert not is_pointwise(statement((), "S[i,j]: 0<=i<8 and 0<=j<8", "B[i]=A[i,j]"))
    assert not is_pointwise(statement((), "S[i]: 1<=i<8", "A[i]=A[i-1]"))
    assert is_pointwise(statement((), "S[i,j]: 0<=i<8 and 0<=j<4", "B[4*i+j]=A[i,j]"))
    assert not is_pointwise(statement((), "S[i,j]: 0<=i<8 and 0<=j<5", "B[4*i+j]=A[i,j]"))
    assert is_data_movement(statement((), "S[i,j]: 0<=i<8 and 0<=j<8", "B[j,i]=A[i,j]"))


def test_strides() -> None:
    i, j, n = var("i"), var("j"), var("N")
    plain = Tensor("A", f32, (affine(8), n))
    assert access_stride(Access("A", (i, j)), plain, "j") == 1 and access_stride(Access("A", (i, j)), plain, "i") is None
    blocked = Tensor("A", f32, (affine(4), affine(9), affine(16)))
    at = Access("A", (i // 16, j, i % 16))
    assert access_stride(at, blocked, "i") == 1 and contiguous_run(at, "i") == 16 and access_stride(at, blocked, "j") == 16
    s = statement((), "S[i,j]: 0<=i<64 and 0<=j<9", "Y[i,j]=A[i//16,j,i%16]")
    assert unit_stride_iter(s, s.reads()[0], blocked) == "i" and unit_stride_iter(s, s.write, Tensor("Y", f32, (affine(64), affine(9)))) == "j"
    thin = Tensor("A", f32, (affine(8), affine(1)))
    assert unit_stride_iter(statement((), "S[i]: 0<=i<8", "Y[i]=A[i,0]"), Access("A", (i, affine(0))), thin) == "i"
    assert contiguous_run(Access("A", ((i + 4) // 16,)), "i") == 4 and contiguous_run(Access("A", (i,)), "i") is None
    shape = Tensor("A", f32, (affine(5), affine(7)))
    for q, p in product(range(-2, 3), repeat=2):
        if q or p:
            assert access_stride(Access("A", (i * q, i * p)), shape, "i") == 7 * q + p
