"""Each simplification: the graph is as small as it should be, and computes what it did before."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from run_graph import make, ops, run_graph, simplified

from polyopt.ir.affine import affine
from polyopt.ir.dtype import f32
from polyopt.ir.graph import Graph, Node, Value
from polyopt.passes.fold_constants import SMALL_BYTES, share_nodes
from polyopt.passes.simplify import simplify

node = helper.make_node
RNG = np.random.default_rng(5)
F = TensorProto.FLOAT


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def check(model, inputs, expected_ops=None, fp="default", exact=False, others=()):
    """Simplify, compare the operators, and run both graphs on all the inputs."""
    graph, small = simplified(model, fp)
    if expected_ops is not None:
        assert ops(small) == list(expected_ops)
    for given in (inputs, *others):
        for a, b in zip(run_graph(graph, given), run_graph(small, given), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if exact:
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert simplify(small, fp) is small
    return small


# ---- constants


def test_constants_are_folded():
    x = normal(2, 3)
    nodes = [node("Add", ["a", "b"], ["c"]), node("Sqrt", ["c"], ["d"]), node("Mul", ["x", "d"], ["y"])]
    check(make(nodes, {"x": x}, ["y"], {"a": np.float32([1, 2, 3]), "b": np.float32(4)}), {"x": x}, ["Mul"], exact=True)


def test_a_constant_output_is_copied_by_a_node():
    x = normal(2, 3)
    nodes = [node("Add", ["a", "a"], ["y"]), node("Relu", ["x"], ["z"]), node("Add", ["x", "y"], ["u"])]
    small = check(make(nodes, {"x": x}, ["y", "z", "u"], {"a": np.float32([1, 2, 3])}), {"x": x}, exact=True)
    assert sorted(ops(small)) == ["Add", "Identity", "Relu"]
    assert not set(small.outputs) & set(small.constants)


def test_what_would_grow_the_model_is_not_folded():
    side = SMALL_BYTES
    nodes = [node("Expand", ["one", "shape"], ["big"]), node("ReduceSum", ["big"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"])]
    x = normal(2)
    check(make(nodes, {"x": x}, ["y"], {"one": np.float32([1]), "shape": np.int64([side])}), {"x": x}, ["Expand", "ReduceSum", "Add"])


def test_shape_of_fixed_dims_is_folded():
    x = normal(2, 3, 4)
    nodes = [node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["f"], to=F), node("ReduceSum", ["f"], ["t"]), node("Mul", ["x", "t"], ["y"])]
    check(make(nodes, {"x": x}, ["y"]), {"x": x}, ["Mul"], exact=True)


def test_a_reshape_by_named_dims_needs_no_node_for_its_shape():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "ax"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "ax": np.int64([0]), "rest": np.int64([2, 6])}
    model = make(nodes, {"x": (F, ["N", 3, 4])}, ["y"], constants)
    small = check(model, {"x": normal(5, 3, 4)}, ["Reshape"], exact=True, others=({"x": normal(1, 3, 4)},))
    assert [str(d) for d in small.values["y"].shape] == ["N", "2", "6"]


def test_a_reshape_by_two_named_dims():
    nodes = [node("Unsqueeze", ["x", "ax"], ["a"]), node("Squeeze", ["a", "ax"], ["b"]), node("Unsqueeze", ["b", "two"], ["y"])]
    model = make(nodes, {"x": (F, ["h", "w", 3])}, ["y"], {"ax": np.int64([0]), "two": np.int64([1])})
    small = check(model, {"x": normal(4, 5, 3)}, ["Reshape"], exact=True)
    assert [str(d) for d in small.values["y"].shape] == ["h", "1", "w", "3"]


def test_random_nodes_are_not_shared():
    shape = (affine(2),)
    values = {n: Value(n, f32, shape) for n in "xabcd"}
    nodes = (
        Node("r1", "RandomNormalLike", ("x",), ("a",)),
        Node("r2", "RandomNormalLike", ("x",), ("b",)),
        Node("e1", "Exp", ("x",), ("c",)),
        Node("e2", "Exp", ("x",), ("d",)),
        Node("s", "Sum", ("a", "b", "c", "d"), ("y",)),
    )
    graph = Graph("g", ("x",), ("y",), {**values, "y": Value("y", f32, shape)}, {}, nodes)
    assert ops(share_nodes(graph)) == ["RandomNormalLike", "RandomNormalLike", "Exp", "Sum"]


# ---- what only copies


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Identity", ["x"], ["t"])], {}),
        ([node("Dropout", ["x"], ["t"])], {}),
        ([node("Cast", ["x"], ["t"], to=F)], {}),
        ([node("Transpose", ["x"], ["t"], perm=[0, 1, 2])], {}),
        ([node("Reshape", ["x", "c"], ["t"])], {"c": np.int64([2, -1, 4])}),
        ([node("Slice", ["x", "a", "b"], ["t"])], {"a": np.int64([0, 0]), "b": np.int64([2, 99])}),
        ([node("Pad", ["x", "c"], ["t"])], {"c": np.int64([0] * 6)}),
        ([node("Expand", ["x", "c"], ["t"])], {"c": np.int64([1, 4])}),
        ([node("Tile", ["x", "c"], ["t"])], {"c": np.int64([1, 1, 1])}),
        ([node("Concat", ["x"], ["t"], axis=1)], {}),
        ([node("Sum", ["x"], ["t"])], {}),
        ([node("Clip", ["x"], ["t"])], {}),
        ([node("Mul", ["c", "x"], ["t"])], {"c": np.float32([1])}),
        ([node("Div", ["x", "c"], ["t"])], {"c": np.float32(1)}),
        ([node("Sub", ["x", "c"], ["t"])], {"c": np.float32(0)}),
        ([node("Pow", ["x", "c"], ["t"])], {"c": np.float32(1)}),
    ],
    ids=lambda p: p[0].op_type if isinstance(p, list) else "",
)
def test_nodes_without_effect_go(nodes, constants):
    x = normal(2, 3, 4)
    for before, after in (([], []), ([node("Neg", ["u"], ["x"])], ["Neg"])):
        inputs = {"u" if before else "x": x}
        model = make([*before, *nodes, node("Exp", ["t"], ["y"])], inputs, ["y"], constants)
        check(model, inputs, [*after, "Exp"], fp="strict", exact=True)


def test_a_copy_to_the_caller_is_merged_into_the_writer_but_an_input_is_copied():
    x = normal(2, 3)
    check(make([node("Exp", ["x"], ["t"]), node("Identity", ["t"], ["y"])], {"x": x}, ["y"]), {"x": x}, ["Exp"], exact=True)
    check(make([node("Identity", ["x"], ["y"])], {"x": x}, ["y"]), {"x": x}, ["Identity"], exact=True)
    twice = make([node("Exp", ["x"], ["y"]), node("Identity", ["y"], ["z"])], {"x": x}, ["y", "z"])
    check(twice, {"x": x}, ["Exp", "Identity"], exact=True)
    shared = make([node("Exp", ["x"], ["t"]), node("Identity", ["t"], ["y"]), node("Neg", ["t"], ["z"])], {"x": x}, ["y", "z"])
    check(shared, {"x": x}, ["Exp", "Neg"], exact=True)


def test_nodes_with_an_effect_stay():
    x = normal(2, 3)
    for n, constants in (
        (node("Add", ["x", "c"], ["t"]), {"c": np.float32(0)}),  # makes 0 of -0
        (node("Mul", ["x", "c"], ["t"]), {"c": np.ones((2, 2, 3), np.float32)}),  # broadcasts
        (node("Sub", ["c", "x"], ["t"]), {"c": np.float32(0)}),
        (node("Slice", ["x", "a", "b", "c", "d"], ["t"]), {"a": np.int64([-1]), "b": np.int64([-9]), "c": np.int64([0]), "d": np.int64([-1])}),
        (node("Transpose", ["x"], ["t"], perm=[1, 0]), {}),
    ):
        check(make([n, node("Exp", ["t"], ["y"])], {"x": x}, ["y"], constants), {"x": x}, [n.op_type, "Exp"], fp="strict", exact=True)


def test_views_become_one_reshape():
    x = normal(2, 3, 4)
    nodes = [
        node("Flatten", ["x"], ["a"], axis=2),
        node("Unsqueeze", ["a", "one"], ["b"]),
        node("Reshape", ["b", "s"], ["c"]),
        node("Squeeze", ["c"], ["y"]),
    ]
    small = check(make(nodes, {"x": x}, ["y"], {"one": np.int64([1]), "s": np.int64([1, 4, 1, -1])}), {"x": x}, ["Reshape"], exact=True)
    assert small.constants[small.nodes[0].inputs[1]].tolist() == [4, 6]


def test_a_reshape_back_goes():
    x = normal(2, 3, 4)
    nodes = [node("Reshape", ["x", "s"], ["a"]), node("Reshape", ["a", "t"], ["b"]), node("Exp", ["b"], ["y"]), node("Neg", ["a"], ["z"])]
    model = make(nodes, {"x": x}, ["y", "z"], {"s": np.int64([6, 4]), "t": np.int64([2, 3, 4])})
    check(model, {"x": x}, ["Reshape", "Exp", "Neg"], exact=True)


def test_a_transpose_of_dims_of_size_one_is_a_reshape():
    x = normal(1, 5, 1, 3)
    nodes = [node("Transpose", ["x"], ["a"], perm=[1, 0, 3, 2]), node("Exp", ["a"], ["y"])]
    check(make(nodes, {"x": x}, ["y"]), {"x": x}, ["Reshape", "Exp"], exact=True)


def test_transposes_merge_and_cancel():
    x = normal(2, 3, 4)
    two = [node("Transpose", ["x"], ["a"], perm=[1, 2, 0]), node("Transpose", ["a"], ["b"], perm=[0, 2, 1]), node("Exp", ["b"], ["y"])]
    small = check(make(two, {"x": x}, ["y"]), {"x": x}, ["Transpose", "Exp"], exact=True)
    assert small.nodes[0].attrs["perm"] == (1, 0, 2)
    back = [node("Transpose", ["x"], ["a"], perm=[1, 2, 0]), node("Transpose", ["a"], ["b"], perm=[2, 0, 1]), node("Exp", ["b"], ["y"])]
    check(make(back, {"x": x}, ["y"]), {"x": x}, ["Exp"], exact=True)
    default = [node("Transpose", ["x"], ["a"]), node("Transpose", ["a"], ["b"]), node("Exp", ["b"], ["y"])]
    check(make(default, {"x": x}, ["y"]), {"x": x}, ["Exp"], exact=True)


def test_an_expand_that_its_reader_repeats_goes():
    x, z = normal(2, 1, 4), normal(2, 3, 4)
    nodes = [node("Expand", ["x", "s"], ["a"]), node("Add", ["a", "z"], ["y"])]
    check(make(nodes, {"x": x, "z": z}, ["y"], {"s": np.int64([2, 3, 4])}), {"x": x, "z": z}, ["Add"], exact=True)
    needed = [node("Expand", ["x", "s"], ["a"]), node("Add", ["a", "x"], ["y"])]
    check(make(needed, {"x": x}, ["y"], {"s": np.int64([2, 3, 4])}), {"x": x}, ["Expand", "Add"], exact=True)


# ---- duplicates, dead code


def test_common_subexpressions_are_shared():
    x = normal(2, 3)
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Exp", ["x"], ["b"]),
        node("Softmax", ["x"], ["c"], axis=0),
        node("Softmax", ["x"], ["d"], axis=1),
        node("Add", ["a", "b"], ["e"]),
        node("Mul", ["c", "d"], ["f"]),
        node("Sub", ["e", "f"], ["y"]),
    ]
    check(make(nodes, {"x": x}, ["y"]), {"x": x}, ["Exp", "Softmax", "Softmax", "Add", "Mul", "Sub"], exact=True)


def test_equal_constants_are_shared():
    x = normal(2, 3)
    nodes = [node("Add", ["x", "a"], ["t"]), node("Mul", ["t", "b"], ["y"])]
    small = check(make(nodes, {"x": x}, ["y"], {"a": np.float32([1, 2, 3]), "b": np.float32([1, 2, 3])}), {"x": x}, exact=True)
    assert len(small.constants) == 1
    other = check(make(nodes, {"x": x}, ["y"], {"a": np.float32([0.0, 2, 3]), "b": np.float32([-0.0, 2, 3])}), {"x": x}, exact=True)
    assert len(other.constants) == 2


def test_dead_code_and_optional_outputs_go():
    x = normal(1, 2, 4, 4)
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2]), node("Exp", ["x"], ["t"]), node("Add", ["t", "c"], ["u"])]
    small = check(make(nodes, {"x": x}, ["y"], {"c": np.float32(3)}), {"x": x}, ["MaxPool"], exact=True)
    assert small.nodes[0].outputs == ("y",) and not small.constants and set(small.values) == {"x", "y"}


# ---- scales and offsets


def batch_norm_constants(channels: int, name: str = "") -> dict[str, np.ndarray]:
    return {
        f"{name}s": normal(channels), f"{name}b": normal(channels), f"{name}m": normal(channels),
        f"{name}v": np.abs(normal(channels)) + np.float32(0.3),
    }  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_batch_norm_moves_into_the_convolution(kind, group, bias):
    x, cin, cout = normal(2, 4, 5, 5), 4, 6
    shape = (cout, cin // group, 3, 3) if kind == "Conv" else (cin, cout // group, 3, 3)
    constants = {"w": normal(*shape), **batch_norm_constants(cout), **({"c": normal(cout)} if bias else {})}
    conv = node(kind, ["x", "w", *(["c"] if bias else [])], ["t"], group=group, pads=[1, 1, 1, 1])
    model = make([conv, node("BatchNormalization", ["t", "s", "b", "m", "v"], ["y"])], {"x": x}, ["y"], constants)
    small = check(model, {"x": x}, [kind])
    assert len(small.nodes[0].inputs) == 3
    check(model, {"x": x}, [kind, "BatchNormalization"], fp="strict", exact=True)


def test_batch_norm_alone_is_a_scale_and_an_offset():
    for shape in ((2, 3, 4, 5), (4, 3)):
        x = normal(*shape)
        model = make([node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], {"x": x}, ["y"], batch_norm_constants(3))
        check(model, {"x": x}, ["Mul", "Add"])


def test_scales_and_offsets_per_channel_move_into_a_convolution():
    x = normal(1, 3, 5, 5)
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Mul", ["a", "s"], ["b"]),
        node("Add", ["o", "b"], ["c"]),
        node("Div", ["c", "d"], ["e"]),
        node("Sub", ["e", "f"], ["y"]),
    ]
    constants = {"w": normal(4, 3, 3, 3), "s": normal(4, 1, 1), "o": normal(1, 4, 1, 1), "d": np.float32(1.7), "f": np.float32([[[0.3]]])}
    check(make(nodes, {"x": x}, ["y"], constants), {"x": x}, ["Conv"])


@pytest.mark.parametrize(
    ("nodes", "outputs", "constants", "why"),
    [
        ([node("Mul", ["a", "s"], ["y"])], ["y"], {"s": normal(1, 1, 3, 3)}, "it varies over pixels"),
        ([node("Mul", ["a", "s"], ["y"]), node("Exp", ["a"], ["z"])], ["y", "z"], {"s": normal(4, 1, 1)}, "two readers"),
        ([node("Mul", ["a", "s"], ["y"])], ["y", "a"], {"s": normal(4, 1, 1)}, "the caller reads it"),
        ([node("Mul", ["a", "s"], ["y"])], ["y"], {"s": normal(2, 4, 1, 1)}, "it enlarges the batch"),
        ([node("Sub", ["s", "a"], ["y"])], ["y"], {"s": normal(4, 1, 1)}, "it negates"),
        ([node("Mul", ["a", "s"], ["y"])], ["y"], {"s": np.float32([1, np.inf, 1, 1]).reshape(4, 1, 1)}, "infinite"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_what_must_not_move_into_a_convolution(nodes, outputs, constants, why):
    x = np.abs(normal(1, 3, 5, 5))
    model = make([node("Conv", ["x", "w"], ["a"]), *nodes], {"x": x}, outputs, {"w": np.abs(normal(4, 3, 3, 3)), **constants})
    check(model, {"x": x}, ["Conv", *[n.op_type for n in nodes]])


@pytest.mark.parametrize("trans", [0, 1])
def test_scales_and_offsets_move_into_a_gemm(trans):
    x = normal(3, 4)
    constants = {"w": normal(5, 4) if trans else normal(4, 5), "c": normal(1, 5), "s": normal(5), "o": normal(5)}
    nodes = [
        node("Gemm", ["x", "w", "c"], ["a"], transB=trans, alpha=0.5, beta=2.0),
        node("Mul", ["a", "s"], ["b"]),
        node("Add", ["b", "o"], ["y"]),
    ]
    small = check(make(nodes, {"x": x}, ["y"], constants), {"x": x}, ["Gemm"])
    attrs = small.nodes[0].attrs
    assert (attrs["alpha"], attrs["beta"], attrs["transB"]) == (1.0, 1.0, 0)
    bare = make([node("Gemm", ["x", "w"], ["a"], transB=trans), node("Add", ["a", "o"], ["y"])], {"x": x}, ["y"], constants)
    check(bare, {"x": x}, ["Gemm"])


def test_a_scale_moves_into_a_matmul_and_an_offset_stays():
    x = normal(2, 3, 4)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Mul", ["a", "s"], ["b"]), node("Add", ["b", "o"], ["y"])]
    check(make(nodes, {"x": x}, ["y"], {"w": normal(4, 5), "s": normal(5), "o": normal(5)}), {"x": x}, ["MatMul", "Add"])


def test_shared_weights_stay_shared():
    x, z = normal(3, 4), normal(2, 4)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Mul", ["a", "s"], ["y"]), node("MatMul", ["z", "w"], ["u"])]
    check(make(nodes, {"x": x, "z": z}, ["y", "u"], {"w": normal(4, 5), "s": normal(5)}), {"x": x, "z": z}, ["MatMul", "Mul", "MatMul"])


def test_chains_of_constants_merge():
    x = normal(2, 3)
    nodes = [
        node("Mul", ["x", "a"], ["t"]), node("Mul", ["b", "t"], ["u"]), node("Add", ["u", "c"], ["v"]), node("Add", ["v", "d"], ["y"]),
    ]  # fmt: skip
    constants = {"a": np.float32(3), "b": normal(3), "c": normal(3), "d": np.float32(0.5)}
    check(make(nodes, {"x": x}, ["y"], constants), {"x": x}, ["Mul", "Add"])
    check(make(nodes, {"x": x}, ["y"], constants), {"x": x}, ["Mul", "Mul", "Add", "Add"], fp="strict", exact=True)
    ints = {k: np.int32([2, 3, 5]) for k in "abcd"}
    check(make(nodes, {"x": np.int32([[1, 2, 3]])}, ["y"], ints), {"x": np.int32([[1, 2, 3]])}, exact=True)


def test_integer_scales_are_not_folded_as_floats():
    x = normal(3, 4)
    nodes = [node("Add", ["x", "a"], ["t"]), node("Cast", ["t"], ["i"], to=TensorProto.INT64), node("Mul", ["i", "b"], ["y"])]
    check(make(nodes, {"x": x}, ["y"], {"a": np.float32(1), "b": np.int64(2)}), {"x": x}, ["Add", "Cast", "Mul"], exact=True)


def test_powers():
    x = normal(2, 3)
    for exponent, expected in ((2, ["Mul"]), (3, ["Mul", "Mul"]), (0.5, ["Pow"])):
        model = make([node("Pow", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.float32(exponent)})
        check(model, {"x": np.abs(x)}, expected)
    check(make([node("Pow", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.float32(2)}), {"x": x}, ["Pow"], fp="strict", exact=True)


def test_divisions():
    x = normal(2, 3)
    eighth = make([node("Div", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.float32([8, -0.5, 1024])})
    check(eighth, {"x": x}, ["Mul"], fp="strict", exact=True)
    third = make([node("Div", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.float32(3)})
    check(third, {"x": x}, ["Div"], exact=True)
    check(third, {"x": x}, ["Mul"], fp="fast")
    zero = make([node("Div", ["x", "c"], ["y"])], {"x": x}, ["y"], {"c": np.float32([1, 0, 2])})
    check(zero, {"x": x}, ["Div"], fp="fast", exact=True)
    whole = make([node("Div", ["x", "c"], ["y"])], {"x": np.int64([7, -7])}, ["y"], {"c": np.int64([2])})
    check(whole, {"x": np.int64([7, -7])}, ["Div"], fp="fast", exact=True)


# ---- pads


@pytest.mark.parametrize(
    ("pads", "value", "mode", "folds"),
    [
        ([0, 0, 1, 2, 0, 0, 3, 0], None, "constant", True),
        ([0, 0, 1, 2, 0, 0, 3, 0], 0.0, "constant", True),
        ([0, 0, 1, 2, 0, 0, 3, 0], 1.0, "constant", False),
        ([0, 1, 1, 2, 0, 0, 3, 0], 0.0, "constant", False),
        ([0, 0, -1, 2, 0, 0, 3, 0], 0.0, "constant", False),
        ([0, 0, 1, 2, 0, 0, 1, 0], None, "edge", False),
    ],
)
def test_a_pad_moves_into_a_convolution(pads, value, mode, folds):
    x = normal(1, 3, 6, 6)
    constants = {"p": np.int64(pads), "w": normal(4, 3 + pads[1], 3, 3), **({} if value is None else {"v": np.float32(value)})}
    pad = node("Pad", ["x", "p", *(["v"] if value is not None else [])], ["t"], mode=mode)
    model = make([pad, node("Conv", ["t", "w"], ["y"], pads=[1, 0, 0, 1], strides=[2, 1])], {"x": x}, ["y"], constants)
    small = check(model, {"x": x}, ["Conv"] if folds else ["Pad", "Conv"], fp="strict", exact=not folds)
    if folds:
        assert small.nodes[0].attrs["pads"] == (2, 2, 3, 1)


def test_a_pad_with_axes_moves_into_a_convolution():
    x = normal(1, 3, 6, 6)
    constants = {"p": np.int64([1, 2]), "axes": np.int64([-1]), "w": normal(4, 3, 3, 3)}
    nodes = [node("Pad", ["x", "p", "", "axes"], ["t"]), node("Conv", ["t", "w"], ["y"], auto_pad="VALID")]
    small = check(make(nodes, {"x": x}, ["y"], constants, opset=19), {"x": x}, ["Conv"])
    assert small.nodes[0].attrs["pads"] == (0, 1, 0, 2) and small.nodes[0].attrs["auto_pad"] == "NOTSET"


@pytest.mark.parametrize(
    ("attrs", "folds"),
    [
        ({}, True),
        ({"pads": [1, 1, 1, 1]}, False),
        ({"pads": [1, 1, 1, 1], "count_include_pad": 1}, True),
        ({"ceil_mode": 1, "strides": [2, 2]}, False),
    ],
)
def test_a_pad_moves_into_an_average_that_counts_it(attrs, folds):
    x = normal(1, 2, 6, 6)
    nodes = [node("Pad", ["x", "p"], ["t"]), node("AveragePool", ["t"], ["y"], kernel_shape=[3, 3], **attrs)]
    check(make(nodes, {"x": x}, ["y"], {"p": np.int64([0, 0, 1, 0, 0, 0, 0, 1])}), {"x": x}, ["AveragePool"] if folds else ["Pad", "AveragePool"])


def test_a_pad_of_minus_infinity_moves_into_a_maximum():
    x = normal(1, 2, 6, 6)
    for value, kernel, folds in ((-np.inf, 3, True), (0.0, 3, False), (-np.inf, 1, False)):
        nodes = [node("Pad", ["x", "p", "v"], ["t"]), node("MaxPool", ["t"], ["y"], kernel_shape=[kernel, kernel])]
        model = make(nodes, {"x": x}, ["y"], {"p": np.int64([0, 0, 1, 0, 0, 0, 0, 1]), "v": np.float32(value)})
        check(model, {"x": x}, ["MaxPool"] if folds else ["Pad", "MaxPool"], exact=True)


# ---- together


def test_sigmoid_products_are_left_alone():
    x = normal(2, 3)
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    check(make(nodes, {"x": x}, ["y"]), {"x": x}, ["Sigmoid", "Mul"], exact=True)


def test_origins_are_kept():
    x = normal(1, 3, 5, 5)
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="c"),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["t"], name="bn"),
        node("Relu", ["t"], ["y"], name="r"),
    ]
    small = check(make(nodes, {"x": x}, ["y"], {"w": normal(4, 3, 3, 3), **batch_norm_constants(4)}), {"x": x}, ["Conv", "Relu"])
    assert [(n.name, n.origin) for n in small.nodes] == [("c", ("c", "bn")), ("r", ("r",))]
