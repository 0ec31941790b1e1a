"""Interleaved timing. Takes functions without arguments; gives the seconds of every run, minima, medians and ratios, and the JSON
that all benchmarks share: {"machine", "rows": [{"name", "ours", "ours_median", "peers", "peers_median", "ratio", "error",
"note"}], "geomean_ratio"}. Seconds are minima over interleaved runs; a ratio below 1 means that we are faster."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MIN_RUNS, MAX_RUNS = 5, 2000


@dataclass(frozen=True)
class Row:
    """One line of a benchmark. `ratio` is ours over the fastest peer, None where no peer ran; `error` is the largest
    deviation."""

    name: str
    ours: float
    ours_median: float
    peers: Mapping[str, float] = field(default_factory=dict)
    peers_median: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    error: float | None = None
    note: str = ""


def interleave(functions: Mapping[str, Callable[[], Any]], seconds: float = 3.0, min_runs: int = MIN_RUNS) -> dict[str, list[float]]:
    """Run the functions in turn until `seconds` are spent (at least `min_runs` rounds, after one round to warm up); seconds of
    each.

    Each round starts with the next function, so that none always follows the same neighbour.
    """
    names = list(functions)
    out: dict[str, list[float]] = {n: [] for n in names}
    for n in names:
        functions[n]()
    start = time.perf_counter()
    for k in range(MAX_RUNS):
        if k >= min_runs and time.perf_counter() - start > seconds:
            break
        for n in names[k % len(names) :] + names[: k % len(names)]:
            begin = time.perf_counter()
            functions[n]()
            out[n].append(time.perf_counter() - begin)
    return out


def row(name: str, times: Mapping[str, Sequence[float]], ours: str = "polyopt", error: float | None = None, note: str = "") -> Row:
    """The line of one benchmark from the times of `interleave`; all functions but `ours` are peers."""
    peers = {n: min(ts) for n, ts in times.items() if n != ours}
    return Row(
        name,
        min(times[ours]),
        statistics.median(times[ours]),
        peers,
        {n: statistics.median(ts) for n, ts in times.items() if n != ours},
        min(times[ours]) / min(peers.values()) if peers else None,
        error if error is None or math.isfinite(error) else None,
        note,
    )


def report(rows: Sequence[Row], **more: Any) -> dict[str, Any]:
    """The JSON object of a benchmark."""
    ratios = [r.ratio for r in rows if r.ratio is not None]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return {"machine": machine(), "rows": [{k: _figure(v) for k, v in asdict(r).items()} for r in rows], "geomean_ratio": mean, **more}


def _figure(value: Any) -> Any:
    """JSON has no NaN and no infinity: a figure that could not be measured is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(rows: Sequence[Row]) -> str:
    """The lines as text: milliseconds, minimum (median)."""
    lines = [f"{'':28} {'polyopt ms':>20}  {'ratio':>6}  peers ms"]
    for r in rows:
        peers = "  ".join(f"{n} {_ms(t, r.peers_median[n])}" for n, t in r.peers.items())
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        note = f"  {r.note}" if r.note else ""
        lines.append(f"{r.name:28} {_ms(r.ours, r.ours_median):>20}  {ratio:>6}  {peers}{note}")
    return "\n".join(lines)


def _ms(minimum: float, median: float) -> str:
    return f"{minimum * 1e3:.3f} ({median * 1e3:.3f})"


def machine() -> dict[str, Any]:
    """What the figures were measured on: CPU, its threads, system, Python, and the load before the run."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": load,
    }
