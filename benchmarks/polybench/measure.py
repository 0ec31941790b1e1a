"""Checks and times the variants of one kernel, interleaved, each in a process of its own. Takes a kernel's name; gives its row.

First all results are compared: at MINI with plain Python, at the size asked for with the naive nest compiled by gcc -O1. A variant that is wrong or
takes over a minute is noted and left out. A peer may come in several variants; the fastest right one is its time.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.polybench import KERNELS
from polyopt.commands.timing import Row
from polyopt.errors import UserError

LIMIT_S = 150.0  # for one run, or one compilation
REFERENCE_S = 240.0  # for gcc -O1
FAST = ("-O3", "-march=native", "-ffast-math")
POLLY = ("clang-19", *FAST, "-mllvm", "-polly")
PEERS: dict[str, dict[str, tuple[str, ...]]] = {
    "gcc": {"gcc": ("gcc", *FAST)},
    "clang": {"clang": ("clang-19", *FAST)},
    "polly": {"polly": POLLY, "polly without reductions": (*POLLY, "-mllvm", "-polly-detect-reductions=0")},
}


@dataclass(frozen=True)
class PolyRow(Row):
    """A row of this benchmark: also the seconds of scheduling and code generation, those of the C compiler, lines of C, and the label."""

    compile_s: float | None = None
    c_compile_s: float | None = None
    lines: int | None = None
    label: str = ""
    steps: tuple[str, ...] = ()


class Stopped(Exception):
    """A worker that took too long or died."""


class Worker:
    """A child process that runs one variant."""

    def __init__(self, kernel: str, size: str, variant: str, where: str, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.polybench.worker", kernel, size, variant, where, str(threads)]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.facts: dict[str, Any] = ast.literal_eval(self._answer())

    def ask(self, line: str, limit: float = LIMIT_S) -> float:
        """Send a request; the seconds that come back. Raises Stopped where that takes longer than `limit` seconds."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return float(self._answer(limit))

    def _answer(self, limit: float = LIMIT_S) -> str:
        assert self.process.stdout is not None and self.process.stderr is not None
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        late = not timer.is_alive()
        timer.cancel()
        if line:
            return line
        self.process.wait()
        said = self.process.stderr.read().strip().splitlines()
        raise Stopped(f"took over {limit:.0f} s" if late else f"died ({said[-1] if said else self.process.returncode})")

    def close(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.communicate()


def measure(name: str, size: str, against: Sequence[str], threads: int, seconds: float) -> PolyRow:
    """The row of one kernel."""
    with tempfile.TemporaryDirectory(prefix="polybench-") as folder, contextlib.ExitStack() as stack:
        notes: list[str] = []
        small = _compare_with_python(name, threads, Path(folder), notes)
        workers: dict[str, Worker] = {}
        _start(workers, stack, notes, name, size, "ours", "", threads)
        for peer, library in _build(name, size, against, threads, Path(folder), notes).items():
            _start(workers, stack, notes, name, size, peer, library, threads)
        facts = workers["ours"].facts if "ours" in workers else {}
        errors, first = _compare(name, workers, "reference", Path(folder), notes)
        times = _interleave(workers, first, seconds, notes)
    ours = times.get("ours", [math.nan])
    best: dict[str, list[float]] = {}
    for peer in against:
        if ran := [times[v] for v in PEERS[peer] if v in times]:
            best[peer] = min(ran, key=min)
    known = [e for e in (small, errors.get("ours")) if e is not None]
    return PolyRow(
        name, min(ours), statistics.median(ours), {p: min(t) for p, t in best.items()}, {p: statistics.median(t) for p, t in best.items()},
        min(ours) / min(map(min, best.values())) if best and "ours" in times else None, max(known, default=None), "; ".join(notes),
        facts.get("compile_s"), facts.get("c_compile_s"), facts.get("lines"), facts.get("label", ""), tuple(facts.get("steps", ())),
    )  # fmt: skip


def _start(
    workers: dict[str, Worker], stack: contextlib.ExitStack, notes: list[str], name: str, size: str, variant: str, where: str, threads: int
) -> None:
    try:
        workers[variant] = Worker(name, size, variant, where, threads)
        stack.callback(workers[variant].close)
    except Stopped as e:
        notes.append(f"{variant} {e}")


def _compare_with_python(name: str, threads: int, folder: Path, notes: list[str]) -> float | None:
    """The error of ours at MINI relative to the nest as plain Python. The naive C, the reference of the larger sizes, is held to it too."""
    workers: dict[str, Worker] = {}
    with contextlib.ExitStack() as stack:
        for variant, where in (("python", ""), *_build(name, "MINI", (), 1, folder, notes).items(), ("ours", "")):
            _start(workers, stack, notes, name, "MINI", variant, where, threads)
        errors, _ = _compare(name, workers, "python", folder, notes, "at MINI ")
    if not errors.get("reference", math.inf) <= KERNELS[name].tolerance:
        return math.inf
    return errors.get("ours")


def _build(name: str, size: str, against: Sequence[str], threads: int, folder: Path, notes: list[str]) -> dict[str, str]:
    """The libraries of the peers' variants, and of the reference."""
    source = folder / "naive.c"
    Worker(name, size, "naive", str(source), 1).close()
    out = {}
    for peer, command in (("reference", ("gcc", "-O1")), *(v for p in against for v in PEERS[p].items())):
        library = folder / f"{peer.replace(' ', '-')}.{size}.so"
        line = [*command, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
        line += ["-mllvm", "-polly-parallel", "-lgomp"] if "-polly" in command and threads > 1 else []
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S)
        except FileNotFoundError:
            raise UserError(f"{command[0]} is not installed; choose the peers with --against") from None
        except subprocess.TimeoutExpired:
            notes.append(f"{peer} does not compile in {LIMIT_S:.0f} s")
            continue
        if done.returncode:
            notes.append(f"{peer} does not compile: {(done.stderr.strip().splitlines() or ['?'])[0]}")
            continue
        out[peer] = str(library)
    return out


def _compare(
    name: str, workers: dict[str, Worker], oracle: str, folder: Path, notes: list[str], where: str = ""
) -> tuple[dict[str, float], dict[str, float]]:
    """The largest error of each variant's outputs, relative to each one's largest magnitude; and the seconds that it ran.

    Variants that are wrong are noted and stopped, as is the oracle.
    """
    results: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for variant in list(workers):
        path = folder / "result.npz"
        try:
            seconds[variant] = workers[variant].ask(f"save {path}", REFERENCE_S if variant == oracle else LIMIT_S)
            with np.load(path) as saved:
                results[variant] = dict(saved)
        except Stopped as e:
            notes.append(f"{where}{variant} {e}")
            workers.pop(variant).close()
    want = results.pop(oracle, None)
    if want is None:
        return {}, seconds
    workers.pop(oracle).close()
    errors = {v: max(deviation(got[k], want[k]) for k in want) for v, got in results.items()}
    for v, error in errors.items():
        if not error <= KERNELS[name].tolerance:
            notes.append(f"{where}{v} is wrong ({error:.1e})")
            workers.pop(v).close()
    return errors, seconds


def deviation(got: Any, want: Any) -> float:
    """The largest difference, relative to the largest magnitude; infinite where one is finite and the other is not."""
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return math.inf
    scale = float(np.abs(want, where=np.isfinite(want), out=np.zeros_like(want)).max(initial=0.0)) or 1.0
    return float(np.nan_to_num(np.abs(got - want)).max(initial=0.0)) / scale


def _interleave(workers: dict[str, Worker], first: dict[str, float], seconds: float, notes: list[str]) -> dict[str, list[float]]:
    """The variants' runs, in turn until the time is spent: at least twice, at most fifty times.

    Where the first run, that of the comparison, took over a third of the time, it is the only one.
    """
    times = {n: [first[n]] if first[n] > seconds / 3 else [] for n in workers}
    names = [n for n in workers if not times[n]]
    begin = time.perf_counter()
    for k in range(50):
        if not names or (k >= 2 and time.perf_counter() - begin > seconds):
            break
        for n in [*names[k % len(names) :], *names[: k % len(names)]]:
            if n not in workers:
                continue
            try:
                times[n].append(workers[n].ask("run"))
            except Stopped as e:
                notes.append(f"{n} {e}")
                workers.pop(n).close()
    return {n: t for n, t in times.items() if t}
