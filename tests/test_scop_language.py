# ruff: noqa: E501, F401  (a snippet a line; snippets see the imports)
"""What @scop understands, one snippet a case: the original body and the Scop run instance by instance give the same bits."""

import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interpret import run_scop

from polyopt.errors import ArgumentError
from polyopt.frontends.python_loops import ScopFunction, dims, local, scop, scop_from_source, zeros
from polyopt.ir.dtype import f32, f64, i32
from polyopt.ir.expr import Binary, Cast, Compare, Const, IndexValue, Load, Select, loads, walk
from polyopt.ir.scop import Statement
from polyopt.isl_ext import SET

N, M = dims("N M")
LIMIT = 3
WEIGHT = 0.25
FLAG = True
STRONG = np.float64(0.1)
SIZES = {"N": 6, "M": 4}
ARGUMENTS = {
    "A": "f64[N]", "B": "f64[M, N]", "C": "f64[N, N]", "X": "f32[N]", "Y": "f32[M, N]", "H": "f16[N]", "Q": "bf16[N]", "I": "i32[N]",
    "U": "u8[N]", "L": "i64[N]", "F": "bool_[N]", "Z": "f64[()]", "alpha": "f32", "beta": "f64", "n": "i32",
}  # fmt: skip
SCALARS = {"alpha": 0.1, "beta": 0.7, "n": 2}


def snippet(body: str, **names: Any) -> ScopFunction:
    """A function of that body, whose arguments are those of ARGUMENTS that it mentions."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in body).split())
    header = ", ".join(f"{k}: {v}" for k, v in ARGUMENTS.items() if k in words)
    lines = "\n".join("    " + line for line in body.splitlines())
    return scop_from_source(f"def f({header}):\n{lines}\n", {**globals(), **names}, "snippet.py")


def arrays_of(fn: ScopFunction, sizes: dict[str, int], seed: int = 1) -> dict[str, Any]:
    """Random arguments by name."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for name, kind in fn.signature:
        if name in SCALARS:
            out[name] = SCALARS[name]
            continue
        assert kind is not None
        shape = tuple(x if isinstance(x, int) else x.evaluate(sizes) for x in kind.shape)  # type: ignore[union-attr]
        t = kind.dtype  # type: ignore[union-attr]
        if t.is_float:
            made = np.dtype(ml_dtypes.bfloat16) if t.name == "bf16" else np.dtype(t.numpy)
            out[name] = rng.standard_normal(shape).astype(made)
        else:
            out[name] = rng.integers(0, 2 if t.kind == "b" else 4, shape).astype(t.numpy)
    return out


def check(fn: ScopFunction, sizes: dict[str, int] = SIZES, seed: int = 1) -> dict[str, Any]:
    """Run both ways and compare bits; gives the resulting arrays."""
    first, second = arrays_of(fn, sizes, seed), arrays_of(fn, sizes, seed)
    fn.reference(*first.values(), **{p: sizes[p] for p in fn.scop.params if p in sizes})
    arrays = {k: v for k, v in second.items() if k not in SCALARS}
    run_scop(fn.scop, arrays, SCALARS, {p: sizes[p] for p in fn.scop.params})
    for name, a in first.items():
        if name in arrays:
            assert np.asarray(a).tobytes() == np.asarray(arrays[name]).tobytes(), f"{name}: {a} != {arrays[name]}"
    return first


