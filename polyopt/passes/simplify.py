"""Simplification of a graph: small passes, each `Graph -> Graph`, repeated until nothing changes.

Takes a graph with all types known; gives an equal one: bit by bit at fp=strict, up to rounding at default and fast. A pass that has
nothing to do gives the same object, which is how the end is found.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InternalError
from ..ir.graph import Graph
from .fold_affine import (
    divide_by_reciprocal,
    divide_exactly,
    expand_powers,
    fold_affine,
    fold_gemm,
    merge_constant_operands,
    split_batch_norm,
)
from .fold_constants import fold_constants, fold_shapes, remove_dead, share_constants, share_nodes
from .fold_pads import fold_pads
from .fold_views import canonical_views, drop_expands, merge_transposes, remove_noops

Pass = Callable[[Graph], Graph]

EXACT: tuple[Pass, ...] = (
    fold_constants,
    fold_shapes,
    remove_noops,
    canonical_views,
    merge_transposes,
    drop_expands,
    divide_exactly,
    fold_pads,
    share_constants,
    share_nodes,
    remove_dead,
)
"""Passes that keep every bit."""

ROUNDING: tuple[Pass, ...] = (expand_powers, split_batch_norm, merge_constant_operands, fold_affine, fold_gemm)
"""Passes that change rounding: they need fp=default."""

FAST: tuple[Pass, ...] = (divide_by_reciprocal,)
"""Passes that need fp=fast."""

_MOST_ROUNDS = 100


def simplify(graph: Graph, fp: str = "default") -> Graph:
    """The simplified graph. fp: strict, default or fast, as in `Options`."""
    passes = EXACT
    if fp != "strict":
        passes = (*EXACT[:-1], *ROUNDING, *(FAST if fp == "fast" else ()), EXACT[-1])
    for _ in range(_MOST_ROUNDS):
        before = graph
        for one in passes:
            graph = one(graph)
        if graph is before:
            return graph
    raise InternalError(f"simplify does not end on graph {graph.name!r}: after {_MOST_ROUNDS} rounds it still changes")
