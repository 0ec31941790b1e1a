"""The look of all pictures: figure, palette, labels, legends. matplotlib is imported by `polyopt.viz` alone; this module refuses first, in one
line, where it is missing.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; kinds differ by line style or marker as well. A `Picture` is a
matplotlib figure that shows itself in a notebook, without pyplot and its global state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OutputError, UserError

try:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
except ImportError:
    raise UserError("pictures need matplotlib: pip install 'polyopt[notebooks]'") from None

Array = np.ndarray[Any, Any]

# Okabe and Ito 2008, Color Universal Design
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT = "#8A8A8A", "#DDDDDD"
STATEMENTS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
TILES = (SKY, ORANGE, GREEN, YELLOW, BLUE, PURPLE, RED, GREY)
KINDS: Mapping[str, tuple[str, Any]] = {  # colour and line style of each kind of dependence
    "flow": (BLUE, "solid"),
    "anti": (RED, (0, (4, 2))),
    "output": (GREEN, (0, (1, 1.2))),
    "reduction": (PURPLE, (0, (5, 1.5, 1, 1.5))),
}
WIDTH = 8.0  # inches: the width of a notebook's output
DPI = 110


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook (PNG) and saves itself with `save("x.svg")` or `save("x.png")`."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"image/png": self.png(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        title = self.get_suptitle() or next((a.get_title(loc="left") for a in self.axes), "")
        return f"<picture: {title}>"

    def png(self) -> bytes:
        """The picture as PNG."""
        return self._rendered("png")

    def svg(self) -> str:
        """The picture as SVG, the same text for the same picture."""
        return self._rendered("svg").decode()

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says how (svg, png or pdf)."""
        target = Path(path)
        if target.suffix not in (".svg", ".png", ".pdf"):
            raise UserError(f"save: {target.name} must end in .svg, .png or .pdf")
        try:
            target.write_bytes(self._rendered(target.suffix[1:]))
        except OSError as e:
            raise OutputError(f"save: {target} cannot be written: {e.strerror}") from None
        return target

    def _rendered(self, kind: str) -> bytes:
        out = BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        self.savefig(out, format=kind, dpi=DPI, metadata=metadata, bbox_inches="tight", pad_inches=0.08)
        return out.getvalue()


