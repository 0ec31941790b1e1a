"""Witnesses: two concrete instances out of a violated dependence, as a `Violation`.

Takes a Scop and a non-empty relation of dependent pairs; gives small instances (isl samples, then minimises the parameters), the
array cell that ties them, and their dates.
"""

from __future__ import annotations

import islpy as isl

from ..errors import InternalError
from ..ir.scop import Scop, Violation
from ..isl_ext import IN, OUT, PARAM, Point, fix_params, point_set, read_set, sample_map, sample_set
from .access import read_maps, write_map
from .order import date_of

Instance = tuple[str, Point]


def describe(scop: Scop, kind: str, bad: isl.Map, after: isl.UnionMap, step: str, repair: str | None) -> Violation:
    """The violation that a small pair of `bad` shows; `after` gives the new dates.

    Updates of one reduction depend on each other whichever comes first: they are named in the order in which they now are.
    """
    source, sink, params = small_pair(bad.intersect_params(scop.context))
    order = scop.schedule.get_map()
    ends = [(bad.get_tuple_name(IN), source), (bad.get_tuple_name(OUT), sink)]
    if kind == "reduction":
        ends.sort(key=lambda x: date_of(order, x[0], x[1], params))
    a, b = ends
    return Violation(
        kind=kind,
        source=a,
        sink=b,
        params=params,
        cell=shared_cell(scop, kind, a, b, params),
        before=(date_of(order, *a, params), date_of(order, *b, params)),
        after=(date_of(after, *a, params), date_of(after, *b, params)),
        step=step,
        repair=repair,
    )


def small_pair(bad: isl.Map) -> tuple[Point, Point, dict[str, int]]:
    """A pair of a non-empty relation with small parameters and the lexicographically first source."""
    names = [str(bad.get_dim_name(PARAM, i)) for i in range(bad.dim(PARAM))]
    at = bad
    for limit in (4, 8, 16, 64, 1024):
        bound = " and ".join(f"-{limit} <= {n} <= {limit}" for n in names) or "true"
        near = bad.intersect_params(read_set(f"[{', '.join(names)}] -> {{ : {bound} }}"))
        if not near.is_empty():
            at = near
            break
    found = sample_map(at)
    if found is None:
        raise InternalError(f"no witness in an empty relation {bad}")
    fixed = fix_params(at, found[2])
    first = fixed.domain().lexmin()
    least = sample_map(fixed.intersect_domain(first).lexmin())
    return (least[0], least[1], found[2]) if least is not None else found


def shared_cell(scop: Scop, kind: str, a: Instance, b: Instance, params: dict[str, int]) -> tuple[str, Point] | None:
    """An element that makes two instances depend on each other."""
    x, y = scop.statement(a[0]), scop.statement(b[0])
    own_x = [write_map(scop, x)] if x.reduction is not None else []
    own_y = [write_map(scop, y)] if y.reduction is not None else []
    sources = [*read_maps(scop, x), *own_x] if kind == "anti" else [write_map(scop, x)]
    sinks = [write_map(scop, y)] if kind in ("anti", "output") else [*read_maps(scop, y), *own_y]
    for m in sources:
        for n in sinks:
            if m.get_tuple_name(OUT) != n.get_tuple_name(OUT):
                continue
            found = sample_set(_cells(m, a[1], params).intersect(_cells(n, b[1], params)))
            if found is not None:
                return m.get_tuple_name(OUT), found[0]
    return None


def _cells(m: isl.Map, point: Point, params: dict[str, int]) -> isl.Set:
    at: isl.Map = fix_params(m, params)
    return at.intersect_domain(point_set(at.get_space().domain(), point)).range()
