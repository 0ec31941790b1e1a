"""The compiler: one function from a graph to a program, a named step a line.

Takes a `Graph` from a front end and `Options`; gives a `Program`. Nothing flows back; tuning is a loop outside. Each step runs under the
tracer, which verifies its result. Kernels that are equal up to names are scheduled and emitted once; a schedule that the user gives for
a kernel, by name, takes the place of the recipe's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyopt.codegen.c import emit_kernel

from .errors import InternalError, UserError
from .ir.affine import affine, var
from .ir.graph import Graph, Plan
from .ir.loops import LoopNest
from .ir.program import Arg, KernelCall, Port, Program
from .ir.scop import Scop
from .ir.source import Source
from .ir.tensor import Tensor
from .ir.text import to_text
from .ir.verify import VERIFIERS
from .lower.kernel import Kernel, lower_group
from .lower.loops import lower_to_loops
from .lower.scop import kernel_scop
from .options import Options
from .passes.fusion import plan_fusion
from .passes.infer_shapes import infer_shapes
from .passes.memory import Size, plan_memory
from .passes.memory_constants import materialize
from .passes.simplify import simplify
from .passes.storage import choose_storage
from .poly.bounds import check_bounds
from .poly.deps import compute_dependences
from .target import Target, cpu_target
from .trace import Trace
from .verbs.recipe import apply_recipe

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Compiled:
    """One kernel that was compiled: the scheduled Scop, its loops and its text."""

    scop: Scop
    nest: LoopNest
    source: Source

    def __repr__(self) -> str:
        lines = self.source.text.count("\n")
        return f"<compiled {self.source.entry}: {self.scop.label}, isa {self.source.isa}, {lines} lines; .scop, .nest, .source>"


def new_trace() -> Trace:
    """A tracer with the verifiers and the printer of every value."""
    return Trace(verifiers=VERIFIERS, text=to_text)


def compile_graph(graph: Graph, options: Options, trace: Trace | None = None, schedules: Mapping[str, Scop] | None = None) -> Program:
    """The program of a graph. `schedules`: scheduled Scops that replace the recipe's, by kernel name."""
    trace = trace or new_trace()
    plan = plan_graph(graph, options, trace)
    program, _ = compile_plan(plan, graph.output_names, options, trace, schedules or {})
    trace.finish()
    return program


def plan_graph(graph: Graph, options: Options, trace: Trace) -> Plan:
    """The graph cut into kernels, with the storage of each tensor."""
    graph = trace.step(infer_shapes, graph)
    graph = trace.step(simplify, graph, options.fp)
    graph = trace.step(infer_shapes, graph)
    plan = trace.step(plan_fusion, graph, options)
    return trace.step(choose_storage, plan, options)


def compile_plan(
    plan: Plan, outputs: Sequence[str], options: Options, trace: Trace, schedules: Mapping[str, Scop]
) -> tuple[Program, dict[str, Compiled]]:
    """The program of a plan, and each group's compiled kernel by the group's name."""
    unknown = sorted(set(schedules) - {g.name for g in plan.groups})
    if unknown:
        known = ", ".join(g.name for g in plan.groups)
        raise UserError(f"there is no kernel {unknown[0]!r}; the kernels are {known}")
    target = target_of(options)
    done: dict[object, Compiled] = {}
    by_name: dict[str, Compiled] = {}
    calls: list[tuple[Kernel, Compiled]] = []
    for group in plan.groups:
        trace.label = group.name
        kernel = lower_group(plan, group)
        if not kernel.nests:  # everything that it writes is empty
            continue
        own = schedules.get(group.name)
        compiled = None if own is not None else done.get(kernel.key)
        if compiled is None:
            compiled = compile_kernel(kernel, options, target, trace, own, f"k{len(set(map(id, by_name.values())))}")
            if own is None:
                done[kernel.key] = compiled
        by_name[group.name] = compiled
        calls.append((kernel, compiled))
    trace.label = ""
    return trace.step(assemble_program, plan, outputs, calls, options), by_name


def compile_kernel(kernel: Kernel, options: Options, target: Target, trace: Trace, own: Scop | None, prefix: str) -> Compiled:
    """A kernel through Scop, schedule, loops and text. `own` replaces the recipe's schedule."""
    if own is None:
        scop = trace.step(kernel_scop, kernel)
        scop = trace.step(check_bounds, scop)
        scop = trace.step(compute_dependences, scop)
        scop = trace.step(apply_recipe, scop, target, options)
    else:
        scop = own
    nest = trace.step(lower_to_loops, scop)
    nest = replace(nest, name=f"{prefix}_{identifier(kernel.name)}")
    return Compiled(scop, nest, emit(nest, options, target, trace))


