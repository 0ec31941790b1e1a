"""tile and strip_mine: loops over blocks around loops inside a block (*split* in Halide and TVM, *divide* in Exo).

    for i: for j: S          tile(i=4, j=8)          for ti: for tj: for i in block ti: for j in block tj: S

Formally ti = floor(i / 4). Legal iff every dependence stays lexicographically positive in (ti, tj, i, j). Several sizes of a loop are levels,
outermost first: tile(i=(64, 8), j=(64, 16)) is tile(i=64, j=64) and then tile(i=8, j=16), checked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from ..isl_ext import CTX
from .arguments import check_count, check_sizes
from .checked import checked
from .tree import Member, find_chain, fresh_name, is_taken, with_members

Size = int | Sequence[int]


def tile_member(m: Member, size: int, name: str) -> Member:
    """The loop over the blocks of `size` iterations of a loop."""
    return Member(name, m.upa.scale_down_val(isl.Val.int_from_si(CTX, size)).floor())


def tile_schedule(
    scop: Scop, verb: str, sizes: Mapping[str, int], names: Mapping[str, str] | None = None, of: str | None = None
) -> isl.Schedule:
    """The schedule with tile loops, in the order of `sizes`, at the place of the outermost named loop."""
    if not sizes:
        raise ScheduleError(f"{verb}: give at least one loop and its tile size, such as {verb}(i=32)")
    for loop, size in sizes.items():
        check_count(verb, f"the tile size of {loop}", size)
    chain = find_chain(scop, verb, list(sizes), of)
    check_sizes(scop, verb, chain, list(sizes.items()))
    first = min(chain.index(n) for n in sizes)
    tiles = [tile_member(chain.members[chain.index(n)], t, (names or {}).get(n) or fresh_name(scop, n, chain.statements)) for n, t in sizes.items()]
    check_names(scop, verb, names, sizes, chain.statements)
    members = [*chain.members[:first], *tiles, *chain.members[first:]]
    return with_members(scop, chain, members)


def check_names(scop: Scop, verb: str, names: Mapping[str, str] | None, sizes: Mapping[str, int], statements: Sequence[str]) -> None:
    """Refuse names for tile loops that are no names, are taken, or name the tile loops of loops that are not tiled."""
    for loop, name in (names or {}).items():
        if loop not in sizes:
            raise ScheduleError(f"{verb}: names has {loop!r}, which is not tiled here; it may name the tile loops of {', '.join(sizes)}")
        if not isinstance(name, str) or not name.isidentifier():
            raise ScheduleError(f"{verb}: the name of the tile loop of {loop} is {name!r}; it must be an identifier")
        if is_taken(scop, name, statements) or list((names or {}).values()).count(name) > 1:
            raise ScheduleError(f"{verb}: the name {name!r} for the tile loop of {loop} is taken by a loop around {', '.join(statements)}")


def tile(scop: Scop, *, of: str | None = None, names: Mapping[str, str] | None = None, **sizes: Size) -> Scop:
    """Tile loops: `sizes` gives the block size of each loop (or its sizes, outermost level first); tile loops are named ti, tj (then t2i, …) or as
    `names` says.

    Raises ScheduleError for unknown loops, sizes below 1 or larger than the loop, IllegalSchedule where a dependence would break.
    """
    step = Step("tile", kwargs=(*_plain(sizes), *((("of", of),) if of else ()), *((("names", dict(names)),) if names else ())))
    levels = split_levels("tile", sizes)
    out = scop
    for level in levels[:-1]:
        out = out.with_schedule(tile_schedule(out, "tile", level, names if level is levels[0] else None, of))
    schedule = tile_schedule(out, "tile", levels[-1], names if len(levels) == 1 else None, of)
    return checked(scop, schedule, step)


def _plain(sizes: Mapping[str, Size]) -> list[tuple[str, Size]]:
    return [(k, v if isinstance(v, int) or not isinstance(v, Sequence) or isinstance(v, str) else tuple(v)) for k, v in sizes.items()]


def split_levels(verb: str, sizes: Mapping[str, Size]) -> list[dict[str, int]]:
    """The sizes by level, outermost first. A loop with fewer sizes has its own at the outer levels."""
    several: dict[str, Sequence[int]] = {}
    for loop, size in sizes.items():
        if isinstance(size, Sequence) and not isinstance(size, str):
            if not size:
                raise ScheduleError(f"{verb}: the tile sizes of {loop} are empty; give at least one")
            for x in size:
                check_count(verb, f"the tile size of {loop}", x)
            if any(a <= b for a, b in pairwise(size)):
                given = ", ".join(map(str, size))
                raise ScheduleError(f"{verb}: the tile sizes of {loop} are {given}; each level must be smaller than the one outside it")
            several[loop] = size
        else:
            several[loop] = (check_count(verb, f"the tile size of {loop}", size),)
    count = max((len(s) for s in several.values()), default=1)
    return [{loop: s[k] for loop, s in several.items() if k < len(s)} for k in range(count)]


def strip_mine(scop: Scop, loop: str, size: int, *, of: str | None = None, name: str | None = None) -> Scop:
    """Split one loop in blocks without moving anything: always legal. The block loop is named `name` or t<loop>."""
    step = Step("strip_mine", (loop, size), (*((("of", of),) if of else ()), *((("name", name),) if name else ())))
    return checked(scop, tile_schedule(scop, "strip_mine", {loop: size}, {loop: name} if name else None, of), step)
