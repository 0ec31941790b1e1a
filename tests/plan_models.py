"""Small models, each the smallest that needs one decision of fusion or storage. `MODELS`: name -> (model, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper
from run_graph import make

Array = np.ndarray[Any, Any]
Model = tuple[ModelProto, dict[str, Array]]
F = TensorProto.FLOAT
node = helper.make_node


def rand(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype(np.float32)


def conv_bn_relu_residual() -> Model:
    x = rand(1, 16, 9, 7)
    c = {
        "w": rand(16, 16, 3, 3), "b": rand(16), "s": rand(16), "t": rand(16), "m": rand(16), "v": abs(rand(16)) + 1,
        "w2": rand(24, 16, 3, 3, seed=2),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"]),
        node("Add", ["n", "x"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Sigmoid", ["r"], ["z"]),
    ]
    return make(nodes, {"x": x}, ["y", "z"], c), {"x": x}


def concat_blocked() -> Model:
    x = rand(2, 16, 6, 6)
    c = {"w": rand(16, 16, 3, 3), "v": rand(20, 16, 1, 1), "u": rand(8, 36, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "v"], ["b"]),
        node("Concat", ["a", "b"], ["k"], axis=1),
        node("Conv", ["k", "u"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def concat_unaligned() -> Model:
    x = rand(1, 16, 5, 5)
    c = {"w": rand(10, 16, 3, 3), "v": rand(12, 16, 1, 1), "u": rand(8, 22, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "v"], ["b"]),
        node("Concat", ["a", "b"], ["k"], axis=1),
        node("Conv", ["k", "u"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def concat_twice_and_output() -> Model:
    x, z = rand(2, 3, 4), rand(2, 5, 4)
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Sigmoid", ["z"], ["b"]),
        node("Concat", ["a", "b"], ["k"], axis=1),
        node("Concat", ["b", "a", "x"], ["l"], axis=1),
        node("Exp", ["l"], ["m"]),
    ]
    return make(nodes, {"x": x, "z": z}, ["k", "m", "b"]), {"x": x, "z": z}


def attention() -> Model:
    x = rand(1, 10, 32)
    c = {
        "wq": rand(32, 32), "wk": rand(32, 32, seed=1), "wv": rand(32, 32, seed=2), "bo": rand(32), "wo": rand(32, 32, seed=3),
        "heads": np.array([1, 10, 4, 8]), "flat": np.array([1, 10, 32]), "scale": np.float32(0.35), "g": rand(32), "b": rand(32, seed=5),
    }  # fmt: skip
    nodes = []
    for p in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{p}"], [p]),
            node("Reshape", [p, "heads"], [f"{p}h"]),
            node("Transpose", [f"{p}h"], [f"{p}t"], perm=[0, 2, 3, 1] if p == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["qt", "kt"], ["s"]),
        node("Mul", ["s", "scale"], ["ss"]),
        node("Softmax", ["ss"], ["p"], axis=-1),
        node("MatMul", ["p", "vt"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "flat"], ["of"]),
        node("MatMul", ["of", "wo"], ["oo"]),
        node("Add", ["oo", "bo"], ["ob"]),
        node("Add", ["ob", "x"], ["r"]),
        node("LayerNormalization", ["r", "g", "b"], ["y"], axis=-1),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def reshaped_epilogue() -> Model:
    x = rand(6, 8)
    c = {"w": rand(8, 12), "shape": np.array([2, 3, 3, 4]), "b": rand(2, 3, 3, 4)}
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Reshape", ["m", "shape"], ["r"]), node("Add", ["r", "b"], ["y"])]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def outputs_that_alias() -> Model:
    x = rand(4, 6)
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=[1, 0]),
        node("Transpose", ["x"], ["u"], perm=[1, 0]),
        node("Identity", ["x"], ["i"]),
    ]
    return make(nodes, {"x": x}, ["a", "t", "u", "i"]), {"x": x}


def write_through_output() -> Model:
    x = rand(6, 8)
    c = {"w": rand(8, 12), "shape": np.array([2, 3, 12])}
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Reshape", ["m", "shape"], ["r"]),
        node("Transpose", ["r"], ["y"], perm=[2, 0, 1]),
        node("Exp", ["m"], ["z"]),
    ]
    return make(nodes, {"x": x}, ["y", "z"], c), {"x": x}


def slices_and_expand() -> Model:
    x = rand(2, 6, 5)
    c = {"st": np.array([1]), "en": np.array([4]), "ax": np.array([1]), "shape": np.array([2, 3, 5]), "split": np.array([2, 4])}
    nodes = [
        node("Slice", ["x", "st", "en", "ax"], ["s"]),
        node("Split", ["x", "split"], ["p", "q"], axis=1),
        node("ReduceMax", ["x"], ["m"], axes=[1], keepdims=1),
        node("Expand", ["m", "shape"], ["e"]),
        node("Mul", ["s", "e"], ["y"]),
        node("ReduceSum", ["q"], ["z"], keepdims=0),
        node("Neg", ["p"], ["w"]),
    ]
    return make(nodes, {"x": x}, ["y", "z", "w"], c), {"x": x}


def pad_and_pool() -> Model:
    x = rand(1, 16, 6, 6)
    c = {"w": rand(16, 16, 3, 3), "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "v": np.float32(0.5)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Pad", ["a", "pads", "v"], ["p"]),
        node("MaxPool", ["p"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["m"], ["y"]),
        node("AveragePool", ["a"], ["z"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return make(nodes, {"x": x}, ["y", "z"], c), {"x": x}


def squeeze_excite() -> Model:
    x = rand(1, 20, 6, 6)
    c = {"w": rand(20, 1, 3, 3), "d": rand(8, 20, 1, 1), "u": rand(20, 8, 1, 1), "p": rand(20, 20, 1, 1)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], group=20),
        node("HardSwish", ["a"], ["h"]),
        node("GlobalAveragePool", ["h"], ["g"]),
        node("Conv", ["g", "d"], ["k"]),
        node("Relu", ["k"], ["l"]),
        node("Conv", ["l", "u"], ["m"]),
        node("HardSigmoid", ["m"], ["n"]),
        node("Mul", ["h", "n"], ["o"]),
        node("Conv", ["o", "p"], ["q"]),
        node("Add", ["q", "x"], ["y"]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def grouped_and_transposed_conv() -> Model:
    x = rand(1, 16, 5, 4)
    c = {"w": rand(32, 4, 3, 3), "t": rand(32, 16, 2, 2), "u": rand(16, 16, 3, 3, seed=9)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], group=4),
        node("LeakyRelu", ["a"], ["b"], alpha=0.1),
        node("ConvTranspose", ["b", "t"], ["d"], strides=[2, 2]),
        node("Conv", ["d", "u"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def mish_and_gather() -> Model:
    x, i = rand(5, 8), np.array([3, -1, 0], np.int64)
    c = {"w": rand(8, 16), "e": rand(7, 16)}
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Softplus", ["m"], ["s"]),
        node("Tanh", ["s"], ["t"]),
        node("Mul", ["m", "t"], ["y"]),
        node("Gather", ["e", "i"], ["g"], axis=0),
        node("ReduceMean", ["g"], ["z"], axes=[0], keepdims=0),
    ]
    return make(nodes, {"x": x, "i": i}, ["y", "z"], c), {"x": x, "i": i}


def decomposed_norm() -> Model:
    x = rand(3, 7, 12)
    c = {"g": rand(12), "eps": np.float32(1e-5), "two": np.float32(2)}
    nodes = [
        node("Add", ["x", "x"], ["a"]),
        node("ReduceMean", ["a"], ["m"], axes=[-1]),
        node("Sub", ["a", "m"], ["d"]),
        node("Pow", ["d", "two"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Add", ["v", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["sd"]),
        node("Div", ["d", "sd"], ["n"]),
        node("Mul", ["n", "g"], ["y"]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


def symbolic_batch() -> Model:
    x = rand(3, 16, 6, 6)
    c = {"w": rand(16, 16, 3, 3), "f": rand(16, 5), "b": rand(5)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w"], ["d"], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["d"], ["g"]),
        node("Flatten", ["g"], ["h"]),
        node("Gemm", ["h", "f", "b"], ["y"]),
    ]
    return make(nodes, {"x": (F, ["n", 16, 6, 6])}, ["y"], c), {"x": x}


def symbolic_size() -> Model:
    y = rand(1, 1, 5, 6)
    c = {"w": rand(16, 1, 3, 3), "v": rand(4, 16, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Tanh", ["a"], ["b"]),
        node("Conv", ["b", "v"], ["d"], pads=[1, 1, 1, 1]),
        node("DepthToSpace", ["d"], ["y"], blocksize=2),
    ]
    return make(nodes, {"x": (F, [1, 1, "h", "w"])}, ["y"], c), {"x": y}


def two_branches_no_cycle() -> Model:
    x = rand(4, 8)
    c = {"w": rand(8, 8), "v": rand(8, 8, seed=1)}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Exp", ["a"], ["e"]),
        node("MatMul", ["e", "v"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
        node("Mul", ["s", "e"], ["y"]),
    ]
    return make(nodes, {"x": x}, ["y"], c), {"x": x}


MODELS: dict[str, Callable[[], Model]] = {
    f.__name__: f
    for f in (
        conv_bn_relu_residual, concat_blocked, concat_unaligned, concat_twice_and_output, attention, reshaped_epilogue,
        outputs_that_alias, write_through_output, slices_and_expand, pad_and_pool, squeeze_excite, grouped_and_transposed_conv,
        mish_and_gather, decomposed_norm, symbolic_batch, symbolic_size, two_branches_no_cycle,
    )
}  # fmt: skip
