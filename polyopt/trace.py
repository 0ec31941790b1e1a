"""The tracer that runs every step of the pipeline. Takes a step's function and its value; gives the step's result, verified with
the verifiers that the caller's table holds for the result's type, timed, printed by the debug ladder and dumped where it changed.

POLYOPT_DEBUG, one ladder on stderr: 1 a table of the steps' times at the end; 2 also each step as it ends; 3 also one line about
its result; 4 also the result's text where it changed; 5 also the arguments of each step and the time of its verifiers.
POLYOPT_DUMP=DIR writes each changed result to DIR/NN_step.txt (emitted text keeps its own suffix).
The tracer knows no value of the compiler: `verifiers` and `text` are given to it by the pipeline.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

from .errors import OutputError

Result = TypeVar("Result")
Verifier = Callable[[Any], None]
Listener = Callable[[str, str], None]


def debug_level() -> int:
    """The value of POLYOPT_DEBUG, 0 where it is unset; a word that is no number counts as 1."""
    text = os.environ.get("POLYOPT_DEBUG", "").strip()
    if not text:
        return 0
    return int(text) if text.isdecimal() else 1


@dataclass(frozen=True)
class StepTime:
    """One step that ran: its name, what it worked on, the seconds that it took and the seconds of verifying its result."""

    step: str
    label: str
    seconds: float
    verify_seconds: float


@dataclass
class Trace:
    """Runs steps. The only value of the compiler that changes: it collects `times` and numbers the dumps.

    verifiers: from a type to the functions that raise when a value of that type is malformed. text: prints a value for dumps.
    debug and dump: what POLYOPT_DEBUG and POLYOPT_DUMP say. listener: called with (step, label) before each step, for progress.
    label: what the next steps work on (a kernel's name); the caller sets it.
    """

    verifiers: Mapping[type, Sequence[Verifier]] = field(default_factory=dict)
    text: Callable[[Any], str] = repr
    debug: int = field(default_factory=debug_level)
    dump: str | None = field(default_factory=lambda: os.environ.get("POLYOPT_DUMP") or None)
    listener: Listener | None = None
    stream: TextIO | None = None
    label: str = ""
    times: list[StepTime] = field(default_factory=list)
    _dumped: int = 0

    def step(self, fn: Callable[..., Result], value: Any, *args: Any, **kwargs: Any) -> Result:
        """`fn(value, *args, **kwargs)`, a step named after the function; an exception carries the step's name as a note."""
        name = step_name(fn)
        if self.listener is not None:
            self.listener(name, self.label)
        if self.debug >= 5 and (args or kwargs):
            self._print(f"{self._title(name)} arguments: {_arguments(args, kwargs)}")
        start = time.perf_counter()
        try:
            result = fn(value, *args, **kwargs)
            end = time.perf_counter()
            self.verify(result)
        except Exception as error:
            error.add_note(f"in step {self._title(name)}")
            raise
        self._record(StepTime(name, self.label, end - start, time.perf_counter() - end), value, result)
        return result

    def verify(self, value: Any) -> None:
        """Run the verifiers of the value's type (of each element, for a tuple or list)."""
        if isinstance(value, tuple | list):
            for x in value:
                self.verify(x)
            return
        for check in self.verifiers.get(type(value), ()):
            check(value)

    def report(self) -> str:
        """A table of the steps: name, how often it ran, seconds in total, the longest first; verifying is the last line."""
        total: dict[str, list[float]] = {}
        for t in self.times:
            total.setdefault(t.step, []).append(t.seconds)
        rows = [(name, len(ts), sum(ts)) for name, ts in total.items()]
        rows.sort(key=lambda r: (-r[2], r[0]))
        rows.append(("(verifiers)", len(self.times), sum(t.verify_seconds for t in self.times)))
        width = max(len(r[0]) for r in rows)
        return "\n".join(f"{name:{width}}  {count:5d} x  {seconds:9.4f} s" for name, count, seconds in rows)

    def finish(self) -> None:
        """Print the table of times where the debug ladder asks for it."""
        if self.debug >= 1 and self.times:
            self._print(self.report())

    def _record(self, t: StepTime, before: Any, after: Any) -> None:
        self.times.append(t)
        if self.debug >= 2:
            verified = f" (verified in {t.verify_seconds:.4f} s)" if self.debug >= 5 else ""
            self._print(f"{self._title(t.step)}: {t.seconds:.4f} s{verified}")
        if after is before or (self.dump is None and self.debug < 3):
            return
        text = self.text(after)
        if self.debug >= 3:
            self._print(text if self.debug >= 4 else text.split("\n", 1)[0])
        if self.dump is not None and not (type(after) is type(before) and text == self.text(before)):
            self._write(t.step, after, text)

    def _write(self, name: str, value: Any, text: str) -> None:
        assert self.dump is not None
        suffix = {"c": ".c", "cuda": ".cu", "opencl": ".cl", "hip": ".hip"}.get(getattr(value, "dialect", ""), ".txt")
        parts = [f"{self._dumped:02d}", name, *([_file_part(self.label)] if self.label else [])]
        folder = Path(self.dump)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ("_".join(parts) + suffix)).write_text(text if text.endswith("\n") else text + "\n")
        except OSError as error:
            raise OutputError(f"POLYOPT_DUMP={self.dump}: cannot write the dump of step {name}: {error.strerror}") from error
        self._dumped += 1

    def _title(self, name: str) -> str:
        return f"{name} [{self.label}]" if self.label else name

    def _print(self, text: str) -> None:
        print(text, file=self.stream or sys.stderr)


def step_name(fn: Callable[..., Any]) -> str:
    """The name of a step: its function's, also under functools.partial."""
    while hasattr(fn, "func"):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    parts = [*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]
    return ", ".join(p if len(p) <= 200 else p[:197] + "..." for p in parts)


def _file_part(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "_" for c in text)[:80]
