"""Pictures of tiles: instances coloured by the wave in which their tile can run, each tile outlined, and the needs between tiles as arrows.

Takes a Scop with tile loops, or sizes of a tiling that may be illegal (tiles on a cycle are then red: no order runs them one after another).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon

from ..errors import UserError
from ..ir.scop import Scop
from .arrows import dependences_of, moving_axes
from .domains import lattice
from .figure import BLACK, MARKERS, RED, TILES, Picture, draw_arrows, draw_dots, ink_on, legend_right, marker_size, shades, titled
from .place import Plane, main_statements, make_plane
from .points import choose_params, distinct_rows
from .tiling import Tile, TileMaps, Tiling, find_tile_maps, make_tiling

Array = np.ndarray[Any, Any]
SIZES = (8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
WAITING = "#BBBBBB"
WAVES = tuple(c for c in TILES if c != RED)
FEW = 60_000  # instances for a size that nobody asked for


def tiles(
    scop: Scop,
    params: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    colour: str = "wave",
    statement: str | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
    arrows: bool = True,
) -> Picture:
    """The tiles of a schedule in its iteration space. `sizes={"t": 4, "i": 4}` shows a tiling that is not applied, legal or not. `colour`: "wave"
    (tiles of a colour can run at the same time) or "tile" (neighbours differ). `arrows`: draw which tile needs which. Other arguments as in
    `domain`."""
    if colour not in ("wave", "tile"):
        raise UserError(f"colour is {colour!r}; it must be wave or tile")
    values, plane, tiling = _choose(scop, params, sizes, statement, axes, at)
    spots = _spots(plane, tiling)
    centres = {t: _centre(p) for t, p in spots.items()}
    face = _by_wave(tiling) if colour == "wave" else _by_place(tiling, centres)
    note = f"{len(tiling.waves)} tiles of ({', '.join(tiling.loops)})"
    note += f", {1 + max(tiling.waves.values())} waves" if tiling.legal else f", {len(tiling.cyclic)} of them need each other in a cycle"
    fig, ax = lattice(plane, titled(scop.name, values, "; ".join(x for x in (note, plane.note()) if x)))
    _draw_tiles(ax, spots, face)
    _draw_points(ax, plane, tiling, face, fig)
    if arrows:
        _draw_needs(ax, tiling, centres)
    _label_tiles(ax, tiling, centres, face)
    legend_right(ax, _handles(tiling, face, colour, arrows))
    return fig


def _choose(
    scop: Scop,
    params: Mapping[str, int] | None,
    sizes: Mapping[str, int] | None,
    statement: str | None,
    axes: Sequence[str] | None,
    at: Mapping[str, int] | None,
) -> tuple[dict[str, int], Plane, Tiling]:
    """Parameters, large enough that each tile loop has some tiles where the caller leaves them open; the plane of the tiled statements; the tiles."""
    if statement is not None:
        make_plane(scop, choose_params(scop, params), [statement])  # refuses unknown names
    found = find_tile_maps(scop, [statement] if statement is not None else main_statements(scop), sizes)
    values = choose_params(scop, params)
    if set(params or {}) < set(scop.params):
        values = _enough(scop, params, found)
    chosen = axes if axes is not None else moving_axes(scop, dependences_of(scop), at, list(found.maps))
    return values, make_plane(scop, values, list(found.maps), chosen, at), make_tiling(scop, found, values)


def _enough(scop: Scop, params: Mapping[str, int] | None, found: TileMaps) -> dict[str, int]:
    """The first sizes at which each tile loop has three values; else the largest that are still a picture."""
    best = choose_params(scop, params)
    for n in SIZES:
        values = choose_params(scop, params, (n,))
        try:
            rows = np.concatenate(list(found.rows(values, FEW).values()))
        except UserError:
            break
        if len(rows):
            best = values
            if all(len(np.unique(rows[:, k])) >= 3 for k in range(rows.shape[1])):
                break
    return best


def _by_wave(tiling: Tiling) -> dict[Tile, Any]:
    """Each wave a colour, where there are few; else from light to dark. Tiles on a cycle are red, those that wait for one grey."""
    order = sorted({w for w in tiling.waves.values() if w >= 0})
    colours = dict(zip(order, shades(order) if len(order) > 2 * len(WAVES) else cycle(WAVES)))
    return {t: RED if t in tiling.cyclic else colours.get(w, WAITING) for t, w in tiling.waves.items()}


def _by_place(tiling: Tiling, centres: Mapping[Tile, Array]) -> dict[Tile, Any]:
    """Four colours by row and column, so that neighbours differ; tiles that lie over each other share one."""
    columns, rows = (sorted({round(float(c[k]), 3) for c in centres.values()}) for k in (0, 1))
    out: dict[Tile, Any] = dict.fromkeys(tiling.waves, WAITING)
    for tile, c in centres.items():
        out[tile] = TILES[columns.index(round(float(c[0]), 3)) % 2 + 2 * (rows.index(round(float(c[1]), 3)) % 2)]
    return out


def _spots(plane: Plane, tiling: Tiling) -> dict[Tile, Array]:
    """The distinct positions of each tile's shown instances."""
    spots: dict[Tile, list[Array]] = {}
    for s, rows in tiling.of.items():
        points = plane.found[s].points
        keep = plane.shown(s, points)
        at, mine = plane.at(s, points[keep]), rows[keep]
        order = np.lexsort(mine.T[::-1])
        at, mine = at[order], mine[order]
        cuts = np.flatnonzero(np.any(mine[1:] != mine[:-1], axis=1)) + 1
        for part, where in zip(np.split(mine, cuts), np.split(at, cuts)):
            if len(part):
                spots.setdefault(tuple(part[0].tolist()), []).append(where)
    return {tile: distinct_rows(np.concatenate(spots[tile])) for tile in sorted(spots)}


