"""privatize: iterations of a loop get their own copies of a tensor, so that they no longer wait for each other (*expansion*, *rfactor* in TVM).

    for i: { t = A[i]; B[i] = t * t }          privatize("t", at="i")          for i: { t[i] = A[i]; B[i] = t[i] * t[i] }
    for k: s += A[k]                           privatize("s", at="k")          for k: { p[k] = 0; p[k] += A[k] }; for k: s += p[k]

A temporary gets one dim more, indexed by the date of the loop (modulo `copies` where it is given: 2 makes a double buffer). Legal iff each read still
gets the value of the same write: the flow through the new tensor is compared with the old one. A tensor that a reduction updates below the
loop gets partial results, combined in the order of the loop: the sum is reassociated. Formally x op= e becomes p[k] op= e, then x op= p[k].
(Feautrier 1988, Array expansion.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine, affine, var
from ..ir.expr import Access, Const, Expr, Load, neutral_element, rewrite
from ..ir.scop import Scop, Statement, Step
from ..ir.tensor import Tensor
from ..isl_ext import IN, OUT, SET, maps_of, sample_map
from ..poly.access import access_map
from ..poly.convert import columns, from_aff, to_multi_aff
from ..poly.deps import PRIVATE_SCOPES, compute_dependences, compute_flow_through
from .arguments import check_count
from .checked import with_dependences
from .promote import date_of, footprint_box, fresh_tensor, make_member, with_copies
from .tree import Chain, Leaf, Loop, Member, Tree, find_chain, loops, members_above, sequence, write_tree


def privatize(scop: Scop, tensor: str, *, at: str, of: str | None = None, copies: int | None = None, name: str | None = None) -> Scop:
    """Give each iteration of the loop `at` its own copy of a tensor, or of the partial results of a reduction.

    copies: how many iterations later a copy is used again (as many copies as iterations where None). name: of the partial results. Raises
    ScheduleError where a value goes from one iteration to another, or out of the loop.
    """
    if tensor not in {t.name for t in scop.tensors}:
        raise ScheduleError(f"privatize: there is no tensor {tensor!r}; the tensors are {', '.join(t.name for t in scop.tensors)}")
    if copies is not None:
        check_count("privatize", "copies", copies)
    scop = with_dependences(scop)
    chain = find_chain(scop, "privatize", [at], of)
    writers = [n for n in chain.statements if scop.statement(n).write.tensor == tensor]
    if not writers:
        raise ScheduleError(f"privatize: no statement below the loop {at} writes {tensor}; iterations that only read it need no copies")
    extra = (("copies", copies), ("of", of), ("name", name))
    step = Step("privatize", (tensor,), (("at", at), *((k, v) for k, v in extra if v is not None)))
    if all(scop.statement(n).reduction is not None for n in writers):
        if copies is not None:
            raise ScheduleError(f"privatize: {tensor} holds a reduction, whose partial results are one an iteration; leave out copies")
        return _partial_results(scop, tensor, chain, at, writers, step, name)
    if name is not None:
        raise ScheduleError(f"privatize: {tensor} keeps its name; name= is for the partial results of a reduction")
    return compute_dependences(_expanded(scop, tensor, chain, at, copies, step))


def expand(scop: Scop, tensor: str, at: str, of: str) -> Scop:
    """A temporary with one copy for each iteration of a loop, as `privatize` makes it, its dependences not yet computed: for several in a row."""
    chain = find_chain(scop, "privatize", [at], of)
    return _expanded(scop, tensor, chain, at, None, Step("privatize", (tensor,), (("at", at), ("of", of))))


# ---- one copy an iteration
def _expanded(scop: Scop, tensor: str, chain: Chain, at: str, copies: int | None, step: Step) -> Scop:
    old = scop.tensor(tensor)
    if old.role != "local":
        raise ScheduleError(f"privatize: {tensor} is an {old.role} of the kernel, whose last value must stay; privatize temporaries, or promote it")
    outside = [s.name for s in scop.statements if s.name not in chain.statements and tensor in {a.tensor for a in (s.write, *s.reads())}]
    if outside:
        raise ScheduleError(f"privatize: {tensor} is also used outside the loop {at}, by {', '.join(outside)}; its iterations cannot have their own")
    users = [n for n in chain.statements if tensor in {a.tensor for a in (scop.statement(n).write, *scop.statement(n).reads())}]
    member = chain.member(at)
    first, count = _dates(scop, member, users, at)
    size = affine(copies) if copies is not None else count
    statements = tuple(_turned(s, tensor, date_of(member, s) - first, copies) if s.name in users else s for s in scop.statements)
    wide = replace(old, shape=(size, *old.shape))
    tensors = tuple(wide if t.name == tensor else t for t in scop.tensors)
    meta = dict(scop.meta)
    if old.scope in PRIVATE_SCOPES:  # the buffer must now live around the loop
        depth = len(members_above(scop, chain, chain.index(at)))
        meta["buffers"] = {**meta.get("buffers", {}), tensor: min(depth, meta.get("buffers", {}).get(tensor, depth))}
    new = replace(scop, statements=statements, tensors=tensors, dependences=None, meta=meta, history=(*scop.history, step))
    _check_flow(scop, new, tensor, at, step)
    return new


def _turned(s: Statement, tensor: str, date: Affine, copies: int | None) -> Statement:
    """A statement with its accesses turned to the copy of its iteration."""
    first = date if copies is None else date % copies

    def turn(a: Access) -> Access:
        return Access(a.tensor, (first, *a.indices))

    def visit(x: Expr) -> Expr | None:
        return Load(turn(x.access), x.dtype) if isinstance(x, Load) and x.access.tensor == tensor else None

    return replace(s, write=turn(s.write) if s.write.tensor == tensor else s.write, expr=rewrite(s.expr, visit))


def _check_flow(old: Scop, new: Scop, tensor: str, at: str, step: Step) -> None:
    """Refuse copies through which a read gets another value than before."""
    before, after = compute_flow_through(old, tensor), compute_flow_through(new, tensor)
    lost = before.subtract(after)
    if not lost.is_empty():
        m = maps_of(lost)[0]
        found = sample_map(m.intersect_params(old.context))
        assert found is not None
        x, y = (f"{m.get_tuple_name(k)}({', '.join(map(str, p))})" for k, p in ((IN, found[0]), (OUT, found[1])))
        where = f" with {', '.join(f'{k}={v}' for k, v in found[2].items())}" if found[2] else ""
        raise ScheduleError(f"{step}: {y} reads what {x} wrote to {tensor}{where}, in another iteration of {at}; the copies would not hand it on")
    for st in old.statements:
        if tensor in {a.tensor for a in st.reads()} and not isl.UnionSet.from_set(st.domain.intersect_params(old.context)).is_subset(before.range()):
            raise ScheduleError(f"{step}: {st.name} may read {tensor} before it is written")


def _dates(scop: Scop, member: Member, statements: Sequence[str], at: str) -> tuple[Affine, Affine]:
    """The first date of a loop, and the number of dates, as affine expressions of the parameters."""
    dates = isl.UnionMap.from_union_pw_aff(member.upa).intersect_domain(scop.domain().intersect_params(scop.context))
    sets = [m.range() for m in maps_of(dates) if m.get_tuple_name(IN) in statements]
    whole = reduce(isl.Set.union, sets)
    low, high = (_affine_bound(whole.dim_min(0)), _affine_bound(whole.dim_max(0)))
    if low is None or high is None:
        raise ScheduleError(f"privatize: the dates of {at} have no affine bounds ({whole}); the number of copies is not known")
    return low, high - low + 1


def _affine_bound(p: isl.PwAff) -> Affine | None:
    p = p.coalesce()
    if p.n_piece() != 1:
        return None
    return from_aff(p.get_pieces()[0][1], ())


# ---- partial results of a reduction
def _partial_results(scop: Scop, tensor: str, chain: Chain, at: str, writers: Sequence[str], step: Step, name: str | None) -> Scop:
    if len(writers) > 1:
        raise ScheduleError(f"privatize: {', '.join(writers)} all update {tensor} below {at}; distribute them, then privatize one at a time")
    s = scop.statement(writers[0])
    readers = [n for n in chain.statements if any(a.tensor == tensor for a in scop.statement(n).reads())]
    if readers:
        raise ScheduleError(f"privatize: {readers[0]} reads {tensor} below the loop {at}, where only partial results would be known")
    if not s.write.is_affine:
        raise ScheduleError(f"privatize: {s.name} updates {tensor} through an indirect index; its partial results have no fixed place")
    place = chain.index(at)
    above = members_above(scop, chain, place)
    marked = next((m.name for m in above if m.mark.startswith("vector")), None)
    if marked is not None:
        raise ScheduleError(f"privatize: the lanes of the vector loop {marked} would share the partial results; privatize first, then vectorize")
    member = chain.member(at)
    first, count = _dates(scop, member, [s.name], at)
    source = scop.tensor(tensor)
    partial = fresh_tensor(scop, name or f"{tensor}_partial")
    offset, buffer = _partial_buffer(scop, s, above, partial, count)
    dates = {f"p{k}": date_of(m, s) for k, m in enumerate(above)}
    inside_box = [x - o.substitute(dates) for x, o in zip(s.write.affine_indices(), offset, strict=True)]
    turned = replace(s, write=Access(partial, (date_of(member, s) - first, *inside_box)))
    start = _cells(scop, s, [*above, member], f"start_{partial}")
    q = start.iters[len(above)]
    cell = tuple(var(x) for x in start.iters[len(above) + 1 :])
    at_cell = Access(partial, (var(q) - first, *(x - o for x, o in zip(cell, offset, strict=True))))
    assert s.reduction is not None
    start = replace(start, write=at_cell, expr=Const(neutral_element(s.reduction, source.dtype), source.dtype))
    ending = replace(
        start, name=f"combine_{partial}", domain=start.domain.set_tuple_name(f"combine_{partial}"), write=Access(tensor, cell),
        expr=Load(at_cell, source.dtype), reduction=s.reduction,
    )  # fmt: skip
    statements = (*(turned if x.name == s.name else x for x in scop.statements), start, ending)
    new = replace(scop, statements=statements, tensors=(*scop.tensors, buffer), dependences=None)
    inner = [[make_member(new, f"{x.name}_{it}", {x.name: var(it)}) for it in x.iters[len(above) + 1 :]] for x in (start, ending)]
    cells = [loops(members, Leaf((x.name,))) for members, x in zip(inner, (start, ending), strict=True)]
    dated = replace(member, upa=member.upa.union_add(make_member(new, at, {start.name: var(q)}).upa))
    inside = loops(chain.members[place + 1 :], chain.below)
    below: Tree = sequence([Loop(dated, sequence([cells[0], inside])), Loop(make_member(new, f"{at}_combine", {ending.name: var(q)}), cells[1])])
    tree = with_copies(scop, new, chain, place, above, [start, ending], below)
    schedule = write_tree(tree, {x.name: x.domain for x in new.statements})
    depths = {**scop.meta.get("buffers", {}), partial: len(above)}
    new = compute_dependences(replace(new, schedule=schedule, meta={**scop.meta, "buffers": depths}))
    label = f"reassociates {s.name}" if scop.label == "bit-identical" else scop.label
    return replace(new, history=(*scop.history, step), label=label)


def _partial_buffer(scop: Scop, s: Statement, above: Sequence[Member], name: str, count: Affine) -> tuple[tuple[Affine, ...], Tensor]:
    """The buffer of partial results and the offset of its cells: what the loop updates at a time where that is a constant box, else the whole."""
    source = scop.tensor(s.write.tensor)
    try:
        box = footprint_box(scop, source.name, [s.name], above, "privatize")
    except ScheduleError:
        return tuple(affine(0) for _ in source.shape), Tensor(name, source.dtype, (count, *source.shape), "local", "heap")
    scope = "cache" if count.is_const else "heap"
    return box.offset, Tensor(name, source.dtype, (count, *(affine(x) for x in box.extent)), "local", scope)


def _cells(scop: Scop, s: Statement, members: Sequence[Member], name: str) -> Statement:
    """A statement over the dates of the loops and the cells that `s` updates then."""
    space = s.domain.get_space()
    dates = isl.Map.from_multi_aff(to_multi_aff([date_of(m, s) for m in members], space, None, columns(space, s.iters)))
    touched = access_map(s, s.write).reset_tuple_id(OUT)
    domain = dates.flat_range_product(touched).intersect_domain(s.domain).range().coalesce().set_tuple_name(name)
    iters = (*(f"p{k}" for k in range(len(members) - 1)), "q", *(f"c{d}" for d in range(len(s.write.indices))))
    for k, it in enumerate(iters):
        domain = domain.set_dim_name(SET, k, it)
    return Statement(name, iters, domain, s.write, s.expr)
