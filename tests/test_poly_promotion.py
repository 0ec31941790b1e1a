"""Promotions: those that the verb makes are proven to change no value; copies that were damaged, and layouts that let cells collide, are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from run_loops import run_loops

from polyopt.errors import InternalError, ScheduleError
from polyopt.frontends.python_loops import dims, scop
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Load, rewrite
from polyopt.ir.scop import Scop, Statement
from polyopt.isl_ext import OperationBudget, read_set
from polyopt.lower.loops import lower_to_loops
from polyopt.poly import promotion
from polyopt.poly.certify import certify
from polyopt.poly.promotion import check_promotion, find_difference
from polyopt.target import cpu_target
from polyopt.verbs import VERBS, distribute, interchange, promote, skew, tile
from polyopt.verbs.recipe import apply_recipe
from polyopt.verbs.tree import Seq, chains, edit, loops, read_tree, rewrite_schedule, sequence

M, N = dims("M N")


@scop
def gemm(A: f32[13, 20], B: f32[20, 17], C: f32[13, 17]):
    for i in range(13):
        for j in range(17):
            C[i, j] = 0.0
            for k in range(20):
                C[i, j] += A[i, k] * B[k, j]


@scop
def conv(X: f32[6, 12, 12], W: f32[8, 6, 3, 3], Y: f32[8, 10, 10]):
    for f in range(8):
        for y in range(10):
            for x in range(10):
                Y[f, y, x] = 0.0
                for c in range(6):
                    for r in range(3):
                        for s in range(3):
                            Y[f, y, x] += X[c, y + r, x + s] * W[f, c, r, s]


@scop
def stencil(A: f32[N], B: f32[N]):
    for t in range(8):
        for i in range(1, N - 1):
            B[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.25
        for i in range(1, N - 1):
            A[i] = B[i]


@scop
def seidel(A: f32[N]):
    for t in range(8):
        for i in range(1, N - 1):
            A[i] = (A[i - 1] + A[i] + A[i + 1]) * 0.25


def tiled_gemm() -> Scop:
    return interchange(tile(distribute(gemm.scop, "k"), i=4, j=8, k=5), "tk", "ti", "tj", of="S1")


def tiled_conv() -> Scop:
    return interchange(tile(distribute(conv.scop, "c"), y=5, x=4, c=2), "f", "tc", of="S1")


def tiled_stencil() -> Scop:
    return tile(stencil.scop, of="S0", i=8)


def tiled_seidel() -> Scop:
    return tile(skew(seidel.scop, "i", by="t", factor=1), t=4, i=8)


CASES: dict[str, tuple[Callable[[], Scop], tuple[tuple[str, str, str, str], ...]]] = {
    "gemm": (tiled_gemm, (("B", "tj", "cache", "S1"), ("A", "ti", "cache", "S1"), ("C", "tj", "registers", "S1"), ("C", "i", "registers", "S1"))),
    "conv": (tiled_conv, (("X", "tx", "cache", "S1"), ("W", "tc", "cache", "S1"), ("Y", "tx", "registers", "S1"))),
    "stencil": (tiled_stencil, (("A", "ti", "cache", "S0"), ("B", "ti", "cache", "S0"))),
}


def promotions() -> list[tuple[str, str, str, str, str]]:
    return [(case, *p) for case, (_, ps) in CASES.items() for p in ps]


@pytest.mark.parametrize(("case", "tensor", "at", "scope", "of"), promotions())
def test_the_verbs_promotions_are_proven(case: str, tensor: str, at: str, scope: str, of: str) -> None:
    old = CASES[case][0]()
    new = promote(old, tensor, at=at, scope=scope, of=of)
    assert find_difference(old, new, tensor, new.tensors[-1].name) is None
    assert certify(new, lower_to_loops(new)).ok


def test_promotions_on_promotions() -> None:
    s = promote(promote(promote(tiled_gemm(), "B", at="tj", of="S1"), "A", at="ti", of="S1"), "C", at="tj", scope="registers", of="S1")
    s = promote(s, "B_cache", at="k", scope="registers", of="S1")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, 20)).astype("f4"), rng.standard_normal((20, 17)).astype("f4")
    c = np.full((13, 17), np.nan, "f4")
    run_loops(lower_to_loops(s), {"A": a, "B": b, "C": c})
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_recipes_leave_the_proof_to_the_certificate() -> None:
    s = apply_recipe(conv.scop, cpu_target("avx2"))
    assert len(s.meta["promotions"]) >= 1
    claim = next(c for c in certify(s, lower_to_loops(s)).claims if c.name == "copies")
    assert claim.ok and "hand on the values" in claim.text


# ---- damaged copies
def statement(s: Scop, prefix: str, fn: Callable[[Statement], Statement]) -> Scop:
    """The scop with the copies of a kind changed."""
    assert any(x.name.startswith(prefix) for x in s.statements)
    new = replace(s, statements=tuple(fn(x) if x.name.startswith(prefix) else x for x in s.statements))
    return replace(new, schedule=s.schedule.intersect_domain(new.domain()))


def moved(a: Access, d: int, by: int) -> Access:
    return Access(a.tensor, tuple(x + by if q == d and isinstance(x, Affine) else x for q, x in enumerate(a.indices)))


def read_moved(d: int, by: int) -> Callable[[Statement], Statement]:
    return lambda s: replace(s, expr=rewrite(s.expr, lambda e: Load(moved(e.access, d, by), e.dtype) if isinstance(e, Load) else None))


def write_moved(d: int, by: int) -> Callable[[Statement], Statement]:
    return lambda s: replace(s, write=moved(s.write, d, by))


def without(text: str) -> Callable[[Statement], Statement]:
    def visit(s: Statement) -> Statement:
        return replace(s, domain=s.domain.subtract(read_set(f"{{ {s.name}[{', '.join(s.iters)}] : {text} }}")))

    return visit


def dropped(prefix: str) -> Callable[[Scop], Scop]:
    def visit(s: Scop) -> Scop:
        new = replace(s, statements=tuple(x for x in s.statements if not x.name.startswith(prefix)))
        return replace(new, schedule=s.schedule.intersect_domain(new.domain()))

    return visit


def reordered(s: Scop) -> Scop:
    """The parts of the sequence around the copies in the opposite order."""
    tree = read_tree(s.schedule)
    chain = next(c for c in chains(tree) if isinstance(c.below, Seq) and any(x.startswith(("load", "store")) for x in c.statements) and c.members)
    assert isinstance(chain.below, Seq)
    turned = loops(chain.members, sequence(chain.below.parts[::-1]))
    return s.with_schedule(rewrite_schedule(s, edit(tree, chain.path, lambda _: turned)))


DAMAGE: dict[str, tuple[str, str, Callable[[Scop], Scop]]] = {
    "no load of B": ("gemm", "B", dropped("load")),
    "no load of C": ("gemm", "C", dropped("load")),
    "no store of C": ("gemm", "C", dropped("store")),
    "load of the next row": ("gemm", "B", lambda s: statement(s, "load", read_moved(0, 1))),
    "load into the next column": ("gemm", "B", lambda s: statement(s, "load", write_moved(1, 1))),
    "store to the next row": ("gemm", "C", lambda s: statement(s, "store", write_moved(0, 1))),
    "store of the next column": ("gemm", "C", lambda s: statement(s, "store", read_moved(1, 1))),
    "load lacks a column": ("gemm", "B", lambda s: statement(s, "load", without("c1 = 16"))),
    "load lacks a tile": ("gemm", "A", lambda s: statement(s, "load", without("p0 = 1"))),
    "store lacks a cell": ("gemm", "C", lambda s: statement(s, "store", without("c0 = 12 and c1 = 3"))),
    "copies the other way round": ("gemm", "C", reordered),
    "use before the load": ("conv", "X", reordered),
    "no load of the halo": ("conv", "X", lambda s: statement(s, "load", without("c1 = 11"))),
    "load off by one in x": ("conv", "X", lambda s: statement(s, "load", read_moved(2, -1))),
    "a use reads its neighbour": ("conv", "Y", lambda s: statement(s, "S1", write_moved(0, 1))),
    "no store of B": ("stencil", "B", dropped("store")),
    "a neighbour twice": ("stencil", "A", lambda s: statement(s, "S0", read_moved(0, 1))),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_copies_are_found(name: str) -> None:
    case, tensor, damage = DAMAGE[name]
    at, scope, of = next(p[1:] for p in CASES[case][1] if p[0] == tensor)
    old = CASES[case][0]()
    new = promote(old, tensor, at=at, scope=scope, of=of)
    bad = damage(new)
    with pytest.raises(
        ScheduleError, match=r"promote\(it\): (reads through .* would differ: .*gets the value of|cannot be proven: a value goes through)"
    ):
        check_promotion(old, bad, tensor, new.tensors[-1].name, "promote(it)")
    left = replace(bad, meta={"promotions": (promotion.Promotion(old, bad, tensor, new.tensors[-1].name),)})
    with pytest.raises((InternalError, OperationBudget), match="copies"):
        promotion.prove_promotions(left)


def test_swapped_neighbours_are_found() -> None:
    """Both reads stay reads of the same cells, in each other's place."""
    old = tiled_stencil()
    new = promote(old, "A", at="ti", of="S0")
    s0 = new.statement("S0")
    first, *_, last = [x.access for x in s0.loads()]
    swap = {first: last, last: first}
    turned = replace(s0, expr=rewrite(s0.expr, lambda e: Load(swap.get(e.access, e.access), e.dtype) if isinstance(e, Load) else None))
    bad = replace(new, statements=tuple(turned if s.name == "S0" else s for s in new.statements))
    assert find_difference(old, bad, "A", "A_cache") is not None


