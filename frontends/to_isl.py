"""From blocks of raw statements to a `Scop`. Takes the tree of `nest`, the tensors and the facts about the dims; gives domains, the
initial schedule tree, roles of tensors; refuses accesses that are not proven in bounds and reads of locals that nothing wrote.

The schedule tree is the text: a sequence of filters for each block, and for each loop a band of one member whose dim id is the
iterator's name; a loop that counts down has the negated iterator as its schedule. Domains are in the iterators' own values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyopt.errors import NotAffine
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.expr import Access, Binary, Compare, Const, Expr, IndexValue, Load, Select, Unary, loads
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import ScalarArg, Tensor
from polyopt.isl_ext import PARAM, SET, OperationBudget, max_operations, read_map, read_set, sample_set

from .nest import Loop, Node, Raw
from .pysource import PySource

FLOW_BUDGET = 20_000_000


@dataclass(frozen=True)
class _Placed:
    """A statement with its domain and the syntax node it comes from. `kept` is the read of the old value that a guard adds."""

    statement: Statement
    node: ast.stmt
    kept: Load | None = None


@dataclass(frozen=True)
class _Build:
    src: PySource
    params: tuple[str, ...]
    context: isl.Set
    tensors: Mapping[str, Tensor]

    @property
    def head(self) -> str:
        return f"[{', '.join(self.params)}] -> "


def build_scop(
    src: PySource, params: tuple[str, ...], tensors: Mapping[str, Tensor], scalars: tuple[ScalarArg, ...], blocks: tuple[Node, ...],
    facts: tuple[str, ...], arguments: tuple[str, ...],
) -> Scop:  # fmt: skip
    """The Scop of a translated function. `facts` are asserted conditions on the dims, `arguments` the names in call order."""
    context = _context(params, tensors, facts)
    if context.is_empty():
        raise src.refuse(src.tree, "the asserted facts contradict each other: no size of the dims fulfils them all")
    b = _Build(src, params, context, tensors)
    placed: list[_Placed] = []
    schedule = _schedule(b, blocks, placed)
    if schedule is None:
        raise src.refuse(src.tree, f"`{src.name}` has no statement that is ever executed")
    placed = [_settle_update(b, p) for p in placed]
    for p in placed:
        _check_bounds(b, p)
    statements = tuple(p.statement for p in placed)
    roles = _roles(b, placed, schedule)
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
def _schedule(b: _Build, nodes: tuple[Node, ...], placed: list[_Placed]) -> isl.Schedule | None:
    out: isl.Schedule | None = None
    for n in nodes:
        part = _loop_schedule(b, n, placed) if isinstance(n, Loop) else _statement_schedule(b, n, placed)
        if part is not None:
            out = part if out is None else out.sequence(part)
    return out


def _statement_schedule(b: _Build, raw: Raw, placed: list[_Placed]) -> isl.Schedule | None:
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
    placed.append(_Placed(Statement(name, raw.iters, domain, raw.write, expr, raw.update), raw.node, kept))
    return isl.Schedule.from_domain(isl.UnionSet.from_set(domain))


def _loop_schedule(b: _Build, loop: Loop, placed: list[_Placed]) -> isl.Schedule | None:
    first = len(placed)
    inner = _schedule(b, loop.body, placed)
    if inner is None:
        return None
    sign = "-" if loop.descending else ""
    parts = "; ".join(f"{p.statement.name}[{', '.join(p.statement.iters)}] -> [({sign}{loop.name})]" for p in placed[first:])
    band = isl.MultiUnionPwAff.read_from_str(isl.DEFAULT_CONTEXT, f"{b.head}[{{ {parts} }}]")
    return inner.insert_partial_schedule(band.set_dim_name(SET, 0, loop.name))


def neutral(op: str, dtype: DType) -> Const:
    """The constant n with x op n = x for every x, also for -0.0 and NaN."""
    if dtype.is_float:
        return Const({"+": -0.0, "*": 1.0, "min": float("inf"), "max": float("-inf")}[op], dtype)
    low = 0 if dtype.kind != "i" else -(1 << (dtype.bits - 1))
    high = (1 << dtype.bits) - 1 + low
    return Const({"+": 0, "*": 1, "min": high, "max": low}[op], dtype)


# ---- accesses
def _access_map(b: _Build, s: Statement, a: Access) -> isl.Map:
    """The instances to the cells they touch; an indirect index touches the whole dim."""
    outs = [f"o{k}" for k in range(len(a.indices))]
    terms = []
    for o, x, size in zip(outs, a.indices, b.tensors[a.tensor].shape):
        terms.append(f"{o} = {x}" if isinstance(x, Affine) else f"0 <= {o} < {size}")
    where = " and ".join(terms) or "true"
    return read_map(f"{b.head}{{ {s.name}[{', '.join(s.iters)}] -> {a.tensor}[{', '.join(outs)}] : {where} }}").intersect_domain(s.domain)


def _settle_update(b: _Build, p: _Placed) -> _Placed:
    """An update whose operand may read a cell that the statement writes is no associative update: write it out."""
    s = p.statement
    if s.reduction is None:
        return p
    write: isl.Map | None = None
    for load in loads(s.expr):
        if load.access.tensor != s.write.tensor:
            continue
        write = write or _access_map(b, s, s.write)
        read = _access_map(b, s, load.access)
        if not write.intersect_params(b.context).range().is_disjoint(read.intersect_params(b.context).range()):
            own = Load(s.write, b.tensors[s.write.tensor].dtype)
            expr: Expr = Binary(s.reduction, own, s.expr)
            return replace(p, statement=replace(s, expr=expr, reduction=None))
    return p


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


def _check_bounds(b: _Build, p: _Placed) -> None:
    s = p.statement
    _check_access(b, p, s.write, ())
    done = {(s.write, ())}
    for load, guards in _guarded_loads(s.expr, ()):
        if (load.access, guards) not in done:
            done.add((load.access, guards))
            _check_access(b, p, load.access, guards)


def _check_access(b: _Build, p: _Placed, a: Access, guards: tuple[str, ...]) -> None:
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


def _smallest(b: _Build, bad: isl.Set) -> dict[str, int]:
    """The point of a set with the least parameters (in order), then the least iterators."""
    n = bad.dim(PARAM)
    flat = bad.move_dims(SET, 0, PARAM, 0, n)
    try:
        flat = flat.lexmin()
    except isl.Error:
        pass
    found = sample_set(flat)
    assert found is not None
    names = [bad.get_dim_name(PARAM, k) for k in range(n)] + [bad.get_dim_name(SET, k) for k in range(bad.dim(SET))]
    return dict(zip(names, found[0]))


def _out_of_bounds(b: _Build, p: _Placed, a: Access, bad: isl.Set) -> NotAffine:
    point = _smallest(b, bad)
    text = f"{a.tensor}[{', '.join('…' if isinstance(x, Expr) else str(x) for x in a.indices)}]"
    for axis, (x, size) in enumerate(zip(a.indices, b.tensors[a.tensor].shape)):
        if isinstance(x, Affine) and not 0 <= x.evaluate(point) < size.evaluate(point):
            break
    else:
        raise AssertionError(f"no index of {text} is out of bounds at {point}")
    at = ", ".join(f"{k}={point[k]}" for k in p.statement.iters)
    sizes = ", ".join(f"{k}={point[k]}" for k in b.params)
    where = f"{' at ' + at if at else ''}{' with ' + sizes if sizes else ''}"
    value = x.evaluate(point)
    hint = "negative indices do not wrap around here; " if value < 0 else ""
    sure = "" if p.statement.iters and not b.params else "if the sizes exclude this, state it by `assert …` at the top of the function; otherwise "
    return b.src.refuse(
        p.node, f"`{text}` is out of bounds: index {axis} is {value}{where}, and {a.tensor} has {size.evaluate(point)} there; {hint}{sure}"
        "shrink the loop or guard the statement by an `if`"
    )  # fmt: skip


# ---- roles and undefined reads
def _roles(b: _Build, placed: list[_Placed], schedule: isl.Schedule) -> dict[str, str]:
    """The role of each tensor that is an argument or used; raises where a local is read before it is written."""
    space = b.context.get_space()
    reads, writes = isl.UnionMap.empty(space), isl.UnionMap.empty(space)
    written, read_tensors = set(), set()
    for p in placed:
        s = p.statement
        write = _access_map(b, s, s.write).intersect_params(b.context)
        writes = writes.add_map(write)
        written.add(s.write.tensor)
        if s.reduction is not None:
            reads = reads.add_map(write)
            read_tensors.add(s.write.tensor)
        for load in loads(s.expr):
            reads = reads.add_map(_access_map(b, s, load.access).intersect_params(b.context))
            read_tensors.add(load.access.tensor)
    orphans = _unwritten_reads(reads, writes, schedule)
    out: dict[str, str] = {}
    for name, t in b.tensors.items():
        if t.role == "local":
            if name in written | read_tensors:
                out[name] = "local"
                _check_defined(b, placed, name, orphans)
        elif name not in written:
            out[name] = "input"
        else:
            out[name] = "output" if _is_output(b, t, orphans, writes) else "inout"
    return out


def _unwritten_reads(reads: isl.UnionMap, writes: isl.UnionMap, schedule: isl.Schedule) -> isl.UnionMap | None:
    """The reads that no write of this nest certainly comes before (None where isl needs too long to tell)."""
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule(schedule)
    try:
        with max_operations(FLOW_BUDGET):
            return info.compute_flow().get_must_no_source()
    except OperationBudget:
        return None


def _cells(m: isl.UnionMap, tensor: str, rank: int) -> isl.Set | None:
    cells = m.range().get_set_list()
    for k in range(cells.n_set()):
        one = cells.get_at(k)
        if one.get_tuple_name() == tensor and one.dim(SET) == rank:
            return one
    return None


def _is_output(b: _Build, t: Tensor, orphans: isl.UnionMap | None, writes: isl.UnionMap) -> bool:
    """Whether every cell is written, and none is read before."""
    if orphans is None or _cells(orphans, t.name, len(t.shape)) is not None:
        return False
    dims = [f"o{k}" for k in range(len(t.shape))]
    box = " and ".join(f"0 <= {d} < {x}" for d, x in zip(dims, t.shape)) or "true"
    whole = read_set(f"{b.head}{{ {t.name}[{', '.join(dims)}] : {box} }}").intersect_params(b.context)
    done = _cells(writes, t.name, len(t.shape))
    return done is not None and bool(whole.is_subset(done))


def _check_defined(b: _Build, placed: list[_Placed], name: str, orphans: isl.UnionMap | None) -> None:
    if orphans is None:
        return
    for p in placed:
        s = p.statement
        own = [s.write] if s.reduction is not None else []
        for a in [*own, *(x.access for x in loads(s.expr) if x != p.kept and x.access.is_affine)]:
            if a.tensor != name:
                continue
            bad = isl.UnionMap.from_map(_access_map(b, s, a)).intersect(orphans).domain()
            if bad.is_empty():
                continue
            point = _smallest(b, isl.Set.from_union_set(bad))
            where = ", ".join(f"{k}={v}" for k, v in point.items() if k)
            raise b.src.refuse(
                p.node, f"`{a if a.indices else name}` is read before it is written{' at ' + where if where else ''}: initialise it first, or state by "
                "`assert …` at the top of the function that these sizes do not occur"
            )  # fmt: skip

