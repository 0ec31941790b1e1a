"""Composite operators that the registry lacks, replaced by the bodies that the standard gives them.

Takes a skeleton; changes it in place: branches that are decided are taken, function bodies inlined, until nothing changes. onnx's
inliner renames the values. Where it cannot type a node with absent inputs, the body becomes a local function first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import onnx
import onnx.inliner
from onnx import FunctionProto, ModelProto, NodeProto, TypeProto

from polyopt.ops.registry import lookup

from .control import resolve_branches
from .normalize import BEFORE, RENAMED, VANISHING
from .skeleton import find_schema, infer_types, set_nodes

_MOST_ROUNDS = 20  # of inlining: bodies that use other composite operators
_DOMAIN = "polyopt.body"
_ONNX_FAILURES = (RuntimeError, ValueError, onnx.shape_inference.InferenceError)


class _WithBody(Protocol):
    """What onnx's stubs leave out of OpSchema."""

    has_function: bool
    has_context_dependent_function: bool
    function_body: FunctionProto

    def get_context_dependent_function(self, node: bytes, types: Sequence[bytes]) -> bytes: ...


def _with_body(schema: onnx.defs.OpSchema) -> _WithBody:
    return cast(_WithBody, schema)


def opset_versions(model: ModelProto) -> dict[str, int]:
    """The version of each domain that the model imports."""
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}


def is_known(node: NodeProto, opset: int) -> bool:
    """Whether the registry has the operator that this node becomes."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain:
        return lookup(node.op_type, domain) is not None
    if opset < BEFORE.get(node.op_type, 0) or not onnx.defs.has(node.op_type, opset, ""):
        return False
    return node.op_type in VANISHING or lookup(RENAMED.get(node.op_type, node.op_type)) is not None


def expand(model: ModelProto) -> None:
    """Decide branches and inline the bodies of operators that the registry lacks, until nothing changes."""
    for _ in range(_MOST_ROUNDS):
        changed = resolve_branches(model)
        versions = opset_versions(model)
        wanted = []
        for n in model.graph.node:
            schema = find_schema(n.op_type, n.domain, versions)
            if schema is None or not (_with_body(schema).has_function or _with_body(schema).has_context_dependent_function):
                continue
            _fill_defaults(n, schema)  # onnx forgets what a body takes from an absent attribute, in inference too
            if not is_known(n, versions.get("", 0)):
                wanted.append((n.domain, n.op_type))
        if wanted:
            changed |= _inline(model, sorted(set(wanted)))
        if not changed:
            return


def _fill_defaults(node: NodeProto, schema: onnx.defs.OpSchema) -> None:
    present = {a.name for a in node.attribute}
    for name, a in schema.attributes.items():
        if a.default_value.name and name not in present:
            node.attribute.append(a.default_value)


def _inline(model: ModelProto, wanted: Sequence[tuple[str, str]]) -> bool:
    """Replace the nodes by their operators' bodies; False where onnx has none for these types, or one that loops."""
    types = infer_types(model, strict=False)
    typed = ModelProto()
    typed.CopyFrom(model)
    del typed.graph.value_info[:]
    typed.graph.value_info.extend(onnx.helper.make_value_info(name, kind) for name, kind in types.items())
    try:
        done = onnx.inliner.inline_selected_functions(typed, list(wanted), exclude=False, inline_schema_functions=True)
    except _ONNX_FAILURES:
        try:
            done = onnx.inliner.inline_local_functions(_with_local_functions(typed, wanted, types))
        except _ONNX_FAILURES:
            return False
    before, after = list(model.graph.node), list(done.graph.node)
    if [(n.op_type, n.name) for n in before] == [(n.op_type, n.name) for n in after] or _loops(after) > _loops(before):
        return False
    del model.opset_import[:]
    model.opset_import.extend(o for o in done.opset_import if o.domain != _DOMAIN)
    set_nodes(model, after)
    return True


def _loops(nodes: Sequence[NodeProto]) -> int:
    return sum(n.op_type in ("Loop", "Scan") for n in nodes)


def _with_local_functions(model: ModelProto, wanted: Sequence[tuple[str, str]], types: Mapping[str, TypeProto]) -> ModelProto:
    """The model with each wanted node calling a local function that is its body."""
    versions = opset_versions(model)
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    for i, n in enumerate(model.graph.node):
        if (n.domain, n.op_type) not in wanted:
            continue
        schema = find_schema(n.op_type, n.domain, versions)
        body = _body(n, schema, types) if schema is not None else None
        if body is None:
            continue
        body.domain, body.name = _DOMAIN, f"body_{i}"
        n.domain, n.op_type = body.domain, body.name
        model.functions.append(body)
    return model


def _body(node: NodeProto, schema: onnx.defs.OpSchema, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    """The body of one node for its input types."""
    defined = _with_body(schema)
    if defined.has_function:
        found = defined.function_body
    else:
        given = [types.get(i, TypeProto()).SerializeToString() for i in node.input]
        found = FunctionProto.FromString(defined.get_context_dependent_function(node.SerializeToString(), given))
    if not found.node:
        return None
    body = FunctionProto()
    body.CopyFrom(found)
    del body.output[len(node.output) :]
    return body
