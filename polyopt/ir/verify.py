"""Structural verifiers, one a value: they raise `InternalError` where a value is malformed.

Takes a Graph, Plan, Scop, LoopNest, Source or Program; gives nothing. The tracer runs them after every step (`VERIFIERS` is its
table). What is proven: a Graph is in SSA form and in topological order, its shapes and dtypes agree with its constants; a
Scop's and a LoopNest's accesses fit their tensors, every variable is defined and every expression typed; a Program's calls fit
its kernels, and buffers that live at the same time never overlap. Bounds and legality are `poly/certify`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NoReturn

import islpy as isl

from ..errors import InternalError
from .affine import Affine
from .dtype import bool_
from .expr import INTRINSICS, Access, Binary, Call, Compare, Const, Expr, IndexValue, Load, Scalar, Select, Unary, walk
from .graph import Graph, Plan
from .loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch
from .program import Buffer, KernelCall, Program
from .scop import Scop, Statement
from .source import Source
from .tensor import ScalarArg, Tensor

REDUCTIONS = (None, "+", "*", "min", "max")
BINARY = ("+", "-", "*", "/", "//", "%", "min", "max", "pow", "&", "|", "^", "<<", ">>", "and", "or")
COMPARE = ("<", "<=", ">", ">=", "==", "!=")
ALIGNMENT = 64


def _fail(where: str, what: str) -> NoReturn:
    raise InternalError(f"malformed {where}: {what}")


def _unique(where: str, kind: str, names: Iterable[str]) -> None:
    twice = sorted(n for n, count in Counter(names).items() if count > 1)
    if twice:
        _fail(where, f"{kind} {', '.join(twice)} defined more than once")


# ---- graph
def verify_graph(g: Graph) -> None:
    """SSA, topological order, complete values, constants of the declared dtype and shape, no negative dim."""
    where = f"graph {g.name}"
    _unique(where, "value", [*g.inputs, *g.constants, *(o for n in g.nodes for o in n.outputs if o)])
    _unique(where, "node", (n.name for n in g.nodes))
    defined = {*g.inputs, *g.constants}
    for n in g.nodes:
        for i in n.inputs:
            if i and i not in defined:
                _fail(where, f"node {n.name} ({n.op}) reads {i}, which nothing before it defines")
        defined |= {o for o in n.outputs if o}
    for o in g.outputs:
        if o not in defined:
            _fail(where, f"output {o} is never written")
    for name in sorted(defined):
        if name not in g.values:
            _fail(where, f"value {name} has no entry in values")
    for name, v in g.values.items():
        if v.name != name:
            _fail(where, f"the entry of value {name} is called {v.name}")
        for d in v.shape or ():
            if d.is_const and d.const < 0:
                _fail(where, f"value {name} has the negative dim {d}")
    for name, array in g.constants.items():
        v = g.values[name]
        symbolic = array.dtype == object and v.dtype is not None and v.dtype.is_integer  # a shape that holds named dims
        if v.dtype is not None and str(array.dtype) != v.dtype.numpy and not symbolic:
            _fail(where, f"constant {name} is {array.dtype}, declared {v.dtype}")
        if v.shape is not None and tuple(map(str, v.shape)) != tuple(map(str, array.shape)):
            _fail(where, f"constant {name} has shape {list(array.shape)}, declared [{', '.join(map(str, v.shape))}]")


def verify_inferred(g: Graph) -> None:
    """After shape inference: every value that a node reads or writes has a dtype."""
    for n in g.nodes:
        for name in (*n.inputs, *n.outputs):
            if name and g.values[name].dtype is None:
                _fail(f"graph {g.name}", f"value {name} of node {n.name} has no dtype")


def verify_plan(p: Plan) -> None:
    """Groups hold different nodes of the graph, and each group's inputs come from outside or from what stands before it."""
    where = f"plan of {p.graph.name}"
    _unique(where, "group", (g.name for g in p.groups))
    _unique(where, "grouped node", (n.name for g in p.groups for n in g.nodes))
    nodes = {n.name for n in p.graph.nodes}
    position = {o: k for k, g in enumerate(p.groups) for n in g.nodes for o in n.outputs if o}
    for k, g in enumerate(p.groups):
        for n in g.nodes:
            if n.name not in nodes:
                _fail(where, f"group {g.name} holds node {n.name}, which the graph lacks")
        for name in (*g.inputs, *g.outputs):
            if name not in p.graph.values:
                _fail(where, f"group {g.name} uses value {name}, which the graph lacks")
        for name in g.inputs:
            if position.get(name, -1) >= k:
                _fail(where, f"group {g.name} reads {name} before group {p.groups[position[name]].name} writes it")
    for name, s in p.storage.items():
        if len(s.indices) != len(s.shape):
            _fail(where, f"storage of {name} has {len(s.indices)} indices for the {len(s.shape)} dims of buffer {s.buffer}")


