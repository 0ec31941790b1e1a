"""One form per operator: the differences between opsets 7 and today's, as a table of small rules.

A rule takes a node of the model's opset (attributes plain, that opset's defaults filled in) and the builder, and gives the nodes of
the newest form that stand for it. Axes, shapes, pads, starts, splits, bounds are inputs; attributes become constant inputs.
Operators without a rule have not changed. Sources: the changelog of the ONNX operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx

from polyopt.errors import ModelError
from polyopt.ir.graph import Node

from .builder import Builder, input_or, with_attrs, with_input, without_attrs
from .tensors import array_dtype, attribute_value, dtype_of

Rule = Callable[[Node, Builder], list[Node]]


def normalize(node: Node, builder: Builder) -> list[Node]:
    """The nodes in the newest form that stand for `node`; the newest opset's defaults filled in."""
    rule = RULES.get(node.op) if not node.domain else None
    made = rule(node, builder) if rule else [node]
    return [_finish(n) for n in made]


def _finish(node: Node) -> Node:
    attrs = node.attrs
    if not node.domain:
        attrs = {**default_attrs(node.op, "", onnx.defs.onnx_opset_version()), **attrs}
    return replace(node, attrs=attrs, inputs=_strip(node.inputs), outputs=_strip(node.outputs))


def _strip(names: tuple[str, ...]) -> tuple[str, ...]:
    while names and not names[-1]:
        names = names[:-1]
    return names


_DEFAULTS: dict[tuple[str, str, int], dict[str, object]] = {}


def default_attrs(op: str, domain: str, opset: int) -> dict[str, object]:
    """The default values that an opset gives to an operator's attributes."""
    key = (op, domain, opset)
    if key not in _DEFAULTS:
        found: dict[str, object] = {}
        if onnx.defs.has(op, opset, domain):
            for name, a in onnx.defs.get_schema(op, opset, domain).attributes.items():
                if a.default_value.name:
                    found[name] = attribute_value(a.default_value, None, op)
        _DEFAULTS[key] = found
    return _DEFAULTS[key]


# ---- attributes that became inputs


def _axes(node: Node, builder: Builder) -> list[Node]:
    """Squeeze, Unsqueeze (13), ReduceSum (13), other reductions (18): axes become input 1."""
    if "axes" in node.attrs:
        axes = node.attrs["axes"]
        node = without_attrs(node, "axes")
        node = with_input(node, 1, builder.ints(node, "axes", axes))
    return [node]


def _slice(node: Node, builder: Builder) -> list[Node]:
    """Slice (10): starts, ends, axes become inputs 1 to 3."""
    if "starts" in node.attrs:
        starts, ends = node.attrs["starts"], node.attrs.get("ends", ())
        axes = node.attrs.get("axes", tuple(range(len(starts))))
        for position, what, values in ((1, "starts", starts), (2, "ends", ends), (3, "axes", axes)):
            node = with_input(node, position, builder.ints(node, what, values))
    for position in (1, 2):
        node = _far(node, position, builder)
    return [without_attrs(node, "starts", "ends", "axes")]


_ENDLESS = 10**9  # what some exporters write for "to the end"; no dim of a real tensor is that large
_FAR = 2**31 - 1


def _far(node: Node, position: int, builder: Builder) -> Node:
    """Bounds of a Slice that lie beyond every tensor become the one value that means so."""
    name = input_or(node, position)
    array = builder.array(name) if name else None
    if array is None or array.dtype.kind != "i" or not (np.abs(array.astype(np.float64)) >= _ENDLESS).any():
        return node
    far = np.where(array >= _ENDLESS, _FAR, np.where(array <= -_ENDLESS, -_FAR, array)).astype(array.dtype)
    return with_input(node, position, builder.constant(f"{node.name}/bounds", far))


def _pad(node: Node, builder: Builder) -> list[Node]:
    """Pad (11): pads and value become inputs 1 and 2."""
    if "pads" in node.attrs:
        value = node.attrs.get("value", 0.0)
        node = with_input(node, 1, builder.ints(node, "pads", node.attrs["pads"]))
        if value != 0:
            node = with_input(node, 2, builder.constant(f"{node.name}/value", value, builder.numpy_dtype(node.inputs[0])))
    return [without_attrs(node, "pads", "value")]


