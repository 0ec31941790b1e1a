"""Inputs whose values must be known when compiling: which they are, and how to fix them.

A model may take a shape, axes or pads as an input of the graph. `shape_inputs` names them, `bind_inputs` turns given ones into
constants; a caller that has the values (a test, a backend that compiles at the first run) compiles the bound graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ArgumentError
from ..ir.affine import affine
from ..ir.graph import Graph, Value
from ..ops.registry import Array, lookup

SHAPE_ONLY = frozenset({"Shape", "Size"})


def shape_inputs(graph: Graph) -> tuple[str, ...]:
    """The inputs of the graph, in order, on whose values an operator's compile-time input depends."""
    producer = graph.producer()
    wanted: set[str] = set()
    for node in graph.nodes:
        op = lookup(node.op, node.domain)
        for position in op.consts if op is not None else ():
            if position < len(node.inputs) and node.inputs[position]:
                wanted.add(node.inputs[position])
    seen: set[str] = set()
    stack = list(wanted)
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        writer = producer.get(name)
        if writer is not None and (writer.domain or writer.op not in SHAPE_ONLY):
            stack.extend(i for i in writer.inputs if i)
    return tuple(i for i in graph.inputs if i in seen)


def bind_inputs(graph: Graph, values: Mapping[str, Array]) -> Graph:
    """The graph in which these inputs are constants. Raises ArgumentError for a name, dtype or shape that does not fit."""
    if not values:
        return graph
    typed = dict(graph.values)
    for name, array in values.items():
        if name not in graph.inputs:
            raise ArgumentError(f"{name!r} is not an input (inputs: {', '.join(graph.inputs)})")
        declared = graph.values[name]
        shape = declared.shape or ()
        fits = len(shape) == array.ndim and all(not d.is_const or d.const == n for d, n in zip(shape, array.shape))
        if declared.dtype is not None and array.dtype.name != declared.dtype.numpy:
            raise ArgumentError(f"input {name!r} has dtype {array.dtype.name}, the model takes {declared.dtype.numpy}")
        if not fits:
            raise ArgumentError(f"input {name!r} has shape {list(array.shape)}, the model takes [{', '.join(map(str, shape))}]")
        typed[name] = Value(name, declared.dtype, tuple(affine(d) for d in array.shape))
    inputs = tuple(i for i in graph.inputs if i not in values)
    return replace(graph, inputs=inputs, values=typed, constants={**graph.constants, **values})
