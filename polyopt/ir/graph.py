"""The graph of a model: tensors, constants, nodes in topological order. Takes what a front end read; gives a frozen value.

Nodes carry ONNX's operator names and semantics, normalised by the front end to one recent opset: attributes are plain Python
values; inputs that were optional and absent are "". Shapes are tuples of `Affine` in named dims (symbolic dims are parameters).
SSA: each value is written once, by one node, or is an input or a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .affine import Affine
from .dtype import DType

if TYPE_CHECKING:
    import numpy as np

Shape = tuple[Affine, ...]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `shape` None: not inferred yet."""

    name: str
    dtype: DType | None
    shape: Shape | None


@dataclass(frozen=True)
class Node:
    """One operator. `origin` names the ONNX nodes that it came from (fusion and folding join them)."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    origin: tuple[str, ...] = ()

    def attr(self, key: str, default: Any = None) -> Any:
        """An attribute, or the default where it is absent."""
        return self.attrs.get(key, default)


@dataclass(frozen=True)
class Graph:
    """A model. `values` has every tensor; `constants` the arrays known at compile time; `nodes` in topological order.

    `ports`: what callers call the outputs, where these are not the names of the values (an output that is an input, or is listed twice).
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, np.ndarray[Any, Any]]
    nodes: tuple[Node, ...]
    opset: int = 0
    ports: tuple[str, ...] = ()

    @property
    def output_names(self) -> tuple[str, ...]:
        """What callers call the outputs."""
        return self.ports or self.outputs

    def producer(self) -> dict[str, Node]:
        """The node that writes each value."""
        return {o: n for n in self.nodes for o in n.outputs if o}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, in order, each once."""
        out: dict[str, list[Node]] = {}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                if i:
                    out.setdefault(i, []).append(n)
        return out

    def dims(self) -> tuple[str, ...]:
        """The named (symbolic) dims that occur in the shapes of the inputs, sorted."""
        names: set[str] = set()
        for i in self.inputs:
            for d in self.values[i].shape or ():
                names |= d.names()
        return tuple(sorted(names))


@dataclass(frozen=True)
class Storage:
    """Where a tensor lives: element d0, d1, … of the tensor is element `indices` of the row-major array `buffer` of shape `shape`.

    The identity for a dense tensor. NCHW16c: indices (d0, d1//16, d2, d3, d1%16). A halo: (d0, d1, d2+1, d3+1) in a larger shape (the
    border holds zeros). Several tensors may share a buffer: a reshape, a transpose or a piece of a concatenation costs nothing.
    `halo`, where not empty: for each logical dim how many zeros stand before and after; the group that writes the tensor writes them.
    """

    buffer: str
    indices: tuple[Affine, ...]
    shape: Shape
    halo: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Group:
    """Nodes that become one kernel. `name` is the anchor node's name. `inputs`/`outputs`: tensors that cross the border."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A graph cut into kernels: groups in execution order, the storage of each tensor that lives in memory, and why-nots.

    `why_not` maps a pair (producer node, consumer node) that was not fused to one line that says why.
    """

    graph: Graph
    groups: tuple[Group, ...]
    storage: Mapping[str, Storage]
    why_not: Mapping[tuple[str, str], str] = field(default_factory=dict)
