"""Verbs on hand-made scops: the lowered loops compute the same, refusals name what is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_loops import run_loops

from polyopt.codegen.c import emit_kernel
from polyopt.errors import IllegalSchedule, ScheduleError
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Binary, Const, Load
from polyopt.ir.loops import Loop as NestLoop
from polyopt.ir.loops import Prefetch, walk
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import read_set
from polyopt.lower.loops import lower_to_loops
from polyopt.target import cpu_target
from polyopt.verbs import (
    VERBS,
    bind,
    distribute,
    fuse,
    interchange,
    parallelize,
    prefetch,
    promote,
    reverse,
    shift,
    skew,
    strip_mine,
    tile,
    unroll,
    vectorize,
)
from polyopt.verbs.promote import make_member
from polyopt.verbs.recipe import apply_recipe
from polyopt.verbs.tree import Leaf, Loop, Seq, chains, read_tree, rewrite_schedule


def gemm(m: int, n: int, k: int) -> Scop:
    """C = A·B as an imperfect nest: i, j, {S0; k: S1}."""
    i, j, kk = var("i"), var("j"), var("k")
    sizes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    tensors = tuple(Tensor(t, f32, tuple(map(affine, s)), "output" if t == "C" else "input") for t, s in sizes.items())
    c = Access("C", (i, j))
    s0 = Statement("S0", ("i", "j"), read_set(f"{{ S0[i, j] : 0 <= i < {m} and 0 <= j < {n} }}"), c, Const(0.0, f32))
    box = f"{{ S1[i, j, k] : 0 <= i < {m} and 0 <= j < {n} and 0 <= k < {k} }}"
    product = Binary("*", Load(Access("A", (i, kk)), f32), Load(Access("B", (kk, j)), f32))
    s1 = Statement("S1", ("i", "j", "k"), read_set(box), c, product, "+")
    scop = Scop("gemm", (), read_set("{ : }").params(), tensors, (s0, s1), None)
    inner = Seq((Leaf(("S0",)), Loop(make_member(scop, "k", {"S1": kk}), Leaf(("S1",)))))
    tree = Loop(make_member(scop, "i", {"S0": i, "S1": i}), Loop(make_member(scop, "j", {"S0": j, "S1": j}), inner))
    return replace(scop, schedule=rewrite_schedule(scop, tree))


def seidel(t: int, n: int) -> Scop:
    """One-dimensional Gauss-Seidel in time: X[i] = X[i-1] + X[i] + X[i+1]."""
    i = var("i")
    loads = [Load(Access("X", (i + d,)), f32) for d in (-1, 0, 1)]
    s = Statement(
        "S", ("t", "i"), read_set(f"{{ S[t, i] : 0 <= t < {t} and 1 <= i < {n - 1} }}"), Access("X", (i,)),
        Binary("*", Const(0.25, f32), Binary("+", Binary("+", loads[0], loads[1]), loads[2])),
    )  # fmt: skip
    scop = Scop("seidel", (), read_set("{ : }").params(), (Tensor("X", f32, (affine(n),), "inout"),), (s,), None)
    tree = Loop(make_member(scop, "t", {"S": var("t")}), Loop(make_member(scop, "i", {"S": i}), Leaf(("S",))))
    return replace(scop, schedule=rewrite_schedule(scop, tree))


def names(scop: Scop, statement: str) -> tuple[str, ...]:
    """The loops around a statement."""
    return tuple(n for c in chains(read_tree(scop.schedule)) if statement in c.statements for n in c.names())


def check_gemm(scop: Scop, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")
    c = np.full((m, n), np.nan, "f4")
    run_loops(lower_to_loops(scop), {"A": a, "B": b, "C": c})
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def check_seidel(scop: Scop, t: int, n: int) -> None:
    x = np.random.default_rng(1).standard_normal(n).astype("f4")
    want = x.copy()
    for _ in range(t):
        for i in range(1, n - 1):
            want[i] = np.float32(0.25) * (want[i - 1] + want[i] + want[i + 1])
    run_loops(lower_to_loops(scop), {"X": x})
    np.testing.assert_array_equal(x, want)


def test_imperfect_nest_is_refused_and_the_repair_works() -> None:
    s = gemm(10, 12, 5)
    with pytest.raises(ScheduleError, match=r"distribute\('k'\) makes its nest perfect"):
        tile(s, i=4, j=4, k=4)
    s = tile(distribute(s, "k"), i=4, j=5, k=3)
    assert names(s, "S1") == ("ti", "tj", "tk", "i", "j", "k")
    check_gemm(s, 10, 12, 5)


@pytest.mark.parametrize("size", [(1, 1, 1), (6, 16, 4), (13, 37, 7), (29, 5, 3), (3, 70, 2)])
@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "neon"])
def test_recipe_on_gemm(size: tuple[int, int, int], isa: str) -> None:
    check_gemm(apply_recipe(gemm(*size), replace(cpu_target(isa), l2=4096)), *size)


def test_register_promotion_by_hand() -> None:
    s = tile(gemm(13, 40, 6), i=6, j=32)
    s = interchange(distribute(s, "k", loops=("i", "j")), "k", "i", "j")
    for st in ("S0", "S1"):
        s = unroll(vectorize(s, "j", 16, of=st), "i", of=st)
    s = promote(s, "C", at="tj", scope="registers", lanes=16)
    check_gemm(s, 13, 40, 6)
    assert s.label == "bit-identical"
    assert [x.verb for x in s.history] == ["tile", "distribute", "interchange", "vectorize", "unroll", "vectorize", "unroll", "promote"]


def test_promoted_tile_is_loaded_only_where_it_is_read_from_outside() -> None:
    s = distribute(gemm(8, 8, 12), "k")
    s = tile(s, i=4, j=4, k=4)
    s = promote(s, "C", at="tk", scope="registers")
    assert {x.name for x in s.statements} == {"S0", "S1", "load_C_registers", "store_C_registers"}
    check_gemm(s, 8, 8, 12)


def test_packing_copies_only_inside_the_tensor() -> None:
    s = tile(distribute(gemm(7, 9, 5), "k"), i=4, j=4, k=2)
    s = promote(promote(s, "B", at="tk", scope="cache"), "A", at="tk", scope="cache")
    check_gemm(s, 7, 9, 5)


def test_reordered_reduction_is_labelled() -> None:
    s = distribute(gemm(4, 4, 8), "k")
    assert s.label == "bit-identical"
    s = reverse(s, "k")
    assert s.label == "reassociates S1"
    check_gemm(s, 4, 4, 8)


def test_illegal_interchange_has_a_witness() -> None:
    with pytest.raises(IllegalSchedule) as e:
        interchange(seidel(6, 9), "i", "t")
    v = e.value.violation
    assert v.source[0] == v.sink[0] == "S" and v.before[0] < v.before[1] and not v.after[0] < v.after[1]
    assert "must run before" in str(e.value) and v.cell is not None and v.cell[0] == "X"


def test_tiling_needs_the_skew() -> None:
    s = seidel(6, 9)
    with pytest.raises(IllegalSchedule):
        tile(s, t=3, i=3)
    s = tile(skew(s, "i", by="t", factor=1), t=3, i=3)
    check_seidel(s, 6, 9)


def test_illegal_marks_are_refused() -> None:
    assert vectorize(seidel(6, 9), "i", 4).label == "reassociates S"  # a linear recurrence: a scan
    for verb in (lambda s: vectorize(s, "t", 4), lambda s: parallelize(s, "i"), lambda s: parallelize(s, "t"), lambda s: reverse(s, "i")):
        with pytest.raises(IllegalSchedule):
            verb(seidel(6, 9))
    with pytest.raises(IllegalSchedule):
        bind(seidel(6, 9), "i", "thread.x")
    assert "parallel" in str(parallelize(gemm(4, 4, 4), "i").schedule)


def test_fuse_and_shift() -> None:
    s = distribute(gemm(5, 6, 4), "k")
    back = fuse(s, "S0", "S1", depth=2)
    check_gemm(back, 5, 6, 4)
    with pytest.raises(IllegalSchedule):
        shift(back, "S1", "i", -1)
    check_gemm(shift(back, "S1", "i", 2), 5, 6, 4)
    with pytest.raises(ScheduleError, match="share 2 loops"):
        fuse(s, "S0", "S1", depth=3)


def test_strip_mine_is_always_legal() -> None:
    check_seidel(strip_mine(seidel(4, 20), "i", 5), 4, 20)


@pytest.mark.parametrize(
    ("verb", "kwargs", "message"),
    [
        ("tile", {"i": 0}, "tile size of i is 0"),
        ("tile", {"i": -3}, "tile size of i is -3"),
        ("tile", {"z": 4}, "there is no loop 'z'"),
        ("tile", {}, "give at least one loop"),
        ("promote", {"tensor": "Q", "at": "i"}, "there is no tensor 'Q'"),
        ("promote", {"tensor": "C", "at": "i", "scope": "disk"}, "scope is 'disk'"),
    ],
)
def test_bad_arguments(verb: str, kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        VERBS[verb](gemm(4, 4, 4), **kwargs)


def test_prefetch_is_a_hint_ahead_of_the_load() -> None:
    s = prefetch(tile(distribute(gemm(9, 20, 6), "k"), i=4, j=8, of="S1"), "B", at="k", distance=2)
    nest = lower_to_loops(s)
    hints = [n for n in walk(nest.body) if isinstance(n, Prefetch)]
    loop = next(n for n in walk(nest.body) if isinstance(n, NestLoop) and n.name == "k")
    assert hints and all(h.access.tensor == "B" and h.access.indices[0] == var(loop.var) + 2 for h in hints)
    assert "__builtin_prefetch" in emit_kernel(nest, cpu_target("scalar")).text
    check_gemm(s, 9, 20, 6)
    with pytest.raises(ScheduleError, match="distance is 0"):
        prefetch(s, "B", at="k", distance=0)
    with pytest.raises(ScheduleError, match="no statement below the loop k loads C"):
        prefetch(s, "C", at="k", distance=1)
