"""Scales and offsets by constants move into the constants of the contraction before them.

Takes graphs with all types known; gives graphs that are equal up to rounding (scales are multiplied in double precision). Batch
normalization becomes a scale and an offset first. A contraction takes them in only if nothing else reads its result.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..ir.graph import Graph, Node
from ..ops.build import np_dtype
from ..ops.registry import Array
from .fold_edit import Edit, merged

CONVOLUTIONS = ("Conv", "ConvTranspose")


def split_batch_norm(graph: Graph) -> Graph:
    """BatchNormalization at inference: y = x·s + t with s = scale / sqrt(var + epsilon), t = bias - mean·s."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op != "BatchNormalization" or node.domain or node.attr("training_mode", 0) or len(node.outputs) > 1:
            continue
        parameters = [edit.constant(i) for i in node.inputs[1:5]]
        if any(p is None for p in parameters) or len(edit.shape(node.inputs[0])) < 2:
            continue
        scale, bias, mean, var = (np.asarray(p, np.float64) for p in parameters)
        s = scale / np.sqrt(var + float(node.attr("epsilon", 1e-5)))
        t = bias - mean * s
        x, y = node.inputs[0], node.outputs[0]
        column, dtype = (-1, *[1] * (len(edit.shape(x)) - 2)), np_dtype(edit.dtype(x))
        middle = edit.add_value(f"{node.name}/scaled", edit.dtype(x), edit.shape(x))
        factor = edit.add_constant(f"{node.name}/factor", s.reshape(column).astype(dtype))
        offset = edit.add_constant(f"{node.name}/offset", t.reshape(column).astype(dtype))
        edit.replace(
            node,
            Node(edit.fresh(f"{node.name}/mul"), "Mul", (x, factor), (middle,), {}, "", node.origin),
            Node(node.name, "Add", (middle, offset), (y,), {}, "", node.origin),
        )
    return edit.done()


def fold_affine(graph: Graph) -> Graph:
    """Mul, Div, Add, Sub by a constant per channel move into the weights and bias of the contraction that writes their input."""
    edit = Edit(graph)
    for node in graph.nodes:
        found = _scale_or_offset(edit, node)
        if found is None:
            continue
        source, scale, offset = found
        contraction = edit.written_by(source, *CONVOLUTIONS, "Gemm", "MatMul")
        if contraction is None or edit.only_consumer(source) is not node or not edit.is_free(node):
            continue
        folded = _folded(edit, contraction, scale, offset)
        if folded is not None:
            edit.replace(node)
            edit.replace(contraction, replace(folded, outputs=node.outputs, origin=merged(contraction, node)))
    return edit.done()


def _scale_or_offset(edit: Edit, node: Node) -> tuple[str, Array | None, Array | None] | None:
    """(x, s, None) for x·s, (x, None, t) for x + t, with s and t one value a channel, or one in all; None for other nodes."""
    if node.op not in ("Mul", "Div", "Add", "Sub") or node.domain or not edit.dtype(node.outputs[0]).is_float:
        return None
    for i, j in ((0, 1), (1, 0)):
        x, c = node.inputs[i], edit.constant(node.inputs[j])
        if c is None or x in edit.graph.constants or edit.shape(x) != edit.shape(node.outputs[0]):
            continue
        c = np.asarray(c, np.float64)
        if node.op in ("Div", "Sub") and i == 1:  # c - x, c / x
            return None
        if node.op == "Div":
            if not c.all():
                return None
            return x, 1 / c, None
        return (x, c, None) if node.op == "Mul" else (x, None, c if node.op == "Add" else -c)
    return None


def _per_channel(c: Array, rank: int, axis: int, count: int) -> Array | None:
    """The constant as `count` values along `axis` of a tensor of that rank; None where it varies along other dims."""
    if c.ndim > rank:
        return None
    shape = (1,) * (rank - c.ndim) + c.shape
    if any(d != 1 for k, d in enumerate(shape) if k != axis) or shape[axis] not in (1, count):
        return None
    return np.broadcast_to(c.reshape(-1), (count,))


