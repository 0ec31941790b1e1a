"""Dependences by isl's dataflow analysis.

Takes a Scop whose schedule has no extension nodes; gives the same Scop with `dependences`, valid for all parameters in its context.
Flow is value-based; anti and output are memory-based and leave out what follows by transitivity. The updates of one associative
reduction may be put in another order, so none of them hides another: a reader depends on every update and every update depends on
the write that starts the reduction; the order among the updates themselves is kept apart in `reduction`.
(Feautrier 1991, Dataflow analysis of array and scalar references; Verdoolaege, isl manual, Dependence Analysis.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from ..ir.scop import Dependences, Scop, Statement
from ..isl_ext import OUT, OperationBudget, max_operations, param_space
from .access import read_maps, reads, write_map

BUDGET = 20_000_000  # isl operations; a convolution takes about 100 thousand


@dataclass(frozen=True)
class _Accesses:
    """The writes, sorted by what they do to earlier writes of the same cell."""

    must: isl.UnionMap  # overwrite the cell
    update: isl.UnionMap  # change it by a reduction
    may: isl.UnionMap  # indirect: some cell


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
        deps = _memory_based(scop)
    return replace(scop, dependences=deps)


def _value_based(scop: Scop) -> Dependences:
    w = _writes(scop)
    may = w.update.union(w.may)
    loads, all_reads = reads(scop, own_cell=False), reads(scop)
    flow = _flow(scop, sink=all_reads, must=w.must, may=may)
    flow, reduction = _split_reduction(scop, flow.get_may_dependence())
    anti = _flow(scop, sink=w.must.union(may), may=loads, kill=w.must).get_may_dependence()
    # the sink of an output dependence into an update is also the sink of a flow dependence through its own cell
    output = _flow(scop, sink=w.must.union(w.may), must=w.must, may=may).get_may_dependence()
    return _clean(scop, flow, anti, output, reduction)


def _flow(
    scop: Scop, sink: isl.UnionMap, must: isl.UnionMap | None = None, may: isl.UnionMap | None = None, kill: isl.UnionMap | None = None
) -> isl.UnionFlow:
    info = isl.UnionAccessInfo.from_sink(sink.intersect_params(scop.context))
    if must is not None:
        info = info.set_must_source(must)
    if may is not None:
        info = info.set_may_source(may)
    if kill is not None:
        info = info.set_kill(kill)
    return info.set_schedule(scop.schedule).compute_flow()


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
    all_writes = w.must.union(w.update).union(w.may)
    overwrite = w.must.union(w.may)

    def pairs(a: isl.UnionMap, b: isl.UnionMap) -> isl.UnionMap:
        return a.apply_range(b.reverse()).intersect(before).intersect_params(scop.context)

    flow, reduction = _split_reduction(scop, pairs(all_writes, reads(scop)))
    return _clean(scop, flow, pairs(reads(scop, own_cell=False), all_writes), pairs(all_writes, overwrite), reduction)


def _clean(scop: Scop, *parts: isl.UnionMap) -> Dependences:
    space = param_space(scop.params)
    return Dependences(*(p.coalesce().align_params(space) for p in parts))


def compute_live_in(scop: Scop) -> isl.UnionMap:
    """Reads whose value may come from outside the Scop: instances → elements."""
    w = _writes(scop)
    return _flow(scop, sink=reads(scop), must=w.must, may=w.update.union(w.may)).get_may_no_source()


def compute_live_out(scop: Scop) -> isl.UnionMap:
    """Writes that no later write of the Scop surely overwrites: instances → elements."""
    w = _writes(scop)
    every = w.must.union(w.update).union(w.may).intersect_params(scop.context)
    order = scop.schedule.get_map()
    later = order.lex_lt_union_map(order)
    return every.subtract(later.apply_range(w.must))
