"""Compiled programs remembered on disk, so that a model compiles once.

Takes a key and a builder of `Program`; gives the program, from the cache where it is there. An entry is one file: the program without its constants,
then the constants, aligned, which are mapped into memory instead of read. Reading an entry builds values of `polyopt.ir` only: an
entry that names any other class is refused and made anew.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polyopt import errors
from polyopt.ir.program import Program

from .cache import Cache, default_cache, key_of

SUFFIX = ".program"
_MAGIC = b"polyopt program 1\n"
_ALIGN = 4096


@cache
def code_fingerprint() -> str:
    """Tells one state of polyopt's code from another: names, sizes and times of its files."""
    package, here = Path(errors.__file__).parent, Path(__file__).parent.parent
    roots = [package, *(d for d in (here / "frontends", here / "codegen", here / "runtime") if d.is_dir())]
    stats = [(str(f.relative_to(r)), f.stat().st_size, f.stat().st_mtime_ns) for r in roots for f in sorted(r.rglob("*.py"))]
    return key_of(repr(stats))


def recall(key: str, cache: Cache | None = None) -> Program | None:
    """The program of a key, or None where the cache has none, or a bad one."""
    path = (default_cache() if cache is None else cache).lookup(key, SUFFIX)
    if path is None:
        return None
    try:
        return read(path)
    except (OSError, ValueError, EOFError, pickle.UnpicklingError, AttributeError, TypeError, KeyError):
        return None


def remember(key: str, build: Callable[[], Program], cache: Cache | None = None) -> Program:
    """The program of a key; `build` makes it where the cache has none or a bad one."""
    store = default_cache() if cache is None else cache
    built: list[Program] = []

    def write(folder: Path) -> Path:
        if not built:  # it is there where a first folder could not be written
            built.append(build())
        target = folder / "program"
        with target.open("wb") as f:
            for chunk in _chunks(built[0]):
                f.write(chunk)
        return target

    path = store.fetch(key, SUFFIX, write)
    if built:
        return built[0]
    try:
        return read(path)
    except (ValueError, EOFError, pickle.UnpicklingError, AttributeError, TypeError, KeyError):
        return build()


def _chunks(program: Program) -> list[bytes | memoryview]:
    """The parts of an entry's file."""
    table: dict[str, tuple[str, tuple[int, ...], int]] = {}
    arrays, at = [], 0
    for name, a in program.constants.items():
        a = np.ascontiguousarray(a)
        table[name] = (a.dtype.str, a.shape, at)
        arrays.append(a)
        at += -(-a.nbytes // _ALIGN) * _ALIGN
    head = pickle.dumps((replace(program, constants={}, meta=dict(program.meta)), table), protocol=5)
    first = -(-(len(_MAGIC) + 8 + len(head)) // _ALIGN) * _ALIGN
    out: list[bytes | memoryview] = [_MAGIC, len(head).to_bytes(8, "little"), head, bytes(first - len(_MAGIC) - 8 - len(head))]
    for a in arrays:
        out.append(a.reshape(-1).view(np.uint8).data if a.size else b"")
        out.append(bytes(-a.nbytes % _ALIGN))
    return out


def read(path: Path) -> Program:
    """The program in an entry's file; its constants are mapped read-only. Raises ValueError for a file of another form."""
    with path.open("rb") as f:
        if f.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{path} is no program")
        size = int.from_bytes(f.read(8), "little")
        program, table = _Reader(io.BytesIO(f.read(size))).load()
    first = -(-(len(_MAGIC) + 8 + size) // _ALIGN) * _ALIGN
    constants: dict[str, np.ndarray[Any, Any]] = {}
    for name, (dtype, shape, at) in table.items():
        count = int(np.prod(shape, dtype=np.int64))
        if count:
            constants[name] = np.memmap(path, np.dtype(dtype), "r", first + at, shape)
        else:
            constants[name] = np.zeros(shape, dtype)
    out = replace(program, constants=constants)
    assert isinstance(out, Program)
    return out


class _Reader(pickle.Unpickler):
    """Builds values of polyopt.ir and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("polyopt.ir.") and "." not in name:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a program")
