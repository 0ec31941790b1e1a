"""Nodes that only copy or rename: those without effect go, the others take one form and merge.

Each pass takes a graph with all types known and gives an equal one, bit by bit. Flatten, Squeeze, Unsqueeze and Reshape become a
Reshape with a constant shape: numbers with one -1 for a named dim, or an object array of `Affine`s where several dims are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Graph, Node, Shape
from ..ops.registry import Array
from .fold_edit import Edit, merged

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def remove_noops(graph: Graph) -> Graph:
    """Remove the nodes that give one of their inputs unchanged."""
    edit = Edit(graph)
    for node in graph.nodes:
        source = _unchanged_input(edit, node)
        if source is not None and edit.is_free(node) and len([o for o in node.outputs if o]) == 1:
            edit.bypass(node, source)
    return edit.done()


def _unchanged_input(edit: Edit, node: Node) -> str | None:
    """The input that the node copies, None where it does more."""
    rule = None if node.domain else _NOOPS.get(node.op)
    if rule is None or not node.inputs or not node.inputs[0]:
        return None
    x, y = edit.value(node.inputs[0]), edit.value(node.outputs[0])
    if node.op in _NEUTRAL:
        return _NOOPS[node.op](edit, node)
    return rule(edit, node) if (x.shape, x.dtype) == (y.shape, y.dtype) else None


def _always(edit: Edit, node: Node) -> str | None:
    return node.inputs[0]


def _if_alone(edit: Edit, node: Node) -> str | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _transpose(edit: Edit, node: Node) -> str | None:
    """A permutation that is the identity, or that moves only dims of size 1 among themselves."""
    rank = len(edit.shape(node.inputs[0]))
    perm = permutation(node, rank)
    return node.inputs[0] if perm == tuple(range(rank)) else None


def _slice(edit: Edit, node: Node) -> str | None:
    """A slice as large as its input that walks forwards is the input."""
    if len(node.inputs) < 5 or not node.inputs[4]:
        return node.inputs[0]
    steps = edit.constant(node.inputs[4])
    return node.inputs[0] if steps is not None and (steps > 0).all() else None


def _pad(edit: Edit, node: Node) -> str | None:
    pads = edit.constant(node.inputs[1])
    return node.inputs[0] if pads is not None and not pads.any() else None


def _clip(edit: Edit, node: Node) -> str | None:
    return node.inputs[0] if not any(node.inputs[1:]) else None


def _neutral(value: float, either: bool) -> Callable[[Edit, Node], str | None]:
    """x op value = x, exactly; `either`: also value op x."""

    def rule(edit: Edit, node: Node) -> str | None:
        y = edit.value(node.outputs[0])
        for i, j in ((0, 1), (1, 0)) if either else ((0, 1),):
            x, c = edit.value(node.inputs[i]), edit.constant(node.inputs[j])
            if c is not None and (x.shape, x.dtype) == (y.shape, y.dtype) and c.size and bool((c == value).all()):
                if value or not np.signbit(c).any():  # x - 0 is x, x - (-0) makes 0 of -0
                    return x.name
        return None

    return rule


def _integer_sum(edit: Edit, node: Node) -> str | None:
    return _neutral(0, either=True)(edit, node) if edit.dtype(node.outputs[0]).is_integer else None


_NEUTRAL = frozenset({"Mul", "Div", "Sub", "Add", "Pow"})
_NOOPS: dict[str, Callable[[Edit, Node], str | None]] = {
    **dict.fromkeys(("Identity", "Cast", "Expand", "Tile", *VIEWS), _always),
    **dict.fromkeys(("Concat", "Sum", "Max", "Min", "Mean", "Split"), _if_alone),
    "Add": _integer_sum,
    "Clip": _clip,
    "Div": _neutral(1, either=False),
    "Mul": _neutral(1, either=True),
    "Pad": _pad,
    "Pow": _neutral(1, either=False),
    "Slice": _slice,
    "Sub": _neutral(0, either=False),
    "Transpose": _transpose,
}


def permutation(node: Node, rank: int) -> tuple[int, ...]:
    """The permutation of a Transpose (without one, all dims are reversed)."""
    perm = node.attr("perm")
    return tuple(reversed(range(rank))) if perm is None else tuple(int(p) % rank for p in perm)


def shape_array(shape: Shape) -> Array:
    """A target shape as the constant input of a Reshape."""
    named = [d for d in shape if not d.is_const]
    if len(named) <= 1 and not any(d.is_const and d.const == 0 for d in shape if named):
        return np.array([d.const if d.is_const else -1 for d in shape], np.int64)
    out = np.empty(len(shape), object)
    out[:] = [d.const if d.is_const else d for d in shape]
    return out


def reshape(edit: Edit, like: Node, source: str, target: str, shape: Shape, origin: Sequence[str]) -> Node:
    """A Reshape in its one form, in the place of `like`."""
    name = edit.add_constant(f"{like.name}/shape", shape_array(shape))
    zeros = any(d.is_const and d.const == 0 for d in shape)
    return Node(like.name, "Reshape", (source, name), (target,), {"allowzero": int(zeros)}, "", tuple(origin))


def canonical_views(graph: Graph) -> Graph:
    """Flatten, Squeeze, Unsqueeze, Reshape, and a Transpose that moves only dims of size 1, become one Reshape; chains merge."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.domain or not edit.is_free(node):
            continue
        if node.op == "Transpose" and not _moves_only_ones(edit, node):
            continue
        if node.op not in (*VIEWS, "Transpose"):
            continue
        source, target = node.inputs[0], node.outputs[0]
        inner = edit.written_by(source, "Reshape")
        origin = node.origin
        if inner is not None:  # the inner one stays where others read it, else it is dead
            source, origin = inner.inputs[0], merged(inner, node)
        if inner is None and node.op == "Reshape" and _is_canonical(edit, node):
            continue
        edit.replace(node, reshape(edit, node, source, target, edit.shape(target), origin))
    return edit.done()


