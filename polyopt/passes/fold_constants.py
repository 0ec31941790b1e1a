"""Constants: nodes that only constants and shapes decide are computed now; dead code and duplicates go.

Each pass takes a graph with all types known and gives an equal one. Values are computed with the operators' references. What would
make the model much larger (the expansion of a scalar to an image) is left to run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.graph import Graph, Node
from ..ops.build import np_dtype
from ..ops.registry import Array, lookup
from .fold_edit import Edit
from .infer_known import RANDOM, is_symbolic
from .infer_shapes import infer_known

SMALL_BYTES = 1 << 16  # constants up to this size are compared for equality, and may always be computed
GROWTH = 2  # a larger result may be at most this many times the bytes of its inputs


def fold_constants(graph: Graph) -> Graph:
    """Compute the nodes whose inputs are constants, and those whose values the shapes decide."""
    known = infer_known(graph)[1]
    edit = Edit(graph)
    computed: dict[str, Array] = {k: v for k, v in known.items() if not is_symbolic(v)}
    for node in graph.nodes:
        if _is_copy_for_caller(node, edit) or not any(node.outputs):
            continue
        arrays = _known_outputs(node, computed) or _computed(node, edit, computed)
        if arrays is not None:
            computed.update({o: a for o, a in zip(node.outputs, arrays) if o})
            edit.make_constant(node, arrays)
    return edit.done()


def _is_copy_for_caller(node: Node, edit: Edit) -> bool:
    return node.op == "Identity" and not node.domain and edit.is_output(node.outputs[0]) and edit.constant(node.inputs[0]) is not None


def _known_outputs(node: Node, computed: Mapping[str, Array]) -> list[Array] | None:
    if any(o and o not in computed for o in node.outputs):
        return None
    return [computed[o] if o else np.empty(0) for o in node.outputs]


def _computed(node: Node, edit: Edit, computed: Mapping[str, Array]) -> list[Array] | None:
    """The outputs by the operator's reference, unless an input is not constant or the result is too large."""
    op = lookup(node.op, node.domain)
    if op is None or node.domain or node.op in RANDOM or any(i and i not in computed for i in node.inputs):
        return None
    given = sum(computed[i].nbytes for i in node.inputs if i)
    result = 0
    for o in node.outputs:
        shape = edit.static_shape(o) if o else ()
        if shape is None:
            return None
        result += int(np.prod(shape, dtype=np.int64)) * np_dtype(edit.dtype(o)).itemsize if o else 0
    if result > max(SMALL_BYTES, GROWTH * given):
        return None
    return [np.asarray(a) for a in op.reference(node, [computed[i] if i else None for i in node.inputs])]


def fold_shapes(graph: Graph) -> Graph:
    """Inputs that an operator needs when compiling become constants, named dims included, so that nothing computes them at run time."""
    known = infer_known(graph)[1]
    edit = Edit(graph)
    made: dict[str, str] = {}
    for node in graph.nodes:
        op = lookup(node.op, node.domain)
        inputs = list(node.inputs)
        for position in op.consts if op is not None else ():
            name = inputs[position] if position < len(inputs) else ""
            if name and name not in graph.constants and name in known:
                if name not in made:
                    made[name] = edit.add_constant(f"{name}/known", known[name])
                inputs[position] = made[name]
        if tuple(inputs) != node.inputs:
            edit.replace(node, replace(node, inputs=tuple(inputs)))
    return edit.done()


def share_constants(graph: Graph) -> Graph:
    """Equal small constants become one."""
    first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    renamed: dict[str, str] = {}
    for name, array in graph.constants.items():
        if not is_symbolic(array) and array.nbytes <= SMALL_BYTES:
            key = (array.dtype.name, array.shape, array.tobytes())
            if first.setdefault(key, name) != name:
                renamed[name] = first[key]
    if not renamed:
        return graph
    nodes = tuple(_reading(n, renamed) for n in graph.nodes)
    constants = {k: v for k, v in graph.constants.items() if k not in renamed}
    return replace(graph, nodes=nodes, constants=constants, values={k: v for k, v in graph.values.items() if k not in renamed})


def _reading(node: Node, renamed: Mapping[str, str]) -> Node:
    inputs = tuple(renamed.get(i, i) for i in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def share_nodes(graph: Graph) -> Graph:
    """Common subexpressions: a node with the operator, attributes and inputs of an earlier one is replaced by it."""
    first: dict[Any, Node] = {}
    renamed: dict[str, str] = {}
    nodes = []
    outputs = set(graph.outputs)
    for n in graph.nodes:
        n = _reading(n, renamed)
        key = (n.op, n.domain, n.inputs, len(n.outputs), _frozen(n.attrs))
        earlier = first.get(key)
        reusable = n.op not in RANDOM and not any(o in outputs for o in n.outputs)
        if earlier is not None and reusable and all(e or not o for e, o in zip(earlier.outputs, n.outputs)):
            renamed.update({o: e for o, e in zip(n.outputs, earlier.outputs) if o})
            continue
        if n.op not in RANDOM:
            first.setdefault(key, n)
        nodes.append(n)
    if not renamed:
        return graph
    return replace(graph, nodes=tuple(nodes), values={k: v for k, v in graph.values.items() if k not in renamed})


def _frozen(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Attributes as a value that can be compared and hashed."""

    def one(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            return (v.dtype.name, v.shape, v.tobytes() if v.dtype != object else tuple(map(str, v.reshape(-1))))
        return (type(v).__name__, v if isinstance(v, int | float | str | tuple) else repr(v))

    return tuple((k, one(attrs[k])) for k in sorted(attrs))


OPTIONAL_OUTPUTS = frozenset({"MaxPool", "LayerNormalization", "LSTM", "GRU", "RNN", "BatchNormalization"})


def remove_dead(graph: Graph) -> Graph:
    """Nodes, constants and optional outputs that nothing reads go."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for n in reversed(graph.nodes):
        if not any(o in needed for o in n.outputs):
            continue
        if n.op in OPTIONAL_OUTPUTS and not n.domain:
            outputs = tuple(o if o in needed else "" for o in n.outputs)
            while not outputs[-1]:
                outputs = outputs[:-1]
            n = n if outputs == n.outputs else replace(n, outputs=outputs)
        needed.update(i for i in n.inputs if i)
        kept.append(n)
    nodes = tuple(reversed(kept))
    constants = {k: v for k, v in graph.constants.items() if k in needed}
    if nodes == graph.nodes and len(constants) == len(graph.constants):
        return graph
    written = {o for n in nodes for o in n.outputs if o}
    values = {k: v for k, v in graph.values.items() if k in written or k in constants or k in graph.inputs}
    return replace(graph, nodes=nodes, constants=constants, values=values)
