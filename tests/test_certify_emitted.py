# ruff: noqa: F821  (intrinsics need no import in a scop)
"""Certificates of what the recipes make: all claims proven for kernels of every recipe; and faults put into their loop nests, each of which
must be refused with a witness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from polyopt.errors import InternalError
from polyopt.frontends.python_loops import ScopFunction, dims, scop
from polyopt.ir.affine import Affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Binary, Compare, Const, Expr, Load, rewrite
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, walk
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.poly.certify import certify
from polyopt.poly.deps import compute_dependences
from polyopt.target import cpu_target
from polyopt.verbs.recipe import apply_recipe

M, N, K = dims("M N K")


@scop
def gemm(A: f32[61, 50], B: f32[50, 77], C: f32[61, 77]):
    for i in range(61):
        for j in range(77):
            C[i, j] = 0.0
            for k in range(50):
                C[i, j] += A[i, k] * B[k, j]


@scop
def gemm_of_any_size(A: f32[M, K], B: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@scop
def conv(X: f32[16, 15, 15], W: f32[24, 16, 3, 3], bias: f32[24], Y: f32[24, 13, 13]):
    for f in range(24):
        for y in range(13):
            for x in range(13):
                Y[f, y, x] = bias[f]
                for c in range(16):
                    for r in range(3):
                        for s in range(3):
                            Y[f, y, x] += X[c, y + r, x + s] * W[f, c, r, s]
                Y[f, y, x] = max(Y[f, y, x], 0.0)


@scop
def softmax(X: f32[13, 100], Y: f32[13, 100]):
    for i in range(13):
        top = X[i, 0]
        for j in range(100):
            top = max(top, X[i, j])
        total = 0.0
        for j in range(100):
            Y[i, j] = exp(X[i, j] - top)
        for j in range(100):
            total += Y[i, j]
        for j in range(100):
            Y[i, j] = Y[i, j] / total


@scop
def layernorm(X: f32[M, 96], scale: f32[96], shift: f32[96], Y: f32[M, 96]):
    for i in range(M):
        mean = 0.0
        for j in range(96):
            mean += X[i, j]
        square = 0.0
        for j in range(96):
            square += (X[i, j] - mean / 96.0) * (X[i, j] - mean / 96.0)
        for j in range(96):
            Y[i, j] = (X[i, j] - mean / 96.0) / sqrt(square / 96.0 + 0.00001) * scale[j] + shift[j]


@scop
def jacobi(T: int, A: f32[N, N], B: f32[N, N]):
    for _t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = B[i, j]


@scop
def seidel(T: int, A: f32[N]):
    for _t in range(T):
        for i in range(1, N - 1):
            A[i] = max(A[i - 1] + A[i] + A[i + 1], 0.0) * 0.25


@scop
def triangular(A: f32[N, N], x: f32[N], b: f32[N]):
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= A[i, j] * x[j]
        x[i] = x[i] / A[i, i]


@scop
def syrk(A: f32[40, 33], C: f32[40, 40]):
    for i in range(40):
        for j in range(i + 1):
            for k in range(33):
                C[i, j] += A[i, k] * A[j, k]


@scop
def strided(A: f32[N], B: f32[N]):
    for i in range(1, N, 3):
        if i != 4:
            B[i] = A[i // 2] + A[N - 1 - i] * i


KERNELS: dict[str, ScopFunction] = {
    f.__name__: f for f in (gemm, gemm_of_any_size, conv, softmax, layernorm, jacobi, seidel, triangular, syrk, strided)
}


@cache
def made(name: str, isa: str = "avx2", threads: int = 1) -> tuple[Scop, LoopNest]:
    """A kernel after its recipe, with its caches small so that blocks and panels occur."""
    s = apply_recipe(KERNELS[name].scop, replace(cpu_target(isa, threads), l2=8192))
    return compute_dependences(s), lower_to_loops(s)


@pytest.mark.parametrize(("isa", "threads"), [("avx2", 1), ("avx512", 4)])
@pytest.mark.parametrize("name", KERNELS)
def test_recipes_are_proven(name: str, isa: str, threads: int) -> None:
    certificate = certify(*made(name, isa, threads))
    assert certificate.ok, str(certificate)


# ---- faults
Change = Callable[[LoopNode], "LoopNode | tuple[LoopNode, ...] | None"]


def damaged(nest: LoopNest, change: Change, nth: int = 0) -> LoopNest:
    """The nest with the nth node that `change` applies to replaced (parents first; None: it does not apply)."""
    left = [nth]

    def visit(nodes: tuple[LoopNode, ...]) -> tuple[LoopNode, ...]:
        out: list[LoopNode] = []
        for n in nodes:
            new = change(n) if left[0] >= 0 else None
            if new is not None:
                left[0] -= 1
                if left[0] < 0:
                    out.extend(new if isinstance(new, tuple) else (new,))
                    continue
            if isinstance(n, Loop):
                n = replace(n, body=visit(n.body))
            elif isinstance(n, If):
                n = If(n.cond, visit(n.body), visit(n.orelse))
            out.append(n)
        return tuple(out)

    new = replace(nest, body=visit(nest.body))
    assert left[0] < 0, "no such node"
    assert new != nest
    return new


def loops(change: Callable[[Loop], LoopNode | tuple[LoopNode, ...] | None], name: str = "", mark: str | None = None) -> Change:
    def visit(n: LoopNode) -> LoopNode | tuple[LoopNode, ...] | None:
        ok = isinstance(n, Loop) and name in ("", n.name) and mark in (None, n.mark)
        return change(n) if ok else None  # type: ignore[arg-type]

    return visit


def instances(change: Callable[[Instance], LoopNode | tuple[LoopNode, ...] | None], name: str = "") -> Change:
    return lambda n: change(n) if isinstance(n, Instance) and n.statement.startswith(name) else None


def guards(change: Callable[[If], LoopNode | tuple[LoopNode, ...] | None]) -> Change:
    return lambda n: change(n) if isinstance(n, If) else None


def bounds(lower: int = 0, upper: int = 0) -> Callable[[Loop], Loop]:
    return lambda n: replace(n, lower=tuple(x + lower for x in n.lower), upper=tuple(x + upper for x in n.upper))


def read(change: Callable[[Access], Access]) -> Callable[[Instance], Instance | None]:
    def visit(n: Instance) -> Instance | None:
        new = rewrite(n.expr, lambda e: Load(change(e.access), e.dtype) if isinstance(e, Load) else None)
        return None if new == n.expr else replace(n, expr=new)

    return visit


def index(a: Access, d: int, fn: Callable[[Affine], Affine]) -> Access:
    return Access(a.tensor, tuple(fn(x) if q == d and isinstance(x, Affine) else x for q, x in enumerate(a.indices)))


def of(tensor: str, d: int, fn: Callable[[Affine], Affine]) -> Callable[[Access], Access]:
    return lambda a: index(a, d, fn) if a.tensor.startswith(tensor) else a


def transposed(a: Access) -> Access:
    return Access(a.tensor, a.indices[::-1]) if len(a.indices) == 2 else a


def interchanged(n: Loop) -> Loop | None:
    """Two loops, one right inside the other, in the other order."""
    if len(n.body) != 1 or not isinstance(inner := n.body[0], Loop) or n.var in {v for x in (*inner.lower, *inner.upper) for v in x.names()}:
        return None
    return replace(inner, body=(replace(n, body=inner.body),))


def other_operator(n: Instance) -> Instance | None:
    def visit(e: Expr) -> Expr | None:
        return Binary("-", e.x, e.y) if isinstance(e, Binary) and e.op == "+" else None

    new = rewrite(n.expr, visit)
    return None if new == n.expr else replace(n, expr=new)


def other_constant(n: Instance) -> Instance | None:
    new = rewrite(n.expr, lambda e: Const(e.value + 1, e.dtype) if isinstance(e, Const) and e.dtype.is_float else None)
    return None if new == n.expr else replace(n, expr=new)


def swapped_reads(n: Instance) -> Instance | None:
    """The first and the last load of an expression in each other's place."""
    found = [e.access for e in _loads(n.expr)]
    swap = {found[0]: found[-1], found[-1]: found[0]} if len(found) > 1 else {}
    new = rewrite(n.expr, lambda e: Load(swap.get(e.access, e.access), e.dtype) if isinstance(e, Load) else None)
    return None if new == n.expr else replace(n, expr=new)


