"""`polyopt explain`: how each kernel of a model is scheduled, what is proven of it, and the C text that comes of it."""

from __future__ import annotations

from typing import Any

import click

import polyopt as po

from ..errors import ArgumentError
from .common import compiled, compiler_options, model_argument, options_of, progress
from .inputs import bind_dims, default_arrays


@click.command("explain")
@model_argument
@click.option("--kernel", metavar="K", help="Only this kernel (`inspect` lists them).")
@click.option("--profile", is_flag=True, help="Also the time of each kernel.")
@compiler_options
def explain_command(model: str, kernel: str | None, profile: bool, threads: int, target: str, isa: str, fp: str, dims: tuple[str, ...]) -> None:
    """Show schedule, proof and code of a model's kernels."""
    program = compiled(model, options_of(threads, target, isa, fp, dims))
    names = list(program.compiled)
    if kernel is not None and kernel not in names:
        raise ArgumentError(f"--kernel {kernel}: the model has no such kernel (it has {', '.join(names)})")
    with progress("certify"):
        proofs = program.certificate()["kernels"]
    for name in names if kernel is None else [kernel]:
        click.echo(explain_kernel(name, program.compiled[name], proofs))
    if profile:
        click.echo(program.profile(default_arrays(program.inputs, bind_dims(program.inputs, {}))))


def explain_kernel(name: str, c: Any, proofs: dict[str, Any]) -> str:
    """The report of one kernel."""
    report = po.schedule(c.scop).explain()
    claims = "\n".join(f"  {'holds' if x['ok'] else 'FAILS'}: {x['text']}" for x in proofs[c.source.entry]["claims"])
    return f"kernel {name} ({c.source.isa})\n{report}\nproof:\n{claims}\ncode:\n{c.source.text}"
