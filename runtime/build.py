"""Units of C to a shared library through the cache: objects side by side, then one link.

Takes `Unit`s; gives the path of a library. Objects and the library have separate cache keys, so that a model that differs in one kernel
compiles one kernel. Without OpenMP the same text is built serial, with one warning.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from polyopt.errors import CompilerError
from polyopt.ir.source import Source

from .cache import Cache, default_cache, key_of
from .compiler import BASE_FLAGS, OPENMP_FLAG, SERIAL_FLAGS, SERIAL_HEADER, Compiler, Unit, compile_unit, find_compiler, has_openmp, link_objects
from .objectfile import defect_of

JOINED = 6  # kernels a file
_ISA_MACHINES = {"avx2": ("x86_64", "amd64", "i686"), "avx512": ("x86_64", "amd64", "i686"), "neon": ("aarch64", "arm64")}
_warned = threading.Event()


def jobs() -> int:
    """How many compilers run side by side: the CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kernel_unit(source: Source, flags: Sequence[str] = ()) -> Unit:
    """The C file of one kernel."""
    if source.dialect != "c":
        raise CompilerError(f"kernel {source.entry}: its dialect is {source.dialect}, and this runtime builds C only")
    return Unit(source.entry, source.text, (*source.flags, *flags), joinable=source.joinable)


def wants_openmp(units: Sequence[Unit]) -> bool:
    """Whether any unit asks for OpenMP."""
    return any(OPENMP_FLAG in unit.flags for unit in units)


def check_isa(compiler: Compiler, isa: str) -> None:
    """Refuse an ISA of another machine than the compiler's."""
    machines = _ISA_MACHINES.get(isa)
    if machines and not compiler.machine:
        raise CompilerError(
            f"isa {isa} is for {machines[0]} and {compiler} does not name its machine (`-dumpmachine` answers nothing): is it a C compiler? "
            "set POLYOPT_CC to one, or choose isa scalar"
        )
    if machines and not compiler.machine.startswith(machines):
        raise CompilerError(
            f"isa {isa} is for {machines[0]} and {compiler} compiles for {compiler.machine}: choose another isa, "
            "or set POLYOPT_CC to a cross compiler"
        )


def is_for_this_machine() -> bool:
    """Whether what the compiler makes can be loaded here: not so for a cross compiler in POLYOPT_CC."""
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    here, made = platform.machine().lower(), find_compiler().machine.partition("-")[0].lower()
    return not here or not made or names.get(here, here) == names.get(made, made)


def choose_compiler(units: Sequence[Unit], compiler: Compiler | None = None) -> tuple[Compiler, list[Unit]]:
    """The compiler for these units, and the units as it will take them (serial where it has no OpenMP)."""
    openmp = wants_openmp(units)
    compiler = compiler or find_compiler(openmp=openmp)
    if not openmp or has_openmp(compiler):
        return compiler, list(units)
    if not _warned.is_set():
        _warned.set()
        warnings.warn(f"{compiler} has no OpenMP: the code is built for one thread", stacklevel=3)
    return compiler, [_serial(u) if OPENMP_FLAG in u.flags else u for u in units]


def _serial(unit: Unit) -> Unit:
    flags = (*(f for f in unit.flags if f != OPENMP_FLAG), *SERIAL_FLAGS)
    return replace(unit, flags=flags, headers=(*unit.headers, SERIAL_HEADER))


def object_key(compiler: Compiler, unit: Unit) -> str:
    """The cache key of a unit's object: everything that its bytes depend on."""
    headers = [part for header in unit.headers for part in header]
    return key_of("object", *_identity(compiler), *unit.flags, "|", unit.name, unit.text, *headers)


def _identity(compiler: Compiler) -> tuple[str, ...]:
    # the version of polyopt is in the text where it matters; objects of equal text are equal
    return (*compiler.command, compiler.version, compiler.machine, *compiler.flags, *BASE_FLAGS, "|")


def join_units(units: Sequence[Unit]) -> list[Unit]:
    """Units with runs of joinable ones merged: the vector intrinsics' header costs the compiler more than most kernels do."""
    out: list[Unit] = []
    size = 1
    for u in units:
        last = out[-1] if out else None
        if last is not None and u.joinable and last.joinable and (u.flags, u.headers) == (last.flags, last.headers) and size < JOINED:
            out[-1] = replace(last, text=f"{last.text}\n{u.text}")
            size += 1
        else:
            out.append(u)
            size = 1
    return out


def compile_objects(units: Sequence[Unit], *, cache: Cache, compiler: Compiler) -> list[Path]:
    """Compile units side by side; the first failure stops those that have not begun."""

    def one(unit: Unit) -> Path:
        return cache.fetch(object_key(compiler, unit), ".o", lambda folder: _whole(compiler, compile_unit(compiler, unit, folder)))

    if len(units) == 1:
        return [one(units[0])]
    with ThreadPoolExecutor(max_workers=min(jobs(), len(units)) or 1) as pool:
        futures = [pool.submit(one, unit) for unit in units]
        try:
            return [f.result() for f in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _whole(compiler: Compiler, made: Path) -> Path:
    """The file that a compiler made, which must not get into the cache where it is rubbish."""
    defect = defect_of(made)
    if defect:
        raise CompilerError(f"{compiler}: ended with exit code 0, and the {made.name} that it made {defect}: set POLYOPT_CC to another")
    return made


def build_library(
    units: Sequence[Unit], *, cache: Cache | None = None, compiler: Compiler | None = None, soname: str = "", fresh: bool = False
) -> Path:
    """Compile and link units; gives the path of the cached shared object. `fresh`: what the cache has of it is thrown away.

    Objects that do not link leave the cache; where some of them came from there, all are compiled once more.
    """
    cache = cache or default_cache()
    compiler, units = choose_compiler(units, compiler)
    units = join_units(units)
    flags = (OPENMP_FLAG,) if wants_openmp(units) else ()
    names = [object_key(compiler, u) for u in units]
    key = key_of("library", soname, *_identity(compiler), *flags, "|", *names)
    if fresh:
        cache.drop((key, *names))
    found = cache.lookup(key, ".so")
    if found is not None:
        return found
    old = any(cache.lookup(n, ".o") is not None for n in names)
    objects = compile_objects(units, cache=cache, compiler=compiler)
    try:
        return cache.fetch(key, ".so", functools.partial(_link, compiler, objects, flags, soname))
    except CompilerError:
        cache.drop(names)
        if not old:
            raise
    objects = compile_objects(units, cache=cache, compiler=compiler)
    return cache.fetch(key, ".so", functools.partial(_link, compiler, objects, flags, soname))


def _link(compiler: Compiler, objects: Sequence[Path], flags: Sequence[str], soname: str, folder: Path) -> Path:
    # names inside the folder, in order: the bytes of the library must not tell where the cache is
    local = []
    for number, path in enumerate(objects):
        name = folder / f"{number:04d}.o"
        try:
            os.link(path, name)
        except OSError:
            name.write_bytes(path.read_bytes())
        local.append(Path(name.name))
    return _whole(compiler, link_objects(compiler, local, folder / "library.so", flags, soname))