def _loads(e: Expr) -> list[Load]:
    return [e] if isinstance(e, Load) else [x for c in e.children() for x in _loads(c)]


def declared_inside(n: Loop) -> Loop | None:
    """The declaration of a buffer moved into the loop that fills it step by step."""
    if not any(isinstance(x, Declare) for x in n.body):
        return None
    moved = tuple(x for x in n.body if isinstance(x, Declare))
    rest = [x for x in n.body if not isinstance(x, Declare)]
    at = next(k for k, x in enumerate(rest) if isinstance(x, Loop) and x.mark == "" and any(isinstance(y, Loop) for y in x.body))
    inner = rest[at]
    assert isinstance(inner, Loop)
    rest[at] = replace(inner, body=(*moved, *inner.body))
    return replace(n, body=tuple(rest))


def weaker(n: If) -> If | None:
    """A comparison that holds once more often."""
    if not isinstance(n.cond, Compare) or n.cond.op not in (">=", "<=", "<", ">", "=="):
        return None
    return replace(n, cond=replace(n.cond, op={">=": ">", "<=": "<", "<": "<=", ">": ">=", "==": "!="}[n.cond.op]))


FAULTS: dict[str, tuple[str, Change, int]] = {
    "outermost loop too long": ("gemm", loops(bounds(upper=1)), 0),
    "outermost loop too short": ("gemm", loops(bounds(upper=-1)), 0),
    "reduction starts late": ("gemm", loops(bounds(lower=1), "k"), 0),
    "reduction ends early": ("gemm", loops(bounds(upper=-1), "k"), 0),
    "reduction starts early": ("gemm", loops(bounds(lower=-1), "k"), 0),
    "unrolled loop too short": ("gemm", loops(bounds(upper=-1), mark="unroll"), 2),
    "vector too short": ("gemm", loops(bounds(upper=-1), mark="vector"), 1),
    "every second iteration": ("conv", loops(lambda n: replace(n, step=2)), 3),
    "update lost": ("gemm", instances(lambda n: (), "S1"), 0),
    "update twice": ("gemm", instances(lambda n: (n, n), "S1"), 0),
    "initialisation lost": ("gemm", instances(lambda n: (), "S0"), 0),
    "store lost": ("gemm", instances(lambda n: (), "store_C"), 0),
    "store to the next column": ("gemm", instances(lambda n: replace(n, write=index(n.write, 1, lambda x: x + 1)), "store_C"), 0),
    "register of the next row": ("gemm", instances(lambda n: replace(n, write=index(n.write, 0, lambda x: x + 1)), "S1"), 0),
    "store not of what was computed": ("gemm", instances(read(lambda a: index(a, 1, lambda x: x + 1)), "store_C"), 0),
    "operand transposed": ("syrk", instances(read(lambda a: transposed(a) if a.tensor.startswith("A") else a)), 0),
    "wrong stride": ("gemm", instances(read(of("B", 1, lambda x: x * 2)), "S1"), 0),
    "the wrong operand": ("gemm", instances(read(lambda a: Access("B", a.indices) if a.tensor == "A" else a), "S1"), 0),
    "assignment in place of an update": ("gemm", instances(lambda n: replace(n, reduction=None), "S1"), 0),
    "maximum in place of a sum": ("gemm", instances(lambda n: replace(n, reduction="max"), "S1"), 0),
    "wrong coordinates": ("gemm", instances(lambda n: replace(n, coords=(n.coords[0] + 1, *n.coords[1:])), "S1"), 0),
    "registers declared in the reduction": ("gemm", loops(declared_inside), 0),
    "full tile where the tile is partial": ("gemm_of_any_size", guards(lambda n: n.body), 0),
    "versions exchanged": ("gemm_of_any_size", guards(lambda n: If(n.cond, n.orelse, n.body) if n.orelse else None), 0),
    "guard turned": ("strided", guards(lambda n: replace(n, cond=Compare("==", n.cond.x, n.cond.y)) if isinstance(n.cond, Compare) else None), 0),
    "window off by one": ("conv", instances(read(of("X", 1, lambda x: x + 1)), "S1"), 0),
    "activation before the sum": ("conv", loops(lambda n: replace(n, body=n.body[::-1]) if len(n.body) > 2 else None), 0),
    "bias of the next channel": ("conv", instances(read(of("bias", 0, lambda x: x + 1)), "S0"), 0),
    "maximum after its use": ("softmax", loops(lambda n: replace(n, body=n.body[::-1]) if len(n.body) > 2 else None), 0),
    "another constant": ("layernorm", instances(other_constant), 0),
    "difference in place of a sum": ("layernorm", instances(other_operator), 0),
    "column before its mean": ("layernorm", loops(lambda n: replace(n, body=(*n.body[1:], n.body[0])) if len(n.body) > 2 else None), 0),
    "time inside space": ("seidel", loops(interchanged), 0),
    "space in parallel": ("seidel", loops(lambda n: replace(n, mark="parallel"), "i"), 0),
    "time in parallel": ("jacobi", loops(lambda n: replace(n, mark="parallel")), 0),
    "space as a vector": ("seidel", loops(lambda n: replace(n, mark="vector", lanes=4), "i"), 0),
    "halo not written": ("jacobi", loops(bounds(lower=1), "w"), 0),
    "neighbours exchanged": ("seidel", instances(swapped_reads), 0),
    "copy before the step": ("jacobi", loops(lambda n: replace(n, body=n.body[::-1]) if len(n.body) > 1 else None), 0),
    "beyond the diagonal": ("triangular", loops(bounds(upper=1), "j"), 0),
    "short of the diagonal": ("syrk", loops(bounds(upper=-1), "j"), 0),
    "division before the sum": ("triangular", loops(lambda n: replace(n, body=(n.body[0], n.body[2], n.body[1])) if len(n.body) == 3 else None), 0),
    "a step too many": ("strided", loops(bounds(upper=1)), 0),
    "value of another iteration": ("strided", instances(read(of("A", 0, lambda x: x.substitute({n: var(n) + 1 for n in x.names() if n != "N"})))), 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str) -> None:
    kernel, change, nth = FAULTS[name]
    s, nest = made(kernel)
    with pytest.raises(InternalError, match=f"certificate of {kernel}: "):
        certify(s, damaged(nest, change, nth))


@pytest.mark.parametrize("name", ["gemm", "conv", "layernorm", "triangular"])
def test_every_instance_and_every_loop_matters(name: str) -> None:
    """Each place in turn: an instance dropped, a loop cut short."""
    s, nest = made(name)
    nodes = [n for n in walk(nest.body)]
    for change, kind in ((instances(lambda n: ()), Instance), (loops(bounds(upper=-1)), Loop)):
        count = sum(isinstance(n, kind) for n in nodes)
        for nth in {0, 1, count // 2, count - 1} & set(range(count)):
            with pytest.raises(InternalError):
                certify(s, damaged(nest, change, nth))


def test_a_move_that_is_one_for_the_whole_life_is_allowed() -> None:
    """All accesses to a register tile moved by the same amount: another place in a buffer of its own."""
    s, nest = made("gemm")
    buffer = next(t for t in nest.tensors if t.scope == "registers")
    bigger = tuple(replace(t, shape=(t.shape[0] + 1, *t.shape[1:])) if t.name == buffer.name else t for t in nest.tensors)

    def turn(a: Access) -> Access:
        return index(a, 0, lambda x: x + 1) if a.tensor == buffer.name else a

    def moved(nodes: tuple[LoopNode, ...]) -> tuple[LoopNode, ...]:
        out: list[LoopNode] = []
        for n in nodes:
            if isinstance(n, Loop):
                n = replace(n, body=moved(n.body))
            elif isinstance(n, If):
                n = If(n.cond, moved(n.body), moved(n.orelse))
            elif isinstance(n, Instance):
                expr = rewrite(n.expr, lambda e: Load(turn(e.access), e.dtype) if isinstance(e, Load) else None)
                n = replace(n, write=turn(n.write), expr=expr)
            out.append(n)
        return tuple(out)

    assert certify(s, replace(nest, tensors=bigger, body=moved(nest.body))).ok
