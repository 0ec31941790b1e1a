"""Control flow that is decided before the model runs: an `If` with a condition known now becomes its branch.

Takes a skeleton; gives one in which such nodes are replaced, in place, by the nodes of the branch taken. The condition may be a
constant, or be computed from constants and from shapes that are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from .skeleton import infer_types, set_nodes, subgraphs
from .tensors import Array

_MOST_NODES = 200  # of the cone that computes a condition


def resolve_branches(model: ModelProto) -> bool:
    """Replace, in place, each `If` whose condition is known by the branch it takes. Whether anything changed."""
    if not any(_is_if(n) for n in model.graph.node):
        return False
    types = infer_types(model, strict=False)
    known = _Known(model, types)
    nodes: list[NodeProto] = []
    changed = False
    for n in model.graph.node:
        condition = known.value(n.input[0]) if _is_if(n) else None
        if condition is None or condition.size != 1:
            nodes.append(n)
            continue
        wanted = "then_branch" if bool(condition.reshape(())) else "else_branch"
        branch = next(a.g for a in n.attribute if a.name == wanted)
        nodes.extend(_inline_branch(model, n, branch))
        changed = True
    if changed:
        set_nodes(model, nodes)
    return changed


def _is_if(n: NodeProto) -> bool:
    return n.op_type == "If" and n.domain in ("", "ai.onnx")


class _Known:
    """Values that constants and fixed shapes decide, evaluated on demand with onnx's reference."""

    def __init__(self, model: ModelProto, types: Mapping[str, onnx.TypeProto]) -> None:
        self.opsets = list(model.opset_import)
        self.types = types
        self.writer = {o: n for n in model.graph.node for o in n.output if o}
        self.leaves: dict[str, Array | None] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def value(self, name: str) -> Array | None:
        if name in self.leaves:
            return self.leaves[name]
        cone: list[NodeProto] = []
        found = self._collect(name, cone, set())
        self.leaves[name] = self._run(name, cone) if found else None
        return self.leaves[name]

    def _collect(self, name: str, cone: list[NodeProto], seen: set[str]) -> bool:
        """Put the nodes that compute `name` into `cone`, in order; False where data of the inputs is needed."""
        if name in self.leaves:
            return self.leaves[name] is not None
        node = self.writer.get(name)
        if node is None or _is_if(node) or len(cone) > _MOST_NODES:
            return False
        if id(node) in map(id, cone) or name in seen:
            return True
        seen.add(name)
        if node.op_type in ("Shape", "Size"):
            shape = self._fixed_shape(node.input[0])
            if shape is None:
                return False
            self.leaves.setdefault(node.input[0] + "/shape", np.asarray(shape, np.int64))
            start, end = _attr(node, "start", 0), _attr(node, "end", len(shape))
            part = np.asarray(shape[start:end], np.int64)
            self.leaves[name] = part if node.op_type == "Shape" else np.asarray(np.prod(part, dtype=np.int64))
            return True
        if next(subgraphs(node), None) is not None or node.op_type.startswith("Random"):
            return False
        if not all(self._collect(i, cone, seen) for i in node.input if i):
            return False
        cone.append(node)
        return True

    def _fixed_shape(self, name: str) -> list[int] | None:
        kind = self.types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else None

    def _run(self, name: str, cone: list[NodeProto]) -> Array | None:
        wanted = {i for n in cone for i in n.input if i}
        weights = [numpy_helper.from_array(v, k) for k, v in self.leaves.items() if v is not None and k in wanted]
        if name in self.leaves:
            return self.leaves[name]
        output = onnx.helper.make_empty_tensor_value_info(name)
        graph = onnx.helper.make_graph(cone, "condition", [], [output], weights)
        model = onnx.helper.make_model(graph, opset_imports=self.opsets)
        try:
            return np.asarray(cast("list[Array]", ReferenceEvaluator(model).run(None, {}))[0])
        except Exception:  # a condition that the reference cannot compute is simply not known
            return None


def _attr(node: NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _inline_branch(model: ModelProto, node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    """The nodes of a branch with their values renamed, then one Identity an output."""
    prefix = f"{node.name}/"
    own = {t.name for t in branch.initializer} | {s.values.name for s in branch.sparse_initializer}
    own |= {o for n in branch.node for o in n.output if o}
    names = {o: prefix + o for o in own}
    out: list[NodeProto] = []
    for t in branch.initializer:
        out.append(_constant(names[t.name], t))
    for s in branch.sparse_initializer:
        out.append(onnx.helper.make_node("Constant", [], [names[s.values.name]], sparse_value=s))
    for n in branch.node:
        out.append(_renamed(n, names, prefix))
    for source, target in zip(branch.output, node.output):
        if target:
            out.append(onnx.helper.make_node("Identity", [names.get(source.name, source.name)], [target], name=prefix + target))
    return out


def _constant(name: str, tensor: TensorProto) -> NodeProto:
    return onnx.helper.make_node("Constant", [], [name], name=name, value=tensor)


def _renamed(node: NodeProto, names: Mapping[str, str], prefix: str) -> NodeProto:
    out = NodeProto()
    out.CopyFrom(node)
    out.name = prefix + (node.name or node.op_type)
    del out.input[:], out.output[:]
    out.input.extend(names.get(i, i) for i in node.input)
    out.output.extend(names.get(o, o) for o in node.output)
    for a in out.attribute:
        graphs = [a.g] if a.type == AttributeProto.GRAPH else list(a.graphs)
        for g in graphs:
            _rename_captured(g, names)
    return out


def _rename_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename what a nested subgraph captures; its own names hide the outer ones."""
    hidden = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    outer = {k: v for k, v in names.items() if k not in hidden}
    for n in graph.node:
        for i, name in enumerate(n.input):
            n.input[i] = outer.get(name, name)
        for a in n.attribute:
            for g in [a.g] if a.type == AttributeProto.GRAPH else list(a.graphs):
                _rename_captured(g, outer)
    for v in graph.output:
        v.name = outer.get(v.name, v.name)
