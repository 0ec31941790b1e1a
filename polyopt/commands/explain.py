"""`polyopt explain`: how each kernel of a model is scheduled, what is proven of it, and the C text that comes of it. Needs no C
compiler."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import click

import polyopt as po

from ..errors import ArgumentError
from .common import compiled, compiler_options, examples, existing_model, model_argument, options_of, progress, spinner
from .inputs import bind_dims, default_arrays


@click.command("explain", epilog=examples("polyopt explain model.onnx --kernel conv1"))
@model_argument
@click.option("--kernel", metavar="K", help="Only this kernel; the end of its name will do (`inspect` lists them).")
@click.option("--profile", is_flag=True, help="Also the time of each kernel.")
@compiler_options
def explain_command(model: str, kernel: str | None, profile: bool, threads: int, target: str, isa: str, fp: str, dims: tuple[str, ...]) -> None:
    """Show schedule, proof and code of a model's kernels."""
    options = options_of(threads, target, isa, fp, dims)
    existing_model(model)
    with progress(f"read {Path(model).name}"):
        loaded = po.load(model, options=options)
        names = [g.name for g in loaded.plan.groups]
    for name in names if kernel is None else [kernel_called(kernel, names)]:
        with spinner(f"explain {name}"):
            text = loaded.reports.get(name, "writes nothing: its tensors are empty")
        click.echo(f"kernel {name} {text}")
    if profile:
        program = compiled(model, options)
        click.echo(program.profile(default_arrays(program.inputs, bind_dims(program.inputs, {}))))


def kernel_called(name: str, names: Sequence[str]) -> str:
    """The kernel of that name, or the one whose name ends so at a slash."""
    found = [n for n in names if n == name] or [n for n in names if n.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ArgumentError(f"--kernel {name}: {len(found)} kernels end so ({_some(found)}); give more of the name")
    near = difflib.get_close_matches(name, names, 3, 0.3) or names
    raise ArgumentError(f"--kernel {name}: the model has no such kernel (it has {_some(near)}; `polyopt inspect` lists all)")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