LOOPS = {
    "strided": "for i in range(1, N, 2):\n    A[i] = i",
    "descending": "for i in range(N - 1, 0, -1):\n    A[i] = A[i - 1]",
    "descending by two": "for i in range(N - 1, -1, -2):\n    A[i] += A[N - 1 - i] * 2.0",
    "reversed": "for i in reversed(range(1, N)):\n    A[i] += A[i - 1]",
    "triangular": "for i in range(N):\n    for j in range(i, N):\n        C[i, j] = C[j, i] + j",
    "min and max bounds": "for i in range(max(0, N - 4, 1), min(N, 2*M, 5)):\n    A[i] += 1.0",
    "min in a lower bound": "for i in range(min(2, N), N):\n    A[i] += 1.0",
    "strided from a max": "for i in range(max(1, N - 5), N, 3):\n    A[i] += 1.0",
    "descending with min": "for i in range(min(N, 5) - 1, max(-1, N - 6), -1):\n    A[i] = A[i] * 2 + i",
    "floor in bounds": "for i in range(N // 2, (N + 3) // 2):\n    if i < N:\n        A[i] = 1.0",
    "tiles": "for i in range(0, N, 4):\n    for j in range(i, min(i + 4, N)):\n        A[j] += j",
    "constants from outside": "for i in range(min(LIMIT, N)):\n    A[i] *= WEIGHT",
    "bound by shape": "for i in range(A.shape[0]):\n    for j in range(C.shape[-1]):\n        A[i] += C[i, j]",
    "bound by len": "for i in range(len(A)):\n    A[i] = 0.0",
    "named bound": "last = N - 1\nhalf = N // 2\nfor i in range(half, last):\n    k = i + 1\n    A[k] = A[half] + k",
    "empty ranges": "for i in range(3, 1):\n    A[0] = 1.0\nfor i in range(N):\n    A[i] = 2.0",
    "two nests": "for i in range(N):\n    A[i] = 0.0\nfor i in range(N):\n    for j in range(M):\n        A[i] += B[j, i]",
    "tuple assignment": "for i in range(N):\n    A[i], X[i] = 1.0, i",
    "chained assignment": "for i in range(N):\n    A[i] = X[i] = 1.5",
    "chained subscripts": "for i in range(M):\n    for j in range(N):\n        B[i][j] = C[j][j] + B[i][j]",
    "docstring and pass": "'about'\nfor i in range(N):\n    pass\n    A[i] = 0.0",
    "facts": "assert N >= 2 and M <= N\nA[1] = 2.0",
    "shape in a fact": "assert A.shape[0] >= 1\nA[0] = 2.0",
}
CONDITIONS = {
    "affine if": "for i in range(N):\n    if i > 0 and i < N - 1:\n        A[i] = A[i - 1] + A[i + 1]",
    "elif and else": "for i in range(N):\n    if i == 0:\n        A[i] = 0.0\n    elif i % 2 == 1:\n        A[i] = 1.0\n    else:\n        A[i] -= 1.0",
    "or, not, chains": "for i in range(N):\n    if not (i < 1 or i >= N - 1) or 3 <= i + 1 <= 4 != N:\n        A[i] = i",
    "floor and mod": "for i in range(N):\n    if (i // 2) % 2 == 0:\n        A[i // 2] += A[i % 3] if i % 3 < N else 0.0",
    "min in a condition": "for i in range(N):\n    if min(i, 3) == abs(i - 4) + 1:\n        A[i] = 7.0",
    "constant flag": "for i in range(N):\n    if FLAG:\n        A[i] = 1.0\n    else:\n        A[i] = 2.0",
    "truth of an index": "for i in range(N):\n    if i % 2:\n        A[i] = 1.0",
    "condition on dims": "if N > 4 and M:\n    for i in range(N):\n        A[i] = 1.0",
    "data if": "for i in range(N):\n    if A[i] > 0:\n        X[i] = A[i]",
    "data if and else": "for i in range(N):\n    if A[i] > X[i]:\n        A[i] = X[i]\n        X[i] = 2.0\n    else:\n        X[i] += A[i]\n        A[i] = 0.5",
    "data if writes its condition": "for i in range(N):\n    if A[i] > 0:\n        A[i] = -A[i]\n        X[i] = A[i]",
    "merged branches": "for i in range(N):\n    if A[i] > 0.5:\n        X[i] = 1.0\n    elif A[i] > 0:\n        X[i] = 2.0\n    else:\n        X[i] = 3.0",
    "guarded update": "for i in range(N):\n    for j in range(N):\n        if C[i, j] > 0:\n            A[i] += C[i, j]",
    "guarded min": "for i in range(N):\n    for j in range(N):\n        if C[i, j] > 0:\n            A[i] = min(A[i], C[i, j])",
    "guarded integer max": "for i in range(N):\n    for j in range(N):\n        if C[i, j] > 0:\n            I[i] = max(I[i], j)",
    "mixed conjunction": "for i in range(N):\n    if i > 0 and A[i - 1] > 0:\n        X[i] = A[i - 1]",
    "nested data ifs": "for i in range(N):\n    if A[i] > 0:\n        if X[i] > 0:\n            X[i] = 1.0\n        for j in range(M):\n            if B[j, i] > 0:\n                B[j, i] = A[i]",
    "bool tensor": "for i in range(N):\n    F[i] = A[i] > 0 and not F[i] or X[i] < 0\n    if F[i]:\n        X[i] = 1.0",
    "padding": "for i in range(N):\n    A[i] = (X[i - 1] if i > 0 else 0.0) + (X[i + 1] if i + 1 < N else 0.0)",
    "padding by or": "for i in range(N):\n    A[i] = 0.0 if i == 0 or X[i - 1] > 0 else X[i - 1]",
    "clamped subscript": "for i in range(N):\n    A[i] = X[max(i - 1, 0)] + X[min(i + 1, N - 1)] + X[abs(i - 1) % 2 if N > 1 else 0]",
    "clamp of three": "for i in range(N):\n    A[i] = X[min(i, N - 1, 3)]",
}
VALUES = {
    "integer arithmetic": "for i in range(N):\n    I[i] = (I[i] * 3 - 7) // 2 % 5",
    "negative floor": "for i in range(N):\n    I[i] = (I[i] - 9) // 4 + (I[i] - 9) % 4",
    "bits": "for i in range(N):\n    I[i] = (I[i] << 2 | 1) & ~I[i] ^ (I[i] >> 1)",
    "unsigned": "for i in range(N):\n    U[i] -= 3\n    U[i] = U[i] * 7 + 1",
    "mixed integers": "for i in range(N):\n    L[i] = I[i] + L[i] * U[i]",
    "index values": "for i in range(N):\n    for j in range(M):\n        B[j, i] = (i * j % 7) / N + i // 2 - float(j)",
    "index in integers": "for i in range(N):\n    I[i] = i * I[i] + N",
    "mixed floats": "for i in range(N):\n    X[i] = X[i] * A[i] + 0.1",
    "literal dtype": "for i in range(N):\n    X[i] = X[i] * 0.1 + 1 / 3",
    "strong constant": "for i in range(N):\n    X[i] = X[i] * STRONG",
    "scalars": "for i in range(N):\n    X[i] = alpha * X[i] + alpha / 3\n    A[i] = beta * X[i] + n",
    "half": "for i in range(N):\n    H[i] = H[i] * 0.3 + H[i] / 3.0",
    "half and single": "for i in range(N):\n    H[i] = H[i] * X[i]",
    "bfloat": "for i in range(N):\n    Q[i] = Q[i] * Q[i]\n    X[i] = f32(Q[i]) * X[i]",
    "casts": "for i in range(N):\n    I[i] = int(A[i] * 3)\n    X[i] = f32(A[i]) * f32(0.1)\n    L[i] = i64(X[i] * 10.0)\n    F[i] = bool(I[i])",
    "numpy casts": "for i in range(N):\n    A[i] = np.float64(X[i]) * 0.1\n    I[i] = np.int32(A[i])",
    "float of a tensor": "for i in range(N):\n    X[i] = float(X[i]) * 0.1 * float(I[i])",
    "int to float": "for i in range(N):\n    A[i] = I[i] * 0.5 + I[i]",
    "intrinsics": "for i in range(N):\n    X[i] = exp(X[i]) + sqrt(abs(X[i])) + tanh(X[i]) - erf(X[i]) + sigmoid(X[i]) * rsqrt(2.0)",
    "more intrinsics": "for i in range(N):\n    A[i] = sin(A[i]) + cos(A[i]) + atan2(A[i], 2.0) + fmod(A[i], 0.3) + log(abs(A[i]) + 1)",
    "rounding": "for i in range(N):\n    X[i] = floor(X[i]) + ceil(X[i] * 3) + round(X[i] * 5) + trunc(X[i] * 7) + sign(X[i])",
    "prefixed": "for i in range(N):\n    A[i] = math.exp(A[i]) + np.sqrt(np.abs(A[i])) + np.maximum(A[i], 0.0) + np.arctan(A[i]) + math.pi",
    "nan tests": "for i in range(N):\n    A[i] = log(A[i])\n    A[i] = 0.0 if isnan(A[i]) or isinf(A[i]) else A[i]",
    "min of three": "for i in range(N):\n    X[i] = min(X[i], 0.25, alpha)",
    "powers": "for i in range(N):\n    A[i] = abs(A[i]) ** 2 + A[i] ** 2 + abs(A[i]) ** 0.5 + pow(A[i], 3)\n    I[i] = I[i] ** 2 + I[i] ** 3",
    "integer intrinsics": "for i in range(N):\n    I[i] = abs(I[i] - 2) + sign(I[i] - 1)\n    A[i] = exp(I[i])",
    "comparison chain": "for i in range(N):\n    A[i] = 1.0 if -0.5 < A[i] <= X[i] else 2.0",
    "compare literal": "for i in range(N):\n    F[i] = X[i] < 0.1\n    F[i] = F[i] != (X[i] == alpha)",
    "indirect": "for i in range(N):\n    A[i] = X[I[i]] + C[i, I[i] + 1 if I[i] < 3 else 0]",
    "indirect by a local": "for i in range(N):\n    k = I[i]\n    A[i] = X[k]",
    "indirect by a scalar": "for i in range(N):\n    A[i] = X[n] if N > 2 else 0.0",
    "zero-dim tensor": "Z[()] = 0.0\nfor i in range(N):\n    Z[()] += A[i]",
    "divide in place": "for i in range(N):\n    A[i] /= i + 1\n    A[i] -= A[i] / 3",
    "update forms": "for i in range(N):\n    A[i] = 2.0 + A[i]\n    A[i] = A[i] * X[i]\n    A[i] = max(X[i], A[i])\n    A[i] = A[i] - X[i]",
    "swapped through a local": "for i in range(N // 2):\n    t = A[i]\n    A[i] = A[N - 1 - i]\n    A[N - 1 - i] = t",
    "casts in an update": "for i in range(N):\n    X[i] += A[i]\n    A[i] += X[i]",
}
LOCALS = {
    "accumulator": "for i in range(N):\n    acc = 0.0\n    for j in range(N):\n        acc += X[j] * alpha\n    A[i] = acc",
    "two types of one name": "for i in range(N):\n    t = X[i]\n    X[i] = t * 0.1\nfor i in range(N):\n    t = A[i]\n    A[i] = t * 0.1",
    "carried": "prev = 0.0\nfor i in range(N):\n    cur = A[i]\n    A[i] = cur - prev\n    prev = cur",
    "in branches": "for i in range(N):\n    if i < 2:\n        t = A[i]\n    else:\n        t = 2.0\n    X[i] = t",
    "in data branches": "for i in range(N):\n    t = 0.0\n    if A[i] > 0:\n        t = A[i] * 2.0\n        u = t + 1.0\n        X[i] = u\n    A[i] = t",
    "typed": "for i in range(N):\n    acc: f64 = 0.0\n    for j in range(N):\n        acc += X[j]\n    A[i] = acc",
    "integer": "count = 0\nfor i in range(N):\n    if A[i] > 0:\n        count += 1\n    I[i] = count",
    "bool": "for i in range(N):\n    big = A[i] > 0\n    big = big and X[i] > 0\n    F[i] = big",
    "argmax": "best = -1.0e30\nwhere = 0\nfor i in range(N):\n    if A[i] > best:\n        best = A[i]\n        where = i\nif N >= 1:\n    I[0] = where\n    A[0] = best",
    "named expressions": "c1 = 2.0 * beta\nc2 = c1 / 3.0\nfor i in range(N):\n    A[i] = c2 * A[i] + c1",
    "array": "t = local(f64[M, N])\nfor i in range(M):\n    for j in range(N):\n        t[i, j] = B[i, j] * 2.0\nfor i in range(M):\n    for j in range(N):\n        B[i, j] = t[i, N - 1 - j]",
    "zeros": "t = zeros(f32[N])\nfor i in range(1, N):\n    t[i] += X[i]\nfor i in range(N):\n    X[i] = t[i]",
    "padded array": "t = zeros(f32[N + 2])\nfor i in range(N):\n    t[i + 1] = X[i]\nfor i in range(N):\n    X[i] = t[i] + t[i + 1] + t[i + 2]",
}
ALL = {**LOOPS, **CONDITIONS, **VALUES, **LOCALS}


