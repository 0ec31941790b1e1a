"""Which accesses can be the source of a dependence into one statement: what isl has to look at in a program of many statements.

Takes the order of a program and its accesses; gives, for the accesses of one statement, those of the sources that dataflow analysis could find,
proven from where the statements stand in the sequences of the program. isl compares each sink with each source of its tensor, level by level,
which takes minutes for 500 statements.

A source that hides (a write that surely happens) and stands before the sink in a sequence hides, for the cells that it writes at the same dates of
the loops around that sequence, everything that comes before it. So the sources are walked from the sink backwards, from the innermost sequence
outwards, and the walk keeps the cells that are still *needed*, by the dates of the loops around. A source that touches none of them, or none
in an earlier iteration, has no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import islpy as isl

from ..isl_ext import IN
from .order import Dates, constant

Position = tuple[int | None, ...]  # by date: the constant that it is, None for a loop


@dataclass(frozen=True)
class Source:
    """An access that may be a source: its relation from instances to cells, and whether it hides what comes before it."""

    relation: isl.Map
    hides: bool
    kind: int  # which of the caller's kinds it is
    placed: dict[int, isl.Map] = field(default_factory=dict, compare=False)  # by the first k dates to cells, as far as asked for

    @cached_property
    def statement(self) -> str:
        """The statement's name."""
        return str(self.relation.get_tuple_name(IN))

    @cached_property
    def cells(self) -> isl.Set:
        """The cells that it touches."""
        return self.relation.range()

    @cached_property
    def text(self) -> str:
        """The cells as text: equal texts are equal cells."""
        return str(self.cells)


class Order:
    """Where the statements of a program stand: their dates, and the accesses by the dates of the outer loops."""

    def __init__(self, dates: Dates) -> None:
        self._dates = dates
        self._position = {n: tuple(constant(p) for p in ps) for n, ps in dates.items()}
        self._prefixes: dict[tuple[str, int], isl.Map] = {}

    def by_prefix(self, statement: str, relation: isl.Map, k: int) -> isl.Map:
        """A statement's accesses as a relation from its first k dates to cells."""
        return relation.apply_domain(self._prefix(statement, k))

    def placed(self, source: Source, k: int) -> isl.Map:
        """The same for a source, remembered."""
        if k not in source.placed:
            source.placed[k] = self.by_prefix(source.statement, source.relation, k)
        return source.placed[k]

    def _prefix(self, statement: str, k: int) -> isl.Map:
        key = (statement, k)
        if key not in self._prefixes:
            dates = self._dates[statement]
            whole = isl.Map.from_domain(isl.Set.universe(dates[0].get_space().domain()))
            for p in dates[:k]:
                whole = whole.flat_range_product(isl.Map.from_pw_aff(p))
            self._prefixes[key] = whole
        return self._prefixes[key]

    def fork(self, a: str, b: str) -> tuple[int, int | None]:
        """The first date at which two statements stand apart, and how far the first is before the second there (None where that is not constant)."""
        p, q = self._position[a], self._position[b]
        for k, (x, y) in enumerate(zip(p, q)):
            if x is None and y is None:
                continue
            if x is None or y is None:
                return k, None
            if x != y:
                return k, y - x
        return len(p), None

    def is_repeated(self, statement: str, k: int) -> bool:
        """Whether a loop is among the first k dates."""
        return any(x is None for x in self._position[statement][:k])


def choose_sources(order: Order, statement: str, relation: isl.Map, sources: Sequence[Source]) -> list[Source]:
    """The sources, all of the tensor that a statement's relation touches, that may be the last before some of its instances."""
    meets = _Meeting()
    levels: dict[int, list[tuple[int, Source]]] = {}
    chosen: list[Source] = []
    whole = relation.range()
    for x in sources:
        k, ahead = order.fork(x.statement, statement)
        if ahead is not None:
            levels.setdefault(k, []).append((ahead, x))
        elif meets(whole, x):
            chosen.append(x)
    needed, deepest = relation, -1
    for k in sorted(levels, reverse=True):
        needed = order.by_prefix(statement, needed, k) if deepest < 0 else needed.project_out(IN, k, deepest - k)
        deepest = k
        needed = _walk_back(order, levels[k], needed, k, chosen)
        if needed.is_empty():
            break
        if order.is_repeated(statement, k):
            left, taken = needed.range(), {id(x) for x in chosen}
            meets = _Meeting()
            chosen += [x for _, x in levels[k] if id(x) not in taken and meets(left, x)]
    return chosen


def _walk_back(order: Order, level: Iterable[tuple[int, Source]], needed: isl.Map, k: int, chosen: list[Source]) -> isl.Map:
    """What is needed less what the sources before the sink in one sequence write, nearest first; those that touch it are chosen."""
    groups: dict[int, list[Source]] = {}
    for ahead, x in level:
        if ahead > 0:
            groups.setdefault(ahead, []).append(x)
    left, meets = needed.range(), _Meeting()
    for ahead in sorted(groups):
        hit = [x for x in groups[ahead] if meets(left, x) and not order.placed(x, k).is_disjoint(needed)]
        chosen += hit
        hiding = [x for x in hit if x.hides]
        for x in hiding:
            needed = needed.subtract(order.placed(x, k))
        if hiding:
            needed = needed.coalesce()
            left, meets = needed.range(), _Meeting()
            if left.is_empty():
                break
    return needed


class _Meeting:
    """Whether sources touch some of a set of cells, asked once for equal cells."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def __call__(self, cells: isl.Set, x: Source) -> bool:
        if x.text not in self._known:
            self._known[x.text] = not x.cells.is_disjoint(cells)
        return self._known[x.text]


def union_of(parts: Sequence[isl.UnionMap], empty: Callable[[], isl.UnionMap]) -> isl.UnionMap:
    """The union of many relations, by halves: one by one, each would be copied as often as there are others."""
    if len(parts) < 2:
        return parts[0] if parts else empty()
    half = len(parts) // 2
    return union_of(parts[:half], empty).union(union_of(parts[half:], empty))
