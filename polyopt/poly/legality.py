"""Legality: whether an order respects the dependences, and the witness where it does not.

Takes a Scop with dependences and a new schedule (or a band of one); `is_*` answers, `check_*` raises `IllegalSchedule` with a
`Violation`. Exact: every dependent pair must be strictly increasing in the new dates; equal dates of two instances are a violation.
Buffers that are private to a tile (`deps.PRIVATE_SCOPES`) have no anti and output dependences; instead their flow in the new order
must equal their flow in the old one, which is what the absent dependences protect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import islpy as isl

from ..errors import IllegalSchedule, InternalError, ScheduleError
from ..ir.scop import Dependences, Scop, Violation
from ..isl_ext import IN, OUT, OperationBudget, maps_of, max_operations, node_type, read_map, read_set
from .deps import BUDGET, compute_private_flow, compute_private_order, has_private
from .digits import compute_frame
from .order import compute_dates, find_unordered
from .recurrences import recurrent_pairs
from .repair import member_name, suggest_loops, suggest_skew
from .witness import describe

Repair = Callable[[], str | None]


def dependences_of(scop: Scop) -> Dependences:
    """The Scop's dependences, which must have been computed."""
    if scop.dependences is None:
        raise InternalError(f"{scop.name}: dependences are not computed")
    return scop.dependences


def kinds(scop: Scop, reassociate: bool) -> Iterator[tuple[str, isl.UnionMap]]:
    """The dependences that hold, by kind."""
    deps = dependences_of(scop)
    for kind in ("flow", "anti", "output") + (() if reassociate else ("reduction",)):
        u = getattr(deps, kind)
        if not u.is_empty():
            yield kind, u


def private_kinds(scop: Scop) -> Iterator[tuple[str, isl.UnionMap]]:
    """The anti and output dependences through private buffers, by kind."""
    if has_private(scop):
        for kind, deps in zip(("private anti", "private output"), compute_private_order(scop)):
            if not deps.is_empty():
                yield kind, deps


def is_respected(scop: Scop) -> bool:
    """Whether the Scop's own schedule respects the dependences that it carries (those that its label leaves free apart)."""
    frame = compute_frame(scop)
    dates = compute_dates(frame.order)
    return all(find_unordered(frame.inward(deps), dates) is None for _, deps in kinds(scop, scop.label != "bit-identical"))


def find_violation(scop: Scop, new: isl.Schedule, reassociate: bool) -> tuple[str, isl.Map] | None:
    """Some dependences that the new schedule breaks, with their kind; None where it is legal."""
    order = new.get_map()
    dates = compute_dates(order)
    for kind, deps in kinds(scop, reassociate):
        bad = find_unordered(deps, dates)
        if bad is not None:
            return kind, bad
    broken = next((x for _, deps in private_kinds(scop) if (x := find_unordered(deps, dates)) is not None), None)
    if broken is not None:
        old_flow = compute_private_flow(scop, scop.schedule)
        wrong = compute_private_flow(scop, new).subtract(old_flow)
        if not wrong.is_empty():
            return _overwritten(scop, order, old_flow, wrong)
    return None


def find_reassociation(scop: Scop, new: isl.Schedule) -> tuple[str, isl.Map] | None:
    """Some updates of one reduction that the new schedule runs in another order; None where all keep theirs."""
    bad = find_unordered(dependences_of(scop).reduction, compute_dates(new.get_map()))
    return None if bad is None else ("reduction", bad)


def _overwritten(scop: Scop, new: isl.UnionMap, old_flow: isl.UnionMap, wrong: isl.UnionMap) -> tuple[str, isl.Map]:
    """Pairs in the wrong order, given flow through private buffers that the old order does not have.

    The writer of such a pair ran after the read before (anti), or before the write that it now follows (output).
    """
    old = scop.schedule.get_map()
    before, kept = old.lex_lt_union_map(old), new.lex_lt_union_map(new)
    late = wrong.reverse().intersect(before)
    if not late.is_empty():
        return "anti", maps_of(late)[0]
    early = wrong.apply_range(old_flow.reverse()).intersect(before).subtract(kept)
    if not early.is_empty():
        return "output", maps_of(early)[0]
    raise InternalError(f"{scop.name}: the flow through private buffers changes, and no pair of instances is out of order")


