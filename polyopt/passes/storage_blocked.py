"""Which tensors are kept with their channels in blocks of 16.

Takes a plan and its facts; gives the roots that get the blocked layout: results of convolution-like contractions, and of pooling and
maps over such, whose readers all take channels as they are. Anything that leaves the region (a reshape, a matrix product, a
reduction over channels, a model output) keeps its source dense.
"""

from __future__ import annotations

from ..ir.affine import Affine, affine, var
from ..ir.expr import Load
from ..ir.graph import Group, Plan
from ..ops.registry import Nest
from ..ops.structure import factors, spatial_operand
from .fusion_facts import Facts

BLOCK = 16
LEAST_CHANNELS = 8


def blocked_roots(plan: Plan, facts: Facts) -> frozenset[str]:
    """The roots with blocked channels, found in one sweep over the groups in order."""
    blocked: set[str] = set()
    for g in plan.groups:
        source = _is_source(g, facts) or any(facts.root(v) in blocked and facts.aliases.get(v) is None for v in g.inputs)
        if not source:
            continue
        for v in g.outputs:
            if _has_channels(facts, v) and _keeps_channels(g, facts, v, blocked) and _friendly_readers(facts, v):
                blocked.add(v)
    return frozenset(blocked)


def _has_channels(facts: Facts, v: str) -> bool:
    shape = facts.shape(v)
    pinned = v in facts.graph.outputs or any(m in facts.graph.outputs for m in facts.members.get(v, ()))
    if pinned or not 3 <= len(shape) <= 5 or not shape[1].is_const or shape[1].const < LEAST_CHANNELS:
        return False
    return any(e != affine(1) for e in shape[2:])


def _is_source(g: Group, facts: Facts) -> bool:
    """Whether the group holds a convolution-like contraction."""
    return any(spatial_operand(n) is not None for node in g.nodes for n in facts.nodes[node.name].nests)


def _keeps_channels(g: Group, facts: Facts, v: str, blocked: set[str]) -> bool:
    """Whether the group's own nests relate the channels of `v` to the same channels of its blocked inputs (a contraction always does)."""
    if _is_source(g, facts):
        return True
    for node in g.nodes:
        f = facts.nodes[node.name]
        if f.kind == "opaque":
            return False
        for w, uses in f.reads.items():
            if facts.root(w) in blocked and not all(_channel_identity(n, x, facts) for n, x in uses):
                return f.kind == "pieces" and all(isinstance(n.expr, Load) for n in f.nests)
    return True


def _friendly_readers(facts: Facts, v: str) -> bool:
    """Whether every reader of the tensor takes its channels as they are, or is a contraction that slides over it."""
    if facts.members.get(v):
        return False
    for u in facts.readers.get(v, ()):
        f = facts.nodes[u]
        if f.kind == "opaque":
            return False
        for n, x in f.reads[v]:
            fs = factors(n)
            if fs is not None:
                slid = spatial_operand(n)
                if slid is None or slid.access.tensor != v:
                    return False
            elif not _channel_identity(n, x, facts) and not _is_piece(n, x):
                return False
    return True


def _channel_identity(n: Nest, x: Load, facts: Facts) -> bool:
    """Whether the nest reads channel c for its own channel c (the same index in dim 1 of a tensor of the same rank)."""
    if not x.access.is_affine or not n.write.is_affine or len(x.access.indices) < 3:
        return False
    write, read = n.write.affine_indices(), x.access.affine_indices()
    channel = read[1]
    if len(channel.names()) != 1 or channel != var(next(iter(channel.names()))):
        return False
    return (len(write) > 1 and write[1] == channel) or _writes_local(n, channel, facts)


def _writes_local(n: Nest, channel: Affine, facts: Facts) -> bool:
    """Whether the nest writes a local of its node, indexed by the same channel."""
    return n.write.tensor not in facts.graph.values and channel in n.write.affine_indices()


def _is_piece(n: Nest, x: Load) -> bool:
    """Whether the nest copies the tensor to other channels of a larger one, a block to a block."""
    if (n.expr is not x and n.expr != x) or not n.write.is_affine or len(n.write.indices) != len(x.access.indices):
        return False
    write, read = n.write.affine_indices(), x.access.affine_indices()
    return (write[1] - read[1]).is_const and all(w == r for k, (w, r) in enumerate(zip(write, read)) if k != 1)
