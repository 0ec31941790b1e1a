"""Pictures of schedule trees and loop nests: boxes from left to right, parts of a sequence from top to bottom, as in the code.

Takes a Scop (its isl schedule tree, read as loops, sequences and statements) or a LoopNest; gives a picture. A loop's line says its date where
that is more than its own iterator, and its mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import islpy as isl
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from ..ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch
from ..ir.scop import Scop
from ..ir.text import access_text, expr_text, update_text
from ..isl_ext import IN, maps_of
from ..poly.convert import from_aff
from ..verbs.tree import Leaf, Member, Seq, Tree, read_tree, split_chain
from .domains import statement_line
from .figure import BLUE, GREEN, GREY, ORANGE, PURPLE, WIDTH, Picture, new_picture, plain_axes

CHAR, LINE, PAD, GAP_X, GAP_Y, INDENT = 0.077, 0.165, 0.09, 0.34, 0.12, 0.3  # inches, at font size 9
WIDEST = 46  # characters of a line
COLOURS = {"domain": GREY, "sequence": GREEN, "band": BLUE, "statement": ORANGE, "other": PURPLE}


@dataclass(frozen=True)
class Box:
    """A node of the drawing: its kind (see COLOURS), its lines of text, its parts."""

    kind: str
    lines: tuple[str, ...]
    parts: tuple[Box, ...] = field(default=())


def tree(scop: Scop) -> Picture:
    """The schedule tree: domain, sequences, loops with their dates and marks, statements."""
    names = tuple(s.name for s in scop.statements)
    listed = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    root = Box("domain", ("domain", listed), (schedule_box(scop, read_tree(scop.schedule)),))
    return draw_boxes(root, f"schedule tree of {scop.name}")


def nest_tree(nest: LoopNest) -> Picture:
    """The loops, guards and statements of a loop nest."""
    root = Box("domain", (nest.name, f"({', '.join([*nest.params, *(t.name for t in nest.arguments())])})"), _nest_parts(nest.body))
    return draw_boxes(root, f"loops of {nest.name}")


# ---- schedule trees
def schedule_box(scop: Scop, part: Tree) -> Box:
    """The boxes of a part of a schedule tree; loops that hold one another are one box."""
    if isinstance(part, Leaf):
        return Box("statement", tuple(f"{s}: {statement_line(scop, scop.statement(s), WIDEST - len(s) - 2)}" for s in part.statements))
    if isinstance(part, Seq):
        return Box("sequence", ("sequence",), tuple(schedule_box(scop, p) for p in part.parts))
    members, below = split_chain(part)
    return Box("band", tuple(_loop_line(scop, m) for m in members), (schedule_box(scop, below),))


def _loop_line(scop: Scop, m: Member) -> str:
    dates = loop_dates(scop, m)
    texts = list(dict.fromkeys(dates.values()))
    if texts == [m.name]:
        said = m.name
    elif len(texts) == 1:
        said = f"{m.name}: {texts[0]}"
    else:
        said = f"{m.name}: " + "; ".join(f"{t} for {', '.join(s for s in dates if dates[s] == t)}" for t in texts)
    mark = f"  [{m.mark}]" if m.mark else ""
    return (said if len(said) <= WIDEST else said[: WIDEST - 1] + "…") + mark


def loop_dates(scop: Scop, m: Member) -> dict[str, str]:
    """By statement, the date that a loop gives to its instances, as text."""
    out = {}
    for one in maps_of(isl.UnionMap.from_union_pw_aff(m.upa)):
        s = scop.statement(one.get_tuple_name(IN))
        pieces = one.as_pw_multi_aff().get_pw_aff(0).get_pieces()
        text = " or ".join(dict.fromkeys(str(from_aff(aff.gist(where), s.iters)) for where, aff in pieces))
        out[s.name] = re.sub(r"floor\(\((\w+)\)/", r"floor(\1/", text)
    return out


# ---- loop nests
def _nest_parts(nodes: Sequence[LoopNode]) -> tuple[Box, ...]:
    return tuple(_nest_box(n) for n in nodes)


def _nest_box(n: LoopNode) -> Box:
    if isinstance(n, Loop):
        lines = [_header(n)]
        while len(n.body) == 1 and isinstance(n.body[0], Loop):
            n = n.body[0]
            lines.append(_header(n))
        return Box("band", tuple(lines), _nest_parts(n.body))
    if isinstance(n, If):
        orelse = (Box("other", ("else",), _nest_parts(n.orelse)),) if n.orelse else ()
        return Box("other", (_cut(f"if {expr_text(n.cond)}"),), (*_nest_parts(n.body), *orelse))
    if isinstance(n, Instance):
        return Box("statement", (_cut(f"{n.statement}: {update_text(n.write, n.expr, n.reduction)}"),))
    if isinstance(n, Declare):
        return Box("other", (f"buffer {n.tensor}",))
    assert isinstance(n, Prefetch)
    return Box("other", (_cut(f"prefetch {access_text(n.access)}"),))


def _header(n: Loop) -> str:
    low = str(n.lower[0]) if len(n.lower) == 1 else f"max({', '.join(map(str, n.lower))})"
    high = str(n.upper[0]) if len(n.upper) == 1 else f"min({', '.join(map(str, n.upper))})"
    step = f" by {n.step}" if n.step != 1 else ""
    return _cut(f"for {n.var} in {low} .. {high}{step}") + (f"  [{n.mark}]" if n.mark else "")


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


# ---- drawing
def draw_boxes(root: Box, title: str) -> Picture:
    """A tree of boxes, the root at the left; as an indented outline where that would be too wide. Each box has the gid `<kind>:<first line>`."""
    columns: list[float] = []
    _measure(root, 0, columns)
    left = [0.0]
    for w in columns:
        left.append(left[-1] + w + GAP_X)
    width, height = left[-1] - GAP_X, _height(root)
    outline = width > 1.25 * WIDTH
    if outline:
        width, height = _outline_size(root, 0)
    fig = new_picture(max(width + 0.2, 3.0), height + 0.55)
    ax = fig.add_subplot()
    plain_axes(ax, title)
    ax.set_xlim(-0.05, max(width + 0.05, 2.8))
    ax.set_ylim(height + 0.05, -0.05)
    ax.set_aspect("equal")
    if outline:
        _draw_outline(ax, root, 0, 0.0)
    else:
        _draw(ax, root, 0, 0.0, left)
    return fig


def _outline_size(box: Box, depth: int) -> tuple[float, float]:
    below = [_outline_size(p, depth + 1) for p in box.parts]
    width = max([depth * INDENT + _box_width(box), *(w for w, _ in below)])
    return width, _box_height(box) + GAP_Y + sum(h for _, h in below)


def _draw_outline(ax: Axes, box: Box, depth: int, top: float) -> float:
    """Draw a subtree as an outline from `top` on; gives where it ends."""
    x, y = depth * INDENT, top + _box_height(box) + GAP_Y
    _draw_box(ax, box, x, top + _box_height(box) / 2)
    for p in box.parts:
        at = y + _box_height(p) / 2
        ax.plot([x + INDENT / 2, x + INDENT / 2, x + INDENT], [top + _box_height(box), at, at], color=GREY, linewidth=1.0, zorder=1)
        y = _draw_outline(ax, p, depth + 1, y)
    return y


def _measure(box: Box, depth: int, columns: list[float]) -> None:
    if depth == len(columns):
        columns.append(0.0)
    columns[depth] = max(columns[depth], _box_width(box))
    for p in box.parts:
        _measure(p, depth + 1, columns)


def _box_width(box: Box) -> float:
    return max(len(x) for x in box.lines) * CHAR + 2 * PAD


def _box_height(box: Box) -> float:
    return len(box.lines) * LINE + PAD


def _height(box: Box) -> float:
    below = sum(_height(p) for p in box.parts) + GAP_Y * max(len(box.parts) - 1, 0)
    return max(_box_height(box), below)


def _draw(ax: Axes, box: Box, depth: int, top: float, left: Sequence[float]) -> float:
    """Draw a subtree whose space begins at `top`; gives the middle of its box."""
    total = _height(box)
    middle, y = top + total / 2, top + (total - sum(map(_height, box.parts)) - GAP_Y * max(len(box.parts) - 1, 0)) / 2
    x, width = left[depth], _box_width(box)
    _draw_box(ax, box, x, middle)
    for p in box.parts:
        at = _draw(ax, p, depth + 1, y, left)
        start, elbow, end = x + width, left[depth + 1] - GAP_X / 2, left[depth + 1]
        ax.plot([start, elbow, elbow, end], [middle, middle, at, at], color=GREY, linewidth=1.0, zorder=1, solid_joinstyle="round")
        y += _height(p) + GAP_Y
    return middle


def _draw_box(ax: Axes, box: Box, x: float, middle: float) -> None:
    width, height = _box_width(box), _box_height(box)
    shape = FancyBboxPatch(
        (x, middle - height / 2),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.05",
        facecolor="white",
        edgecolor=COLOURS[box.kind],
        linewidth=1.5,
        zorder=2,
    )
    shape.set_gid(f"{box.kind}:{box.lines[0]}")
    ax.add_patch(shape)
    for k, line in enumerate(box.lines):
        at = middle + (k - (len(box.lines) - 1) / 2) * LINE
        ax.text(x + PAD, at, line, fontsize=9, family="monospace", va="center", ha="left", zorder=3)
