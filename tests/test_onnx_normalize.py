"""One form per operator: each old form is read into the newest one, and computes what it always did."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from run_graph import make, ops, run_graph

from polyopt.errors import ModelError
from polyopt.frontends.onnx import read_onnx
from polyopt.passes.infer_shapes import infer_shapes
from polyopt.passes.simplify import simplify

node = helper.make_node
F = TensorProto.FLOAT
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(model, inputs, expected=None, expected_ops=None):
    """Read, compare with onnx's reference (or the given arrays), before and after simplification; the graph as read."""
    graph = read_onnx(model)
    if expected_ops is not None:
        assert ops(graph) == expected_ops
    if expected is None:
        expected = ReferenceEvaluator(model).run(None, inputs)
    typed = infer_shapes(graph)
    for g in (typed, simplify(typed)):
        for found, wanted in zip(run_graph(g, inputs), expected, strict=True):
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return graph


X = normal(2, 3, 4)


REDUCE = {
    "Sum": np.sum,
    "Mean": np.mean,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
    "L1": lambda x, axes: np.abs(x).sum(axes),
    "L2": lambda x, axes: np.sqrt((x * x).sum(axes)),
    "LogSum": lambda x, axes: np.log(x.sum(axes)),
    "LogSumExp": lambda x, axes: np.log(np.exp(x).sum(axes)),
    "SumSquare": lambda x, axes: (x * x).sum(axes),
}


@pytest.mark.parametrize("kind", REDUCE)
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_reductions(kind, opset):
    is_input = opset >= (13 if kind == "Sum" else 18)
    x = np.abs(X) + 1
    for axes in (None, [0, 2], [-1]):
        attrs = {} if axes is None or is_input else {"axes": axes}
        inputs = ["x", "a"] if axes is not None and is_input else ["x"]
        model = make([node(f"Reduce{kind}", inputs, ["y"], keepdims=0, **attrs)], {"x": x}, ["y"], {"a": np.int64(axes or [0])}, opset)
        y = REDUCE[kind](x, None if axes is None else tuple(axes))
        run(model, {"x": x}, [np.asarray(y, np.float32)])


@pytest.mark.parametrize("opset", [9, 13])
def test_squeeze_and_unsqueeze(opset):
    x = normal(1, 3, 1, 4)
    old = opset < 13
    squeeze = node("Squeeze", ["x"], ["t"], axes=[0, 2]) if old else node("Squeeze", ["x", "a"], ["t"])
    unsqueeze = node("Unsqueeze", ["t"], ["y"], axes=[1, 3]) if old else node("Unsqueeze", ["t", "b"], ["y"])
    constants = {} if old else {"a": np.int64([0, 2]), "b": np.int64([1, 3])}
    graph = run(make([squeeze, unsqueeze], {"x": x}, ["y"], constants, opset), {"x": x}, [x.reshape(3, 1, 4, 1)])
    assert [len(n.inputs) for n in graph.nodes] == [2, 2] and not any("axes" in n.attrs for n in graph.nodes)


@pytest.mark.parametrize("axes", [None, [0, 2]])
def test_slice_9(axes):
    n = node("Slice", ["x"], ["y"], starts=[0, 1], ends=[2, -1], **({} if axes is None else {"axes": axes}))
    expected = X[0:2, 1:-1] if axes is None else X[0:2, :, 1:-1]
    graph = run(make([n], {"x": X}, ["y"], opset=9), {"x": X}, [expected])
    assert len(graph.nodes[0].inputs) == 4
    with pytest.raises(ModelError, match=r"Slice.* is ill-typed"):
        read_onnx(make([node("Slice", ["x"], ["y"], starts=[0, 1], ends=[2], axes=[0, 1])], {"x": X}, ["y"], opset=9))


