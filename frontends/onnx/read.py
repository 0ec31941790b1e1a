"""Reading a model: ONNX in, a normalised `Graph` out.

`read_onnx` runs, in order: load, skeleton, inputs and dims, branches and function bodies, unsupported operators, types, nodes in
one form, constants. Every output of the graph is written by a node of its own: one that is an input, a constant or listed before
becomes a copy, and `Graph.ports` keeps what callers call it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx import AttributeProto, ModelProto

from polyopt.errors import ArgumentError, ModelError
from polyopt.ir.affine import affine
from polyopt.ir.graph import Graph, Node, Value

from .builder import Builder
from .dims import DimNames, check_dim_values
from .expand import expand, is_known, opset_versions
from .load import Loaded, Source, load_model
from .normalize import default_attrs, normalize
from .skeleton import build_skeleton, check_input_types, check_nodes, infer_types
from .tensors import Array, array_dtype, attribute_value, dtype_of, elem_name, sparse_array, tensor_array


def read_onnx(source: Source, dims: Mapping[str, int] | None = None, values: Mapping[str, Array] | None = None) -> Graph:
    """Read an ONNX model.

    source: a path, the bytes of a file, or a ModelProto. dims: values for symbolic dims, by the model's name or by ours.
    values: inputs that are fixed to constants (a shape or a condition that the model takes as an input).
    Raises ModelError for a model that is broken, ill-typed or unsupported, UserError for a dim that it does not have.
    """
    check_dim_values(dims or {})
    loaded = _with_values(load_model(source), values or {})
    model = build_skeleton(loaded.model)
    stored = _stored_names(loaded.model)
    check_input_types(model, stored)
    typed, inputs = _inputs(model, stored, dims or {})
    expand(model)
    _refuse_unsupported(model, loaded)
    check_nodes(model)
    builder = _builder(model, loaded)
    nodes = _nodes(model, loaded, builder)
    constants = builder.constants
    ports = tuple(v.name for v in model.graph.output)
    nodes, outputs = _outputs_by_nodes(nodes, ports, set(inputs), builder)
    for name, array in constants.items():
        typed[name] = Value(name, array_dtype(array, f"constant {name!r}"), tuple(affine(d) for d in array.shape))
    for n in nodes:
        for o in n.outputs:
            if o:
                typed[o] = Value(o, None, None)
    for o, v in zip(outputs, model.graph.output):
        if v.type.tensor_type.elem_type:
            typed[o] = Value(o, dtype_of(v.type.tensor_type.elem_type, f"output {v.name!r}"), None)
    _warn_of_shapes(loaded.model, builder)
    names = _apart(ports)
    return Graph(loaded.name, inputs, outputs, typed, constants, tuple(nodes), loaded.opset, () if names == outputs else names)


def _with_values(loaded: Loaded, values: Mapping[str, Array]) -> Loaded:
    """The model with some inputs fixed to constants."""
    if not values:
        return loaded
    inputs = {v.name: v for v in loaded.model.graph.input}
    model = ModelProto()
    model.CopyFrom(loaded.model)
    for name, array in values.items():
        if name not in inputs:
            raise ArgumentError(f"{name!r} is not an input of the model (inputs: {', '.join(inputs)})")
        tensor = onnx.numpy_helper.from_array(array, name)
        wanted = inputs[name].type.tensor_type.elem_type
        if tensor.data_type != wanted:
            raise ArgumentError(f"input {name!r} is {elem_name(wanted)}, the given value is {elem_name(tensor.data_type)}")
        model.graph.initializer.append(tensor)
    return replace(loaded, model=model)


def _stored_names(model: ModelProto) -> set[str]:
    names = [t.name for t in model.graph.initializer] + [s.values.name for s in model.graph.sparse_initializer]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) != len(names) else []
    if twice:
        raise ModelError(f"the graph has two constants named {twice[0]!r}")
    return set(names)


def _inputs(model: ModelProto, stored: set[str], dims: Mapping[str, int]) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The graph's inputs with affine shapes."""
    known = DimNames(dims)
    values = {}
    for v in model.graph.input:
        if v.name not in stored:
            values[v.name] = Value(v.name, dtype_of(v.type.tensor_type.elem_type, f"input {v.name!r}"), known.shape(v))
    known.check()
    return values, tuple(values)


