"""Does a LoopNest run its instances in the order of the Scop's schedule? Answered on affine expressions, almost without isl.

Takes the leaves of a nest (`poly/nest.py`) and the Scop; writes each leaf's schedule dates in its loop variables and goes through dates and
loops together, from the outside in: a loop that all leaves below it have as their next date keeps the order, one whose iterations touch
elements of their own needs none, and parts of one body must be apart in their next date. True is a proof, given that no value of a declared
buffer outlives an iteration of the loops around its declaration; False says nothing (the schedule may be of a shape that this way does
not follow).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ..ir.affine import Affine, FloorDiv, affine
from ..ir.loops import Loop
from ..ir.scop import Scop
from .digits import read_dates
from .lifetimes import life_of
from .nest import Leaf, is_equal
from .separate import accesses_of, iterations_apart

MOST_BOUNDS = 16  # combinations of loop bounds that are tried to tell two parts apart


@dataclass(frozen=True)
class _Row:
    leaf: Leaf
    dates: tuple[Affine, ...]  # of the schedule, in the loop variables


def follows_schedule(scop: Scop, leaves: Sequence[Leaf]) -> bool:
    """Whether of two instances that touch one element, and not both read it, the one with the lesser date runs first."""
    dates = read_dates(scop.schedule, scop.statements)
    if dates is None:
        return False
    rows = []
    for x in leaves:
        values = dict(zip(scop.statement(x.instance.statement).iters, x.instance.coords))
        rows.append(_Row(x, tuple(d.substitute(values).simplify(x.ranges) for d in dates[x.instance.statement])))
    return _in_order(rows, 0, 0)


def _in_order(rows: Sequence[_Row], d: int, k: int) -> bool:
    """Whether the order is kept among rows that share d loops, whose variables are equal, and whose first k dates are equal then."""
    while rows and k < len(rows[0].dates):
        guard = _parting_guard(rows, d)
        if guard is not None:  # the two sides never run under the same values of the loops around
            return all(_in_order([r for r in rows if r.leaf.branches.get(guard) is not side], d, k) for side in (True, False))
        date = rows[0].dates[k]
        one_date = all(r.dates[k] == date for r in rows)
        if one_date and date.names() <= _outer(rows[0].leaf, d):
            k += 1
            continue
        if any(r.leaf.positions[d] != rows[0].leaf.positions[d] for r in rows):
            groups = _groups(rows, d, k)
            return len(groups) > 1 and all(_in_order(group, d, k) for group in groups)
        if len(rows[0].leaf.loops) == d:
            return True  # one instance
        loop = rows[0].leaf.loops[d]
        if _is_date(loop, rows, d, k):
            k += 1
        elif not (loop.trip is not None and loop.trip <= 1) and not _is_free(rows, d):
            return False
        d += 1
    return True


def _is_free(rows: Sequence[_Row], d: int) -> bool:
    """Whether the iterations of the loop at depth d may run in any order: they meet in no element but of buffers that each has for itself."""
    leaves = [r.leaf for r in rows]
    shared: set[str] = set()
    for x in leaves:
        lives = {a.tensor: life_of(x, a.tensor) for a, _ in accesses_of(x)}
        shared |= {t for t, life in lives.items() if life is None or life[1] <= d}
    return iterations_apart(leaves, d, ignore={a.tensor for x in leaves for a, _ in accesses_of(x)} - shared)


def _parting_guard(rows: Sequence[_Row], d: int) -> tuple[int, ...] | None:
    """A guard in the body at depth d with rows on both its sides."""
    sides: dict[tuple[int, ...], bool] = {}
    for r in rows:
        for at, side in r.leaf.branches.items():
            if len(at) == d + 1 and sides.setdefault(at, side) is not side:
                return at
    return None


def _outer(x: Leaf, d: int) -> set[str]:
    """What has one value in the first d loops: their variables and the parameters."""
    return {n for n in x.ranges if all(n != loop.var for loop in x.loops[d:])}


def _groups(rows: Sequence[_Row], d: int, k: int) -> list[list[_Row]]:
    """The rows by their place in the body at depth d, in order; places of which not all dates k are below all later ones are one group."""
    places: dict[int, list[_Row]] = {}
    for r in rows:
        places.setdefault(r.leaf.positions[d], []).append(r)
    parts = [places[p] for p in sorted(places)]
    groups: list[list[_Row]] = []
    last = [max((j for j in range(i + 1, len(parts)) if not _below(p, parts[j], d, k)), default=i) for i, p in enumerate(parts)]
    open_until = -1
    for i, part in enumerate(parts):
        if i > open_until:
            groups.append([])
        groups[-1].extend(part)
        open_until = max(open_until, last[i])
    return groups


def _is_date(loop: Loop, rows: Sequence[_Row], d: int, k: int) -> bool:
    """Whether date k is, in all rows, one expression that grows with the variable of the loop at depth d."""
    outer = _outer(rows[0].leaf, d + 1)
    date = next((r.dates[k] for r in rows if _grows(r.dates[k], loop.var) and r.dates[k].names() <= outer), None)
    return date is not None and all(is_equal(r.leaf, r.dates[k], date) for r in rows)


def _grows(x: Affine, name: str) -> bool:
    """Whether an expression is a positive multiple of a variable and terms without it."""
    return dict(x.terms).get(name, 0) > 0 and not any(isinstance(a, FloorDiv) and name in a.num.names() for a, _ in x.terms)


def _below(p: Sequence[_Row], q: Sequence[_Row], d: int, k: int) -> bool:
    """Whether all dates k of one part are less than all of another's."""
    if all(r.dates[k].is_const for r in (*p, *q)):
        return max(r.dates[k].const for r in p) < min(r.dates[k].const for r in q)
    return all(_less(a, b, d, k) for a in p for b in q)


def _less(a: _Row, b: _Row, d: int, k: int) -> bool:
    """Whether date k of one row is less than another's wherever both run with the same values of the first d loops."""
    fresh = {loop.var: affine(loop.var + "'") for loop in b.leaf.loops[d:]}
    ranges = {**a.leaf.ranges, **{loop.var + "'": b.leaf.ranges[loop.var] for loop in b.leaf.loops[d:]}}
    x, y = a.dates[k], b.dates[k].substitute(fresh)
    lows = [z.substitute(fresh) for z in _extremes(b.dates[k], b.leaf.loops[d:], False)]
    for high, low in ((x, y), *product(_extremes(x, a.leaf.loops[d:], True), lows)):
        most = (high - low).simplify(ranges).bounds(ranges)[1]
        if most is not None and most < 0:
            return True
    return False


def _extremes(x: Affine, loops: Sequence[Loop], greatest: bool) -> list[Affine]:
    """Upper (or lower) bounds of an expression, free of the loops' variables as far as these stand outside floors."""
    found = [x]
    for loop in reversed(loops):
        out: list[Affine] = []
        for y in found:
            c = dict(y.terms).get(loop.var, 0)
            ends = [] if c == 0 else [e - 1 for e in loop.upper] if (c > 0) == greatest else list(loop.lower)
            out += [y + (e - affine(loop.var)) * c for e in ends] or [y]
        found = out[:MOST_BOUNDS]
    return found
