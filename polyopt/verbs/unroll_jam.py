"""unroll_jam: iterations of an outer loop run side by side in the innermost loops (*register tiling*, *unroll-and-jam*).

    for i: for j: S(i, j)          unroll_jam("i", 4)          for ti: for j: { S(4ti, j); S(4ti+1, j); S(4ti+2, j); S(4ti+3, j) }

Formally (i, j) becomes (floor(i / 4), j, i): the strip of i goes below the inner loops, into each nest of a sequence, above vector loops, and is
unrolled. Loads that the copies share are then done once, and each copy has an accumulator of its own. Legal iff every dependence stays
lexicographically positive, which holds where i is permutable with the loops that it goes below.
(Carr and Kennedy 1994, Improving the ratio of memory operations to floating-point operations in loops.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from .arguments import MOST_COPIES, check_count, check_sizes
from .checked import checked
from .tile import tile_member
from .tree import (
    Leaf,
    Loop,
    Member,
    Seq,
    Tree,
    edit,
    find_chain,
    fresh_name,
    loops,
    own_dates,
    read_tree,
    rewrite_schedule,
    sequence,
    statements_below,
)


def unroll_jam_schedule(scop: Scop, loop: str, factor: int, into: str | None = None, of: str | None = None) -> isl.Schedule:
    """The schedule with a strip of `loop` below the loops inside it, or below the inner loop `into`."""
    check_count("unroll_jam", f"the factor of {loop}", factor, 2, MOST_COPIES)
    chain = find_chain(scop, "unroll_jam", [loop], of)
    m = chain.member(loop)
    if m.mark:
        raise ScheduleError(f"unroll_jam: the loop {loop} is already marked {m.mark}; name a loop without a mark")
    check_sizes(scop, "unroll_jam", chain, [(loop, factor)], "factor")
    at = chain.index(loop)
    inside = loops(chain.members[at + 1 :], chain.below)
    inner = loop_names(inside)
    if into is not None and into not in inner:
        raise ScheduleError(f"unroll_jam: into is {into!r}; it must be a loop inside {loop}: {', '.join(inner) or 'there is none'}")
    if not inner:
        raise ScheduleError(f"unroll_jam: {loop} has no loop inside; unroll({loop!r}, {factor}) writes its iterations out")
    strips = tile_member(m, factor, fresh_name(scop, loop, chain.statements))
    body = sink(inside, replace(m, mark="unroll"), scop, into)
    jammed = loops([*chain.members[:at], strips], body)
    return rewrite_schedule(scop, edit(read_tree(scop.schedule), chain.path, lambda _: jammed))


def loop_names(tree: Tree) -> list[str]:
    """The loops in a tree that a strip can go below."""
    if isinstance(tree, Seq):
        return list(dict.fromkeys(n for p in tree.parts for n in loop_names(p)))
    if isinstance(tree, Leaf) or tree.member.mark.startswith("vector"):
        return []
    return [tree.member.name, *loop_names(tree.body)]


def sink(tree: Tree, m: Member, scop: Scop, into: str | None) -> Tree:
    """The tree with a loop moved below its loops: below all but vector loops, or below `into` and no further.

    A nest without the loop `into` keeps the strip on its outside.
    """
    if into is not None and into not in loop_names(tree):
        return Loop(own_dates(m, scop, statements_below(tree)), tree)
    if isinstance(tree, Seq):
        return sequence([sink(p, m, scop, into) for p in tree.parts])
    if isinstance(tree, Leaf) or tree.member.mark.startswith("vector"):
        return Loop(own_dates(m, scop, statements_below(tree)), tree)
    if tree.member.name == into:
        return Loop(tree.member, Loop(own_dates(m, scop, statements_below(tree)), tree.body))
    return Loop(tree.member, sink(tree.body, m, scop, into))


def unroll_jam(scop: Scop, loop: str, factor: int, *, into: str | None = None, of: str | None = None) -> Scop:
    """Run `factor` iterations of a loop together in its inner loops: below all of them, or below the loop `into`. The outer loop is named t<loop>.

    Raises ScheduleError for a factor below 2 or a loop without loops inside, IllegalSchedule where a dependence would break.
    """
    extra: Sequence[tuple[str, str]] = (*((("into", into),) if into else ()), *((("of", of),) if of else ()))
    return checked(scop, unroll_jam_schedule(scop, loop, factor, into, of), Step("unroll_jam", (loop, factor), tuple(extra)))
