"""promote: give the part of a tensor that one iteration of a loop touches a buffer of its own (*cache_read/cache_write* in TVM, *stage_mem* in Exo).

    for ti: … A[i, k] …          promote("A", at="ti", scope="cache")          for ti: { load: buf[i', k'] = A[i, k]; … buf[i', k'] … }

The footprint below `at` is boxed: per dim an offset that is affine in the loops down to `at`, and a constant extent (refused without one). Copies are
ordinary statements, `load_<buf>[tile coordinates, cell]` and `store_<buf>[…]`, set into the tree by a sequence. A load exists for exactly those cells
whose value comes from outside the tile; a store for those that the tile writes.
Legal iff each read sees the value that it saw before: the flow of the new program, with the copies composed away, is compared with the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from ..errors import InternalError, ScheduleError
from ..ir.affine import Affine, FloorDiv, Range, affine, var
from ..ir.expr import Access, Expr, Load, rewrite
from ..ir.scop import Scop, Statement, Step
from ..ir.tensor import Tensor
from ..isl_ext import OUT, SET, read_set, sets_of
from ..poly.access import remember, tensor_box
from ..poly.convert import columns, from_aff, to_aff, to_multi_aff
from ..poly.promotion import Promotion, check_promotion
from .arguments import read_affine
from .checked import check_context
from .tree import (
    Chain,
    Leaf,
    Member,
    Tree,
    edit,
    find_chain,
    loops,
    members_above,
    read_tree,
    sequence,
    split_chain,
    statements_below,
    write_tree,
)

Layout = Sequence[Affine | str]
TRANSPOSE_BLOCK = 16  # elements of the read direction that a transposing copy finishes at a time: one cache line of float32


@dataclass(frozen=True)
class Box:
    """A footprint: `offset` of each dim in the coordinate names p0, p1, … of the loops above, and its constant extent."""

    offset: tuple[Affine, ...]
    extent: tuple[int, ...]


def date_of(m: Member, s: Statement) -> Affine:
    """The date that a loop gives to a statement's instances, as an affine expression of its iterators."""
    space = s.domain.get_space().align_params(m.upa.get_space())
    pieces = m.upa.extract_pw_aff(space.from_domain().add_dims(OUT, 1)).get_pieces()
    if len(pieces) == 1:
        return from_aff(pieces[0][1], s.iters)
    raise ScheduleError(f"the loop {m.name} has no single affine date for {s.name}")


def make_member(scop: Scop, name: str, dates: dict[str, Affine], mark: str = "") -> Member:
    """A loop from the date that it gives to each statement."""
    upa: isl.UnionPwAff | None = None
    for stmt, date in dates.items():
        space = scop.statement(stmt).domain.get_space()
        piece = isl.UnionPwAff.from_pw_aff(isl.PwAff.from_aff(to_aff(date, space, columns(space, scop.statement(stmt).iters))))
        upa = piece if upa is None else upa.union_add(piece)
    if upa is None:
        raise InternalError(f"the loop {name} has no statement")
    return Member(name, upa, mark)


def iterator_ranges(s: Statement) -> dict[str, Range]:
    """Constant inclusive bounds of a statement's iterators (None where they depend on parameters)."""
    return remember(s, "iterator ranges", lambda: _iterator_ranges(s))


def _iterator_ranges(s: Statement) -> dict[str, Range]:
    out: dict[str, Range] = {}
    for q, name in enumerate(s.iters):
        lo, hi = s.domain.dim_min_val(q), s.domain.dim_max_val(q)
        out[name] = (int(lo.to_python()) if lo.is_int() else None, int(hi.to_python()) if hi.is_int() else None)
    return out


def index_in_tile(index: Affine, s: Statement, dates: Sequence[Affine]) -> tuple[Affine, Range]:
    """An index as (offset in p0, p1, …) + (a rest within a constant range), given the dates of the loops above."""
    ranges = iterator_ranges(s)
    values: dict[str, Affine] = {}
    rests: dict[str, Range] = {}
    for it in s.iters:
        best: tuple[int, Affine] | None = None
        for q, date in enumerate(dates):
            block = _block_of(date, it)
            if block is not None and (best is None or block[0] < best[0]):
                best = (block[0], (var(f"p{q}") - block[1]) * block[0])
        if best is not None:
            values[it] = best[1] + (var(f"r.{it}") if best[0] > 1 else 0)
            rests[f"r.{it}"] = (0, best[0] - 1)
        else:
            values[it] = var(f"r.{it}")
            rests[f"r.{it}"] = ranges[it]
    x = index.substitute(values).simplify(rests)
    inside = Affine(tuple((a, k) for a, k in x.terms if any(n.startswith("r.") for n in var_names(a))), 0)
    return x - inside, inside.bounds(rests)


