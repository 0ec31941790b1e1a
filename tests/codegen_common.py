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


@cache
def build_static(text: str) -> Path:
    """An aarch64 program around a kernel's text."""
    stem = Path(_DIR.name) / f"n{abs(hash(text))}"
    stem.with_suffix(".c").write_text(text)
    command = ["aarch64-linux-gnu-gcc", "-std=c11", "-O1", "-Wall", "-Werror", "-ffp-contract=off", "-static"]
    done = subprocess.run([*command, "-o", str(stem), str(stem.with_suffix(".c")), "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
    return stem


def call_qemu(src: Source, arrays: dict[str, np.ndarray], scalars: dict[str, float], params: dict[str, int]) -> None:
    """Run a kernel in a program that reads its arrays from stdin and writes them to stdout."""
    lines, args = [], []
    for i, t in enumerate(src.tensors):
        lines.append(f"static unsigned char b{i}[{max(1, arrays[t.name].nbytes)}] __attribute__((aligned(64)));")
        args.append(f"(void *)b{i}")
    args += [repr(scalars[s.name]) for s in src.scalars] + [str(params[p]) for p in src.params]
    size = src.scratch_bytes
    if isinstance(size, str):
        size = eval(size.replace("(int64_t)", "").replace("/", "//"), {}, dict(params))
    if src.needs_scratch:
        lines.append(f"static char work[{size}] __attribute__((aligned(64)));")
        args.append("work")
    moves = [[f"if (fwrite(b{i}, 1, {a.nbytes}, stdout) != {a.nbytes}) return 1;".replace("fwrite", fn).replace("stdout", stream)
              for i, a in enumerate(arrays[t.name] for t in src.tensors)] for fn, stream in (("fread", "stdin"), ("fwrite", "stdout"))]  # fmt: skip
    main = "\n    ".join(["int main(void)\n{", *moves[0], f"{src.entry}({', '.join(args)});", *moves[1], "return 0;\n}"])
    exe = build_static("#include <stdio.h>\n" + src.text + "\n".join(lines) + "\n" + main + "\n")
    data = b"".join(arrays[t.name].tobytes() for t in src.tensors)
    out = subprocess.run([shutil.which("qemu-aarch64") or "qemu-aarch64-static", str(exe)], input=data, capture_output=True, check=True).stdout
    assert len(out) == len(data)
    for t in src.tensors:
        a = arrays[t.name]
        a[...] = np.frombuffer(out[: a.nbytes], a.dtype).reshape(a.shape)
        out = out[a.nbytes :]


def run(nest: LoopNest, arrays: dict[str, np.ndarray], isa: str, fp: str = "default", **kw: dict[str, int]) -> dict[str, np.ndarray]:
    """Emit, build and call; the arrays are copied."""
    out = {k: np.array(v, order="C") for k, v in arrays.items()}
    src = emit_kernel(nest, target(isa), fp)
    if isa == "neon":
        call_qemu(src, out, kw.get("scalars") or {}, kw.get("params") or {})
    else:
        call(src, out, kw.get("scalars"), kw.get("params"))
    return out
