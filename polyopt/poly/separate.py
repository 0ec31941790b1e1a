"""Do the iterations of a loop touch elements of their own? Answered on affine expressions, without isl.

Takes the leaves inside a loop (`poly/nest.py`). Two accesses to one tensor are apart where in some dim both indices are c·v + outer + rest, with
the loop's variable v, the same multiple c and the same terms of the loops around, and a rest that stays inside a window of c elements, but for
terms in steps wider than all that the loop spans: then they meet only in one iteration. True is a proof that the loop carries no dependence;
False says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ir.affine import Affine, Atom, Range, affine
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
    rows = [(x, [i.simplify(x.ranges) for i in a.affine_indices()]) for x, a in accesses]
    return any(_keeps_apart([(x, sum((i * f for i, f in zip(row, factors) if f), affine(0))) for x, row in rows], d) for factors in _sums(rows[0][1]))


def _sums(indices: Sequence[Affine]) -> Iterator[list[int]]:
    """Factors of sums of indices to look at: each index alone; two in which a floor cancels, as in [v//2, 8·v - 16·(v//2) + i]."""
    n = len(indices)
    yield from ([int(q == p) for p in range(n)] for q in range(n))
    for q, x in enumerate(indices):
        for p, y in enumerate(indices):
            for atom, k in x.terms:
                j = dict(y.terms).get(atom, 0)
                if p != q and not isinstance(atom, str) and j and k % j == 0:
                    yield [1 if r == q else -k // j if r == p else 0 for r in range(n)]


def _keeps_apart(indices: Sequence[tuple[Leaf, Affine]], d: int) -> bool:
    """Whether a sum of indices tells the iterations apart."""
    split = [_split(x, index, d) for x, index in indices]
    known = [s for s in split if s is not None]
    if len(known) < len(split) or len({(s.factor, s.outer) for s in known}) > 1 or not known[0].factor:
        return False
    return any(_tells(known, step) for step in (0, *sorted({abs(k) for s in known for _, k in s.rest.terms if abs(k) > 1})))


def _tells(known: Sequence[_Split], step: int) -> bool:
    """Whether equal sums come of one iteration only: terms that are multiples of the step aside, none where it is 0."""
    low = high = 0
    for n, s in enumerate(known):
        small = s.rest
        if step:
            small = Affine(tuple((a, k) for a, k in s.rest.terms if k % step), s.rest.const % step)
        lo, hi = small.bounds(s.ranges)
        if lo is None or hi is None:
            return False
        low, high = (min(low, lo), max(high, hi)) if n else (lo, hi)
    factor = abs(known[0].factor)
    if high - low >= factor:
        return False
    first, last = known[0].span
    return not step or (first is not None and last is not None and factor * (last - first) + high - low < step)


@dataclass(frozen=True)
class _Split:
    """A sum of indices as factor·v + outer + rest; the bounds of v and of all variables."""

    factor: int
    outer: Affine
    rest: Affine
    span: Range
    ranges: Mapping[str, Range]


def _split(x: Leaf, index: Affine, d: int) -> _Split | None:
    """None where the variable stands inside a floor."""
    v = x.loops[d].var
    inner = {loop.var for loop in x.loops[d + 1 :]}
    factor = 0
    outer: list[tuple[Atom, int]] = []
    rest: list[tuple[Atom, int]] = []
    for atom, k in index.terms:
        names = {atom} if isinstance(atom, str) else atom.num.names()
        if atom == v:
            factor = k
        elif v in names:
            return None
        else:
            (rest if names & inner else outer).append((atom, k))
    return _Split(factor, Affine(tuple(outer)), Affine(tuple(rest), index.const), x.ranges[v], x.ranges)
