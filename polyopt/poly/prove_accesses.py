"""Proofs about the accesses of a LoopNest, for its certificate.

Takes the leaves of a nest (`poly/nest.py`) and the Scop; proves that each instance computes what its statement does, and that each access is in
bounds where it is evaluated. Raises `InternalError` with a witness where that is false, `NotProven` where it rests on a value read at run time.
"""

from __future__ import annotations

import islpy as isl

from ..errors import InternalError
from ..ir.affine import Affine, affine
from ..ir.expr import Access, Expr, IndexValue, Load, rewrite, substitute, substitute_access, walk
from ..ir.loops import LoopNest
from ..ir.scop import Scop
from ..isl_ext import sample_set
from .convert import to_aff
from .lifetimes import find_moves, move
from .nest import Leaf, guarded_loads, is_equal


class NotProven(Exception):
    """A claim that this method cannot decide."""


def prove_accesses(scop: Scop, leaves: list[Leaf]) -> str:
    """Every instance computes its statement's expression, from and to the statement's elements, moved as the buffer's life has it."""
    count = 0
    moves = find_moves(scop, leaves)
    for x in leaves:
        s = scop.statement(x.instance.statement)
        values = dict(zip(s.iters, x.instance.coords))
        if x.instance.reduction != s.reduction:
            raise InternalError(f"{s.name} is an update by {s.reduction} and the nest updates by {x.instance.reduction}")
        _match(x, x.instance.write, move(substitute_access(s.write, values), x, moves), "writes")
        own = substitute(s.expr, values)
        if skeleton(own) != skeleton(x.instance.expr):
            raise InternalError(f"{s.name} computes {x.instance.expr}, its statement computes {own}")
        for e, wanted in zip(walk(x.instance.expr), walk(own), strict=True):
            if isinstance(e, Load) and isinstance(wanted, Load):
                _match(x, e.access, move(wanted.access, x, moves), "reads")
                count += 1
            elif isinstance(e, IndexValue) and isinstance(wanted, IndexValue) and not is_equal(x, wanted.index, e.index):
                raise InternalError(f"{s.name} computes with {e.index}, its statement with {wanted.index}")
        count += 1
    return f"{count} accesses are those of the statements"


def skeleton(e: Expr) -> Expr:
    """An expression with its affine indices left out."""

    def visit(x: Expr) -> Expr | None:
        if isinstance(x, Load):
            indirect = tuple(i if isinstance(i, Expr) else affine(0) for i in x.access.indices)
            return Load(Access(x.access.tensor, indirect), x.dtype)
        return IndexValue(affine(0), x.dtype) if isinstance(x, IndexValue) else None

    return rewrite(e, visit)


def _match(x: Leaf, access: Access, own: Access, word: str) -> None:
    same = own.tensor == access.tensor and len(own.indices) == len(access.indices)
    # indices that are read at run time are expressions, which are compared as such
    pairs = [(p, q) for p, q in zip(own.indices, access.indices) if isinstance(p, Affine) or isinstance(q, Affine)]
    if not same or not all(isinstance(p, Affine) and isinstance(q, Affine) and is_equal(x, p, q) for p, q in pairs):
        raise InternalError(f"{x.instance.statement} {word} {access}, its statement {word} {own}")


# ---- bounds
def prove_bounds(scop: Scop, nest: LoopNest, leaves: list[Leaf]) -> str:
    """Every access that is evaluated is inside its tensor, for all parameters of the context."""
    count, undecided = 0, ""
    for x in leaves:
        todo: list[tuple[Access, isl.Set, bool]] = [(x.instance.write, x.domain, True)]
        todo += [(load.access, at, sure) for load, at, sure in guarded_loads(x.instance.expr, x.domain, x.cols)]
        done: set[tuple[Access, int]] = set()
        for access, at, sure in todo:
            if (access, id(at)) in done:
                continue
            done.add((access, id(at)))
            shape = nest.tensor(access.tensor).shape
            for index, size in zip(access.indices, shape, strict=True):
                if not isinstance(index, Affine):
                    undecided = f"an index of {access.tensor} in {x.instance.statement} is read at run time"
                    continue
                outside = _outside(x, index, size, at)
                if outside is None:
                    count += 1
                elif not sure:
                    undecided = f"{access} is guarded by a value read at run time"
                else:
                    found = sample_set(outside)
                    raise InternalError(f"{access} in {x.instance.statement} is out of bounds at {found}, shape {list(map(str, shape))}")
    if undecided:
        raise NotProven(f"not proven: {undecided}; the other {count} indices are in bounds")
    return f"{count} indices are in bounds"


def _outside(x: Leaf, index: Affine, size: Affine, at: isl.Set) -> isl.Set | None:
    low, high = index.bounds(x.ranges)[0], (index - size).bounds(x.ranges)[1]
    if low is not None and low >= 0 and high is not None and high < 0:
        return None
    space = x.domain.get_space()
    zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    i = to_aff(index, space, x.cols)
    outside = at.intersect(i.lt_set(zero).union(i.ge_set(to_aff(size, space, x.cols))))
    return None if outside.is_empty() else outside