# ---- expressions and accesses
class _Names:
    """What an expression may name: variables in scope, tensors and scalars."""

    def __init__(self, where: str, tensors: Iterable[Tensor], scalars: Iterable[ScalarArg]) -> None:
        self.where = where
        self.tensors = {t.name: t for t in tensors}
        self.scalars = {s.name: s for s in scalars}

    def index(self, x: Affine, defined: frozenset[str], what: str) -> None:
        unknown = sorted(x.names() - defined)
        if unknown:
            _fail(self.where, f"{what}: {x} uses {', '.join(unknown)}, which is not defined there")

    def access(self, a: Access, defined: frozenset[str], what: str) -> Tensor:
        t = self.tensors.get(a.tensor)
        if t is None:
            _fail(self.where, f"{what}: {a} names no tensor of the kernel")
        if len(a.indices) != len(t.shape):
            _fail(self.where, f"{what}: {a} has {len(a.indices)} indices, {t.name} has {len(t.shape)} dims")
        for x in a.indices:
            if isinstance(x, Affine):
                self.index(x, defined, what)
            else:
                self.expr(x, defined, what)
                if not x.dtype.is_integer:
                    _fail(self.where, f"{what}: an index of {a.tensor} is {x.dtype}, not an integer")
        return t

    def expr(self, e: Expr, defined: frozenset[str], what: str) -> None:
        for x in walk(e):
            self._node(x, defined, what)

    def _node(self, x: Expr, defined: frozenset[str], what: str) -> None:
        if isinstance(x, Load):
            t = self.access(x.access, defined, what)
            if t.dtype != x.dtype:
                _fail(self.where, f"{what}: {x.access} is loaded as {x.dtype}, {t.name} is {t.dtype}")
        elif isinstance(x, IndexValue):
            self.index(x.index, defined, what)
        elif isinstance(x, Scalar):
            s = self.scalars.get(x.name)
            if s is None or s.dtype != x.dtype:
                _fail(self.where, f"{what}: scalar {x.name} of {x.dtype} is no argument of the kernel")
        elif isinstance(x, Binary | Compare):
            if x.op not in (BINARY if isinstance(x, Binary) else COMPARE):
                _fail(self.where, f"{what}: there is no operator {x.op}")
            if x.x.dtype != x.y.dtype:
                _fail(self.where, f"{what}: the operands of {x.op} are {x.x.dtype} and {x.y.dtype}")
        elif isinstance(x, Select):
            if x.cond.dtype != bool_ or x.yes.dtype != x.no.dtype:
                _fail(self.where, f"{what}: a selection by {x.cond.dtype} between {x.yes.dtype} and {x.no.dtype}")
        elif isinstance(x, Call):
            if INTRINSICS.get(x.fn) != len(x.args):
                _fail(self.where, f"{what}: {x.fn} of {len(x.args)} arguments is no intrinsic")
        elif isinstance(x, Unary):
            if x.op not in ("-", "not", "~"):
                _fail(self.where, f"{what}: there is no operator {x.op}")
        elif isinstance(x, Const) and x.dtype.kind != "f" and not isinstance(x.value, bool | int):
            _fail(self.where, f"{what}: the constant {x.value!r} is no {x.dtype}")

    def update(self, write: Access, expr: Expr, reduction: str | None, defined: frozenset[str], what: str) -> None:
        t = self.access(write, defined, what)
        self.expr(expr, defined, what)
        if t.dtype != expr.dtype:
            _fail(self.where, f"{what}: writes {expr.dtype} to {t.name}, which is {t.dtype}")
        if t.role in ("input", "constant"):
            _fail(self.where, f"{what}: writes {t.name}, which is read-only ({t.role})")
        if reduction not in REDUCTIONS:
            _fail(self.where, f"{what}: {reduction!r} is no reduction")