def _centre(points: Array) -> Array:
    middle = (points.min(axis=0) + points.max(axis=0)) / 2 if len(points) < 3 else points.mean(axis=0)
    return np.asarray(middle)


def _draw_tiles(ax: Axes, spots: Mapping[Tile, Array], face: Mapping[Tile, Any]) -> None:
    """The outline of each tile's shown instances (gid `tile:1,0`); of tiles that lie over each other, the first."""
    seen: set[bytes] = set()
    for tile, points in spots.items():
        if points.tobytes() in seen:
            continue
        seen.add(points.tobytes())
        patch = Polygon(
            outline(points), closed=True, facecolor=(*_rgb(face[tile]), 0.22), edgecolor=face[tile], linewidth=1.2, zorder=1, joinstyle="round"
        )
        patch.set_gid(f"tile:{','.join(map(str, tile))}")
        ax.add_patch(patch)


def _rgb(colour: Any) -> tuple[float, float, float]:
    return to_rgb(colour)


def outline(points: Array, margin: float = 0.36) -> Array:
    """The convex hull of points, each grown to a small octagon (Andrew's monotone chain)."""
    angles = np.pi / 8 + np.arange(8) * np.pi / 4
    ring = margin * np.column_stack([np.cos(angles), np.sin(angles)])
    return _hull((_hull(_extremes(points))[:, None] + ring[None]).reshape(-1, 2).round(6))


def _hull(points: Array) -> Array:
    rows = distinct_rows(points)
    if len(rows) < 3:
        return rows

    def half(rows: Array) -> list[Array]:
        out: list[Array] = []
        for p in rows:
            while len(out) > 1 and _turn(out[-2], out[-1], p) <= 0:
                out.pop()
            out.append(p)
        return out[:-1]

    return np.array([*half(rows), *half(rows[::-1])])


def _extremes(points: Array) -> Array:
    """For each x the lowest and the highest point: the hull needs no others."""
    order = np.lexsort((points[:, 1], points[:, 0]))
    p = points[order]
    first = np.append(True, p[1:, 0] != p[:-1, 0])
    return np.asarray(p[first | np.append(first[1:], True)])