def is_legal(scop: Scop, new: isl.Schedule, *, reassociate: bool = False) -> bool:
    """Whether the new schedule respects the dependences."""
    return find_violation(scop, new, reassociate) is None


def check_schedule(old: Scop, new_schedule: isl.Schedule, step: str, *, reassociate: bool = False, repair: Repair | None = None) -> None:
    """Refuse a new schedule that breaks a dependence of `old`, or that isl cannot prove legal within its budget.

    `step` is the verb as the user wrote it; `repair` is asked on failure.
    """
    try:
        with max_operations(BUDGET):
            found = find_violation(old, new_schedule, reassociate)
    except OperationBudget:
        raise ScheduleError(f"{step}: too complex to be proven legal within {BUDGET} isl operations; use fewer tile levels") from None
    if found is not None:
        bad = found[1]
        refuse(old, found[0], bad, new_schedule.get_map(), step, repair or (lambda: suggest_skew(old, bad)))


def refuse(scop: Scop, kind: str, bad: isl.Map, after: isl.UnionMap, step: str, repair: Repair | None = None) -> None:
    """Raise `IllegalSchedule` with a witness out of `bad`; `after` gives the new dates."""
    violation: Violation = describe(scop, kind, bad, after, step, repair() if repair is not None else None)
    raise IllegalSchedule(str(violation), violation)


# ---- bands
def active_at(band: isl.ScheduleNode, deps: isl.UnionMap) -> isl.UnionMap:
    """The dependences between instances below a node that all outer bands put at the same date."""
    domain = band.get_domain()
    inside = deps.intersect_domain(domain).intersect_range(domain)
    if band.get_schedule_depth() == 0:
        return inside
    return inside.eq_at_multi_union_pw_aff(band.get_prefix_schedule_multi_union_pw_aff())


def member_schedule(band: isl.ScheduleNode, member: int) -> isl.MultiUnionPwAff:
    """The partial schedule of one band member."""
    return isl.MultiUnionPwAff.from_union_pw_aff(band.band_get_partial_schedule().get_union_pw_aff(member))


def before_member(band: isl.ScheduleNode, member: int, deps: isl.UnionMap) -> isl.UnionMap:
    """The dependences active at a band whose earlier members put both ends at the same date."""
    active = active_at(band, deps)
    for m in range(member):
        active = active.eq_at_multi_union_pw_aff(member_schedule(band, m))
    return active


def find_carried(scop: Scop, band: isl.ScheduleNode, member: int, reassociate: bool) -> tuple[str, isl.Map] | None:
    """Some dependences that a band member carries, given the loops around it; None where its iterations are independent."""
    own = member_schedule(band, member)
    for kind, deps in kinds(scop, reassociate):
        active = before_member(band, member, deps)
        for carried in (active.lex_lt_at_multi_union_pw_aff(own), active.lex_gt_at_multi_union_pw_aff(own)):
            if not carried.is_empty():
                return kind, next(m for m in maps_of(carried) if not m.is_empty())
    return None


def is_parallel(scop: Scop, band: isl.ScheduleNode, member: int = 0, *, reassociate: bool = False) -> bool:
    """Whether the iterations of a band member are independent, given the loops around it.

    The updates of a reduction depend on each other, unless `reassociate` says that they are privatised or atomic.
    """
    return find_carried(scop, band, member, reassociate) is None


def coincident(scop: Scop, band: isl.ScheduleNode, *, reassociate: bool = False) -> tuple[bool, ...]:
    """For each member of a band, whether no dependence active at the band has a distance in it (whatever the other members do)."""
    parts = [active_at(band, deps) for _, deps in kinds(scop, reassociate)]
    out = []
    for m in range(band.band_n_member()):
        own = member_schedule(band, m)
        out.append(all(p.lex_lt_at_multi_union_pw_aff(own).is_empty() and p.lex_gt_at_multi_union_pw_aff(own).is_empty() for p in parts))
    return tuple(out)


