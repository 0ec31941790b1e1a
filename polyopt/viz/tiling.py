"""Tiles at concrete parameters: which instance is in which tile, which tile needs which, and in which wave it can run.

Takes a Scop whose schedule has tile loops (loops whose date is a floor), or sizes of a tiling that need not be legal; gives a `Tiling`. The wave of a
tile is the length of the longest chain of dependences that leads to it: tiles of one wave can run at the same time. Tiles that need each other in a
cycle have no wave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import numpy as np

from ..errors import UserError
from ..ir.scop import Scop
from ..isl_ext import IN, maps_of, sets_of
from ..verbs.tile import tile_schedule
from ..verbs.tree import Member, read_tree
from .arrows import dependences_of
from .loops import is_tile_loop, members_around
from .points import LIMIT, distinct_rows, map_pairs, pairs_between

Array = np.ndarray[Any, Any]
Tile = tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """`loops`: names of the tile loops. `of`: for each statement in a tile, the tile of each of its instances. `needs`: pairs of tiles, the first
    of which must run before the second. `waves`: by tile; -1 for tiles on a cycle and those that need one."""

    loops: tuple[str, ...]
    of: Mapping[str, Array]
    needs: frozenset[tuple[Tile, Tile]]
    waves: Mapping[Tile, int]
    cyclic: frozenset[Tile]

    @property
    def legal(self) -> bool:
        """Whether the tiles can run one after another in some order."""
        return not self.cyclic


@dataclass(frozen=True)
class TileMaps:
    """For all parameter values: names of the tile loops, and for each statement in a tile the map from its instances to the tile."""

    loops: tuple[str, ...]
    maps: Mapping[str, isl.Map]

    def rows(self, params: Mapping[str, int], limit: int = LIMIT) -> dict[str, Array]:
        """For each statement the tile of each of its instances, at given parameters."""
        return {s: map_pairs(m, params, limit)[1] for s, m in self.maps.items()}


def find_tile_maps(scop: Scop, statements: Sequence[str], sizes: Mapping[str, int] | None = None) -> TileMaps:
    """The tiles of those of the statements that have the most tile loops. Raises UserError where there are none and no sizes are given."""
    tree = read_tree(tile_schedule(scop, "tiles", sizes) if sizes else scop.schedule)
    members: dict[str, list[Member]] = {}
    for s, around in members_around(tree):
        if s in statements:
            members[s] = [m for m in around if is_tile_loop(m, s)]
    most = max((len(m) for m in members.values()), default=0)
    if not most:
        raise UserError(f"{scop.name} has no tile loops: tile it first, or give sizes= such as sizes={{'i': 4}}")
    tiled = {s: m for s, m in members.items() if len(m) == most}
    loops = tuple(m.name for m in next(iter(tiled.values())))
    return TileMaps(loops, {s: _tile_map(scop, s, m) for s, m in tiled.items()})


def make_tiling(scop: Scop, found: TileMaps, params: Mapping[str, int]) -> Tiling:
    """The tiles at given parameters, and what they need of each other. Raises UserError where no tile has an instance."""
    of = found.rows(params)
    tiles = sorted({tuple(row) for rows in of.values() for row in distinct_rows(rows).tolist()})
    if not tiles:
        raise UserError(f"no tile of {scop.name} has an instance at these sizes: give other params=")
    needs = _needs(scop, found.maps, params)
    waves = compute_waves(tiles, needs)
    return Tiling(found.loops, of, needs, waves, _on_cycles({t for t in tiles if waves[t] < 0}, needs))


def _tile_map(scop: Scop, statement: str, members: list[Member]) -> isl.Map:
    domain = scop.statement(statement).domain.intersect_params(scop.context)
    out: isl.Map | None = None
    for m in members:
        one = next(x for x in maps_of(isl.UnionMap.from_union_pw_aff(m.upa)) if x.get_tuple_name(IN) == statement)
        one = one.intersect_domain(domain)
        out = one if out is None else out.flat_range_product(one)
    assert out is not None
    return out


def _needs(scop: Scop, maps: Mapping[str, isl.Map], params: Mapping[str, int]) -> frozenset[tuple[Tile, Tile]]:
    tiles = isl.UnionMap.from_map(next(iter(maps.values())))
    for m in list(maps.values())[1:]:
        tiles = tiles.union(isl.UnionMap.from_map(m))
    inside = [s for s in sets_of(tiles.domain())]
    domain = isl.UnionSet.from_set(inside[0])
    for s in inside[1:]:
        domain = domain.union(isl.UnionSet.from_set(s))
    deps = dependences_of(scop).all().intersect_domain(domain).intersect_range(domain)
    between = deps.apply_domain(tiles).apply_range(tiles)
    pairs = {(tuple(x), tuple(y)) for _, _, a, b in pairs_between(between, params) for x, y in zip(a.tolist(), b.tolist())}
    return frozenset((a, b) for a, b in pairs if a != b)


def compute_waves(tiles: list[Tile], needs: frozenset[tuple[Tile, Tile]]) -> dict[Tile, int]:
    """The longest chain to each tile; -1 where it begins in a cycle."""
    after: dict[Tile, list[Tile]] = {t: [] for t in tiles}
    waiting = dict.fromkeys(tiles, 0)
    for a, b in needs:
        after[a].append(b)
        waiting[b] += 1
    waves = dict.fromkeys(tiles, -1)
    ready, wave = [t for t in tiles if not waiting[t]], 0
    while ready:
        later: list[Tile] = []
        for t in ready:
            waves[t] = wave
            for b in after[t]:
                waiting[b] -= 1
                if not waiting[b]:
                    later.append(b)
        ready, wave = later, wave + 1
    return waves


def _on_cycles(stuck: set[Tile], needs: frozenset[tuple[Tile, Tile]]) -> frozenset[Tile]:
    """Those of the tiles that cannot run which lie on a cycle: the rest only wait for one."""
    left = set(stuck)
    while True:
        needed = {a for a, b in needs if a in left and b in left}
        if needed == left:
            return frozenset(left)
        left = needed