def _tensors(where: str, tensors: tuple[Tensor, ...], scalars: tuple[ScalarArg, ...], params: tuple[str, ...]) -> _Names:
    _unique(where, "name", [*params, *(t.name for t in tensors), *(s.name for s in scalars)])
    names = _Names(where, tensors, scalars)
    for t in tensors:
        if t.role not in ("input", "output", "inout", "constant", "local"):
            _fail(where, f"tensor {t.name} has the role {t.role!r}")
        for d in t.shape:
            names.index(d, frozenset(params), f"the shape of {t.name}")
    return names


# ---- scop
def verify_scop(s: Scop) -> None:
    """Statements fit their domains and tensors; the schedule orders exactly the statements' instances."""
    where = f"scop {s.name}"
    names = _tensors(where, s.tensors, s.scalars, s.params)
    if not s.statements:
        _fail(where, "it has no statement")
    _unique(where, "statement", (st.name for st in s.statements))
    for st in s.statements:
        _verify_statement(where, names, st, frozenset(s.params))
    context = s.context.params() if not s.context.is_params() else s.context
    wanted = s.domain().intersect_params(context)
    found = s.schedule.get_domain().intersect_params(context)
    if not wanted.is_equal(found):
        extra, missing = found.subtract(wanted), wanted.subtract(found)
        _fail(where, f"the schedule orders {extra} beyond the domains and lacks {missing}")


def _verify_statement(where: str, names: _Names, st: Statement, params: frozenset[str]) -> None:
    if st.domain.get_tuple_name() != st.name:
        _fail(where, f"the domain of {st.name} is called {st.domain.get_tuple_name()}")
    dims = st.domain.dim(isl.dim_type.set)
    if dims != len(st.iters):
        _fail(where, f"{st.name} has {len(st.iters)} iterators for a domain of {dims} dims")
    _unique(where, f"iterator of {st.name}", st.iters)
    names.update(st.write, st.expr, st.reduction, params | set(st.iters), f"statement {st.name}")


# ---- loop nest
def verify_nest(n: LoopNest) -> None:
    """Every variable is defined once where it is used, steps and lanes are positive, declared buffers are locals."""
    where = f"loop nest {n.name}"
    names = _tensors(where, n.tensors, n.scalars, n.params)
    for name, _ in n.param_ranges:
        if name not in n.params:
            _fail(where, f"a range is given for {name}, which is no parameter")
    _verify_nodes(where, names, n.body, frozenset(n.params))


def _verify_nodes(where: str, names: _Names, nodes: tuple[LoopNode, ...], defined: frozenset[str]) -> None:
    for node in nodes:
        if isinstance(node, Instance):
            what = f"statement {node.statement}"
            for c in node.coords:
                names.index(c, defined, f"the coordinates of {node.statement}")
            names.update(node.write, node.expr, node.reduction, defined, what)
        elif isinstance(node, Loop):
            _verify_loop(where, names, node, defined)
        elif isinstance(node, If):
            names.expr(node.cond, defined, "a guard")
            if node.cond.dtype != bool_:
                _fail(where, f"a guard is {node.cond.dtype}, not a bool")
            _verify_nodes(where, names, node.body, defined)
            _verify_nodes(where, names, node.orelse, defined)
        elif isinstance(node, Declare):
            t = names.tensors.get(node.tensor)
            if t is None or t.role != "local":
                _fail(where, f"it declares {node.tensor}, which is no local tensor")
        elif isinstance(node, Prefetch):
            names.access(node.access, defined, "a prefetch")


def _verify_loop(where: str, names: _Names, loop: Loop, defined: frozenset[str]) -> None:
    if loop.var in defined:
        _fail(where, f"loop variable {loop.var} is already defined there")
    if loop.step < 1 or not loop.lower or not loop.upper:
        _fail(where, f"loop {loop.var} has step {loop.step}, {len(loop.lower)} lower and {len(loop.upper)} upper bounds")
    for x in (*loop.lower, *loop.upper):
        names.index(x, defined, f"a bound of loop {loop.var}")
    if loop.mark == "vector" and loop.lanes < 1:
        _fail(where, f"vector loop {loop.var} has {loop.lanes} lanes")
    _verify_nodes(where, names, loop.body, defined | {loop.var})


# ---- source and program
def verify_source(s: Source) -> None:
    """The entry occurs in the text, names are unique, a device kernel has its launch shape."""
    where = f"source {s.entry}"
    if s.entry not in s.text:
        _fail(where, "its text does not define the entry")
    _unique(where, "parameter", [*s.params, *(x.name for x in s.scalars)])
    if s.dialect != "c" and s.launch is None:
        _fail(where, f"a {s.dialect} kernel without a launch shape")


