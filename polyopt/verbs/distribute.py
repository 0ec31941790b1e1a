"""distribute: split loops over the statements below them (*fission*), so that each gets a nest of its own.

    for i: for j: { S; for k: U }          distribute("k")          for i: for j: S
                                                                    for i: for j: for k: U

Legal iff no dependence goes from a later part of the sequence back to an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from .checked import checked
from .tree import (
    Chain,
    Seq,
    Tree,
    chains,
    edit,
    find_chain,
    loops,
    own_dates,
    read_tree,
    rewrite_schedule,
    sequence,
    statements_below,
)


def distribute_schedule(scop: Scop, loop: str, innermost: Sequence[str] | None = None, of: str | None = None) -> isl.Schedule:
    """The schedule in which the loops above the sequence around `loop` (all of that chain, or the innermost ones named) are distributed."""
    inner = find_chain(scop, "distribute", [loop], of)
    if not inner.path:
        if not isinstance(inner.below, Seq):
            raise ScheduleError(f"distribute: the nest of {loop} holds one statement; there is nothing to split")
        outer = inner  # the loop itself stands right above the sequence
        innermost = innermost or inner.names()[inner.index(loop) :]
    else:
        outer = next(c for c in chains(read_tree(scop.schedule)) if c.path == inner.path[:-1])
        if isinstance(inner.below, Seq) and not outer.members:
            outer, innermost = inner, innermost or inner.names()[inner.index(loop) :]
    return push_down(scop, outer, outer.names() if innermost is None else innermost)


def push_down(scop: Scop, chain: Chain, innermost: Sequence[str]) -> isl.Schedule:
    """Give each part of the sequence below a chain its own copy of the chain's innermost loops."""
    keep = len(chain.members) - len(innermost)
    if chain.names()[keep:] != tuple(innermost) or not innermost:
        raise ScheduleError(f"distribute: {', '.join(innermost) or 'no loops'}: name innermost loops of {', '.join(chain.names()) or 'a nest'}")
    if not isinstance(chain.below, Seq):
        raise ScheduleError(f"distribute: the loops {', '.join(innermost)} hold a single nest; there is nothing to split")

    def split(_: Tree) -> Tree:
        assert isinstance(chain.below, Seq)
        parts = [loops([own_dates(m, scop, statements_below(p)) for m in chain.members[keep:]], p) for p in chain.below.parts]
        return loops(chain.members[:keep], sequence(parts))

    return rewrite_schedule(scop, edit(read_tree(scop.schedule), chain.path, split))


def distribute(scop: Scop, loop: str, *, loops: Sequence[str] | None = None, of: str | None = None) -> Scop:
    """Give the nest of `loop` its own copy of the loops around it (all of them, or the innermost ones named in `loops`).

    Raises ScheduleError where there is nothing to split, IllegalSchedule where a dependence would break.
    """
    extra = (*((("loops", tuple(loops)),) if loops else ()), *((("of", of),) if of else ()))
    return checked(scop, distribute_schedule(scop, loop, loops, of), Step("distribute", (loop,), extra))
