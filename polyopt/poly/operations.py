"""What a Scop computes and how often it goes to memory, whatever the caches: exact counts, in closed form.

Takes a Scop, or the places of its schedule; gives operations by kind, loads and stores as `Count`s. A product that is only added to is one *fma*.
Operands of a `Select` count where they are evaluated. Loads and stores are those of the emitted code: a cell that an innermost loop updates in
place is loaded before it and stored after it (codegen/accumulators.py); registers are no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import islpy as isl

from ..ir.expr import Binary, Call, Compare, Expr, Select, Unary
from ..ir.scop import Scop, Statement
from ..isl_ext import IN
from .convert import Columns, columns, condition_set
from .counting import Count, count
from .loop_tree import Place, Ref
from .nest import may_be

BUDGET = 60_000  # isl operations for one access
KINDS = ("add", "mul", "fma", "div", "compare", "call")
FLOPS = {"fma": 2}  # the others are one
_BINARY = {"+": "add", "-": "add", "*": "mul", "/": "div", "min": "compare", "max": "compare", "pow": "call", "//": "div", "%": "div"}


# ---- arithmetic
def compute_operations(scop: Scop, bind: Mapping[str, int] | None = None) -> dict[str, Count]:
    """Floating-point operations by kind."""
    out: dict[str, Count] = {}
    for s in scop.statements:
        grouped: dict[str, list[isl.Set]] = {}
        for kind, where in operations_of(s):
            grouped.setdefault(kind, []).append(where)
        for kind, sets in grouped.items():
            for where, n in _distinct(sets):
                number = count(where.intersect_params(scop.context), scop.context).scale(n)
                out[kind] = out[kind] + number if kind in out else number
    return {k: out[k] for k in KINDS if k in out}


def _distinct(sets: Sequence[isl.Set]) -> list[tuple[isl.Set, int]]:
    out: list[tuple[isl.Set, int]] = []
    for s in sets:
        for k, (known, n) in enumerate(out):
            if known is s or known.plain_is_equal(s):
                out[k] = (known, n + 1)
                break
        else:
            out.append((s, 1))
    return out


def operations_of(s: Statement) -> list[tuple[str, isl.Set]]:
    """The floating-point operations of a statement, each with the instances that do it."""
    cols = columns(s.domain.get_space(), s.iters)
    found = list(_operations(s.expr, s.domain, cols))
    if s.reduction is not None and s.expr.dtype.is_float:
        fused = s.reduction == "+" and _product(s.expr) is not None
        if fused:
            found.remove(("mul", s.domain))
        found.append(("fma" if fused else _BINARY[s.reduction], s.domain))
    return found


def _product(e: Expr) -> Expr | None:
    """The product that an expression is, up to its sign."""
    if isinstance(e, Unary) and e.op == "-":
        return _product(e.x)
    return e if isinstance(e, Binary) and e.op == "*" else None


def _operations(e: Expr, where: isl.Set, cols: Columns) -> Iterator[tuple[str, isl.Set]]:
    if isinstance(e, Select):
        yield from _operations(e.cond, where, cols)
        affine = condition_set(e.cond, where.get_space(), cols) is not None
        for side, value in ((e.yes, True), (e.no, False)):
            at = where.intersect(may_be(e.cond, value, where.get_space(), cols)) if affine else where
            yield from _operations(side, at, cols)
        return
    inner = [x for c in e.children() for x in _operations(c, where, cols)]
    kind = None
    if isinstance(e, Binary) and e.dtype.is_float:
        kind = _BINARY.get(e.op)
        if e.op in "+-" and (_product(e.x) or _product(e.y)) is not None:
            inner.remove(("mul", where))
            kind = "fma"
    elif isinstance(e, Compare) and e.x.dtype.is_float:
        kind = "compare"
    elif isinstance(e, Call) and e.dtype.is_float:
        kind = "call"
    yield from inner
    if kind is not None:
        yield kind, where


# ---- memory
def compute_memory_operations(scop: Scop, root: Place) -> tuple[Count, Count]:
    """Loads and stores of elements."""
    loads, stores = Count(), Count()
    held = {id(r): loop for loop in root.walk() for r in _held(scop, loop)}
    seen: set[tuple[int, object, bool]] = set()
    for ref in root.refs:
        loop = held.get(id(ref))
        instances = ref.elements.domain()
        if loop is not None:
            key = (id(loop), (ref.access.tensor, ref.function), ref.is_write)
            if key in seen:
                continue
            seen.add(key)
            depth = len(loop.path)
            instances = instances.project_out(isl.dim_type.set, depth, len(ref.path) - depth)
        number = count(instances, None, BUDGET).scale(1 if loop is not None else ref.times)
        if ref.is_write:
            stores = stores + number
        else:
            loads = loads + number
    return loads, stores


def _held(scop: Scop, loop: Place) -> list[Ref]:
    """The references whose cells an innermost loop keeps in registers."""
    if loop.kind != "loop" or loop.mark or any(c.kind == "loop" for c in loop.children[0].walk()):
        return []
    out: list[Ref] = []
    for t in {r.access.tensor for r in loop.refs if r.is_write}:
        refs = [r for r in loop.refs if r.access.tensor == t]
        functions = {r.function for r in refs}
        if not scop.tensor(t).dtype.is_float or None in functions or any(r.elements.dim(IN) != len(loop.path) + 1 for r in refs):
            continue
        cells = [f for f in functions if f is not None]
        still = not any(loop.name in x.names() for f in cells for x in f)
        apart = all(any(d.is_const and d.const for d in (x - y for x, y in zip(f, g))) for k, f in enumerate(cells) for g in cells[:k])
        if still and apart:
            out += refs
    return out
