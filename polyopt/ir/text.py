"""Deterministic text of every value, for dumps, golden files and `show`.

Takes a Graph, Plan, Scop, LoopNest, Source, Program or a schedule; gives text whose first line sums the value up and which is the
same for equal values. `show` also draws, through `polyopt.viz`: the one upward reference of the package, imported by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import islpy as isl

from ..isl_ext import maps_of, sets_of
from ..isl_ext import show as isl_text
from .affine import Affine
from .expr import Access, Binary, Call, Cast, Compare, Const, Expr, IndexValue, Load, Scalar, Select, Unary
from .graph import Graph, Node, Plan, Storage, Value
from .loops import Declare, If, Instance, LoopNest, LoopNode, Prefetch
from .program import Buffer, KernelCall, Program
from .scop import Dependences, Scop, Statement
from .source import Source
from .tensor import ScalarArg, Tensor

INDENT = "  "


def to_text(value: Any) -> str:
    """The text of a value; of a sequence, its members' texts one after another; `str` for anything else."""
    if isinstance(value, tuple | list):
        return "\n".join(to_text(x) for x in value)
    printer = _PRINTERS.get(type(value))
    return str(value) if printer is None else printer(value)


def show(value: Any, **options: Any) -> Any:
    """Draw a value (a Scop: domains, dependences, tiles) with `polyopt.viz`, which needs matplotlib. Options are viz's."""
    return import_module("polyopt.viz").show(value, **options)


# ---- scalars
def expr_text(e: Expr) -> str:
    """An expression, fully parenthesised, with the dtype of constants and casts written out."""
    if isinstance(e, Const):
        return f"{e.value!r}:{e.dtype}"
    if isinstance(e, IndexValue):
        return f"({e.index}):{e.dtype}"
    if isinstance(e, Scalar):
        return e.name
    if isinstance(e, Load):
        return access_text(e.access)
    if isinstance(e, Unary):
        return f"({e.op} {expr_text(e.x)})" if e.op.isalpha() else f"({e.op}{expr_text(e.x)})"
    if isinstance(e, Binary | Compare):
        if e.op in ("min", "max", "pow"):
            return f"{e.op}({expr_text(e.x)}, {expr_text(e.y)})"
        return f"({expr_text(e.x)} {e.op} {expr_text(e.y)})"
    if isinstance(e, Select):
        return f"({expr_text(e.yes)} if {expr_text(e.cond)} else {expr_text(e.no)})"
    if isinstance(e, Cast):
        return f"{e.dtype}({expr_text(e.x)})"
    if isinstance(e, Call):
        return f"{e.fn}({', '.join(map(expr_text, e.args))})"
    return str(e)


def access_text(a: Access) -> str:
    """An access with its indices, indirect ones as expressions."""
    return f"{a.tensor}[{', '.join(expr_text(i) if isinstance(i, Expr) else str(i) for i in a.indices)}]"


def update_text(write: Access, expr: Expr, reduction: str | None) -> str:
    """`write = expr`, or `write += expr` for an update."""
    return f"{access_text(write)} {reduction or ''}= {expr_text(expr)}"


def _shape(shape: Iterable[Affine] | None) -> str:
    return "[?]" if shape is None else f"[{', '.join(map(str, shape))}]"


def _tensor(t: Tensor) -> str:
    source = "" if t.source is None else f" from {t.source[0]}{_shape(t.source[1])}"
    scope = f" in {t.scope}" if t.role == "local" else ""
    return f"{t.role} {t.name}: {t.dtype}{_shape(t.shape)}{scope}{source}"


def _scalar(s: ScalarArg) -> str:
    return f"scalar {s.name}: {s.dtype}"


# ---- graph
def _value(v: Value) -> str:
    return f"{v.name}: {v.dtype or '?'}{_shape(v.shape)}"


def _attr(x: Any) -> str:
    shape = getattr(x, "shape", None)
    if shape is not None and hasattr(x, "dtype"):
        return f"{x.dtype}{list(shape)}" if getattr(x, "size", 0) > 8 else f"{x.dtype}{x.tolist()}"
    return to_text(x) if isinstance(x, Graph) else repr(x)


def _node(n: Node, values: Mapping[str, Value]) -> list[str]:
    attrs = ", ".join(f"{k}={_attr(v)}" for k, v in sorted(n.attrs.items()) if not isinstance(v, Graph))
    domain = f"{n.domain}." if n.domain else ""
    outs = ", ".join(_value(values[o]) if o in values else f"{o}: not declared" for o in n.outputs if o)
    lines = [f"{outs} = {domain}{n.op}({', '.join(i or '-' for i in n.inputs)}){' {' + attrs + '}' if attrs else ''}  # {n.name}"]
    for key, sub in sorted(n.attrs.items()):
        if isinstance(sub, Graph):
            lines += [f"{INDENT}{key}:", *_indent(graph_text(sub).splitlines(), 2)]
    return lines


