"""Dependences by isl's dataflow analysis.

Takes a Scop whose schedule has no extension nodes; gives the same Scop with `dependences`, valid for all parameters in its
context. Flow is value-based; anti and output are memory-based and leave out what follows by transitivity. The updates of one associative
reduction may be put in another order, so none of them hides another: a reader depends on every update and every update depends on
the write that starts the reduction; the order among the updates themselves is kept apart in `reduction`.
(Feautrier 1991, Dataflow analysis of array and scalar references; Verdoolaege, isl manual, Dependence Analysis.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from ..ir.scop import Dependences, Scop, Statement
from ..isl_ext import OUT, SET, OperationBudget, max_operations, param_space
from .access import read_maps, reads, write_map

# a buffer of these scopes belongs to one tile: its anti and output dependences are left out, and `legality` compares its flow
PRIVATE_SCOPES = ("registers", "cache", "shared")
BUDGET = 5_000_000  # isl operations, a few seconds; a convolution takes under 100 thousand


@dataclass(frozen=True)
class _Accesses:
    """The writes, sorted by what they do to earlier writes of the same cell."""

    must: isl.UnionMap  # overwrite the cell
    update: isl.UnionMap  # change it by a reduction
    may: isl.UnionMap  # indirect: some cell

    def all(self) -> isl.UnionMap:
        """Every write."""
        return self.must.union(self.update).union(self.may)

    def within(self, cells: isl.UnionSet) -> _Accesses:
        """The writes to these elements."""
        return _Accesses(*(u.intersect_range(cells) for u in (self.must, self.update, self.may)))

    def outside(self, cells: isl.UnionSet) -> _Accesses:
        """The writes to other elements."""
        return _Accesses(*(u.subtract_range(cells) for u in (self.must, self.update, self.may)))


def has_private(scop: Scop) -> bool:
    """Whether some local buffer is private to the tile that fills it."""
    return any(t.scope in PRIVATE_SCOPES and t.role == "local" for t in scop.tensors)


def private_cells(scop: Scop) -> isl.UnionSet:
    """The elements of the buffers that are private to a tile."""
    out = isl.UnionSet.empty(param_space(scop.params))
    for t in scop.tensors:
        if t.scope in PRIVATE_SCOPES and t.role == "local":
            space = param_space(scop.params).add_unnamed_tuple_ui(len(t.shape)).set_tuple_name(SET, t.name)
            out = out.union(isl.UnionSet.from_set(isl.Set.universe(space)))
    return out


def _writes(scop: Scop) -> _Accesses:
    must = update = may = isl.UnionMap.empty(param_space(scop.params))
    for s in scop.statements:
        w = write_map(scop, s).to_union_map()
        if s.reduction is not None:
            update = update.union(w)
        elif s.write.is_affine:
            must = must.union(w)
        else:
            may = may.union(w)
    return _Accesses(must, update, may)


def compute_dependences(scop: Scop) -> Scop:
    """The Scop with its dependences. Falls back to memory-based dependences, a superset, where isl's budget is spent."""
    try:
        with max_operations(BUDGET):
            deps = _value_based(scop)
    except OperationBudget:
        deps = replace(_memory_based(scop), exact=False)
    return replace(scop, dependences=deps)


def _value_based(scop: Scop) -> Dependences:
    w = _writes(scop)
    flow, reduction = _split_reduction(scop, _flow_of(scop, reads(scop), w))
    cells = private_cells(scop)
    anti, output = _anti_output(scop, reads(scop, own_cell=False).subtract_range(cells), w.outside(cells))
    return _clean(scop, flow, anti, output, reduction)


def _anti_output(scop: Scop, loads: isl.UnionMap, w: _Accesses) -> tuple[isl.UnionMap, isl.UnionMap]:
    anti = _flow(scop, sink=w.all(), may=loads, kill=w.must).get_may_dependence()
    # a dependence into an update is also a flow dependence, through the cell that the update reads
    return anti, _flow_of(scop, w.must.union(w.may), w)


def _flow_of(scop: Scop, sink: isl.UnionMap, w: _Accesses, order: isl.Schedule | None = None) -> isl.UnionMap:
    return _flow(scop, sink, must=w.must, may=w.update.union(w.may), order=order).get_may_dependence()


