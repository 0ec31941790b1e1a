"""The host C compiler: found once, asked what it can do, and run with a time limit.

Takes C text and flags; gives object files and shared objects, or one `CompilerError` that names the compiler's first complaint, the
command and the kept text. Assumes a compiler that takes gcc's options. Order: POLYOPT_CC, clang (clang-N), gcc (gcc-N), cc, `zig cc`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polyopt.errors import CompilerError

BASE_FLAGS = ("-std=c11", "-O3", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Werror")
OPENMP_FLAG = "-fopenmp"
SERIAL_FLAGS = ("-Wno-unknown-pragmas", "-Iserial")
SERIAL_HEADER = (
    "serial/omp.h",
    """/* Stands for OpenMP's header where code is built without it: one thread. */
#ifndef POLYOPT_SERIAL_OMP_H
#define POLYOPT_SERIAL_OMP_H
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
static inline int omp_get_max_threads(void) { return 1; }
static inline void omp_set_num_threads(int n) { (void)n; }
#endif
""",
)
ANSWER_S = 20.0  # for questions such as --version
_VERSIONS = range(24, 10, -1)
_told = threading.Event()
_INSTALL = (
    "no C compiler found: install clang or gcc (for example `apt install gcc`), or `pip install ziglang`, or set POLYOPT_CC to a compiler's command"
)
_OPENMP_PROBE = """#include <omp.h>
int polyopt_probe(void) {
  int n = 0;
#pragma omp parallel reduction(+ : n)
  n += 1;
  return n + omp_get_max_threads();
}
"""


class TimedOut(CompilerError):
    """A compiler that did not end."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler. `command`: argv prefix; `version`: first line of --version, part of every cache key; `machine`: its target."""

    command: tuple[str, ...]
    version: str
    machine: str

    @property
    def is_zig(self) -> bool:
        """Whether this is `zig cc`."""
        return self.command[-1] == "cc" and any("zig" in Path(c).name for c in self.command[:-1])

    @property
    def flags(self) -> tuple[str, ...]:
        """What every command line needs: zig compiles for the running CPU unless told not to, and links a runtime of its sanitizer, which takes
        it most of a minute to make, unless told not to."""
        return ("-mcpu=baseline", "-fno-sanitize=undefined") if self.is_zig else ()

    def __str__(self) -> str:
        return " ".join(self.command)


@dataclass(frozen=True)
class Unit:
    """One C file: its stem, its text, the flags it needs beyond the base flags, and headers (name, text) that lie beside it.

    joinable: it may be compiled in one file with others of the same flags and headers.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    joinable: bool = False


# ---- finding
def find_compiler(*, openmp: bool = False) -> Compiler:
    """The first compiler that answers, in the order above; with `openmp`, the first whose OpenMP works, if any does.

    POLYOPT_CC is taken as given: nothing else is tried then. Raises CompilerError where there is none.
    """
    return _find(os.environ.get("POLYOPT_CC", "").strip(), os.environ.get("PATH", ""), openmp)


@cache
def _find(chosen: str, path: str, openmp: bool) -> Compiler:
    if chosen:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as e:
            raise CompilerError(f"POLYOPT_CC={chosen!r} is not a command: {e}") from None
        if shutil.which(command[0], path=path) is None:
            raise CompilerError(f"POLYOPT_CC={chosen!r}: no such program; install it, or unset POLYOPT_CC to let polyopt choose")
        found = _ask(command)
        if found is None:
            raise CompilerError(f"POLYOPT_CC={chosen!r} does not answer `--version` within {ANSWER_S:g} s: give the command of a C compiler")
        return found
    first: Compiler | None = None
    for candidate in _candidates(path):
        with contextlib.suppress(TimedOut):
            if not openmp or has_openmp(candidate):
                return candidate
        first = first or candidate
    if first is None:
        raise CompilerError(_INSTALL)
    return first


def _candidates(path: str) -> Iterator[Compiler]:
    names = ["clang", *(f"clang-{n}" for n in _VERSIONS), "gcc", *(f"gcc-{n}" for n in _VERSIONS), "cc"]
    commands: list[tuple[str, ...]] = [(p,) for n in names if (p := shutil.which(n, path=path))]
    if importlib.util.find_spec("ziglang") is not None:
        commands.append((sys.executable, "-m", "ziglang", "cc"))
    elif zig := shutil.which("zig", path=path):
        commands.append((zig, "cc"))
    for command in commands:
        if found := _ask(command):
            yield found


@cache
def _ask(command: tuple[str, ...]) -> Compiler | None:
    version, machine = _answer([*command, "--version"]), None
    if version:
        machine = _answer([*command, "-dumpmachine"])
    return None if not version or machine is None else Compiler(command, version.splitlines()[0], machine)


def _answer(command: list[str]) -> str | None:
    """What a question to a compiler prints; None where it fails or does not end in time. What it prints when it refuses the question counts not."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    try:
        output = process.communicate(timeout=ANSWER_S)[0].decode("utf-8", "replace").strip()
    except subprocess.TimeoutExpired:
        _kill(process)
        return None
    except BaseException:
        _kill(process)
        raise
    return output if process.returncode == 0 or command[-1] != "--version" else None


# ---- probing
@cache
def has_openmp(compiler: Compiler) -> bool:
    """Whether a shared object with an OpenMP region compiles and links."""
    return _probe(compiler, _OPENMP_PROBE, (OPENMP_FLAG,), link=True)