def _folded(edit: Edit, node: Node, scale: Array | None, offset: Array | None) -> Node | None:
    """The contraction with a scale or an offset taken in, None where it cannot be."""
    rank = len(edit.shape(node.outputs[0]))
    axis = 1 if node.op in CONVOLUTIONS else rank - 1
    channels = edit.shape(node.outputs[0])[axis]
    if not channels.is_const or rank < 2:
        return None
    given = scale if scale is not None else offset
    assert given is not None
    c = _per_channel(given, rank, axis, channels.const)
    if c is None:
        return None
    if scale is not None:
        return _scaled(edit, node, c)
    return None if node.op == "MatMul" else _offset(edit, node, c)


def _scaled(edit: Edit, node: Node, s: Array) -> Node | None:
    """Weights (and bias) times s."""
    weights = edit.constant(node.inputs[1])
    bias = edit.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weights is None or (bias is None and len(node.inputs) > 2 and node.inputs[2]):
        return None
    if len(edit.consumers[node.inputs[1]]) > 1 or not np.isfinite(s).all():  # shared weights stay shared
        return None
    wide = weights.astype(np.float64)
    if node.op == "Conv":
        wide = wide * s.reshape(-1, *[1] * (weights.ndim - 1))
    elif node.op == "ConvTranspose":  # [C, M/groups, …]: output channel m of group g is column m of the rows of g
        groups = int(node.attr("group", 1))
        rows = wide.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
        wide = (rows * s.reshape(groups, 1, -1, *[1] * (weights.ndim - 2))).reshape(weights.shape)
    elif node.op == "Gemm" and node.attr("transB", 0):
        wide = wide * s.reshape(-1, 1)
    else:
        wide = wide * s
    if not np.isfinite(wide.astype(weights.dtype)).all():
        return None
    inputs = list(node.inputs)
    inputs[1] = edit.add_constant(f"{node.name}/weights", wide.astype(weights.dtype))
    if bias is not None:
        inputs[2] = edit.add_constant(f"{node.name}/bias", (bias.astype(np.float64) * s).astype(bias.dtype))
    return replace(node, inputs=tuple(inputs))


def _offset(edit: Edit, node: Node, t: Array) -> Node | None:
    """Bias plus t (a Gemm's beta goes into it)."""
    dtype = np_dtype(edit.dtype(node.outputs[0]))
    inputs = list(node.inputs) + [""] * (3 - len(node.inputs))
    attrs = dict(node.attrs)
    old = edit.constant(inputs[2]) if inputs[2] else np.zeros((), dtype)
    if old is None:
        return None
    beta = float(node.attr("beta", 1.0)) if node.op == "Gemm" else 1.0
    if node.op == "Gemm":
        attrs["beta"] = 1.0
    inputs[2] = edit.add_constant(f"{node.name}/bias", (old.astype(np.float64) * beta + t).astype(dtype))
    return replace(node, inputs=tuple(inputs), attrs=attrs)


