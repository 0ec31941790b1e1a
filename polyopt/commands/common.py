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
from rich.text import Text

import polyopt as po

from ..errors import ArgumentError, ModelError, OutputError, UserError
from ..ir.program import Port
from ..options import FP_LEVELS, TARGETS, Options
from ..target import ISAS
from .inputs import Arrays, PortLike, bind_dims, default_arrays, dims_of, parse_dims, read_npz
from .oracle import require

F = TypeVar("F", bound=Callable[..., Any])

model_argument = click.argument("model", metavar="M.onnx")
dim_option = click.option("--dim", "dims", metavar="NAME=VALUE", multiple=True, help="Value of a symbolic dim.")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
threads_option = click.option("--threads", type=int, default=1, show_default=True, help="Threads of the compiled code.")


def examples(*lines: str) -> str:
    """What stands below a command's options in its help; click keeps the lines as they are after a backspace."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


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
def spinner(what: str) -> Iterator[None]:
    """Say on stderr what runs, where that is a terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text(what)):
            yield
    else:
        yield


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on stderr what runs, with a spinner where that is a terminal, and how long it took."""
    start = time.perf_counter()
    with spinner(what):
        yield
    Console(stderr=True, highlight=False).print(f"{what}: {time.perf_counter() - start:.1f} s", soft_wrap=True, markup=False)


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
    fixed = dims_of(ports, given)
    bound = bind_dims(ports, {**options.dims, **fixed} if loaded else fixed)
    empty = next((d for d, n in bound.items() if n == 0), None)
    if empty is not None:
        raise ArgumentError(f"the given inputs make dim {empty} 0: they hold nothing to compute with")
    guessed = {d: n for d, n in bound.items() if d not in fixed and d not in options.dims}
    with guesses_named(guessed):
        program = loaded or compiled(path, replace(options, dims={**options.dims, **bound}))
    made_up = default_arrays([p for p in ports if p.name not in given], bound)
    if made_up:
        shown = ", ".join(f"{name} {a.dtype}{list(a.shape)}" for name, a in list(made_up.items())[:4])
        click.echo(f"inputs made up: {shown}{', …' if len(made_up) > 4 else ''}", err=True)
    return program, made_up | given


@contextmanager
def guesses_named(guessed: Mapping[str, int]) -> Iterator[None]:
    """Add to an error about a model which dims the user left open, since it may come of them."""
    try:
        yield
    except ModelError as error:
        if not guessed:
            raise
        values = ", ".join(f"{d}={n}" for d, n in guessed.items())
        raise ModelError(f"{error}; this is with {values}, not given: use --dim NAME=VALUE, or give inputs of the shape you mean") from error


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
    for name in names:
        require(name)
    return names


def not_given(inputs: str | None) -> str:
    """What to add where outputs differ: made-up inputs may lie where a model answers nothing well."""
    return "" if inputs else "; the inputs were made up: see with real ones (--inputs F.npz)"