def verify_program(p: Program) -> None:
    """Calls fit their kernels, arguments exist, arena buffers that are live at the same call do not overlap."""
    where = f"program {p.name}"
    _unique(where, "kernel", (k.entry for k in p.kernels))
    _unique(where, "buffer", (b.name for b in p.buffers))
    _unique(where, "port", [x.name for x in p.inputs])
    _unique(where, "port", [x.name for x in p.outputs])
    kernels = {k.entry: k for k in p.kernels}
    places = {
        "input": {x.name for x in p.inputs},
        "output": {x.name for x in p.outputs},
        "constant": set(p.constants),
        "arena": {b.name for b in p.buffers},
    }
    dims = frozenset(p.dims)
    for call in p.calls:
        kernel = kernels.get(call.entry)
        if kernel is None:
            _fail(where, f"call {call.label or call.entry} names no kernel")
        _verify_call(where, call, kernel, places, dims)
    sized = [d for b in p.buffers for d in b.elements] + [d for port in (*p.inputs, *p.outputs) for d in port.shape]
    for d in sized:
        if d.names() - dims:
            _fail(where, f"the size {d} uses {', '.join(sorted(d.names() - dims))}, which is no dim of the program")
    _verify_arena(where, p)


def _verify_call(where: str, call: KernelCall, kernel: Source, places: Mapping[str, set[str]], dims: frozenset[str]) -> None:
    what = f"call {call.label or call.entry}"
    if len(call.args) != len(kernel.tensors) or len(call.params) != len(kernel.params) or kernel.scalars:
        _fail(
            where,
            f"{what} passes {len(call.args)} pointers and {len(call.params)} params; {kernel.entry} takes {len(kernel.tensors)}, "
            f"{len(kernel.params)} and {len(kernel.scalars)} scalars",
        )
    for arg, t in zip(call.args, kernel.tensors):
        if arg.name not in places.get(arg.kind, ()):
            _fail(where, f"{what} passes {arg.kind} {arg.name}, which does not exist")
        if arg.kind in ("input", "constant") and t.role in ("output", "inout"):
            _fail(where, f"{what} writes {arg.kind} {arg.name}")
    for x in call.params:
        if x.names() - dims:
            _fail(where, f"{what} passes {x}, which uses {', '.join(sorted(x.names() - dims))}")


def live_ranges(p: Program) -> dict[str, tuple[int, int]]:
    """First and last call that uses each arena buffer; a buffer that is zeroed once lives throughout."""
    out: dict[str, tuple[int, int]] = {}
    for k, call in enumerate(p.calls):
        for a in call.args:
            if a.kind == "arena":
                out[a.name] = (out.get(a.name, (k, k))[0], k)
    for b in p.buffers:
        if b.zero and b.name in out:
            out[b.name] = (0, len(p.calls) - 1)
    return out


def _verify_arena(where: str, p: Program) -> None:
    live = live_ranges(p)
    used = sorted((b for b in p.buffers if b.name in live), key=lambda b: (b.slot, b.offset, b.name))
    for b in used:
        if b.offset % ALIGNMENT:
            _fail(where, f"buffer {b.name} starts at byte {b.offset}, not at a multiple of {ALIGNMENT}")
        size = _bytes(b)
        if b.slot < 0 and size is None:
            _fail(where, f"buffer {b.name} has a symbolic size and no slot")
        if b.slot < 0 and size is not None and b.offset + size > p.arena_bytes:
            _fail(where, f"buffer {b.name} ends at byte {b.offset + size} of an arena of {p.arena_bytes}")
    for k, a in enumerate(used):
        for b in used[k + 1 :]:
            if b.slot != a.slot or (a.slot < 0 and b.offset >= a.offset + (_bytes(a) or 0)):
                break
            if live[a.name][0] <= live[b.name][1] and live[b.name][0] <= live[a.name][1]:
                at = max(live[a.name][0], live[b.name][0])
                _fail(where, f"buffers {a.name} and {b.name} overlap and are both live at call {at}")


def _bytes(b: Buffer) -> int | None:
    return prod(int(d) for d in b.elements) * b.itemsize if all(d.is_const for d in b.elements) else None


VERIFIERS: Mapping[type, tuple[Callable[[Any], None], ...]] = {
    Graph: (verify_graph,),
    Plan: (verify_plan,),
    Scop: (verify_scop,),
    LoopNest: (verify_nest,),
    Source: (verify_source,),
    Program: (verify_program,),
}