def fold_gemm(graph: Graph) -> Graph:
    """A Gemm with constant operands: B is transposed now, alpha goes into B and beta into C."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op != "Gemm" or node.domain:
            continue
        b, attrs, inputs = edit.constant(node.inputs[1]), dict(node.attrs), list(node.inputs)
        alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
        is_alone = len(edit.consumers[node.inputs[1]]) == 1
        if b is not None and is_alone and (attrs.get("transB", 0) or alpha != 1):
            if not edit.dtype(node.inputs[1]).is_float and alpha != 1:
                continue
            array = b.T if attrs.get("transB", 0) else b
            array = array if alpha == 1 else (array.astype(np.float64) * alpha).astype(b.dtype)
            inputs[1] = edit.add_constant(f"{node.name}/weights", np.ascontiguousarray(array))
            attrs |= {"transB": 0, "alpha": 1.0}
        c = edit.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
        if c is not None and beta != 1 and edit.dtype(inputs[2]).is_float:
            inputs[2] = edit.add_constant(f"{node.name}/bias", (c.astype(np.float64) * beta).astype(c.dtype))
            attrs["beta"] = 1.0
        if tuple(inputs) != node.inputs:
            edit.replace(node, replace(node, inputs=tuple(inputs), attrs=attrs))
    return edit.done()


def merge_constant_operands(graph: Graph) -> Graph:
    """(x·a)·b = x·(a·b) and (x + a) + b = x + (a + b) for constants a, b, where nothing else reads the inner result."""
    edit = Edit(graph)
    for node in graph.nodes:
        outer = _constant_operand(edit, node)
        inner_node = edit.written_by(outer[0], node.op) if outer is not None else None
        if outer is None or inner_node is None or edit.only_consumer(outer[0]) is not node or not edit.is_free(node):
            continue
        inner = _constant_operand(edit, inner_node)
        if inner is None or edit.shape(inner[0]) != edit.shape(node.outputs[0]):
            continue
        a, b = inner[1].astype(np.float64), outer[1].astype(np.float64)
        both = (a * b if node.op == "Mul" else a + b).astype(outer[1].dtype)
        if prod(both.shape) > max(a.size, b.size):
            continue
        name = edit.add_constant(f"{node.name}/constant", both)
        edit.replace(inner_node)
        edit.replace(node, replace(node, inputs=(inner[0], name), origin=merged(inner_node, node)))
    return edit.done()


def _constant_operand(edit: Edit, node: Node) -> tuple[str, Array] | None:
    if node.op not in ("Mul", "Add") or node.domain or len(node.inputs) != 2 or not edit.dtype(node.outputs[0]).is_float:
        return None
    for i, j in ((0, 1), (1, 0)):
        c = edit.constant(node.inputs[j])
        if c is not None and edit.constant(node.inputs[i]) is None:
            return node.inputs[i], c
    return None


def expand_powers(graph: Graph) -> Graph:
    """x² and x³ with a constant exponent become products."""
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op != "Pow" or node.domain:
            continue
        exponent, x, y = edit.scalar(node.inputs[1]), node.inputs[0], node.outputs[0]
        fits = edit.shape(x) == edit.shape(y) and edit.dtype(x) == edit.dtype(y) and edit.dtype(x).is_float
        if exponent == 2 and fits:
            edit.replace(node, Node(node.name, "Mul", (x, x), (y,), {}, "", node.origin))
        elif exponent == 3 and fits:
            square = edit.add_value(f"{node.name}/square", edit.dtype(x), edit.shape(x))
            first = Node(edit.fresh(f"{node.name}/mul"), "Mul", (x, x), (square,), {}, "", node.origin)
            edit.replace(node, first, Node(node.name, "Mul", (square, x), (y,), {}, "", node.origin))
    return edit.done()


def divide_exactly(graph: Graph) -> Graph:
    """Division by a constant power of two is multiplication by its reciprocal, bit by bit."""
    return _divide(graph, exact=True)


def divide_by_reciprocal(graph: Graph) -> Graph:
    """Division by any constant is multiplication by its rounded reciprocal (fp=fast)."""
    return _divide(graph, exact=False)


def _divide(graph: Graph, exact: bool) -> Graph:
    edit = Edit(graph)
    for node in graph.nodes:
        if node.op != "Div" or node.domain or not edit.dtype(node.outputs[0]).is_float:
            continue
        c = edit.constant(node.inputs[1])
        if c is None or edit.constant(node.inputs[0]) is not None:
            continue
        wide = np.asarray(c, np.float64)
        mantissa, power = np.frexp(np.abs(wide))
        is_exact = bool((mantissa == 0.5).all() and (np.abs(power) < 14).all())
        if is_exact or (not exact and bool(np.isfinite(wide).all() and wide.all())):
            name = edit.add_constant(f"{node.name}/reciprocal", (1 / wide).astype(c.dtype))
            edit.replace(node, replace(node, op="Mul", inputs=(node.inputs[0], name), attrs={}))
    return edit.done()
