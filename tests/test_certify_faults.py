"""More faults put into loop nests that the recipes made, over several kinds of kernels: wrong bounds, guards, strides and remainders, loops
swapped, vectors and threads that carry a dependence, buffers and copies that are wrong. Each must be refused with a witness; and what is
seen at once on affine expressions must never contradict what isl finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from test_certify_emitted import (
    Change,
    bounds,
    conv,
    damaged,
    gemm,
    gemm_of_any_size,
    guards,
    index,
    instances,
    interchanged,
    loops,
    of,
    read,
    softmax,
    swapped_reads,
)

from polyopt.errors import InternalError
from polyopt.frontends.python_loops import ScopFunction, dims, scop
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Compare, Const, Expr, IndexValue, Load, rewrite
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.poly import certify as certificates
from polyopt.poly.agree import follows_schedule
from polyopt.poly.certify import certify
from polyopt.poly.deps import compute_dependences
from polyopt.poly.nest import compute_leaves
from polyopt.target import cpu_target
from polyopt.verbs.recipe import apply_recipe

M, N = dims("M N")


@scop
def depthwise(X: f32[16, 21, 21], W: f32[16, 3, 3], Y: f32[16, 11, 11]):
    for c in range(16):
        for y in range(11):
            for x in range(11):
                Y[c, y, x] = 0.0
                for r in range(3):
                    for s in range(3):
                        if 0 <= 2 * y + r - 1 < 21 and 0 <= 2 * x + s - 1 < 21:
                            Y[c, y, x] += X[c, 2 * y + r - 1, 2 * x + s - 1] * W[c, r, s]


@scop
def pooled(X: f32[8, N, 24], Y: f32[8, N, 12]):
    for c in range(8):
        for y in range(N):
            for x in range(12):
                Y[c, y, x] = max(X[c, y, 2 * x], X[c, y, 2 * x + 1])


@scop
def batched(A: f32[5, 19, 24], B: f32[5, 24, 40], C: f32[5, 19, 40]):
    for b in range(5):
        for i in range(19):
            for j in range(40):
                C[b, i, j] = 0.0
                for k in range(24):
                    C[b, i, j] += A[b, i, k] * B[b, k, j]


@scop
def transpose(A: f32[M, 50], B: f32[50, M]):
    for i in range(M):
        for j in range(50):
            B[j, i] = A[i, j]


@scop
def blocked(A: f32[60], B: f32[4, 16]):
    for i in range(60):
        B[i // 16, i % 16] = A[i] * 2.0


@scop
def recurrence(X: f32[N, 32], H: f32[N, 32]):
    for t in range(1, N):
        for i in range(32):
            H[t, i] = H[t - 1, i] * 0.5 + X[t, i]


@scop
def gauss_seidel(T: int, A: f32[N, N]):
    for _t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = max(A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i + 1, j] + A[i, j + 1], 0.0) * 0.2


@scop
def matvec(A: f32[37, 64], x: f32[64], y: f32[37]):
    for i in range(37):
        y[i] = 0.0
        for j in range(64):
            y[i] += A[i, j] * x[j]


KERNELS: dict[str, ScopFunction] = {
    f.__name__: f
    for f in (
        gemm, gemm_of_any_size, conv, softmax, depthwise, pooled, batched, transpose, blocked, recurrence, gauss_seidel, matvec,
    )
}  # fmt: skip


@cache
def made(name: str, isa: str = "avx2", threads: int = 1) -> tuple[Scop, LoopNest]:
    """A kernel after its recipe, with its caches small so that blocks and panels occur."""
    s = apply_recipe(KERNELS[name].scop, replace(cpu_target(isa, threads), l2=8192))
    return s, lower_to_loops(s)


# ---- faults
Fault = Callable[[LoopNest], LoopNest]


def node(change: Change, nth: int = 0) -> Fault:
    """A fault in the nth node that it applies to."""
    return lambda nest: damaged(nest, change, nth)


def shrunk(tensor: str, d: int) -> Fault:
    """A buffer with one element too few in a dim."""

    def change(nest: LoopNest) -> LoopNest:
        tensors = tuple(
            replace(t, shape=tuple(n - 1 if q == d else n for q, n in enumerate(t.shape))) if t.name == tensor else t for t in nest.tensors
        )
        assert tensors != nest.tensors
        return replace(nest, tensors=tensors)

    return change


def declarations(n: LoopNode) -> tuple[LoopNode, ...] | None:
    return () if isinstance(n, Declare) else None


def write(fn: Callable[[Access], Access]) -> Callable[[Instance], Instance | None]:
    return lambda n: None if fn(n.write) == n.write else replace(n, write=fn(n.write))


def marked(mark: str, lanes: int = 0) -> Callable[[Loop], Loop | None]:
    return lambda n: None if n.mark == mark else replace(n, mark=mark, lanes=lanes)


def one_bound(n: Loop) -> Loop | None:
    """Only the first of several upper bounds, or of several lower ones."""
    if len(n.upper) > 1:
        return replace(n, upper=n.upper[:1])
    return replace(n, lower=n.lower[:1]) if len(n.lower) > 1 else None


def last_bound(n: Loop) -> Loop | None:
    return replace(n, upper=n.upper[-1:]) if len(n.upper) > 1 else None


def late_copy(n: Loop) -> Loop | None:
    """What a body fills first is filled last."""
    kept = [x for x in n.body if isinstance(x, Declare)]
    rest = [x for x in n.body if not isinstance(x, Declare)]
    return replace(n, body=(*kept, *rest[1:], rest[0])) if kept and len(rest) > 1 else None


def turned_around(n: Loop) -> Loop | None:
    return replace(n, body=n.body[::-1]) if len(n.body) > 1 else None


def nearly_full(n: If) -> If | None:
    """A guard of full tiles that lets one pass that is an element short."""
    if not isinstance(n.cond, Compare) or n.cond.op != ">=" or not isinstance(n.cond.y, IndexValue):
        return None
    return replace(n, cond=replace(n.cond, y=IndexValue(n.cond.y.index - 1, n.cond.y.dtype)))


def about(name: str, change: Callable[[If], LoopNode | tuple[LoopNode, ...] | None]) -> Change:
    """A change of the guards that mention a variable."""
    return guards(lambda n: change(n) if isinstance(n.cond, Compare) and name in _names(n.cond) else None)


def _names(e: Expr) -> set[str]:
    return {v for x in (e, *e.children()) if isinstance(x, IndexValue) for v in x.index.names()}


def first_for_all(n: Instance) -> Instance | None:
    """Every load of a tensor the first one."""
    found: dict[str, Access] = {}

    def visit(e: Expr) -> Expr | None:
        return Load(found.setdefault(e.access.tensor, e.access), e.dtype) if isinstance(e, Load) else None

    new = rewrite(n.expr, visit)
    return None if new == n.expr else replace(n, expr=new)


def doubled(n: Instance) -> Instance | None:
    new = rewrite(n.expr, lambda e: Const(e.value * 2, e.dtype) if isinstance(e, Const) and e.dtype.is_float else None)
    return None if new == n.expr else replace(n, expr=new)


def at(q: int, value: Affine | int) -> Callable[[Instance], Instance]:
    return lambda n: replace(n, coords=tuple(affine(value) if p == q else c for p, c in enumerate(n.coords)))


def plus(tensor: str, d: int, by: Affine | int) -> Callable[[Access], Access]:
    return of(tensor, d, lambda x: x + by)


def taps_exchanged(a: Access) -> Access:
    return Access("W", (a.indices[0], *a.indices[:0:-1])) if a.tensor == "W" else a


FAULTS: dict[str, tuple[str, str, int, Fault]] = {
    # bounds and guards
    "a row of padding read": ("depthwise", "avx2", 1, node(loops(one_bound, "r"))),
    "a window past the end": ("depthwise", "avx2", 1, node(loops(last_bound, "r"))),
    "the last column left out": ("depthwise", "avx2", 1, node(loops(lambda n: (), "r"), 1)),
    "the last column is the one before": ("depthwise", "avx2", 1, node(instances(at(2, 9), "S1"), 1)),
    "a row too many": ("pooled", "avx2", 1, node(loops(bounds(upper=1), "y"))),
    "a column too few": ("pooled", "avx2", 1, node(loops(bounds(upper=-1), "x"))),
    "a rest of rows one short": ("batched", "avx2", 1, node(loops(lambda n: bounds(upper=-1)(n) if n.trip == 3 else None, "i"), 0)),
    "a rest of rows as a full tile": ("batched", "avx2", 1, node(loops(lambda n: bounds(upper=1)(n) if n.trip == 3 else None, "i"), 0)),
    "full vectors one early": ("transpose", "avx2", 1, node(guards(nearly_full))),
    "a rest that runs always": ("transpose", "avx2", 1, node(guards(lambda n: (n, *n.orelse) if n.orelse else None))),
    "a rest that never runs": ("transpose", "avx2", 1, node(guards(lambda n: If(n.cond, n.body) if n.orelse else None))),
    "a full vector of a panel where it is partial": ("gemm_of_any_size", "avx512", 1, node(about("sc1", lambda n: n.body))),
    "a rest without its bound": ("gemm_of_any_size", "avx512", 1, node(loops(last_bound, mark="vector"))),
    "the tiles of the next block": ("gemm_of_any_size", "avx512", 1, node(loops(last_bound, "ti"))),
    "a slanted tile without its edge": ("gauss_seidel", "avx2", 1, node(loops(one_bound, "j"))),
    "time steps past the last": ("gauss_seidel", "avx2", 1, node(loops(last_bound, "t"))),
    "the first time step left out": ("recurrence", "avx2", 1, node(loops(bounds(lower=1), "t"))),
    "time from before the start": ("recurrence", "avx2", 1, node(loops(bounds(lower=-1), "t"))),
    "every second column": ("pooled", "avx2", 1, node(loops(lambda n: replace(n, step=2), "x"))),
    # order, vectors and threads
    "a sum before its start": ("matvec", "avx2", 1, lambda nest: replace(nest, body=nest.body[::-1])),
    "one sum by several threads": ("matvec", "avx2", 1, node(loops(marked("parallel"), "j"))),
    "chunks of a sum in parallel": ("gemm", "avx2", 4, node(loops(marked("parallel"), "ck"))),
    "a reduction in registers by threads": ("batched", "avx2", 4, node(loops(marked("parallel"), "k"))),
    "registers that threads share": ("gemm", "avx2", 4, node(declarations)),
    "scalars that threads share": ("softmax", "avx2", 1, node(loops(marked("parallel"), "i"))),
    "rows as a vector over their scalars": ("softmax", "avx2", 1, node(loops(marked("vector", 13), "i"))),
    "time as a vector": ("recurrence", "avx2", 1, node(loops(marked("vector", 4), "t"))),
    "time in parallel": ("recurrence", "avx2", 1, node(loops(marked("parallel"), "t"))),
    "a wavefront's steps in parallel": ("gauss_seidel", "avx2", 1, node(loops(marked("parallel"), "t"))),
    "a row that needs itself as a vector": ("gauss_seidel", "avx2", 1, node(loops(marked("vector", 8), "j"))),
    "tiles of time in parallel": ("gauss_seidel", "avx2", 1, node(loops(marked("parallel"), "tt"))),
    "windows before their start": ("depthwise", "avx2", 1, node(loops(turned_around, "y"))),
    "the division before the sum": ("softmax", "avx2", 1, node(loops(turned_around, "i"))),
    # strides and accesses
    "stride 1 for stride 2": ("depthwise", "avx2", 1, node(instances(read(plus("X", 1, var("y") * -1)), "S1"))),
    "the window's taps exchanged": ("depthwise", "avx2", 1, node(instances(read(taps_exchanged), "S1"))),
    "the same element twice": ("pooled", "avx2", 1, node(instances(first_for_all))),
    "the next pair": ("pooled", "avx2", 1, node(instances(read(plus("X", 2, 1))))),
    "another batch's operand": ("batched", "avx2", 1, node(instances(read(of("B", 0, lambda x: affine(0))), "S1"))),
    "not transposed": ("transpose", "avx2", 1, node(instances(write(lambda a: Access("B", a.indices[::-1]))))),
    "blocks of another size": ("blocked", "avx2", 1, node(instances(write(lambda a: index(a, 0, lambda x: var("i") // 15))))),
    "no remainder in a block": ("blocked", "avx2", 1, node(instances(write(lambda a: index(a, 1, lambda x: var("i")))))),
    "another factor": ("blocked", "avx2", 1, node(instances(doubled))),
    "the state of the same step": ("recurrence", "avx2", 1, node(instances(read(plus("H", 0, 1))))),
    "neighbours in space exchanged": ("gauss_seidel", "avx2", 1, node(instances(swapped_reads))),
    "time and space exchanged": ("recurrence", "avx2", 1, node(instances(lambda n: replace(n, coords=n.coords[::-1])))),
    # buffers and copies
    "registers one row short": ("gemm", "avx2", 1, shrunk("C_registers", 0)),
    "registers one column short": ("batched", "avx2", 1, shrunk("C_registers", 2)),
    "a panel one column short": ("gemm_of_any_size", "avx512", 1, shrunk("B_cache", 1)),
    "a panel one tile short": ("gemm_of_any_size", "avx512", 1, shrunk("A_cache", 0)),
    "a panel of the next column": ("gemm_of_any_size", "avx512", 1, node(instances(read(plus("A", 1, 1)), "load_A"))),
    "a panel of the tile before": ("gemm_of_any_size", "avx512", 1, node(instances(read(plus("B", 1, -32)), "load_B"))),
    "a panel filled in one place": ("gemm_of_any_size", "avx512", 1, node(instances(write(lambda a: index(a, 2, lambda x: affine(0))), "load_A"))),
    "a panel filled after its use": ("gemm_of_any_size", "avx512", 1, node(loops(late_copy, "tj"))),
    "a panel that is not filled": ("gemm_of_any_size", "avx512", 1, node(instances(lambda n: (), "load_B"), 1)),
    "a store half a tile off": ("gemm_of_any_size", "avx512", 1, node(instances(write(plus("C", 1, var("tj") * -16)), "store_C"))),
    "registers of the wrong row": ("gemm", "avx2", 1, node(instances(read(plus("C", 0, 1)), "load_C"))),
    "registers loaded in the first chunk": ("batched", "avx2", 1, node(about("ck", lambda n: If(n.cond, n.orelse, n.body)))),
    "registers not loaded again": ("batched", "avx2", 1, node(about("ck", lambda n: If(n.cond, (), n.orelse)))),
    "a store that never runs": ("batched", "avx2", 1, node(instances(lambda n: (), "store_C"), 1)),
    "another row's start": ("batched", "avx2", 1, node(instances(write(plus("C_registers", 1, 1)), "S0"))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    kernel, isa, threads, fault = FAULTS[name]
    s, nest = made(kernel, isa, threads)
    with pytest.raises(InternalError, match=f"certificate of {kernel}: "):
        certify(s, fault(nest))


# ---- two ways to one answer
def variants(nest: LoopNest) -> Iterator[LoopNest]:
    """The nest with loops interchanged, bodies turned around, and loops marked, at a few places each."""
    changes = (loops(interchanged), loops(turned_around), loops(marked("parallel")), loops(marked("vector", 4096)))
    for change, places in zip(changes, ((0, 1, 4), (0, 2), (0, 2, 5), (0, 2, 5)), strict=True):
        for nth in places:
            try:
                yield damaged(nest, change, nth)
            except AssertionError:  # there are not so many
                break


@pytest.mark.parametrize("name", ["gemm", "softmax", "depthwise", "transpose", "recurrence", "gauss_seidel", "matvec", "pooled"])
def test_what_is_seen_at_once_is_what_isl_finds(name: str) -> None:
    """Where the order, or the iterations of a loop, are found right on affine expressions, no dependent pair of leaves says otherwise."""
    s, original = made(name)
    full = compute_dependences(s)
    seen = 0
    for nest in (original, *islice(variants(original), 3 if name == "gemm" else None)):
        leaves = compute_leaves(nest, s)
        marked_loops = {id(x): x for leaf in leaves for x in leaf.loops if x.mark in ("parallel", "vector")}
        in_order, apart = follows_schedule(s, leaves), all(certificates._are_apart(s, leaves, x) for x in marked_loops.values())
        if not in_order and not apart:
            continue
        pairs = certificates.dependent_pairs(full, leaves)
        if in_order:
            seen += 1
            # the order of two lives of one buffer is no matter: no value goes from one to the other
            kept = [p for p in pairs if not p[0].startswith("private") and not certificates._is_free(s, p[0])]
            assert all(certificates.find_unordered_pair(p, a, b) is None for _, p, a, b in kept)
        if apart:
            certificates._check_iterations(full, pairs)
    assert seen or name == "gauss_seidel"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("name", [k for k in KERNELS if k != "gauss_seidel"])  # whose tiles are slanted
def test_recipes_are_proven_without_dataflow(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of leaves, which are the slow way, are not needed for what the recipes make."""

    def refuse(*_: object) -> object:
        raise AssertionError("asked for the pairs of dependent leaves")

    s, nest = made(name, "avx2", threads)
    monkeypatch.setattr(certificates, "dependent_pairs", refuse)
    certificate = certify(s, nest)
    assert certificate.ok, str(certificate)
