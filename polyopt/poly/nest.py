"""LoopNest back to isl: which instances run, and when.

Takes a LoopNest whose bounds and guards are affine; gives its leaves, each with the set of loop variable values at which it runs, the
relation from statement instances to dates, and the elements that it touches. A date is position, variable, position, variable, …
from the outside in, so two executions are never at the same date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from ..errors import InternalError
from ..ir.affine import Affine, Range
from ..ir.expr import Binary, Expr, Load, Select, Unary
from ..ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode
from ..ir.scop import Scop
from ..isl_ext import CTX, PARAM, SET, param_space
from .convert import Columns, columns, condition_set, to_aff, to_multi_aff


@dataclass(frozen=True)
class Leaf:
    """One instance of the nest: its loops outside in, its position in each body, and the loop variable values at which it runs."""

    instance: Instance
    loops: tuple[Loop, ...]
    positions: tuple[int, ...]
    domain: isl.Set
    declared: tuple[Mapping[str, tuple[int, ...]], ...]  # by body, outside in: the buffers declared in it before the leaf, and where
    branches: Mapping[tuple[int, ...], bool]  # the guards around: where they stand, and whether they hold
    ranges: Mapping[str, Range]  # bounds of parameters and loop variables that follow from the loops' own bounds

    @property
    def cols(self) -> Columns:
        """Where variables and parameters stand in an `Aff` over `domain`."""
        return loop_columns(self.domain, self.loops)

    def coordinates(self) -> isl.MultiAff:
        """The statement instance as a function of the loop variables."""
        return to_multi_aff(self.instance.coords, self.domain.get_space(), self.instance.statement, self.cols)

    def instances(self) -> isl.Map:
        """Loop variable values → statement instance."""
        return isl.Map.from_multi_aff(self.coordinates()).intersect_domain(self.domain)


def is_equal(x: Leaf, p: Affine, q: Affine) -> bool:
    """Whether two expressions of the loop variables are the same wherever the leaf runs."""
    difference = p - q
    if difference.simplify(x.ranges) == 0:
        return True
    space = x.domain.get_space()
    zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    return bool(x.domain.intersect(to_aff(difference, space, x.cols).ne_set(zero)).is_empty())


def loop_columns(domain: isl.Set, loops: tuple[Loop, ...]) -> Columns:
    """Where the loops' variables and the parameters stand in an `Aff` over a set of loop variable values."""
    return columns(domain.get_space(), [loop.var for loop in loops])


def compute_leaves(nest: LoopNest, scop: Scop) -> list[Leaf]:
    """The instances of a nest in textual order; those that never run are left out."""
    space = isl.Space.set_from_params(param_space(scop.params))
    start = _Place((), (), isl.Set.universe(space).intersect_params(scop.context), (), {}, param_ranges(scop))
    return [x for x in _leaves(nest.body, start) if not x.domain.is_empty()]


def param_ranges(scop: Scop) -> dict[str, Range]:
    """The bounds of each parameter in the context."""
    out: dict[str, Range] = {}
    points = isl.Set.from_params(scop.context)
    for i in range(scop.context.dim(PARAM)):
        axis = points.move_dims(SET, 0, PARAM, i, 1)
        low, high = axis.dim_min_val(0), axis.dim_max_val(0)
        out[str(scop.context.get_dim_name(PARAM, i))] = (
            int(low.to_python()) if low.is_int() else None,
            int(high.to_python()) if high.is_int() else None,
        )
    return out


@dataclass(frozen=True)
class _Place:
    """What a walk knows at the start of a body."""

    loops: tuple[Loop, ...]
    positions: tuple[int, ...]
    domain: isl.Set
    declared: tuple[Mapping[str, tuple[int, ...]], ...]
    branches: Mapping[tuple[int, ...], bool]
    ranges: Mapping[str, Range]


