"""Pictures of footprints: the elements of a tensor that one iteration of a loop touches, and how often.

Takes a Scop, a tensor and a loop; gives the tensor as a grid, elements that the chosen iteration touches coloured by the number of accesses,
those of the next iteration outlined. Instances and elements come from the isl access relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..errors import UserError
from ..ir.scop import Scop, Statement
from ..isl_ext import IN, OUT, maps_of
from ..poly.access import access_map
from ..verbs.tree import Member, read_tree
from .figure import LIGHT, RED, Picture, lattice_axes, lattice_size, legend_right, new_picture, shades, titled
from .loops import members_around
from .points import choose_params, distinct_rows, map_pairs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Footprint:
    """`loops` down to the chosen one, their values, the elements touched with the number of accesses, and the next iteration's elements."""

    loops: tuple[str, ...]
    values: tuple[int, ...]
    elements: Array
    accesses: Array
    following: Array


def footprint(
    scop: Scop,
    tensor: str,
    at: str,
    params: Mapping[str, int] | None = None,
    iteration: Mapping[str, int] | None = None,
    axes: Sequence[int] | None = None,
) -> Picture:
    """The part of `tensor` that one iteration of the loop `at` touches. `iteration`: values of that loop and those around it (the middle ones
    where left open); `axes`: which two dims of the tensor to draw (the first two that move; others are projected away)."""
    sizes = choose_params(scop, params, (8, 10, 12, 16, 24, 32, 48, 64, 96, 128))
    found = find_footprint(scop, tensor, at, sizes, iteration)
    shape = [x.evaluate(sizes) for x in scop.tensor(tensor).shape]
    dims = _choose_dims(shape, found.elements, axes)
    shown, count = _project(found.elements, found.accesses, dims)
    following, _ = _project(found.following, np.ones(len(found.following), np.int64), dims)
    where = ", ".join(f"{n} = {v}" for n, v in zip(found.loops, found.values))
    note = f"{len(found.elements)} of {int(np.prod(shape))} elements, {int(found.accesses.sum())} accesses at {where}"
    return _draw(tensor, [shape[d] for d in dims], dims, shown, count, following, titled(f"footprint of {tensor}", sizes, note), at, len(shape))