@pytest.mark.parametrize("name", ALL)
def test_snippet(name: str) -> None:
    fn = snippet(ALL[name])
    check(fn)
    if "I[i]" not in ALL[name] and "n" not in dict(fn.signature):
        check(fn, {"N": 7, "M": 2} if "M <=" in ALL[name] else {"N": 5, "M": 7}, seed=2)


def test_intrinsics_need_no_import() -> None:
    body = "A[i] = math.exp(A[i]) + np.sqrt(np.absolute(A[i])) + numpy.maximum(A[i], 0.0) + np.arctan(A[i]) + erf(A[i])"
    check(scop_from_source(f"def f(A: f64[N]):\n    for i in range(N):\n        {body}\n", {"N": N}))


def one(body: str) -> Statement:
    """The only statement of a body."""
    (s,) = snippet(body).scop.statements
    return s


def test_updates() -> None:
    assert one("for i in range(N):\n    for j in range(N):\n        A[i] += C[i, j]").reduction == "+"
    assert one("for i in range(N):\n    for j in range(N):\n        A[i] = C[i, j] * A[i]").reduction == "*"
    assert one("for i in range(N):\n    for j in range(N):\n        A[i] = min(C[i, j], A[i])").reduction == "min"
    minus = one("for i in range(N):\n    for j in range(N):\n        A[i] -= C[i, j]")
    assert minus.reduction == "+"
    assert "op='-'" in repr(minus.expr)
    assert one("for i in range(N):\n    A[i] = C[i, i] - A[i]").reduction is None
    assert one("for i in range(1, N):\n    A[i] += A[i - 1]").reduction == "+"  # another cell: a dependence like any other
    assert one("for i in range(N):\n    A[i] += A[N - 1 - i]").reduction is None  # for odd N, one update reads its own cell
    assert one("for i in range(N // 2):\n    A[2*i] += 2.0 * A[2*i + 1]").reduction == "+"  # other cells of the same tensor
    assert one("for i in range(N):\n    X[i] += A[i]").reduction is None  # the sum is rounded from f64
    guarded = one("for i in range(N):\n    for j in range(N):\n        if C[i, j] > 0:\n            A[i] += C[i, j]")
    assert guarded.reduction == "+"
    assert isinstance(guarded.expr, Select)
    assert guarded.expr.no == Const(-0.0, f64)
    assert one("for i in range(N):\n    if A[i] > 0:\n        A[i] += 1.0").reduction is None  # the guard reads the cell


