"""One variant of one kernel in a process of its own, so that one that takes too long can be stopped.

Takes the kernel, the size and the variant from the command line; answers each line on stdin with a line on stdout: `run` gives the seconds of
one run on fresh inputs, measured in C around the kernel (ours and the peers alike); `save PATH` does so too and saves the outputs. Started by
`measure`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import polyopt as po
from benchmarks.polybench import KERNELS, Kernel
from polyopt.runtime.load import load_kernel

from .naive import emit_naive


def ours(kernel: Kernel, size: str, threads: int) -> tuple[Any, dict[str, Any]]:
    """The compiled kernel as a function of the list of arguments, and what is known of it."""
    dims = kernel.dims(size)
    nest = kernel.nest.specialize(**dims)
    start = time.perf_counter()
    nest.scop  # noqa: B018
    schedule = po.auto(nest, threads=threads, fp="fast")
    source = schedule.source(threads=threads, fp="fast")
    made = time.perf_counter() - start
    f = load_kernel(source, threads=threads if threads > 1 else None)
    facts = {
        "compile_s": made, "c_compile_s": time.perf_counter() - start - made, "lines": source.text.count("\n"), "label": schedule.label,
        "steps": [str(s) for s in schedule.history],
    }  # fmt: skip
    tensors = [t.name for t in nest.scop.tensors if t.role != "local"]
    scalars = [s.name for s in nest.scop.scalars]

    def run(arguments: dict[str, Any]) -> float:
        return f.time(*(arguments[n] for n in (*tensors, *scalars)), repeat=1)[0]

    return run, facts


def python(kernel: Kernel, size: str) -> Any:
    """The nest as plain Python, as a function of the arguments by name."""
    nest = kernel.nest.specialize(**kernel.dims(size))

    def run(arguments: dict[str, Any]) -> float:
        before = time.perf_counter()
        nest.reference(*(arguments[n] for n, _ in nest.signature))
        return time.perf_counter() - before

    return run


def peer(kernel: Kernel, size: str, library: str) -> Any:
    """A peer's library as a function of the arguments by name."""
    scop = kernel.nest.specialize(**kernel.dims(size)).scop
    f = ctypes.CDLL(library).kernel
    f.restype = ctypes.c_double
    tensors = [t.name for t in scop.tensors if t.role != "local"]

    def run(arguments: dict[str, Any]) -> float:
        pointers = [ctypes.c_void_p(arguments[t].ctypes.data) for t in tensors]
        scalars = [(ctypes.c_float if s.dtype.name == "f32" else ctypes.c_double)(arguments[s.name]) for s in scop.scalars]
        seconds: float = f(*pointers, *scalars)
        return seconds

    return run


def _pages(like: Any) -> Any:
    """A dense array that starts on a page, as those of the suite do."""
    memory = np.empty(like.nbytes + 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    return memory[start : start + like.nbytes].view(like.dtype).reshape(like.shape)


def main(name: str, size: str, variant: str, where: str, threads: str) -> None:
    """Answer requests until stdin ends."""
    kernel = KERNELS[name]
    facts: dict[str, Any] = {}
    if variant == "naive":
        Path(where).write_text(emit_naive(kernel.nest.specialize(**kernel.dims(size)).scop))
        print("{}", flush=True)
        return
    if variant == "ours":
        run, facts = ours(kernel, size, int(threads))
    elif variant == "python":
        run = python(kernel, size)
    else:
        run = peer(kernel, size, where)
    print(repr(facts), flush=True)
    inputs = kernel.init(**kernel.dims(size))
    fresh = {k: _pages(v) if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    for line in sys.stdin:
        word, _, path = line.strip().partition(" ")
        for k, v in inputs.items():
            if isinstance(v, np.ndarray):
                fresh[k][...] = v
        seconds = run(fresh)
        if word == "save":
            np.savez(path, **kernel.results(fresh, kernel.dims(size)))  # type: ignore[arg-type]  # names of arrays
        print(seconds, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
