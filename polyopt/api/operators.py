"""The library's operators as schedules: `po.op.conv2d(x=po.f32[1, 64, 56, 56], w=po.f32[64, 64, 3, 3], pads=1)`.

Takes tensor types by place or by the operator's formal names, attributes by keyword (one number stands for all spatial dims); gives
a `Schedule` of the operator's nests, whose `reference` is its NumPy reference. A name is ONNX's, in any case, with or without
underscores; conv2d, max_pool1d and the like name the dims in vain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.defs

import polyopt.ops  # noqa: F401  (registers the operators)
from polyopt.frontends.python_loops import ScopFunction

from ..errors import ModelError, UserError
from ..ir.affine import Affine, affine
from ..ir.dtype import BY_NUMPY, TensorType
from ..ir.expr import Access
from ..ir.graph import Graph, Node, Value
from ..ir.scop import Scop
from ..ir.tensor import Tensor
from ..lower.scop import nests_scop
from ..ops.registry import Op, lookup, names, register
from ..ops.structure import accesses_of, define, map_accesses, op_of, params_of
from ..options import LARGEST_DIM
from .custom import custom_op
from .registered import REGISTERED
from .schedules import Schedule, with_dependences

Array = np.ndarray[Any, Any]


class Operators:
    """`po.op`: every registered operator as a function of tensor types."""

    def __getattr__(self, name: str) -> Callable[..., Schedule]:
        op = _find(name)
        if op is None:
            raise AttributeError(f"there is no operator {name!r}; dir(po.op) lists them")

        def build(*inputs: Any, **given: Any) -> Schedule:
            return operator_schedule(op, inputs, given)

        build.__name__ = name
        build.__doc__ = f"{op.name}: tensor types by place or name, attributes by keyword; gives its loops as a schedule."
        return build

    def __dir__(self) -> list[str]:
        return sorted(_snake(n) for n in names())


op = Operators()


def register_op(domain: str, name: str, nest: Scop | ScopFunction) -> None:
    """Define a custom operator for ONNX models by a loop nest: read tensors are its inputs, written ones its outputs, in order."""
    if not all(isinstance(x, str) for x in (domain, name)) or not name.isidentifier():
        raise UserError(f"register_op({domain!r}, {name!r}): give a domain and a name, such as 'my.domain' and 'MyOp'")
    if domain in ("", "ai.onnx"):
        raise UserError(f"register_op({domain!r}, {name!r}): ONNX's own domain cannot be extended; choose another domain")
    if not isinstance(nest, Scop | ScopFunction):
        raise UserError(f"register_op({domain!r}, {name!r}): give a @po.scop function or a Scop, not {type(nest).__name__}")
    register(custom_op(domain, name, nest))
    REGISTERED.add((domain, name))


def _find(name: str) -> Op | None:
    """The operator of a name in any spelling."""
    exact = lookup(name)
    if exact is not None:
        return exact
    plain = name.replace("_", "").lower()
    for wanted in (plain, re.sub(r"[123]d$", "", plain)):
        for n in names():
            if n.lower() == wanted:
                return lookup(n)
    return None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# ---- one node as a graph
def operator_schedule(op: Op, inputs: Sequence[Any], given: Mapping[str, Any]) -> Schedule:
    """The schedule of one node with these inputs and attributes."""
    formal = _formal_inputs(op)
    bound = _bind(op, formal, inputs, given)
    rank = next((len(v.shape) for v in bound.values() if isinstance(v, TensorType)), 0)
    attrs = {k: _attribute(op, k, v, rank) for k, v in given.items() if k.lower() not in bound}
    values: dict[str, Value] = {}
    constants: dict[str, Array] = {}
    for k, v in bound.items():
        if isinstance(v, TensorType):
            values[k] = Value(k, v.dtype, tuple(_dim(f"op.{_snake(op.name)}: {k}", d) for d in v.shape))
        else:
            a = _constant(f"op.{_snake(op.name)}: {k}", v)
            constants[k] = a
            values[k] = Value(k, BY_NUMPY[str(a.dtype)], tuple(affine(d) for d in a.shape))
    order = [n for n in formal if n in bound] if formal else list(bound)
    last = max((formal.index(n) for n in order), default=-1) if formal else len(order) - 1
    ins = tuple((n if n in bound else "") for n in (formal[: last + 1] if formal else order))
    node = Node(_snake(op.name), op.name, ins, _outputs(op, set(values)), attrs, op.domain)
    graph = _inferred(node, values, constants)
    return Schedule(_scop(graph, node), _reference(op, node, graph))


def _dim(where: str, d: Any) -> Affine:
    """A dim of a tensor type: a size, a name, or an expression of names."""
    fits = isinstance(d, Affine) or (isinstance(d, str) and d.isidentifier()) or (isinstance(d, int | np.integer) and not isinstance(d, bool))
    if not fits or (not isinstance(d, Affine | str) and not 1 <= d <= LARGEST_DIM):
        raise UserError(f"{where} has the dim {d!r}: give a whole number of at least 1, a name, or an expression of po.dims")
    return affine(d)


def _constant(where: str, v: Any) -> Array:
    """The value of an input that is known: numbers, lists of them, arrays."""
    try:
        a = np.asarray(v, np.int64 if isinstance(v, list | tuple | int) else None)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where} is {v!r}: give a tensor type such as po.f32[64, 64], or numbers") from None
    if str(a.dtype) not in BY_NUMPY:
        raise UserError(f"{where} holds {a.dtype}: give a tensor type such as po.f32[64, 64], or numbers")
    return a


def _formal_inputs(op: Op) -> list[str]:
    """The operator's input names, lower case (empty for one that ONNX does not describe, or that takes any number)."""
    try:
        schema = onnx.defs.get_schema(op.name, op.domain)
    except onnx.defs.SchemaError:
        return []
    if any(i.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for i in schema.inputs):
        return []
    return [i.name.lower() for i in schema.inputs]


