"""A model without its weights: the protobuf that onnx's own inference and inliner work on.

Takes a loaded model; gives a copy in which each big initializer is a graph input of the same type, nodes are unique, named and in
topological order. Cycles, values written twice and values that nothing writes are a `ModelError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from polyopt.errors import ModelError

from .tensors import dtype_of

SMALL = 1024  # elements of an initializer that is kept in the skeleton (shapes, axes, scalars)


def build_skeleton(model: ModelProto) -> ModelProto:
    """The model's nodes, inputs and outputs with small constants only; declared inner and output shapes are not trusted."""
    out = ModelProto(ir_version=max(model.ir_version, 4))
    out.opset_import.extend(model.opset_import)
    graph = out.graph
    graph.name = model.graph.name or "model"
    constants = {t.name for t in model.graph.initializer} | {s.values.name for s in model.graph.sparse_initializer}
    graph.input.extend(v for v in model.graph.input if v.name not in constants)
    for t in model.graph.initializer:
        if math.prod(t.dims) <= SMALL and t.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(t)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
    for s in model.graph.sparse_initializer:
        graph.input.append(onnx.helper.make_tensor_value_info(s.values.name, s.values.data_type, list(s.dims)))
    graph.node.extend(model.graph.node)
    for v in model.graph.output:
        o = graph.output.add()
        o.name = v.name
        if v.type.HasField("tensor_type") and v.type.tensor_type.elem_type:
            o.type.tensor_type.elem_type = v.type.tensor_type.elem_type
    set_nodes(out, list(graph.node))
    return out


def set_nodes(model: ModelProto, nodes: Sequence[NodeProto]) -> None:
    """Put nodes into the graph: named, sorted, each value written once and read only where something writes it."""
    graph = model.graph
    named = name_nodes(nodes)
    given = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    check_written_once(named, given, [v.name for v in graph.input])
    ordered = sort_nodes(named, given)
    written = given | {o for n in named for o in n.output if o}
    for v in graph.output:
        if v.name not in written:
            raise ModelError(f"output {v.name!r} is written by no node")
    del graph.node[:]
    graph.node.extend(ordered)


