"""Shape inference: named dims through shape arithmetic, known values, and messages for what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from run_graph import make, run_graph

from polyopt.errors import ArgumentError, ModelError
from polyopt.frontends.onnx import read_onnx
from polyopt.ir.affine import affine
from polyopt.ir.dtype import f32, i64
from polyopt.ir.graph import Graph, Node, Value
from polyopt.passes.infer_inputs import bind_inputs, shape_inputs
from polyopt.passes.infer_shapes import infer_known, infer_shapes, show_value

node = helper.make_node
F, I = TensorProto.FLOAT, TensorProto.INT64


def shape_of(graph: Graph, name: str) -> list[str]:
    shape = infer_shapes(graph).values[name].shape
    assert shape is not None
    return [str(d) for d in shape]


def known_of(nodes, name, constants=None, shape=("N", 3, "H"), opset=17):
    """The known value, as text, of a vector computed from the shape of x."""
    graph = read_onnx(make([node("Shape", ["x"], ["s"]), *nodes], {"x": (F, list(shape))}, [name], constants, opset))
    found = infer_known(graph)[1].get(name)
    return None if found is None else [str(v) for v in np.asarray(found).reshape(-1)]


C = {
    "i0": np.int64(0), "i2": np.int64(2), "v0": np.int64([0]), "v1": np.int64([1]), "v2": np.int64([2]), "v3": np.int64([3]),
    "m1": np.int64([-1]), "zero": np.int64([0, 0, 0]), "minus": np.int64([-1, -1, -1]), "four": np.int64([4, 4, 4]),
    "half": np.float32([2, 1, 2]), "idx": np.int64([2, 0]), "neg": np.int64([-1]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], ["N", "3", "H"]),
        ([node("Gather", ["s", "i2"], ["y"])], ["H"]),
        ([node("Gather", ["s", "idx"], ["y"])], ["H", "N"]),
        ([node("Gather", ["s", "neg"], ["y"])], ["H"]),
        ([node("Slice", ["s", "v1", "v3"], ["y"])], ["3", "H"]),
        ([node("Slice", ["s", "v2", "m1", "v0", "m1"], ["y"])], []),
        ([node("Concat", ["s", "v1", "s"], ["y"], axis=0)], ["N", "3", "H", "1", "N", "3", "H"]),
        ([node("Mul", ["s", "four"], ["y"])], ["4*N", "12", "4*H"]),
        ([node("Mul", ["s", "s"], ["y"])], None),
        ([node("Add", ["s", "s"], ["t"]), node("Sub", ["t", "four"], ["y"])], ["2*N - 4", "2", "2*H - 4"]),
        ([node("Div", ["s", "four"], ["y"])], ["floor((N)/4)", "0", "floor((H)/4)"]),
        ([node("Mod", ["s", "four"], ["y"])], ["N - 4*floor((N)/4)", "3", "H - 4*floor((H)/4)"]),
        ([node("Div", ["s", "s"], ["y"])], ["1", "1", "1"]),
        ([node("Sub", ["s", "four"], ["t"]), node("Div", ["t", "four"], ["y"])], None),  # may be negative: rounds towards zero
        ([node("Neg", ["s"], ["t"]), node("Abs", ["t"], ["y"])], ["N", "3", "H"]),
        ([node("Unsqueeze", ["s", "v0"], ["t"]), node("Squeeze", ["t", "v0"], ["y"])], ["N", "3", "H"]),
        ([node("Reshape", ["s", "minus1"], ["y"])], ["N", "3", "H"]),
        ([node("Cast", ["s"], ["f"], to=F), node("Floor", ["f"], ["g"]), node("Cast", ["g"], ["y"], to=I)], ["N", "3", "H"]),
        ([node("Cast", ["s"], ["f"], to=F), node("Mul", ["f", "half"], ["g"]), node("Cast", ["g"], ["y"], to=I)], ["2*N", "3", "2*H"]),
        ([node("Cast", ["s"], ["f"], to=F), node("Div", ["f", "half"], ["g"]), node("Cast", ["g"], ["y"], to=I)], None),
        ([node("Equal", ["s", "minus"], ["e"]), node("Where", ["e", "zero", "s"], ["y"])], ["N", "3", "H"]),
        ([node("Equal", ["s", "s"], ["e"]), node("Where", ["e", "four", "s"], ["y"])], ["4", "4", "4"]),
        ([node("Equal", ["s", "four"], ["e"]), node("Where", ["e", "four", "s"], ["y"])], None),
        ([node("Greater", ["s", "zero"], ["e"]), node("Where", ["e", "s", "four"], ["y"])], ["N", "3", "H"]),
        ([node("Max", ["s", "zero"], ["t"]), node("Min", ["t", "s"], ["y"])], ["N", "3", "H"]),
        ([node("Max", ["s", "four"], ["y"])], None),
        ([node("Gather", ["s", "i0"], ["n"]), node("Unsqueeze", ["n", "v0"], ["t"]), node("Expand", ["t", "v3"], ["y"])], ["N", "N", "N"]),
        ([node("Split", ["s"], ["y", "b", "c"], axis=0)], ["N"]),
        ([node("Transpose", ["s"], ["y"])], ["N", "3", "H"]),
        ([node("ReduceSum", ["s"], ["y"], keepdims=0)], ["H + N + 3"]),
        ([node("ReduceProd", ["s"], ["y"], keepdims=0)], None),
        ([node("Slice", ["s", "v0", "v2"], ["t"]), node("ReduceProd", ["t"], ["y"], keepdims=0)], ["3*N"]),
        ([node("ConstantOfShape", ["v3"], ["y"], value=helper.make_tensor("t", I, [1], [7]))], ["7", "7", "7"]),
        ([node("Shape", ["x"], ["y"], start=1, end=-1)], ["3"]),
    ],
    ids=lambda p: "-".join(n.op_type for n in p) or "Shape" if isinstance(p, list) and p and not isinstance(p[0], str) else "",
)
def test_shape_arithmetic(nodes, expected):
    assert known_of(nodes, "y" if nodes else "s", {**C, "minus1": np.int64([-1])}) == expected


def test_size_of_one_named_dim():
    graph = read_onnx(make([node("Size", ["x"], ["y"])], {"x": (F, ["N", 3, 4])}, ["y"]))
    assert str(infer_known(graph)[1]["y"]) == "12*N"


def test_the_reshape_idiom_of_exporters():
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "i0"], ["n"]), node("Unsqueeze", ["n", "v0"], ["a"]),
        node("Concat", ["a", "v2", "m1"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"]),
    ]  # fmt: skip
    graph = read_onnx(make(nodes, {"x": (F, ["N", 6, 5])}, ["y"], C))
    assert shape_of(graph, "y") == ["N", "2", "15"]
    (y,) = run_graph(infer_shapes(graph), {"x": np.arange(60, dtype=np.float32).reshape(2, 6, 5)})
    assert y.shape == (2, 2, 15)


def test_the_expand_idiom_of_exporters():
    nodes = [
        node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["v3"], ["ones"], value=helper.make_tensor("t", I, [1], [1])),
        node("Mul", ["ones", "m1"], ["negs"]), node("Equal", ["s", "negs"], ["e"]), node("Where", ["e", "ones", "s"], ["t"]),
        node("Expand", ["c", "t"], ["y"]),
    ]  # fmt: skip
    graph = read_onnx(make(nodes, {"x": (F, ["N", 3, "H"])}, ["y"], {**C, "c": np.float32([[[1]]])}))
    assert shape_of(graph, "y") == ["N", "3", "H"]


def test_a_reshape_that_works_for_some_sizes_only_is_refused():
    graph = read_onnx(make([node("Reshape", ["x", "s"], ["y"])], {"x": (F, ["N", 3])}, ["y"], {"s": np.int64([-1, 2])}))
    assert "3*N elements do not divide by 2 for all values (give a value to N)" in refused(graph)


def test_empty_tensors_are_known():
    nodes = [node("Slice", ["x", "zero", "zero"], ["none"]), node("Exp", ["none"], ["y"])]
    graph = read_onnx(make(nodes, {"x": (F, [4, 3])}, ["y"], {"zero": np.int64([0])}))
    assert infer_known(graph)[1]["y"].shape == (0, 3)


def test_inference_again_changes_nothing():
    graph = infer_shapes(read_onnx(make([node("Exp", ["x"], ["y"])], {"x": (F, ["N", 3])}, ["y"])))
    assert infer_shapes(graph) is graph


def refused(graph: Graph) -> str:
    with pytest.raises(ModelError) as e:
        infer_shapes(graph)
    text = str(e.value)
    assert "\n" not in text and len(text) < 400
    return text


def one(op: str, inputs, outputs, values, constants=None, **attrs) -> Graph:
    return Graph("g", tuple(values), outputs, {v.name: v for v in values.values()}, constants or {}, (Node("n1", op, inputs, outputs, attrs),))


def value(name: str, *shape, dtype=f32) -> Value:
    return Value(name, dtype, tuple(affine(d) for d in shape))


def test_errors_name_the_node_its_operator_and_its_inputs():
    text = refused(one("Add", ("a", "b"), ("y",), {"a": value("a", 2, 3), "b": value("b", 4)}))
    assert "node 'n1' (Add) with inputs f32[2, 3], f32[4]:" in text


def test_unknown_operators_are_refused():
    assert "node 'n1': operator Frobnicate is not supported" in refused(one("Frobnicate", ("a",), ("y",), {"a": value("a", 2)}))


def test_a_shape_that_data_decides_is_refused():
    a, s = value("a", "N"), Value("s", None, (affine(2),))
    graph = read_onnx(make([node("Reshape", ["x", "t"], ["y"])], {"x": (F, ["N"]), "t": (I, [2])}, ["y"]))
    assert "must be known when compiling" in refused(graph)
    assert show_value(a) == "f32[N]" and show_value(s) == "?[2]" and show_value(None) == "absent" and show_value(Value("u", f32, None)) == "f32[?]"


def test_a_declared_type_that_differs_is_refused():
    graph = one("Exp", ("a",), ("y",), {"a": value("a", 2)})
    declared = Graph(**{**graph.__dict__, "values": {**graph.values, "y": Value("y", None, None)}})
    assert infer_shapes(declared).values["y"].dtype == f32
    wrong = Graph(**{**graph.__dict__, "values": {**graph.values, "y": Value("y", i64, None)}})
    assert "declares it as i64" in refused(wrong)


def test_inputs_that_decide_shapes_are_named_and_can_be_bound():
    nodes = [
        node("Cast", ["t"], ["u"], to=I), node("Reshape", ["x", "u"], ["v"]), node("Shape", ["z"], ["s"]), node("Expand", ["v", "s"], ["y"]),
    ]  # fmt: skip
    graph = read_onnx(make(nodes, {"x": (F, [6]), "t": (TensorProto.INT32, [2]), "z": (F, [4, 2, 3])}, ["y"]))
    assert shape_inputs(graph) == ("t",)
    assert "must be known when compiling" in refused(graph)
    bound = infer_shapes(bind_inputs(graph, {"t": np.int32([2, 3])}))
    assert bound.inputs == ("x", "z") and shape_of(bound, "y") == ["4", "2", "3"]
    assert bind_inputs(graph, {}) is graph
    for name, array, part in (("q", np.int32([1]), "'q' is not an input"), ("t", np.int64([2, 3]), "int64"), ("t", np.int32([2]), "shape")):
        with pytest.raises(ArgumentError, match=part):
            bind_inputs(graph, {name: array})
