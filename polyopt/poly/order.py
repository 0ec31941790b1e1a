"""Dates: where a schedule puts statement instances, and which dependences a given order breaks.

Takes a union map from instances to dates (all dates of one length) and dependences; gives piecewise affine dates by statement, and
the part of a dependence that is not strictly increasing. Works dim by dim: a pair that an outer dim orders is settled, so most
dependences are done after a few small emptiness tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from ..isl_ext import IN, OUT, Point, fix_params, maps_of, point_set, sample_set

Dates = dict[str, list[isl.PwAff]]


def compute_dates(order: isl.UnionMap) -> Dates:
    """By statement, the date as one piecewise affine expression a dim."""
    out: Dates = {}
    for m in maps_of(order):
        pma = m.as_pw_multi_aff()
        pma = pma.gist(pma.domain())
        out[m.get_tuple_name(IN)] = [pma.get_pw_aff(i) for i in range(m.dim(OUT))]
    return out


def constant(p: isl.PwAff) -> int | None:
    """The value of a date that is the same integer everywhere, else None."""
    if not p.is_cst() or p.n_piece() != 1:
        return None
    v = p.get_pieces()[0][1].get_constant_val()
    return int(v.to_python()) if v.is_int() else None


def not_increasing(dep: isl.Map, source: Sequence[isl.PwAff], sink: Sequence[isl.PwAff], strict: bool = True) -> isl.Map | None:
    """Some of the pairs whose sink does not come later than their source; None where there are none.

    `strict`: pairs with equal dates count.
    """
    active = dep
    for a, b in zip(source, sink, strict=True):
        ca, cb = constant(a), constant(b)
        if ca is not None and cb is not None:
            if ca < cb:
                return None
            if ca > cb:
                return None if active.is_empty() else active
            continue
        bad = active.intersect(a.gt_map(b))
        if not bad.is_empty():
            return bad
        active = active.intersect(a.eq_map(b))
        if active.is_empty():
            return None
    return active if strict and not active.is_empty() else None


def find_unordered(deps: isl.UnionMap, dates: Dates, strict: bool = True) -> isl.Map | None:
    """Some pairs of a dependence that the dates do not order; None where all are in order."""
    for m in maps_of(deps):
        bad = not_increasing(m, dates[m.get_tuple_name(IN)], dates[m.get_tuple_name(OUT)], strict)
        if bad is not None:
            return bad
    return None


def date_of(order: isl.UnionMap, statement: str, point: Point, params: Mapping[str, int]) -> Point:
    """The date of one instance at given parameter values."""
    for m in maps_of(order):
        if m.get_tuple_name(IN) == statement:
            at = fix_params(m, params)
            found = sample_set(at.intersect_domain(point_set(at.get_space().domain(), point)).range())
            return found[0] if found is not None else ()
    return ()