def graph_text(g: Graph) -> str:
    """A graph: inputs, constants with dtype and shape, nodes in order, outputs."""
    lines = [f"graph {g.name}: {len(g.nodes)} nodes, {len(g.constants)} constants, opset {g.opset}"]
    lines += [f"input {_value(g.values[i])}" for i in g.inputs]
    lines += [f"constant {k}: {a.dtype}{list(a.shape)}" for k, a in sorted(g.constants.items())]
    for n in g.nodes:
        lines += _node(n, g.values)
    return "\n".join([*lines, *(f"output {_value(g.values[o])}" for o in g.outputs)])


def plan_text(p: Plan) -> str:
    """A plan: its groups in order with the nodes of each, the storage that is not dense, and the why-nots."""
    lines = [f"plan of {p.graph.name}: {len(p.groups)} groups of {len(p.graph.nodes)} nodes"]
    for g in p.groups:
        lines.append(f"group {g.name}({', '.join(g.inputs)}) -> {', '.join(g.outputs)}")
        for n in g.nodes:
            lines += _indent(_node(n, p.graph.values))
    lines += [f"storage {k}: {_storage(s)}" for k, s in sorted(p.storage.items())]
    lines += [f"not fused {a} -> {b}: {why}" for (a, b), why in sorted(p.why_not.items())]
    return "\n".join(lines)


def _storage(s: Storage) -> str:
    return f"{s.buffer}{_shape(s.shape)} at {_shape(s.indices)}"


# ---- scop
def statement_text(s: Statement) -> list[str]:
    """A statement on two lines: what it computes, and its domain."""
    return [f"{s.name}: {update_text(s.write, s.expr, s.reduction)}", f"{INDENT}{isl_text(s.domain)}"]


def schedule_text(schedule: isl.Schedule) -> str:
    """isl's schedule tree, one node a line, bands by member name with their maps."""
    return "\n".join(_schedule_node(schedule.get_root()))


def _schedule_node(node: isl.ScheduleNode) -> list[str]:
    kind: Any = node.get_type()  # islpy's stubs call it an int
    t = isl.schedule_node_type
    if kind == t.leaf:
        return []
    if kind == t.domain:
        head = ["domain " + "; ".join(s.get_tuple_name() or "[]" for s in sets_of(node.domain_get_domain()))]
    elif kind == t.band:
        head = _band(node)
    elif kind == t.filter:
        head = [f"filter {x}" for x in isl_text(node.filter_get_filter()).splitlines()]
    elif kind == t.mark:
        head = [f"mark {node.mark_get_id().get_name()}"]
    elif kind == t.context:
        head = [f"context {node.context_get_context()}"]
    elif kind == t.guard:
        head = [f"guard {node.guard_get_guard()}"]
    elif kind == t.extension:
        head = [f"extension {x}" for x in isl_text(node.extension_get_extension()).splitlines()]
    else:
        head = [{t.sequence: "sequence", t.set: "set"}.get(kind, str(kind))]
    below = [line for i in range(node.n_children()) for line in _schedule_node(node.child(i))]
    return head + _indent(below)


def _band(node: isl.ScheduleNode) -> list[str]:
    partial = node.band_get_partial_schedule()
    members = []
    for i in range(node.band_n_member()):
        part = partial.get_union_pw_aff(i)
        name = partial.get_dim_id(isl.dim_type.out, i).get_name() if partial.get_space().has_dim_id(isl.dim_type.out, i) else f"c{i}"
        maps = "; ".join(str(m) for m in maps_of(isl.UnionMap.from_union_pw_aff(part)))
        members.append(f"{name}{' coincident' if node.band_member_get_coincident(i) else ''}: {maps}")
    permutable = " permutable" if node.band_get_permutable() else ""
    return [f"band{permutable}", *_indent(members, 2)]


def dependences_text(d: Dependences) -> str:
    """The dependences by kind, one isl map a line."""
    lines = []
    for kind in ("flow", "anti", "output", "reduction"):
        lines += [kind, *_indent(isl_text(getattr(d, kind)).splitlines())]
    return "\n".join(lines)


