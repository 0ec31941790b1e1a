"""Reading a model: ONNX in, a normalised `Graph` out.

`read_onnx` runs, in order: load, skeleton, inputs and dims, branches and function bodies, unsupported operators, types, nodes in
one form, constants. Every output of the graph is written by a node, so no output is an input or a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx
import onnx.inliner
from onnx import AttributeProto, ModelProto

from polyopt.errors import ModelError
from polyopt.ir.affine import affine
from polyopt.ir.graph import Graph, Node, Value
from polyopt.ops.registry import lookup

from .builder import Builder
from .control import resolve_branches
from .dims import DimNames, check_dim_values
from .load import Loaded, Source, load_model
from .normalize import BEFORE, RENAMED, VANISHING, default_attrs, normalize
from .skeleton import build_skeleton, check_input_types, check_nodes, find_schema, infer_types, set_nodes
from .tensors import Array, array_dtype, attribute_value, dtype_of, sparse_array, tensor_array

_MOST_ROUNDS = 20  # of inlining: bodies that use other composite operators


def read_onnx(source: Source, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an ONNX model.

    source: a path, the bytes of a file, or a ModelProto. dims: values for symbolic dims, by the model's name or by ours.
    Raises ModelError for a model that is broken, ill-typed or unsupported, UserError for a dim that it does not have.
    """
    check_dim_values(dims or {})
    loaded = load_model(source)
    model = build_skeleton(loaded.model)
    stored = _stored_names(loaded.model)
    check_input_types(model, stored)
    values, inputs = _inputs(model, stored, dims or {})
    _expand(model)
    _refuse_unsupported(model, loaded)
    check_nodes(model)
    builder = _builder(model, loaded)
    nodes = _nodes(model, loaded, builder)
    constants = builder.constants
    outputs = tuple(v.name for v in model.graph.output)
    nodes, constants = _outputs_by_nodes(nodes, outputs, set(inputs) | set(constants), builder)
    for name, array in constants.items():
        values[name] = Value(name, array_dtype(array, f"constant {name!r}"), tuple(affine(d) for d in array.shape))
    for n in nodes:
        for o in n.outputs:
            if o:
                values[o] = Value(o, None, None)
    for v in model.graph.output:
        if v.type.tensor_type.elem_type:
            values[v.name] = Value(v.name, dtype_of(v.type.tensor_type.elem_type, f"output {v.name!r}"), None)
    return Graph(loaded.name, inputs, outputs, values, constants, tuple(nodes), loaded.opset)


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


def _is_known(node: onnx.NodeProto, opset: int) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain:
        return lookup(node.op_type, domain) is not None
    if opset < BEFORE.get(node.op_type, 0) or not onnx.defs.has(node.op_type, opset, ""):
        return False
    return node.op_type in VANISHING or lookup(RENAMED.get(node.op_type, node.op_type)) is not None


def _versions(model: ModelProto) -> dict[str, int]:
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}


def _expand(model: ModelProto) -> None:
    """Decide branches and inline the function bodies of operators that the registry lacks, until nothing changes."""
    for _ in range(_MOST_ROUNDS):
        changed = resolve_branches(model)
        versions = _versions(model)
        wanted = set()
        for n in model.graph.node:
            schema = None if _is_known(n, versions.get("", 0)) else find_schema(n.op_type, n.domain, versions)
            if schema is not None and (schema.has_function or schema.has_context_dependent_function):
                wanted.add((n.domain, n.op_type))
        if wanted:
            changed |= _inline_bodies(model, sorted(wanted))
        if not changed:
            return


def _inline_bodies(model: ModelProto, wanted: list[tuple[str, str]]) -> bool:
    """Replace the nodes by their operators' bodies; False where onnx has none for these types."""
    before = [(n.op_type, n.name) for n in model.graph.node]
    typed = ModelProto()
    typed.CopyFrom(model)
    known = infer_types(model, strict=False)
    del typed.graph.value_info[:]
    typed.graph.value_info.extend(onnx.helper.make_value_info(name, kind) for name, kind in known.items())
    try:
        done = onnx.inliner.inline_selected_functions(typed, wanted, exclude=False, inline_schema_functions=True)
    except (RuntimeError, onnx.shape_inference.InferenceError):  # onnx cannot build the body: the operator stays and is reported as unsupported
        return False
    if [(n.op_type, n.name) for n in done.graph.node] == before:
        return False
    if any(a.type == AttributeProto.GRAPH for n in done.graph.node for a in n.attribute if n.op_type in ("Loop", "Scan")):
        return False
    del model.opset_import[:]
    model.opset_import.extend(done.opset_import)
    set_nodes(model, list(done.graph.node))
    return True


def _refuse_unsupported(model: ModelProto, loaded: Loaded) -> None:
    """One ModelError that lists every operator that is not supported, with its nodes and what to do."""
    uses: dict[str, list[str]] = {}
    control = False
    opset = _versions(model).get("", loaded.opset)
    for n in model.graph.node:
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in n.attribute):
            control = True
            uses.setdefault(f"{n.op_type} (control flow)", []).append(n.name)
        elif not _is_known(n, opset):
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
    return Builder(constants, infer_types(model, strict=True), taken, used, _versions(model).get("", loaded.opset))


def _nodes(model: ModelProto, loaded: Loaded, builder: Builder) -> list[Node]:
    versions, out = _versions(model), []
    for n in model.graph.node:
        domain = "" if n.domain == "ai.onnx" else n.domain
        where = f"node {n.name!r} ({n.op_type})"
        attrs = dict(default_attrs(n.op_type, domain, versions.get(domain, 1)))
        attrs.update({a.name: attribute_value(a, loaded.folder, where) for a in n.attribute})
        node = Node(n.name, n.op_type, tuple(n.input), tuple(n.output), attrs, domain, (n.name,))
        out += normalize(node, builder)
    return out


def _outputs_by_nodes(nodes: list[Node], outputs: tuple[str, ...], given: set[str], builder: Builder) -> tuple[list[Node], dict[str, Array]]:
    """Let a node write each output: a constant that is an output gets another name and an Identity."""
    constants = dict(builder.constants)
    for o in outputs:
        if o not in given:
            continue
        if o not in constants:
            raise ModelError(f"output {o!r} is an input of the graph: name them apart (an Identity node copies it)")
        hidden = builder.fresh(f"{o}/constant")
        constants[hidden] = constants.pop(o)
        nodes = [replace(n, inputs=tuple(hidden if i == o else i for i in n.inputs)) for n in nodes]
        nodes.append(Node(builder.fresh(f"{o}/copy"), "Identity", (hidden,), (o,), {}, "", ()))
    return nodes, constants
