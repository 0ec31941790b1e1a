"""The loops around each statement of a schedule, and which of them run over tiles. Takes the nested form of a schedule tree."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from ..poly.order import compute_dates
from ..verbs.tree import Leaf, Member, Seq, Tree


def members_around(tree: Tree, above: tuple[Member, ...] = ()) -> Iterator[tuple[str, tuple[Member, ...]]]:
    """Each statement with the loops around it, outermost first."""
    if isinstance(tree, Leaf):
        yield from ((s, above) for s in tree.statements)
    elif isinstance(tree, Seq):
        for p in tree.parts:
            yield from members_around(p, above)
    else:
        yield from members_around(tree.body, (*above, tree.member))


def is_tile_loop(m: Member, statement: str) -> bool:
    """Whether a loop runs over blocks: its date for the statement is made with a floor. The strips of a vectorized loop are such blocks too."""
    dates = compute_dates(isl.UnionMap.from_union_pw_aff(m.upa)).get(statement, [])
    return any(aff.dim(isl.dim_type.div) > 0 for d in dates for _, aff in d.get_pieces())