def scop_text(s: Scop) -> str:
    """A Scop: tensors, statements, schedule tree, dependences where computed, and the verbs applied."""
    params = f"[{', '.join(s.params)}]"
    lines = [f"scop {s.name}{params}: {len(s.statements)} statements, {s.label}", f"context {isl_text(s.context)}"]
    lines += [_tensor(t) for t in s.tensors] + [_scalar(x) for x in s.scalars]
    for st in s.statements:
        lines += statement_text(st)
    lines += ["schedule", *_indent(schedule_text(s.schedule).splitlines())]
    if s.dependences is not None:
        lines += ["dependences", *_indent(dependences_text(s.dependences).splitlines())]
    return "\n".join([*lines, *(f"step {step}" for step in s.history)])


# ---- loop nest
def nest_text(n: LoopNest) -> str:
    """A loop nest as pseudo code, with the marks, names and proven ranges of its loops."""
    lines = [f"nest {n.name}({', '.join([*n.params, *(t.name for t in n.arguments()), *(s.name for s in n.scalars)])})"]
    lines += [f"param {name} in [{_bound(lo)}, {_bound(hi)}]" for name, (lo, hi) in n.param_ranges]
    lines += [_tensor(t) for t in n.tensors] + [_scalar(s) for s in n.scalars]
    return "\n".join([*lines, *_loop_nodes(n.body)])


def _bound(x: int | None) -> str:
    return "?" if x is None else str(x)


def _limits(fn: str, xs: tuple[Affine, ...]) -> str:
    return str(xs[0]) if len(xs) == 1 else f"{fn}({', '.join(map(str, xs))})"


def _loop_nodes(nodes: Iterable[LoopNode]) -> list[str]:
    return [line for n in nodes for line in _loop_node(n)]


def _loop_node(n: LoopNode) -> list[str]:
    if isinstance(n, Instance):
        return [f"{update_text(n.write, n.expr, n.reduction)}  # {n.statement}({', '.join(map(str, n.coords))})"]
    if isinstance(n, Declare):
        return [f"declare {n.tensor}"]
    if isinstance(n, Prefetch):
        return [f"prefetch L{n.level} {access_text(n.access)}"]
    if isinstance(n, If):
        lines = [f"if {expr_text(n.cond)}:", *_indent(_loop_nodes(n.body))]
        return lines + (["else:", *_indent(_loop_nodes(n.orelse))] if n.orelse else [])
    notes = [x for x in (n.name, n.mark, f"lanes {n.lanes}" if n.lanes else "") if x]
    if n.range != (None, None):
        notes.append(f"in [{_bound(n.range[0])}, {_bound(n.range[1])}]")
    step = f" by {n.step}" if n.step != 1 else ""
    head = f"for {n.var} in {_limits('max', n.lower)} .. {_limits('min', n.upper)}{step}:"
    return [f"{head}{'  # ' + ', '.join(notes) if notes else ''}", *_indent(_loop_nodes(n.body))]


# ---- source and program
def source_text(s: Source) -> str:
    """The emitted text itself."""
    return s.text


def program_text(p: Program) -> str:
    """A program: signature, memory plan and calls in order (kernel texts are printed by themselves)."""
    size = f"{len(p.calls)} calls of {len(p.kernels)} kernels, arena {p.arena_bytes} bytes"
    lines = [f"program {p.name}[{', '.join(p.dims)}]: {size}"]
    lines += [f"input {x.name}: {x.dtype}{_shape(x.shape)}" for x in p.inputs]
    lines += [f"output {x.name}: {x.dtype}{_shape(x.shape)}" for x in p.outputs]
    lines += [f"constant {k}: {a.dtype}{list(a.shape)}" for k, a in sorted(p.constants.items())]
    lines += [_buffer(b) for b in p.buffers]
    lines += [f"kernel {k.entry}: {k.dialect} {k.isa}, scratch {k.scratch_bytes}" for k in p.kernels]
    return "\n".join([*lines, f"scratch {p.scratch_bytes} bytes, {p.threads} threads", *map(_call, p.calls)])


def _buffer(b: Buffer) -> str:
    where = f"at {b.offset}" if b.slot < 0 else f"in slot {b.slot} at {b.offset}"
    return f"buffer {b.name}: {_shape(b.elements)} x {b.itemsize} bytes {where}{', zero' if b.zero else ''}"


def _call(c: KernelCall) -> str:
    args = [f"{a.kind} {a.name}" for a in c.args] + [str(p) for p in c.params]
    return f"call {c.entry}({', '.join(args)}){'  # ' + c.label if c.label else ''}"


def _indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    return [INDENT * depth + line for line in lines]


_PRINTERS: dict[type, Callable[[Any], str]] = {
    Graph: graph_text,
    Plan: plan_text,
    Scop: scop_text,
    Dependences: dependences_text,
    isl.Schedule: schedule_text,
    LoopNest: nest_text,
    Source: source_text,
    Program: program_text,
}