def test_types() -> None:
    s = one("for i in range(N):\n    X[i] = X[i] * 0.1 + i")
    assert s.expr.dtype is f32
    assert [c for c in walk(s.expr) if isinstance(c, Const)] == [Const(0.1, f32)]
    assert any(isinstance(c, Cast) and isinstance(c.x, IndexValue) for c in walk(s.expr))
    s = one("for i in range(N):\n    A[i] = I[i] + 1")
    assert isinstance(s.expr, Cast)
    assert s.expr.x.dtype is i32
    s = one("for i in range(N):\n    A[i] = 1.0 if i < 3 else 0.0")
    assert isinstance(s.expr, Select)
    assert isinstance(s.expr.cond, Compare)


def test_schedule_tree() -> None:
    fn = snippet("for i in range(N - 1, -1, -1):\n    A[i] = 0.0\n    for j in range(N):\n        A[i] += C[i, j]")
    root = fn.scop.schedule.get_root()
    outer = root.child(0)
    band = outer.band_get_partial_schedule()
    assert band.get_dim_id(SET, 0).get_name() == "i"
    assert "-i" in str(band)
    assert outer.band_n_member() == 1
    sequence = outer.child(0)
    assert sequence.n_children() == 2
    inner = sequence.child(1).child(0)
    assert inner.band_get_partial_schedule().get_dim_id(SET, 0).get_name() == "j"


