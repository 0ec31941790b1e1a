"""`polyopt inspect`: what a model consists of: operators, inputs and outputs, kernels with their nodes and arithmetic, and why nodes
were not fused."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

import polyopt as po

from ..ir.affine import Affine
from ..ir.expr import Binary, Call, Unary, walk
from ..ir.graph import Graph, Group, Plan, Value
from ..ir.program import Port
from ..ops.structure import define
from .common import compiler_options, examples, existing_model, json_option, model_argument, options_of, print_json, progress
from .inputs import bind_dims

WIDE = 4096  # columns where no terminal sets a limit


@click.command("inspect", epilog=examples("polyopt inspect model.onnx", "polyopt inspect model.onnx --full --dim batch=4"))
@model_argument
@click.option("--full", is_flag=True, help="All nodes and outputs of each kernel, and the reason for each pair that was not fused.")
@compiler_options
@json_option
def inspect_command(model: str, full: bool, threads: int, target: str, isa: str, fp: str, dims: tuple[str, ...], as_json: bool) -> None:
    """Show operators, shapes, kernels and why-nots of a model.

    By default one line a kernel: its operators, the shape of its output, its arithmetic operations (a multiply-add counts two), and
    why it was not fused with the kernels that it reads from.
    """
    options = options_of(threads, target, isa, fp, dims)
    existing_model(model)
    with progress("inspect"):
        loaded = po.load(model, options=options)
        report = summary(loaded.graph, loaded.plan)
    if as_json:
        print_json(report)
        return
    for port in ("inputs", "outputs"):
        for v in report[port]:
            click.echo(f"{port[:-1]} {v['name']}: {v['dtype']}[{', '.join(v['shape'])}]")
    click.echo("operators: " + ", ".join(f"{n} {op}" for op, n in report["operators"].items()))
    click.echo(_in_full(report) if full else _compact(report))


def _in_full(report: Mapping[str, Any]) -> str:
    lines = [f"kernel {k['name']}: {' + '.join(k['operators'])} -> {'; '.join(k['outputs'])}" for k in report["kernels"]]
    return "\n".join(lines + [f"not fused: {w['producer']} -> {w['consumer']}: {w['why']}" for w in report["why_not"]])


def _compact(report: Mapping[str, Any]) -> str:
    """A table of the kernels; what all their names start with is left out, since `explain --kernel` takes the ends of names."""
    kernels = report["kernels"]
    start = _common_folder([k["name"] for k in kernels])
    at = ", ".join(f"{d}={n}" for d, n in report["flops_at"].items())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("kernel", "operators", "output", "flops", "not fused with what it reads, since"):
        table.add_column(title, justify="right" if title == "flops" else "left", no_wrap=title == "kernel")
    for k in kernels:
        shapes = [o[o.rindex(" [") + 1 :] for o in k["outputs"]]
        table.add_row(k["name"][len(start) :], _counted(k["operators"]), _first(shapes), _si(k["flops"]), _first(k["why_not"]))
    console = Console(width=shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE, highlight=False, markup=False, color_system=None)
    with console.capture() as text:
        console.print(table)
    total = f"{len(kernels)} kernels, {_si(sum(k['flops'] for k in kernels))}flop{f' at {at}' if at else ''}; --full shows all nodes and reasons"
    named = [f"names of kernels start with {start}"] if start else []
    return "\n".join([*named, *(line.rstrip() for line in text.get().splitlines()), total])


def _common_folder(names: list[str]) -> str:
    """What all the names start with, up to a slash."""
    first, last = min(names, default=""), max(names, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), 0)
    return first[: first.rfind("/", 0, same) + 1]


def _first(texts: list[str]) -> str:
    """The first, and how many more there are."""
    return "".join(texts[:1]) + (f" (+{len(texts) - 1})" if len(texts) > 1 else "")


def _counted(operators: list[str]) -> str:
    return " ".join(op if n == 1 else f"{n}×{op}" for op, n in Counter(operators).items())


def _si(n: int) -> str:
    """A count with three digits and a prefix: 12.3 M."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if n >= 0.9995 * 10**power:
            return f"{n / 10**power:.3g} {prefix}"
    return f"{n} "


def summary(graph: Graph, plan: Plan) -> dict[str, Any]:
    """The report as plain data. `flops_at` holds the values of symbolic dims that the arithmetic is counted for."""
    shown = plan.graph
    inputs = [graph.values[i] for i in graph.inputs]
    at = bind_dims([p for v in inputs if (p := _port(v)) is not None], {})
    return {
        "model": graph.name,
        "inputs": [_value(v) for v in inputs],
        "outputs": [_value(replace(shown.values[o], name=port)) for port, o in zip(graph.outputs, shown.outputs)],
        "operators": dict(sorted(Counter(n.op for n in graph.nodes).items())),
        "flops_at": at,
        "kernels": [
            {
                "name": g.name,
                "operators": [n.op for n in g.nodes],
                "nodes": [n.name for n in g.nodes],
                "outputs": [f"{o} {_shape(shown.values[o].shape)}" for o in g.outputs],
                "flops": flops(shown, g, at),
                "why_not": _reasons(plan, g),
            }
            for g in plan.groups
        ],
        "why_not": [{"producer": a, "consumer": b, "why": why} for (a, b), why in sorted(plan.why_not.items())],
    }


def flops(graph: Graph, group: Group, dims: Mapping[str, int]) -> int:
    """The arithmetic operations of a kernel on numbers of any type; conversions, comparisons and moves count nothing."""
    total = 0
    for node in group.nodes:
        d = define(graph, node)
        for nest in d.nests if d is not None else ():
            each = sum(isinstance(x, Unary | Binary | Call) and x.dtype.kind != "b" for x in walk(nest.expr)) + (nest.reduction is not None)
            total += each * math.prod(extent.evaluate(dims) for _, extent in nest.iters)
    return total


def _reasons(plan: Plan, group: Group) -> list[str]:
    """Why the kernel does not hold the nodes that it reads from, each reason once."""
    own = {n.name for n in group.nodes}
    return list(dict.fromkeys(why for (a, b), why in plan.why_not.items() if b in own and a not in own))


def _port(v: Value) -> Port | None:
    return None if v.dtype is None or v.shape is None else Port(v.name, v.dtype, v.shape)


def _value(v: Value) -> dict[str, Any]:
    return {"name": v.name, "dtype": str(v.dtype), "shape": [str(d) for d in v.shape or ()]}


def _shape(shape: tuple[Affine, ...] | None) -> str:
    return "[?]" if shape is None else f"[{', '.join(map(str, shape))}]"
