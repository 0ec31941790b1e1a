"""Models of well-known architectures with seeded weights, built with onnx alone.

`build(name)` gives a ModelProto, `python -m benchmarks.zoo NAME -o FILE` writes it. Weights are drawn so that activations keep
their size through the network; the graphs are what exporters write (batch norm apart, GELU and attention as small operators).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 17
SEED = 20240607


class Writer:
    """A graph under construction: nodes, weights, and the seeded generator that draws them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self._shared: dict[tuple[str, bytes], str] = {}

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> str:
        """A graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[int | str]) -> None:
        """A graph output that copies nothing: the node that writes `value` is renamed."""
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, n in enumerate(names):
                    if n == value:
                        names[i] = name
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def weight(self, array: np.ndarray[Any, Any]) -> str:
        """A weight with these values."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A small constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if key not in self._shared:
            self._shared[key] = self.weight(array)
        return self._shared[key]

    def normal(self, *shape: int, scale: float) -> str:
        """Normally distributed weights."""
        return self.weight(self.rng.standard_normal(shape, np.float32) * np.float32(scale))

    def op(self, kind: str, *inputs: str, count: int = 1, **attrs: Any) -> Any:
        """A node; its output, or the tuple of its `count` outputs."""
        base = f"{kind.lower()}_{len(self.nodes)}"
        outputs = [f"{base}_out"] if count == 1 else [f"{base}_out{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=base, **attrs))
        return outputs[0] if count == 1 else tuple(outputs)

    def model(self) -> ModelProto:
        """The finished model."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="polyopt.benchmarks.zoo")

    # ---- layers
    def conv(self, x: str, cin: int, cout: int, k: int, stride: int = 1, group: int = 1, gain: float = 1.4, bias: bool = False) -> str:
        """A convolution with padding k // 2."""
        w = self.normal(cout, cin // group, k, k, scale=gain / math.sqrt(cin // group * k * k))
        rest = [self.normal(cout, scale=0.05)] if bias else []
        p = k // 2
        attrs: dict[str, Any] = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [p] * 4, "group": group, "dilations": [1, 1]}
        return str(self.op("Conv", x, w, *rest, **attrs))

    def batch_norm(self, x: str, channels: int, gain: float = 1.0) -> str:
        """Batch normalization with statistics near those of a unit normal input."""
        rng = self.rng
        scale = self.weight((gain * rng.uniform(0.8, 1.2, channels)).astype(np.float32))
        mean, var = self.normal(channels, scale=0.1), self.weight(rng.uniform(0.7, 1.4, channels).astype(np.float32))
        return str(self.op("BatchNormalization", x, scale, self.normal(channels, scale=0.1), mean, var, epsilon=1e-5))

    def conv_bn(self, x: str, cin: int, cout: int, k: int, stride: int = 1, group: int = 1, gain: float = 1.0) -> str:
        """Convolution and batch normalization."""
        return self.batch_norm(self.conv(x, cin, cout, k, stride, group), cout, gain)

    def linear(self, x: str, cin: int, cout: int, gain: float = 1.0) -> str:
        """MatMul and Add, for inputs of any rank."""
        y = self.op("MatMul", x, self.normal(cin, cout, scale=gain / math.sqrt(cin)))
        return str(self.op("Add", self.normal(cout, scale=0.05), y))

    def classifier(self, x: str, cin: int, cout: int) -> str:
        """A Gemm with transposed weights, as exporters write it."""
        w, b = self.normal(cout, cin, scale=1 / math.sqrt(cin)), self.normal(cout, scale=0.05)
        return str(self.op("Gemm", x, w, b, transB=1))

    def layer_norm(self, x: str, width: int, epsilon: float = 1e-5) -> str:
        """Layer normalization of the last dim."""
        scale = self.weight(self.rng.uniform(0.8, 1.2, width).astype(np.float32))
        return str(self.op("LayerNormalization", x, scale, self.normal(width, scale=0.05), axis=-1, epsilon=epsilon))

    def gelu(self, x: str) -> str:
        """GELU with erf."""
        e = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        return str(self.op("Mul", self.op("Mul", x, self.op("Add", e, self.constant(1.0))), self.constant(0.5)))

    def gelu_tanh(self, x: str) -> str:
        """GELU by tanh."""
        cube = self.op("Mul", self.op("Pow", x, self.constant(3.0)), self.constant(0.044715))
        t = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), self.constant(math.sqrt(2 / math.pi))))
        return str(self.op("Mul", self.op("Mul", x, self.constant(0.5)), self.op("Add", t, self.constant(1.0))))

    def heads(self, x: str, tokens: int, heads: int, width: int) -> str:
        """[1, tokens, width] as [1, heads, tokens, width / heads]."""
        y = self.op("Reshape", x, self.constant([1, tokens, heads, width // heads], np.int64))
        return str(self.op("Transpose", y, perm=[0, 2, 1, 3]))

    def attend(self, q: str, k: str, v: str, tokens: int, heads: int, width: int, mask: str | None = None) -> str:
        """Scaled dot product attention of split heads, joined again."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.constant(math.sqrt(width // heads)))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return str(self.op("Reshape", y, self.constant([1, tokens, width], np.int64)))


def resnet50() -> ModelProto:
    """ResNet-50 v1.5 (stride on the 3x3), 224 x 224."""
    g = Writer("resnet50")
    x = g.op("Relu", g.conv_bn(g.input("image", [1, 3, 224, 224]), 3, 64, 7, 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for b in range(blocks):
            stride = first if b == 0 else 1
            y = g.op("Relu", g.conv_bn(x, cin, width, 1))
            y = g.op("Relu", g.conv_bn(y, width, width, 3, stride))
            y = g.conv_bn(y, width, 4 * width, 1, gain=0.3)
            skip = g.conv_bn(x, cin, 4 * width, 1, stride, gain=0.7) if b == 0 else x
            x, cin = g.op("Relu", g.op("Add", y, skip)), 4 * width
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.output(g.classifier(x, 2048, 1000), "logits", [1, 1000])
    return g.model()


def mobilenetv2() -> ModelProto:
    """MobileNetV2, 224 x 224."""
    g = Writer("mobilenetv2")
    low, high = g.constant(0.0), g.constant(6.0)

    def relu6(x: str) -> str:
        return str(g.op("Clip", x, low, high))

    x, cin = relu6(g.conv_bn(g.input("image", [1, 3, 224, 224]), 3, 32, 3, 2)), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, cout, blocks, first in stages:
        for b in range(blocks):
            stride, hidden = first if b == 0 else 1, cin * expand
            y = x if expand == 1 else relu6(g.conv_bn(x, cin, hidden, 1))
            y = relu6(g.conv_bn(y, hidden, hidden, 3, stride, group=hidden))
            y = g.conv_bn(y, hidden, cout, 1)
            x, cin = (g.op("Add", x, y) if stride == 1 and cin == cout else y), cout
    x = g.op("ReduceMean", relu6(g.conv_bn(x, cin, 1280, 1)), axes=[2, 3], keepdims=0)
    g.output(g.classifier(x, 1280, 1000), "logits", [1, 1000])
    return g.model()


def yolov3() -> ModelProto:
    """YOLOv3 with its Darknet-53 backbone, 416 x 416, three raw heads."""
    g = Writer("yolov3")

    def cbl(x: str, cin: int, cout: int, k: int, stride: int = 1, gain: float = 1.0) -> str:
        return str(g.op("LeakyRelu", g.conv_bn(x, cin, cout, k, stride, gain=gain), alpha=0.1))

    def neck(x: str, cin: int, width: int) -> str:
        for i in range(5):
            x = cbl(x, *((2 * width if i else cin, width, 1) if i % 2 == 0 else (width, 2 * width, 3)))
        return x

    def head(x: str, width: int) -> str:
        return g.conv(cbl(x, width, 2 * width, 3), 2 * width, 255, 1, bias=True)

    def upsample(x: str, cin: int, cout: int) -> str:
        up: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return str(g.op("Resize", cbl(x, cin, cout, 1), "", g.constant([1, 1, 2, 2]), **up))

    x = cbl(g.input("image", [1, 3, 416, 416]), 3, 32, 3)
    width, stages = 32, []
    for blocks in (1, 2, 8, 8, 4):
        x, width = cbl(x, width, 2 * width, 3, 2), 2 * width
        for _ in range(blocks):
            x = g.op("Add", x, cbl(cbl(x, width, width // 2, 1), width // 2, width, 3, gain=0.3))
        stages.append(x)
    p5 = neck(stages[4], 1024, 512)
    p4 = neck(g.op("Concat", upsample(p5, 512, 256), stages[3], axis=1), 768, 256)
    p3 = neck(g.op("Concat", upsample(p4, 256, 128), stages[2], axis=1), 384, 128)
    for name, p, c, size in (("p5", p5, 512, 13), ("p4", p4, 256, 26), ("p3", p3, 128, 52)):
        g.output(head(p, c), name, [1, 255, size, size])
    return g.model()


def unet() -> ModelProto:
    """A U-Net of four levels with 16 to 256 channels, 256 x 256, three classes."""
    g = Writer("unet")

    def double(x: str, cin: int, cout: int) -> str:
        x = g.op("Relu", g.conv_bn(x, cin, cout, 3))
        return str(g.op("Relu", g.conv_bn(x, cout, cout, 3)))

    x, cin, skips = g.input("image", [1, 3, 256, 256]), 3, []
    for width in (16, 32, 64, 128):
        x, cin = double(x, cin, width), width
        skips.append((x, width))
        x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, cin = double(x, 128, 256), 256
    for skip, width in reversed(skips):
        w = g.normal(cin, width, 2, 2, scale=1.4 / math.sqrt(cin))
        x = g.op("ConvTranspose", x, w, g.normal(width, scale=0.05), kernel_shape=[2, 2], strides=[2, 2])
        x, cin = double(g.op("Concat", x, skip, axis=1), 2 * width, width), width
    x = g.op("Softmax", g.conv(x, 16, 3, 1, bias=True), axis=1)
    g.output(x, "mask", [1, 3, 256, 256])
    return g.model()


def _bert(name: str, width: int, heads: int, layers: int, tokens: int, vocabulary: int = 30522) -> ModelProto:
    g = Writer(name)
    shape = [1, tokens]
    ids, given, kinds = (g.input(n, shape, TensorProto.INT64) for n in ("input_ids", "attention_mask", "token_type_ids"))
    words = g.op("Gather", g.normal(vocabulary, width, scale=0.7), ids)
    x = g.op("Add", words, g.op("Gather", g.normal(2, width, scale=0.5), kinds))
    x = g.layer_norm(g.op("Add", x, g.normal(1, tokens, width, scale=0.5)), width, 1e-12)
    mask = g.op("Cast", g.op("Unsqueeze", given, g.constant([1, 2], np.int64)), to=TensorProto.FLOAT)
    mask = g.op("Mul", g.op("Sub", g.constant(1.0), mask), g.constant(-10000.0))
    for _ in range(layers):
        q, k, v = (g.heads(g.linear(x, width, width), tokens, heads, width) for _ in range(3))
        y = g.linear(g.attend(q, k, v, tokens, heads, width, mask), width, width)
        x = g.layer_norm(g.op("Add", x, y), width, 1e-12)
        y = g.linear(g.gelu(g.linear(x, width, 4 * width)), 4 * width, width)
        x = g.layer_norm(g.op("Add", x, y), width, 1e-12)
    first = g.op("Gather", x, g.constant(0, np.int64), axis=1)
    pooled = g.op("Tanh", g.classifier(first, width, width))
    g.output(x, "last_hidden_state", [1, tokens, width])
    g.output(pooled, "pooler_output", [1, width])
    return g.model()


def bert_base() -> ModelProto:
    """BERT base: 12 layers of width 768, 128 tokens."""
    return _bert("bert_base", 768, 12, 12, 128)


def bert_mini() -> ModelProto:
    """BERT mini: 4 layers of width 256, 64 tokens."""
    return _bert("bert_mini", 256, 4, 4, 64)


def gpt2() -> ModelProto:
    """GPT-2 small: 12 layers of width 768, 64 tokens, logits by the tied embedding."""
    width, heads, layers, tokens, vocabulary = 768, 12, 12, 64, 50257
    g = Writer("gpt2")
    ids = g.input("input_ids", [1, tokens], TensorProto.INT64)
    embedding = g.normal(vocabulary, width, scale=1 / math.sqrt(width))
    x = g.op("Add", g.op("Gather", embedding, ids), g.normal(1, tokens, width, scale=0.02))
    causal = g.weight(np.tril(np.ones((1, 1, tokens, tokens), bool)))
    for _ in range(layers):
        joined = g.linear(g.layer_norm(x, width), width, 3 * width)
        parts = g.op("Split", joined, g.constant([width] * 3, np.int64), count=3, axis=-1)
        q, k, v = (g.heads(p, tokens, heads, width) for p in parts)
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.op("Where", causal, g.op("Mul", scores, g.constant(1 / math.sqrt(width // heads))), g.constant(-1e9))
        y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = g.op("Reshape", y, g.constant([1, tokens, width], np.int64))
        x = g.op("Add", x, g.linear(y, width, width, gain=0.5))
        y = g.gelu_tanh(g.linear(g.layer_norm(x, width), width, 4 * width))
        x = g.op("Add", x, g.linear(y, 4 * width, width, gain=0.5))
    logits = g.op("MatMul", g.layer_norm(x, width), g.op("Transpose", embedding, perm=[1, 0]))
    g.output(logits, "logits", [1, tokens, vocabulary])
    return g.model()


def vit_tiny() -> ModelProto:
    """ViT-Ti/16: 12 layers of width 192, 224 x 224."""
    width, heads, layers, tokens = 192, 3, 12, 197
    g = Writer("vit_tiny")
    w, b = g.normal(width, 3, 16, 16, scale=1 / 16), g.normal(width, scale=0.05)
    x = g.op("Conv", g.input("image", [1, 3, 224, 224]), w, b, kernel_shape=[16, 16], strides=[16, 16])
    x = g.op("Transpose", g.op("Reshape", x, g.constant([1, width, 196], np.int64)), perm=[0, 2, 1])
    x = g.op("Concat", g.normal(1, 1, width, scale=0.5), x, axis=1)
    x = g.op("Add", x, g.normal(1, tokens, width, scale=0.5))
    for _ in range(layers):
        joined = g.linear(g.layer_norm(x, width, 1e-6), width, 3 * width)
        joined = g.op("Reshape", joined, g.constant([1, tokens, 3, heads, width // heads], np.int64))
        joined = g.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.op("Gather", joined, g.constant(i, np.int64), axis=0) for i in range(3))
        x = g.op("Add", x, g.linear(g.attend(q, k, v, tokens, heads, width), width, width, gain=0.7))
        y = g.linear(g.gelu(g.linear(g.layer_norm(x, width, 1e-6), width, 4 * width)), 4 * width, width, gain=0.7)
        x = g.op("Add", x, y)
    first = g.op("Gather", g.layer_norm(x, width, 1e-6), g.constant(0, np.int64), axis=1)
    g.output(g.classifier(first, width, 1000), "logits", [1, 1000])
    return g.model()


MODELS: dict[str, Callable[[], ModelProto]] = {f.__name__: f for f in (resnet50, mobilenetv2, yolov3, bert_base, bert_mini, gpt2, vit_tiny, unet)}


def build(name: str) -> ModelProto:
    """The model of that name (`MODELS` lists them); ValueError for others."""
    if name not in MODELS:
        raise ValueError(f"no model {name!r}: choose one of {', '.join(sorted(MODELS))}")
    return MODELS[name]()


def random_inputs(model: ModelProto, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for a model of the zoo: images uniform in [-1, 1), token ids of its vocabulary, masks and kinds of 0 and 1."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray[Any, Any]] = {}
    for v in model.graph.input:
        shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
        if v.type.tensor_type.elem_type == TensorProto.INT64:
            high = 1000 if v.name == "input_ids" else 2
            out[v.name] = rng.integers(0, high, shape)
        else:
            out[v.name] = rng.uniform(-1, 1, shape).astype(np.float32)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a model to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=sorted(MODELS))
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: NAME.onnx)")
    given = parser.parse_args(arguments)
    path = given.output or Path(f"{given.name}.onnx")
    try:
        onnx.save(build(given.name), str(path))
    except OSError as e:
        print(f"{path} cannot be written: {e.strerror or e}", file=sys.stderr)
        return 1
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
