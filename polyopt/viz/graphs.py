"""Pictures of graphs and fusion plans: one box a node, or a kernel, in execution order; arrows for the tensors that go from one to another.

Takes a Graph or a Plan; gives a picture. Large models are shown in parts (`first`, `count`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Arc, FancyBboxPatch

from ..ir.graph import Graph, Node, Plan
from .figure import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, STATEMENTS, Picture, new_picture, plain_axes

ROW, WIDTH_BOX = 0.36, 5.2  # inches


@dataclass(frozen=True)
class Item:
    """A box: its text, what it reads and writes, whether it joins several nodes."""

    text: str
    note: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    size: int = 1


def graph(value: Graph, first: int = 0, count: int = 40) -> Picture:
    """The nodes of a graph in order with the shapes of their results, `count` of them from number `first`."""
    items = [Item(n.op, f"{n.name}  {_shape(value, n.outputs)}", n.inputs, n.outputs) for n in value.nodes]
    return _draw(items, f"graph {value.name}", "nodes", first, count)


def plan(value: Plan, first: int = 0, count: int = 40) -> Picture:
    """The kernels of a plan in order: which nodes each joins, and the shapes of its results."""
    items = [
        Item(_joined(g.nodes), f"{g.name}  {_shape(value.graph, g.outputs)}", g.inputs, g.outputs, len(g.nodes)) for g in value.groups
    ]  # fmt: skip
    return _draw(items, f"plan of {value.graph.name}: {len(value.graph.nodes)} nodes in {len(items)} kernels", "kernels", first, count)


def _joined(nodes: Sequence[Node]) -> str:
    """ "Conv + Relu", repeats counted."""
    parts: list[list[object]] = []
    for n in nodes:
        if parts and parts[-1][0] == n.op:
            parts[-1][1] = int(str(parts[-1][1])) + 1
        else:
            parts.append([n.op, 1])
    return " + ".join(str(op) if k == 1 else f"{k} {op}" for op, k in parts)


def _shape(g: Graph, outputs: Sequence[str]) -> str:
    known = [g.values[o] for o in outputs if o in g.values]
    return ", ".join("×".join(map(str, v.shape)) if v.shape else "scalar" for v in known if v.shape is not None)


def _draw(items: Sequence[Item], title: str, what: str, first: int, count: int) -> Picture:
    part = list(items[first : first + count])
    if len(part) < len(items):
        title += f" ({what} {first} to {first + len(part) - 1} of {len(items)})"
    links = edges(items, first, first + len(part))
    height = max(len(part), 1) * ROW
    fig = new_picture(8.0, height + 0.5)
    ax = fig.add_subplot()
    plain_axes(ax, title)
    ax.set_xlim(-0.1, 7.7)
    ax.set_ylim(height, 0)
    for k, item in enumerate(part):
        _box(ax, item, k)
    for a, b in sorted(links):
        _edge(ax, a - first, b - first)
    return fig


def edges(items: Sequence[Item], first: int, last: int) -> set[tuple[int, int]]:
    """Pairs of items, the second of which reads what the first writes, both in [first, last)."""
    writer: Mapping[str, int] = {o: k for k, item in enumerate(items) for o in item.writes if o}
    pairs = {(writer[i], k) for k, item in enumerate(items) for i in item.reads if i in writer}
    return {(a, b) for a, b in pairs if first <= a < last and first <= b < last}


def _box(ax: Axes, item: Item, k: int) -> None:
    colour = GREY if item.size == 1 else BLUE if item.size < 4 else PURPLE
    y = k * ROW + 0.06
    shape = FancyBboxPatch(
        (0, y), WIDTH_BOX, ROW - 0.12, boxstyle="round,pad=0,rounding_size=0.05", facecolor="white", edgecolor=colour, linewidth=1.3
    )
    shape.set_gid(f"item:{item.text}")
    ax.add_patch(shape)
    text = _cut(item.text, 34)
    ax.text(0.08, y + (ROW - 0.12) / 2, text, fontsize=9, va="center", ha="left", weight="bold")
    ax.text(WIDTH_BOX - 0.08, y + (ROW - 0.12) / 2, _cut(item.note, 70 - len(text)), fontsize=7.5, va="center", ha="right", color="#444444")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[-width + 1 :] if width < 30 else text[: width - 1] + "…"


def _edge(ax: Axes, a: int, b: int) -> None:
    """An arrow to the next row, or an arc at the right side to a later one."""
    if b == a + 1:
        ax.annotate(
            "", (WIDTH_BOX / 2, b * ROW + 0.07), (WIDTH_BOX / 2, a * ROW + ROW - 0.06), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.0}
        )
        return
    top, bottom = (a + 0.62) * ROW, (b + 0.38) * ROW
    wide = min(0.5 + 0.16 * (b - a), 4.4)
    colour = (ORANGE, GREEN, SKY, PURPLE)[a % 4] if b - a > 2 else STATEMENTS[0]
    ax.add_patch(Arc((WIDTH_BOX, (top + bottom) / 2), wide, bottom - top, theta1=-90, theta2=90, color=colour, linewidth=1.2))
    ax.plot([WIDTH_BOX + 0.01], [bottom], marker="<", markersize=5, color=colour, linestyle="none")