def _clip(node: Node, builder: Builder) -> list[Node]:
    """Clip (11): min and max become inputs 1 and 2; the old defaults (the float range) mean no bound."""
    largest = float(np.finfo(np.float32).max)
    for position, key, absent in ((1, "min", -largest), (2, "max", largest)):
        if key in node.attrs and node.attrs[key] != absent:
            name = builder.constant(f"{node.name}/{key}", node.attrs[key], builder.numpy_dtype(node.inputs[0]))
            node = with_input(node, position, name)
    return [without_attrs(node, "min", "max")]


def _split(node: Node, builder: Builder) -> list[Node]:
    """Split (13): split becomes input 1; (18): equal parts are asked for by num_outputs."""
    if "split" in node.attrs:
        node = with_input(node, 1, builder.ints(node, "split", node.attrs["split"]))
        node = without_attrs(node, "split")
    if not input_or(node, 1) and "num_outputs" not in node.attrs:
        node = with_attrs(node, num_outputs=len(node.outputs))
    return [node]


# ---- operators that were renamed or absorbed


def _upsample(node: Node, builder: Builder) -> list[Node]:
    """Upsample (7: scales attribute, 9: input) is Resize with asymmetric coordinates, rounded down."""
    if "scales" in node.attrs:
        scales = builder.constant(f"{node.name}/scales", list(node.attrs["scales"]), np.float32)
    else:
        scales = input_or(node, 1)
    mode = {"bilinear": "linear"}.get(str(node.attrs.get("mode", "nearest")), node.attrs.get("mode", "nearest"))
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [replace(node, op="Resize", inputs=(node.inputs[0], "", scales), attrs=attrs)]


def _resize(node: Node, builder: Builder) -> list[Node]:
    """Resize (10) had no roi and asymmetric coordinates; from 11 on, absent inputs may be empty tensors."""
    if builder.opset < 11:
        return _upsample(node, builder)
    inputs = list(node.inputs)
    for i in range(1, len(inputs)):
        array = builder.array(inputs[i])
        if array is not None and array.size == 0:
            inputs[i] = ""
    if len(inputs) > 1 and node.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        inputs[1] = ""
    return [replace(node, inputs=tuple(inputs))]


def _grid_sample(node: Node, builder: Builder) -> list[Node]:
    """GridSample (20): bilinear and bicubic are called linear and cubic."""
    mode = node.attrs.get("mode", "bilinear")
    return [with_attrs(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))]


# ---- constants


def _constant(node: Node, builder: Builder) -> list[Node]:
    """Constant, in all forms, is no node: its output is a constant."""
    at = f"constant {node.outputs[0]!r}"
    forms = {"value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints"} & set(node.attrs)
    if len(forms) != 1:
        held = ", ".join(sorted(node.attrs)) or "none"
        raise ModelError(f"node {node.name!r} (Constant) must have one numeric value attribute, it has {held}")
    form = forms.pop()
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}.get(form)
    array = np.asarray(node.attrs[form], dtype=dtype)
    array_dtype(array, at)
    builder.constants[node.outputs[0]] = array
    return []


def _constant_of_shape(node: Node, builder: Builder) -> list[Node]:
    """ConstantOfShape: the value, by default float 0, is always there."""
    value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    array_dtype(value, f"the value of node {node.name!r} (ConstantOfShape)")
    if value.size != 1:
        raise ModelError(f"node {node.name!r} (ConstantOfShape): its value must have one element, it has {value.size}")
    return [with_attrs(node, value=value)]


def _cast(node: Node, builder: Builder) -> list[Node]:
    """Cast: the target must be a supported type."""
    dtype_of(int(node.attrs["to"]), f"the target of node {node.name!r} (Cast)")
    return [node]


# ---- inference forms of what training knows


def _dropout(node: Node, builder: Builder) -> list[Node]:
    """Dropout at inference copies its input; its mask, where used, is all true. A training one stays and is not supported."""
    training, ratio = input_or(node, 2), input_or(node, 1)
    mode = builder.array(training)
    rate = builder.array(ratio) if ratio else np.asarray(node.attrs.get("ratio", 0.5))
    if training and (mode is None or mode.any()) and (rate is None or rate.any()):
        return [node]
    x = node.inputs[0]
    out = [replace(node, op="Identity", inputs=(x,), outputs=node.outputs[:1], attrs={})]
    if len(node.outputs) > 1 and node.outputs[1] in builder.used:
        one = np.ones(1, builder.numpy_dtype(x) if builder.opset < 10 else np.bool_)
        shape = builder.node(node, "Shape", [x])
        out += [shape, builder.node(node, "ConstantOfShape", shape.outputs, [node.outputs[1]], value=one)]
    return out


