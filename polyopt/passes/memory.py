"""Place every intermediate tensor in one arena: buffers that are never live together share bytes.

Takes kernel calls in order and the size of each arena buffer; gives `Buffer`s. Sizes known at compile time are placed greedily, the largest
first, each in the smallest gap that fits between buffers live at the same time (Pisarchyk and Lee 2020, "greedy by size"). Buffers
of symbolic size share slots, each as large as its largest buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..ir.affine import Affine
from ..ir.program import Buffer, KernelCall

ALIGNMENT = 64
Size = tuple[tuple[Affine, ...], int]


def plan_memory(calls: Sequence[KernelCall], sizes: Mapping[str, Size]) -> tuple[tuple[Buffer, ...], int]:
    """The buffers that the calls use, and the bytes of the part of the arena whose size is known."""
    live = live_ranges(calls)
    static = {n: _bytes(s) for n, s in sizes.items() if n in live and all(d.is_const for d in s[0])}
    placed = _place(static, live)
    slots = _slots({n: s for n, s in sizes.items() if n in live and n not in static}, live)
    buffers = tuple(
        Buffer(n, sizes[n][0], sizes[n][1], placed.get(n, 0), slots.get(n, -1)) for n in sizes if n in live
    )  # fmt: skip
    return buffers, max((placed[n] + _round(b) for n, b in static.items()), default=0)


def live_ranges(calls: Sequence[KernelCall]) -> dict[str, tuple[int, int]]:
    """First and last call that uses each arena buffer."""
    out: dict[str, tuple[int, int]] = {}
    for k, call in enumerate(calls):
        for a in call.args:
            if a.kind == "arena":
                out[a.name] = (out.get(a.name, (k, k))[0], k)
    return out


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _place(sizes: Mapping[str, int], live: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """A byte offset for each buffer."""
    out: dict[str, int] = {}
    for n in sorted(sizes, key=lambda n: (-sizes[n], live[n], n)):
        taken = sorted((out[m], out[m] + _round(sizes[m])) for m in out if _overlap(live[m], live[n]))
        best: tuple[int, int] | None = None  # (gap, offset)
        end = 0
        for lo, hi in taken:
            gap = lo - end
            if gap >= _round(sizes[n]) and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, hi)
        out[n] = end if best is None else best[1]
    return out


def _slots(sizes: Mapping[str, Size], live: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """A slot for each buffer: one of the same size where it is free, else any that is free, else a new one."""
    out: dict[str, int] = {}
    content: list[list[str]] = []
    for n in sorted(sizes, key=lambda n: (live[n], n)):
        free = [k for k, ms in enumerate(content) if not any(_overlap(live[m], live[n]) for m in ms)]
        same = [k for k in free if any(sizes[m] == sizes[n] for m in content[k])]
        if not free:
            content.append([])
        k = (same or free or [len(content) - 1])[0]
        content[k].append(n)
        out[n] = k
    return out


def _bytes(size: Size) -> int:
    return prod(int(d) for d in size[0]) * size[1]


def _round(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
