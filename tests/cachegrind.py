"""Runs emitted kernels under valgrind's cachegrind. Takes C sources and sizes; gives what each kernel function read, wrote and missed.

One program holds all kernels; before each one runs, its arrays are filled and then driven out of the simulated caches. The kernels are compiled
with the few optimisations that keep scalars in registers and leave every access to an array as it is written (no hoisting, no reuse of loads).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyopt.ir.source import Source

FLAGS = ("-O1", "-g", "-fno-inline", "-fno-tree-loop-im", "-fno-tree-fre", "-fno-tree-pre", "-fno-tree-dominator-opts",
         "-fno-gcse", "-fno-tree-vectorize", "-fno-tree-dse", "-fno-tree-sink", "-ffp-contract=off")  # fmt: skip
FLUSH = 8 << 20


@dataclass(frozen=True)
class Run:
    """A kernel to be run: its name here, the emitted text, and the values of its sizes."""

    name: str
    source: Source
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Counts:
    """Data reads and writes, and the misses of both in the first and the last level."""

    reads: int
    writes: int
    d1: int
    ll: int


def simulate(runs: Sequence[Run], folder: Path, d1: int, ll: int) -> dict[str, Counts]:
    """The counts of each run, with caches of `d1` and `ll` bytes (8 and 16 ways, lines of 64 bytes)."""
    parts = ["#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n"]
    calls = []
    objects = []
    for k, run in enumerate(runs):
        name = f"f{k}_{run.source.entry}"
        text = re.sub(rf"\b{run.source.entry}\b", name, run.source.text)
        (folder / f"{name}.c").write_text(text)
        objects.append(f"{name}.c")
        declaration, lines = _call(run, name)
        parts.append(declaration)
        calls += lines
    body = "\n".join(f"    {line}" for line in calls)
    (folder / "main.c").write_text(f"""{''.join(parts)}
static char flushed[{FLUSH}];
static void flush(void) {{ for (long i = 0; i < {FLUSH}; i += 64) ((volatile char *)flushed)[i]++; }}
static void *fresh(long bytes) {{ /* every element a small positive double */
    double *p = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
    for (long i = 0; i < bytes / 8; i++) p[i] = 1.0 + (double)(i % 7) / 8;
    return p;
}}
int main(void) {{
{body}
    return 0;
}}
""")
    subprocess.run(["gcc", *FLAGS, "main.c", *objects, "-o", "program", "-lm"], cwd=folder, check=True)
    cache = ["--cache-sim=yes", f"--D1={d1},8,64", f"--LL={ll},16,64", "--I1=32768,8,64", "--cachegrind-out-file=counts"]
    done = subprocess.run(["valgrind", "--tool=cachegrind", *cache, "./program"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = _read((folder / "counts").read_text())
    return {run.name: found[f"f{k}_{run.source.entry}"] for k, run in enumerate(runs)}


def _call(run: Run, name: str) -> tuple[str, list[str]]:
    """The declaration of a kernel, and the lines that call it."""
    source = run.source
    before = []
    for k, t in enumerate(source.tensors):
        size = t.dtype.bits // 8
        for x in t.shape:
            size *= x.evaluate(run.sizes)
        before.append(f"void *{name}_{k} = fresh({size});")
    types = ["void *"] * len(source.tensors) + ["double"] * len(source.scalars) + ["int64_t"] * len(source.params)
    values = [f"{name}_{k}" for k in range(len(source.tensors))] + ["1.5"] * len(source.scalars) + [str(run.sizes[p]) for p in source.params]
    if source.needs_scratch:
        size = "({ " + "".join(f"int64_t {p} = {run.sizes[p]}; (void){p}; " for p in source.params) + f"{source.scratch_bytes}; }})"
        before.append(f"void *{name}_scratch = fresh({size});")
        types.append("void *")
        values.append(f"{name}_scratch")
    return f"void {name}({', '.join(types)});\n", [*before, "flush();", f"{name}({', '.join(values)});"]


def _read(text: str) -> dict[str, Counts]:
    events: list[str] = []
    sums: dict[str, dict[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("fn="):
            name = line[3:]
        elif line[:1].isdigit():
            row = sums.setdefault(name, dict.fromkeys(events, 0))
            for e, v in zip(events, line.split()[1:]):
                row[e] += int(v)
    return {n: Counts(r["Dr"], r["Dw"], r["D1mr"] + r["D1mw"], r["DLmr"] + r["DLmw"]) for n, r in sums.items()}
