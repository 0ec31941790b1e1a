"""`polyopt check`: the largest error of each output against ONNX Runtime; exit code 2 where one is over 1e-4 × its largest
value."""

from __future__ import annotations

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
    print_json,
    threads_option,
)
from .oracle import Deviation, deviation, onnxruntime_peer, require


@click.command(
    "check",
    epilog=examples(
        "polyopt check model.onnx",
        "polyopt check model.onnx --inputs inputs.npz",
        "polyopt check model.onnx --dim batch=4 --json",
    ),
)
@model_argument
@click.option("--inputs", metavar="F.npz", help="Inputs, one array a name; made up where there is no file.")
@dim_option
@threads_option
@click.option("--isa", default="native", show_default=True, help="native, scalar, avx2, avx512 or neon.")
@json_option
def check_command(model: str, inputs: str | None, dims: tuple[str, ...], threads: int, isa: str, as_json: bool) -> None:
    """Compare a model's outputs with ONNX Runtime's."""
    found = check_model(model, inputs, dims, threads, isa)
    ok = all(d.ok for d in found)
    if as_json:
        print_json({"model": model, "oracle": "onnxruntime", "ok": ok, "outputs": [d.json() for d in found]})
    else:
        for d in found:
            click.echo(f"{d.name}: max_abs {d.max_abs:.3g}  max_rel {d.max_rel:.3g}  scale {d.scale:.6g}  {'ok' if d.ok else 'WRONG'}")
    if not ok:
        worst = next(d for d in found if not d.ok)
        where = f"{Path(model).name}: output {worst.name} differs"
        raise WrongResult(f"{where} by {worst.max_abs:.3g} at scale {worst.scale:.3g}{not_given(inputs)}")


def check_model(model: str, inputs: str | None, dims: tuple[str, ...], threads: int, isa: str) -> list[Deviation]:
    """The deviation of every output, in order."""
    require("onnxruntime")
    program, feed = compiled_for(model, options_of(threads, isa=isa, dims=dims), npz_reader(inputs))
    names = [p.name for p in program.outputs]
    ours = program.run(feed)
    reference = onnxruntime_peer(model, names, threads)(feed)
    return [deviation(n, ours[n], r) for n, r in zip(names, reference)]
