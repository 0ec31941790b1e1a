"""`polyopt run`: run a model once, on given or made-up inputs, and show or write what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..errors import OutputError
from .common import compiled_for, compiler_options, examples, options_of, output_folder
from .inputs import read_npy


@click.command(
    "run",
    epilog=examples(
        "polyopt run model.onnx --input x=x.npy --output results/",
        "polyopt run model.onnx --profile",
        "polyopt run out/",
    ),
)
@click.argument("model", metavar="M.onnx|DIR")
@click.option("--input", "given", metavar="NAME=FILE.npy", multiple=True, help="An input; those not named are made up.")
@click.option("--output", metavar="DIR", help="Folder for one .npy file an output.")
@click.option("--profile", is_flag=True, help="Also the time of each kernel.")
@compiler_options
def run_command(
    model: str,
    given: tuple[str, ...],
    output: str | None,
    profile: bool,
    threads: int,
    target: str,
    isa: str,
    fp: str,
    dims: tuple[str, ...],
) -> None:
    """Run a model, or a folder that `polyopt compile` wrote."""
    options = options_of(threads, target, isa, fp, dims)
    folder = None if output is None else output_folder(output)
    program, feed = compiled_for(model, options, lambda ports: read_npy(given, ports), folder=True)
    results: dict[str, np.ndarray[Any, Any]] = program.run(feed)
    for name, array in results.items():
        click.echo(_summary(name, array))
    if folder is not None:
        _write(folder, results)
    if profile:
        click.echo(_profile(program.profile(feed)))


def _profile(times: Sequence[tuple[str, float]]) -> str:
    """The kernels' mean times, the slowest first."""
    total = sum(t for _, t in times) or 1.0
    lines = [f"{t * 1e3:10.4f} ms  {100 * t / total:5.1f} %  {name}" for name, t in sorted(times, key=lambda x: -x[1])]
    return "\n".join([*lines, f"{total * 1e3:10.4f} ms         total"])


def _summary(name: str, array: np.ndarray[Any, Any]) -> str:
    text = f"{name}: {array.dtype}{list(array.shape)}"
    if array.size == 0 or array.dtype.kind not in "fiu":
        return text
    return f"{text}  min {array.min():.6g}  max {array.max():.6g}  mean {array.astype(np.float64).mean():.6g}"


def _write(folder: Path, results: dict[str, np.ndarray[Any, Any]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in results.items():
            path = folder / f"{_file_name(name)}.npy"
            part = path.with_suffix(".part")
            with part.open("wb") as f:
                np.save(f, array)
            part.replace(path)
    except OSError as error:
        raise OutputError(f"--output {folder}: {error.strerror}") from error


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