def _leaves(nodes: tuple[LoopNode, ...], place: _Place) -> Iterator[Leaf]:
    counter = [0]

    def visit(nodes: tuple[LoopNode, ...], p: _Place, here: Mapping[str, tuple[int, ...]]) -> Iterator[Leaf]:
        for n in nodes:
            counter[0] += 1
            at = (*p.positions, counter[0])
            if isinstance(n, Declare):
                here = {**here, n.tensor: at}
            elif isinstance(n, Instance):
                yield Leaf(n, p.loops, at, p.domain, (*p.declared, here), p.branches, p.ranges)
            elif isinstance(n, Loop):
                ranges = {**p.ranges, n.var: _range(n, p.ranges)}
                domain = enter(n, p.loops, p.domain)
                yield from _leaves(n.body, _Place((*p.loops, n), at, domain, (*p.declared, here), p.branches, ranges))
            elif isinstance(n, If):
                yes = guard_set(n.cond, p.loops, p.domain)
                yield from visit(n.body, replace(p, domain=p.domain.intersect(yes), branches={**p.branches, at: True}), here)
                if n.orelse:
                    yield from visit(n.orelse, replace(p, domain=p.domain.subtract(yes), branches={**p.branches, at: False}), here)

    yield from visit(nodes, place, {})


def _range(loop: Loop, ranges: Mapping[str, Range]) -> Range:
    lows = [v for v in (b.bounds(ranges)[0] for b in loop.lower) if v is not None]
    highs = [v for v in (b.bounds(ranges)[1] for b in loop.upper) if v is not None]
    return (max(lows) if lows else None, min(highs) - 1 if highs else None)


def guard_set(cond: Expr, loops: tuple[Loop, ...], domain: isl.Set) -> isl.Set:
    """Where a guard holds, over the variables of the loops around it."""
    cols = loop_columns(domain, loops)
    out = condition_set(cond, domain.get_space(), cols)
    if out is None:
        raise InternalError(f"the guard {cond} is not affine")
    return out


def enter(loop: Loop, outer: tuple[Loop, ...], domain: isl.Set) -> isl.Set:
    """The values of the outer variables and this loop's variable, in the order of nesting."""
    n = domain.dim(SET)
    grown = domain.add_dims(SET, 1).set_dim_name(SET, n, loop.var)
    space = grown.get_space()
    cols = loop_columns(grown, (*outer, loop))
    var = isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), SET, n)
    lowers = [to_aff(x, space, cols) for x in loop.lower]
    for x in lowers:
        grown = grown.intersect(isl.Set.from_basic_set(var.ge_basic_set(x)))
    for y in loop.upper:
        grown = grown.intersect(var.lt_set(to_aff(y, space, cols)))
    if loop.step != 1:
        first = lowers[0].to_pw_aff()
        for x in lowers[1:]:
            first = first.max(x.to_pw_aff())
        distance = var.to_pw_aff().sub(first).mod_val(isl.Val.int_from_si(CTX, loop.step))
        zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)).to_pw_aff()
        grown = grown.intersect(distance.eq_set(zero))
    return grown


def guarded_loads(e: Expr, where: isl.Set, cols: Columns) -> Iterator[tuple[Load, isl.Set, bool]]:
    """The loads of an expression, each with the points at which it is evaluated; False where these may be fewer.

    Operands of `and` and `or` are evaluated from left to right, as far as needed.
    """
    if isinstance(e, Select):
        yield from guarded_loads(e.cond, where, cols)
        exact = condition_set(e.cond, where.get_space(), cols) is not None
        for side, value in ((e.yes, True), (e.no, False)):
            at = where.intersect(may_be(e.cond, value, where.get_space(), cols))
            yield from ((load, w, sure and exact) for load, w, sure in guarded_loads(side, at, cols))
        return
    if isinstance(e, Binary) and e.op in ("and", "or"):
        yield from guarded_loads(e.x, where, cols)
        exact = condition_set(e.x, where.get_space(), cols) is not None
        at = where.intersect(may_be(e.x, e.op == "and", where.get_space(), cols))
        yield from ((load, w, sure and exact) for load, w, sure in guarded_loads(e.y, at, cols))
        return
    if isinstance(e, Load):
        yield e, where, True
    for c in e.children():
        yield from guarded_loads(c, where, cols)


def may_be(cond: Expr, value: bool, space: isl.Space, cols: Columns) -> isl.Set:
    """Where a condition may have a truth value: exact where it is affine, everywhere where it is read at run time."""
    if isinstance(cond, Unary) and cond.op == "not":
        return may_be(cond.x, not value, space, cols)
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        x, y = may_be(cond.x, value, space, cols), may_be(cond.y, value, space, cols)
        return x.intersect(y) if (cond.op == "and") == value else x.union(y)
    yes = condition_set(cond, space, cols)
    if yes is None:
        return isl.Set.universe(space)
    return yes if value else yes.complement()
