"""Build, load and wrap: `load_program` for a model, `load_kernel` for one kernel.

Takes `Program` and `Source`; gives `CompiledModel` and `CompiledKernel`. Constants are passed by pointer: nothing of them is written to disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyopt.errors import ArgumentError, CompilerError
from polyopt.ir.program import Program
from polyopt.ir.source import Source

from .arrays import address, aligned_copy
from .build import build_library, check_isa, choose_compiler, is_for_this_machine, kernel_unit, wants_openmp
from .cache import Cache
from .compiler import OPENMP_FLAG, Compiler, Unit
from .entry import emit_entry, emit_kernel_wrapper
from .header import emit_header, prefix_of
from .kernel import CompiledKernel
from .model import CompiledModel, ModelLibrary
from .weights import used_constants

HIDDEN_FLAG = "-fvisibility=hidden"
_loaded: dict[str, list[tuple[int, int, int]]] = {}


def program_units(program: Program, digest: bytes = b"") -> list[Unit]:
    """The C files of a model: its entry, then a file a kernel."""
    kernels = [kernel_unit(k, (HIDDEN_FLAG,)) for k in program.kernels]
    prefix = prefix_of(program)
    openmp = (OPENMP_FLAG,) if wants_openmp(kernels) else ()
    entry = Unit(prefix, emit_entry(program, digest), (HIDDEN_FLAG, *openmp), ((f"{prefix}.h", emit_header(program)),))
    return [entry, *kernels]


def load_program(program: Program, *, threads: int | None = None, cache: Cache | None = None, compiler: Compiler | None = None) -> CompiledModel:
    """Build a program through the cache, and load it. `threads`: at most what it was compiled for (that many by default)."""
    check_threads(threads)
    units = program_units(program)
    compiler, _ = choose_compiler(units, compiler)
    check_kernels(compiler, program.kernels)
    path, opened = _build_and_open(units, f"{prefix_of(program)}_create_with", cache, compiler)
    library = ModelLibrary(opened, prefix_of(program))
    arrays = [aligned_copy(program.constants[c]) for c in used_constants(program)]
    pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(address(a) for a in arrays))
    return CompiledModel(
        program.name, program.inputs, program.outputs, program.dims, library,
        lambda error, size: library.create_with(pointers, error, size),
        labels=[c.label or c.entry for c in program.calls], threads=threads or program.threads, path=str(path), keep=(arrays, pointers),
    )  # fmt: skip


def load_kernel(
    source: Source, *, threads: int | None = None, order: Sequence[str] = (), cache: Cache | None = None, compiler: Compiler | None = None
) -> CompiledKernel:
    """Build one kernel through the cache, and load it. `threads`: for a kernel with OpenMP (None: OpenMP's own choice); `order`: the arguments
    of the Python function that it comes from."""
    check_threads(threads)
    kernel = kernel_unit(source, (HIDDEN_FLAG,))  # as in a program: one object serves both
    openmp = (OPENMP_FLAG,) if wants_openmp([kernel]) else ()
    units = [kernel, Unit(f"{source.entry}_call", emit_kernel_wrapper(source), openmp)]
    compiler, _ = choose_compiler(units, compiler)
    check_kernels(compiler, [source])
    path, opened = _build_and_open(units, "polyopt_call", cache, compiler)
    return CompiledKernel(source, opened, path=str(path), threads=threads or 0, order=order)


def _build_and_open(units: Sequence[Unit], symbol: str, cache: Cache | None, compiler: Compiler) -> tuple[Path, ctypes.CDLL]:
    """Build a library and load it; one that does not load, or lacks a symbol, is built once more: a broken compiler may have left it in the cache."""
    path = build_library(units, cache=cache, compiler=compiler)
    try:
        opened = open_library(path)
    except CompilerError as e:
        if not is_for_this_machine() or "map segment" in str(e):  # a folder mounted noexec
            raise
    else:
        if hasattr(opened, symbol):
            return path, opened
    path = build_library(units, cache=cache, compiler=compiler, fresh=True)
    opened = open_library(path)
    if not hasattr(opened, symbol):
        raise CompilerError(f"{compiler}: the library {path} that it made lacks the function {symbol}: set POLYOPT_CC to another compiler")
    return path, opened


def check_kernels(compiler: Compiler, kernels: Sequence[Source]) -> None:
    """Refuse ISAs that the compiler cannot make code for."""
    for isa in sorted({k.isa for k in kernels}):
        check_isa(compiler, isa)


def check_threads(threads: Any) -> None:
    """Refuse what is no number of threads."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ArgumentError(f"threads={threads!r}: give a whole number of at least 1")


def open_library(path: Path) -> ctypes.CDLL:
    """Load a shared object; a file that has replaced one loaded before is loaded anew."""
    try:
        status = path.stat()
        seen = _loaded.setdefault(str(path), [])
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if identity not in seen:
            seen.append(identity)
        # the loader knows libraries by the spelling of their path: each file at one path gets its own
        return ctypes.CDLL(str(path.parent) + "/." * seen.index(identity) + f"/{path.name}")
    except OSError as e:
        raise CompilerError(
            f"the library {path} cannot be loaded ({e}): a folder mounted noexec, or code for another machine; "
            "POLYOPT_CACHE_DIR chooses another folder"
        ) from None