def new_picture(width: float = WIDTH, height: float = 4.0) -> Picture:
    """An empty picture, sizes in inches."""
    fig = Picture(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(fig)
    return fig


def plain_axes(ax: Axes, title: str = "") -> None:
    """Axes without frame, ticks or grid, for drawings of boxes."""
    ax.set_axis_off()
    if title:
        ax.set_title(title, fontsize=11, loc="left")


def lattice_axes(ax: Axes, title: str, x: str, y: str | None) -> None:
    """Axes of an integer lattice: whole ticks, no grid, equal units."""
    ax.set_title(title, fontsize=11, loc="left")
    ax.set_xlabel(x, fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    if y is None:
        ax.yaxis.set_visible(False)
        ax.spines["left"].set_visible(False)
    else:
        ax.set_ylabel(y, fontsize=11, rotation=0, labelpad=10)
        ax.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    ax.tick_params(labelsize=9)


def lattice_size(span_x: float, span_y: float, room: float = 0.9, legend: float = 1.6) -> tuple[float, float, bool]:
    """Width and height in inches for a lattice of these spans, and whether units should be equal: the picture keeps to a notebook's width."""
    ratio = (span_y + 1) / (span_x + 1)
    equal = 0.25 <= ratio <= 3.0
    width = WIDTH
    height = (width - legend - room) * min(max(ratio, 0.16), 0.85) + room
    return width, max(height, 1.9), equal


def marker_size(n_x: float, n_y: float, width: float, height: float) -> float:
    """The area of a point's marker in points², so that neighbours do not touch."""
    step = 72 * min((width - 2.2) / (n_x + 1), (height - 0.9) / (n_y + 1))
    return float(np.clip((0.36 * step) ** 2, 0.6, 90.0))


def params_text(params: Mapping[str, int]) -> str:
    """ "N = 8, T = 4", equal values joined: "M = N = 8"."""
    by_value: dict[int, list[str]] = {}
    for k, v in params.items():
        by_value.setdefault(v, []).append(k)
    return ", ".join(" = ".join([*names, str(v)]) for v, names in by_value.items())


def titled(what: str, params: Mapping[str, int], note: str = "") -> str:
    """A title: what is drawn, at which sizes."""
    at = params_text(params)
    return what + (f" at {at}" if at else "") + (f": {note}" if note else "")


def legend_right(ax: Axes, handles: Sequence[Any], title: str = "") -> None:
    """A legend beside the axes, where it covers nothing."""
    if handles:
        found = ax.legend(handles=list(handles), loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9, title=title or None)
        found.get_title().set_fontsize(9)
        found._legend_box.align = "left"  # type: ignore[attr-defined]


def shades(values: Sequence[float], low: str = "#D7ECF8", high: str = "#08306B") -> list[tuple[float, float, float]]:
    """Colours from light to dark for values from least to greatest: a sequence that also reads in grey."""
    a, b = np.array(to_rgb(low)), np.array(to_rgb(high))
    lo, hi = (min(values), max(values)) if len(values) else (0.0, 0.0)
    t = [(v - lo) / (hi - lo) if hi > lo else 0.5 for v in values]
    return [(float(c[0]), float(c[1]), float(c[2])) for c in (a + (b - a) * x for x in t)]


def ink_on(colour: Any) -> str:
    """Black or white, whichever reads on a colour."""
    r, g, b = to_rgb(colour)
    return "white" if 0.299 * r + 0.587 * g + 0.114 * b < 0.52 else "black"


def draw_dots(ax: Axes, at: Array, area: float, colour: Any, marker: str, gid: str) -> None:
    """Points of one colour, as a line of markers: for many points far quicker than a scatter."""
    (dots,) = ax.plot(at[:, 0], at[:, 1], linestyle="none", marker=marker, markersize=area**0.5, color=colour, markeredgewidth=0, zorder=3)
    dots.set_gid(gid)
    dots.set_rasterized(len(at) > 5000)


def draw_arrows(ax: Axes, a: Array, b: Array, colour: str, style: Any, gid: str, bend: float = 0.0, width: float = 1.1, gap: float = 0.16) -> None:
    """Arrows from the rows of `a` to those of `b` in one collection, bent aside by `bend` of their length; `gap` is left free at both ends."""
    if not len(a):
        return
    a, b = a.astype(float), b.astype(float)
    d = b - a
    length = np.hypot(d[:, 0], d[:, 1])[:, None]
    unit = d / np.maximum(length, 1e-9)
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    scale = max(1.0, (abs(x1 - x0) + abs(y1 - y0)) / 28)  # heads and gaps keep their size on paper in large pictures
    cut = np.minimum(gap * scale, 0.3 * length)
    normal = np.column_stack([-unit[:, 1], unit[:, 0]])
    middle = (a + b) / 2 + normal * bend * length * 2
    t = np.linspace(0, 1, 2 if bend == 0 else 14)[None, :, None]
    start, end = a + unit * cut, b - unit * cut
    curve = (1 - t) ** 2 * start[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * end[:, None] if bend else np.stack([start, end], axis=1)
    lines = LineCollection(list(curve), colors=colour, linestyles=[style], linewidths=width, zorder=2, clip_on=False)
    lines.set_gid(gid)
    ax.add_collection(lines)
    _heads(ax, curve, colour, width, 0.13 * scale)


def _heads(ax: Axes, curve: Array, colour: str, width: float, size: float) -> None:
    """Arrow heads at the ends of curves."""
    tip, before = curve[:, -1], curve[:, -2]
    d = tip - before
    d = d / np.maximum(np.hypot(d[:, 0], d[:, 1])[:, None], 1e-9)
    side = np.column_stack([-d[:, 1], d[:, 0]])
    left, right = tip - d * size + side * size * 0.45, tip - d * size - side * size * 0.45
    wings = np.stack([left, tip, right], axis=1)
    heads = LineCollection(list(wings), colors=colour, linewidths=width, zorder=2, capstyle="round", joinstyle="miter", clip_on=False)
    ax.add_collection(heads)