def name_nodes(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Copies with unique, non-empty names: `<op>_<index>` where a name is absent, a suffix where it occurs twice."""
    taken = {n.name for n in nodes if n.name}
    seen: set[str] = set()
    out = []
    for i, n in enumerate(nodes):
        copy = NodeProto()
        copy.CopyFrom(n)
        if not copy.name or copy.name in seen:
            base = copy.name or f"{n.op_type.lower()}_{i}"
            name, k = base, 2
            while name in taken or name in seen:
                name, k = f"{base}_{k}", k + 1
            copy.name = name
        seen.add(copy.name)
        out.append(copy)
    return out


def check_written_once(nodes: Iterable[NodeProto], given: set[str], inputs: Sequence[str]) -> None:
    """ModelError where a name stands for two values."""
    twice = sorted({n for n in inputs if inputs.count(n) > 1})
    if twice:
        raise ModelError(f"the graph lists input {twice[0]!r} twice")
    writer: dict[str, str] = {}
    for n in nodes:
        for o in n.output:
            if o in given:
                raise ModelError(f"node {n.name!r} ({n.op_type}) writes {o!r}, which is also an input or a constant of the graph")
            if o and o in writer:
                raise ModelError(f"value {o!r} is written twice: by node {writer[o]!r} and by node {n.name!r} ({n.op_type})")
            if o:
                writer[o] = n.name


def reads(node: NodeProto) -> Iterator[str]:
    """The outer values that a node reads, those that its subgraphs capture included."""
    yield from (i for i in node.input if i)
    for g in subgraphs(node):
        yield from captured(g)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for a in node.attribute:
        if a.type == AttributeProto.GRAPH:
            yield a.g
        elif a.type == AttributeProto.GRAPHS:
            yield from a.graphs


def captured(graph: GraphProto) -> list[str]:
    """The names that a subgraph reads and does not define."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    own |= {o for n in graph.node for o in n.output}
    wanted = [r for n in graph.node for r in reads(n)] + [v.name for v in graph.output]
    return list(dict.fromkeys(r for r in wanted if r not in own))


def sort_nodes(nodes: Sequence[NodeProto], given: set[str]) -> list[NodeProto]:
    """Topological order, as near to the given one as possible; ModelError for a value without a writer, or a cycle."""
    writer = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    needs: list[list[int]] = []
    for n in nodes:
        mine = []
        for r in dict.fromkeys(reads(n)):
            if r in writer:
                mine.append(writer[r])
            elif r not in given:
                raise ModelError(f"node {n.name!r} ({n.op_type}) reads {r!r}, which nothing writes")
        needs.append(mine)
    order: list[int] = []
    state = [0] * len(nodes)  # 0 unseen, 1 on the stack, 2 done
    for root in range(len(nodes)):
        if state[root]:
            continue
        stack = [(root, iter(needs[root]))]
        state[root] = 1
        while stack:
            i, rest = stack[-1]
            j = next(rest, None)
            if j is None:
                state[i] = 2
                order.append(i)
                stack.pop()
            elif state[j] == 1:
                on_stack = [k for k, _ in stack]
                loop = [nodes[k].name for k in reversed(on_stack[on_stack.index(j) :])]
                raise ModelError(f"the nodes {' -> '.join([*loop, loop[0]])} form a cycle")
            elif state[j] == 0:
                state[j] = 1
                stack.append((j, iter(needs[j])))
    return [nodes[i] for i in order]


def infer_types(model: ModelProto, strict: bool) -> dict[str, onnx.TypeProto]:
    """The types that onnx's own inference finds. With `strict`, a ModelError names the first node that is ill-typed."""
    model = _with_hidden_ranges(model)
    try:
        done = onnx.shape_inference.infer_shapes(model, check_type=strict, strict_mode=strict, data_prop=True)
    except Exception as e:
        if strict:
            raise ModelError(_first_bad(model, e)) from None
        done = model
    graph = done.graph
    types = {v.name: v.type for v in [*graph.input, *graph.value_info, *graph.output] if v.type.WhichOneof("value")}
    for t in graph.initializer:
        types[t.name] = onnx.helper.make_tensor_type_proto(t.data_type, list(t.dims))
    return types


def _with_hidden_ranges(model: ModelProto) -> ModelProto:
    """The model with the length of each Range hidden from onnx's inference unless it is short: onnx lists every element of it."""
    if not any(_is_range(n) for n in _all_nodes(model.graph)):
        return model
    out = ModelProto()
    out.CopyFrom(model)
    short = {t.name for t in out.graph.initializer if _is_short(t)}
    short |= {n.output[0] for n in out.graph.node if n.op_type == "Constant" and any(a.name == "value" and _is_short(a.t) for a in n.attribute)}
    for graph in _all_graphs(out.graph):
        nodes = []
        for n in graph.node:
            if _is_range(n) and len(n.input) == 3 and not {n.input[0], n.input[1]} <= short:
                hidden = f"{n.output[0]}/hidden limit"  # the inference knows no value of an Abs
                nodes.append(onnx.helper.make_node("Abs", [n.input[1]], [hidden], name=n.name))
                n.input[1] = hidden
            nodes.append(n)
        if len(nodes) != len(graph.node):
            copies = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
            del graph.node[:]
            graph.node.extend(copies)
    return out


def _is_range(node: NodeProto) -> bool:
    return node.op_type == "Range" and node.domain in ("", "ai.onnx")


def _is_short(tensor: TensorProto) -> bool:
    """Whether a constant is one integer that may bound a Range whose elements are listed."""
    if math.prod(tensor.dims) != 1 or tensor.data_type not in (TensorProto.INT32, TensorProto.INT64):
        return False
    try:
        return abs(int(onnx.numpy_helper.to_array(tensor).reshape(-1)[0])) <= SMALL
    except (ValueError, TypeError, IndexError):
        return False


def _all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and those in the attributes of its nodes, at any depth."""
    yield graph
    for n in graph.node:
        for g in subgraphs(n):
            yield from _all_graphs(g)


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for g in _all_graphs(graph):
        yield from g.node


def _first_bad(model: ModelProto, error: Exception) -> str:
    """A message for the first node at which strict inference fails, found by bisection over prefixes of the nodes."""
    nodes, outputs = list(model.graph.node), list(model.graph.output)

    def fails(count: int) -> Exception | None:
        part = ModelProto()
        part.CopyFrom(model)
        del part.graph.node[:]
        part.graph.node.extend(nodes[:count])
        del part.graph.output[:]
        written = {o for n in nodes[:count] for o in n.output}
        part.graph.output.extend(o for o in outputs if o.name in written)
        try:
            onnx.shape_inference.infer_shapes(part, check_type=True, strict_mode=True, data_prop=True)
        except Exception as e:
            return e
        return None

    low, high = 0, len(nodes)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    bad = nodes[high - 1] if nodes else None
    text = " ".join(str(fails(high) or error).split())
    text = re.sub(r"\[\w+Error\]|Inference error\(s\):|\(op_type:[^()]*\):?", "", text)
    text = " ".join(text.split())
    return f"node {bad.name!r} ({bad.op_type}) is ill-typed: {text}" if bad else f"the model is ill-typed: {text}"


def check_nodes(model: ModelProto) -> None:
    """ModelError for a node whose inputs or attributes do not fit its operator's definition."""
    versions = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = versions
    for n in model.graph.node:
        schema = find_schema(n.op_type, n.domain, versions)
        if schema is None or schema.deprecated:
            continue
        try:
            onnx.checker.check_node(n, context)
        except Exception as e:
            line = (str(e).strip().splitlines() or [type(e).__name__])[0]
            raise ModelError(f"node {n.name!r} ({n.op_type}) is broken: {line}") from None


def find_schema(op: str, domain: str, versions: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """The definition of an operator at the model's opset, None where the standard has none."""
    domain = "" if domain == "ai.onnx" else domain
    if domain not in versions or not onnx.defs.has(op, domain):
        return None
    try:
        return onnx.defs.get_schema(op, versions[domain], domain)
    except onnx.defs.SchemaError:
        return None


def check_input_types(model: ModelProto, constants: set[str]) -> None:
    """ModelError for an input that is no tensor of a supported element type."""
    for v in model.graph.input:
        if v.name in constants:
            continue
        kind = v.type.WhichOneof("value") or "no type"
        if kind != "tensor_type":
            raise ModelError(f"input {v.name!r} is a {kind.removesuffix('_type')}: only tensors are supported")
        dtype_of(v.type.tensor_type.elem_type, f"input {v.name!r}")
