"""Points of isl sets and maps as NumPy arrays, at concrete parameter values.

Takes sets, maps and Scops; gives integer arrays with one point a row, in lexicographic order. Exact: dim after dim the bounds that isl's
constraints give are evaluated for all prefixes at once, and in the end every constraint, floors included, is tested on every point. That is
about a hundred times faster than isl's callback for each point, which draws 10^5 points too slowly to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import numpy as np

from ..errors import UserError
from ..ir.affine import Affine, FloorDiv
from ..ir.scop import Scop
from ..isl_ext import IN, OUT, SET, fix_params, maps_of, sample_set
from ..poly.convert import from_aff

Array = np.ndarray[Any, Any]
LIMIT = 400_000  # more points than that are no picture
SIZES = (8, 6, 10, 12, 16, 5, 4, 3, 2, 1, 24, 32, 64)  # of a parameter that the caller leaves open, first choice first


# ---- sizes
def choose_params(scop: Scop, params: Mapping[str, int] | None = None, sizes: Sequence[int] = SIZES) -> dict[str, int]:
    """A value for every parameter: the given ones, and for the others the first size at which the most statements have instances."""
    given = {k: int(v) for k, v in (params or {}).items()}
    for name in given:
        if name not in scop.params:
            known = f"the parameters are {', '.join(scop.params)}" if scop.params else "it has none"
            raise UserError(f"params: {scop.name} has no parameter {name!r}; {known}")
    best: tuple[int, dict[str, int]] = (0, {})
    for n in sizes:
        values = {p: given.get(p, n) for p in scop.params}
        count = 0 if fix_params(scop.context, values).is_empty() else _running(scop, values)
        if count > best[0]:
            best = count, values
        if count == len(scop.statements):
            break
    if best[0]:
        return best[1]
    found = sample_set(fix_params(scop.statements[0].domain.intersect_params(scop.context), given))
    if found is None:
        raise UserError(f"params: {scop.name} has no statement instances at {given or 'any parameters'}; give other params=")
    return {p: given.get(p, found[1].get(p, 1)) for p in scop.params}


def _running(scop: Scop, values: Mapping[str, int]) -> int:
    """How many statements have instances."""
    return sum(not fix_params(s.domain, values).is_empty() for s in scop.statements)


# ---- enumeration
def set_points(s: isl.Set, params: Mapping[str, int] | None = None, limit: int = LIMIT) -> Array:
    """The points of a set at given parameter values. Raises UserError where they are unbounded or more than `limit`."""
    fixed = fix_params(s, params or {}).project_out_all_params().coalesce().compute_divs()
    parts = [_basic_points(b, limit) for b in fixed.get_basic_sets()]
    if not parts:
        return np.zeros((0, s.dim(SET)), np.int64)
    return parts[0] if len(parts) == 1 else distinct_rows(np.concatenate(parts))


def distinct_rows(points: Array) -> Array:
    """The distinct rows in lexicographic order."""
    if not points.shape[1] or len(points) < 2:
        return points[:1]
    rows = points[np.lexsort(points.T[::-1])]
    return np.asarray(rows[np.append(True, np.any(rows[1:] != rows[:-1], axis=1))])


def map_pairs(m: isl.Map, params: Mapping[str, int] | None = None, limit: int = LIMIT) -> tuple[Array, Array]:
    """The pairs of a map: sources and sinks, row by row."""
    n = m.dim(IN)
    flat = set_points(m.wrap().flatten(), params, limit)
    return flat[:, :n], flat[:, n:]


def _basic_points(b: isl.BasicSet, limit: int) -> Array:
    n = b.dim(SET)
    if b.is_empty():
        return np.zeros((0, n), np.int64)
    names = [f"x{i}" for i in range(n)]
    points = np.zeros((1, 0), np.int64)
    for k in range(n):
        lo, hi = _bounds(b.project_out(SET, k + 1, n - k - 1), k, points, names)
        count = np.maximum(hi - lo + 1, 0)
        total = int(count.sum())
        if total > limit:
            raise UserError(f"{b.get_tuple_name() or 'a set'} has more than {limit} points at these sizes: give smaller params=")
        first = np.repeat(np.cumsum(count) - count, count)
        value = np.repeat(lo, count) + np.arange(total) - first
        points = np.column_stack([np.repeat(points, count, axis=0), value])
    return points[_inside(b, points, names)]


def _bounds(b: isl.BasicSet, k: int, points: Array, names: Sequence[str]) -> tuple[Array, Array]:
    """For each prefix, bounds of the next coordinate: exact but for constraints with floors of that coordinate."""
    values = {x: points[:, i] for i, x in enumerate(names[:k])}
    rows = len(points)
    lo, hi = _outer_bounds(b, k, rows)
    for x, equality in _constraints(b, names[: b.dim(SET)]):
        c = x.coefficient(names[k])
        if c == 0 or _in_floor(x, names[k]):
            continue
        rest = np.broadcast_to(evaluate(x - Affine(((names[k], c),)), values), (rows,))
        if c > 0 or equality:
            least = -(rest // c) if c > 0 else -((-rest) // -c)
            lo = np.maximum(lo, least)
        if c < 0 or equality:
            most = rest // -c if c < 0 else (-rest) // c
            hi = np.minimum(hi, most)
    return lo, hi


def _outer_bounds(b: isl.BasicSet, k: int, rows: int) -> tuple[Array, Array]:
    s = isl.Set.from_basic_set(b)
    ends = s.dim_min_val(k), s.dim_max_val(k)
    if not all(e.is_int() for e in ends):
        raise UserError(f"dim {k} of {b.get_tuple_name() or 'a set'} is unbounded: give params= that bound it")
    return np.full(rows, ends[0].to_python(), np.int64), np.full(rows, ends[1].to_python(), np.int64)


def _inside(b: isl.BasicSet, points: Array, names: Sequence[str]) -> Array:
    keep = np.ones(len(points), bool)
    values = {x: points[:, i] for i, x in enumerate(names)}
    for x, equality in _constraints(b, names[: b.dim(SET)]):
        v = evaluate(x, values)
        keep &= (v == 0) if equality else (v >= 0)
    return keep


def _constraints(b: isl.BasicSet, names: Sequence[str]) -> list[tuple[Affine, bool]]:
    """The constraints x = 0 (True) or x >= 0 (False), with their existential variables as floors."""
    known = isl.Set.from_basic_set(b).compute_divs().get_basic_sets()
    if len(known) != 1:  # a projection with holes: its hull's bounds do
        return [] if not known else _constraints(isl.Set.from_basic_set(b).simple_hull().remove_divs(), names)
    return [(from_aff(c.get_aff(), names), c.is_equality()) for c in known[0].get_constraints() if not c.is_div_constraint()]


def _in_floor(x: Affine, name: str) -> bool:
    return any(isinstance(a, FloorDiv) and name in a.num.names() for a, _ in x.terms)


def evaluate(x: Affine, values: Mapping[str, Any]) -> Any:
    """An affine expression over arrays of values."""
    total: Any = x.const
    for a, k in x.terms:
        total = total + k * (values[a] if isinstance(a, str) else evaluate(a.num, values) // a.den)
    return total


# ---- Scops
@dataclass(frozen=True)
class Instances:
    """The instances of one statement at concrete parameters: the iterators' names and one row for each instance."""

    statement: str
    iters: tuple[str, ...]
    points: Array

    def column(self, name: str) -> Array:
        """The values of one iterator."""
        return np.asarray(self.points[:, self.iters.index(name)])


