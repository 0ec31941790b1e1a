"""`polyopt bench`: latency of a model, interleaved with other runtimes on the same inputs and number of threads."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ..errors import WrongResult
from .common import (
    compiled_for,
    dim_option,
    examples,
    json_option,
    model_argument,
    not_given,
    npz_reader,
    options_of,
    peers_of,
    print_json,
    progress,
    threads_option,
)
from .oracle import deviation, peer
from .timing import Row, interleave, report, row, table


@click.command(
    "bench",
    epilog=examples(
        "polyopt bench model.onnx --threads 2 --against onnxruntime,openvino",
        "polyopt bench model.onnx --dim height=48 --dim width=192",
    ),
)
@model_argument
@threads_option
@click.option("--against", default="onnxruntime", show_default=True, help="Peers, separated by commas: onnxruntime, openvino.")
@click.option("--inputs", metavar="F.npz", help="Inputs, one array a name; made up where there is no file.")
@click.option("--seconds", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Time to spend on the runs.")
@dim_option
@json_option
def bench_command(model: str, threads: int, against: str, inputs: str | None, seconds: float, dims: tuple[str, ...], as_json: bool) -> None:
    """Time a model and its peers, interleaved.

    Milliseconds are the minimum (median) over the runs; a ratio below 1 means that polyopt is faster.
    """
    line = bench_model(model, threads, peers_of(against), inputs, seconds, dims)
    if as_json:
        print_json(report([line], threads=threads))
    else:
        click.echo(table([line]))


def bench_model(model: str, threads: int, against: tuple[str, ...], inputs: str | None, seconds: float, dims: tuple[str, ...] = ()) -> Row:
    """One line of a benchmark; refuses to time a model whose outputs differ from its peers' by over 1e-4 × scale."""
    program, feed = compiled_for(model, options_of(threads, dims=dims), npz_reader(inputs))
    names = [p.name for p in program.outputs]
    peers = {name: peer(name, model, names, threads) for name in against}
    ours = program.run(feed)
    error = 0.0
    for name, run in peers.items():
        for d in (deviation(n, ours[n], r) for n, r in zip(names, run(feed))):
            if not d.ok:
                where = f"{Path(model).name}: output {d.name} differs from {name}'s"
                raise WrongResult(f"{where} by {d.max_abs:.3g} at scale {d.scale:.3g}{not_given(inputs)}")
            error = max(error, d.max_abs / d.scale if d.scale else 0.0)
    functions = {"polyopt": lambda: program.run(feed)} | {n: (lambda f=f: f(feed)) for n, f in peers.items()}
    with progress(f"time {Path(model).name}"):
        times = interleave(functions, seconds)
    return row(Path(model).stem, times, error=error if peers and math.isfinite(error) else None)
