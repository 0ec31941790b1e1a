"""Pictures of dependences: an arrow from each source instance to its sink, kinds by colour and line.

Takes a Scop at concrete parameters (its dependences are computed where it has none); gives a picture on two axes. Pairs that differ in dims
projected away only have no arrow; the legend counts all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import UserError
from ..ir.scop import Dependences, Scop
from ..isl_ext import IN, OUT, maps_of
from ..poly.deps import compute_dependences
from .bare import seen_in
from .domains import draw_points, lattice, statement_handles
from .figure import GREY, KINDS, Picture, draw_arrows, legend_right, titled
from .place import Plane, deepest, main_statements, make_plane
from .points import choose_params, distinct_rows, pairs_between

Array = np.ndarray[Any, Any]
Arrows = tuple[Array, Array, int, int]  # starts, ends, pairs drawn (projected ones included), all pairs
MOST_ARROWS = 20_000
BENDS = {"flow": 0.0, "anti": 0.14, "output": -0.14, "reduction": 0.0}


def dependences(
    scop: Scop,
    kinds: Sequence[str] | str | None = None,
    params: Mapping[str, int] | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
    direct: bool | None = None,
    space: str = "iterations",
) -> Picture:
    """The dependences of a Scop as arrows. `kinds`: some of flow, anti, output, reduction (all where None); `direct`: leave out pairs that follow
    from two others (True), draw all (False); None: leave them out for reductions, whose updates all depend on each other."""
    wanted = check_kinds(kinds)
    scop = seen_in(scop, space)
    deps = dependences_of(scop)
    values = choose_params(scop, params, (6, 5, 8, 10, 12, 16, 4, 3, 2, 1, 24, 32, 64))
    chosen = axes if axes is not None else moving_axes(scop, deps, at)
    plane = make_plane(scop, values, None, chosen, at)
    arrows = {k: collect(plane, getattr(deps, k), values, direct if direct is not None else k == "reduction") for k in wanted}
    shown = {k: a for k, a in arrows.items() if a[3]}
    count = sum(a[3] for a in shown.values())
    note = "; ".join(x for x in (f"{count} dependences" if count else "no dependences", plane.note()) if x)
    fig, ax = lattice(plane, titled(scop.name, values, note))
    for kind, (a, b, _, _) in shown.items():
        draw_kind(ax, kind, a, b)
    if any(is_far(a, b).any() for a, b, _, _ in shown.values()):  # room for the bent ones
        ax.set_xlim(ax.get_xlim()[0] - 0.38, ax.get_xlim()[1])
    draw_points(ax, plane, fig, GREY if len(plane.found) == 1 else None)
    handles = statement_handles(scop, plane, GREY if len(plane.found) == 1 else None)
    legend_right(ax, [*handles, *(kind_handle(k, n, total) for k, (_, _, n, total) in shown.items())])
    return fig


def check_kinds(kinds: Sequence[str] | str | None) -> tuple[str, ...]:
    """The kinds to draw, in a fixed order. Raises UserError for a word that is no kind."""
    given = list(KINDS) if kinds is None else kinds.replace(",", " ").split() if isinstance(kinds, str) else list(kinds)
    for k in given:
        if k not in KINDS:
            raise UserError(f"kinds: there is no kind of dependence {k!r}; the kinds are {', '.join(KINDS)}")
    return tuple(k for k in KINDS if k in given)


def dependences_of(scop: Scop) -> Dependences:
    """The dependences, computed where the Scop has none."""
    deps = scop.dependences if scop.dependences is not None else compute_dependences(scop).dependences
    assert deps is not None
    return deps


def collect(plane: Plane, deps: isl.UnionMap, params: Mapping[str, int], direct: bool) -> Arrows:
    """The distinct arrows of one kind of dependence on a plane."""
    drawn = deps.subtract(deps.apply_range(deps)) if direct else deps
    inside = {s: True for s in plane.found}
    starts, ends, pairs = [np.zeros((0, 2))], [np.zeros((0, 2))], 0
    for source, sink, a, b in pairs_between(drawn, params):
        if source not in inside or sink not in inside:
            continue
        keep = plane.shown(source, a) & plane.shown(sink, b)
        starts.append(plane.at(source, a[keep]))
        ends.append(plane.at(sink, b[keep]))
        pairs += int(keep.sum())
    both = distinct_rows(np.column_stack([np.concatenate(starts), np.concatenate(ends)]))
    both = both[np.any(both[:, :2] != both[:, 2:], axis=1)]
    if len(both) > MOST_ARROWS:
        raise UserError(f"{len(both)} arrows are no picture: give smaller params=, a slice at=, or fewer kinds=")
    total = pairs if drawn is deps else sum(
        int((plane.shown(s, a) & plane.shown(t, b)).sum()) for s, t, a, b in pairs_between(deps, params) if s in inside and t in inside
    )  # fmt: skip
    return both[:, :2], both[:, 2:], pairs, total


def moving_axes(scop: Scop, deps: Dependences, at: Mapping[str, int] | None, statements: Sequence[str] | None = None) -> list[str] | None:
    """Two iterators that dependences move along, outermost first; None where the deepest statement has no more than two."""
    free = [i for i in deepest(scop, statements or main_statements(scop)).iters if i not in (at or {})]
    if len(free) <= 2:
        return None
    moving: set[str] = set()
    for m in maps_of(deps.all()):
        left, right = scop.statement(m.get_tuple_name(IN)).iters, scop.statement(m.get_tuple_name(OUT)).iters
        for i in set(free) & set(left) & set(right) - moving:
            if not m.is_subset(m.equate(IN, left.index(i), OUT, right.index(i))):
                moving.add(i)
    best = sorted(free, key=lambda i: (i not in moving, free.index(i)))[:2]
    return sorted(best, key=free.index)


def draw_kind(ax: Axes, kind: str, a: Array, b: Array) -> None:
    """Arrows of one kind; those that would run through other points are bent. The gids are `<kind>` and `<kind>:bent`."""
    colour, style = KINDS[kind]
    far = is_far(a, b)
    draw_arrows(ax, a[~far], b[~far], colour, style, kind, bend=BENDS[kind])
    draw_arrows(ax, a[far], b[far], colour, style, f"{kind}:bent", bend=BENDS[kind] or 0.16)


def is_far(a: Array, b: Array) -> Array:
    """Which straight arrows would run through other points."""
    d = np.rint(np.abs(b - a)).astype(int)
    return np.asarray(np.gcd(d[:, 0], d[:, 1]) > 1)


def kind_handle(kind: str, drawn: int, total: int) -> Line2D:
    """The legend entry of a kind, with its number of pairs."""
    colour, style = KINDS[kind]
    text = f"{kind}: {total}" if drawn == total else f"{kind}: {total}, the {drawn} direct ones drawn"
    return Line2D([], [], color=colour, linestyle=style, linewidth=1.6, label=text)
