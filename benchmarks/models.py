"""Whole models against other runtimes: the .onnx files of a folder, else the models that `benchmarks.zoo` builds with seeded
weights.

    python -m benchmarks.models [--models DIR] [--threads N] [--against onnxruntime,openvino] [--check-all] [--json] [NAME…]

Inputs come from NAME.npz beside NAME.onnx where that exists, else they are made up from a fixed seed. Outputs are compared with
the first peer's before anything is timed; `--check-all` only compares, model after model, and times nothing."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

import polyopt as po
from benchmarks import zoo
from benchmarks.timing import Row, finish, parser, run
from polyopt.commands.bench import bench_model
from polyopt.commands.check import check_model
from polyopt.commands.common import peers_of


@contextlib.contextmanager
def model_files(folder: str | None, names: list[str]) -> Iterator[list[Path]]:
    """The models to run; those of the zoo are written to a folder that is removed afterwards."""
    if folder is not None:
        found = {p.stem: p for p in sorted(Path(folder).glob("*.onnx"))}
        if not found:
            raise po.UserError(f"--models {folder}: there is no .onnx file")
        yield [found[_known(n, list(found))] for n in names] if names else list(found.values())
        return
    chosen = [_known(n, list(zoo.MODELS)) for n in names] or list(zoo.MODELS)
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for name in chosen:
            path = Path(place) / f"{name}.onnx"
            model = zoo.build(name)
            onnx.save(model, path)
            np.savez(path.with_suffix(".npz"), **zoo.random_inputs(model))
            paths.append(path)
        yield paths


def _known(name: str, names: list[str]) -> str:
    if name not in names:
        raise po.UserError(f"there is no model {name}: choose among {', '.join(names)}")
    return name


def one(path: Path, threads: int, against: tuple[str, ...], seconds: float) -> Row:
    """Check, then time one model."""
    inputs = path.with_suffix(".npz")
    return bench_model(str(path), threads, against, str(inputs) if inputs.exists() else None, seconds)


def check(path: Path, threads: int) -> str:
    """How far the model's outputs are from ONNX Runtime's, as a note; empty where they agree."""
    inputs = path.with_suffix(".npz")
    found = check_model(str(path), str(inputs) if inputs.exists() else None, (), threads, "native")
    return "; ".join(f"output {d.name} differs by {d.max_abs:.3g} at scale {d.scale:.3g}" for d in found if not d.ok)


def main() -> int:
    """Run the chosen models; the exit code."""
    p = parser("models", "whole models against other runtimes")
    p.add_argument("names", nargs="*", metavar="NAME", help="models to run (default all)")
    p.add_argument("--models", metavar="DIR", help="folder of .onnx files (default: the models of benchmarks/zoo.py)")
    p.add_argument("--against", default="onnxruntime", help="peers, separated by commas: onnxruntime, openvino")
    p.add_argument("--check-all", action="store_true", help="compare the outputs of all models, time none")
    arguments = p.parse_args()
    peers = peers_of(arguments.against)
    rows: list[Row] = []
    wrong: list[str] = []
    checked: dict[str, str] = {}
    with model_files(arguments.models, arguments.names) as paths:
        for path in paths:
            try:
                if arguments.check_all:
                    checked[path.stem] = check(path, arguments.threads)
                    wrong += [f"{path.stem}: {checked[path.stem]}"] if checked[path.stem] else []
                else:
                    rows.append(one(path, arguments.threads, peers, arguments.seconds))
            except po.PolyoptError as error:  # one model that fails must not hide the others
                checked[path.stem] = str(error)
                wrong.append(f"{path.stem}: {error}")
    if arguments.check_all and not arguments.json:
        print("\n".join(f"{name:28} {note or 'ok'}" for name, note in checked.items()))
        if wrong:
            raise po.WrongResult("; ".join(wrong))
        return 0
    return finish(rows, wrong, arguments.json, threads=arguments.threads, checked=checked)


if __name__ == "__main__":
    run(main)
