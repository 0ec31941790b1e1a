"""Are the accesses of a Scop inside its tensors for every size of its parameters?

Takes a Scop as it was lowered, before any verb; gives it back, or raises `ModelError` with the access and the sizes for which it is not. A
model may say so itself (element 5 of a dim N, a reflection wider than its dim), so it is the user who has to give the dim a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from ..errors import ModelError
from ..ir.affine import Affine, affine
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..isl_ext import PARAM, OperationBudget, max_operations
from .convert import Columns, columns, to_aff
from .nest import guarded_loads

BUDGET = 1_000_000  # isl operations; a Scop that needs more is left to its certificate


def check_bounds(scop: Scop) -> Scop:
    """The Scop itself. Accesses whose index or guard is read at run time are not looked at."""
    if not scop.params:
        return scop
    try:
        with max_operations(BUDGET):
            for s in scop.statements:
                _check_statement(scop, s)
    except OperationBudget:
        pass
    return scop


def _check_statement(scop: Scop, s: Statement) -> None:
    domain = s.domain.intersect_params(scop.context)
    cols = columns(domain.get_space(), s.iters)
    _check_access(scop, s.write, "writes", domain, cols)
    for load, at, sure in guarded_loads(s.expr, domain, cols):
        if sure:
            _check_access(scop, load.access, "reads", at, cols)


def _check_access(scop: Scop, access: Access, word: str, at: isl.Set, cols: Columns) -> None:
    shape = scop.tensor(access.tensor).shape
    for index, size in zip(access.indices, shape, strict=True):
        if isinstance(index, Affine):
            space = at.get_space()
            zero = to_aff(affine(0), space, cols)
            i = to_aff(index, space, cols)
            outside = at.intersect(i.lt_set(zero).union(i.ge_set(to_aff(size, space, cols))))
            if not outside.is_empty():
                raise ModelError(_message(scop, access, word, shape, outside))


def _message(scop: Scop, access: Access, word: str, shape: Sequence[Affine], outside: isl.Set) -> str:
    point = outside.params().sample_point()
    sizes = {p: int(point.get_coordinate_val(PARAM, point.get_space().find_dim_by_name(PARAM, p)).to_python()) for p in scop.params}
    tensor = scop.tensor(access.tensor)
    name = tensor.source[0] if tensor.source is not None else tensor.name
    where = f"[{', '.join(map(str, shape))}]"
    found = ", ".join(f"{k} = {v}" for k, v in sizes.items())
    return f"kernel {scop.name} {word} {access}, outside the shape {where} of {name}, where {found}: give a value to {', '.join(scop.params)}"
