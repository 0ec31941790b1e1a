"""How memory falls on the sets of a cache, and what stays there.

Takes lines in memory as `Stretch`es; gives the part of each tensor's lines that a cache of least recent use still holds when all of them have been
used once more. Plain arithmetic: no isl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

LOOKED = (16, 2048)  # rows, and lines of them, whose place in a cache is looked at

Loads = dict[int, float]  # how many lines a set of the cache gets → the share of the sets


@dataclass(frozen=True)
class Cache:
    """A cache of least recent use: its size in bytes, and how many lines a set holds."""

    size: int
    ways: int = 8
    line: int = 64

    @property
    def sets(self) -> int:
        """How many sets."""
        return max(1, self.size // (self.line * self.ways))


@dataclass(frozen=True)
class Stretch:
    """Lines in memory: `rows` runs of `run` lines each, `pitch` lines from one start to the next."""

    rows: int
    run: float
    pitch: float

    @property
    def lines(self) -> float:
        """How many lines."""
        return self.rows * self.run

    def part(self, share: float) -> Stretch:
        """The first part of it."""
        return Stretch(max(1, round(self.rows * share)), self.run, self.pitch) if self.rows > 1 else Stretch(1, self.run * share, self.pitch)


@lru_cache(maxsize=4096)
def loads(s: Stretch, sets: int) -> Loads:
    """How lines fall on the sets of a cache."""
    if s.rows == 1:
        whole, part = divmod(s.run, sets)
        share = part / sets
        return {int(whole): 1 - share, int(whole) + 1: share} if share else {int(whole): 1.0}
    per: dict[int, float] = {}
    looked = min(s.rows, max(LOOKED[0], int(LOOKED[1] / max(1.0, s.run))))
    for k in range(looked):
        at, left = int(k * s.pitch), min(s.run, float(sets))
        while left > 0:
            per[at % sets] = per.get(at % sets, 0.0) + min(1.0, left)
            at, left = at + 1, left - 1
    more = s.rows / looked * max(1.0, s.run / sets)
    out: Loads = {0: 1 - len(per) / sets}
    for x in per.values():
        whole, part = divmod(x * more, 1)
        out[int(whole)] = out.get(int(whole), 0.0) + (1 - part) / sets
        if part:
            out[int(whole) + 1] = out.get(int(whole) + 1, 0.0) + part / sets
    return out


def stays(stretches: Sequence[tuple[str, Stretch]], cache: Cache) -> dict[str, float]:
    """The part of each tensor's lines that is still in a cache when all of these lines have been used once more in between.

    The lines of each tensor fall on the sets as its rows lie in memory, those of different tensors independently. A set that gets more lines than
    it holds keeps none of them (least recent use, in cyclic order).
    """
    total = sum(s.lines for _, s in stretches)
    if all(s.rows == 1 for _, s in stretches) and total > 2 * cache.sets * cache.ways:
        return {t: 0.0 for t, _ in stretches}
    fallen = [loads(s, cache.sets) for _, s in stretches]
    out: dict[str, float] = {}
    for k, (t, _) in enumerate(stretches):
        others: Loads = {0: 1.0}
        for j, other in enumerate(fallen):
            if j != k:
                others = _sum(others, other, cache.ways + 1)
        held = sum(p * n * sum(q for m, q in others.items() if n + m <= cache.ways) for n, p in fallen[k].items())
        mine = sum(p * n for n, p in fallen[k].items())
        out[t] = min(out.get(t, 1.0), held / mine if mine else 1.0)
    return {t: 1.0 if k > 0.999 else k for t, k in out.items()}


def _sum(a: Loads, b: Loads, most: int) -> Loads:
    """How the lines of two independent groups fall on the sets together; loads over `most` count as `most`."""
    out: Loads = {}
    for n, p in a.items():
        for m, q in b.items():
            at = min(most, n + m)
            out[at] = out.get(at, 0.0) + p * q
    return out
