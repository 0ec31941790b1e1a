"""The picture of a memory plan: each buffer of the arena a box over the kernel calls that it lives through (across) and its bytes (up).

Takes a Program. Boxes that overlap would be a defect of the plan; buffers of symbolic size are drawn in their slots, at given dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from matplotlib.patches import Rectangle

from ..errors import UserError
from ..ir.program import Buffer, Program
from ..passes.memory import ALIGNMENT, live_ranges
from .figure import RED, TILES, Picture, new_picture, titled

UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True)
class Region:
    """A buffer's place: bytes [start, start + size), live from call `first` to call `last`."""

    name: str
    start: int
    size: int
    first: int
    last: int


def memory(program: Program, dims: Mapping[str, int] | None = None) -> Picture:
    """The memory plan of a program over its calls, with the bytes in use at each. `dims`: sizes of symbolic dims (1 where left open)."""
    sizes = {d: int((dims or {}).get(d, 1)) for d in program.dims}
    for d in dims or {}:
        if d not in program.dims:
            raise UserError(f"dims: {program.name} has no dim {d!r}; its dims are {', '.join(program.dims) or 'none'}")
    regions = find_regions(program, sizes)
    top = max((r.start + r.size for r in regions), default=0)
    used = bytes_in_use(regions, len(program.calls))
    unit, word = next(((u, w) for u, w in UNITS if top >= 4 * u), (1, "bytes"))
    fig = new_picture(8.0, 4.2)
    ax = fig.add_subplot()
    note = f"{len(regions)} buffers, arena {top / unit:.3g} {word}, at most {max(used, default=0) / unit:.3g} in use at once"
    ax.set_title(titled(f"memory of {program.name}", sizes, note), fontsize=11, loc="left")
    for k, r in enumerate(sorted(regions, key=lambda r: (r.first, r.start))):
        box = Rectangle(
            (r.first - 0.5, r.start / unit),
            r.last - r.first + 1,
            r.size / unit,
            facecolor=TILES[k % len(TILES)],
            alpha=0.55,
            edgecolor="white",
            lw=0.8,
        )
        box.set_gid(f"buffer:{r.name}")
        ax.add_patch(box)
        if r.size > 0.06 * top and (r.last - r.first + 1) > 0.07 * max(len(program.calls), 1):
            room = max(5, int((r.last - r.first + 1) / max(len(program.calls), 1) * 85))
            label = r.name if len(r.name) <= room else "…" + r.name[-room + 1 :]
            ax.text((r.first + r.last) / 2, (r.start + r.size / 2) / unit, label, fontsize=7, ha="center", va="center")
    calls = np.arange(len(program.calls))
    (line,) = ax.step(calls, np.array(used) / unit, where="mid", color=RED, linewidth=1.6, label="in use")
    line.set_gid("in use")
    ax.axhline(top / unit, color="black", linewidth=0.9, linestyle=(0, (4, 3)), label="size of the arena")
    ax.set_xlim(-0.6, max(len(program.calls), 1) - 0.4)
    ax.set_ylim(0, max(top / unit, 1e-9) * 1.06)
    ax.set_xlabel("kernel call", fontsize=10)
    ax.set_ylabel(word, fontsize=10)
    ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.13), ncols=2, frameon=False, fontsize=9)
    return fig


def find_regions(program: Program, sizes: Mapping[str, int]) -> list[Region]:
    """Where each buffer that a call uses lies, slots one after another behind the part of known size."""
    live = live_ranges(program.calls)
    starts = _slot_starts(program, sizes)
    out = []
    for b in program.buffers:
        if b.name in live:
            start = b.offset if b.slot < 0 else starts[b.slot] + b.offset
            out.append(Region(b.name, start, _bytes(b, sizes), *live[b.name]))
    return out


def _slot_starts(program: Program, sizes: Mapping[str, int]) -> dict[int, int]:
    largest: dict[int, int] = {}
    for b in program.buffers:
        if b.slot >= 0:
            largest[b.slot] = max(largest.get(b.slot, 0), _bytes(b, sizes))
    out, at = {}, program.arena_bytes
    for slot in sorted(largest):
        out[slot] = at
        at += -(-largest[slot] // ALIGNMENT) * ALIGNMENT
    return out


def _bytes(b: Buffer, sizes: Mapping[str, int]) -> int:
    return prod(x.evaluate(sizes) for x in b.elements) * b.itemsize


def bytes_in_use(regions: Sequence[Region], calls: int) -> list[int]:
    """The sum of the live buffers at each call."""
    return [sum(r.size for r in regions if r.first <= k <= r.last) for k in range(calls)]
