"""Pictures of the execution order: a path through the instances in the order of their dates, numbered, or growing step by step.

Takes a Scop at concrete parameters; gives a picture, or an animation as HTML or GIF. The order is that of isl's schedule map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from ..errors import OutputError, UserError
from ..ir.scop import Scop
from .domains import lattice, statement_handles
from .figure import BLUE, GREY, LIGHT, RED, Picture, draw_dots, ink_on, legend_right, marker_size, shades, titled
from .place import Plane, make_plane
from .points import choose_params, ranks

Array = np.ndarray[Any, Any]
NUMBERED = 150  # instances, at most, with their number beside the path
MOST_FRAMES = 400


def order(
    scop: Scop,
    params: Mapping[str, int] | None = None,
    statement: str | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
) -> Picture:
    """The execution order as a path from light to dark. Instances are numbered from 0 where there are few. Arguments as in `domain`."""
    values, plane, places, numbers = _path(scop, params, statement, axes, at)
    title = titled(f"order of {scop.name}", values, "; ".join(x for x in (f"{len(places)} instances", plane.note()) if x))
    fig, ax = lattice(plane, title)
    steps = list(np.stack([places[:-1], places[1:]], axis=1)) if len(places) > 1 else []
    colours = shades(list(range(max(len(steps), 1))), "#9BD0F0", "#08306B")
    path = LineCollection(steps, colors=colours, linewidths=1.6 if len(places) <= NUMBERED else 0.8, zorder=2)
    path.set_gid("path")
    ax.add_collection(path)
    area = _area(ax, fig)
    if len(places) <= NUMBERED:
        dots = ax.scatter(places[:, 0], places[:, 1], s=max(area, 110), c=numbers, cmap=_colormap(len(places)), zorder=3, linewidths=0)
        dots.set_gid("points")
        for (x, y), n, colour in zip(places.tolist(), range(len(places)), shades(list(range(len(places))))):
            ax.text(x, y, str(numbers[n]), fontsize=7, ha="center", va="center", color=ink_on(colour), zorder=4)
    else:
        draw_dots(ax, places, area / 3, GREY, "o", "points")
    for k, (name, where) in enumerate((("first", places[0]), ("last", places[-1]))):
        ax.annotate(name, where, xytext=(-9, -13) if k == 0 else (9, 9), textcoords="offset points", fontsize=9, color=RED, ha="center", zorder=6)
    return fig


def animation(
    scop: Scop,
    to: str | Path | None = None,
    params: Mapping[str, int] | None = None,
    statement: str | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
    interval: int = 120,
) -> str:
    """The execution order step by step, `interval` milliseconds a frame: the HTML text of a player, or, with `to`, a `.gif` or `.html` file whose
    path is given.

    Raises UserError for another suffix, OutputError for a file that cannot be written."""
    target = Path(to) if to is not None else None
    if target is not None and target.suffix not in (".gif", ".html"):
        raise UserError(f"animation: {target.name} must end in .gif or .html")
    values, plane, places, _ = _path(scop, params, statement, axes, at)
    fig, ax = lattice(plane, titled(f"order of {scop.name}", values, plane.note()))
    draw_dots(ax, places, _area(ax, fig), LIGHT, "o", "waiting")
    (done,) = ax.plot([], [], linestyle="none", marker="o", markersize=_area(ax, fig) ** 0.5, color=BLUE, markeredgewidth=0, zorder=4)
    (now,) = ax.plot([], [], linestyle="none", marker="o", markersize=1.25 * _area(ax, fig) ** 0.5, color=RED, markeredgewidth=0, zorder=5)
    legend_right(ax, statement_handles(scop, plane, BLUE))
    stride = -(-len(places) // MOST_FRAMES)

    def frame(k: int) -> tuple[Any, Any]:
        n = min(k * stride, len(places) - 1)
        done.set_data(places[: n + 1, 0], places[: n + 1, 1])
        now.set_data(places[n : n + 1, 0], places[n : n + 1, 1])
        return done, now

    frames = -(-(len(places) - 1) // stride) + 1
    film = FuncAnimation(fig, frame, frames=frames, interval=interval, blit=False, repeat=True)
    return _write(film, target, interval)


def _write(film: FuncAnimation, target: Path | None, interval: int) -> str:
    try:
        if target is not None and target.suffix == ".gif":
            film.save(target, writer=PillowWriter(fps=max(1, round(1000 / interval))))
            return str(target)
        text = str(film.to_jshtml(default_mode="once"))
        if target is None:
            return text
        target.write_text(text)
    except OSError as e:
        raise OutputError(f"animation: {target} cannot be written: {e.strerror}") from None
    return str(target)


def _path(
    scop: Scop, params: Mapping[str, int] | None, statement: str | None, axes: Sequence[str] | None, at: Mapping[str, int] | None
) -> tuple[dict[str, int], Plane, Array, Array]:
    """Parameters, plane, the places of the shown instances in order, and their numbers in the whole execution."""
    values = choose_params(scop, params, (6, 5, 4, 8, 3, 10, 12, 16, 2, 1))
    plane = make_plane(scop, values, [statement] if statement is not None else None, axes, at)
    position = ranks(scop, values)
    places, numbers = [], []
    for s, f in plane.found.items():
        keep = plane.shown(s, f.points)
        places.append(plane.at(s, f.points[keep]))
        numbers.append(position[s][keep])
    where, when = np.concatenate(places), np.concatenate(numbers)
    if not len(where):
        raise UserError(f"{scop.name} has no instances to order in this slice: choose other at= or params=")
    sequence = np.argsort(when)
    return values, plane, where[sequence], when[sequence]


def _area(ax: Any, fig: Picture) -> float:
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    return marker_size(x1 - x0, y1 - y0, *fig.get_size_inches())


def _colormap(n: int) -> ListedColormap:
    return ListedColormap(shades(list(range(max(n, 2)))))