def find_footprint(scop: Scop, tensor: str, at: str, params: Mapping[str, int], iteration: Mapping[str, int] | None = None) -> Footprint:
    """What one iteration touches. Raises UserError for names that do not exist and for an iteration that does not run."""
    names = [t.name for t in scop.tensors]
    if tensor not in names:
        raise UserError(f"footprint: there is no tensor {tensor!r}; the tensors are {', '.join(names)}")
    around = {s: m for s, m in members_around(read_tree(scop.schedule))}
    inside = {s: _down_to(m, at) for s, m in around.items() if at in [x.name for x in m]}
    if not inside:
        every = sorted({x.name for m in around.values() for x in m})
        raise UserError(f"footprint: there is no loop {at!r}; the loops are {', '.join(every) or 'none'}")
    using = {s: m for s, m in inside.items() if any(a.tensor == tensor for a in (scop.statement(s).write, *scop.statement(s).reads()))}
    if not using:
        raise UserError(f"footprint: no statement below the loop {at} uses {tensor}")
    loops = tuple(x.name for x in next(iter(using.values())))
    rows = [_touched(scop, scop.statement(s), tensor, m, params) for s, m in using.items() if tuple(x.name for x in m) == loops]
    dates, elements = np.concatenate([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
    values = _choose_iteration(dates, loops, iteration or {})
    mine = np.all(dates == values, axis=1)
    touched = distinct_rows(elements[mine])
    accesses = (
        np.array([int(np.all(elements[mine] == e, axis=1).sum()) for e in touched]) if len(touched) < 4000 else _counts(elements[mine], touched)
    )
    later = dates[(dates[:, -1] > values[-1]) & np.all(dates[:, :-1] == values[:-1], axis=1)]
    step = np.append(values[:-1], later[:, -1].min()) if len(later) else values
    following = distinct_rows(elements[np.all(dates == step, axis=1)]) if len(later) else elements[:0]
    return Footprint(loops, tuple(int(v) for v in values), touched, accesses, following)


def _counts(elements: Array, touched: Array) -> Array:
    order = np.lexsort(elements.T[::-1])
    rows = elements[order]
    starts = np.flatnonzero(np.append(True, np.any(rows[1:] != rows[:-1], axis=1)))
    return np.diff(np.append(starts, len(rows)))


def _down_to(members: Sequence[Member], at: str) -> list[Member]:
    return list(members[: [m.name for m in members].index(at) + 1])


def _touched(scop: Scop, s: Statement, tensor: str, members: Sequence[Member], params: Mapping[str, int]) -> tuple[Array, Array]:
    """For each instance and access: the values of the loops, and the element."""
    domain = s.domain.intersect_params(scop.context)
    loops: isl.Map | None = None
    for m in members:
        one = next(x for x in maps_of(isl.UnionMap.from_union_pw_aff(m.upa)) if x.get_tuple_name(IN) == s.name).intersect_domain(domain)
        loops = one if loops is None else loops.flat_range_product(one)
    assert loops is not None
    dates, elements = [], []
    own = [s.write] if s.reduction is not None else []
    for a in [s.write, *own, *s.reads()]:
        if a.tensor != tensor:
            continue
        if not a.is_affine:
            raise UserError(f"footprint: {s.name} reaches {tensor} through an index that is data; what it touches is not known")
        both = loops.flat_range_product(access_map(s, a).intersect_domain(domain).reset_tuple_id(OUT))
        pairs = map_pairs(both, params)[1]
        dates.append(pairs[:, : len(members)])
        elements.append(pairs[:, len(members) :])
    return np.concatenate(dates), np.concatenate(elements)


def _choose_iteration(dates: Array, loops: Sequence[str], given: Mapping[str, int]) -> Array:
    for name in given:
        if name not in loops:
            raise UserError(f"iteration: {name!r} is none of the loops {', '.join(loops)}")
    left = dates
    for k, name in enumerate(loops):
        values = np.unique(left[:, k])
        if name in given and given[name] not in values:
            raise UserError(f"iteration: {name} = {given[name]} does not run; {name} goes from {values.min()} to {values.max()} there")
        value = given[name] if name in given else values[(len(values) - 1) // 2]
        left = left[left[:, k] == value]
    return np.asarray(left[0])


def _choose_dims(shape: Sequence[int], elements: Array, axes: Sequence[int] | None) -> list[int]:
    if axes is not None:
        if not 1 <= len(axes) <= 2 or any(not 0 <= d < len(shape) for d in axes):
            raise UserError(f"axes: give one or two dims of the tensor, 0 to {len(shape) - 1}")
        return list(axes)
    moving = [d for d in range(len(shape)) if len(elements) and np.ptp(elements[:, d]) > 0]
    rest = [d for d in range(len(shape)) if d not in moving]
    return sorted((moving + rest)[:2])


def _project(elements: Array, accesses: Array, dims: Sequence[int]) -> tuple[Array, Array]:
    """Positions (row, column) of elements, and the sum of accesses on each."""
    part = elements[:, list(dims)]
    part = np.column_stack([np.zeros((len(part), 2 - len(dims)), np.int64), part])
    if not len(part):
        return part, accesses
    order = np.lexsort(part.T[::-1])
    rows = part[order]
    starts = np.flatnonzero(np.append(True, np.any(rows[1:] != rows[:-1], axis=1)))
    return rows[starts], np.add.reduceat(accesses[order], starts)


def _draw(
    tensor: str, shape: list[int], dims: Sequence[int], shown: Array, count: Array, following: Array, title: str, at: str, rank: int
) -> Picture:
    rows, columns = ([1] * (2 - len(shape)) + shape)[:2]
    width, height, equal = lattice_size(columns, rows)
    fig = new_picture(width, height)
    ax = fig.add_subplot()
    lattice_axes(ax, title, f"{tensor} dim {dims[-1]}" if dims else tensor, f"dim {dims[0]}" if len(dims) > 1 else None)
    ax.set_xlim(-0.7, columns - 0.3)
    ax.set_ylim(rows - 0.3, -0.7)
    ax.set_aspect("equal" if equal else "auto")
    _grid(ax, rows, columns)
    levels = sorted(set(count.tolist()))
    colour = dict(zip(levels, shades(levels)))
    _cells(ax, shown, [colour[c] for c in count.tolist()], "footprint", 0.9)
    _cells(ax, following, None, "following", 0.74)
    few = levels if len(levels) <= 6 else [levels[0], levels[len(levels) // 2], levels[-1]]
    handles: list[Any] = [Patch(facecolor=colour[n], label=f"{n} access{'es' if n > 1 else ''}") for n in few]
    if len(following):
        handles.append(Line2D([], [], linestyle="none", marker="s", markersize=8, markerfacecolor="none", color=RED, label=f"next iteration of {at}"))
    legend_right(ax, handles)
    return fig


def _grid(ax: Axes, rows: int, columns: int) -> None:
    if rows * columns <= 4096:
        cells = [Rectangle((x - 0.45, y - 0.45), 0.9, 0.9) for y in range(rows) for x in range(columns)]
        ax.add_collection(PatchCollection(cells, facecolor="white", edgecolor=LIGHT, linewidths=0.6, zorder=1))
    else:
        ax.add_patch(Rectangle((-0.5, -0.5), columns, rows, facecolor="white", edgecolor=LIGHT, zorder=1))


def _cells(ax: Axes, at: Array, colours: Sequence[Any] | None, gid: str, size: float) -> None:
    if not len(at):
        return
    cells = [Rectangle((x - size / 2, y - size / 2), size, size) for y, x in at.tolist()]
    face = {"facecolor": list(colours), "edgecolor": "none"} if colours is not None else {"facecolor": "none", "edgecolor": RED, "linewidths": 1.1}
    found = PatchCollection(cells, zorder=2 if colours is not None else 3, **face)
    found.set_gid(gid)
    ax.add_collection(found)
