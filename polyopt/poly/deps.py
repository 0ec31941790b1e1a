"""Dependences by isl's dataflow analysis.

Takes a Scop whose schedule has no extension nodes; gives the same Scop with `dependences`, valid for all parameters in its
context. Flow is value-based; anti and output are memory-based and leave out what follows by transitivity. The updates of a cell by one
associative operator may be put in another order, also those of several statements, so none of them hides another: a reader depends on
every update and every update depends on the write that starts the reduction; the order among the updates themselves is kept apart in
`reduction`.
(Feautrier 1991, Dataflow analysis of array and scalar references; Verdoolaege, isl manual, Dependence Analysis.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TypeVar

import islpy as isl

from ..ir.scop import Dependences, Scop, Statement
from ..ir.tensor import Tensor
from ..isl_ext import IN, OUT, SET, OperationBudget, maps_of, max_operations, param_space
from .access import remember
from .digits import Frame, compute_frame, compute_plain_frame
from .order import compute_dates
from .sources import Order, Source, choose_sources, union_of

T = TypeVar("T")

# a buffer of these scopes belongs to one tile: its anti and output dependences are left out, and `legality` compares its flow
PRIVATE_SCOPES = ("registers", "cache", "shared")
MANY = 24  # statements; in programs of more, sources are chosen before isl compares them
EACH = 200_000  # isl operations for what one of many statements depends on, of which about ten thousand are needed
SPENT = 16  # statements that may need more than that; the budget of the others is cut
MUST, MAY, KILL = range(3)  # kinds of sources
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


def is_private(t: Tensor) -> bool:
    """Whether a tensor is a local buffer that is private to the tile that fills it."""
    return t.scope in PRIVATE_SCOPES and t.role == "local"


def has_private(scop: Scop) -> bool:
    """Whether some local buffer is private to the tile that fills it."""
    return any(map(is_private, scop.tensors))


def private_cells(scop: Scop) -> isl.UnionSet:
    """The elements of the buffers that are private to a tile."""
    out = isl.UnionSet.empty(param_space(scop.params))
    for t in scop.tensors:
        if is_private(t):
            space = param_space(scop.params).add_unnamed_tuple_ui(len(t.shape)).set_tuple_name(SET, t.name)
            out = out.union(isl.UnionSet.from_set(isl.Set.universe(space)))
    return out


@dataclass(frozen=True)
class _View:
    """What dataflow analysis looks at: a Scop in one of its orders, in the digits of that order."""

    scop: Scop
    frame: Frame
    tree: isl.Schedule | None = None  # the order as a tree, where the frame's digits are the iterators
    spent: list[str] = field(default_factory=list)  # statements whose sources isl could not tell apart within its budget

    def reads(self, own_cell: bool = True) -> isl.UnionMap:
        """All reads. `own_cell`: also the cell that an update reads before it writes it."""
        out = isl.UnionMap.empty(param_space(self.scop.params))
        for s in self.scop.statements:
            for m in (*self.frame.reads[s.name], *((self.frame.writes[s.name],) if own_cell and s.reduction is not None else ())):
                out = out.union(m.to_union_map())
        return out

    def writes(self) -> _Accesses:
        """All writes."""
        must = update = may = isl.UnionMap.empty(param_space(self.scop.params))
        for s in self.scop.statements:
            w = self.frame.writes[s.name].to_union_map()
            if s.reduction is not None:
                update = update.union(w)
            elif s.write.is_affine:
                must = must.union(w)
            else:
                may = may.union(w)
        return _Accesses(must, update, may)

    def outward(self, deps: isl.UnionMap) -> isl.UnionMap:
        """Dependences between the instances as the Scop has them."""
        return self.frame.outward(deps)

    def flow(
        self,
        sink: isl.UnionMap,
        must: isl.UnionMap | None = None,
        may: isl.UnionMap | None = None,
        kill: isl.UnionMap | None = None,
    ) -> isl.UnionFlow:
        """What each sink depends on: the last source before it."""
        info = isl.UnionAccessInfo.from_sink(sink.intersect_params(self.scop.context))
        if must is not None:
            info = info.set_must_source(must)
        if may is not None:
            info = info.set_may_source(may)
        if kill is not None:
            info = info.set_kill(kill)
        if self.tree is not None:
            return info.set_schedule(self.tree).compute_flow()
        order = self.frame.order
        if len(self.scop.statements) > MANY:  # isl goes over all of it
            used = [u.domain() for u in (sink, must, may, kill) if u is not None]
            order = order.intersect_domain(reduce(isl.UnionSet.union, used).universe())
        info = info.set_schedule_map(order)
        return info.compute_flow()

    def flow_of(self, sink: isl.UnionMap, w: _Accesses) -> isl.UnionMap:
        """The flow from writes to what reads them; updates and indirect writes hide nothing."""
        return self.dependences(sink, must=w.must, may=w.update.union(w.may))

    def anti_output(self, loads: isl.UnionMap, w: _Accesses) -> tuple[isl.UnionMap, isl.UnionMap]:
        """The dependences of writes on reads and writes before them."""
        anti = self.dependences(w.all(), may=loads, kill=w.must)
        # a dependence into an update is also a flow dependence, through the cell that the update reads
        return anti, self.flow_of(w.must.union(w.may), w)

    def dependences(
        self, sink: isl.UnionMap, may: isl.UnionMap, must: isl.UnionMap | None = None, kill: isl.UnionMap | None = None
    ) -> isl.UnionMap:
        """What each sink may depend on. In a program of many statements, sink by sink, on the sources that can be its last."""
        if self.tree is not None or len(self.scop.statements) <= MANY:
            if must is not None:
                sink, must, may = _meeting(sink, must, may)
            else:
                sink, may = _meeting(sink, may)
            return self.flow(sink, must=must, may=may, kill=kill).get_may_dependence()
        sources: dict[str, list[Source]] = {}
        for kind, u in enumerate((must, may, kill)):
            for m in maps_of(u) if u is not None else ():
                sources.setdefault(m.get_tuple_name(OUT), []).append(Source(m, kind != MAY, kind))
        sinks: dict[str, list[isl.Map]] = {}
        for m in maps_of(sink.intersect_params(self.scop.context)):
            sinks.setdefault(m.get_tuple_name(IN), []).append(m)
        return union_of([self._of_one(s, maps, sources) for s, maps in sinks.items()], self.empty)

    def _of_one(self, statement: str, sinks: Sequence[isl.Map], sources: Mapping[str, Sequence[Source]]) -> isl.UnionMap:
        """What the sinks of one statement depend on; all sources before them, where isl's budget is spent."""
        sink = reduce(isl.UnionMap.add_map, sinks, self.empty())
        known = {id(x): x for m in sinks for x in sources.get(m.get_tuple_name(OUT), ())}
        try:
            with max_operations(EACH if len(self.spent) < SPENT else EACH // 10):
                known = {id(x): x for m in sinks for x in choose_sources(self.stands, statement, m, sources.get(m.get_tuple_name(OUT), ()))}
                if all(x.kind == KILL for x in known.values()):
                    return self.empty()
                kinds = [reduce(isl.UnionMap.add_map, (x.relation for x in known.values() if x.kind == k), self.empty()) for k in range(3)]
                return self.flow(sink, *kinds).get_may_dependence()
        except OperationBudget:
            self.spent.append(statement)
        from_ = reduce(isl.UnionMap.add_map, (x.relation for x in known.values() if x.kind != KILL), self.empty())
        pairs = from_.apply_range(sink.reverse())
        order = self.frame.order.intersect_domain(pairs.domain().union(pairs.range()).universe())
        return pairs.intersect(order.lex_lt_union_map(order))

    def empty(self) -> isl.UnionMap:
        """No dependences."""
        return isl.UnionMap.empty(param_space(self.scop.params))

    @cached_property
    def stands(self) -> Order:
        """Where the statements stand."""
        return Order(compute_dates(self.frame.order))

    def split_reduction(self, deps: isl.UnionMap) -> tuple[isl.UnionMap, isl.UnionMap]:
        """Apart: what goes from an update through its own cell to an update by the same operator; the rest."""
        empty = isl.UnionMap.empty(param_space(self.scop.params))
        own = empty
        groups: dict[tuple[str, str], list[Statement]] = {}
        for s in self.scop.statements:
            if s.reduction is not None:
                groups.setdefault((s.reduction, s.write.tensor), []).append(s)
        for (_, tensor), members in groups.items():
            w = reduce(isl.UnionMap.add_map, (self.frame.writes[s.name] for s in members), empty)
            pairs = w.apply_range(w.reverse())
            # a load of the same tensor by the later statement makes true dependences, which are no matter of the update's order
            loads = [m for s in members for m in self.frame.reads[s.name] if m.get_tuple_name(OUT) == tensor]
            if loads:
                pairs = pairs.subtract(w.apply_range(reduce(isl.UnionMap.add_map, loads, empty).reverse()))
            own = own.union(pairs)
        return deps.subtract(own), deps.intersect(own)


def _meeting(sink: isl.UnionMap, *sources: isl.UnionMap) -> tuple[isl.UnionMap, ...]:
    """The sinks that share an element with some source, then each kind of sources that share one with such a sink: the others have no part."""
    sinks, kinds = maps_of(sink), [maps_of(u) for u in sources]
    sinks = [m for m in sinks if any(_meet(m, s) for maps in kinds for s in maps)]
    empty = isl.UnionMap.empty(sink.get_space())
    kept = [sinks, *([s for s in maps if any(_meet(m, s) for m in sinks)] for maps in kinds)]
    return tuple(reduce(isl.UnionMap.add_map, maps, empty) for maps in kept)


def _meet(a: isl.Map, b: isl.Map) -> bool:
    """Whether two instances may touch one element."""
    if a.get_tuple_name(OUT) != b.get_tuple_name(OUT):
        return False
    if a.get_tuple_name(IN) == b.get_tuple_name(IN) and a.plain_is_equal(b):
        return not a.is_injective()
    return not a.range().is_disjoint(b.range())


def _view(scop: Scop, order: isl.Schedule | None = None) -> _View:
    return _View(scop, compute_frame(scop, order))


def _analyse(scop: Scop, question: Callable[[_View], T], order: isl.Schedule | None = None) -> T:
    """The answer to a question on a Scop's dataflow.

    isl's analysis over an order as a map fails on some accesses with divisions ("affine expression involves some of the domain dimensions"),
    where the one over a tree does not: it is asked then.
    """
    try:
        return question(_view(scop, order))
    except isl.Error as e:
        if "domain dimensions" not in str(e):
            raise
    tree = scop.schedule if order is None else order
    return question(_View(scop, compute_plain_frame(scop, tree), tree))


def compute_dependences(scop: Scop) -> Scop:
    """The Scop with its dependences. Falls back to memory-based dependences, a superset, where isl's budget is spent."""
    return replace(scop, dependences=remember(scop, "dependences", lambda: _dependences(scop)))


def _dependences(scop: Scop) -> Dependences:
    try:
        with max_operations(BUDGET):
            return _analyse(scop, _value_based)
    except OperationBudget:
        return replace(_memory_based(scop), exact=False)


def _value_based(v: _View) -> Dependences:
    scop = v.scop
    w, cells = v.writes(), private_cells(scop)
    flow, reduction = v.split_reduction(v.flow_of(v.reads(), w))
    anti, output = v.anti_output(v.reads(own_cell=False).subtract_range(cells), w.outside(cells))
    return replace(_clean(scop, *map(v.outward, (flow, anti, output, reduction))), exact=not v.spent)


def _memory_based(scop: Scop) -> Dependences:
    v = _view(scop)
    before = v.frame.order.lex_lt_union_map(v.frame.order)
    w, cells = v.writes(), private_cells(scop)
    p = w.outside(cells)

    def pairs(a: isl.UnionMap, b: isl.UnionMap) -> isl.UnionMap:
        return a.apply_range(b.reverse()).intersect(before).intersect_params(scop.context)

    flow, reduction = v.split_reduction(pairs(w.all(), v.reads()))
    anti = pairs(v.reads(own_cell=False).subtract_range(cells), p.all())
    return _clean(scop, *map(v.outward, (flow, anti, pairs(p.all(), p.must.union(p.may)), reduction)))


def _clean(scop: Scop, *parts: isl.UnionMap) -> Dependences:
    space = param_space(scop.params)
    flow, anti, output, reduction = (p.coalesce().align_params(space) for p in parts)
    return Dependences(flow, anti, output, reduction)


def compute_private_flow(scop: Scop, order: isl.Schedule) -> isl.UnionMap:
    """The flow through private buffers in a given order, updates of one reduction among themselves left out."""
    cells = private_cells(scop)

    def flow(v: _View) -> isl.UnionMap:
        return v.outward(v.split_reduction(v.flow_of(v.reads().intersect_range(cells), v.writes().within(cells)))[0])

    return _analyse(scop, flow, order)


def compute_flow_through(scop: Scop, tensor: str) -> isl.UnionMap:
    """The flow through one tensor, that among updates of a reduction included."""
    space = param_space(scop.params).add_unnamed_tuple_ui(len(scop.tensor(tensor).shape)).set_tuple_name(SET, tensor)
    cells = isl.UnionSet.from_set(isl.Set.universe(space))
    return _analyse(scop, lambda v: v.outward(v.flow_of(v.reads().intersect_range(cells), v.writes().within(cells))))


def compute_private_order(scop: Scop) -> tuple[isl.UnionMap, isl.UnionMap]:
    """The anti and output dependences through private buffers, which `Dependences` leaves out.

    An order that respects them too keeps the flow through these buffers; one that does not may still keep it.
    """
    cells = private_cells(scop)

    def order(v: _View) -> tuple[isl.UnionMap, isl.UnionMap]:
        anti, output = v.anti_output(v.reads(own_cell=False).intersect_range(cells), v.writes().within(cells))
        return v.outward(anti), v.outward(output)

    return _analyse(scop, order)


def compute_live_in(scop: Scop) -> isl.UnionMap:
    """Reads whose value may come from outside the Scop: instances → elements."""

    def live(v: _View) -> isl.UnionMap:
        w = v.writes()
        return v.outward(v.flow(v.reads(), must=w.must, may=w.update.union(w.may)).get_may_no_source())

    return _analyse(scop, live)


def compute_live_out(scop: Scop) -> isl.UnionMap:
    """Writes that no later write of the Scop surely overwrites: instances → elements."""
    v = _view(scop)
    w = v.writes()
    later = v.frame.order.lex_lt_union_map(v.frame.order)
    return v.outward(w.all().intersect_params(scop.context).subtract(later.apply_range(w.must)))