def _batch_normalization(node: Node, builder: Builder) -> list[Node]:
    """BatchNormalization: `spatial` (until 9) must be 1; unused statistics go away; training mode is written out."""
    if not node.attrs.get("spatial", 1):
        raise ModelError(f"node {node.name!r} (BatchNormalization) has spatial=0 (statistics per pixel), which is not supported")
    if builder.opset >= 14 and node.attrs.get("training_mode", 0):
        return _train_batch_normalization(node, builder)
    extra = [o for o in node.outputs[1:] if o in builder.used]
    if extra:
        raise ModelError(f"node {node.name!r} (BatchNormalization) is in training mode: its output {extra[0]!r} is used")
    node = without_attrs(node, "spatial", "momentum", "training_mode")
    return [replace(node, outputs=node.outputs[:1])]


def _train_batch_normalization(node: Node, builder: Builder) -> list[Node]:
    """Batch statistics, then running ones: running · momentum + batch · (1 - momentum). The variance is the population's."""
    x, scale, bias, mean, var = node.inputs
    rank = builder.rank(x)
    if rank is None:
        raise ModelError(f"node {node.name!r} (BatchNormalization, training): the rank of its input is unknown")
    dtype = builder.numpy_dtype(x)
    axes = builder.ints(node, "axes", [a for a in range(rank) if a != 1])
    column = builder.ints(node, "column", [-1] + [1] * (rank - 2))
    momentum, made = float(node.attrs.get("momentum", 0.9)), []

    def add(op: str, *inputs: str, out: str = "", **attrs: object) -> str:
        made.append(builder.node(node, op, inputs, [out] if out else None, **attrs))
        return made[-1].outputs[0]

    center = add("ReduceMean", x, axes, keepdims=1)
    apart = add("Sub", x, center)
    spread = add("ReduceMean", add("Mul", apart, apart), axes, keepdims=1)
    eps = builder.constant(f"{node.name}/epsilon", node.attrs.get("epsilon", 1e-5), dtype)
    unit = add("Div", apart, add("Sqrt", add("Add", spread, eps)))
    scaled = add("Mul", unit, add("Reshape", scale, column))
    add("Add", scaled, add("Reshape", bias, column), out=node.outputs[0])
    flat = builder.ints(node, "flat", [-1])
    for position, running, batch in ((1, mean, center), (2, var, spread)):
        if position < len(node.outputs) and node.outputs[position] in builder.used:
            kind = builder.numpy_dtype(running)
            old = add("Mul", running, builder.constant(f"{node.name}/momentum", momentum, kind))
            new = add("Mul", add("Reshape", batch, flat), builder.constant(f"{node.name}/rest", 1 - momentum, kind))
            add("Add", old, new, out=node.outputs[position])
    return made


def _softmax(node: Node, builder: Builder) -> list[Node]:
    """Softmax, LogSoftmax before 13 work on the input seen as a matrix: rows up to `axis`, columns from it."""
    if builder.opset >= 13:
        return [node]
    x, axis = node.inputs[0], int(node.attrs.get("axis", 1))
    rank = builder.rank(x)
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        return [with_attrs(node, axis=-1)]
    flat = builder.node(node, "Flatten", [x], axis=axis)
    inner = builder.fresh(f"{node.name}/flat:0")
    shape = builder.node(node, "Shape", [x])
    back = builder.node(node, "Reshape", [inner, shape.outputs[0]], node.outputs)
    return [flat, replace(node, inputs=flat.outputs, outputs=(inner,), attrs={"axis": -1}), shape, back]


_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")

RULES: dict[str, Rule] = {
    **{f"Reduce{kind}": _axes for kind in _REDUCTIONS},
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "GridSample": _grid_sample,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _axes,
    "Unsqueeze": _axes,
    "Upsample": _upsample,
}

BEFORE: dict[str, int] = {"GroupNormalization": 21}
"""Operators whose meaning changed at an opset: before it they are expanded into their function body, never looked up."""

RENAMED: dict[str, str] = {"Upsample": "Resize"}
VANISHING = frozenset({"Constant", "Dropout"})
"""Operators that never reach the registry under their own name."""