def emit(nest: LoopNest, options: Options, target: Target, trace: Trace) -> Source:
    """The text of a loop nest for the target."""
    if options.target != "cpu":
        raise UserError(f"target {options.target}: only cpu is available in this installation")
    source: Source = trace.step(emit_kernel, nest, target, options.fp, options.threads > 1)
    return source


def target_of(options: Options) -> Target:
    """The machine model that the options name."""
    return cpu_target(options.isa, options.threads)


def identifier(name: str) -> str:
    """A C identifier from a node's name."""
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
    return text[-40:].lstrip("_") or "kernel"


# ---- the program
def assemble_program(plan: Plan, outputs: Sequence[str], calls: Sequence[tuple[Kernel, Compiled]], options: Options) -> Program:
    """Calls with their arguments, packed constants, the arena, and the model's ports."""
    graph = plan.graph
    places = {v: Arg("input", v) for v in graph.inputs} | {v: Arg("constant", v) for v in graph.constants}
    places |= {v: Arg("output", port) for v, port in zip(graph.outputs, outputs)}
    sizes = _sizes(plan)
    constants: dict[str, Array] = {}
    packed: dict[object, str] = {}
    out = []
    for kernel, c in calls:
        args = []
        for t in c.source.tensors:
            buffer = _buffer(kernel, t)
            arg = places.get(buffer, Arg("arena", buffer))
            if arg.kind == "constant":
                arg = Arg("constant", _constant(graph, kernel, t, buffer, constants, packed))
            args.append(arg)
        out.append(KernelCall(c.source.entry, tuple(args), tuple(var(p) for p in c.source.params), kernel.name))
    buffers, arena = plan_memory(out, sizes)
    kernels = tuple({c.source.entry: c.source for _, c in calls}.values())
    meta = {"fp": options.fp, "labels": {c.source.entry: c.scop.label for _, c in calls}}
    dims = sorted({n for v in (*graph.inputs, *graph.outputs) for d in graph.values[v].shape or () for n in d.names()})
    return Program(
        graph.name, _ports(graph, graph.inputs, graph.inputs), _ports(graph, graph.outputs, outputs), tuple(dims), kernels, tuple(out),
        buffers, arena, constants, threads=options.threads, meta=meta,
    )  # fmt: skip


def _ports(graph: Graph, values: Sequence[str], names: Sequence[str]) -> tuple[Port, ...]:
    out = []
    for v, name in zip(values, names):
        value = graph.values[v]
        if value.dtype is None or value.shape is None:
            raise InternalError(f"port {name} has no dtype or shape")
        out.append(Port(name, value.dtype, value.shape))
    return tuple(out)


def _sizes(plan: Plan) -> dict[str, Size]:
    """The physical shape and item size of each buffer."""
    out: dict[str, Size] = {}
    for v, s in plan.storage.items():
        dtype = plan.graph.values[v].dtype
        assert dtype is not None
        out[s.buffer] = (s.shape or (affine(1),), dtype.bytes)
    return out


def _buffer(kernel: Kernel, t: Tensor) -> str:
    """The buffer or constant that a kernel's argument comes from."""
    name = t.source[0] if t.source is not None else t.name
    arguments = [a.name for a in kernel.tensors if a.role != "local"]
    if name not in arguments:
        raise InternalError(f"kernel {kernel.name}: argument {t.name} is no tensor of its group")
    return kernel.args[arguments.index(name)]


def _constant(graph: Graph, kernel: Kernel, t: Tensor, name: str, constants: dict[str, Array], packed: dict[object, str]) -> str:
    """The constant for an argument, laid out as the kernel wants it; equal layouts of one constant are kept once."""
    array = graph.constants[name]
    if t.source is None:
        constants.setdefault(name, np.ascontiguousarray(array))
        return name
    logical = next(a for a in kernel.tensors if a.name == t.source[0])
    key = (name, logical.shape, t.shape, t.source[1])
    if key not in packed:
        fresh = f"{name}.packed{sum(1 for k in constants if k.startswith(name + '.packed')) or ''}"
        constants[fresh] = materialize(t, array.reshape([int(d) for d in logical.shape]))
        packed[key] = fresh
    return packed[key]
