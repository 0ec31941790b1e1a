"""Pictures of iteration domains: each instance a point, statements by colour and marker.

Takes a Scop at concrete parameters; gives a picture with one, two or three axes. Other dims are projected away or held fixed (`at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..ir.expr import Load
from ..ir.scop import Scop, Statement
from ..ir.text import update_text
from .bare import seen_in
from .figure import GREY, MARKERS, STATEMENTS, WIDTH, Picture, draw_dots, lattice_axes, lattice_size, legend_right, marker_size, new_picture, titled
from .place import Plane, make_plane
from .points import choose_params

Array = np.ndarray[Any, Any]


def domain(
    scop: Scop,
    statement: str | None = None,
    params: Mapping[str, int] | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
    space: str = "iterations",
) -> Picture:
    """The iteration domain of a statement, or of all. `params`: sizes (chosen where left open); `axes`: one to three iterators, outermost loops
    where None; `at={"j": 0}` shows a slice. Raises UserError for names that do not exist and for more points than a picture holds."""
    scop = seen_in(scop, space)
    values = choose_params(scop, params)
    names = [statement] if statement is not None else None
    plane = make_plane(scop, values, names, axes, at, most=3)
    total = sum(int(plane.shown(s, f.points).sum()) for s, f in plane.found.items())
    what = f"domain of {statement or scop.name}"
    title = titled(what, values, "; ".join(x for x in (f"{total} instances", plane.note()) if x))
    if len(plane.axes) == 3:
        return _solid(scop, plane, title)
    fig, ax = lattice(plane, title)
    draw_points(ax, plane, fig)
    legend_right(ax, statement_handles(scop, plane))
    return fig


# ---- shared with the other pictures of iteration spaces
def lattice(plane: Plane, title: str) -> tuple[Picture, Axes]:
    """An empty picture of a plane, limits set to what will stand on it."""
    every = np.concatenate([plane.spots(s) for s in plane.found])
    lo, hi = (every.min(axis=0), every.max(axis=0)) if len(every) else (np.zeros(2), np.ones(2))
    width, height, equal = lattice_size(float(hi[0] - lo[0]), float(hi[1] - lo[1]))
    fig = new_picture(width, height)
    ax = fig.add_subplot()
    lattice_axes(ax, title, plane.axes[0], plane.axes[1] if len(plane.axes) > 1 else None)
    ax.set_xlim(lo[0] - 0.6, hi[0] + 0.6)
    ax.set_ylim(lo[1] - 0.6, hi[1] + 0.6)
    for line, name in zip((ax.xaxis, ax.yaxis), plane.axes):
        line.set_major_formatter(partial(_tick, plane, name))
    ax.set_aspect("equal" if equal else "auto")
    return fig, ax


def _tick(plane: Plane, axis: str, value: float, _: int) -> str:
    """A tick's label: the iterator's value, or where the statements without that iterator stand."""
    for place, where in plane.outside.items():
        if place[1] == axis and where == value:
            having = [t for t in plane.found if axis in plane.found[t].iters and len(plane.found[t].points)]
            least = min((plane.found[t].column(axis).min() for t in having), default=0)
            most = max((plane.found[t].column(axis).max() for t in having), default=0)
            if not least <= value <= most:
                return f"before {axis}" if value < least else f"after {axis}"
    return f"{value:g}"


def draw_points(ax: Axes, plane: Plane, fig: Picture, colour: str | None = None, size: float | None = None) -> None:
    """The instances of each statement, one line of markers a statement, its gid `points:<statement>`."""
    lo, hi = np.array([ax.get_xlim(), ax.get_ylim()]).T
    area = size or marker_size(hi[0] - lo[0], hi[1] - lo[1], *fig.get_size_inches())
    for k, s in enumerate(plane.found):
        spots = plane.spots(s)
        face = colour or STATEMENTS[k % len(STATEMENTS)]
        draw_dots(ax, spots, area, face, MARKERS[k % len(MARKERS)], f"points:{s}")


def statement_handles(scop: Scop, plane: Plane, colour: str | None = None) -> list[Line2D]:
    """Legend entries of the statements of a plane."""
    out = []
    for k, s in enumerate(plane.found):
        face = colour or STATEMENTS[k % len(STATEMENTS)]
        text = f"{s}: {statement_line(scop, scop.statement(s), 36)}"
        out.append(Line2D([], [], linestyle="none", marker=MARKERS[k % len(MARKERS)], markersize=6, color=face, label=text))
    return out


def statement_line(scop: Scop, s: Statement, width: int = 60) -> str:
    """What a statement does on one short line: as the user wrote it, else from its expression."""
    written = scop.meta.get("text", {}).get(s.name) if scop.history == () or not _is_copy(s) else None
    text = written or update_text(s.write, s.expr, s.reduction)
    text = " ".join(str(text).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def _is_copy(s: Statement) -> bool:
    return isinstance(s.expr, Load) and s.reduction is None


def _solid(scop: Scop, plane: Plane, title: str) -> Picture:
    fig = new_picture(WIDTH, 5.2)
    ax: Any = fig.add_subplot(projection="3d")
    ax.set_title(title, fontsize=11, loc="left")
    for k, s in enumerate(plane.found):
        spots = plane.spots(s)
        area = float(np.clip(9000 / max(len(spots), 1), 1.0, 45.0))
        face = STATEMENTS[k % len(STATEMENTS)]
        dots = ax.scatter(*spots.T, s=area, c=face, marker=MARKERS[k % len(MARKERS)], depthshade=len(spots) < 5000, linewidths=0)
        dots.set_gid(f"points:{s}")
    for name, label, axis in zip(plane.axes, (ax.set_xlabel, ax.set_ylabel, ax.set_zlabel), (ax.xaxis, ax.yaxis, ax.zaxis)):
        label(name, fontsize=11)
        axis.get_major_locator().set_params(integer=True)
        axis.set_pane_color((1, 1, 1, 0))
        axis._axinfo["grid"].update(color=GREY, linewidth=0.3)
    ax.view_init(elev=22, azim=-58)
    legend_right(ax, statement_handles(scop, plane))
    return fig
