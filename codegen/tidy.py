"""Shorter text: lines of one block that say the same in fewer lines. Takes and gives C lines; the meaning stays.

    const double t1 = p[3];  const v8f64 t2 = po_splat_v8f64(t1);          ->          const v8f64 t2 = po_splat_v8f64(p[3]);
    a = po_splat_v8f64(0.0);  b = po_splat_v8f64(0.0);                     ->          a = b = po_splat_v8f64(0.0);
"""

from __future__ import annotations

import re
from collections import Counter

WORD = re.compile(r"[A-Za-z_]\w*")
SCALAR = re.compile(r"const (?:double|float) (t\d+) = (.*);")
SPLAT = re.compile(r"(const \w+ t\d+ = po_splat_\w+)\((t\d+)\);")
START = re.compile(r"(\w+) = (po_splat_\w+\(\(?-?[\d.e+-]+f?\)?\));")
A_LINE = 7


def tidy(lines: list[str]) -> list[str]:
    """The lines of a block, shorter."""
    return _chained(_splats(lines))


def _splats(lines: list[str]) -> list[str]:
    """Scalars that are only broadcast go into the broadcast, where nothing is stored in between."""
    broadcast = {m[2]: k for k, x in enumerate(lines) if (m := SPLAT.fullmatch(x))}
    if not broadcast:
        return lines
    counts = Counter(w for x in lines for w in WORD.findall(x) if w in broadcast)
    out: list[str | None] = list(lines)
    for k, x in enumerate(lines):
        m = SCALAR.fullmatch(x)
        if m is None or counts[m[1]] != 2 or m[1] not in broadcast:
            continue
        to = broadcast[m[1]]
        if k < to and all(y.startswith("const ") for y in lines[k:to]):
            splat = SPLAT.fullmatch(lines[to])
            assert splat is not None
            out[k], out[to] = None, f"{splat[1]}({m[2]});"
    return [x for x in out if x is not None]


def _chained(lines: list[str]) -> list[str]:
    """Locals that start with one constant start on one line."""
    out: list[str] = []
    run: list[str] = []
    value = ""
    for x in [*lines, ""]:
        m = START.fullmatch(x)
        if run and (m is None or m[2] != value or len(run) == A_LINE):
            out.append(f"{' = '.join(run)} = {value};")
            run = []
        if m is not None:
            run.append(m[1])
            value = m[2]
        else:
            out.append(x)
    return out[:-1]
