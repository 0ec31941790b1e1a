"""Loading: a path, bytes or ModelProto becomes a ModelProto that is worth reading further.

Gives `Loaded`: the model, the folder of its external data (None for bytes), and a label for messages. Files that are missing,
empty, truncated or no ONNX, versions that are too new or too old, are a one-line `ModelError`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import ModelProto, version_converter

from polyopt.errors import ModelError

Source = str | os.PathLike[str] | bytes | ModelProto
OLDEST = 7


@dataclass(frozen=True)
class Loaded:
    """A model as protobuf, where its external data lies, what to call it, and its opset."""

    model: ModelProto
    folder: Path | None
    label: str
    name: str
    opset: int


def load_model(source: Source) -> Loaded:
    """Load and check the outer shell: it parses, has a graph with outputs, and an opset that is known here."""
    folder: Path | None = None
    if isinstance(source, ModelProto):
        model, label, name = source, "the model", source.graph.name
    elif isinstance(source, bytes | bytearray | memoryview):
        model, label, name = _parse(bytes(source), "the model"), "the model", ""
    elif not isinstance(source, str | os.PathLike):
        raise ModelError(f"a model is a path, the bytes of a file or a ModelProto, not {type(source).__name__}")
    else:
        path = Path(source)
        label, name, folder = str(path), path.stem, path.parent
        model = _parse(_read(path), label)
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{label} is not an ONNX model: it has no graph with outputs")
    opset = _opset(model, label)
    if opset < OLDEST:
        model, opset = _upgrade(model, opset, label), OLDEST
    if model.functions:
        model = _inline(model, label)
    return Loaded(model, folder, label, name or model.graph.name or "model", opset)


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder: give the .onnx file itself") from None
    except OSError as e:
        raise ModelError(f"{path} cannot be read: {e.strerror or e}") from None
    if not data:
        raise ModelError(f"{path} is empty: not an ONNX model")
    return data


def _parse(data: bytes, label: str) -> ModelProto:
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError):
        raise ModelError(f"{label} is not an ONNX model, or is truncated: its {len(data)} bytes do not parse") from None
    return model


def _opset(model: ModelProto, label: str) -> int:
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    if "" not in versions:
        if any(n.domain in ("", "ai.onnx") for n in model.graph.node):
            raise ModelError(f"{label} imports no version of the standard operators (opset_import is empty)")
        return int(onnx.defs.onnx_opset_version())
    newest = int(onnx.defs.onnx_opset_version())
    if versions[""] > newest:
        raise ModelError(f"{label} has opset {versions['']}, newer than the newest known here: export it with opset {newest}")
    return int(versions[""])


def _upgrade(model: ModelProto, opset: int, label: str) -> ModelProto:
    """Models older than opset 7 (before broadcasting was numpy's) go through onnx's own converter."""
    if opset < 1:
        raise ModelError(f"{label} has opset {opset}: not a valid version")
    try:
        return version_converter.convert_version(model, OLDEST)
    except Exception as e:
        line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(f"{label} has opset {opset}, too old: export it with opset {OLDEST} or newer (conversion: {line})") from None


def _inline(model: ModelProto, label: str) -> ModelProto:
    try:
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    except Exception as e:
        line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ModelError(f"{label}: its functions cannot be inlined: {line}") from None
    if inlined.functions:
        left = ", ".join(sorted(f"{f.domain}::{f.name}" for f in inlined.functions))
        raise ModelError(f"{label}: these functions cannot be inlined (recursive, or of another opset): {left}")
    return inlined
