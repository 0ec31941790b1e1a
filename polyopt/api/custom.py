"""A loop nest as an ONNX operator: its Scop gives shapes, nests and, through the interpreter of Python or of the nests, a reference.

Takes a `@po.scop` function or a Scop whose statements can run one after another; gives an `Op`. Read-only tensors are the inputs, written
ones the outputs, in the order of the signature; scalar arguments are attributes of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl
import numpy as np

from polyopt.frontends.python_loops import ScopFunction

from ..errors import ModelError, UserError
from ..ir.affine import Affine, affine
from ..ir.dtype import DType
from ..ir.expr import Access, Const, Expr, Load, Scalar, rewrite
from ..ir.graph import Node, Shape, Value
from ..ir.scop import Scop, Statement
from ..ir.tensor import Tensor
from ..isl_ext import PARAM, SET
from ..ops.registry import Definition, Known, Nest, Op
from ..ops.structure import map_accesses, substitute_all
from ..poly.convert import from_aff
from ..poly.legality import is_legal
from .schedules import schedule, with_dependences

Array = np.ndarray[Any, Any]


def custom_op(domain: str, name: str, nest: Scop | ScopFunction) -> Op:
    """The operator of a loop nest."""
    scop = with_dependences(nest.scop if isinstance(nest, ScopFunction) else nest)
    where = f"register_op({domain!r}, {name!r})"
    if any(t.role == "inout" for t in scop.tensors):
        both = next(t.name for t in scop.tensors if t.role == "inout")
        raise UserError(f"{where}: {both} is read before it is written; an operator writes new tensors only")
    if not is_legal(scop, _one_after_another(scop)):
        raise UserError(f"{where}: its statements depend on each other across iterations, so they cannot run one after another")
    nests = tuple(_nest(scop, s, where) for s in scop.statements)
    ins = [t for t in scop.tensors if t.role in ("input", "constant")]
    outs = [t for t in scop.tensors if t.role == "output"]

    def infer(node: Node, values: Sequence[Value | None], known: Known) -> list[tuple[DType, Shape | None]]:
        dims = _bind(name, ins, values)
        for s in scop.scalars:
            _attribute(name, node, s.name)
        extra = sorted(set(node.attrs) - {s.name for s in scop.scalars})
        if extra:
            raise ModelError(f"{name} has no attribute {extra[0]} (it has {', '.join(s.name for s in scop.scalars) or 'none'})")
        return [(t.dtype, tuple(d.substitute(dims) for d in t.shape)) for t in outs]

    def define(node: Node, values: Sequence[Value | None], results: Sequence[Value], known: Known) -> Definition:
        dims = _bind(name, ins, values)
        new = {t.name: v.name for t, v in zip(ins, values) if v is not None} | {t.name: v.name for t, v in zip(outs, results)}
        locals_ = [t for t in scop.tensors if t.role == "local"]
        new |= {t.name: f"{node.name}__{t.name}" for t in locals_}
        made = tuple(_instance(n, dims, new, scop, node) for n in nests)
        return Definition(made, tuple(Tensor(new[t.name], t.dtype, tuple(d.substitute(dims) for d in t.shape)) for t in locals_))

    def reference(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
        dims = {k: int(v) for k, v in _bind(name, ins, [_typed(t, a) for t, a in zip(ins, arrays)]).items()}
        written = {t.name: np.zeros([d.evaluate(dims) for d in t.shape], t.dtype.numpy) for t in outs}
        given = {t.name: a for t, a in zip(ins, arrays)} | written
        scalars = [np.asarray(_attribute(name, node, s.name)) for s in scop.scalars]
        ordered = [given[t.name] for t in scop.tensors if t.role != "local"]
        if isinstance(nest, ScopFunction):
            named = iter(scalars)
            nest.reference(*(given[a] if a in given else next(named) for a, _ in nest.signature), **_extra(nest, dims))
        else:
            schedule(scop).compile()(*ordered, *scalars, **{p: dims[p] for p in scop.params})
        return list(written.values())

    return Op(name, infer, define, reference, domain)


def _extra(nest: ScopFunction, dims: Mapping[str, int]) -> dict[str, int]:
    """Sizes that occur in no shape of the signature."""
    shaped = {n for _, kind in nest.signature for d in getattr(kind, "shape", ()) for n in affine(d).names()}
    return {p: dims[p] for p in nest.scop.params if p not in shaped and p in dims}


def _typed(t: Tensor, a: Array | None) -> Value | None:
    return None if a is None else Value(t.name, t.dtype, tuple(affine(d) for d in a.shape))


def _bind(name: str, ins: Sequence[Tensor], values: Sequence[Value | None]) -> dict[str, Affine]:
    """The named dims of the nest, from the node's input shapes."""
    given = [v for v in values if v is not None]
    if len(given) != len(ins):
        raise ModelError(f"{name} takes {len(ins)} inputs ({', '.join(t.name for t in ins)}), not {len(given)}")
    dims: dict[str, Affine] = {}
    for t, v in zip(ins, given):
        if v.shape is None or len(v.shape) != len(t.shape) or v.dtype != t.dtype:
            declared, given_shape = ", ".join(map(str, t.shape)), ", ".join(map(str, v.shape or ()))
            raise ModelError(f"{name}: input {t.name} must be {t.dtype}[{declared}], not {v.dtype}[{given_shape}]")
        for d, actual in zip(t.shape, v.shape):
            if len(d.terms) == 1 and d.const == 0 and isinstance(d.terms[0][0], str) and d.terms[0][1] == 1:
                dims.setdefault(d.terms[0][0], actual)
    for t, v in zip(ins, given):
        for d, actual in zip(t.shape, v.shape or ()):
            if d.substitute(dims) != actual:
                raise ModelError(f"{name}: input {t.name} has the dim {actual} where {d.substitute(dims)} is expected")
    return dims


