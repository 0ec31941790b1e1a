"""What an operator means: shape rule, loop nests and NumPy reference, side by side, one `Op` each.

Takes `Node`s with `Value`s; gives result types and `Nest`s (statements with their loops, before isl). Everything downstream
(fusion, schedules, code) looks at the nests, never at the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InternalError
from ..ir.affine import Affine
from ..ir.dtype import DType
from ..ir.expr import Access, Expr
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor

Array = np.ndarray[Any, Any]
Known = Mapping[str, Array]
"""Values known at compile time, by tensor name. Integer shape vectors may be object arrays that hold `Affine`s of named dims."""


@dataclass(frozen=True)
class Nest:
    """One statement in its loops: for each iterator 0 <= it < extent, where all of `where` are >= 0: write (reduction)= expr."""

    iters: tuple[tuple[str, Affine], ...]
    write: Access
    expr: Expr
    reduction: str | None = None
    where: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class Definition:
    """The loop nests of one node, in order, and the local tensors that they use (named after the node)."""

    nests: tuple[Nest, ...]
    locals: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Op:
    """An operator.

    infer(node, ins, known) gives (dtype, shape) of each output; ins holds None for absent inputs; shape None where data decides it.
    define(node, ins, outs, known) gives the nests; accesses use the node's tensor names and logical indices.
    reference(node, arrays) computes it with NumPy (compile-time folding and the oracle of tests).
    `consts`: positions of inputs that must be known at compile time for `infer`/`define` (shapes, axes, pads).
    `view`: a pure renaming of a dense row-major buffer (Reshape, Squeeze, …): costs nothing.
    """

    name: str
    infer: Callable[[Node, Sequence[Value | None], Known], Sequence[tuple[DType, Shape | None]]]
    define: Callable[[Node, Sequence[Value | None], Sequence[Value], Known], Definition] | None
    reference: Callable[[Node, Sequence[Array | None]], Sequence[Array]]
    domain: str = ""
    consts: tuple[int, ...] = ()
    view: bool = False


_REGISTRY: dict[tuple[str, str], Op] = {}


def register(op: Op) -> Op:
    """Add an operator; a second registration of one name is a defect, except for users' own domains."""
    key = (op.domain, op.name)
    if key in _REGISTRY and op.domain in ("", "ai.onnx"):
        raise InternalError(f"operator {op.name} is registered twice")
    _REGISTRY[key] = op
    return op


def lookup(name: str, domain: str = "") -> Op | None:
    """The operator, or None where it is not known."""
    return _REGISTRY.get(("" if domain == "ai.onnx" else domain, name))


def names(domain: str = "") -> tuple[str, ...]:
    """All registered names of a domain, sorted."""
    return tuple(sorted(n for d, n in _REGISTRY if d == domain))