def var_names(atom: object) -> frozenset[str]:
    """The variables of an atom."""
    return frozenset((atom,)) if isinstance(atom, str) else atom.num.names()  # type: ignore[attr-defined]


def _block_of(date: Affine, it: str) -> tuple[int, Affine] | None:
    """(T, c) where the date is floor(it / T) + c with a constant c."""
    if len(date.terms) != 1:
        return None
    atom, k = date.terms[0]
    if k != 1:
        return None
    if atom == it:
        return 1, affine(date.const)
    if not isinstance(atom, str) and atom.num == var(it):
        return atom.den, affine(date.const)
    return None


def footprint_box(
    scop: Scop, tensor: str, statements: Sequence[str], above: Sequence[Member], verb: str = "promote", access: str | None = None
) -> Box:
    """The box of all accesses (or of the one that reads so) to a tensor by these statements within one iteration of the loops above."""
    lo: list[Affine] = []
    width: list[tuple[int, int]] = []
    for name in statements:
        s = scop.statement(name)
        accesses = [a for a in (s.write, *s.reads()) if a.tensor == tensor and access in (None, str(a))]
        if not accesses:
            continue
        dates = [date_of(m, s) for m in above]
        for a in accesses:
            if not a.is_affine:
                raise ScheduleError(f"{verb}: {s.name} reads {tensor} through an indirect index; its footprint has no constant box")
            for d, x in enumerate(a.affine_indices()):
                offset, (a_lo, a_hi) = index_in_tile(x, s, dates)
                if a_lo is None or a_hi is None:
                    raise ScheduleError(f"{verb}: {tensor}'s dim {d} has no constant bound below this loop (index {x} of {s.name}); tile it first")
                if d == len(lo):
                    lo.append(offset)
                    width.append((a_lo, a_hi))
                else:
                    shift = offset - lo[d]
                    if not shift.is_const:
                        raise ScheduleError(f"{verb}: the accesses to {tensor} do not move together in dim {d} ({offset} and {lo[d]})")
                    width[d] = (min(width[d][0], a_lo + shift.const), max(width[d][1], a_hi + shift.const))
    if not lo:
        if scop.tensor(tensor).shape:
            raise ScheduleError(f"{verb}: no statement below this loop uses {tensor}")
    return Box(tuple(o + w[0] for o, w in zip(lo, width)), tuple(w[1] - w[0] + 1 for w in width))