def _outputs(op: Op, taken: set[str]) -> tuple[str, ...]:
    try:
        schema = onnx.defs.get_schema(op.name, op.domain)
        wanted = [o.name.lower() for o in schema.outputs if o.option == onnx.defs.OpSchema.FormalParameterOption.Single] or ["y"]
    except onnx.defs.SchemaError:
        wanted = ["y"]
    return tuple(w if w not in taken else f"{w}_out" for w in wanted)


def _bind(op: Op, formal: Sequence[str], inputs: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Input name -> tensor type or constant."""
    bound: dict[str, Any] = {}
    for k, v in enumerate(inputs):
        if formal and k >= len(formal):
            raise UserError(f"op.{_snake(op.name)} takes {len(formal)} inputs ({', '.join(formal)}), not {len(inputs)}")
        bound[formal[k] if formal else f"x{k}"] = v
    for name, v in given.items():
        key = name.lower()
        if isinstance(v, TensorType) or key in formal:
            if formal and key not in formal:
                raise UserError(f"op.{_snake(op.name)} has no input {name!r}; its inputs are {', '.join(formal)}")
            if key in bound:
                raise UserError(f"op.{_snake(op.name)}: input {name!r} is given twice")
            bound[key] = v
    if not bound:
        raise UserError(f"op.{_snake(op.name)} needs its inputs as tensor types, such as po.f32[64, 64]")
    return bound


def _attribute(op: Op, name: str, value: Any, rank: int) -> Any:
    """An attribute's value; one number stands for all spatial dims where a list is expected."""
    try:
        known = onnx.defs.get_schema(op.name, op.domain).attributes
    except onnx.defs.SchemaError:
        return value
    if name not in known:
        raise UserError(f"op.{_snake(op.name)} has no attribute {name!r}; its attributes are {', '.join(sorted(known)) or 'none'}")
    if known[name].type == onnx.defs.OpSchema.AttrType.INTS and isinstance(value, int):
        return [value] * ((rank - 2) * (2 if name == "pads" else 1))
    return value


def _inferred(node: Node, values: dict[str, Value], constants: Mapping[str, Array]) -> Graph:
    """A graph of one node with the types of its outputs."""
    op = op_of(node)
    try:
        types = op.infer(node, [values[i] if i else None for i in node.inputs], constants)
    except ModelError as e:
        raise UserError(f"op.{node.name}: {e}") from None
    except (TypeError, ValueError, IndexError, KeyError, ArithmeticError) as e:
        raise UserError(f"op.{node.name}: these inputs and attributes do not fit it ({' '.join(str(e).split())})") from None
    for o, (dtype, shape) in zip(node.outputs, types):
        values[o] = Value(o, dtype, shape)
    inputs = tuple(i for i in node.inputs if i and i not in constants)
    return Graph(node.name, inputs, node.outputs, values, constants, (node,))


def _scop(graph: Graph, node: Node) -> Scop:
    d = define(graph, node)
    if d is None or not d.nests:
        raise UserError(f"op.{node.name} has no affine form")
    short = {t.name: f"l{k}" for k, t in enumerate(d.locals)}
    used = {a.tensor for n in d.nests for a in accesses_of(n)}
    tensors = [_tensor(graph.values[i], "constant" if i in graph.constants else "input") for i in dict.fromkeys(node.inputs) if i in used]
    tensors += [_tensor(graph.values[o], "output") for o in node.outputs if o in used]
    tensors += [Tensor(short[t.name], t.dtype, t.shape) for t in d.locals]
    nests = tuple(map_accesses(n, lambda a: Access(short.get(a.tensor, a.tensor), a.indices)) for n in d.nests)
    return with_dependences(nests_scop(node.name, params_of(nests, tensors), tuple(tensors), nests))


def _tensor(v: Value, role: str) -> Tensor:
    assert v.dtype is not None and v.shape is not None
    return Tensor(v.name, v.dtype, v.shape, role)


def _reference(op: Op, node: Node, graph: Graph) -> Callable[..., Any]:
    def reference(*arrays: Array) -> Any:
        """The NumPy result for arrays of the inputs that are not constants, in order."""
        feeds = dict(zip(graph.inputs, arrays))
        out = op.reference(node, [graph.constants.get(i, feeds.get(i)) if i else None for i in node.inputs])
        return out[0] if len(out) == 1 else tuple(out)

    return reference
