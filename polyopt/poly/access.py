"""Access relations: which element of which tensor a statement instance touches.

Takes statements and their accesses; gives isl maps from `name[iters]` to `tensor[index]`, constrained to the domain. An
indirect index ranges over the whole dim (a may access). Relations are remembered per statement, because verbs keep most statements.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import islpy as isl

from ..ir.affine import Affine
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..ir.tensor import Tensor
from ..isl_ext import OUT, SET, param_space
from .convert import columns, range_space, to_aff, to_multi_aff

T = TypeVar("T")
_memo: dict[tuple[int, str], tuple[weakref.ref[Statement | Scop], object]] = {}


def remember(owner: Statement | Scop, key: str, compute: Callable[[], T]) -> T:
    """The value of `compute()` for this very statement or Scop object, computed once."""
    slot = (id(owner), key)
    found = _memo.get(slot)
    if found is not None and found[0]() is owner:
        return found[1]  # type: ignore[return-value]
    value = compute()
    _memo[slot] = (weakref.ref(owner, lambda _: _memo.pop(slot, None)), value)
    return value


def access_map(stmt: Statement, access: Access, shape: Sequence[Affine] | None = None) -> isl.Map:
    """The relation from the instances of `stmt` to the elements that `access` may touch.

    An indirect index is unconstrained, or within `shape` where the tensor's shape is given.
    """
    domain = stmt.domain
    space = domain.get_space()
    cols = columns(space, stmt.iters)
    if access.is_affine:
        return isl.Map.from_multi_aff(to_multi_aff(access.affine_indices(), space, access.tensor, cols)).intersect_domain(domain)
    known = tuple(x if isinstance(x, Affine) else Affine((), 0) for x in access.indices)
    out = isl.Map.from_multi_aff(to_multi_aff(known, space, access.tensor, cols))
    for d, x in enumerate(access.indices):
        if not isinstance(x, Affine):
            out = out.eliminate(OUT, d, 1)
    if shape is not None:
        out = out.intersect_range(box(range_space(space, access.tensor, len(access.indices)), shape))
    return out.intersect_domain(domain)


def box(space: isl.Space, shape: Sequence[Affine]) -> isl.Set:
    """The elements 0 <= index < shape of a tensor's space."""
    out = isl.Set.universe(space)
    cols = columns(space)
    for d, n in enumerate(shape):
        x = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, d)
        out = out.intersect(isl.Set.from_basic_set(x.ge_basic_set(isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)))))
        size = to_aff(n, space, cols)
        out = out.intersect(x.lt_set(size))
    return out


def tensor_box(tensor: Tensor, params: Sequence[str]) -> isl.Set:
    """All elements of a tensor."""
    space = param_space(params).add_unnamed_tuple_ui(len(tensor.shape)).set_tuple_name(SET, tensor.name)
    return box(space, tensor.shape)


def write_map(scop: Scop, stmt: Statement) -> isl.Map:
    """The relation from instances to the element written."""
    return remember(stmt, "write", lambda: access_map(stmt, stmt.write, scop.tensor(stmt.write.tensor).shape))


def read_maps(scop: Scop, stmt: Statement) -> tuple[isl.Map, ...]:
    """The relations of the loads, one for each distinct access, in evaluation order (an update's own cell not included)."""
    return remember(stmt, "reads", lambda: tuple(access_map(stmt, a, scop.tensor(a.tensor).shape) for a in dict.fromkeys(stmt.reads())))


def reads(scop: Scop, own_cell: bool = True) -> isl.UnionMap:
    """All reads. `own_cell`: also the cell that an update (a statement with a reduction operator) reads before it writes it."""
    out = isl.UnionMap.empty(param_space(scop.params))
    for s in scop.statements:
        for m in read_maps(scop, s):
            out = out.union(m.to_union_map())
        if own_cell and s.reduction is not None:
            out = out.union(write_map(scop, s).to_union_map())
    return out


def writes(scop: Scop) -> isl.UnionMap:
    """All writes."""
    out = isl.UnionMap.empty(param_space(scop.params))
    for s in scop.statements:
        out = out.union(write_map(scop, s).to_union_map())
    return out