def promote(
    scop: Scop,
    tensor: str,
    *,
    at: str | None,
    scope: str = "cache",
    of: str | None = None,
    layout: Layout | None = None,
    lanes: int = 0,
    name: str | None = None,
    access: str | None = None,
    prove: bool = True,
) -> Scop:
    """Promote a tensor below the loop `at` into a buffer (scope: registers, cache or shared).

    access: only the reads written so ("A[j, k]"), where a tensor is read in several ways that do not move together.
    layout: physical index of the buffer as affine expressions of d0, d1, … (the position inside the box); row-major where None.
    lanes: the width in which the innermost copy loop is vectorised (0: not). prove: prove at once that no value changes; else the
    certificate does. Raises ScheduleError where the footprint has no constant box, or where a value would change.
    """
    if scope not in ("registers", "cache", "shared"):
        raise ScheduleError(f"promote: scope is {scope!r}; it must be registers, cache or shared")
    if tensor not in {t.name for t in scop.tensors}:
        raise ScheduleError(f"promote: there is no tensor {tensor!r}; the tensors are {', '.join(t.name for t in scop.tensors)}")
    if at is None:
        raise ScheduleError("promote: name the loop below which the buffer lives with at=…")
    check_context(scop)
    chain = find_chain(scop, "promote", [at], of)
    above = members_above(scop, chain, chain.index(at) + 1)
    lanes_above = next((m.name for m in above if m.mark.startswith("vector")), None)
    if lanes_above is not None:
        raise ScheduleError(f"promote: the lanes of the vector loop {lanes_above} would share the buffer; promote first, then vectorize")
    _, below = split_inside(scop, chain, chain.index(at) + 1)
    every = [n for n in statements_below(below) if any(a.tensor == tensor for s in [scop.statement(n)] for a in (s.write, *s.reads()))]
    used = [n for n in every if access is None or any(a.tensor == tensor and str(a) == access for a in scop.statement(n).reads())]
    if access is not None:
        _check_access(scop, tensor, access, every, used)
    box = footprint_box(scop, tensor, used, above, access=access)
    source = scop.tensor(tensor)
    buf = fresh_tensor(scop, name or f"{tensor}_{scope}")
    position = [var(f"d{d}") for d in range(len(box.extent))]
    physical = tuple(read_affine("promote", "the layout", x) for x in layout) if layout is not None else tuple(position)
    ranges: dict[str, Range] = {f"d{d}": (0, e - 1) for d, e in enumerate(box.extent)}
    shape = tuple(affine(_upper_bound(x, ranges) + 1) for x in physical)
    local = Tensor(buf, source.dtype, shape, "local", scope)
    cells = _Cells(scop, tensor, buf, box, physical, tuple(above), used, access)
    load, store = cells.load(), cells.store()
    extra = [s for s in (load, store) if s is not None]
    statements = tuple(cells.rewritten(s) if s.name in used else s for s in scop.statements)
    new = replace(scop, statements=(*statements, *extra), tensors=(*scop.tensors, local), dependences=None)
    nest = {s.name: _copy_nest(new, s, len(above), box, physical, lanes, scope) for s in extra}
    parts: list[Tree] = [nest[load.name]] if load is not None else []
    parts.append(below)
    if store is not None:
        parts.append(nest[store.name])
    tree = with_copies(scop, new, chain, chain.index(at) + 1, above, extra, sequence(parts))
    schedule = write_tree(tree, {s.name: s.domain for s in new.statements})
    given = (("of", of), ("name", name), ("access", access), ("layout", tuple(map(str, layout)) if layout else None), ("lanes", lanes))
    kwargs = (("at", at), ("scope", scope), *(x for x in given if x[1]))
    step = Step("promote", (tensor,), kwargs)
    depths = {**scop.meta.get("buffers", {}), buf: len(above)}
    new = replace(new, schedule=schedule, history=(*scop.history, step), meta={**scop.meta, "buffers": depths})
    if prove:
        check_promotion(scop, new, tensor, buf, str(step))
        return new
    left = (*scop.meta.get("promotions", ()), Promotion(scop, new, tensor, buf))
    return replace(new, meta={**new.meta, "promotions": left})


def _check_access(scop: Scop, tensor: str, access: str, below: Sequence[str], used: Sequence[str]) -> None:
    """Refuse a read that is not there, or one of a tensor that changes below the loop."""
    if not used:
        known = sorted({str(a) for n in below for a in scop.statement(n).reads() if a.tensor == tensor})
        raise ScheduleError(f"promote: no statement below this loop reads {access}; of {tensor} they read {', '.join(known) or 'nothing'}")
    writer = next((n for n in below if scop.statement(n).write.tensor == tensor), None)
    if writer is not None:
        raise ScheduleError(f"promote: {writer} writes {tensor} below this loop: a buffer for {access} alone would miss that")


def _upper_bound(x: Affine, ranges: dict[str, Range]) -> int:
    hi = x.bounds(ranges)[1]
    if hi is None:
        raise ScheduleError(f"promote: the layout's index {x} uses names other than d0, d1, …")
    return hi


def fresh_tensor(scop: Scop, base: str) -> str:
    """A tensor name that is not in use: base, base2, …"""
    used = {t.name for t in scop.tensors}
    name, k = base, 2
    while name in used:
        name, k = f"{base}{k}", k + 1
    return name


def split_inside(scop: Scop, chain: Chain, count: int) -> tuple[list[Member], Tree]:
    """The first `count` loops of a chain, and the tree below them."""
    return list(chain.members[:count]), loops(chain.members[count:], chain.below)


