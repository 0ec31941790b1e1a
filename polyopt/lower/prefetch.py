"""Prefetch hints into the LoopNest: one `Prefetch` a distinct access, at the start of the loop's body, some iterations ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.affine import Affine, var
from ..ir.expr import Access, loads, substitute_access
from ..ir.loops import If, Instance, Loop, LoopNode, Prefetch

Hint = tuple[str, str, tuple[str, ...], int, int]  # tensor, loop name, statements below, distance, cache level


def place_prefetches(body: tuple[LoopNode, ...], hints: Sequence[Hint]) -> tuple[LoopNode, ...]:
    """The nest with the hints placed in the loops that they name."""
    return tuple(_placed(n, hints) for n in body)


def _placed(n: LoopNode, hints: Sequence[Hint]) -> LoopNode:
    if isinstance(n, If):
        return replace(n, body=place_prefetches(n.body, hints), orelse=place_prefetches(n.orelse, hints))
    if not isinstance(n, Loop):
        return n
    head: list[LoopNode] = []
    for tensor, loop, statements, distance, level in hints:
        if n.name == loop:
            found = dict.fromkeys(a for x in n.body for a in _accesses(x, tensor, statements, {}))
            head += [Prefetch(substitute_access(a, {n.var: var(n.var) + distance * n.step}), level) for a in found]
    return replace(n, body=(*head, *place_prefetches(n.body, hints)))


def _accesses(n: LoopNode, tensor: str, statements: tuple[str, ...], first: dict[str, Affine]) -> list[Access]:
    """The affine loads of a tensor below, each at the first iteration of the loops further in."""
    if isinstance(n, Loop):
        lower = n.lower[0].substitute(first)
        return [a for x in n.body for a in _accesses(x, tensor, statements, {**first, n.var: lower})]
    if isinstance(n, If):
        return [a for x in (*n.body, *n.orelse) for a in _accesses(x, tensor, statements, first)]
    if isinstance(n, Instance) and n.statement in statements:
        return [substitute_access(x.access, first) for x in loads(n.expr) if x.access.tensor == tensor and x.access.is_affine]
    return []