def _turn(a: Array, b: Array, c: Array) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def _draw_points(ax: Axes, plane: Plane, tiling: Tiling, face: Mapping[Tile, Any], fig: Picture) -> None:
    lo, hi = np.array([ax.get_xlim(), ax.get_ylim()]).T
    area = 0.55 * marker_size(hi[0] - lo[0], hi[1] - lo[1], *fig.get_size_inches())
    for k, (s, rows) in enumerate(tiling.of.items()):
        points = plane.found[s].points
        keep = plane.shown(s, points)
        at, mine = plane.at(s, points[keep]), rows[keep]
        palette = list(dict.fromkeys(face.values()))
        kinds, index = _codes(mine)
        colour_of = np.array([palette.index(face[tuple(k)]) for k in kinds.tolist()], np.int64)[index]
        for c, colour in enumerate(palette):
            where = distinct_rows(at[colour_of == c])
            if len(where):
                draw_dots(ax, where, area, colour, MARKERS[k % len(MARKERS)], f"points:{s}")


def _codes(rows: Array) -> tuple[Array, Array]:
    """The distinct rows, and which of them each row is."""
    kinds = distinct_rows(rows)
    low, span = rows.min(axis=0), np.ptp(rows, axis=0) + 1
    weight = np.append(np.cumprod(span[::-1])[-2::-1], 1)
    return kinds, np.searchsorted((kinds - low) @ weight, (rows - low) @ weight)


def _draw_needs(ax: Axes, tiling: Tiling, centres: Mapping[Tile, Array]) -> None:
    """Arrows between tiles: direct needs only; those inside a cycle in red."""
    seen = {(a, b) for a, b in tiling.needs if a in centres and b in centres and np.any(centres[a] != centres[b])}
    after: dict[Tile, set[Tile]] = {}
    for a, b in seen:
        after.setdefault(a, set()).add(b)
    inside = {(a, b) for a, b in seen if a in tiling.cyclic and b in tiling.cyclic}
    direct = {(a, b) for a, b in seen - inside if not any(b in after.get(c, ()) for c in after[a] if c != b)}
    for pairs, colour, gid, bend in ((direct, BLACK, "needs", 0.0), (inside, RED, "cycle", 0.12)):
        ordered = sorted(pairs)
        if ordered and len(ordered) <= 400:
            starts, ends = (np.array([centres[p[k]] for p in ordered]) for k in (0, 1))
            draw_arrows(ax, starts, ends, colour, "solid", gid, bend=bend, width=1.3, gap=0.55)


def _label_tiles(ax: Axes, tiling: Tiling, centres: Mapping[Tile, Array], face: Mapping[Tile, Any]) -> None:
    """The wave of each tile at its centre, where there are few tiles. Tiles that lie over each other get none."""
    places: dict[tuple[float, ...], set[int]] = {}
    for tile, at in centres.items():
        places.setdefault(tuple(np.round(at, 3).tolist()), set()).add(tiling.waves[tile])
    if len(places) > 120:
        return
    by_place = {tuple(np.round(at, 3).tolist()): tile for tile, at in centres.items()}
    for place, waves in places.items():
        if len(waves) == 1 and min(waves) >= 0:
            colour = face[by_place[place]]
            box = {"boxstyle": "circle,pad=0.18", "facecolor": colour, "edgecolor": "white", "linewidth": 0.8}
            ax.text(place[0], place[1], str(min(waves)), fontsize=8, ha="center", va="center", color=ink_on(colour), zorder=5, bbox=box)


def _handles(tiling: Tiling, face: Mapping[Tile, Any], colour: str, arrows: bool) -> list[Any]:
    out: list[Any] = []
    if colour == "wave":
        waves = sorted({w for w in tiling.waves.values() if w >= 0})
        shown = waves if len(waves) <= 9 else [*waves[:4], *waves[-4:]]
        first = {w: t for t, w in sorted(tiling.waves.items(), reverse=True)}
        for w in shown:
            n = sum(x == w for x in tiling.waves.values())
            out.append(Patch(facecolor=face[first[w]], label=f"wave {w}: {n} tile{'s' if n > 1 else ''}"))
        if tiling.cyclic:
            out.append(Patch(facecolor=RED, label=f"on a cycle: {len(tiling.cyclic)} tiles"))
        waiting = sum(w < 0 for w in tiling.waves.values()) - len(tiling.cyclic)
        if waiting:
            out.append(Patch(facecolor=WAITING, label=f"waiting for a cycle: {waiting} tiles"))
    if arrows and tiling.needs:
        out.append(Line2D([], [], color=RED if tiling.cyclic else BLACK, linewidth=1.4, label="must run before"))
    return out
