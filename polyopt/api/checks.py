"""Is a user's schedule of a kernel the same function? Proven by its certificate, and run against the default on random data.

Takes a kernel, a scheduled Scop and options; raises WrongResult with the first differing element, or what the certificate raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyopt.runtime.load import load_kernel

from ..errors import WrongResult
from ..ir.scop import Scop
from ..ir.source import Source
from ..lower.kernel import Kernel
from ..options import Options
from ..passes.memory_constants import materialize
from ..pipeline import compile_kernel, target_of
from ..poly.certify import certify
from ..trace import Trace

Array = np.ndarray[Any, Any]
SIZE = 13  # of each symbolic dim in the comparison


def check_kernel(kernel: Kernel, scop: Scop, options: Options, trace: Trace) -> None:
    """Certify the scheduled Scop and compare its result with the default kernel's."""
    target = target_of(options)
    mine = compile_kernel(kernel, options, target, trace, scop, "own")
    certify(mine.scop, mine.nest)
    other = compile_kernel(kernel, options, target, trace, None, "default")
    sizes = {p: SIZE for p in kernel.params}
    rng = np.random.default_rng(0)
    arrays = {t.name: _random(rng, [d.evaluate(sizes) for d in t.shape], t.dtype.numpy) for t in kernel.tensors if t.role != "local"}
    got, want = _run(mine.source, kernel, arrays, sizes), _run(other.source, kernel, arrays, sizes)
    for name, a in want.items():
        b = got[name]
        wide = a.dtype.kind not in "fV"
        scale = 0.0 if wide else float(np.nanmax(np.abs(a.astype(np.float64)), initial=0.0))
        close = (a == b) if wide else np.isclose(b.astype(np.float64), a.astype(np.float64), rtol=1e-3, atol=1e-4 * scale + 1e-30, equal_nan=True)
        if not np.all(close):
            at = tuple(int(x) for x in np.argwhere(~close)[0])
            raise WrongResult(f"kernel {kernel.name}: the schedule computes {name}{list(at)} = {b[at]}, the default one {a[at]}")


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    d = np.dtype("float32" if dtype == "bfloat16" else dtype)
    if d.kind == "f":
        return rng.uniform(-1, 1, shape).astype(d)
    return rng.integers(0, 2, shape).astype(d)


def _run(source: Source, kernel: Kernel, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The tensors that a kernel writes, from copies of the arrays."""
    args, written = [], {}
    for t in source.tensors:
        if t.role == "local":
            continue
        a = materialize(t, arrays[t.source[0] if t.source is not None else t.name]).copy()
        args.append(a)
        if t.role in ("output", "inout"):
            written[t.name] = a
    load_kernel(source)(*args, **{p: sizes[p] for p in source.params})
    return written
