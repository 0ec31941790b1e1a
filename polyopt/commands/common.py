"""What the commands share: options of the compiler on the command line, progress on stderr, JSON on stdout, folders for
results."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

import polyopt as po

from ..errors import ArgumentError, ModelError, OutputError, UserError
from ..ir.program import Port
from ..options import FP_LEVELS, TARGETS, Options
from ..target import ISAS
from .inputs import Arrays, PortLike, bind_dims, default_arrays, dims_of, parse_dims, read_npz

F = TypeVar("F", bound=Callable[..., Any])

model_argument = click.argument("model", metavar="M.onnx")
dim_option = click.option("--dim", "dims", metavar="NAME=VALUE", multiple=True, help="Value of a symbolic dim.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
threads_option = click.option("--threads", type=int, default=1, show_default=True, help="Threads of the compiled code.")


def compiler_options(command: F) -> F:
    """--threads --target --isa --fp --dim."""
    for option in (
        dim_option,
        click.option("--fp", default="default", show_default=True, help=f"Floating point: {', '.join(FP_LEVELS)}."),
        click.option("--isa", default="native", show_default=True, help="native, scalar, avx2, avx512 or neon."),
        click.option("--target", default="cpu", show_default=True, help=f"{', '.join(TARGETS)}."),
        threads_option,
    ):
        command = option(command)
    return command


def options_of(threads: int, target: str = "cpu", isa: str = "native", fp: str = "default", dims: Sequence[str] = ()) -> Options:
    """The frozen options of a command line."""
    if isa != "native" and isa not in ISAS:
        raise UserError(f"--isa {isa}: choose one of native, {', '.join(ISAS)}")
    return Options(target=target, isa=isa, threads=threads, fp=fp, dims=parse_dims(dims))


def existing_model(path: str, folder: bool = False) -> str:
    """The path, refused where it is no readable file (or folder, where that may be), before anything is imported or compiled."""
    p = Path(path)
    if p.is_dir() and not folder:
        raise ModelError(f"{path} is a folder: give an .onnx file")
    if not p.exists():
        raise ModelError(f"{path}: no such file")
    if not os.access(p, os.R_OK):
        raise ModelError(f"{path}: cannot be read")
    return path


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on stderr what runs, with a spinner where that is a terminal, and how long it took."""
    console = Console(stderr=True, highlight=False)
    start = time.perf_counter()
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield
    console.print(f"{what}: {time.perf_counter() - start:.1f} s", soft_wrap=True, markup=False)


def compiled(path: str, options: Options, folder: bool = False) -> Any:
    """The compiled model, or that of a folder which `polyopt compile` wrote, with progress."""
    existing_model(path, folder)
    with progress(f"{'load' if Path(path).is_dir() else 'compile'} {Path(path).name}"):
        return po.compile(path, options=options)


def compiled_for(path: str, options: Options, read: Callable[[Sequence[PortLike]], Arrays], folder: bool = False) -> tuple[Any, Arrays]:
    """The model compiled for the shapes of its inputs, and the inputs: those that `read` gives, the others made up."""
    existing_model(path, folder)
    loaded = compiled(path, options, folder) if Path(path).is_dir() else None
    ports = _ports(path, options) if loaded is None else loaded.inputs
    given = read(ports)
    bound = bind_dims(ports, dims_of(ports, given))
    empty = next((d for d, n in bound.items() if n == 0), None)
    if empty is not None:
        raise ArgumentError(f"the given inputs make dim {empty} 0: they hold nothing to compute with")
    program = loaded or compiled(path, replace(options, dims={**options.dims, **bound}))
    return program, default_arrays([p for p in ports if p.name not in given], bound) | given


def _ports(path: str, options: Options) -> tuple[Port, ...]:
    """The inputs of a model that is only read."""
    graph = po.load(path, options=options).graph
    values = [graph.values[name] for name in graph.inputs]
    return tuple(Port(v.name, v.dtype, v.shape) for v in values if v.dtype is not None and v.shape is not None)


def npz_reader(path: str | None) -> Callable[[Sequence[PortLike]], Arrays]:
    """What reads the inputs of --inputs; none where there is no file."""
    return lambda ports: read_npz(path, ports) if path else {}


def print_json(value: Mapping[str, Any]) -> None:
    """One object on stdout, nothing else there."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def output_folder(path: str) -> Path:
    """The folder for results, refused before any work where it cannot be written; made where its parent exists."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{path} exists and is no folder")
    place = folder if folder.exists() else next(p for p in folder.absolute().parents if p.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: {place} cannot be written")
    return folder


def peers_of(text: str) -> tuple[str, ...]:
    """`onnxruntime,openvino` as names."""
    names = tuple(n.strip() for n in text.split(",") if n.strip())
    if len(set(names)) != len(names):
        raise UserError(f"--against {text}: a peer is named twice")
    return names
