"""Build and run emitted kernels against NumPy. Takes a LoopNest and arrays; gives what the C function leaves in them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from polyopt.codegen.c import emit_kernel
from polyopt.ir.loops import LoopNest
from polyopt.ir.source import Source
from polyopt.target import ISAS, Target, cpu_flags

FLAGS = ("-std=c11", "-O1", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")
HERE = [n for n in ("scalar", "avx2", "avx512") if set(ISAS[n].cpu) <= cpu_flags()]
_DIR = tempfile.TemporaryDirectory()


def target(isa: str, threads: int = 1) -> Target:
    return Target(ISAS[isa], threads=threads)


@cache
def head(flags: tuple[str, ...], cc: str, extra: tuple[str, ...]) -> tuple[str, ...]:
    """Flags that bring a precompiled header: parsing immintrin.h is most of the cost of a small kernel."""
    name = Path(_DIR.name) / f"head{abs(hash((flags, cc, extra)))}.h"
    names = ["stdint.h", "math.h", "string.h", *(["immintrin.h"] if flags else [])]
    name.write_text("".join(f"#include <{n}>\n" for n in names))
    done = subprocess.run([cc, *extra, *flags, "-x", "c-header", str(name), "-o", f"{name}.gch"], capture_output=True)
    return ("-include", str(name)) if done.returncode == 0 else ()


@cache
def build(text: str, flags: tuple[str, ...], cc: str = "cc", extra: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    stem = Path(_DIR.name) / f"k{abs(hash((text, flags, cc)))}"
    stem.with_suffix(".c").write_text(text)
    so = stem.with_suffix(".so")
    command = [cc, *extra, *flags, *(head(flags, cc, extra) if cc == "cc" else ()), "-o", str(so), str(stem.with_suffix(".c")), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
    return ctypes.CDLL(str(so))


def aligned(n: int) -> np.ndarray:
    raw = np.empty(n + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n]


def call(src: Source, arrays: dict[str, np.ndarray], scalars: dict[str, float] | None = None, params: dict[str, int] | None = None,
         cc: str = "cc") -> None:  # fmt: skip
    fn = getattr(build(src.text, src.flags, cc), src.entry)
    args: list[object] = [arrays[t.name].ctypes.data_as(ctypes.c_void_p) for t in src.tensors]
    kinds = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64}
    args += [kinds[s.dtype.name]((scalars or {})[s.name]) for s in src.scalars]
    args += [ctypes.c_int64((params or {})[p]) for p in src.params]
    if src.needs_scratch:
        size = src.scratch_bytes
        if isinstance(size, str):
            size = eval(size.replace("(int64_t)", "").replace("/", "//"), {}, dict(params or {}))
        keep = aligned(size)
        args.append(keep.ctypes.data_as(ctypes.c_void_p))
    fn(*args)


def run(nest: LoopNest, arrays: dict[str, np.ndarray], isa: str, fp: str = "default", **kw: dict[str, int]) -> dict[str, np.ndarray]:
    """Emit, build and call; the arrays are copied."""
    out = {k: np.array(v, order="C") for k, v in arrays.items()}
    call(emit_kernel(nest, target(isa), fp), out, kw.get("scalars"), kw.get("params"))
    return out


def have(program: str) -> bool:
    return shutil.which(program) is not None
