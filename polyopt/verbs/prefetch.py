"""prefetch: ask for data some iterations before it is used.

    for k: … A[i, k] …          prefetch("A", at="k", distance=8)          for k: { prefetch A[i, k + 8]; … A[i, k] … }

A hint: it changes no value and is legal always. It pays where the stride leaves the hardware prefetcher behind.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from .arguments import check_count
from .checked import check_context
from .tree import find_chain


def prefetch(scop: Scop, tensor: str, *, at: str, distance: int, level: int = 1, of: str | None = None) -> Scop:
    """Prefetch, in each iteration of the loop `at`, what the loads of `tensor` will touch `distance` iterations later.

    level: the cache that it should reach (1 nearest, to 3). Raises ScheduleError for an unknown tensor or loop, or a distance below 1.
    """
    if tensor not in {t.name for t in scop.tensors}:
        raise ScheduleError(f"prefetch: there is no tensor {tensor!r}; the tensors are {', '.join(t.name for t in scop.tensors)}")
    check_context(scop)
    check_count("prefetch", "distance", distance)
    if level not in (1, 2, 3):
        raise ScheduleError(f"prefetch: level is {level!r}; it must be 1, 2 or 3")
    chain = find_chain(scop, "prefetch", [at], of)
    if not any(a.tensor == tensor for s in chain.statements for a in scop.statement(s).reads()):
        raise ScheduleError(f"prefetch: no statement below the loop {at} loads {tensor}")
    hint = (tensor, at, tuple(sorted(chain.statements)), distance, level)
    step = Step("prefetch", (tensor,), (("at", at), ("distance", distance), ("level", level), *((("of", of),) if of else ())))
    hints = (*scop.meta.get("prefetch", ()), hint)
    return replace(scop, meta={**scop.meta, "prefetch": hints}, history=(*scop.history, step))