def test_perfect_nest_has_no_sequence() -> None:
    fn = snippet("for i in range(N):\n    for j in range(M):\n        B[j, i] = 0.0")
    text = str(fn.scop.schedule)
    assert "sequence" not in text
    assert fn.scop.statements[0].iters == ("i", "j")
    assert str(fn.scop.statements[0].domain) == "[M, N] -> { S0[i, j] : 0 <= i < N and 0 <= j < M }"


def test_aliases_make_no_statement() -> None:
    fn = snippet(LOCALS["named expressions"])
    assert len(fn.scop.statements) == 1
    assert [t.name for t in fn.scop.tensors] == ["A"]


def test_webs_split_a_name() -> None:
    fn = snippet(LOCALS["two types of one name"])
    assert [(t.name, t.dtype) for t in fn.scop.tensors if t.role == "local"] == [("t", f32), ("t_1", f64)]


def test_indirect_access() -> None:
    s = one("for i in range(N):\n    A[i] = X[I[i]]")
    (load,) = [x for x in s.loads() if x.access.tensor == "X"]
    assert not load.access.is_affine
    (index,) = load.access.indices
    assert isinstance(index, Binary) and index.op == "max"  # moved into the dim
    assert {x.access.tensor for x in loads(index)} == {"I"}


def test_decorator_with_closure_and_size_argument() -> None:
    P = dims("P")
    gain = 3.0

    @scop
    def smooth(T: int, A: f64[P]):
        """Smooths."""
        t = local(f64[P])
        for _s in range(T):
            for i in range(P):
                t[i] = A[i] * gain
            for i in range(1, P):
                A[i] = t[i] + t[i - 1]

    a = np.arange(4.0)
    smooth.reference(1, a)
    assert a.tolist() == [0.0, 3.0, 9.0, 15.0]
    assert smooth.scop.params == ("T", "P")
    assert smooth.scop.meta["arguments"] == ("T", "A")
    assert smooth.__doc__ == "Smooths."
    b = np.arange(4.0)
    run_scop(smooth.scop, {"A": b}, {}, {"T": 1, "P": 4})
    assert np.array_equal(a, b)


