"""Graphs at the edge of what ONNX allows, compiled and run: outputs that are inputs, parts of inputs or each other."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import ModelProto, NodeProto, TensorProto, helper
from run_graph import make, run_graph

import polyopt as po
from polyopt.cli import commands
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


def test_an_output_that_is_an_input_is_copied() -> None:
    model = compare(make([N("Neg", ["x"], ["y"])], {"x": X}, ["y", "x"]), X)
    assert [p.name for p in model.outputs] == ["y", "x"] and [p.name for p in model.inputs] == ["x"]
    y = model.run({"x": X})["x"]
    assert y is not X and not np.shares_memory(y, X)
    compare(make([], {"x": X}, ["x"]), X)


def test_an_output_that_is_listed_twice_has_two_names() -> None:
    model = compare(make([N("Neg", ["x"], ["y"])], {"x": X}, ["y", "y", "x", "x"]), X)
    assert [p.name for p in model.outputs] == ["y", "y_2", "x", "x_2"]
    model = compare(make([N("Neg", ["x"], ["y"]), N("Exp", ["x"], ["y_2"])], {"x": X}, ["y", "y_2", "y"]), X)
    assert [p.name for p in model.outputs] == ["y", "y_2", "y_3"]
    compare(make([], {"x": X}, ["c", "x", "c"], {"c": np.array([1.0, 2.0], np.float32)}), X)


def test_such_outputs_can_be_saved_and_checked(tmp_path: Path) -> None:
    model = make([N("Neg", ["x"], ["y"])], {"x": X}, ["y", "y", "x"])
    for o in model.graph.output:
        o.type.tensor_type.elem_type = TensorProto.FLOAT
    path = tmp_path / "twice.onnx"
    path.write_bytes(model.SerializeToString())
    po.compile(path).save(tmp_path / "out")
    y, again, x = po.compile(tmp_path / "out")(X)
    assert np.array_equal(y, -X) and np.array_equal(again, -X) and np.array_equal(x, X)
    pytest.importorskip("onnxruntime")
    result = CliRunner().invoke(commands, ["check", str(path)])
    assert result.exit_code == 0 and "y_2" in result.output, result.output


def test_a_wrong_declared_shape_of_an_output_is_a_warning() -> None:
    model = make([N("Neg", ["x"], ["y"])], {"x": X}, ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]))
    with pytest.warns(UserWarning, match=r"^output 'y' is declared with shape \[3\], but has shape \[8\]: the declaration is ignored$"):
        compare(model, X)
    for agrees in ([8], ["n"], [None]):
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, agrees))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_onnx(model)


def test_the_certificate_speaks_of_shared_buffers() -> None:
    nodes = [N("Exp", ["x"], ["e"]), N("Softmax", ["x"], ["s"]), N("Concat", ["e", "s"], ["y"], axis=0)]
    proof = compare(make(nodes, {"x": X}, ["y"]), X).certificate()
    assert proof["ok"] and proof["storage"]["ok"] and proof["storage"]["text"].startswith("3 tensors share buffers"), proof["storage"]
