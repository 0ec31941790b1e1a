"""`make demo`: compile a real trained model, run it on this repository's own files, compare error and speed with ONNX Runtime.

The model is Magika's, which recognises a file's type from its first and last bytes; it comes with the PyPI package `magika`.
Bytes become the model's input as that package describes it: stripped, 1024 from each end, padded with a token of their own.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import polyopt as po
from polyopt.cli import guarded
from polyopt.commands.oracle import Deviation, deviation, onnxruntime_peer
from polyopt.commands.timing import interleave, machine, row

ROOT = Path(__file__).resolve().parent.parent
SKIP = {"build", "__pycache__", "dist"}
SHOWN_HIDDEN = {".ci", ".gitignore"}
FILES, SHOWN = 60, 12


def model_folder() -> Path:
    """The newest model that the magika package ships."""
    try:
        folder = Path(str(files("magika"))) / "models"
    except ModuleNotFoundError as error:
        raise po.UserError("the demo's model comes with the package magika: run `make venv`") from error
    found = sorted(folder.glob("*/model.onnx"))
    if not found:
        raise po.UserError(f"{folder} holds no model.onnx")
    return found[-1].parent


def features(path: Path, config: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The model's input for one file: int32[1, beg_size + end_size]."""
    pad, block = config["padding_token"], config["block_size"]
    with path.open("rb") as f:
        head = f.read(block)
        f.seek(max(0, path.stat().st_size - block))
        tail = f.read(block)
    head = head.lstrip()[: config["beg_size"]]
    tail = tail.rstrip()[-config["end_size"] :]
    beginning = [*head] + [pad] * (config["beg_size"] - len(head))
    end = [pad] * (config["end_size"] - len(tail)) + [*tail]
    return np.array([beginning + end], np.int32)


def own_files(config: dict[str, Any]) -> list[Path]:
    """Some of this repository's files that are large enough for the model, those of rare kinds first."""
    found = [p for p in sorted(ROOT.rglob("*")) if p.is_file() and not _skipped(p.relative_to(ROOT))]
    found = [p for p in found if p.stat().st_size >= config["min_file_size_for_dl"]]
    kinds: Counter[str] = Counter()
    ranked = []
    for p in found:
        kind = p.suffix or p.name
        ranked.append((kinds[kind], p))
        kinds[kind] += 1
    return [p for _, p in sorted(ranked)[:FILES]]


def _skipped(path: Path) -> bool:
    hidden = any(part.startswith(".") and part not in SHOWN_HIDDEN for part in path.parts)
    return hidden or bool(SKIP & set(path.parts)) or ".egg-info" in str(path)


def demo() -> int:
    """Run it; the exit code."""
    folder = model_folder()
    config = json.loads((folder / "config.min.json").read_text())
    labels = config["target_labels_space"]
    path = str(folder / "model.onnx")

    print(f"Model: {folder.name} of the package magika, {Path(path).stat().st_size / 1e6:.1f} MB, {len(labels)} types of files")
    start = time.perf_counter()
    model = po.compile(path, threads=1)
    print(f"Compiled in {time.perf_counter() - start:.1f} s: {len(model.kernels)} kernels\n")

    name = model.inputs[0].name
    reference = onnxruntime_peer(path, [p.name for p in model.outputs])
    paths = own_files(config)
    worst = Deviation("", 0.0, 0.0, 1.0)
    seen: Counter[tuple[str, str]] = Counter()
    for p in paths:
        x = features(p, config)
        ours, (theirs,) = model(x), reference({name: x})
        worst = max(worst, deviation(p.name, ours, theirs), key=lambda d: d.max_abs / (d.scale or 1.0))
        best = int(ours[0].argmax())
        kind = (p.suffix or p.name, labels[best])
        if kind not in seen and len(seen) < SHOWN:
            print(f"  {p.relative_to(ROOT)!s:44} {labels[best]:12} {ours[0][best]:.3f}")
        seen[kind] += 1
    print(f"  … {len(paths)} of this repository's files\n")

    x = features(ROOT / "README.md", config)
    times = interleave({"polyopt": lambda: model(x), "onnxruntime": lambda: reference({name: x})}, seconds=5.0)
    line = row("magika", times)
    print(f"Largest error against ONNX Runtime: {worst.max_abs:.2e}, where the largest output is {worst.scale:.2f}")
    print(f"Latency on {machine()['cpu']}, one thread, minimum over {len(times['polyopt'])} interleaved runs:")
    print(f"  polyopt {line.ours * 1e3:.2f} ms, ONNX Runtime {line.peers['onnxruntime'] * 1e3:.2f} ms, ratio {line.ratio:.2f}\n")
    print("Next:")
    print(f"  .venv/bin/polyopt inspect {path}")
    print(f"  .venv/bin/polyopt compile {path} -o /tmp/magika      # C sources, library, header, weights; see example.c")
    print("  make test")
    if not worst.ok:
        raise po.WrongResult(f"{worst.name}: differs from ONNX Runtime by {worst.max_abs:.3g} at scale {worst.scale:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(demo))