@cache
def accepts_flags(compiler: Compiler, flags: tuple[str, ...]) -> bool:
    """Whether the compiler knows all these flags (an ISA of another machine's compiler is refused by it)."""
    return _probe(compiler, "int polyopt_probe(void) { return 0; }\n", flags, link=False)


def _probe(compiler: Compiler, text: str, flags: tuple[str, ...], *, link: bool) -> bool:
    with tempfile.TemporaryDirectory(prefix="polyopt-probe-") as directory:
        try:
            done = compile_unit(compiler, Unit("probe", text, flags), Path(directory))
            if link:
                link_objects(compiler, [done], Path(directory) / "probe.so", flags)
        except TimedOut:
            raise  # it would hang again at the next file
        except (CompilerError, OSError):
            return False
    return True


# ---- running
def _tell_of_cold_zig() -> None:
    """One line on stderr, once, where zig has yet to compile the runtime that it links: it does so without a word."""
    if not _told.is_set() and not any(_zig_cache().glob("o/*/*compiler_rt*")):
        text = "polyopt: the C compiler is zig cc; its first use compiles its own runtime and takes up to a minute or two"
        print(text, file=sys.stderr, flush=True)
    _told.set()


def _zig_cache() -> Path:
    """Where zig keeps what it compiled, by its own rules."""
    if chosen := os.environ.get("ZIG_GLOBAL_CACHE_DIR"):
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path(os.environ.get("HOME", "")) / ".cache") / "zig"


def compile_unit(compiler: Compiler, unit: Unit, directory: Path) -> Path:
    """Compile one unit in `directory` (relative names only, so that the object does not depend on where that is)."""
    source = directory / f"{unit.name}.c"
    source.write_text(unit.text, encoding="utf-8")
    for name, text in unit.headers:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    flags = (*compiler.flags, *BASE_FLAGS, *unit.flags)
    output = directory / f"{unit.name}.o"
    _run(compiler, [*compiler.command, *flags, "-c", "-o", output.name, source.name], output, source)
    return output


def link_objects(compiler: Compiler, objects: Sequence[Path], output: Path, flags: Sequence[str] = (), soname: str = "") -> Path:
    """Link objects to a shared object; needs libm only (and OpenMP's library where `flags` ask for it)."""
    name: tuple[str, ...] = ()
    if soname:
        name = (f"-Wl,-install_name,@rpath/{soname}",) if "darwin" in compiler.machine else (f"-Wl,-soname,{soname}",)
    if compiler.is_zig:
        _tell_of_cold_zig()
    command = [*compiler.command, *compiler.flags, "-shared", *name, "-o", output.name, *map(str, objects), *flags, "-lm"]
    _run(compiler, command, output, None)
    return output


def _timeout() -> float:
    text = os.environ.get("POLYOPT_CC_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise CompilerError(f"POLYOPT_CC_TIMEOUT={text!r}: give a number of seconds above 0")
    return seconds


def _run(compiler: Compiler, command: list[str], made: Path, source: Path | None) -> None:
    """Run a command that makes a file, in the file's folder."""
    limit, directory = _timeout(), made.parent
    try:
        # a session of its own: a compiler driver's children must end with it
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as e:
        raise CompilerError(f"{compiler} cannot be run: {e.strerror or e}; {_INSTALL.split(': ', 1)[1]}") from None
    try:
        output = process.communicate(timeout=limit)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        _kill(process)
        kept = _keep(source, command, "")
        raise TimedOut(
            f"{compiler} did not end within {limit:g} s and was stopped (POLYOPT_CC_TIMEOUT sets the limit); {_where(command, kept)}"
        ) from None
    except BaseException:
        _kill(process)
        raise
    if process.returncode == 0 and made.is_file():
        return
    if os.strerror(errno.ENOSPC) in output:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
    kept = _keep(source, command, output)
    if process.returncode < 0:
        reason = f"crashed with {_signal_name(-process.returncode)}"
    else:
        said = f"ended with exit code {process.returncode} and {'said nothing' if process.returncode else f'made no {made.name}'}"
        reason = (_first_error(output) if process.returncode else "") or said
    raise CompilerError(f"{compiler}: {reason}; {_where(command, kept)}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (r"(internal compiler error|fatal error|\berror\b)", r"(undefined reference|cannot find|signal|[Kk]illed)"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[0] if lines else ""


def _where(command: list[str], kept: Path | None) -> str:
    text = f"; the text is in {kept}" if kept else ""
    return f"command: {shlex.join(command) if len(command) < 60 else shlex.join(command[:60]) + ' …'}{text}"


def _kept_folder() -> Path:
    """The user's own folder for failed texts; a fresh one where another user holds its name."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"polyopt-failed-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != user:
        folder = Path(tempfile.mkdtemp(prefix="polyopt-failed-"))
    return folder


def _keep(source: Path | None, command: list[str], output: str) -> Path | None:
    """Save the text that failed, with command and output, under a name that repeats for the same text."""
    if source is None or source.name == "probe.c":
        return None
    try:
        text = source.read_bytes()
        folder = _kept_folder()
        kept = folder / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:12]}.c"
        kept.write_bytes(text)
        for header in source.parent.rglob("*.h"):
            (folder / header.relative_to(source.parent)).parent.mkdir(exist_ok=True)
            shutil.copy(header, folder / header.relative_to(source.parent))
        kept.with_suffix(".log").write_text(shlex.join(command) + "\n" + output, encoding="utf-8")
    except OSError:
        return None
    return kept
