"""Inputs of a model for the command line. Takes the model's ports and what the user gave; gives one NumPy array a port.

Without a file: floats uniform in [-1, 1) from a fixed seed, integers and bools 0 or 1. Dims that are not bound count 1, a batch
2."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError
from ..ir.affine import Affine
from ..ir.dtype import DType
from ..options import LARGEST_DIM

Arrays = dict[str, np.ndarray[Any, Any]]
SEED = 20240229
BATCH_NAMES = ("n", "b", "bs")


class PortLike(Protocol):
    """An input of a model: name, dtype and shape in named dims."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[Affine, ...]: ...


def parse_dims(pairs: Iterable[str]) -> dict[str, int]:
    """`("batch=2", …)` as a mapping."""
    out: dict[str, int] = {}
    for pair in pairs:
        name, sep, text = pair.partition("=")
        if not sep or not name or not text.isdecimal() or len(text) > 20 or not 1 <= int(text) <= LARGEST_DIM:
            raise ArgumentError(f"--dim {pair[:80]}: write NAME=VALUE with a whole number of at least 1 and at most {LARGEST_DIM}")
        if out.get(name, int(text)) != int(text):
            raise ArgumentError(f"--dim {pair}: {name} is {out[name]} already")
        out[name] = int(text)
    return out


def is_batch(name: str, ports: Sequence[PortLike]) -> bool:
    """Whether a named dim counts the samples of a batch: it is called so, or leads every input that has named dims."""
    if "batch" in name.lower() or name.lower() in BATCH_NAMES:
        return True
    named = [p.shape for p in ports if any(d.names() for d in p.shape)]
    others = {x for shape in named for d in shape for x in d.names()}
    if any("batch" in x.lower() for x in others):
        return False
    return bool(named) and all(str(shape[0]) == name for shape in named)


def bind_dims(ports: Sequence[PortLike], given: Mapping[str, int]) -> dict[str, int]:
    """A value for every named dim of the inputs: the given one, 2 for a batch, else 1."""
    names = sorted({x for p in ports for d in p.shape for x in d.names()})
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ArgumentError(f"--dim {unknown[0]}: the model has no such dim (it has {', '.join(names) or 'none'})")
    return {n: given.get(n, 2 if is_batch(n, ports) else 1) for n in names}


def default_arrays(ports: Sequence[PortLike], dims: Mapping[str, int]) -> Arrays:
    """The inputs that are used where the user gives none."""
    rng = np.random.default_rng(SEED)
    out: Arrays = {}
    for p in ports:
        shape = tuple(d.evaluate(dims) for d in p.shape)
        if p.dtype.is_float:
            out[p.name] = rng.uniform(-1, 1, shape).astype(_numpy_dtype(p.dtype))
        else:
            out[p.name] = rng.integers(0, 2, shape).astype(_numpy_dtype(p.dtype))
    return out


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    try:
        return np.dtype(dtype.numpy)
    except TypeError:  # bfloat16 is known to NumPy once ml_dtypes is imported, which onnx does
        raise ArgumentError(f"inputs of {dtype} cannot be made up: give them with --inputs or --input") from None


def read_npz(path: str, ports: Sequence[PortLike]) -> Arrays:
    """The arrays of an .npz file, one for each input."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {k: archive[k] for k in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise ArgumentError(f"--inputs {path}: not a readable .npz file ({_reason(error)})") from error
    names = [p.name for p in ports]
    absent = [n for n in names if n not in arrays]
    if absent:
        raise ArgumentError(f"--inputs {path}: no array for input {absent[0]} (the file has {', '.join(sorted(arrays)) or 'none'})")
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        raise ArgumentError(f"--inputs {path}: the model has no input {unknown[0]} (it has {', '.join(names)})")
    return {n: arrays[n] for n in names}


def read_npy(pairs: Iterable[str], ports: Sequence[PortLike]) -> Arrays:
    """The arrays of `--input NAME=FILE.npy`, for the inputs that are named."""
    out: Arrays = {}
    names = [p.name for p in ports]
    for pair in pairs:
        name, sep, path = pair.partition("=")
        if not sep or not path:
            raise ArgumentError(f"--input {pair}: write NAME=FILE.npy")
        if name not in names:
            raise ArgumentError(f"--input {name}: the model has no such input (it has {', '.join(names)})")
        try:
            out[name] = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArgumentError(f"--input {pair}: not a readable .npy file ({_reason(error)})") from error
        if not isinstance(out[name], np.ndarray):
            raise ArgumentError(f"--input {pair}: that is an .npz archive; give one .npy file an input")
    return out


def dims_of(ports: Sequence[PortLike], arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, int]:
    """The named dims that the shapes of given arrays fix."""
    out: dict[str, int] = {}
    for p in ports:
        shape = arrays[p.name].shape if p.name in arrays else ()
        if len(shape) == len(p.shape):
            out.update({str(d): n for d, n in zip(p.shape, shape) if d.names() == {str(d)}})
    return out


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
