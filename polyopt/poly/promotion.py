"""Promotion: proof that copies into a buffer and back hand on the very values that were read before.

Takes the Scop before and after a tensor was given a buffer; the copies are the statements that only the new one has. For each read of the
tensor (and for its final contents) it computes, in either order, whose value is read: that of a write, or of an element as it was at the
start. In the new Scop a value that comes from a copy is traced back to what was copied. The two relations must be equal. Exact,
value-based, and free of the liberties of reductions: promotion reorders nothing, so each update still reads the update before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from ..errors import InternalError, ScheduleError
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..isl_ext import CTX, IN, OUT, OperationBudget, Point, maps_of, max_operations, param_space, sample_map
from .access import tensor_box
from .deps import BUDGET, compute_dependences
from .digits import Frame, compute_frames
from .legality import find_violation, is_respected
from .segments import hands_on_values
from .witness import small_pair

END = "end"  # the virtual statement that reads each element of the tensor when all is done
MOST_HOPS = 4  # copies in a row that are traced back; one store and one load are what a promotion makes


@dataclass(frozen=True)
class Promotion:
    """A promotion whose proof is left to the certificate: `scop.meta["promotions"]` holds a tuple of these."""

    old: Scop
    new: Scop
    tensor: str
    buffer: str


@dataclass(frozen=True)
class Difference:
    """A read that gets another value: `reader` reads what `source` (an instance, or an element's initial value) gives only before, or only after."""

    reader: tuple[str, Point]
    source: tuple[str, Point]
    lost: bool
    params: dict[str, int]

    def __str__(self) -> str:
        def place(x: tuple[str, Point]) -> str:
            return f"{x[0]}({', '.join(map(str, x[1]))})"

        where = f" with {', '.join(f'{k}={v}' for k, v in self.params.items())}" if self.params else ""
        reader = f"the final value of element {', '.join(map(str, self.reader[1]))}" if self.reader[0] == END else place(self.reader)
        return f"{reader} {'no longer' if self.lost else 'now'} gets the value of {place(self.source)}{where}"


def check_promotion(old: Scop, new: Scop, tensor: str, buffer: str, step: str) -> None:
    """Refuse a promotion that changes a value, or that isl cannot prove within its budget. `step` is the verb as the user wrote it."""
    try:
        with max_operations(BUDGET):
            found = find_difference(old, new, tensor, buffer)
    except OperationBudget as e:
        raise ScheduleError(f"{step}: cannot be proven: {e}; promote further inside, or use fewer tile levels") from None
    if found is not None:
        raise ScheduleError(f"{step}: reads through {buffer} would differ: {found}")


def find_difference(old: Scop, new: Scop, tensor: str, buffer: str) -> Difference | None:
    """Some read of a tensor that gets another value once it goes through its buffer; None where all values are the same.

    Also a dependence of the old Scop, through whatever tensor, that the new order breaks.
    """
    if hands_on_values(old, new, tensor, buffer) and (old.dependences is None or is_respected(old)):
        return None
    known = {s.name for s in old.statements}
    copies = [s for s in new.statements if s.name not in known]
    old = old if old.dependences is not None else compute_dependences(old)
    broken = find_violation(old, new.schedule.intersect_domain(old.domain()), old.label != "bit-identical")
    if broken is not None and old.dependences is not None and not old.dependences.exact:
        raise OperationBudget("the dependences exceed isl's budget")
    if broken is not None:
        source, sink, params = small_pair(broken[1].intersect_params(old.context))
        return Difference((broken[1].get_tuple_name(OUT), sink), (broken[1].get_tuple_name(IN), source), True, params)
    sides = tuple(_Side(scop, f) for scop, f in zip((old, new), compute_frames((old, old.schedule), (new, new.schedule))))
    before, after = (_read_slots(old, side, tensor, copies) for side in sides)
    old_writes, new_writes = sides[0].writes((tensor,)), sides[1].writes((tensor, buffer))
    own = _domain(sides[1], copies)
    carried: isl.UnionMap | None = None
    for sinks_before, sinks_after in zip(before, after, strict=True):
        want = _values(sides[0], sinks_before, old_writes, tensor)
        got = _values(sides[1], sinks_after, new_writes, tensor)
        carried = _carried(got, own) if carried is None else carried  # the first slot holds the copies' reads
        read = got.subtract_range(own)
        got = read.subtract_domain(own).union(carried.apply_range(read.intersect_domain(own)))
        for a, b, lost in ((want, got, True), (got, want, False)):
            if not a.is_subset(b):
                return _describe(sides[1].frame.outward(a.subtract(b)), lost)
    return None


def _describe(wrong: isl.UnionMap, lost: bool) -> Difference:
    m = next(m for m in maps_of(wrong) if not m.is_empty())
    found = sample_map(m)
    assert found is not None
    return Difference((m.get_tuple_name(OUT), found[1]), (m.get_tuple_name(IN), found[0]), lost, found[2])


def prove_promotions(scop: Scop) -> str:
    """The promotions that were left to the certificate change no value. Raises InternalError with a witness."""
    left: tuple[Promotion, ...] = scop.meta.get("promotions", ())
    for p in left:
        found = find_difference(p.old, p.new, p.tensor, p.buffer)
        if found is not None:
            raise InternalError(f"the copies of {p.tensor} to {p.buffer} change a value: {found}")
    return f"the copies of {len(left)} buffers hand on the values that were read before" if left else "no copies are left to prove"


# ---- accesses
@dataclass(frozen=True)
class _Side:
    """The Scop before or after, in coordinates that both share."""

    scop: Scop
    frame: Frame

    def relation(self, s: Statement, a: Access) -> isl.Map:
        """The elements that an access of a statement may touch."""
        return self.frame.digits[s.name].access(s, a, self.scop.tensor(a.tensor).shape)

    def writes(self, tensors: Sequence[str]) -> tuple[isl.UnionMap, isl.UnionMap]:
        """The writes to the tensors: those of a known element, and indirect ones."""
        mine = [s for s in self.scop.statements if s.write.tensor in tensors]
        must = [self.relation(s, s.write) for s in mine if s.write.is_affine]
        may = [self.relation(s, s.write) for s in mine if not s.write.is_affine]
        return _union(self.scop, must), _union(self.scop, may)


def _read_slots(old: Scop, side: _Side, tensor: str, copies: Sequence[Statement]) -> list[isl.UnionMap]:
    """The reads of the tensor, at most one of each statement in each slot, as they are on a side: by way of the buffer on the new one.

    Slots are numbered by the old Scop's reads. The first one also holds the final read of every element and, on the new side, the copies' reads.
    """
    scop = side.scop
    written = any(s.write.tensor == tensor for s in (*old.statements, *scop.statements))
    slots = [[_final_reads(old, tensor)] if written else []]
    slots[0] += [side.relation(s, s.reads()[0]) for s in copies if scop is not old]
    inside = tensor_box(old.tensor(tensor), old.params)
    for s in old.statements:
        for k, (was, now) in enumerate(_reads_of(s, scop.statement(s.name), tensor)):
            # a guarded load may have a footprint that leaves the tensor, where nothing is read
            real = side.frame.digits[s.name].access(s, was, old.tensor(tensor).shape).intersect_range(inside).domain()
            if k == len(slots):
                slots.append([])
            slots[k].append(side.relation(scop.statement(s.name), now).intersect_domain(real))
    return [_union(old, maps).intersect_params(old.context) for maps in slots]


def _reads_of(old: Statement, now: Statement, tensor: str) -> list[tuple[Access, Access]]:
    """The distinct reads of the tensor by a statement, each with what has become of it (an update also reads its own cell)."""
    pairs = list(zip(old.reads(), now.reads(), strict=True))
    if old.reduction is not None:
        pairs.append((old.write, now.write))
    return list(dict.fromkeys(p for p in pairs if p[0].tensor == tensor))


def _final_reads(scop: Scop, tensor: str) -> isl.Map:
    cells = tensor_box(scop.tensor(tensor), scop.params)
    return cells.set_tuple_name(END).identity().set_tuple_name(OUT, tensor)


def _union(scop: Scop, maps: Sequence[isl.Map]) -> isl.UnionMap:
    out = isl.UnionMap.empty(param_space(scop.params))
    for m in maps:
        out = out.union(m.to_union_map())
    return out


# ---- values
def _values(side: _Side, sinks: isl.UnionMap, writes: tuple[isl.UnionMap, isl.UnionMap], tensor: str) -> isl.UnionMap:
    """Whose value each read gets: writing instance → reader, and element (of its initial value) → reader."""
    if writes[0].is_empty() and writes[1].is_empty():
        return sinks.reverse()
    info = isl.UnionAccessInfo.from_sink(sinks).set_must_source(writes[0]).set_may_source(writes[1])
    flow = info.set_schedule_map(_order_to_end(side, tensor)).compute_flow()
    return flow.get_may_dependence().union(flow.get_may_no_source().reverse())


def _order_to_end(side: _Side, tensor: str) -> isl.UnionMap:
    """The dates of all instances, then those of the final reads."""
    out = isl.UnionMap.empty(param_space(side.scop.params))
    last = 1
    for m in maps_of(side.frame.order):
        out = out.add_map(m.insert_dims(OUT, 0, 1).fix_val(OUT, 0, isl.Val.zero(CTX)))
        last = m.dim(OUT) + 1
    cells = tensor_box(side.scop.tensor(tensor), side.scop.params).set_tuple_name(END)
    date = isl.Map.from_domain(cells).add_dims(OUT, last)
    for d in range(last):
        date = date.fix_val(OUT, d, isl.Val.zero(CTX) if d else isl.Val.one(CTX))
    return out.add_map(date)


def _domain(side: _Side, copies: Sequence[Statement]) -> isl.UnionSet:
    out = isl.UnionSet.empty(param_space(side.scop.params))
    for s in copies:
        out = out.union(isl.UnionSet.from_set(isl.Set.universe(side.frame.digits[s.name].domain.get_space())))
    return out


def _carried(values: isl.UnionMap, copies: isl.UnionSet) -> isl.UnionMap:
    """What each copy carries, traced back through copies: instance that is no copy, or element → copy."""
    edges = values.intersect_range(copies)
    hops = edges.intersect_domain(copies)
    total = step = edges.subtract_domain(copies)
    for _ in range(MOST_HOPS):
        step = step.apply_range(hops)
        if step.is_subset(total):
            return total
        total = total.union(step)
    raise OperationBudget(f"a value goes through more than {MOST_HOPS} copies in a row")
