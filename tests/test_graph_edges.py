"""Graphs at the edge of what ONNX allows, compiled and run: outputs that are inputs, parts of inputs or each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper
from run_graph import make, run_graph

import polyopt as po
from polyopt.frontends.onnx import read_onnx
from polyopt.passes.infer_shapes import infer_shapes

pytestmark = pytest.mark.cc
Array = np.ndarray[Any, Any]
N = helper.make_node
X = np.arange(8, dtype=np.float32)
HALVES = {"k": np.array([3, 5])}


def compare(model: ModelProto, *arrays: Array) -> po.Model:
    """Compile, run, compare with the operators' references; gives the compiled model."""
    graph = infer_shapes(read_onnx(model))
    want = run_graph(graph, dict(zip(graph.inputs, arrays)))
    compiled: po.Model = po.compile(model)
    got = compiled(*arrays)
    for name, g, w in zip(graph.outputs, got if isinstance(got, tuple) else (got,), want):
        assert g.shape == w.shape and g.dtype == w.dtype, name
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, err_msg=name)
    return compiled


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([N("Neg", ["b"], ["c"])], ["b", "c"]),
        ([N("Softmax", ["b"], ["c"])], ["a", "c"]),
        ([N("Softmax", ["x"], ["d"]), N("Softmax", ["a"], ["c"])], ["b", "c", "d"]),
        ([N("Concat", ["b", "a"], ["c"], axis=0)], ["a", "b", "c"]),
    ],
)
def test_a_part_of_an_input_is_an_output_and_another_is_read(nodes: list[NodeProto], outputs: list[str]) -> None:
    compare(make([N("Split", ["x", "k"], ["a", "b"], axis=0), *nodes], {"x": X}, outputs, HALVES), X)


@pytest.mark.parametrize(
    ("view", "constants"),
    [
        (N("Identity", ["x"], ["y"]), {}),
        (N("Reshape", ["x", "s"], ["y"]), {"s": np.array([2, 4])}),
        (N("Slice", ["x", "s", "e"], ["y"]), {"s": np.array([0]), "e": np.array([99])}),
        (N("Split", ["x", "s"], ["y"], axis=0), {"s": np.array([8])}),
    ],
)
def test_a_view_of_an_input_is_an_output_and_is_read(view: NodeProto, constants: dict[str, Array]) -> None:
    nodes = [view, N("Softmax", ["y"], ["z"]), N("Identity", ["y"], ["w"])]
    compare(make(nodes, {"x": X}, ["y", "z", "w"], constants), X)