@dataclass(frozen=True)
class _Cells:
    """Tile-private cells (p, cell) of one promotion, and the copy statements between the tensor and its buffer."""

    scop: Scop
    tensor: str
    buf: str
    box: Box
    physical: tuple[Affine, ...]
    above: tuple[Member, ...]
    used: list[str]
    access: str | None = None

    def _mine(self, a: Access) -> bool:
        return a.tensor == self.tensor and self.access in (None, str(a))

    def private_map(self, s: Statement, a: Access) -> isl.Map:
        """Instance → cell[p…, index…]: each tile has its own copy of the tensor."""
        dates = [date_of(m, s) for m in self.above]
        ma = to_multi_aff([*dates, *a.affine_indices()], s.domain.get_space(), "cell", columns(s.domain.get_space(), s.iters))
        return isl.Map.from_multi_aff(ma).intersect_domain(s.domain)

    def reads_writes(self) -> tuple[isl.UnionMap | None, isl.UnionMap | None]:
        """The private reads (an update reads its own cell) and writes."""
        reads: isl.UnionMap | None = None
        writes: isl.UnionMap | None = None
        for name in self.used:
            s = self.scop.statement(name)
            own = [a for a in s.reads() if self._mine(a)]
            if self._mine(s.write):
                m = isl.UnionMap.from_map(self.private_map(s, s.write))
                writes = m if writes is None else writes.union(m)
                own += [s.write] if s.reduction else []
            for a in own:
                m = isl.UnionMap.from_map(self.private_map(s, a))
                reads = m if reads is None else reads.union(m)
        return reads, writes

    def load(self) -> Statement | None:
        """The statement that fills the buffer with the cells whose value comes from outside the tile; None where there are none."""
        reads, writes = self.reads_writes()
        if reads is None:
            return None
        if writes is None:
            return self._copy("load", self._box_domain(reads))
        info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule(self.scop.schedule)
        exposed = info.compute_flow().get_must_no_source().range()
        if exposed.is_empty():
            return None
        # a guarded load may have a footprint that leaves the tensor
        rank = len(self.box.extent)
        cells = self._by_tile(sets_of(exposed)[0], sets_of(reads.range())[0])
        inside = tensor_box(self.scop.tensor(self.tensor), self.scop.params).insert_dims(SET, 0, cells.dim(SET) - rank).set_tuple_name("cell")
        return self._copy("load", cells.intersect(inside))

    def _by_tile(self, cells: isl.Set, read: isl.Set) -> isl.Set:
        """Cells as (all that a tile reads) ∩ (some tiles), where they are that: flow analysis may describe them in more pieces than that."""
        cells, n, rank = _without_repeats(cells), len(self.above), len(self.box.extent)
        if cells.n_basic_set() == 1:
            return cells
        tiles = _without_repeats(cells.project_out(SET, n, rank)).insert_dims(SET, n, rank).set_tuple_name("cell")
        simple = _without_repeats(read).intersect(tiles)
        return simple if simple.is_subset(cells) else cells

    def store(self) -> Statement | None:
        """The statement that writes back the cells that the tile has written."""
        _, writes = self.reads_writes()
        return None if writes is None else self._copy("store", sets_of(writes.range())[0])

    def _box_domain(self, reads: isl.UnionMap) -> isl.Set:
        """All cells of the box inside the tensor, for the tiles that read: simpler loops than the exact footprint."""
        exact = sets_of(reads.range())[0]
        n, rank = len(self.above), len(self.box.extent)
        p, c = [f"p{q}" for q in range(n)], [f"c{d}" for d in range(rank)]
        tiles = exact.project_out(SET, n, rank).insert_dims(SET, n, rank).set_tuple_name("cell")
        shape = self.scop.tensor(self.tensor).shape
        limits = [f"{o} <= {x} < {o + e} and 0 <= {x} < {size}" for o, e, x, size in zip(self.box.offset, self.box.extent, c, shape)]
        head = f"[{', '.join(self.scop.params)}] -> " if self.scop.params else ""
        return tiles.intersect(read_set(f"{head}{{ cell[{', '.join(p + c)}] : {' and '.join(limits) or 'true'} }}"))

    def _copy(self, kind: str, cells: isl.Set) -> Statement:
        n, rank = len(self.above), len(self.box.extent)
        iters = (*(f"p{q}" for q in range(n)), *(f"c{d}" for d in range(rank)))
        name = f"{kind}_{self.buf}"
        domain = _without_repeats(cells).set_tuple_name(name)
        for q, it in enumerate(iters):
            domain = domain.set_dim_name(SET, q, it)
        outer = Access(self.tensor, tuple(var(f"c{d}") for d in range(rank)))
        inside = {f"d{d}": var(f"c{d}") - o for d, o in enumerate(self.box.offset)}
        inner = Access(self.buf, tuple(x.substitute(inside) for x in self.physical))
        dtype = self.scop.tensor(self.tensor).dtype
        source, sink = (outer, inner) if kind == "load" else (inner, outer)
        return Statement(name, iters, domain, sink, Load(source, dtype))

    def rewritten(self, s: Statement) -> Statement:
        """A statement with its accesses turned to the buffer."""
        dates = {f"p{q}": date_of(m, s) for q, m in enumerate(self.above)}
        offset = [o.substitute(dates) for o in self.box.offset]

        def turn(a: Access) -> Access:
            inside = {f"d{d}": x - o for d, (x, o) in enumerate(zip(a.affine_indices(), offset))}
            return Access(self.buf, tuple(x.substitute(inside) for x in self.physical))

        def visit(x: Expr) -> Expr | None:
            return Load(turn(x.access), x.dtype) if isinstance(x, Load) and self._mine(x.access) else None

        write = turn(s.write) if self._mine(s.write) else s.write
        return replace(s, write=write, expr=rewrite(s.expr, visit))