def is_permutable(scop: Scop, band: isl.ScheduleNode, *, reassociate: bool = False) -> bool:
    """Whether no dependence active at the band has a negative distance in a member: then it can be tiled and interchanged freely."""
    parts = [active_at(band, deps) for _, deps in kinds(scop, reassociate)]
    return all(p.lex_gt_at_multi_union_pw_aff(member_schedule(band, m)).is_empty() for m in range(band.band_n_member()) for p in parts)


def check_parallel(scop: Scop, band: isl.ScheduleNode, member: int, step: str, *, reassociate: bool = False, repair: Repair | None = None) -> None:
    """Refuse to run the iterations of a band member in parallel where it carries a dependence.

    The dates that the message shows as new are those of the loops around, without the parallel one: the two instances are unordered.
    """
    found = find_carried(scop, band, member, reassociate)
    if found is not None:
        others = partial(is_parallel, scop, reassociate=reassociate)
        repair = repair or (lambda: suggest_loops(scop, "parallel", member_name(band, member), others))
        refuse(scop, found[0], found[1], parallel_order(band, member), step, repair)


def parallel_order(band: isl.ScheduleNode, member: int) -> isl.UnionMap:
    """The dates by the loops around a member, the member itself left out."""
    order = band.get_prefix_schedule_union_map()
    for m in range(member):
        order = order.flat_range_product(isl.UnionMap.from_multi_union_pw_aff(member_schedule(band, m)))
    return order.intersect_domain(band.get_domain())


# ---- vectors
def strip_order(band: isl.ScheduleNode, member: int, lanes: int | None) -> isl.UnionMap:
    """The dates by the loops around a member and, with `lanes`, by the strips of its own date."""
    order = parallel_order(band, member)
    if lanes is None:
        return order
    val = isl.MultiVal.zero(band.get_domain().get_space().params().add_unnamed_tuple_ui(1))
    val = val.set_at(0, isl.Val.int_from_si(band.get_ctx(), lanes))
    strip = member_schedule(band, member).reset_tuple_id(isl.dim_type.set).scale_down_multi_val(val).floor()
    return order.flat_range_product(isl.UnionMap.from_multi_union_pw_aff(strip))


def vector_order(band: isl.ScheduleNode, member: int, lanes: int | None = None) -> tuple[isl.UnionMap, isl.UnionMap]:
    """The order in which a vectorized member runs: the loops around and, with `lanes`, the strip; then everything inside; then the lane.

    All lanes of a statement run before the next statement does. Gives the dates without and with the lane.
    """
    own = isl.UnionMap.from_multi_union_pw_aff(member_schedule(band, member))
    order = strip_order(band, member, lanes)
    for m in range(member + 1, band.band_n_member()):
        order = order.flat_range_product(isl.UnionMap.from_multi_union_pw_aff(member_schedule(band, m)))
    order = order.flat_range_product(band.child(0).get_subtree_schedule_union_map())
    return order, order.flat_range_product(own)


def _inner_bands(node: isl.ScheduleNode) -> Iterator[isl.ScheduleNode]:
    for i in range(node.n_children()):
        child = node.child(i)
        if node_type(child) == isl.schedule_node_type.band:
            yield child
        yield from _inner_bands(child)


def lanes_differ(band: isl.ScheduleNode) -> bool:
    """Whether some loop inside a one-member band runs over other dates in one iteration of the band than in another.

    All lanes of a vector then take the first iteration of that loop together, whatever its dates.
    """
    depth = band.get_schedule_depth()
    for inner in _inner_bands(band):
        around = inner.get_prefix_schedule_union_map()
        for own in maps_of(isl.UnionMap.from_multi_union_pw_aff(inner.band_get_partial_schedule())):
            prefix = next((m for m in maps_of(around) if m.get_tuple_name(IN) == own.get_tuple_name(IN)), None)
            if prefix is None:
                continue
            dates = prefix.reverse().apply_range(own.intersect_domain(prefix.domain()))
            anywhere = dates.project_out(IN, depth, 1).insert_dims(IN, depth, 1).intersect_domain(dates.domain())
            if not anywhere.is_subset(dates):
                return True
    return False