def _refuse_unsupported(model: ModelProto, loaded: Loaded) -> None:
    """One ModelError that lists every operator that is not supported, with its nodes and what to do."""
    uses: dict[str, list[str]] = {}
    control = False
    opset = opset_versions(model).get("", loaded.opset)
    for n in model.graph.node:
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in n.attribute):
            control = True
            uses.setdefault(f"{n.op_type} (control flow)", []).append(n.name)
        elif not is_known(n, opset):
            uses.setdefault(_full_name(n, opset), []).append(n.name)
    if not uses:
        return
    listed = "; ".join(f"{op}: {_list(names)}" for op, names in sorted(uses.items()))
    advice = ["define an operator with po.register_op(domain, name, scop)", "or export the model without it"]
    if control:
        advice.insert(0, "control flow runs only where its condition is known when compiling")
    raise ModelError(f"{loaded.label} uses operators that are not supported: {listed}. What to do: {', '.join(advice)}")


def _full_name(n: onnx.NodeProto, opset: int) -> str:
    domain = "" if n.domain == "ai.onnx" else n.domain
    if domain:
        return f"{domain}::{n.op_type}"
    if not onnx.defs.has(n.op_type):
        return f"{n.op_type} (no operator of ONNX)"
    if not onnx.defs.has(n.op_type, opset, ""):
        first = min(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == n.op_type and not s.domain)
        return f"{n.op_type} (not in opset {opset}; it exists from opset {first} on)"
    return f"{n.op_type} (opset {opset})"


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:5])
    return f"nodes {shown}" + (f" and {len(names) - 5} more" if len(names) > 5 else "") if len(names) > 1 else f"node {shown}"


def _builder(model: ModelProto, loaded: Loaded) -> Builder:
    """Read all constants, and gather what the rules may ask."""
    constants: dict[str, Array] = {}
    for t in loaded.model.graph.initializer:
        constants[t.name] = tensor_array(t, loaded.folder, f"constant {t.name!r}")
    for s in loaded.model.graph.sparse_initializer:
        constants[s.values.name] = sparse_array(s, loaded.folder, f"constant {s.values.name!r}")
    used = {i for n in model.graph.node for i in n.input if i} | {v.name for v in model.graph.output}
    taken = used | {v.name for v in model.graph.input} | set(constants) | {o for n in model.graph.node for o in n.output}
    taken |= {n.name for n in model.graph.node}
    return Builder(constants, infer_types(model, strict=True), taken, used, opset_versions(model).get("", loaded.opset))


def _nodes(model: ModelProto, loaded: Loaded, builder: Builder) -> list[Node]:
    versions, out = opset_versions(model), []
    for n in model.graph.node:
        domain = "" if n.domain == "ai.onnx" else n.domain
        where = f"node {n.name!r} ({n.op_type})"
        attrs = dict(default_attrs(n.op_type, domain, versions.get(domain, 1)))
        attrs.update({a.name: attribute_value(a, loaded.folder, where) for a in n.attribute})
        node = Node(n.name, n.op_type, tuple(n.input), tuple(n.output), attrs, domain, (n.name,))
        out += normalize(node, builder)
    return out


def _outputs_by_nodes(nodes: list[Node], outputs: tuple[str, ...], inputs: set[str], builder: Builder) -> tuple[list[Node], tuple[str, ...]]:
    """Let a node write each output: a constant gets another name and a copy; an input, or what was listed before, a copy of another name."""
    constants, out = builder.constants, list[str]()
    for o in outputs:
        source = o
        if o in constants:
            source = builder.fresh(f"{o}/constant")
            constants[source] = constants.pop(o)
            nodes = [replace(n, inputs=tuple(source if i == o else i for i in n.inputs)) for n in nodes]
        value = builder.fresh(f"{o}/copy") if o in inputs or o in out else o
        if value != source:
            nodes = [*nodes, Node(builder.fresh(f"{value}/copy"), "Identity", (source,), (value,), {}, "", ())]
        out.append(value)
    return nodes, tuple(out)


def _apart(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, where one that occurred before gets a number."""
    taken, out = set(names), list[str]()
    for name in names:
        new, k = name, 2
        while new in out or (new != name and new in taken):
            new, k = f"{name}_{k}", k + 1
        out.append(new)
    return tuple(out)


def _warn_of_shapes(model: ModelProto, builder: Builder) -> None:
    """A warning for each output whose declared shape is not the one that its nodes give; the nodes decide."""
    for v in model.graph.output:
        found = builder.types.get(v.name)
        if found is None or not v.type.tensor_type.HasField("shape") or not found.tensor_type.HasField("shape"):
            continue
        declared, given = (
            [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in t.tensor_type.shape.dim] for t in (v.type, found)
        )
        if len(declared) != len(given) or any(a is not None and b is not None and a != b for a, b in zip(declared, given)):
            shown = (f"[{', '.join('?' if d is None else str(d) for d in dims)}]" for dims in (declared, given))
            warnings.warn("output {!r} is declared with shape {}, but has shape {}: the declaration is ignored".format(v.name, *shown), stacklevel=2)
