"""A Pad before a window operator becomes the operator's own padding.

Takes a graph with all types known; gives an equal one, bit by bit. Zeros before a convolution or a counting average, and minus
infinity before a maximum, are what those operators' own padding means.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from ..ir.graph import Graph, Node
from .fold_edit import Edit, merged


def fold_pads(graph: Graph) -> Graph:
    """Move constant padding of the spatial dims into the Conv, AveragePool or MaxPool that reads it."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op not in ("Conv", "AveragePool", "MaxPool") or node.domain or len(node.outputs) > 1:
            continue
        pad = edit.written_by(node.inputs[0], "Pad")
        attrs = None if pad is None else _padded(edit, node, pad)
        if pad is not None and attrs is not None:
            new = replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attrs=attrs, origin=merged(pad, node))
            edit.replace(node, new)
    return edit.done()


def _padded(edit: Edit, node: Node, pad: Node) -> dict[str, Any] | None:
    """The window operator's attributes with the padding added, None where it means something else."""
    rank = len(edit.shape(pad.inputs[0]))
    amounts = _amounts(edit, pad, rank)
    if amounts is None or pad.attr("mode", "constant") != "constant":
        return None
    before, after = amounts
    if any(before[:2]) or any(after[:2]) or min(*before, *after) < 0:
        return None
    value = 0.0
    if len(pad.inputs) > 2 and pad.inputs[2]:
        found = edit.scalar(pad.inputs[2])
        if found is None:
            return None
        value = found
    if value != (-inf if node.op == "MaxPool" else 0.0):
        return None
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        return None
    own = _own_pads(node, rank - 2)
    if node.op == "AveragePool":
        # zeros of the Pad are counted, the operator's own padding only where it counts its padding
        if int(node.attr("ceil_mode", 0)) or (any(own) and not int(node.attr("count_include_pad", 0))):
            return None
    elif node.op == "MaxPool" and (int(node.attr("ceil_mode", 0)) or not _windows_see_data(edit, node, before, after)):
        return None
    half = rank - 2
    pads = [b + o for b, o in zip(before[2:], own[:half])] + [a + o for a, o in zip(after[2:], own[half:])]
    attrs = {**node.attrs, "auto_pad": "NOTSET", "pads": tuple(pads)}
    return {**attrs, "count_include_pad": 1} if node.op == "AveragePool" else attrs


def _own_pads(node: Node, spatial: int) -> list[int]:
    pads = node.attr("pads")
    return [0] * (2 * spatial) if pads is None or node.attr("auto_pad", "NOTSET") == "VALID" else [int(p) for p in pads]


def _amounts(edit: Edit, pad: Node, rank: int) -> tuple[list[int], list[int]] | None:
    """What a Pad adds before and after each dim."""
    pads = edit.constant(pad.inputs[1])
    if pads is None:
        return None
    axes = list(range(rank))
    if len(pad.inputs) > 3 and pad.inputs[3]:
        given = edit.constant(pad.inputs[3])
        if given is None:
            return None
        axes = [int(a) % rank for a in given]
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[k]), int(pads[k + len(axes)])
    return before, after


def _windows_see_data(edit: Edit, node: Node, before: list[int], after: list[int]) -> bool:
    """Whether no window of a MaxPool can lie in the padding alone (it would give the type's lowest value)."""
    kernel = [int(k) for k in node.attr("kernel_shape")]
    own = _own_pads(node, len(kernel))
    dilations = [int(d) for d in node.attr("dilations") or [1] * len(kernel)]
    total = [(before[k + 2] + own[k], after[k + 2] + own[k + len(kernel)]) for k in range(len(kernel))]
    return all(max(p) < k and d == 1 for p, k, d in zip(total, kernel, dilations))
