"""`polyopt inspect`: what a model consists of: operators, inputs and outputs, kernels with their nodes, and why nodes were not
fused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import click

import polyopt as po

from ..ir.affine import Affine
from ..ir.graph import Graph, Plan, Value
from .common import compiler_options, existing_model, json_option, model_argument, options_of, print_json, progress


@click.command("inspect")
@model_argument
@compiler_options
@json_option
def inspect_command(model: str, threads: int, target: str, isa: str, fp: str, dims: tuple[str, ...], as_json: bool) -> None:
    """Show operators, shapes, kernels and why-nots of a model."""
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
    for k in report["kernels"]:
        click.echo(f"kernel {k['name']}: {' + '.join(k['operators'])} -> {'; '.join(k['outputs'])}")
    for w in report["why_not"]:
        click.echo(f"not fused: {w['producer']} -> {w['consumer']}: {w['why']}")


def summary(graph: Graph, plan: Plan) -> dict[str, Any]:
    """The report as plain data."""
    shown = plan.graph
    return {
        "model": graph.name,
        "inputs": [_value(graph.values[i]) for i in graph.inputs],
        "outputs": [_value(replace(shown.values[o], name=port)) for port, o in zip(graph.outputs, shown.outputs)],
        "operators": dict(sorted(Counter(n.op for n in graph.nodes).items())),
        "kernels": [
            {
                "name": g.name,
                "operators": [n.op for n in g.nodes],
                "nodes": [n.name for n in g.nodes],
                "outputs": [f"{o} {_shape(shown.values[o].shape)}" for o in g.outputs],
            }
            for g in plan.groups
        ],
        "why_not": [{"producer": a, "consumer": b, "why": why} for (a, b), why in sorted(plan.why_not.items())],
    }


def _value(v: Value) -> dict[str, Any]:
    return {"name": v.name, "dtype": str(v.dtype), "shape": [str(d) for d in v.shape or ()]}


def _shape(shape: tuple[Affine, ...] | None) -> str:
    return "[?]" if shape is None else f"[{', '.join(map(str, shape))}]"
