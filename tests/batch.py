"""Many small kernels in one C file, so that a test of hundreds of programs waits for few compilers. Takes LoopNests; gives callables
that run them on copies of arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyopt.codegen.c import emit_kernel
from polyopt.ir.loops import LoopNest
from polyopt.ir.source import Source
from polyopt.runtime.build import build_library
from polyopt.runtime.compiler import OPENMP_FLAG, Unit
from polyopt.target import cpu_target

Array = np.ndarray[Any, Any]
GUARD = 64  # bytes before and after each array, which no kernel may change


@dataclass(frozen=True)
class Job:
    """A kernel and how it is emitted."""

    nest: LoopNest
    isa: str = "scalar"
    fp: str = "default"
    threads: int = 1


def emit_jobs(jobs: Sequence[Job]) -> list[Source]:
    """The kernels' texts, each with an entry of its own."""
    named = (replace(j.nest, name=f"{j.nest.name}_{k}") for k, j in enumerate(jobs))
    return [emit_kernel(n, cpu_target(j.isa, j.threads), j.fp, j.threads > 1) for n, j in zip(named, jobs, strict=True)]


def build_batch(sources: Sequence[Source], name: str = "batch") -> ctypes.CDLL:
    """One library of all kernels: a C file for each ISA, compiled side by side."""
    units = []
    for isa, openmp in sorted({(s.isa, OPENMP_FLAG in s.flags) for s in sources}):
        mine = [s for s in sources if (s.isa, OPENMP_FLAG in s.flags) == (isa, openmp)]
        text = "\n".join(s.text for s in mine)
        units.append(Unit(f"{name}_{isa}{'_omp' if openmp else ''}", text, (*mine[0].flags, "-O1")))
    return ctypes.CDLL(str(build_library(units)))


def run_kernel(library: ctypes.CDLL, s: Source, arrays: Mapping[str, Array], params: Mapping[str, int]) -> dict[str, Array]:
    """The arrays after a call. Cells around each array are checked to be untouched."""
    held = {t.name: _guarded(arrays[t.name]) for t in s.tensors}
    args: list[object] = [ctypes.c_void_p(held[t.name][1].ctypes.data) for t in s.tensors]
    args += [ctypes.c_int64(params[p]) for p in s.params]
    if s.needs_scratch:
        args.append(ctypes.c_void_p(_guarded(np.zeros(_scratch_bytes(s, params), np.uint8))[1].ctypes.data))
    getattr(library, s.entry)(*args)
    for name, (raw, array) in held.items():
        end = GUARD + array.nbytes
        assert (raw[:GUARD] == 0xAB).all() and (raw[end:] == 0xAB).all(), f"{s.entry} writes outside {name}"
    return {name: array for name, (_, array) in held.items()}


def _guarded(a: Array) -> tuple[Array, Array]:
    raw = np.full(a.nbytes + 3 * GUARD, 0xAB, np.uint8)
    start = -raw.ctypes.data % GUARD + GUARD
    raw = raw[start - GUARD : start + a.nbytes + GUARD]
    out = raw[GUARD : GUARD + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return raw, out


def _scratch_bytes(s: Source, params: Mapping[str, int]) -> int:
    if isinstance(s.scratch_bytes, int):
        return s.scratch_bytes
    text = s.scratch_bytes.replace("(int64_t)", "").replace("/", "//")
    return int(eval(text, {}, dict(params)))
