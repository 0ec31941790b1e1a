"""The expression printer. Takes expressions; gives `Val`s: C text, one part for each vector chunk where the value depends on the lane.

Outside a vector loop everything is a scalar. A scalar meets a vector by broadcast. A select on a lane-dependent condition is a blend whose
sides load under a mask wherever a load is not provably in bounds; on a scalar condition it is C's conditional, and then nothing of a side
is evaluated ahead of it.
"""

from __future__ import annotations

from polyopt.ir import expr as ex
from polyopt.ir.dtype import i32

from .offsets import in_bounds
from .operators import binary, blend, bool_to, call, compare, constant, convert, fused, index_value, mask_op, round_to, to_bits, to_bool, unary, unify
from .prepare import compute_dtype, narrow_index
from .state import State, Val


def value(st: State, e: ex.Expr) -> Val:
    """The value of an expression in the current context."""
    if e in st.shared_values and not st.hard and not st.guard:
        known = st.shared_values[e]
        if known is None:
            known = st.shared_values[e] = st.pin(_value(st, e))
        return known
    return _value(st, e)


def _value(st: State, e: ex.Expr) -> Val:
    if isinstance(e, ex.Const):
        return constant(e.value, compute_dtype(e.dtype))
    if isinstance(e, ex.IndexValue):
        return index_value(st, e.index, e.dtype)
    if isinstance(e, ex.Scalar):
        return Val((st.ident[f"scalar {e.name}"],), compute_dtype(e.dtype))
    if isinstance(e, ex.Load):
        return st.load(st, e)
    if isinstance(e, ex.Unary):
        return unary(st, e.op, value(st, e.x))
    if isinstance(e, ex.Binary):
        return _rounded(st, e, _binary_expr(st, e))
    if isinstance(e, ex.Compare):
        return _compare(st, e)
    if isinstance(e, ex.Select):
        return _select(st, e)
    if isinstance(e, ex.Cast):
        return _cast(st, e)
    assert isinstance(e, ex.Call), e
    return _rounded(st, e, call(st, e.fn, [value(st, a) for a in e.args]))


def _rounded(st: State, e: ex.Expr, v: Val) -> Val:
    """The value of an operation on halves: strict arithmetic rounds it, as the source does; else it stays in the type it was computed in."""
    return round_to(st, v, e.dtype) if st.fp == "strict" and v.dtype == compute_dtype(e.dtype) != e.dtype else v


def _is_product(e: ex.Expr, st: State) -> bool:
    return isinstance(e, ex.Binary) and e.op == "*" and compute_dtype(e.dtype).is_float and e not in st.shared_values


def _binary_expr(st: State, e: ex.Binary) -> Val:
    if st.has_fma and e.op in ("+", "-") and compute_dtype(e.dtype).is_float:
        for product, other, op in ((e.y, e.x, "fma" if e.op == "+" else "fnma"), (e.x, e.y, "fma" if e.op == "+" else "fms")):
            if _is_product(product, st):
                assert isinstance(product, ex.Binary)
                c = value(st, other)
                return fused(st, op, value(st, product.x), value(st, product.y), c)
    if e.op in ("and", "or"):
        return _logic(st, e)
    if e.op == "pow" and isinstance(e.y, ex.Const) and e.y.value in (1, 2):
        x = value(st, e.x)
        return x if e.y.value == 1 else binary(st, "*", *([x if st.hard else st.pin(x)] * 2))
    return binary(st, e.op, value(st, e.x), value(st, e.y))


def _logic(st: State, e: ex.Binary) -> Val:
    x = to_bool(st, value(st, e.x))
    if x.vector:
        return mask_op(st, "&" if e.op == "and" else "|", x, to_bool(st, value(st, e.y)))
    before = st.lazy, st.hard
    st.lazy = st.hard = True
    y = to_bool(st, value(st, e.y))
    st.lazy, st.hard = before
    if y.vector:
        return mask_op(st, "&" if e.op == "and" else "|", x, y)
    return Val((f"({x.text} {'&&' if e.op == 'and' else '||'} {y.text})",), x.dtype)


def _compare(st: State, e: ex.Compare) -> Val:
    if narrow_index(e.x, st.ints.ranges) and narrow_index(e.y, st.ints.ranges):
        x, y = (
            index_value(st, c.index, i32) if isinstance(c, ex.IndexValue) else constant(_const_int(c), i32) for c in (e.x, e.y)
        )
        return compare(st, e.op, x, y)
    return compare(st, e.op, value(st, e.x), value(st, e.y))


def _const_int(e: ex.Expr) -> int:
    assert isinstance(e, ex.Const)
    return int(e.value)


def _select(st: State, e: ex.Select) -> Val:
    cond = to_bool(st, value(st, e.cond))
    before = st.lazy, st.hard, st.guard
    if not cond.vector:
        st.lazy = st.hard = True
        yes, no = value(st, e.yes), value(st, e.no)
        st.lazy, st.hard, _ = before
        yes, no = unify(st, yes, no)
        if yes.dtype.kind == "b" and yes.vector:
            bits = max(yes.bits, no.bits)
            yes, no = to_bits(st, yes, bits), to_bits(st, no, bits)
        parts = tuple(f"({cond.text} ? {a} : {b})" for a, b in zip(yes.parts, no.parts, strict=True))
        return Val(parts, yes.dtype, yes.vector, yes.bits, yes.ordered and no.ordered)
    if not st.hard:
        cond = st.pin(cond)
    st.lazy, st.guard = True, (*before[2], cond)
    yes = value(st, e.yes) if _may_trap(st, e.yes) else _plain(st, e.yes, before)
    st.lazy, st.guard = True, (*before[2], unary(st, "not", cond))
    no = value(st, e.no) if _may_trap(st, e.no) else _plain(st, e.no, before)
    st.lazy, st.hard, st.guard = before
    return blend(st, cond, yes, no)


def _plain(st: State, e: ex.Expr, before: tuple[bool, bool, tuple[Val, ...]]) -> Val:
    kept = st.lazy, st.hard, st.guard
    st.lazy, st.hard, st.guard = before
    out = value(st, e)
    st.lazy, st.hard, st.guard = kept
    return out


def _may_trap(st: State, e: ex.Expr) -> bool:
    return any(not in_bounds(x.access.indices, st.tensors[x.access.tensor], st.ints.ranges) for x in ex.loads(e))


def _cast(st: State, e: ex.Cast) -> Val:
    target = compute_dtype(e.dtype)
    if isinstance(e.x, ex.IndexValue) and narrow_index(e.x, st.ints.ranges):
        x = index_value(st, e.x.index, i32)
    else:
        x = value(st, e.x)
    if target.kind == "b":
        return to_bool(st, x)
    if x.dtype.kind == "b":
        return bool_to(st, x, target)
    out = x if x.dtype == target else convert(st, x, target)
    return out if target == e.dtype else round_to(st, out, e.dtype)
