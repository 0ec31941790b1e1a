"""Editing a graph: one sweep of a simplification gathers its changes here and gives the new graph at the end.

Takes a graph with all types known; gives a graph with all types known, nodes still in topological order, outputs still written by
nodes. A node that a sweep has touched is not touched again in it: the next round sees the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.affine import affine
from ..ir.dtype import BY_NUMPY, DType
from ..ir.graph import Graph, Node, Shape, Value
from ..ops.registry import Array


class Edit:
    """The changes of one sweep over `graph`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = graph.producer()
        self.consumers = graph.consumers()
        self.touched: set[str] = set()
        self._nodes: dict[str, tuple[Node, ...]] = {}
        self._alias: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        self._constants: dict[str, Array] = {}
        self._names = set(graph.values) | {n.name for n in graph.nodes}
        self._outputs = frozenset(graph.outputs)

    # ---- questions
    def constant(self, name: str) -> Array | None:
        """The numbers of a constant; None for other values, and for constants that hold named dims."""
        array = self.graph.constants.get(name)
        return None if array is None or array.dtype == object else array

    def scalar(self, name: str) -> float | None:
        """The value of a constant with one element."""
        array = self.constant(name)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def value(self, name: str) -> Value:
        """A value of the graph."""
        return self.graph.values[name]

    def shape(self, name: str) -> Shape:
        """A shape, known after inference."""
        shape = self.graph.values[name].shape
        assert shape is not None, name
        return shape

    def dtype(self, name: str) -> DType:
        """An element type, known after inference."""
        dtype = self.graph.values[name].dtype
        assert dtype is not None, name
        return dtype

    def static_shape(self, name: str) -> tuple[int, ...] | None:
        """The shape as ints, None where a named dim occurs."""
        shape = self.shape(name)
        return tuple(d.const for d in shape) if all(d.is_const for d in shape) else None

    def is_output(self, name: str) -> bool:
        """Whether the graph gives this value to the caller."""
        return name in self._outputs

    def only_consumer(self, name: str) -> Node | None:
        """The one node that reads a value (also when it reads it twice), None where there are others or the caller does."""
        readers = self.consumers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def written_by(self, name: str, *ops: str) -> Node | None:
        """The node that writes a value, where it is one of these standard operators and this sweep has not touched it."""
        node = self.producer.get(name)
        return node if node is not None and node.op in ops and not node.domain and node.name not in self.touched else None

    def is_free(self, *nodes: Node) -> bool:
        """Whether this sweep has touched none of the nodes."""
        return all(n.name not in self.touched for n in nodes)

    # ---- changes
    def fresh(self, base: str) -> str:
        """A name that is not in use."""
        name, k = base, 2
        while name in self._names:
            name, k = f"{base}_{k}", k + 1
        self._names.add(name)
        return name

    def add_constant(self, base: str, array: Any) -> str:
        """A new constant (an object array may hold named dims: shapes)."""
        array, name = np.asarray(array), self.fresh(base)
        dtype = BY_NUMPY["int64" if array.dtype == object else array.dtype.name]
        self._constants[name] = array
        self._values[name] = Value(name, dtype, tuple(affine(d) for d in array.shape))
        return name

    def add_value(self, base: str, dtype: DType, shape: Shape) -> str:
        """A new value, to be written by a new node."""
        name = self.fresh(base)
        self._values[name] = Value(name, dtype, shape)
        return name

    def replace(self, node: Node, *new: Node) -> None:
        """Put nodes in the place of one (none: its outputs are constants or unused)."""
        self.touched.add(node.name)
        self._nodes[node.name] = new

    def drop(self, node: Node) -> None:
        """Forget a node whose output nothing reads any more."""
        self.replace(node)

    def make_constant(self, node: Node, arrays: Sequence[Array]) -> None:
        """Let a node's outputs be constants; one that the caller gets is copied from a constant."""
        copies = []
        for name, array in zip(node.outputs, arrays):
            if not name:
                continue
            if name in self._outputs:
                hidden = self.add_constant(f"{name}/constant", array)
                copies.append(Node(self.fresh(f"{name}/copy"), "Identity", (hidden,), (name,), {}, "", node.origin))
            else:
                self._constants[name] = array
        self.replace(node, *copies)

    def bypass(self, node: Node, source: str) -> bool:
        """Let the readers of a node's first output read `source` instead, and drop the node. False where that is not possible."""
        target = node.outputs[0]
        if target in self._outputs:
            writer = self.producer.get(source)
            if writer is None or source in self._outputs or not self.is_free(writer) or source in self._alias:
                return False
            self._alias[source] = target
            self._values[target] = replace(self.value(source), name=target)
            self.touched.add(writer.name)
        else:
            self._alias[target] = source
        self.replace(node)
        return True

    def done(self) -> Graph:
        """The graph after all changes; the same object where there were none."""
        if not self.touched and not self._constants:
            return self.graph
        nodes = []
        for n in self.graph.nodes:
            for m in self._nodes.get(n.name, (n,)):
                inputs, outputs = tuple(map(self._resolved, m.inputs)), tuple(map(self._resolved, m.outputs))
                nodes.append(m if (inputs, outputs) == (m.inputs, m.outputs) else replace(m, inputs=inputs, outputs=outputs))
        written = {o for n in nodes for o in n.outputs if o}
        constants = {**self.graph.constants, **self._constants}
        kept = written | set(constants) | set(self.graph.inputs)
        values = {k: v for k, v in {**self.graph.values, **self._values}.items() if k in kept}
        return replace(self.graph, nodes=tuple(nodes), constants=constants, values=values)

    def _resolved(self, name: str) -> str:
        while name in self._alias:
            name = self._alias[name]
        return name


def merged(first: Node, second: Node) -> tuple[str, ...]:
    """The origin of a node that stands for two."""
    return tuple(dict.fromkeys([*first.origin, *second.origin]))
