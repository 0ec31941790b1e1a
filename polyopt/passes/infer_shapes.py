"""Shapes and dtypes of every tensor, by each operator's own rule, with the values that are known when compiling.

Takes a graph whose inputs and constants have types; gives the same graph with all types known. A node that its operator refuses, and
a tensor whose shape only the data decides, are a `ModelError` that names it. The shape of a tensor is affine in the named dims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..errors import InternalError, ModelError, UserError
from ..ir.affine import affine
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Shape, Value
from ..ops.build import np_dtype
from ..ops.registry import Array, Op, lookup
from ..options import LARGEST_DIM
from .infer_known import evaluate


def infer_shapes(graph: Graph) -> Graph:
    """The graph with the dtype and shape of every value."""
    return infer_known(graph)[0]


def infer_known(graph: Graph) -> tuple[Graph, dict[str, Array]]:
    """The graph with all types, and the values known when compiling (constants, and what they and the shapes decide)."""
    values: dict[str, Value] = dict(graph.values)
    known: dict[str, Array] = dict(graph.constants)
    for name in graph.inputs:
        _check_size(values[name], f"input {name!r}")
    for node in graph.nodes:
        op = lookup(node.op, node.domain)
        if op is None:
            raise ModelError(f"node {node.name!r}: operator {_full_name(node)} is not supported")
        ins = [values[i] if i else None for i in node.inputs]
        _check_consts(node, op, ins, known)
        types = _infer(node, op, ins, known)
        arrays = _evaluate(node, op, ins, known, types)
        for position, name in enumerate(node.outputs):
            if not name:
                continue
            dtype, shape = types[position]
            if arrays is not None and position < len(arrays):
                known[name] = arrays[position]
                shape = tuple(affine(d) for d in arrays[position].shape)
            elif shape is not None and any(d.is_const and d.const == 0 for d in shape) and all(d.is_const for d in shape):
                known[name] = np.empty([d.const for d in shape], np_dtype(dtype))
            values[name] = _typed(graph, node, name, dtype, shape)
    unknown = [v for v in values.values() if v.shape is None]
    if unknown:
        producer = graph.producer()
        who = [f"{v.name!r} of node {producer[v.name].name!r} ({producer[v.name].op})" for v in unknown[:5] if v.name in producer]
        raise ModelError(f"the shape of {', '.join(who)} is decided by data that is known only at run time: not supported")
    return (graph if values == graph.values else replace(graph, values=values)), known


def _infer(node: Node, op: Op, ins: Sequence[Value | None], known: Mapping[str, Array]) -> list[tuple[DType, Shape | None]]:
    """The operator's rule, with errors that say where."""
    try:
        types = list(op.infer(node, ins, known))
    except UserError as e:
        raise type(e)(_at(node, ins, str(e) + _hint(ins, str(e)))) from None
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError) as e:
        raise ModelError(_at(node, ins, f"these inputs and attributes do not fit it ({e})")) from e
    if len(types) < len(node.outputs):
        extra = [o for o in node.outputs[len(types) :] if o]
        if extra:
            raise ModelError(_at(node, ins, f"its output {extra[0]!r} (number {len(types)}) is not supported"))
    return types


def _evaluate(
    node: Node, op: Op, ins: Sequence[Value | None], known: Mapping[str, Array], types: Sequence[tuple[DType, Shape | None]]
) -> Sequence[Array] | None:
    """The values of the outputs, where they are known."""
    try:
        arrays = evaluate(node, op, ins, known, [s for _, s in types])
    except UserError as e:
        raise type(e)(_at(node, ins, str(e))) from None
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError) as e:
        raise ModelError(_at(node, ins, f"its known inputs do not fit it ({e})")) from e
    return None if arrays is None else [_checked(node, ins, a, *t) for a, t in zip(arrays, types)]


def _checked(node: Node, ins: Sequence[Value | None], array: Array, dtype: DType, shape: Shape | None) -> Array:
    """A known value in the dtype and shape that inference gives; partial evaluation counts in int64."""
    fits = shape is None or (len(shape) == array.ndim and all(not d.is_const or d.const == n for d, n in zip(shape, array.shape)))
    if not fits:
        raise InternalError(_at(node, ins, f"its value has shape {array.shape}, inference gives {shape}"))
    if array.dtype == object or array.dtype == np_dtype(dtype):
        return array
    if array.dtype != np.int64:
        raise InternalError(_at(node, ins, f"its value has type {array.dtype}, inference gives {dtype}"))
    return array.astype(np_dtype(dtype))


def _check_consts(node: Node, op: Op, ins: Sequence[Value | None], known: Mapping[str, Array]) -> None:
    for position in op.consts:
        v = ins[position] if position < len(ins) else None
        if v is not None and v.name not in known:
            raise ModelError(_at(node, ins, f"its input {position} ({v.name!r}) must be known when compiling, it is computed from data"))


def _typed(graph: Graph, node: Node, name: str, dtype: DType, shape: Shape | None) -> Value:
    """The value; a dtype that the model declares for it must agree."""
    declared = graph.values[name].dtype if name in graph.values else None
    if declared is not None and declared != dtype:
        raise ModelError(f"node {node.name!r} ({node.op}) gives {name!r} as {dtype}, the model declares it as {declared}")
    value = Value(name, dtype, shape)
    _check_size(value, f"node {node.name!r} ({node.op}): its output {name!r}")
    return value


def _check_size(value: Value, where: str) -> None:
    """Refuse a shape with a negative dim, and one that no memory holds even where each named dim is 1."""
    shape, dtype = value.shape, value.dtype
    if shape is None or dtype is None:
        return
    negative = next((d for d in shape if d.is_const and d.const < 0), None)
    if negative is not None:
        raise ModelError(f"{where} would have the negative dim {negative} in its shape [{', '.join(map(str, shape))}]")
    least = [d.evaluate(dict.fromkeys(d.names(), 1)) for d in shape]
    if min(least, default=1) > 0 and math.prod(least) * dtype.bytes > LARGEST_DIM:
        raise ModelError(f"{where} of {show_value(value)} holds {math.prod(least) * dtype.bytes} bytes: more than any memory")


def _hint(ins: Sequence[Value | None], reason: str) -> str:
    """What may help where named dims meet: the sizes may agree only for some of their values."""
    names = sorted({n for v in ins if v is not None for d in v.shape or () for n in d.names()})
    return "" if not names or "bind" in reason else f" (give a value to {', '.join(names)})"


def _full_name(node: Node) -> str:
    return f"{node.domain}::{node.op}" if node.domain else node.op


def show_value(v: Value | None) -> str:
    """A value as `f32[1, N]`, for messages."""
    if v is None:
        return "absent"
    shape = "[?]" if v.shape is None else f"[{', '.join(map(str, v.shape))}]"
    return f"{v.dtype or '?'}{shape}"


def _at(node: Node, ins: Sequence[Value | None], reason: str) -> str:
    return f"node {node.name!r} ({_full_name(node)}) with inputs {', '.join(map(show_value, ins)) or 'none'}: {reason}"