def test_free_dim_is_a_keyword() -> None:
    fn = snippet("for t in range(M):\n    for i in range(N):\n        A[i] += t")
    a = np.zeros(3)
    fn.reference(a, M=3)
    assert a.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(ArgumentError, match="the dim M is in no array's shape: give it as a keyword"):
        fn.reference(a)


def test_derived_dims() -> None:
    @scop
    def pad(A: f64[N], P: f64[N + 2], Q: f64[2 * N]):
        for i in range(N):
            P[i + 1] = A[i]
            Q[2 * i] = A[i]

    a = np.arange(3.0)
    p, q = np.zeros(5), np.zeros(6)
    pad(a, p, q)
    assert p.tolist() == [0.0, 0.0, 1.0, 2.0, 0.0]
    assert q.tolist() == [0.0, 0.0, 1.0, 0.0, 2.0, 0.0]
    with pytest.raises(ArgumentError, match=r"dim 0 of P is 4, but N \+ 2 is 5 with N=3"):
        pad(a, np.zeros(4), q)


def test_reference_checks_arguments() -> None:
    fn = snippet("assert N >= 2\nA[1] = 0.0")
    with pytest.raises(ArgumentError, match="argument A has dtype float32, f64 is declared"):
        fn.reference(np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match="argument A must be a NumPy array, not list"):
        fn.reference([0.0])
    with pytest.raises(ArgumentError, match=r"f takes 1 arguments \(A\), not 2"):
        fn.reference(np.zeros(3), 1)
    with pytest.raises(ArgumentError, match="argument A has 2 dims, 1 are declared"):
        fn.reference(np.zeros((3, 3)))
    with pytest.raises(ArgumentError, match="the sizes N=1 contradict the facts that the function asserts"):
        fn.reference(np.zeros(1))


