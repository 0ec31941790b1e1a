"""Footprints: the box of a tensor that a group of accesses touches below some tile coordinates.

Takes accesses with their statements and a map from instances to tile coordinates; gives a `Box`: per dim an offset (affine in the
coordinates and parameters), a constant extent and a stride. Exact in its promise (every element touched is offset + stride · j with
0 <= j < extent), small by search: the offset is the candidate lower bound that leaves the smallest constant extent.
(isl manual, isl_map_get_range_simple_fixed_box_hull: the same idea; the Python wheel lacks its result type's methods.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..isl_ext import IN, OUT, SET, maps_of
from .access import access_map
from .convert import from_aff


@dataclass(frozen=True)
class Box:
    """A footprint. `coords` are the names of the tile coordinates that the offsets use, outermost first."""

    tensor: str
    coords: tuple[str, ...]
    offset: tuple[Affine, ...]
    extent: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements of the box."""
        out = 1
        for n in self.extent:
            out *= n
        return out

    def __str__(self) -> str:
        dims = (f"{o} + {s}*[0, {n})" if s > 1 else f"{o} + [0, {n})" for o, n, s in zip(self.offset, self.extent, self.stride))
        return f"{self.tensor}[{', '.join(dims)}] at [{', '.join(self.coords)}]"


def footprint_map(scop: Scop, accesses: Sequence[tuple[Statement, Access]], prefix: isl.UnionMap) -> isl.Map:
    """Tile coordinates → the elements that the accesses touch below them."""
    out: isl.Map | None = None
    by_name = {m.get_tuple_name(IN): m for m in maps_of(prefix)}
    for stmt, access in accesses:
        if stmt.name not in by_name:
            raise ScheduleError(f"footprint: {stmt.name} has no coordinates at this place")
        m = by_name[stmt.name].reverse().apply_range(access_map(stmt, access, scop.tensor(access.tensor).shape))
        out = m if out is None else out.union(m)
    if out is None:
        raise ScheduleError("footprint: there is no access to take the footprint of")
    return out.intersect_params(scop.context)


def footprint_box(scop: Scop, accesses: Sequence[tuple[Statement, Access]], prefix: isl.UnionMap, coords: Sequence[str] | None = None) -> Box:
    """The box around the elements that accesses to one tensor touch, as a function of the tile coordinates.

    `prefix` maps the instances to their tile coordinates, named by `coords` (else c0, c1, …). Raises `ScheduleError` where no offset
    leaves a constant extent.
    """
    m = footprint_map(scop, accesses, prefix).coalesce()
    names = tuple(coords) if coords is not None else tuple(f"c{i}" for i in range(m.dim(IN)))
    tensor = accesses[0][1].tensor
    dims = [_dim(m, d, names, tensor) for d in range(m.dim(OUT))]
    return Box(tensor, names, tuple(x[0] for x in dims), tuple(x[1] for x in dims), tuple(x[2] for x in dims))


def _dim(m: isl.Map, d: int, names: Sequence[str], tensor: str) -> tuple[Affine, int, int]:
    one = m.project_out(OUT, d + 1, m.dim(OUT) - d - 1).project_out(OUT, 0, d).reset_tuple_id(IN)
    stride = _stride(one)
    best: tuple[int, int, str, Affine] | None = None
    for lower in _lower_bounds(one):
        extent = _extent(one, lower, stride)
        if extent is None:
            continue
        offset = from_aff(lower.gist(one.domain()), names)
        key = (extent, len(offset.terms), str(offset), offset)
        if best is None or key[:3] < best[:3]:
            best = key
    if best is None:
        raise ScheduleError(
            f"dim {d} of {tensor} has no constant extent below [{', '.join(names)}]: choose a place further inside, or tile with constants"
        )
    return best[3], best[0], stride


def _stride(one: isl.Map) -> int:
    """The greatest s such that the elements at fixed coordinates are congruent modulo s."""
    info = one.get_range_stride_info(0)
    return max(1, int(info.get_stride().to_python()))


def _lower_bounds(one: isl.Map) -> Iterator[isl.Aff]:
    """Candidate offsets: the pieces of the exact minimum, and the constraints of the hull that bound the element from below."""
    hull = isl.Map.from_basic_map(one.simple_hull())
    seen: list[isl.Aff] = []
    for source in (one.lexmin_pw_multi_aff(), hull.lexmin_pw_multi_aff()):
        pieces = source.get_pw_aff(0).get_pieces()
        for _, aff in pieces:
            if not any(aff.plain_is_equal(s) for s in seen):
                seen.append(aff)
                yield aff
    n = one.dim(IN)
    flat = one.wrap().flatten()
    for c in flat.simple_hull().get_constraints():
        if c.is_lower_bound(SET, n) and not c.is_div_constraint():
            aff = c.get_bound(SET, n).ceil().drop_dims(IN, n, 1)
            if not any(aff.plain_is_equal(s) for s in seen):
                seen.append(aff)
                yield aff


def _extent(one: isl.Map, lower: isl.Aff, stride: int) -> int | None:
    """The number of steps from an offset to the last element, None where it is below the offset, off the stride or unbounded."""
    base = isl.Map.from_aff(lower).intersect_domain(one.domain())
    distance = one.range_product(base).range().unwrap()  # element → offset
    gaps = distance.deltas().neg()  # deltas are offset - element
    least, most = gaps.dim_min_val(0), gaps.dim_max_val(0)
    if not least.is_int() or not most.is_int() or least.is_neg():
        return None
    if stride > 1:
        on = isl.Set.read_from_str(one.get_ctx(), f"{{ [x] : x mod {stride} = 0 }}")
        if not gaps.is_subset(on):
            return None
    return int(most.to_python()) // stride + 1