def _flow(
    scop: Scop,
    sink: isl.UnionMap,
    must: isl.UnionMap | None = None,
    may: isl.UnionMap | None = None,
    kill: isl.UnionMap | None = None,
    order: isl.Schedule | None = None,
) -> isl.UnionFlow:
    info = isl.UnionAccessInfo.from_sink(sink.intersect_params(scop.context))
    if must is not None:
        info = info.set_must_source(must)
    if may is not None:
        info = info.set_may_source(may)
    if kill is not None:
        info = info.set_kill(kill)
    return info.set_schedule(scop.schedule if order is None else order).compute_flow()


def _split_reduction(scop: Scop, deps: isl.UnionMap) -> tuple[isl.UnionMap, isl.UnionMap]:
    """Apart: what goes from an update through its own cell to an update of the same statement; the rest."""
    own = isl.UnionMap.empty(param_space(scop.params))
    for s in scop.statements:
        if s.reduction is None:
            continue
        w = write_map(scop, s).to_union_map()
        pairs = w.apply_range(w.reverse())
        # a load of the same tensor by the same statement makes true dependences, which are no matter of the update's order
        through_loads = isl.UnionMap.empty(param_space(scop.params))
        for m in _own_loads(scop, s):
            through_loads = through_loads.union(w.apply_range(m.to_union_map().reverse()))
        own = own.union(pairs.subtract(through_loads))
    return deps.subtract(own), deps.intersect(own)


def _own_loads(scop: Scop, s: Statement) -> list[isl.Map]:
    return [m for m in read_maps(scop, s) if m.get_tuple_name(OUT) == s.write.tensor]


def _memory_based(scop: Scop) -> Dependences:
    order = scop.schedule.get_map()
    before = order.lex_lt_union_map(order)
    w = _writes(scop)
    cells = private_cells(scop)
    p = w.outside(cells)

    def pairs(a: isl.UnionMap, b: isl.UnionMap) -> isl.UnionMap:
        return a.apply_range(b.reverse()).intersect(before).intersect_params(scop.context)

    flow, reduction = _split_reduction(scop, pairs(w.all(), reads(scop)))
    return _clean(scop, flow, pairs(reads(scop, own_cell=False).subtract_range(cells), p.all()), pairs(p.all(), p.must.union(p.may)), reduction)


def _clean(scop: Scop, *parts: isl.UnionMap) -> Dependences:
    space = param_space(scop.params)
    flow, anti, output, reduction = (p.coalesce().align_params(space) for p in parts)
    return Dependences(flow, anti, output, reduction)


def compute_private_flow(scop: Scop, order: isl.Schedule) -> isl.UnionMap:
    """The flow through private buffers in a given order, updates of one reduction among themselves left out."""
    cells = private_cells(scop)
    flow = _flow_of(scop, reads(scop).intersect_range(cells), _writes(scop).within(cells), order)
    return _split_reduction(scop, flow)[0]


def compute_flow_through(scop: Scop, tensor: str) -> isl.UnionMap:
    """The flow through one tensor, that among updates of a reduction included."""
    space = param_space(scop.params).add_unnamed_tuple_ui(len(scop.tensor(tensor).shape)).set_tuple_name(SET, tensor)
    cells = isl.UnionSet.from_set(isl.Set.universe(space))
    return _flow_of(scop, reads(scop).intersect_range(cells), _writes(scop).within(cells))


def compute_private_order(scop: Scop) -> tuple[isl.UnionMap, isl.UnionMap]:
    """The anti and output dependences through private buffers, which `Dependences` leaves out.

    An order that respects them too keeps the flow through these buffers; one that does not may still keep it.
    """
    cells = private_cells(scop)
    return _anti_output(scop, reads(scop, own_cell=False).intersect_range(cells), _writes(scop).within(cells))


def compute_live_in(scop: Scop) -> isl.UnionMap:
    """Reads whose value may come from outside the Scop: instances → elements."""
    w = _writes(scop)
    return _flow(scop, sink=reads(scop), must=w.must, may=w.update.union(w.may)).get_may_no_source()


def compute_live_out(scop: Scop) -> isl.UnionMap:
    """Writes that no later write of the Scop surely overwrites: instances → elements."""
    w = _writes(scop)
    every = w.all().intersect_params(scop.context)
    order = scop.schedule.get_map()
    later = order.lex_lt_union_map(order)
    return every.subtract(later.apply_range(w.must))