def test_a_slice_to_the_end():
    for far in (10**9, 2**31 - 1, 2**63 - 1):
        model = make([node("Slice", ["x", "a", "b"], ["y"])], {"x": (F, ["N", 4])}, ["y"], {"a": np.int64([0, 1]), "b": np.int64([far, far])})
        run(model, {"x": normal(3, 4)})


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_pad_2(value):
    n = node("Pad", ["x"], ["y"], pads=[0, 1, 0, 0, 0, 2], value=value)
    run(make([n], {"x": X}, ["y"], opset=10), {"x": X}, [np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=value)], ["Pad"])


@pytest.mark.parametrize("opset", [6 + 1, 10, 11, 13])
def test_clip(opset):
    if opset < 11:
        nodes = [node("Clip", ["x"], ["t"], min=-0.5), node("Clip", ["t"], ["u"], max=0.7), node("Clip", ["u"], ["y"])]
    else:
        nodes = [node("Clip", ["x", "a"], ["t"]), node("Clip", ["t", "", "b"], ["u"]), node("Clip", ["u"], ["y"])]
    model = make(nodes, {"x": X}, ["y"], {"a": np.float32(-0.5), "b": np.float32(0.7)}, opset)
    graph = run(model, {"x": X}, [np.clip(X, np.float32(-0.5), np.float32(0.7))])
    assert [len(n.inputs) for n in graph.nodes] == [2, 3, 1]


def test_clip_of_doubles():
    x = X.astype(np.float64)
    run(make([node("Clip", ["x"], ["y"], min=0.0)], {"x": x}, ["y"], opset=7), {"x": x}, [np.clip(x, 0, None)])


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
@pytest.mark.parametrize("parts", [None, [1, 3]])
def test_split(opset, parts):
    old = opset < 13
    attrs = {"split": parts} if parts and old else {}
    if opset >= 18 and parts is None:
        attrs["num_outputs"] = 2
    inputs = ["x", "p"] if parts and not old else ["x"]
    model = make([node("Split", inputs, ["y", "z"], axis=2, **attrs)], {"x": X}, ["y", "z"], {"p": np.int64([1, 3])}, opset)
    at = 2 if parts is None else 1
    run(model, {"x": X}, [X[:, :, :at], X[:, :, at:]], ["Split"])


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(2, 3, 4), ("N", 3, "H")])
def test_softmax_before_13_works_on_a_matrix(kind, axis, shape):
    model = make([node(kind, ["x"], ["y"], **({} if axis is None else {"axis": axis}))], {"x": (F, shape)}, ["y"], opset=11)
    cut = 1 if axis is None else axis % 3
    flat = X.reshape(int(np.prod(X.shape[:cut])), -1)
    e = np.exp(flat - flat.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    if kind == "LogSoftmax":
        y = np.log(y)
    if shape[0] == "N" and cut == 0:  # the matrix has N·3·H columns, which is not affine
        with pytest.raises(ModelError, match="bind"):
            infer_shapes(read_onnx(model))
        return
    run(model, {"x": X}, [y.reshape(X.shape).astype(np.float32)])


@pytest.mark.parametrize("opset", [7, 9])
def test_upsample(opset):
    x = normal(1, 2, 3, 4)
    n = node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0]) if opset < 9 else node("Upsample", ["x", "s"], ["y"])
    model = make([n], {"x": x}, ["y"], {"s": np.float32([1, 1, 2, 3])}, opset)
    run(model, {"x": x}, [x.repeat(2, 2).repeat(3, 3)], ["Resize"])


