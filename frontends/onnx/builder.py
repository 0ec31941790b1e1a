"""What the normalisation rules ask about the model and add to it while it is read: constants, fresh names, known types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from polyopt.ir.dtype import DType
from polyopt.ir.graph import Node

from .tensors import Array, dtype_of


@dataclass
class Builder:
    """One reading of one model. `taken`: all names in use; `used`: the values that something reads or that are outputs."""

    constants: dict[str, Array]
    types: Mapping[str, onnx.TypeProto]
    taken: set[str]
    used: Set[str]
    opset: int
    _shared: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)

    def fresh(self, base: str) -> str:
        """A name that is not in use."""
        name, k = base, 2
        while name in self.taken:
            name, k = f"{base}_{k}", k + 1
        self.taken.add(name)
        return name

    def constant(self, base: str, value: Any, dtype: Any = None) -> str:
        """The name of a constant with that value; equal small ones are shared."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str + array.dtype.name, array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self.fresh(base)
            self.constants[self._shared[key]] = array
        return self._shared[key]

    def ints(self, node: Node, what: str, values: Sequence[int]) -> str:
        """A constant int64 vector that belongs to a node."""
        return self.constant(f"{node.name}/{what}", list(values), np.int64)

    def array(self, name: str) -> Array | None:
        """The value of a constant, None where the name is no constant."""
        return self.constants.get(name)

    def dtype(self, name: str) -> DType | None:
        """The element type, where onnx's inference or a constant tells it."""
        kind = self.types.get(name)
        if kind is not None and kind.HasField("tensor_type") and kind.tensor_type.elem_type:
            return dtype_of(kind.tensor_type.elem_type, f"value {name!r}")
        return None

    def numpy_dtype(self, name: str, default: Any = np.float32) -> Any:
        """The NumPy element type of a value, or the default where it is unknown."""
        if name in self.constants:
            return self.constants[name].dtype
        kind = self.types.get(name)
        if kind is not None and kind.HasField("tensor_type") and kind.tensor_type.elem_type:
            return onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        return np.dtype(default)

    def rank(self, name: str) -> int | None:
        """The rank, where onnx's inference or a constant tells it."""
        if name in self.constants:
            return self.constants[name].ndim
        kind = self.types.get(name)
        if kind is not None and kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"):
            return len(kind.tensor_type.shape.dim)
        return None

    def node(self, like: Node, op: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, **attrs: Any) -> Node:
        """A new node that stands for (a part of) `like`; without `outputs` it gets one fresh output."""
        name = self.fresh(f"{like.name}/{op.lower()}")
        return Node(name, op, tuple(inputs), tuple(outputs or (self.fresh(f"{name}:0"),)), attrs, "", like.origin)


def input_or(node: Node, position: int) -> str:
    """The input at a position, "" where it is absent."""
    return node.inputs[position] if position < len(node.inputs) else ""


def with_input(node: Node, position: int, name: str) -> Node:
    """The node with an input set, absent ones before it as ""."""
    inputs = list(node.inputs) + [""] * (position + 1 - len(node.inputs))
    inputs[position] = name
    return replace(node, inputs=tuple(inputs))


def without_attrs(node: Node, *keys: str) -> Node:
    """The node without some attributes."""
    return replace(node, attrs={k: v for k, v in node.attrs.items() if k not in keys})


def with_attrs(node: Node, **attrs: Any) -> Node:
    """The node with some attributes set."""
    return replace(node, attrs={**node.attrs, **attrs})
