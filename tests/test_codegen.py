"""Emitted C against an interpreter of the LoopNest, on every ISA of this machine."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from codegen_common import HERE, run
from codegen_reference import NUMPY, interpret

from polyopt.ir import expr as ex
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import BY_NAME, DType, bool_, f16, f32, f64, i8, i32, i64, u8
from polyopt.ir.expr import Access, Binary, Call, Cast, Compare, Const, IndexValue, Load, Scalar, Select, Unary
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch
from polyopt.ir.tensor import ScalarArg, Tensor

pytestmark = pytest.mark.cc
I, J, K, R, S, T = (var(n) for n in "ijkrst")
UNDER_TEST = HERE
rng = np.random.default_rng(0)


def loop(v: str, lo: object, hi: object, *body: LoopNode, mark: str = "", lanes: int = 0, step: int = 1) -> Loop:
    lows = tuple(map(affine, lo)) if isinstance(lo, list) else (affine(lo),)  # type: ignore[arg-type]
    highs = tuple(map(affine, hi)) if isinstance(hi, list) else (affine(hi),)  # type: ignore[arg-type]
    return Loop(v, lows, highs, body, mark=mark, lanes=lanes, step=step, name=f"loop {v}")


def tensor(name: str, dtype: DType, *shape: object, role: str = "input", scope: str = "heap") -> Tensor:
    return Tensor(name, dtype, tuple(map(affine, shape)), role, scope)  # type: ignore[arg-type]


def at(name: str, *idx: object) -> Access:
    return Access(name, tuple(x if isinstance(x, ex.Expr) else affine(x) for x in idx))  # type: ignore[arg-type]


def ld(dtype: DType, name: str, *idx: object) -> Load:
    return Load(at(name, *idx), dtype)


def put(write: Access, e: ex.Expr, reduction: str | None = None) -> Instance:
    return Instance("S", (), write, e, reduction)


def array(dtype: DType, *shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    kind = NUMPY[dtype.name]
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(kind)
        return rng.integers(max(info.min, -100), min(info.max, 100), shape, endpoint=True).astype(kind)
    return rng.uniform(low, high, shape).astype(kind)


def check(body: tuple[LoopNode, ...], tensors: tuple[Tensor, ...], arrays: dict[str, np.ndarray], rtol: float = 2e-6, atol: float = 1e-6,
          fp: str = "default", params: dict[str, int] | None = None,
          scalars: dict[str, float] | None = None, scalar_args: tuple[ScalarArg, ...] = ()) -> None:  # fmt: skip
    nest = LoopNest("kernel", tuple(params or {}), tensors, scalar_args, body, tuple((p, (1, 4096)) for p in params or {}))
    expected = interpret(nest, arrays, scalars, params)
    for isa in UNDER_TEST:
        got = run(nest, arrays, isa, fp, params=params or {}, scalars=scalars or {})  # type: ignore[arg-type]
        for name in arrays:
            a, b = got[name], expected[name]
            if a.dtype.kind == "f" or a.dtype == ml_dtypes.bfloat16:
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol, err_msg=f"{isa} {name}")
            else:
                np.testing.assert_array_equal(a, b, err_msg=f"{isa} {name}")


def strips(n: int, lanes: int, make: object) -> tuple[LoopNode, ...]:
    """Full strips and a masked rest, over i."""
    full = n // lanes
    out: list[LoopNode] = []
    body = make  # type: ignore[assignment]
    if full:
        out.append(loop("t", 0, full, loop("i", T * lanes, T * lanes + lanes, *body(), mark="vector", lanes=lanes)))  # type: ignore[operator]
    if n % lanes:
        out.append(loop("i", full * lanes, n, *body(), mark="vector", lanes=lanes))  # type: ignore[operator]
    return tuple(out)


@pytest.mark.parametrize("lanes", [4, 16, 12])
def test_axpy_with_tails(lanes: int) -> None:
    """Many sizes in one kernel, each with a pair of arrays of its own."""
    sizes = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100]
    body: tuple[LoopNode, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    arrays: dict[str, np.ndarray] = {}
    for n in sizes:
        x, y = f"x{n}", f"y{n}"
        body += strips(n, lanes, lambda x=x, y=y: (put(at(y, I), Binary("*", Scalar("alpha", f32), ld(f32, x, I)), "+"),))
        tensors += (tensor(x, f32, n), tensor(y, f32, n, role="inout"))
        arrays |= {x: array(f32, n), y: array(f32, n)}
    check(body, tensors, arrays, scalars={"alpha": 1.5}, scalar_args=(ScalarArg("alpha", f32),))


def test_masked_copy_of_every_dtype_touches_nothing_else() -> None:
    body: tuple[LoopNode, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    arrays: dict[str, np.ndarray] = {}
    for (name, d), n in product(BY_NAME.items(), (1, 5, 13, 16)):
        x, y = f"x_{name}_{n}", f"y_{name}_{n}"
        body += (loop("i", 3, 3 + n, put(at(y, I), ld(d, x, I)), mark="vector", lanes=16),)
        tensors += (tensor(x, d, 32), tensor(y, d, 32, role="output"))
        arrays |= {x: array(d, 32), y: array(d, 32)}
    check(body, tensors, arrays)


@pytest.mark.parametrize("dtype, lanes", [(f32, 16), (f64, 8), (f64, 16), (f32, 8), (f32, 64), (i32, 16)])
@pytest.mark.parametrize("packed", [True, False])
def test_gemm_micro_kernel(dtype: DType, lanes: int, packed: bool) -> None:
    mr, nv, depth = 3, 2, 9
    nr = nv * lanes
    jj = var("jv") * lanes

    def tile(inst: Instance) -> Loop:
        inner = loop("j", jj, jj + lanes, inst, mark="vector", lanes=lanes)
        return loop("i", 0, mr, loop("jv", 0, nv, inner, mark="unroll"), mark="unroll")

    a = ld(dtype, "A", K, I) if packed else ld(dtype, "A", I, K)
    body = (
        Declare("acc"),
        tile(put(at("acc", I, J), Const(0, dtype))),
        loop("k", 0, depth, tile(put(at("acc", I, J), Binary("*", a, ld(dtype, "B", K, J)), "+"))),
        tile(put(at("C", I, J), ld(dtype, "acc", I, J))),
    )
    shape = (depth, mr) if packed else (mr, depth)
    tensors = (tensor("A", dtype, *shape), tensor("B", dtype, depth, nr), tensor("C", dtype, mr, nr, role="output"),
               tensor("acc", dtype, mr, nr, role="local", scope="registers"))  # fmt: skip
    check(body, tensors, {"A": array(dtype, *shape), "B": array(dtype, depth, nr), "C": array(dtype, mr, nr)})


@pytest.mark.parametrize("n", [1, 9, 16, 40])
def test_parametric_gemm_with_min_bounds(n: int) -> None:
    N, tj = var("N"), var("tj")
    bound = [tj * 16 + 16, N]
    body = (
        loop("i", 0, N, loop("tj", 0, (N + 15) // 16,
            loop("j", tj * 16, bound, put(at("C", I, J), Const(0.0, f32)), mark="vector", lanes=16),
            loop("k", 0, N, loop("j", tj * 16, bound, put(at("C", I, J), Binary("*", ld(f32, "A", I, K), ld(f32, "B", K, J)), "+"),
                                 mark="vector", lanes=16)))),
    )  # fmt: skip
    tensors = tuple(tensor(x, f32, N, N, role="output" if x == "C" else "input") for x in "ABC")
    check(body, tensors, {x: array(f32, n, n) for x in "ABC"}, params={"N": n}, atol=1e-5)


@pytest.mark.parametrize("dtype", [f32, f64, i32, i64, u8], ids=str)
def test_reduction_over_lanes(dtype: DType) -> None:
    sizes, ops = (1, 16, 37, 200), ("+", "*", "min", "max")
    body: tuple[LoopNode, ...] = ()
    for a, n in enumerate(sizes):
        for b, op in enumerate(ops):
            cell = at("s", a, b)
            body += (put(cell, Const(1, dtype)), *strips(n, 16, lambda c=cell, n=n, op=op: (put(c, ld(dtype, f"x{n}", I), op),)))
    tensors = (*(tensor(f"x{n}", dtype, n) for n in sizes), tensor("s", dtype, 4, 4, role="output"))
    check(body, tensors, {f"x{n}": array(dtype, n, low=0.9, high=1.1) for n in sizes} | {"s": array(dtype, 4, 4)}, rtol=2e-5)


def test_row_reductions_read_between_strips() -> None:
    """Softmax: max, then sum of exponentials, then scale, with register cells between; NaN and infinity included."""
    rows, n = 3, 37
    parts = (
        Declare("m"), Declare("z"),
        put(at("m", 0), Const(float("-inf"), f32)), *strips(n, 16, lambda: (put(at("m", 0), ld(f32, "x", R, I), "max"),)),
        put(at("z", 0), Const(0.0, f32)),
        *strips(n, 16, lambda: (put(at("y", R, I), Call("exp", (Binary("-", ld(f32, "x", R, I), ld(f32, "m", 0)),))),
                                put(at("z", 0), ld(f32, "y", R, I), "+"))),
        *strips(n, 16, lambda: (put(at("y", R, I), Binary("/", ld(f32, "y", R, I), ld(f32, "z", 0))),)),
    )  # fmt: skip
    x = array(f32, rows, n)
    x[1, 30] = np.nan
    x[2, 2] = -np.inf
    tensors = (tensor("x", f32, rows, n), tensor("y", f32, rows, n, role="output"), tensor("m", f32, 1, role="local", scope="registers"),
               tensor("z", f32, 1, role="local", scope="registers"))  # fmt: skip
    check((loop("r", 0, rows, *parts),), tensors, {"x": x, "y": array(f32, rows, n)}, rtol=1e-5)


def test_unrolled_strips_use_several_accumulators() -> None:
    u = var("u")
    body = (
        put(at("s", 0), Const(0.5, f32)),
        loop("t", 0, 5, loop("u", 0, 4, loop("i", T * 64 + u * 16, T * 64 + u * 16 + 16,
             put(at("s", 0), Binary("*", ld(f32, "x", I), ld(f32, "x", I)), "+"), mark="vector", lanes=16), mark="unroll")),
    )  # fmt: skip
    check(body, (tensor("x", f32, 320), tensor("s", f32, 1, role="output")), {"x": array(f32, 320), "s": array(f32, 1)}, rtol=1e-5)


def test_strict_keeps_the_order_of_a_float_sum() -> None:
    body = (put(at("s", 0), Const(0.0, f32)), *strips(100, 16, lambda: (put(at("s", 0), Binary("*", ld(f32, "x", I), ld(f32, "x", I)), "+"),)))
    check(body, (tensor("x", f32, 100), tensor("s", f32, 1, role="output")), {"x": array(f32, 100), "s": array(f32, 1)},
          rtol=0, atol=0, fp="strict")  # fmt: skip


def test_gather_stride_floor_reverse_and_indirect() -> None:
    n = 40
    cells: list[tuple[str, tuple[object, ...]]] = [
        ("x", (I * 2,)), ("x", (affine(79) - I,)), ("x", (I // 3,)), ("x", (I * 2 % 5,)), ("x", (ld(i64, "idx", I),)),
        ("x", (affine(7),)),
    ]  # fmt: skip
    for name, idx in cells:
        body = strips(n, 16, lambda name=name, idx=idx: (put(at("y", I), Binary("+", ld(f32, name, *idx), ld(f32, "m", I, 3))),))
        tensors = (tensor("x", f32, 80), tensor("m", f32, n, 5), tensor("idx", i64, n), tensor("y", f32, n, role="output"))
        check(body, tensors, {"x": array(f32, 80), "m": array(f32, n, 5), "idx": rng.integers(0, 80, n), "y": array(f32, n)})


def test_scatter() -> None:
    n = 21
    perm = rng.permutation(n).astype(np.int64)
    body = (*strips(n, 16, lambda: (put(at("y", I * 3), ld(f32, "x", I)),)),
            *strips(n, 8, lambda: (put(at("z", ld(i64, "p", I)), ld(f32, "x", I)), put(at("w", I // 2), ld(f32, "x", I), "+"))))  # fmt: skip
    tensors = (tensor("x", f32, n), tensor("p", i64, n), tensor("y", f32, 3 * n, role="output"), tensor("z", f32, n, role="output"),
               tensor("w", f32, n, role="inout"))  # fmt: skip
    check(body, tensors, {"x": array(f32, n), "p": perm, "y": array(f32, 3 * n), "z": array(f32, n), "w": array(f32, n)})


def test_indirect_update_with_repeated_targets() -> None:
    body = strips(33, 16, lambda: (put(at("y", ld(i32, "p", I)), ld(f32, "x", I), "+"),))
    tensors = (tensor("x", f32, 33), tensor("p", i32, 33), tensor("y", f32, 4, role="inout"))
    check(body, tensors, {"x": array(f32, 33), "p": rng.integers(0, 4, 33).astype(np.int32), "y": array(f32, 4)}, rtol=1e-5)


def test_pooling_with_private_accumulator_and_padding() -> None:
    """Vector over channels, scalar window loops inside, window cells outside the image skipped by a scalar select."""
    h, w, c = 5, 6, 21
    y, x, ch = I + R - 1, J + S - 1, var("c")
    inside: ex.Expr = Compare(">=", IndexValue(y, i64), Const(0, i64))
    for left, op, right in ((y, "<", h), (x, ">=", 0), (x, "<", w)):
        inside = Binary("and", inside, Compare(op, IndexValue(left, i64), Const(right, i64)))
    cell = Select(inside, ld(f32, "X", y, x, ch), Const(float("-inf"), f32))
    part = (Declare("m"), put(at("m", 0), Const(float("-inf"), f32)),
            loop("r", 0, 3, loop("s", 0, 3, put(at("m", 0), cell, "max"))), put(at("Y", I, J, ch), ld(f32, "m", 0)))  # fmt: skip
    inner = [loop("c", 0, 16, *part, mark="vector", lanes=16), loop("c", 16, c, *part, mark="vector", lanes=16)]
    body = (loop("i", 0, h, loop("j", 0, w, *inner)),)
    tensors = (tensor("X", f32, h, w, c), tensor("Y", f32, h, w, c, role="output"), tensor("m", f32, 1, role="local", scope="registers"))
    check(body, tensors, {"X": array(f32, h, w, c), "Y": array(f32, h, w, c)})


def test_private_array_with_a_running_index() -> None:
    n = 19
    part = (Declare("b"), loop("k", 0, 4, put(at("b", K), Binary("*", ld(f32, "x", I), Cast(IndexValue(K, i64), f32)))),
            put(at("y", I), Const(0.0, f32)), loop("k", 0, 4, put(at("y", I), ld(f32, "b", affine(3) - K), "+")))  # fmt: skip
    tensors = (tensor("x", f32, n), tensor("y", f32, n, role="output"), tensor("b", f32, 4, role="local", scope="registers"))
    check(strips(n, 8, lambda: part), tensors, {"x": array(f32, n), "y": array(f32, n)})


def test_select_on_lanes_reads_only_where_chosen() -> None:
    """Padding along the vector dim: the unchosen side would be out of bounds."""
    n = 37
    near = Binary("and", Compare(">=", IndexValue(I - 5, i64), Const(0, i64)), Compare("<", IndexValue(I - 5, i64), Const(20, i64)))
    e = Select(near, ld(f32, "x", I - 5), Binary("*", ld(f32, "y", I), Const(2.0, f32)))
    strided = Select(Compare("<", IndexValue(I, i64), Const(10, i64)), ld(f32, "x", I * 2), Const(7.0, f32))
    scalar = Select(Compare("<", ld(f32, "y", I), Const(9.0, f32)), Const(1.0, f32), ld(f32, "x", affine(10**9) + T * 0))
    for expr in (e, strided, scalar):
        body = strips(n, 16, lambda expr=expr: (put(at("z", I), expr),))
        tensors = (tensor("x", f32, 20), tensor("y", f32, n), tensor("z", f32, n, role="output"))
        check(body, tensors, {"x": array(f32, 20), "y": array(f32, n), "z": array(f32, n)})


@pytest.mark.parametrize("dtype", [f32, f64, i8, i32, i64, u8, f16], ids=str)
def test_compare_select_and_bool(dtype: DType) -> None:
    n = 45
    x, y, b = ld(dtype, "x", I), ld(dtype, "y", I), ld(bool_, "b", I)
    checks: list[ex.Expr] = [Compare(op, x, y) for op in ("<", "<=", ">", ">=", "==", "!=")]
    checks += [Binary("and", checks[0], b), Binary("or", checks[1], Unary("not", b)), Compare("==", b, checks[2]), Cast(x, bool_),
               Binary("^", b, checks[3]), Select(b, checks[0], checks[5])]  # fmt: skip
    outs = tuple(tensor(f"o{q}", bool_, n, role="output") for q in range(len(checks)))
    body = strips(n, 16, lambda: (*(put(at(f"o{q}", I), e) for q, e in enumerate(checks)),
                                  put(at("s", I), Select(Compare(">", x, y), x, y)), put(at("d", I), Cast(b, dtype))))  # fmt: skip
    tensors = (tensor("x", dtype, n), tensor("y", dtype, n), tensor("b", bool_, n), *outs, tensor("s", dtype, n, role="output"),
               tensor("d", dtype, n, role="output"))  # fmt: skip
    xs, ys = array(dtype, n), array(dtype, n)
    ys[::3] = xs[::3]
    arrays = {"x": xs, "y": ys, "b": array(bool_, n), "s": array(dtype, n), "d": array(dtype, n)} | {t.name: array(bool_, n) for t in outs}
    check(body, tensors, arrays)


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integer_operators_wrap_and_floor(name: str) -> None:
    d, n = BY_NAME[name], 40
    info = np.iinfo(NUMPY[name])
    x = rng.integers(info.min, info.max, n, dtype=NUMPY[name], endpoint=True)
    y = rng.integers(max(info.min, -9), 9, n, dtype=NUMPY[name], endpoint=True)
    y[y == 0] = 3
    y[x == info.min] = 2
    ops = ["+", "-", "*", "//", "%", "min", "max", "&", "|", "^"]
    exprs: list[ex.Expr] = [Binary(op, ld(d, "x", I), ld(d, "y", I)) for op in ops]
    small = Binary("&", ld(d, "y", I), Const(5, d))
    exprs += [Binary("<<", ld(d, "x", I), small), Binary(">>", ld(d, "x", I), small), Binary("pow", ld(d, "y", I), small),
              Unary("~", ld(d, "x", I)), Unary("-", ld(d, "x", I)), Call("abs", (ld(d, "x", I),)), Call("sign", (ld(d, "x", I),))]  # fmt: skip
    tensors = (tensor("x", d, n), tensor("y", d, n), *(tensor(f"o{q}", d, n, role="output") for q in range(len(exprs))))
    body = strips(n, 16, lambda: tuple(put(at(f"o{q}", I), e) for q, e in enumerate(exprs)))
    check(body, tensors, {"x": x, "y": y} | {f"o{q}": x * 0 for q in range(len(exprs))})


def test_division_by_zero_in_unused_lanes_does_not_trap() -> None:
    n = 5
    body = (loop("i", 0, n, put(at("o", I), Binary("//", ld(i32, "x", I), ld(i32, "y", I))), mark="vector", lanes=16),)
    tensors = (tensor("x", i32, n), tensor("y", i32, n), tensor("o", i32, n, role="output"))
    check(body, tensors, {"x": array(i32, n), "y": np.full(n, 3, np.int32), "o": array(i32, n)})


@pytest.mark.parametrize("source", ["f16", "f32", "f64", "i8", "u8", "i32", "i64", "bf16", "bool_"])
def test_casts(source: str) -> None:
    src = BY_NAME[source]
    x = np.abs(array(src, 35)) if src.kind != "b" else array(src, 35)
    targets = [BY_NAME[t] for t in ("f16", "f32", "f64", "i8", "u8", "i32", "i64", "bf16", "bool_")]
    body: tuple[LoopNode, ...] = ()
    for dst in targets:
        body += strips(35, 16, lambda dst=dst: (put(at(f"y_{dst}", I), Cast(ld(src, "x", I), dst)),))
    tensors = (tensor("x", src, 35), *(tensor(f"y_{d}", d, 35, role="output") for d in targets))
    check(body, tensors, {"x": x} | {f"y_{d}": array(d, 35) for d in targets})


def test_mixed_dtypes_in_one_loop() -> None:
    """Dequantise: int32 sum, uint8 input, float scale; a mask; positions as floats; 64-bit positions."""
    n = 53
    q = Cast(Binary("-", Cast(ld(u8, "q", I), i32), ld(i32, "z", I)), f32)
    e = Binary("+", Binary("*", q, ld(f32, "s", 0)), Cast(IndexValue(I * 2 + 1, i64), f32))
    body = strips(n, 16, lambda: (put(at("o", I), Select(ld(bool_, "b", I), e, Const(0.0, f32))), put(at("p", I), IndexValue(I + 7, i64)),
                                  put(at("h", I), Binary("*", ld(f16, "h", I), Const(3.0, f16)))))  # fmt: skip
    tensors = (tensor("q", u8, n), tensor("z", i32, n), tensor("s", f32, 1), tensor("b", bool_, n), tensor("o", f32, n, role="output"),
               tensor("p", i64, n, role="output"), tensor("h", f16, n, role="inout"))  # fmt: skip
    arrays = {"q": array(u8, n), "z": array(i32, n), "s": array(f32, 1), "b": array(bool_, n), "o": array(f32, n), "p": array(i64, n),
              "h": array(f16, n)}  # fmt: skip
    check(body, tensors, arrays)


def test_float_operators_and_nan() -> None:
    n = 64
    x, y = array(f32, n), array(f32, n)
    x[:6] = [np.nan, 1, np.inf, -np.inf, 0.0, -0.0]
    y[:6] = [1, np.nan, -np.inf, 2, -0.0, 0.0]
    lx, ly = ld(f32, "x", I), ld(f32, "y", I)
    exprs: list[ex.Expr] = [Binary(op, lx, ly) for op in ("+", "-", "*", "/", "min", "max")]
    exprs += [Binary("max", lx, Const(0.0, f32)), Binary("min", Binary("max", Const(-1.0, f32), lx), Const(1.0, f32)), Unary("-", lx),
              Binary("-", lx, Binary("*", lx, ly)), Binary("-", Binary("*", lx, ly), ly), Binary("pow", lx, Const(2.0, f32))]  # fmt: skip
    tensors = (tensor("x", f32, n), tensor("y", f32, n), *(tensor(f"o{q}", f32, n, role="output") for q in range(len(exprs))))
    body = strips(n, 16, lambda: tuple(put(at(f"o{q}", I), e) for q, e in enumerate(exprs)))
    arrays = {"x": x, "y": y} | {f"o{q}": np.zeros_like(x) for q in range(len(exprs))}
    check(body, tensors, arrays)
    check(body, tensors, arrays, fp="fast")
    check((loop("i", 0, n, *(put(at(f"o{q}", I), e) for q, e in enumerate(exprs))),), tensors, arrays)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_float_floor_division_and_remainder(dtype: DType) -> None:
    body = strips(50, 16, lambda: tuple(put(at(o, I), Binary(op, ld(dtype, "x", I), ld(dtype, "y", I))) for o, op in (("q", "//"), ("r", "%"))))
    tensors = (*(tensor(x, dtype, 50) for x in "xy"), *(tensor(x, dtype, 50, role="output") for x in "qr"))
    check(body, tensors, {x: array(dtype, 50) for x in "xyqr"})


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("vector", [True, False])
def test_all_intrinsics(dtype: DType, vector: bool) -> None:
    n = 37
    body: tuple[LoopNode, ...] = ()
    tensors: tuple[Tensor, ...] = (tensor("y", dtype, n),)
    arrays: dict[str, np.ndarray] = {"y": array(dtype, n)}
    for fn, arity in ex.INTRINSICS.items():
        low, high = {"acosh": (1.1, 3), "atanh": (-0.9, 0.9), "asin": (-1, 1), "acos": (-1, 1), "log": (0.1, 5), "sqrt": (0, 5),
                     "rsqrt": (0.1, 5)}.get(fn, (-3, 3))  # fmt: skip
        x, o = f"x_{fn}", f"o_{fn}"
        arrays[x] = array(dtype, n, low=low, high=high)
        if fn in ("isnan", "isinf", "sign"):
            arrays[x][:4] = [np.nan, np.inf, -np.inf, 0]
        out = bool_ if fn in ("isnan", "isinf") else dtype
        put_it = put(at(o, I), Call(fn, (ld(dtype, x, I), ld(dtype, "y", I))[:arity]))
        body += strips(n, 16, lambda p=put_it: (p,)) if vector else (loop("i", 0, n, put_it),)
        tensors += (tensor(x, dtype, n), tensor(o, out, n, role="output"))
        arrays[o] = array(out, n)
    check(body, tensors, arrays, rtol=2e-6 if dtype == f32 else 1e-13)


def test_register_array_where_an_index_is_not_constant() -> None:
    body = (Declare("b"), loop("i", 0, 10, put(at("b", I), ld(f32, "x", I))),
            loop("i", 0, 10, put(at("y", I), ld(f32, "b", affine(9) - I))))  # fmt: skip
    tensors = (tensor("x", f32, 10), tensor("y", f32, 10, role="output"), tensor("b", f32, 10, role="local", scope="registers"))
    check(body, tensors, {"x": array(f32, 10), "y": array(f32, 10)})


def test_packing_into_scratch_constant_and_parametric() -> None:
    N = var("N")
    for dims, params in (((affine(6), affine(20)), None), ((N, N + 3), {"N": 11})):
        rows, cols = dims
        body = (Declare("p"), loop("i", 0, rows, loop("j", 0, cols, put(at("p", J, I), ld(f32, "x", I, J)))),
                loop("i", 0, rows, loop("j", 0, cols, Prefetch(at("p", J, I), 2), put(at("y", I, J), ld(f32, "p", J, I), "+"))))  # fmt: skip
        shape = tuple(d.evaluate(params or {}) for d in dims)
        for scope in ("cache", "heap"):
            tensors = (tensor("x", f32, *dims), tensor("y", f32, *dims, role="inout"), tensor("p", f32, cols, rows, role="local", scope=scope))
            check(body, tensors, {"x": array(f32, *shape), "y": array(f32, *shape)}, params=params)


def test_guards_steps_and_triangles() -> None:
    N = var("N")
    cond = Binary("and", Compare("<", IndexValue(I + J, i64), IndexValue(N, i64)), Compare("!=", IndexValue(I, i64), IndexValue(J, i64)))
    body = (
        loop("i", 0, N, loop("j", [affine(0), I - 3], [N, I + 5], If(cond, (put(at("y", I, J), ld(f32, "x", I, J)),),
                                                                       (put(at("y", I, J), Const(3.0, f32)),)), step=2)),
        loop("i", 0, N, loop("j", 0, I, put(at("y", I, J), Cast(IndexValue((I * 3 - J * 5) // 4, i64), f32), "+"))),
    )  # fmt: skip
    for n in (1, 6, 13):
        check(body, (tensor("x", f32, N, N), tensor("y", f32, N, N, role="inout")), {"x": array(f32, n, n), "y": array(f32, n, n)}, params={"N": n})


def test_unroll_resolves_floors_and_guards() -> None:
    e = Select(Compare("<", IndexValue(I, i64), Const(2, i64)), ld(f32, "x", I), ld(f32, "x", I // 2))
    body = (loop("t", 0, 3, loop("i", T * 4, T * 4 + 4, If(Compare("!=", IndexValue(I, i64), Const(5, i64)), (put(at("y", I), e),)), mark="unroll")),)
    check(body, (tensor("x", f32, 12), tensor("y", f32, 12, role="output")), {"x": array(f32, 12), "y": array(f32, 12)})


def test_vector_loop_with_several_lower_bounds() -> None:
    body = (loop("t", 0, 4, loop("i", [T * 16 - 4, affine(0)], [T * 16 + 12, affine(50)], put(at("y", I), ld(f32, "x", I + 1)),
                                 mark="vector", lanes=16)),)  # fmt: skip
    check(body, (tensor("x", f32, 52), tensor("y", f32, 50, role="inout")), {"x": array(f32, 52), "y": array(f32, 50)})


def test_a_vector_loop_that_its_ranges_leave_empty_is_dropped() -> None:
    never = If(Compare(">", IndexValue(I, i64), Const(90, i64)), (put(at("y", I), ld(f32, "x", I)),))
    dead = loop("i", [T * 16 - 4, affine(0)], [T * 16 + 12, affine(50)], never, mark="vector", lanes=16)
    body = (loop("t", 0, 4, dead, put(at("y", T), ld(f32, "x", T))),)
    check(body, (tensor("x", f32, 50), tensor("y", f32, 50, role="inout")), {"x": array(f32, 50), "y": array(f32, 50)})


def test_unvectorisable_loops_stay_scalar() -> None:
    """Lane-dependent inner bounds and guards, the last write of a cell, a sum that reads itself."""
    tri = strips(20, 16, lambda: (loop("k", 0, I, put(at("y", I), ld(f32, "x", K), "+")),))
    guard = strips(20, 16, lambda: (If(Compare("<", IndexValue(I, i64), Const(7, i64)), (put(at("y", I), Const(9.0, f32)),)),))
    last = strips(20, 16, lambda: (put(at("y", 3), ld(f32, "x", I)),))
    own = strips(20, 16, lambda: (put(at("y", 3), Binary("*", ld(f32, "y", 3), Const(0.25, f32)), "+"),))
    for body in (tri, guard, last, own):
        check(body, (tensor("x", f32, 20), tensor("y", f32, 20, role="inout")), {"x": array(f32, 20), "y": array(f32, 20)}, rtol=1e-5)


def test_names_cannot_reach_the_text() -> None:
    odd = ["a*/ #error x", "double", "exp", "9", "", "ä/b.c", "a b", "a_b"]
    body = tuple(loop("i", 0, 4, put(at("out", I), ld(f32, name, I), "+")) for name in odd)
    tensors = (*(tensor(name, f32, 4) for name in odd), tensor("out", f32, 4, role="inout"))
    nest = LoopNest("*/ int main(void) { \"", (), tensors, (), body)
    arrays = {name: array(f32, 4) for name in (*odd, "out")}
    expected = interpret(nest, arrays)
    for isa in HERE:
        np.testing.assert_allclose(run(nest, arrays, isa)["out"], expected["out"], rtol=1e-6)