def _moves_only_ones(edit: Edit, node: Node) -> bool:
    """Whether the dims larger than 1 keep their order (the memory stays as it is)."""
    shape = edit.shape(node.inputs[0])
    moved = [p for p in permutation(node, len(shape)) if shape[p] != affine(1)]
    return moved == sorted(moved)


def _is_canonical(edit: Edit, node: Node) -> bool:
    array = edit.graph.constants.get(node.inputs[1])
    wanted = shape_array(edit.shape(node.outputs[0]))
    return array is not None and array.dtype == wanted.dtype and list(array) == list(wanted)


def merge_transposes(graph: Graph) -> Graph:
    """Transpose of a Transpose is one Transpose."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op != "Transpose" or node.domain or not edit.is_free(node):
            continue
        inner = edit.written_by(node.inputs[0], "Transpose")
        if inner is None:
            continue
        rank = len(edit.shape(node.inputs[0]))
        first, second = permutation(inner, rank), permutation(node, rank)
        perm = tuple(first[p] for p in second)
        new = replace(node, inputs=inner.inputs, attrs={"perm": perm}, origin=merged(inner, node))
        edit.replace(node, new)
    return edit.done()


ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
LOGIC = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Where")
BROADCASTING = frozenset((*ARITHMETIC, *LOGIC))


def drop_expands(graph: Graph) -> Graph:
    """An Expand whose reader broadcasts anyway is skipped."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op not in BROADCASTING or node.domain:
            continue
        inputs = list(node.inputs)
        for i, name in enumerate(inputs):
            expand = edit.written_by(name, "Expand") if name else None
            if expand is None or (node.op == "PRelu" and i == 0):
                continue
            shapes = [edit.shape(expand.inputs[0] if j == i else other) for j, other in enumerate(inputs)]
            if _broadcast(shapes) == edit.shape(node.outputs[0]):
                inputs[i] = expand.inputs[0]
        if tuple(inputs) != node.inputs:
            edit.replace(node, replace(node, inputs=tuple(inputs)))
    return edit.done()


def _broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The common shape, where each dim is 1 or the same everywhere."""
    rank = max(len(s) for s in shapes)
    out: list[Affine] = [affine(1)] * rank
    for s in shapes:
        for k, d in enumerate(s, rank - len(s)):
            if out[k] == affine(1):
                out[k] = d
            elif d not in (affine(1), out[k]):
                return None
    return tuple(out)
