"""From blocks of raw statements to a `Scop`. Takes the tree of `nest`, the tensors and the facts about the dims; gives domains, the
initial schedule tree, roles of tensors; refuses accesses that are not proven in bounds and reads of locals that nothing wrote.

The schedule tree is the text: a sequence of filters for each block, and for each loop a band of one member whose dim id is the
iterator's name; a loop that counts down has the negated iterator as its schedule. Domains are in the iterators' own values.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyopt.ir.dtype import DType
from polyopt.ir.expr import Binary, Const, Expr, Load, Select, loads
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import ScalarArg, Tensor
from polyopt.isl_ext import CTX, SET, read_set

from .bounds import check_bounds
from .placed import Frame, Placed, access_map
from .pysource import PySource
from .roles import compute_roles
from .tree import Loop, Node, Raw


def build_scop(
    src: PySource, params: tuple[str, ...], tensors: Mapping[str, Tensor], scalars: tuple[ScalarArg, ...], blocks: tuple[Node, ...],
    facts: tuple[str, ...], arguments: tuple[str, ...],
) -> Scop:  # fmt: skip
    """The Scop of a translated function. `facts` are asserted conditions on the dims, `arguments` the names in call order."""
    context = _context(params, tensors, facts)
    if context.is_empty():
        raise src.refuse(src.tree, "the asserted facts contradict each other: no size of the dims fulfils them all")
    b = Frame(src, params, context, tensors)
    placed: list[Placed] = []
    schedule = _schedule(b, blocks, placed)
    if schedule is None and src.sizes:
        sizes = ", ".join(f"{k}={v}" for k, v in src.sizes.items())
        raise src.refuse(src.tree, f"`{src.name}` runs no statement at {sizes}: there is nothing to compile; skip the call, or bind other sizes")
    if schedule is None:
        raise src.refuse(src.tree, f"`{src.name}` has no statement that is ever executed")
    placed = [_settle_update(b, p) for p in placed]
    for p in placed:
        check_bounds(b, p)
    statements = tuple(p.statement for p in placed)
    roles = compute_roles(b, placed, schedule)
    kept = tuple(replace(t, role=roles[n]) for n, t in tensors.items() if n in roles)
    meta = {
        "arguments": arguments,
        "source": src.where(src.tree),
        "text": {p.statement.name: ast.unparse(p.node).splitlines()[0] for p in placed},
        "lines": {p.statement.name: p.node.lineno for p in placed},
    }
    return Scop(src.name, params, context, kept, statements, schedule, scalars, meta=meta)


def _context(params: tuple[str, ...], tensors: Mapping[str, Tensor], facts: tuple[str, ...]) -> isl.Set:
    sizes = [f"{p} >= 0" for p in params] + [f"{x} >= 0" for t in tensors.values() for x in t.shape]
    return read_set(f"[{', '.join(params)}] -> {{ : {' and '.join([*dict.fromkeys(sizes), *facts]) or 'true'} }}")


# ---- domains and schedule
def _schedule(b: Frame, nodes: tuple[Node, ...], placed: list[Placed]) -> isl.Schedule | None:
    out: isl.Schedule | None = None
    for n in nodes:
        part = _loop_schedule(b, n, placed) if isinstance(n, Loop) else _statement_schedule(b, n, placed)
        if part is not None:
            out = part if out is None else out.sequence(part)
    return out


def _statement_schedule(b: Frame, raw: Raw, placed: list[Placed]) -> isl.Schedule | None:
    name = f"S{len(placed)}"
    text = f"{b.head}{{ {name}[{', '.join(raw.iters)}] : {' and '.join(raw.constraints) or 'true'} }}"
    domain = read_set(text)
    if domain.intersect_params(b.context).is_empty():
        return None
    expr, kept = raw.expr, None
    if raw.guard is not None:
        if raw.update is not None:
            expr = Select(raw.guard, expr, neutral(raw.update, raw.dtype))
        else:
            kept = Load(raw.write, raw.dtype) if raw.keeps else None
            expr = Select(raw.guard, expr, kept or Const(0.0 if raw.dtype.is_float else 0, raw.dtype))
    placed.append(Placed(Statement(name, raw.iters, domain, raw.write, expr, raw.update), raw.node, kept))
    return isl.Schedule.from_domain(isl.UnionSet.from_set(domain))


def _loop_schedule(b: Frame, loop: Loop, placed: list[Placed]) -> isl.Schedule | None:
    first = len(placed)
    inner = _schedule(b, loop.body, placed)
    if inner is None:
        return None
    sign = "-" if loop.descending else ""
    parts = "; ".join(f"{p.statement.name}[{', '.join(p.statement.iters)}] -> [({sign}{loop.name})]" for p in placed[first:])
    band = isl.MultiUnionPwAff.read_from_str(CTX, f"{b.head}[{{ {parts} }}]")
    return inner.insert_partial_schedule(band.set_dim_name(SET, 0, loop.name))


def neutral(op: str, dtype: DType) -> Const:
    """The constant n with x op n = x for every x, also for -0.0 and NaN."""
    if dtype.is_float:
        return Const({"+": -0.0, "*": 1.0, "min": float("inf"), "max": float("-inf")}[op], dtype)
    low = 0 if dtype.kind != "i" else -(1 << (dtype.bits - 1))
    high = (1 << dtype.bits) - 1 + low
    return Const({"+": 0, "*": 1, "min": high, "max": low}[op], dtype)


def _settle_update(b: Frame, p: Placed) -> Placed:
    """An update whose operand may read the very cell that it changes is no associative update: write it out.

    Reads of other cells of the tensor are dependences like any other.
    """
    s = p.statement
    if s.reduction is None:
        return p
    write: isl.Map | None = None
    for load in loads(s.expr):
        if load.access.tensor != s.write.tensor:
            continue
        write = write or access_map(b, s, s.write)
        if not write.intersect(access_map(b, s, load.access)).intersect_params(b.context).is_empty():
            own = Load(s.write, b.tensors[s.write.tensor].dtype)
            expr: Expr = Binary(s.reduction, own, s.expr)
            return replace(p, statement=replace(s, expr=expr, reduction=None))
    return p