def _attribute(name: str, node: Node, key: str) -> Any:
    value = node.attr(key)
    if value is None:
        raise ModelError(f"{name}: the attribute {key} is missing")
    if not isinstance(value, int | float):
        raise ModelError(f"{name}: the attribute {key} must be a number, not {value!r}")
    return value


def _instance(n: Nest, dims: Mapping[str, Affine], new: Mapping[str, str], scop: Scop, node: Node) -> Nest:
    """The nest with the node's dims, tensors and attributes."""
    dtypes = {s.name: s.dtype for s in scop.scalars}

    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Scalar):
            return Const(_attribute(node.op, node, e.name), dtypes[e.name])
        return Load(substitute_all(e.access, dims), e.dtype) if isinstance(e, Load) else None

    moved = Nest(
        tuple((i, e.substitute(dims)) for i, e in n.iters), substitute_all(n.write, dims), rewrite(n.expr, visit), n.reduction,
        tuple(c.substitute(dims) for c in n.where),
    )  # fmt: skip
    return map_accesses(moved, lambda a: Access(new[a.tensor], a.indices))


# ---- from isl back to nests
def _one_after_another(scop: Scop) -> isl.Schedule:
    """All instances of the first statement, then all of the second, …, each in its own order."""
    out: isl.Schedule | None = None
    for s in scop.statements:
        node = isl.Schedule.from_domain(isl.UnionSet.from_set(s.domain)).get_root().child(0)
        space = s.domain.get_space()
        for k in reversed(range(len(s.iters))):
            aff = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, k)
            node = node.insert_partial_schedule(isl.MultiUnionPwAff.from_union_pw_aff(isl.UnionPwAff.from_pw_aff(isl.PwAff.from_aff(aff))))
        one = node.get_schedule()
        out = one if out is None else out.sequence(one)
    assert out is not None
    return out


def _nest(scop: Scop, s: Statement, where: str) -> Nest:
    """The statement over a box from 0 with the rest of its domain as constraints."""
    domain = s.domain.intersect_params(scop.context).coalesce()
    pieces = domain.get_basic_sets()
    if len(pieces) != 1:
        raise UserError(f"{where}: the domain of {s.name} is a union of {len(pieces)} parts")
    (box,) = pieces
    iters: list[tuple[str, Affine]] = []
    for k, i in enumerate(s.iters):
        top = domain.move_dims(PARAM, 0, PARAM, 0, 0).dim_max(k)
        found = top.get_pieces()
        if len(found) != 1:
            raise UserError(f"{where}: the loop {i} of {s.name} has no single upper bound")
        iters.append((i, from_aff(found[0][1]) + 1))
    tests = []
    for c in box.get_constraints():
        x = from_aff(c.get_aff(), s.iters)
        tests.append(x)
        if c.is_equality():
            tests.append(x * -1)
    return Nest(tuple(iters), s.write, s.expr, s.reduction, tuple(_needed(tests, iters)))


def _needed(tests: Sequence[Affine], iters: Sequence[tuple[str, Affine]]) -> list[Affine]:
    """The constraints that the box does not imply."""
    implied = {affine(i) for i, _ in iters} | {e - 1 - affine(i) for i, e in iters}
    names = {i for i, _ in iters}
    return [t for t in tests if t not in implied and t.names() & names]
