"""Proof that every affine access stays inside its tensor for all sizes. Takes placed statements; raises `NotAffine` with a point where one
does not. A read under a Select counts only where the affine part of the condition lets it be evaluated; indirect indices are not proven."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyopt.errors import NotAffine
from polyopt.ir.affine import Affine
from polyopt.ir.expr import Access, Binary, Compare, Const, Expr, IndexValue, Load, Select, Unary
from polyopt.isl_ext import read_set

from .placed import Frame, Placed, smallest


def _guarded_loads(e: Expr, guards: tuple[str, ...]) -> Iterator[tuple[Load, tuple[str, ...]]]:
    """All reads with the affine conditions under which they are evaluated."""
    if isinstance(e, Select):
        yield from _guarded_loads(e.cond, guards)
        yes, no = _expr_condition(e.cond, False), _expr_condition(e.cond, True)
        yield from _guarded_loads(e.yes, guards + yes)
        yield from _guarded_loads(e.no, guards + no)
        return
    if isinstance(e, Binary) and e.op in ("and", "or"):
        yield from _guarded_loads(e.x, guards)
        yield from _guarded_loads(e.y, guards + _expr_condition(e.x, e.op == "or"))
        return
    if isinstance(e, Load):
        yield e, guards
    for c in e.children():
        yield from _guarded_loads(c, guards)


def _expr_condition(e: Expr, negate: bool) -> tuple[str, ...]:
    """What a condition says about the iterators, as isl constraints; nothing where it depends on data."""
    if isinstance(e, Unary) and e.op == "not":
        return _expr_condition(e.x, not negate)
    if isinstance(e, Binary) and e.op in ("and", "or"):
        x, y = _expr_condition(e.x, negate), _expr_condition(e.y, negate)
        if (e.op == "and") != negate:
            return x + y
        return (f"(({' and '.join(x)}) or ({' and '.join(y)}))",) if x and y else ()
    if isinstance(e, Compare):
        x_, y_ = _index_text(e.x), _index_text(e.y)
        if x_ is not None and y_ is not None:
            op = {"==": "=", "!=": "!="}.get(e.op, e.op)
            flipped = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
            return (f"({x_} {flipped[op] if negate else op} {y_})",)
    return ()


def _index_text(e: Expr) -> str | None:
    if isinstance(e, IndexValue):
        return f"({e.index})"
    if isinstance(e, Const) and isinstance(e.value, int) and not isinstance(e.value, bool):
        return str(e.value)
    if isinstance(e, Binary) and e.op in ("min", "max"):
        x, y = _index_text(e.x), _index_text(e.y)
        return f"{e.op}({x}, {y})" if x is not None and y is not None else None
    return None


def check_bounds(b: Frame, p: Placed) -> None:
    s = p.statement
    _check_access(b, p, s.write, ())
    done: set[tuple[Access, tuple[str, ...]]] = {(s.write, ())}
    for load, guards in _guarded_loads(s.expr, ()):
        if (load.access, guards) not in done:
            done.add((load.access, guards))
            _check_access(b, p, load.access, guards)


def _check_access(b: Frame, p: Placed, a: Access, guards: tuple[str, ...]) -> None:
    s, shape = p.statement, b.tensors[a.tensor].shape
    outside = [
        part
        for x, size in zip(a.indices, shape)
        if isinstance(x, Affine) and not (x.is_const and size.is_const and 0 <= x.const < size.const)
        for part in (f"{x} < 0", f"{x} >= {size}")
    ]
    if not outside:
        return
    where = " and ".join([*guards, f"({' or '.join(outside)})"])
    bad = read_set(f"{b.head}{{ {s.name}[{', '.join(s.iters)}] : {where} }}").intersect(s.domain).intersect_params(b.context)
    if not bad.is_empty():
        raise _out_of_bounds(b, p, a, bad)


def _out_of_bounds(b: Frame, p: Placed, a: Access, bad: isl.Set) -> NotAffine:
    point = smallest(b, bad)
    text = f"{a.tensor}[{', '.join('…' if isinstance(x, Expr) else str(x) for x in a.indices)}]"
    axis, value, size = next(
        (k, x.evaluate(point), n.evaluate(point))
        for k, (x, n) in enumerate(zip(a.indices, b.tensors[a.tensor].shape))
        if isinstance(x, Affine) and not 0 <= x.evaluate(point) < n.evaluate(point)
    )
    at = ", ".join(f"{k}={point[k]}" for k in p.statement.iters)
    sizes = ", ".join(f"{k}={point[k]}" for k in b.params)
    where = f"{' at ' + at if at else ''}{' with ' + sizes if sizes else ''}"
    hint = "negative indices do not wrap around here; " if value < 0 else ""
    sure = "" if p.statement.iters and not b.params else "if the sizes exclude this, state it by `assert …` at the top of the function; otherwise "
    return b.src.refuse(
        p.node, f"`{text}` is out of bounds: index {axis} is {value}{where}, and {a.tensor} has {size} there; {hint}{sure}"
        "shrink the loop or guard the statement by an `if`"
    )  # fmt: skip