# ---- the verb refuses
@pytest.mark.parametrize("layout", [[var("d0")], [var("d0"), affine(0)], [var("d0") + var("d1")], [var("d0") // 2, var("d1")]])
def test_layouts_that_let_cells_collide_are_refused(layout: list[Affine]) -> None:
    with pytest.raises(ScheduleError, match=r"promote\('B', at='tj'.*would differ"):
        promote(tiled_gemm(), "B", at="tj", of="S1", layout=layout)


@pytest.mark.parametrize("layout", [[var("d1"), var("d0")], [var("d1") // 4, var("d0"), var("d1") % 4], [var("d0") * 17 + var("d1")]])
def test_layouts_that_keep_cells_apart_are_proven(layout: list[Affine]) -> None:
    new = promote(tiled_gemm(), "B", at="tj", of="S1", layout=layout)
    assert certify(new, lower_to_loops(new)).ok


def test_what_exceeds_the_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "BUDGET", 100)
    with pytest.raises(ScheduleError, match="cannot be proven: isl needed more than 100 operations"):
        promote(tiled_gemm(), "B", at="tj", of="S1")


def test_time_tiles_of_a_stencil() -> None:
    with pytest.raises(ScheduleError, match=r"no constant bound|no single affine date|do not move together"):
        VERBS["promote"](tiled_seidel(), "A", at="tt")
