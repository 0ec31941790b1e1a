"""What all benchmarks print: the JSON object or the table of their rows, over the package's own interleaved timing.

Takes `Row`s and a command's arguments; gives the exit code. `polyopt.commands.timing` holds the timing itself, which the
installed command line shares.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from polyopt.cli import guarded
from polyopt.commands.timing import Row, interleave, machine, report, row, table
from polyopt.errors import WrongResult

__all__ = ["Row", "finish", "interleave", "machine", "parser", "report", "row", "run", "table"]


def parser(module: str, text: str) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take: --json, --threads, --seconds."""
    p = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=text)
    p.add_argument("--json", action="store_true", help="one JSON object on stdout")
    p.add_argument("--threads", type=int, default=1, help="threads of ours and of the peers (default 1)")
    p.add_argument("--seconds", type=float, default=5.0, help="time to spend on a row (default 5)")
    return p


def finish(rows: Sequence[Row], wrong: Sequence[str], as_json: bool, **more: object) -> int:
    """Print the rows; a wrong result is an error after all of them."""
    if as_json:
        json.dump(report(rows, **more), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(table(rows))
    if wrong:
        raise WrongResult("; ".join(wrong))
    return 0


def run(main: Callable[[], int]) -> None:
    """Run a benchmark as the command line runs a command: one clear line an error, and its exit code."""
    sys.exit(guarded(main))
