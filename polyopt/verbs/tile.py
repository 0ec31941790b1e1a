"""tile and strip_mine: loops over blocks around loops inside a block (*split* in Halide and TVM, *divide* in Exo).

    for i: for j: S          tile(i=4, j=8)          for ti: for tj: for i in block ti: for j in block tj: S

ti = floor(i / 4). Legal iff every dependence stays lexicographically positive in (ti, tj, i, j).
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from ..isl_ext import CTX
from .checked import checked
from .tree import Member, find_chain, fresh_name, with_members


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
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ScheduleError(f"{verb}: the tile size of {loop} is {size!r}; it must be a whole number of at least 1")
    chain = find_chain(scop, verb, list(sizes), of)
    first = min(chain.index(n) for n in sizes)
    tiles = [tile_member(chain.members[chain.index(n)], t, (names or {}).get(n) or fresh_name(scop, n, chain.statements)) for n, t in sizes.items()]
    members = [*chain.members[:first], *tiles, *chain.members[first:]]
    return with_members(scop, chain, members)


def tile(scop: Scop, *, of: str | None = None, names: Mapping[str, str] | None = None, **sizes: int) -> Scop:
    """Tile loops: `sizes` gives the block size of each loop; tile loops are named ti, tj (then t2i, …) or as `names` says.

    Raises ScheduleError for unknown loops or sizes below 1, IllegalSchedule where a dependence would break.
    """
    step = Step("tile", kwargs=(*sizes.items(), *((("of", of),) if of else ()), *((("names", dict(names)),) if names else ())))
    return checked(scop, tile_schedule(scop, "tile", sizes, names, of), step)


def strip_mine(scop: Scop, loop: str, size: int, *, of: str | None = None, name: str | None = None) -> Scop:
    """Split one loop in blocks without moving anything: always legal. The block loop is named `name` or t<loop>."""
    step = Step("strip_mine", (loop, size), (("of", of),) if of else ())
    return checked(scop, tile_schedule(scop, "strip_mine", {loop: size}, {loop: name} if name else None, of), step)
