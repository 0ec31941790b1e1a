"""Runs a Graph node by node with the operators' NumPy references: the oracle for passes over graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from polyopt.frontends.onnx import read_onnx
from polyopt.ir.affine import Affine
from polyopt.ir.graph import Graph
from polyopt.ir.verify import verify_graph, verify_inferred
from polyopt.ops.registry import lookup
from polyopt.passes.infer_shapes import infer_shapes
from polyopt.passes.simplify import simplify

Array = np.ndarray[Any, Any]


def run_graph(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs; named dims are bound from the inputs, and every inferred shape and dtype is compared with the array's."""
    dims: dict[str, int] = {}
    for name in graph.inputs:
        for d, n in zip(graph.values[name].shape or (), inputs[name].shape):
            if d.names():
                dims[next(iter(d.names()))] = n
    found: dict[str, Array] = dict(inputs)
    for name, array in graph.constants.items():
        found[name] = _bound(array, dims)
    for node in graph.nodes:
        op = lookup(node.op, node.domain)
        assert op is not None, node
        results = op.reference(node, [found[i] if i else None for i in node.inputs])
        for name, result in zip(node.outputs, results):
            if not name:
                continue
            value = graph.values[name]
            if value.shape is not None and value.dtype is not None:
                assert result.shape == tuple(d.evaluate(dims) for d in value.shape), (node, result.shape, value)
                assert result.dtype.name == value.dtype.numpy, (node, result.dtype, value)
            found[name] = result
    return [found[o] for o in graph.outputs]


def _bound(array: Array, dims: Mapping[str, int]) -> Array:
    if array.dtype != object:
        return array
    flat = [x.evaluate(dims) if isinstance(x, Affine) else x for x in array.reshape(-1)]
    return np.array(flat, np.int64).reshape(array.shape)


def make(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Array | tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    **kwargs: Any,
) -> ModelProto:
    """A model; an input is an array (whose type and shape it takes) or (element type, shape)."""
    infos = []
    for name, given in inputs.items():
        if isinstance(given, tuple):
            infos.append(helper.make_tensor_value_info(name, given[0], list(given[1])))
        else:
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(given.dtype), list(given.shape)))
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    outs = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
    graph = helper.make_graph(list(nodes), "g", infos, outs, weights, **kwargs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def simplified(model: ModelProto, fp: str = "default") -> tuple[Graph, Graph]:
    """The inferred graph, and the simplified one; inference agrees with what simplify says."""
    graph = infer_shapes(read_onnx(model))
    small = simplify(graph, fp)
    for g in (graph, small):
        verify_graph(g)
        verify_inferred(g)
    assert infer_shapes(small).values == small.values
    return graph, small


def ops(graph: Graph) -> list[str]:
    """The operators of a graph, in order."""
    return [n.op for n in graph.nodes]
