"""Do the iterations of a loop touch elements of their own? Answered on affine expressions, without isl.

Takes the leaves inside a loop (`poly/nest.py`). Two accesses to one tensor are apart where in some dim both indices are c·v + outer + rest, with
the loop's variable v, the same multiple c and the same terms of the loops around, and a rest that stays inside a window of c elements: then
they meet only in one iteration. True is a proof that the loop carries no dependence; False says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..ir.affine import Affine, FloorDiv, affine
from ..ir.expr import Access, Expr, Load, walk
from .nest import Leaf


def iterations_apart(leaves: Sequence[Leaf], d: int, *, ignore: Collection[str] = (), reassociate: bool = False) -> bool:
    """Whether no two iterations of the leaves' loop at depth d touch one element of a tensor that one of them writes.

    ignore: tensors of which each iteration has its own. reassociate: updates by one statement, which nothing else inside the loop reads or
    writes, may meet.
    """
    written = {x.instance.write.tensor for x in leaves}
    found: dict[str, list[tuple[Leaf, Access]]] = {t: [] for t in written if t not in ignore}
    readers: dict[str, set[str]] = {t: set() for t in found}
    for x in leaves:
        for access, by in accesses_of(x):
            if access.tensor in found:
                found[access.tensor].append((x, access))
                readers[access.tensor].add(by)
    return all(_are_apart(v, d) or (reassociate and _one_reduction(readers[t])) for t, v in found.items())


def accesses_of(x: Leaf) -> Iterator[tuple[Access, str]]:
    """The accesses of a leaf, each with who makes it: an update of its own cell has the statement's name, others have none."""
    yield x.instance.write, f"{x.instance.statement} {x.instance.reduction}" if x.instance.reduction is not None else ""
    read_at_run_time = (i for i in x.instance.write.indices if isinstance(i, Expr))
    yield from ((e.access, "") for tree in (x.instance.expr, *read_at_run_time) for e in walk(tree) if isinstance(e, Load))


def _one_reduction(by: set[str]) -> bool:
    return len(by) == 1 and "" not in by


def _are_apart(accesses: Sequence[tuple[Leaf, Access]], d: int) -> bool:
    if not all(a.is_affine for _, a in accesses):
        return False
    return any(_keeps_apart([(x, a.affine_indices()[q]) for x, a in accesses], d) for q in range(len(accesses[0][1].indices)))


def _keeps_apart(indices: Sequence[tuple[Leaf, Affine]], d: int) -> bool:
    """Whether a dim tells the iterations apart."""
    lowest = highest = 0
    kept: tuple[int, Affine] | None = None
    for x, index in indices:
        index = index.simplify(x.ranges)
        v = x.loops[d].var
        inner = {loop.var for loop in x.loops[d + 1 :]}
        if any(isinstance(a, FloorDiv) and v in a.num.names() for a, _ in index.terms):
            return False
        c = dict(index.terms).get(v, 0)
        outer = Affine(tuple((a, k) for a, k in index.terms if a != v and not ({a} if isinstance(a, str) else a.num.names()) & inner))
        low, high = (index - affine(v) * c - outer).bounds(x.ranges)
        if c == 0 or low is None or high is None or kept not in (None, (c, outer)):
            return False
        lowest, highest = (low, high) if kept is None else (min(low, lowest), max(high, highest))
        kept = c, outer
    return kept is not None and highest - lowest < abs(kept[0])