def is_strip(band: isl.ScheduleNode, lanes: int) -> bool:
    """Whether a one-member band runs over dates less than `lanes` apart at a time."""
    own = isl.UnionMap.from_multi_union_pw_aff(member_schedule(band, 0)).intersect_domain(band.get_domain())
    runs = band.get_prefix_schedule_union_map().reverse().apply_range(own)
    near = read_set(f"{{ [d] : -{lanes} < d < {lanes} }}")
    return all(m.reverse().apply_range(m).deltas().is_subset(near) for m in maps_of(runs))


def find_vector_violation(scop: Scop, band: isl.ScheduleNode, member: int, reassociate: bool, lanes: int | None = None) -> tuple[str, isl.Map] | None:
    """Some dependences that vector execution of a member breaks; None where it is legal.

    One statement reads all lanes before it writes any, so an anti dependence from a lane to a later lane of the same statement holds.
    Where the lanes differ in the loops inside, no dependence may go from one lane to another. With `reassociate` a reduction may be carried, and
    a linear recurrence from one lane to the next.
    """
    outer, full = vector_order(band, member, lanes)
    apart = band.band_n_member() == 1 and lanes_differ(band)
    if apart:
        outer = strip_order(band, member, lanes)
    outer_dates, full_dates = compute_dates(outer), compute_dates(full)
    own = member_schedule(band, member)
    for kind, deps in (*kinds(scop, reassociate), *private_kinds(scop)):
        active = active_at(band, deps)
        if apart:
            active = active.subtract(active.eq_at_multi_union_pw_aff(own))
        for m in maps_of(active):
            one_statement = m.get_tuple_name(isl.dim_type.in_) == m.get_tuple_name(isl.dim_type.out)
            dates = full_dates if kind.endswith("anti") and one_statement and not apart else outer_dates
            bad = find_unordered(m.to_union_map(), dates)
            if bad is not None and reassociate and kind == "flow" and one_statement and not apart:
                bad = find_unordered(_without_recurrence(scop, m, own, outer).to_union_map(), dates)
            if bad is not None:
                return kind, bad
    return None


def _without_recurrence(scop: Scop, deps: isl.Map, own: isl.MultiUnionPwAff, order: isl.UnionMap) -> isl.Map:
    """A statement's flow without the pairs in neighbouring lanes, equal in all other dates, through which it is a linear recurrence."""
    name = deps.get_tuple_name(IN)
    pairs = recurrent_pairs(scop, scop.statement(name))
    if pairs is None:
        return deps
    lane = next(m for m in maps_of(isl.UnionMap.from_multi_union_pw_aff(own)) if m.get_tuple_name(IN) == name).reset_tuple_id(OUT)
    neighbours = lane.apply_range(read_map("{ [d] -> [d + 1] }")).apply_range(lane.reverse())
    dates = next(m for m in maps_of(order) if m.get_tuple_name(IN) == name)
    return deps.subtract(pairs.intersect(neighbours).intersect(dates.apply_range(dates.reverse())))


def is_vectorizable(scop: Scop, band: isl.ScheduleNode, member: int = 0, *, reassociate: bool = False, lanes: int | None = None) -> bool:
    """Whether a member may run all its lanes at once. `lanes`: only that many neighbours at once (strips of the member's date)."""
    return find_vector_violation(scop, band, member, reassociate, lanes) is None


def check_vectorizable(
    scop: Scop,
    band: isl.ScheduleNode,
    member: int,
    step: str,
    *,
    reassociate: bool = False,
    lanes: int | None = None,
    repair: Repair | None = None,
) -> None:
    """Refuse to vectorize a member where the order of vector execution breaks a dependence."""
    found = find_vector_violation(scop, band, member, reassociate, lanes)
    if found is not None:
        others = partial(is_vectorizable, scop, reassociate=reassociate, lanes=lanes)
        repair = repair or (lambda: suggest_loops(scop, "vectorized", member_name(band, member), others))
        apart = band.band_n_member() == 1 and lanes_differ(band)
        after = strip_order(band, member, lanes) if apart else vector_order(band, member, lanes)[0]
        refuse(scop, found[0], found[1], after, step, repair)
