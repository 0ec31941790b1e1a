"""The picture of a refusal: the two instances that clash, in red, among all dependences of the program as it was.

Takes the Scop before the refused step and the violation that the error carries; gives a picture with the dates before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..errors import UserError
from ..ir.scop import Scop, Violation
from .arrows import dependences_of, moving_axes
from .domains import draw_points, lattice
from .figure import BLACK, GREY, RED, Picture, draw_arrows, legend_right, titled
from .place import Plane, main_statements, make_plane
from .points import choose_params, instances, pairs_between


def violation(
    scop: Scop, witness: Violation, params: Mapping[str, int] | None = None, axes: Sequence[str] | None = None, at: Mapping[str, int] | None = None
) -> Picture:
    """Why a step was refused. `witness` is the error's `.violation`; `params` may be larger than those of the witness, so that more is seen."""
    if not isinstance(witness, Violation):
        raise UserError("violation: give the .violation of the IllegalSchedule that was raised")
    values = _sizes(scop, witness, params or {})
    deps = dependences_of(scop)
    shown = list(dict.fromkeys([*main_statements(scop), witness.source[0], witness.sink[0]]))
    chosen = axes if axes is not None else moving_axes(scop, deps, at, shown)
    plane = make_plane(scop, values, shown, chosen, at)
    fig, ax = lattice(plane, titled(f"{witness.step} refused", values, plane.note()))
    starts, ends = [], []
    for source, sink, a, b in pairs_between(deps.all(reassociate=True), values):
        if source not in plane.found or sink not in plane.found:
            continue
        keep = plane.shown(source, a) & plane.shown(sink, b)
        starts.append(plane.at(source, a[keep]))
        ends.append(plane.at(sink, b[keep]))
    if starts:
        a, b = np.concatenate(starts), np.concatenate(ends)
        moved = np.any(a != b, axis=1)
        draw_arrows(ax, a[moved], b[moved], "#C4C4C4", "solid", "others", width=0.8)
    draw_points(ax, plane, fig, GREY)
    _draw_witness(plane, ax, witness)
    fig.text(0.0, -0.02, _words(witness), fontsize=9, va="top", ha="left", color=BLACK, wrap=False)
    legend_right(ax, [])
    return fig


def _sizes(scop: Scop, w: Violation, params: Mapping[str, int]) -> dict[str, int]:
    """The caller's sizes, and for the others the witness's, at least 6 where the witness exists there too."""
    own = {k: v for k, v in w.params.items() if k in scop.params}
    for least in (6, 0):
        values = choose_params(scop, {**{k: max(v, least) for k, v in own.items()}, **params})
        if all(list(point) in instances(scop, name, values).points.tolist() for name, point in (w.source, w.sink)):
            return values
    raise UserError(f"violation: the two instances do not exist at {params}; leave params= out, or give larger ones")


def _draw_witness(plane: Plane, ax: Axes, w: Violation) -> None:
    ends: list[Any] = []
    up = 1 if _height(plane, w.source) >= _height(plane, w.sink) else -1
    for (name, point), before, after, dy in ((w.source, w.before[0], w.after[0], up), (w.sink, w.before[1], w.after[1], -up)):
        where = plane.at(name, np.array([point]))
        ends.append(where)
        ax.scatter(where[:, 0], where[:, 1], s=130, c=RED, zorder=6, linewidths=0, gid=f"witness:{name}{list(point)}")
        label = f"{name}({', '.join(map(str, point))})\n{_date(before)} → {_date(after)}"
        ax.annotate(
            label, where[0], xytext=(14, 26 * dy), textcoords="offset points", fontsize=9, color=RED, zorder=7, va="center",
            bbox={"facecolor": "white", "edgecolor": RED, "boxstyle": "round,pad=0.25", "linewidth": 0.8},
        )  # fmt: skip
    draw_arrows(ax, ends[0], ends[1], RED, "solid", "witness", width=2.4, gap=0.2)


def _height(plane: Plane, instance: tuple[str, tuple[int, ...]]) -> float:
    return float(plane.at(instance[0], np.array([instance[1]]))[0, 1])


def _date(date: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, date))}]" if date else "unordered"


def _words(w: Violation) -> str:
    def instance(x: tuple[str, tuple[int, ...]]) -> str:
        return f"{x[0]}({', '.join(map(str, x[1]))})"

    if w.after[0] == w.after[1]:
        would = f"would be {_date(w.after[0])} for both: unordered" if w.after[0] else "would be none: unordered"
    else:
        would = f"would be {_date(w.after[0])} > {_date(w.after[1])}"
    cell = f" through {w.cell[0]}[{', '.join(map(str, w.cell[1]))}]" if w.cell else ""
    lines = [
        f"A {w.kind} dependence{cell}: {instance(w.source)} must run before {instance(w.sink)}.",
        f"Dates (before → after the step) were {_date(w.before[0])} < {_date(w.before[1])}, and {would}.",
    ]
    return "\n".join([*lines, *([f"Repair: {w.repair}."] if w.repair else [])])