def instances(scop: Scop, statement: str, params: Mapping[str, int]) -> Instances:
    """All instances of a statement. Raises UserError for a name that the Scop lacks."""
    names = [s.name for s in scop.statements]
    if statement not in names:
        raise UserError(f"{scop.name} has no statement {statement!r}; the statements are {', '.join(names)}")
    s = scop.statement(statement)
    return Instances(s.name, s.iters, set_points(s.domain.intersect_params(scop.context), params))


def dates(order: isl.UnionMap, domain: isl.Set, params: Mapping[str, int]) -> Array:
    """The dates that a schedule map gives to the points of a statement's domain, in the points' lexicographic order."""
    for m in maps_of(order):
        if m.get_tuple_name(IN) == domain.get_tuple_name():
            return map_pairs(m.intersect_domain(domain), params)[1]
    return np.zeros((len(set_points(domain, params)), 0), np.int64)


def ranks(scop: Scop, params: Mapping[str, int]) -> dict[str, Array]:
    """For each statement the positions of its instances in the execution, from 0."""
    order = scop.schedule.get_map()
    found = {s.name: dates(order, s.domain.intersect_params(scop.context), params) for s in scop.statements}
    width = max(d.shape[1] for d in found.values())
    if any(d.shape[1] != width for d in found.values()):
        raise UserError(f"{scop.name}: its dates have different lengths, so its statements have no common order")
    every = np.concatenate(list(found.values()))
    position = np.empty(len(every), np.int64)
    position[np.lexsort(every.T[::-1]) if width else np.arange(len(every))] = np.arange(len(every))
    ends = np.cumsum([len(d) for d in found.values()])
    return dict(zip(found, np.split(position, ends[:-1])))


def pairs_between(deps: isl.UnionMap, params: Mapping[str, int]) -> list[tuple[str, str, Array, Array]]:
    """The pairs of a union map: source statement, sink statement, source points, sink points."""
    out = []
    for m in maps_of(deps):
        a, b = map_pairs(m, params)
        if len(a):
            out.append((str(m.get_tuple_name(IN)), str(m.get_tuple_name(OUT)), a, b))
    return out
