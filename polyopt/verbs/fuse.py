"""fuse: run nests that follow each other in shared loops (*compute_at* in Halide is its one-sided form).

    for i: S(i)
    for i: T(i)          fuse("S", "T", depth=1)          for i: { S(i); T(i) }

Loops are matched by position. Legal iff no dependence goes backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from .checked import checked
from .tree import (
    Chain,
    Seq,
    Tree,
    chains,
    check_statements,
    edit,
    loops,
    read_tree,
    rewrite_schedule,
    sequence,
    split_chain,
    statements_below,
)


def find_sequence(scop: Scop, verb: str, statements: Sequence[str]) -> tuple[Chain, int, int]:
    """The innermost chain above a sequence whose parts separate the statements, and the first and last of those parts."""
    check_statements(scop, verb, statements)
    for c in reversed(list(chains(read_tree(scop.schedule)))):
        if isinstance(c.below, Seq) and set(statements) <= set(c.statements):
            at = sorted({i for i, p in enumerate(c.below.parts) for s in statements if s in statements_below(p)})
            if len(at) > 1:
                return c, at[0], at[-1]
    raise ScheduleError(f"{verb}: {', '.join(statements) or 'nothing'} do not stand in one sequence; name statements of different nests")


def fuse_schedule(scop: Scop, statements: Sequence[str], depth: int | None = None, verb: str = "fuse") -> isl.Schedule:
    """The schedule with the nests of the statements (and those between them) in `depth` shared loops."""
    chain, first, last = find_sequence(scop, verb, statements)
    assert isinstance(chain.below, Seq)
    nests = [split_chain(p) for p in chain.below.parts[first : last + 1]]
    shared = min(len(members) for members, _ in nests)
    if depth is None:
        depth = shared
    if not isinstance(depth, int) or depth < 1 or depth > shared:
        raise ScheduleError(f"{verb}: depth is {depth!r}; these nests share {shared} loops, and at least 1 must be fused")
    outer = []
    for d in range(depth):
        m = nests[0][0][d]
        for members, _ in nests[1:]:
            m = replace(m, upa=m.upa.union_add(members[d].upa))
        outer.append(m)
    fused: Tree = loops(outer, sequence([loops(members[depth:], below) for members, below in nests]))
    parts = (*chain.below.parts[:first], fused, *chain.below.parts[last + 1 :])
    return rewrite_schedule(scop, edit(read_tree(scop.schedule), chain.path, lambda _: loops(chain.members, sequence(parts))))


def fuse(scop: Scop, *statements: str, depth: int | None = None) -> Scop:
    """Fuse the nests that hold the statements (and all nests between them) in their `depth` outermost loops (as many as they share).

    Raises ScheduleError where they stand in no common sequence, IllegalSchedule where a dependence would break.
    """
    step = Step("fuse", statements, (("depth", depth),) if depth is not None else ())
    return checked(scop, fuse_schedule(scop, statements, depth), step)
