"""Peers on the same model: ONNX Runtime, the oracle of `check`, and OpenVINO. Takes a model's path; gives callables on dicts of
arrays.

Both are optional dependencies: where one is missing, the error says what to install.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError

Feed = Mapping[str, np.ndarray[Any, Any]]
Peer = Callable[[Feed], list[np.ndarray[Any, Any]]]
PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}  # modules and what they are called


@dataclass(frozen=True)
class Deviation:
    """How an output differs from its reference. `scale` is the largest finite |reference|; NaN and infinities that agree in place
    count as no error. `max_rel` leaves out elements under 1e-6 × scale. Not finite: the shapes, or the places of NaN and
    infinities, differ."""

    name: str
    max_abs: float
    max_rel: float
    scale: float

    @property
    def ok(self) -> bool:
        """Whether the largest error is at most 1e-4 × scale."""
        return self.max_abs <= 1e-4 * self.scale

    def json(self) -> dict[str, Any]:
        """JSON knows no infinity: it becomes null."""
        return {
            "name": self.name,
            "max_abs": self.max_abs if math.isfinite(self.max_abs) else None,
            "max_rel": self.max_rel if math.isfinite(self.max_rel) else None,
            "scale": self.scale,
        }


def deviation(name: str, ours: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> Deviation:
    """Compare one output with its reference, in float64 (integers exactly, as Python compares them)."""
    a, b = np.asarray(ours), np.asarray(reference)
    if a.shape != b.shape or a.dtype != b.dtype:
        return Deviation(name, math.inf, math.inf, 0.0)
    a, b = (x.astype(np.float64 if x.dtype.kind in "fV" else object if x.dtype.itemsize == 8 else np.int64) for x in (a, b))
    if a.size == 0:
        return Deviation(name, 0.0, 0.0, 0.0)
    if a.dtype.kind != "f":
        error = np.abs(a - b)
        scale = float(np.abs(b).max())
        return Deviation(name, float(error.max()), float(error.max()) / max(scale, 1.0), scale)
    finite = np.isfinite(b)
    same = np.where(finite, np.isfinite(a), (a == b) | (np.isnan(a) & np.isnan(b)))
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    if not same.all():
        return Deviation(name, math.inf, math.inf, scale)
    error = np.abs(a[finite] - b[finite])
    size = np.abs(b[finite])
    large = size > 1e-6 * scale
    relative = error[large] / size[large]
    return Deviation(name, float(error.max(initial=0.0)), float(relative.max(initial=0.0)), scale)


def require(name: str) -> None:
    """Refuse a peer that is unknown or not installed, before anything is compiled."""
    if name not in PEERS:
        raise UserError(f"--against {name}: choose among {', '.join(PEERS)}")
    if importlib.util.find_spec(name) is None:
        raise _absent(name)


def _absent(name: str) -> UserError:
    return UserError(f"{PEERS[name]} is not installed: pip install 'polyopt[bench]'")


def peer(name: str, model: str, outputs: Sequence[str], threads: int) -> Peer:
    """A callable for one peer, limited to `threads` threads."""
    require(name)
    return {"onnxruntime": onnxruntime_peer, "openvino": openvino_peer}[name](model, outputs, threads)


def onnxruntime_peer(model: str, outputs: Sequence[str], threads: int = 1) -> Peer:
    """ONNX Runtime's CPU provider with all its optimizations."""
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise _absent("onnxruntime") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UserError(f"ONNX Runtime refuses {model}: {_first_line(error)}") from error

    known = {o.name for o in session.get_outputs()}
    names = list(outputs) if known.issuperset(outputs) else None  # one that the model lists twice has two names here: take all in order

    def run(feed: Feed) -> list[np.ndarray[Any, Any]]:
        try:
            return list(session.run(names, dict(feed)))
        except Exception as error:
            raise UserError(f"ONNX Runtime fails on {model}: {_first_line(error)}") from error

    return run


def openvino_peer(model: str, outputs: Sequence[str], threads: int = 1) -> Peer:
    """OpenVINO's CPU plugin, in float32, tuned for latency."""
    try:
        import openvino as ov
    except ImportError as error:
        raise _absent("openvino") from error
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
    }
    try:
        compiled = ov.Core().compile_model(model, "CPU", config)
        request = compiled.create_infer_request()
    except Exception as error:
        raise UserError(f"OpenVINO refuses {model}: {_first_line(error)}") from error

    def run(feed: Feed) -> list[np.ndarray[Any, Any]]:
        try:
            request.infer(dict(feed))
            return [request.get_tensor(name).data for name in outputs]
        except Exception as error:
            raise UserError(f"OpenVINO fails on {model}: {_first_line(error)}") from error

    return run


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