def test_resize_10_and_empty_inputs():
    x = normal(1, 2, 3, 4)
    ten = make([node("Resize", ["x", "s"], ["y"])], {"x": x}, ["y"], {"s": np.float32([1, 1, 2, 2])}, 10)
    graph = run(ten, {"x": x}, [x.repeat(2, 2).repeat(2, 3)], ["Resize"])
    assert graph.nodes[0].inputs[1] == "" and graph.nodes[0].attrs["coordinate_transformation_mode"] == "asymmetric"
    constants = {"none": np.zeros(0, np.float32), "to": np.int64([1, 2, 6, 8])}
    n = node("Resize", ["x", "none", "none", "to"], ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    graph = run(make([n], {"x": x}, ["y"], constants, 11), {"x": x}, [x.repeat(2, 2).repeat(2, 3)])
    assert graph.nodes[0].inputs == ("x", "", "", "to")


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_dropout_at_inference(opset):
    mask_type = np.float32 if opset < 10 else np.bool_
    model = make([node("Dropout", ["x"], ["y", "m"])], {"x": X}, ["y", "m"], opset=opset)
    run(model, {"x": X}, [X, np.ones(X.shape, mask_type)], ["Identity", "Shape", "ConstantOfShape"])
    only = make([node("Dropout", ["x"], ["y"])], {"x": X}, ["y"], opset=opset)
    run(only, {"x": X}, [X], ["Identity"])


def test_dropout_in_training():
    constants = {"r": np.float32(0.5), "zero": np.float32(0), "t": np.array(True), "f": np.array(False)}
    run(make([node("Dropout", ["x", "r", "f"], ["y"])], {"x": X}, ["y"], constants), {"x": X}, [X], ["Identity"])
    run(make([node("Dropout", ["x", "zero", "t"], ["y"])], {"x": X}, ["y"], constants), {"x": X}, [X], ["Identity"])
    with pytest.raises(ModelError, match="Dropout"):
        infer_shapes(read_onnx(make([node("Dropout", ["x", "r", "t"], ["y"])], {"x": X}, ["y"], constants)))


BN = {"s": normal(3), "b": normal(3), "m": normal(3), "v": np.abs(normal(3)) + np.float32(0.2)}


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset):
    column = (-1, 1)
    y = (X - BN["m"].reshape(column)) / np.sqrt(BN["v"].reshape(column) + 1e-3) * BN["s"].reshape(column) + BN["b"].reshape(column)
    outputs = ["y", "", "", "", ""] if opset < 14 else ["y"]
    attrs = {"spatial": 1} if opset < 9 else {}
    n = node("BatchNormalization", ["x", "s", "b", "m", "v"], outputs, epsilon=1e-3, **attrs)
    graph = run(make([n], {"x": X}, ["y"], BN, opset), {"x": X}, [y.astype(np.float32)], ["BatchNormalization"])
    assert graph.nodes[0].outputs == ("y",)


def test_batch_normalization_in_training():
    n = node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "mean", "var"], epsilon=1e-3, training_mode=1, momentum=0.8)
    run(make([n], {"x": X}, ["y", "mean", "var"], BN, 15), {"x": X})
    run(make([n], {"x": X}, ["y"], BN, 15), {"x": X})
    old = node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "mean", "var", "a", "c"], name="bn")
    with pytest.raises(ModelError, match=r"'bn' .*training mode"):
        read_onnx(make([old], {"x": X}, ["y", "mean"], BN, 9))
    with pytest.raises(ModelError, match="spatial=0"):
        read_onnx(make([node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], spatial=0)], {"x": X}, ["y"], BN, 7))


def test_constant_of_shape():
    value = numpy_helper.from_array(np.int32([7]))
    for attrs, expected in (({}, np.zeros((2, 3), np.float32)), ({"value": value}, np.full((2, 3), 7, np.int32))):
        model = make([node("ConstantOfShape", ["s"], ["t"], **attrs), node("Identity", ["t"], ["y"])], {"x": X}, ["y"], {"s": np.int64([2, 3])})
        run(model, {"x": X}, [expected])


def test_attributes_are_plain_and_complete():
    graph = read_onnx(make([node("Conv", ["x", "w"], ["y"], strides=[2])], {"x": X}, ["y"], {"w": normal(4, 3, 2)}, 11))
    assert graph.nodes[0].attrs == {"strides": (2,), "auto_pad": "NOTSET", "group": 1}
    graph = read_onnx(make([node("Flatten", ["x"], ["y"])], {"x": X}, ["y"], opset=9))
    assert graph.nodes[0].attrs == {"axis": 1}


def test_optional_names_are_stripped():
    graph = read_onnx(make([node("Clip", ["x", "", ""], ["y"])], {"x": X}, ["y"]))
    assert graph.nodes[0].inputs == ("x",)
