"""How large a register tile: a search over the target's model, no table of shapes.

A tile computes P × q vectors of results, P positions times q vectors. Per step of the reduction it issues P·q multiply-adds and loads each distinct
operand once. Cycles per step: the larger of multiply-adds over units, loads over ports, and the latency of one accumulator. Partial tiles
at the ends count by their own size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ..errors import ScheduleError
from ..target import Target

LOAD_PORTS = 2


@dataclass(frozen=True)
class Dim:
    """One result iterator: name, extent, whether each of the operands depends on it, whether it may be tiled."""

    name: str
    extent: int
    operands: tuple[bool, ...]
    tileable: bool = True


def choose_tile(vector: Dim, others: Sequence[Dim], target: Target, lanes: int, block: int = 0, taps: int = 1) -> dict[str, int]:
    """The tile size of each result iterator (in elements; the vector iterator's is a multiple of `lanes`).

    `block`: the results are stored in blocks of this many elements along the vector; a tile then covers whole blocks or a whole part of one
    (of one block, where vectors and blocks do not divide each other).
    `taps`: steps of the reduction that are written out, so that neighbouring results share loads (a window that slides along a vector operand).
    """
    registers = target.isa.registers
    best: tuple[float, int, dict[str, int]] | None = None
    strips = -(-vector.extent // lanes)
    inner = [d for d in reversed(others) if d.tileable and d.extent > 1][:2]
    widths = {q: q * lanes for q in range(1, min(4, strips) + 1) if not block or (q * lanes) % block == 0 or block % (q * lanes) == 0}
    for q, width in (widths or {-(-block // lanes): block}).items():
        limit = (registers - 1 - q) // q if registers > 2 * q else 1
        for tile in _tiles(inner, limit):
            p = prod(tile.values())
            needed = p * q + q + 1 if taps == 1 else (2 * p + 2 * taps) * q
            if needed > registers and p > 1:
                continue
            cost = _cycles(vector, inner, tile, q, strips, target, taps)
            key = (round(cost, 6), -p * q)
            if best is None or key < (best[0], best[1]):
                best = (key[0], key[1], {vector.name: width, **tile})
    if best is None:
        raise ScheduleError(f"contract: no register tile along {vector.name} suits blocks of {block}")
    return best[2]


def _tiles(dims: Sequence[Dim], limit: int) -> list[dict[str, int]]:
    """Candidate sizes: any size of the innermost dim; of the next one only where the innermost is covered whole."""
    out: list[dict[str, int]] = [{}]
    if not dims:
        return out
    first = dims[0]
    for n in range(1, min(first.extent, limit) + 1):
        out.append({first.name: n})
        if n == first.extent and len(dims) > 1:
            out += [{first.name: n, dims[1].name: m} for m in range(2, min(dims[1].extent, limit // n) + 1)]
    return out


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    """(size, how many): full tiles and the last partial one."""
    full, rest = divmod(extent, tile)
    return [(tile, full)] * (full > 0) + [(rest, 1)] * (rest > 0)


def _cycles(vector: Dim, dims: Sequence[Dim], tile: Mapping[str, int], q: int, strips: int, target: Target, taps: int) -> float:
    """Cycles for one step of the reduction over all results, per result dim outside the tile."""
    total = 0.0
    tiled = [d for d in dims if d.name in tile]
    for (nq, times_q), *rest in product(_pieces(strips, q), *(_pieces(d.extent, tile[d.name]) for d in tiled)):
        sizes = {d.name: n for d, (n, _) in zip(tiled, rest)}
        fmas = nq * prod(sizes.values())
        loads = 0.0
        for o in range(len(vector.operands)):
            loads += prod(n for d, n in ((d, sizes[d.name]) for d in tiled) if d.operands[o]) * (nq if vector.operands[o] else 1)
        if taps > 1:
            loads = loads / taps + nq
        step = max(fmas / target.fma_units, loads / LOAD_PORTS, target.fma_latency)
        total += step * times_q * prod(n for _, n in rest)
    return total * prod(d.extent for d in dims if d.name not in tile)