def test_nan_propagates_through_min() -> None:
    fn = snippet("for i in range(N):\n    A[i] = min(1.0, A[i])\n    A[i] = max(A[i], 0.0)")
    a = np.array([np.nan, 2.0, -1.0])
    b = a.copy()
    fn.reference(a)
    run_scop(fn.scop, {"A": b}, {}, {"N": 3})
    assert np.isnan(a[0])
    assert np.array_equal(a, b, equal_nan=True)


def test_local_and_zeros_outside_a_scop() -> None:
    for fn in (local, zeros):
        with pytest.raises(TypeError, match="only inside a function decorated with @scop"):
            fn(f32[2])


def test_specialize_binds_dims_and_size_arguments() -> None:
    m, n = dims("M N")

    @scop
    def blur(steps: int, a: f64[m, n], b: f64[n, m]):
        for _t in range(steps):
            for i in range(m):
                for j in range(n):
                    b[j, i] = 0.5 * a[i, j] + m
            for i in range(m):
                for j in range(n):
                    a[i, j] = b[j, i]

    bound = blur.specialize(M=3, steps=2)
    assert bound.scop.params == ("N",) and [name for name, _ in bound.signature] == ["a", "b"]
    assert blur.specialize(M=3, N=4, steps=2).scop.params == () and blur.scop.params  # the original stays symbolic
    a = np.arange(12.0).reshape(3, 4)
    b, want_a, want_b = np.zeros((4, 3)), a.copy(), np.zeros((4, 3))
    blur.reference(2, want_a, want_b)
    bound.reference(a, b)
    np.testing.assert_array_equal(a, want_a)
    np.testing.assert_array_equal(b, want_b)
    with pytest.raises(ArgumentError, match=r"blur has no dim K; its dims are M, N, steps"):
        blur.specialize(K=3)
    with pytest.raises(ArgumentError, match="the size of M is -1"):
        blur.specialize(M=-1)


def test_specialize_binds_dims_in_attributes_aliases_and_locals() -> None:
    net = SimpleNamespace(width=dims("W"))
    padded = net.width + 2
    row = f64[padded]

    @scop
    def smooth(a: row, b: f64[net.width]):
        assert net.width >= 1
        t = local(f64[padded])
        for i in range(padded):
            t[i] = a[i] * net.width
        for i in range(net.width):
            b[i] = t[i] + t[i + 2] + padded

    bound = smooth.specialize(W=5)
    assert bound.scop.params == () and [tuple(map(str, t.shape)) for t in bound.scop.tensors] == [("7",), ("5",), ("7",)]
    a, got, want = np.arange(7.0), np.zeros(5), np.zeros(5)
    smooth.reference(a, want)
    bound.reference(a, got)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(run_scop(bound.scop, {"a": a, "b": np.zeros(5)})["b"], want)
    assert smooth.specialize(W=5).specialize().scop.params == ()
    with pytest.raises(ArgumentError, match="the sizes W=0 contradict the facts"):
        smooth.specialize(W=0)
    with pytest.raises(ArgumentError, match="has no dim W; its dims are none"):
        bound.specialize(W=5)
