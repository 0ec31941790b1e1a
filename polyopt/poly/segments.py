"""Do copies into a buffer and back hand on the values of a tensor? Seen segment by segment, without dataflow analysis.

Takes the Scop before and after a tensor was given a buffer (see `poly/promotion.py`). A segment is a maximal run of instances with equal outer
dates, down to where the copies stand: all uses of one tile's buffer. The order of the old statements must be what it was; then it is enough
that in each segment
- a cell of the buffer stands for one element, and an element for one cell, in all accesses;
- what is loaded is loaded before anything is written, what was written is stored after that;
- each cell that is read was written further up in the segment;
- each element whose cell a statement writes is stored;
- nothing else touches the tensor.
Between segments the tensor then holds what it held before, and in a segment the buffer does. True is a proof; False says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import islpy as isl

from ..ir.affine import Affine
from ..ir.expr import Access, Load
from ..ir.scop import Scop, Statement
from .access import tensor_box
from .convert import columns, to_multi_aff
from .digits import Dates, Digits, compute_digits, read_dates, shorten


@dataclass(frozen=True)
class _Use:
    """An access to the buffer: what the statement does there, where, the cell, and the element that it stands for. In the digits."""

    statement: str
    kind: str  # load: from the tensor; store: to it; read; write
    points: isl.Set
    cell: tuple[Affine, ...]
    element: tuple[Affine, ...]


@dataclass(frozen=True)
class _Promoted:
    """The uses of a buffer, the dates of all statements in their digits, and how many outer dates are equal in a segment."""

    uses: tuple[_Use, ...]
    dates: Dates
    top: int

    def of(self, *kinds: str) -> list[_Use]:
        """The uses of some kinds."""
        return [u for u in self.uses if u.kind in kinds]

    def place(self, u: _Use) -> int:
        """Where in the segment a use stands."""
        return self.dates[u.statement][self.top].const

    def key(self, u: _Use, depth: int, xs: Sequence[Affine]) -> isl.MultiAff:
        """The outer dates of a use and what it touches."""
        space = u.points.get_space()
        return to_multi_aff([*self.dates[u.statement][:depth], *xs], space, None, columns(space))


def hands_on_values(old: Scop, new: Scop, tensor: str, buffer: str) -> bool:
    """Whether all reads of the tensor, and its final contents, get the values that they got before, by the rules above."""
    known = {s.name for s in old.statements}
    before, after = read_dates(old.schedule, old.statements), read_dates(new.schedule, new.statements)
    if before is None or after is None or not known <= set(after) or not _same_order(before, after):
        return False
    digits = compute_digits((old, before), (new, after))
    uses: list[_Use] = []
    for s in new.statements:
        found = _old_uses(old, s, tensor, buffer, digits[s.name]) if s.name in known else _copy_uses(s, tensor, buffer, digits[s.name])
        if found is None:
            return False
        uses += found
    dates = shorten({n: [digits[n].rewrite(x) for x in d] for n, d in after.items()})
    top = _segment({u.statement for u in uses}, dates)
    if top is None:
        return False
    p = _Promoted(tuple(replace(u, points=_real(old, tensor, u).intersect_params(new.context)) for u in uses), dates, top)
    return _is_alone(new, tensor, p) and _is_in_turn(p) and _is_one_to_one(p) and _is_filled_first(p) and _is_stored(p)


# ---- what there is
def _same_order(before: Dates, after: Dates) -> bool:
    """Whether the statements of the old Scop are in the same order, seen from their dates without what two statements have in common."""

    def compared(x: Sequence[Affine], y: Sequence[Affine]) -> list[object]:
        out: list[object] = []
        for a, b in zip(x, y, strict=True):
            if not (a.is_const and b.is_const):
                out.append((a, b))
            elif a != b:
                return [*out, a.const < b.const]
        return out

    return all(compared(before[s], before[t]) == compared(after[s], after[t]) for s in before for t in before)


def _old_uses(old: Scop, now: Statement, tensor: str, buffer: str, digits: Digits) -> list[_Use] | None:
    """The uses by a statement of the old Scop; None where anything else of it has changed, or an index is read at run time."""
    was = old.statement(now.name)
    if (was.reduction, was.iters, len(was.reads())) != (now.reduction, now.iters, len(now.reads())) or not was.domain.is_equal(now.domain):
        return None
    kinds = [("write", was.write, now.write)] + ([("read", was.write, now.write)] if was.reduction is not None else [])
    out = []
    for kind, a, b in [*kinds, *(("read", a, b) for a, b in zip(was.reads(), now.reads(), strict=True))]:
        if b.tensor == buffer and a.tensor == tensor and a.is_affine and b.is_affine:
            out.append(_use(now.name, kind, b, a, digits))
        elif a != b:
            return None
    return list(dict.fromkeys(out))


def _copy_uses(s: Statement, tensor: str, buffer: str, digits: Digits) -> list[_Use] | None:
    """The use by a statement that only the new Scop has; None where it is no copy between the tensor and its buffer."""
    if not isinstance(s.expr, Load) or s.reduction is not None or not (s.write.is_affine and s.expr.access.is_affine):
        return None
    ends = s.write.tensor, s.expr.access.tensor
    if ends == (buffer, tensor):
        return [_use(s.name, "load", s.write, s.expr.access, digits)]
    return [_use(s.name, "store", s.expr.access, s.write, digits)] if ends == (tensor, buffer) else None


def _use(statement: str, kind: str, cell: Access, element: Access, digits: Digits) -> _Use:
    a, b = (tuple(digits.rewrite(x) for x in access.affine_indices()) for access in (cell, element))
    return _Use(statement, kind, digits.domain, a, b)


def _real(old: Scop, tensor: str, u: _Use) -> isl.Set:
    """Where a use is of an element that is there: a guarded read is not evaluated elsewhere."""
    space = u.points.get_space()
    return u.points.intersect(tensor_box(old.tensor(tensor), old.params).preimage_multi_aff(to_multi_aff(u.element, space, tensor, columns(space))))


def _segment(statements: set[str], dates: Dates) -> int | None:
    """How many dates come before the first in which the statements stand apart."""
    for k, xs in enumerate(zip(*(dates[n] for n in statements))):
        if all(x.is_const for x in xs) and len(set(xs)) > 1:
            return k
    return None


# ---- the rules
def _is_alone(new: Scop, tensor: str, p: _Promoted) -> bool:
    """Whether inside the segments nothing else writes the tensor or, where the buffer is written, reads it."""
    segments = {tuple(p.dates[u.statement][: p.top]) for u in p.uses}
    copies = {u.statement for u in p.of("load", "store")}
    for s in new.statements:
        reads = p.of("write") and any(a.tensor == tensor for a in s.reads())
        if s.name not in copies and (s.write.tensor == tensor or reads):
            if not all(any(x.is_const and y.is_const and x != y for x, y in zip(p.dates[s.name], outer)) for outer in segments):
                return False
    return True


def _is_in_turn(p: _Promoted) -> bool:
    """Whether loads come before all writes and stores, and stores after all writes."""
    return all(
        p.place(first) < p.place(then)
        for before, after in (("load", "write"), ("load", "store"), ("write", "store"))
        for first in p.of(before)
        for then in p.of(after)
    )


def _is_one_to_one(p: _Promoted) -> bool:
    """Whether in each segment a cell stands for one element, and an element for one cell."""
    for here, there in (("cell", "element"), ("element", "cell")):
        total: isl.Map | None = None
        for u in p.uses:
            keys = isl.Map.from_multi_aff(p.key(u, p.top, getattr(u, here))).intersect_domain(u.points)
            m = keys.reverse().apply_range(isl.Map.from_multi_aff(p.key(u, 0, getattr(u, there))))
            total = m if total is None else total if m.is_subset(total) else total.union(m)
        if total is not None and not total.is_single_valued():
            return False
    return True


def _is_filled_first(p: _Promoted) -> bool:
    """Whether each cell that is read was written further up in the segment."""
    for u in p.of("read", "store"):
        left = u.points
        for w in p.of("load", "write"):
            depth = _parting(p, w, u)
            if depth is not None and not left.is_empty():
                written = w.points.apply(isl.Map.from_multi_aff(p.key(w, depth, w.cell)))
                left = left.subtract(written.preimage_multi_aff(p.key(u, depth, u.cell)))
        if not left.is_empty():
            return False
    return True


def _parting(p: _Promoted, w: _Use, u: _Use) -> int | None:
    """The first date in which two statements stand apart, the first before the second; None where it is not before."""
    for k, (x, y) in enumerate(zip(p.dates[w.statement], p.dates[u.statement])):
        if x.is_const and y.is_const and x != y:
            return k if x.const < y.const else None
    return None


def _is_stored(p: _Promoted) -> bool:
    """Whether each element whose cell is written in a segment is stored in it."""
    for u in p.of("write"):
        left = u.points
        for w in p.of("store"):
            stored = w.points.apply(isl.Map.from_multi_aff(p.key(w, p.top, w.element)))
            left = left.subtract(stored.preimage_multi_aff(p.key(u, p.top, u.element)))
        if not left.is_empty():
            return False
    return True