def _without_repeats(cells: isl.Set) -> isl.Set:
    """The set without the pieces that others cover: the same cells, reached by two statements, may be two pieces that do not coalesce."""
    pieces = [isl.Set.from_basic_set(b) for b in cells.coalesce().get_basic_sets()]
    for piece in list(pieces):
        rest = [b for b in pieces if b is not piece]
        if rest and piece.is_subset(reduce(isl.Set.union, rest)):
            pieces = rest
    return reduce(isl.Set.union, pieces) if pieces else cells


def _copy_nest(scop: Scop, s: Statement, n: int, box: Box, physical: Sequence[Affine], lanes: int, scope: str) -> Tree:
    """The loops of a copy statement over the cell: blocks of the layout first, then the tensor's order; register copies are written out.

    Where the layout transposes, the innermost dim is split so that the lines read stay in cache until they are used up.
    """
    mark = "unroll" if scope == "registers" else ""
    last = len(box.extent) - 1
    strips: list[Member] = []
    points: list[Member] = []
    for d, extent in enumerate(box.extent):
        it = s.iters[n + d]
        start = var(it) - box.offset[d]
        width = next((a.den for x in physical for a, _ in x.terms if isinstance(a, FloorDiv) and a.num == var(f"d{d}")), 0)
        if 0 < width < extent and scope != "registers":
            strips.append(make_member(scop, f"t{it}", {s.name: start // width}))
        if extent == 1:
            continue
        if d == last and lanes > 1:
            if extent > lanes:
                points.append(make_member(scop, f"s{it}", {s.name: start // lanes}, mark))
            points.append(make_member(scop, it, {s.name: var(it)}, f"vector:{lanes}"))
            continue
        if d == last and physical[-1].names() != {f"d{last}"} and extent > TRANSPOSE_BLOCK and scope != "registers":
            strips.append(make_member(scop, f"s{it}", {s.name: start // TRANSPOSE_BLOCK}))
        points.append(make_member(scop, it, {s.name: var(it)}, mark))
    return loops([*strips, *points], Leaf((s.name,)))


def with_copies(
    old: Scop, new: Scop, chain: Chain, count: int, above: Sequence[Member], extra: Sequence[Statement], below: Tree
) -> Tree:
    """The old tree with the copies' dates added to the loops above, and `below` in place of what was below them."""
    depth = 0

    def dated(m: Member) -> Member:
        nonlocal depth
        q = depth
        depth += 1
        copies = make_member(new, m.name, {s.name: var(f"p{q}") for s in extra})
        return replace(m, upa=m.upa.union_add(copies.upa))

    def visit(tree: Tree, path: tuple[int, ...]) -> Tree:
        members, inner = split_chain(tree)
        if not path:
            return loops([dated(m) for m in members[:count]], below)
        members = [dated(m) for m in members]
        parts = list(inner.parts)  # type: ignore[union-attr]
        parts[path[0]] = visit(parts[path[0]], path[1:])
        return loops(members, sequence(parts))

    if not extra:
        return edit(read_tree(old.schedule), chain.path, lambda t: loops(split_chain(t)[0][:count], below))
    return visit(read_tree(old.schedule), chain.path)
