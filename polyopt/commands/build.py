"""`polyopt compile`: a model becomes a folder with a shared library, its C sources, a header, weights, a manifest and an
example."""

from __future__ import annotations

from pathlib import Path

import click

from .common import compiled, compiler_options, examples, model_argument, options_of, output_folder, progress


@click.command(
    "compile",
    epilog=examples(
        "polyopt compile model.onnx -o out/",
        "polyopt compile model.onnx -o out/ --isa avx2 --dim batch=1",
    ),
)
@model_argument
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write; made where it does not exist.")
@compiler_options
def compile_command(model: str, output: str, threads: int, target: str, isa: str, fp: str, dims: tuple[str, ...]) -> None:
    """Compile a model to a library that needs no Python."""
    options = options_of(threads, target, isa, fp, dims)
    folder = output_folder(output)
    program = compiled(model, options)
    with progress(f"write {folder}"):
        program.save(folder)
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
        click.echo(f"{path.stat().st_size:12d}  {path}")
