"""The recipe for reductions whose results lie along a vector: contractions (gemm, convolution, q·kᵀ, p·v, …) and pooling-like reductions.

Found by access relations alone: an update U of a tensor C with a reduction operator, where some iterator v moves C by one element and every load
of U by one element, not at all, or along an operand that can be packed. Result iterators are those of C; the others are reduced.
The tree that it builds:

    for outer results, for blocks of rows: [pack the broadcast operand] for v tiles: [pack the vector operand] for row tiles:
        { init of the tile | for reduced: for rows (unrolled), for v (vector): U | epilogue of the tile }      with C in registers

The schedule is checked against the dependences as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ..errors import ScheduleError
from ..ir.affine import Affine, FloorDiv, affine, var
from ..ir.expr import Access, Binary, Expr, Load, loads, rewrite
from ..ir.scop import Scop, Statement, Step
from ..ir.tensor import Tensor
from ..poly.convert import from_pw_aff
from ..poly.strides import element_strides, iterators_of, known_extent, match_iterators, stride
from ..target import Target
from . import rows
from .checked import checked
from .edges import couplings
from .promote import iterator_ranges, make_member, promote
from .register_tile import Dim, choose_tile
from .tree import Leaf, Member, Seq, Tree, loops, only_statements, read_tree, rewrite_schedule, sequence, statements_below

UNKNOWN = 1 << 20  # stands for the extent of an iterator whose range depends on parameters


@dataclass(frozen=True)
class Update:
    """A recognised update: its statement, the vector iterator, the result and reduced iterators, the loads by role."""

    statement: Statement
    vector: str
    results: tuple[str, ...]
    reduced: tuple[str, ...]
    vector_loads: tuple[Load, ...]
    other_loads: tuple[Load, ...]
    extents: dict[str, int]
    coupled: frozenset[str]  # result iterators on which the range of a reduced iterator depends
    companions: dict[str, dict[str, str]]  # statement on C before or after → its iterators renamed to U's


def find_update(scop: Scop, target: Target) -> Update | None:
    """The one update that this recipe schedules, or None."""
    updates = [s for s in scop.statements if s.reduction is not None and set(s.iters) - set(iterators_of(s.write, s))]
    if len(updates) != 1:
        return None
    s = updates[0]
    c = scop.tensor(s.write.tensor)
    results = iterators_of(s.write, s)
    reduced = tuple(i for i in s.iters if i not in results)
    if not results or any(not a.is_affine for a in (s.write, *s.reads())):
        return None
    ranges = iterator_ranges(s)
    extents = {i: (hi - lo + 1 if lo is not None and hi is not None else UNKNOWN) for i, (lo, hi) in ranges.items()}
    candidates = [i for i in results if stride(s.write, c, i) == 1 and extents[i] > 1]
    for v in candidates:
        vector_loads = tuple(x for x in s.loads() if v in iterators_of(x.access, s))
        others = tuple(x for x in s.loads() if v not in iterators_of(x.access, s))
        coupled = _coupled(s, results, reduced)
        companions = _companions(scop, s)
        if v in coupled:
            return None
        if any(stride(x.access, scop.tensor(x.access.tensor), v) != 1 and _reuse(x, s, results, extents) < 4 for x in vector_loads):
            continue  # neither read along the vector nor worth a transposing pack: the row recipe reads it along the reduction
        return Update(s, v, results, reduced, vector_loads, others, extents, coupled, companions)
    return None


def _reuse(x: Load, s: Statement, results: Sequence[str], extents: dict[str, int]) -> int:
    """How many results each element of an operand contributes to."""
    mine = iterators_of(x.access, s)
    return prod(extents[i] for i in results if i not in mine)


def _companions(scop: Scop, update: Statement) -> dict[str, dict[str, str]]:
    """The statements that touch C element by element like the update, with their iterators renamed to its own.

    One that touches C otherwise (the border of a padded tensor, say) keeps a nest of its own; the legality check says whether that is right.
    """
    out: dict[str, dict[str, str]] = {}
    for s in scop.statements:
        touching = [a for a in (s.write, *s.reads()) if a.tensor == update.write.tensor]
        if s is update or not touching or any(a != touching[0] for a in touching):
            continue
        names = match_iterators(touching[0], s.iters, update.write, update.iters)
        if names is not None and set(names) >= set(s.iters):
            out[s.name] = names
    return out


def _coupled(s: Statement, results: Sequence[str], reduced: Sequence[str]) -> frozenset[str]:
    """Result iterators that occur in one constraint with a reduced iterator."""
    return frozenset(i for c in couplings(s) if c & set(reduced) for i in c & set(results))


def apply(scop: Scop, u: Update, target: Target) -> Scop:
    """Schedule a recognised update and the statements around it."""
    scop = broadcast_first(scop, u)
    u = find_update(scop, target) or u
    lanes = max(1, target.lanes(_itemsize(scop, u)))
    scop = pack_constants(scop, u, target, lanes)
    u = find_update(scop, target) or u
    tile = _tile(scop, u, target, lanes)
    plan = _Plan(scop, u, tile, lanes, target)
    step = Step("contract", (u.statement.name,), tuple(sorted(tile.items())))
    out = rows.drop_illegal_marks(checked(scop, rewrite_schedule(scop, plan.tree()), step, marks=False))
    return plan.promote_all(out)


def broadcast_first(scop: Scop, u: Update) -> Scop:
    """The factors of each product in one order, however they were written: what is broadcast, then what lies along the vector."""

    def turn(e: Expr) -> Expr | None:
        if not isinstance(e, Binary) or e.op != "*" or _along(e.y, u) or not _along(e.x, u):
            return None
        return Binary("*", e.y, e.x)

    s = replace(u.statement, expr=rewrite(u.statement.expr, turn))
    if s.expr == u.statement.expr:
        return scop
    return replace(scop, statements=tuple(s if x.name == s.name else x for x in scop.statements))


def _along(e: Expr, u: Update) -> bool:
    return any(u.vector in iterators_of(x.access, u.statement) for x in loads(e))


def _itemsize(scop: Scop, u: Update) -> int:
    return max([scop.tensor(u.statement.write.tensor).dtype.bytes, *(x.dtype.bytes for x in u.statement.loads())])


def _tile(scop: Scop, u: Update, target: Target, lanes: int) -> dict[str, int]:
    loads = u.statement.loads()

    def dim(i: str) -> Dim:
        operands = tuple(i in iterators_of(x.access, u.statement) for x in loads)
        return Dim(i, u.extents[i], operands, i not in u.coupled)

    others = [dim(i) for i in u.results if i != u.vector]
    tile = choose_tile(dim(u.vector), others, target, lanes, _blocking(u.statement.write, u.vector), _taps(u))
    block = scop.meta.get("blocks", {}).get(u.statement.name, 0)
    if block:  # tiles that divide the blocks of `edges` are full
        tile = {i: max(n for n in range(1, min(size, block) + 1) if block % n == 0 and (i != u.vector or n % lanes == 0)) for i, size in tile.items()}
    return tile


def block_size(scop: Scop, u: Update, target: Target) -> int:
    """The side of the blocks into which an update with coupled iterators is best cut: its vector tile."""
    return _tile(scop, u, target, max(1, target.lanes(_itemsize(scop, u))))[u.vector]


def _taps(u: Update) -> int:
    """Steps of the innermost reduced iterator to write out: a short window that slides along a vector operand shares its loads."""
    order = reduction_order(u)
    if not order or u.coupled or u.extents[order[-1]] > 4:
        return 1
    rows = {i for i in u.results if i != u.vector}
    slides = any(order[-1] in x.names() and rows & x.names() for load in u.vector_loads for x in load.access.affine_indices())
    return u.extents[order[-1]] if slides else 1


# ---- constants packed at compile time
def pack_constants(scop: Scop, u: Update, target: Target, lanes: int) -> Scop:
    """Give each constant operand the layout in which the recipe reads it: [v tile][other results][reduced …][v in tile]."""
    s = u.statement
    tile = _tile(scop, u, target, lanes)
    for load in {x.access.tensor: x for x in s.loads()}.values():
        t = scop.tensor(load.access.tensor)
        its = iterators_of(load.access, s)
        others = [x for x in scop.statements if x is not s and any(a.tensor == t.name for a in x.reads())]
        sizes = {i: u.extents[i] for i in its}
        simple = all(_is_plain(x) for x in load.access.affine_indices())
        if t.role != "constant" or t.source is not None or others or not simple or prod(sizes.values()) < 2 or UNKNOWN in sizes.values():
            continue
        if u.vector not in its:
            continue
        scop = _relayout(scop, u, load.access, t, tile[u.vector], sizes)
    return scop


def _is_plain(x: Affine) -> bool:
    """Whether an index is one iterator, or a constant."""
    return x.is_const or (x.const == 0 and len(x.terms) == 1 and isinstance(x.terms[0][0], str) and x.terms[0][1] == 1)


def _relayout(scop: Scop, u: Update, a: Access, t: Tensor, width: int, sizes: dict[str, int]) -> Scop:
    v = u.vector
    order = [i for i in u.results if i in sizes and i != v] + [i for i in reduction_order(u) if i in sizes]
    blocks = -(-sizes[v] // width)
    shape = (affine(blocks), *(affine(sizes[i]) for i in order), affine(width))
    indices = (var(v) // width, *(var(i) for i in order), var(v) % width)
    back = {v: var("d0") * width + var(f"d{len(order) + 1}"), **{i: var(f"d{q + 1}") for q, i in enumerate(order)}}
    source = (t.name, tuple(x.substitute(back) for x in a.affine_indices()))
    packed = Tensor(f"{t.name}_packed", t.dtype, shape, "constant", "heap", source)

    def turn(s: Statement) -> Statement:
        if s.name != u.statement.name:
            return s

        def visit(x: Expr) -> Expr | None:
            return Load(Access(packed.name, indices), x.dtype) if isinstance(x, Load) and x.access == a else None

        return replace(s, expr=rewrite(s.expr, visit))

    tensors = tuple(packed if x.name == t.name else x for x in scop.tensors)
    # a constant is never written, so no dependence goes through it and those known remain
    return replace(scop, tensors=tensors, statements=tuple(turn(s) for s in scop.statements))


def reduction_order(u: Update) -> tuple[str, ...]:
    """The reduced iterators, outermost first: an iterator that walks inside a block of the broadcast operand goes innermost."""
    blocked = [i for i in u.reduced if _block(u, i)]
    return (*(i for i in u.reduced if i not in blocked), *blocked)


def _block(u: Update, it: str) -> int:
    """The block size d where some load has floor(it / d) in an index; 0 where there is none."""
    return next((b for x in u.statement.loads() if (b := _blocking(x.access, it))), 0)


def _blocking(a: Access, it: str) -> int:
    """The block size d where an index of the access has floor(it / d); 0 where none has."""
    for index in a.affine_indices():
        for atom, _ in index.terms:
            if isinstance(atom, FloorDiv) and atom.num == var(it):
                return atom.den
    return 0


# ---- the tree
@dataclass(frozen=True)
class _Plan:
    scop: Scop
    u: Update
    tile: dict[str, int]
    lanes: int
    target: Target

    def tree(self) -> Tree:
        """The whole tree: statements before and after that do not touch C keep their nests."""
        own = {self.u.statement.name, *self.u.companions}
        parts: list[Tree] = []
        placed = False
        old = read_tree(self.scop.schedule)
        for part in old.parts if isinstance(old, Seq) else (old,):
            names = statements_below(part)
            mine = [q for q, s in enumerate(names) if s in own]
            # statements that share loops with U get loops of their own, before or after
            before, after = (names[: mine[0]], names[mine[0] :]) if mine else (names, ())
            for some, here in ((before, False), (after, True)):
                if here and mine and not placed:
                    parts.append(self.nest())
                    placed = True
                rest = only_statements(part, self.scop, [s for s in some if s not in own])
                if statements_below(rest):
                    parts.append(rows.schedule_part(self.scop, rest, self.target))
        return sequence(parts)

    def names(self) -> list[str]:
        """The statements of the nest in textual order."""
        order = statements_below(read_tree(self.scop.schedule))
        return [s for s in order if s == self.u.statement.name or s in self.u.companions]

    def date(self, stmt: str, it: str) -> Affine:
        """U's iterator in a statement's own names."""
        if stmt == self.u.statement.name:
            return var(it)
        back = {b: a for a, b in self.u.companions[stmt].items()}
        return var(back[it]) if it in back else affine(0)

    def member(self, name: str, it: str, size: int = 1, mark: str = "", only: Sequence[str] | None = None) -> Member:
        """A loop over blocks of `size` of a result iterator."""
        dates = {s: self.chunk_date(s, it, size) if it in self.u.reduced else self.date(s, it) // size for s in (only or self.names())}
        return make_member(self.scop, name, dates, mark)

    def chunk_date(self, stmt: str, it: str, size: int) -> Affine:
        """The chunk of a reduced iterator in which a statement runs: what comes before U in the first, what comes after in the last."""
        s, names = self.u.statement, self.names()
        if stmt == s.name:
            return var(it) // size
        if names.index(stmt) < names.index(s.name):
            return affine(0)
        pieces = from_pw_aff(s.domain.dim_max(s.iters.index(it)), ())
        if len(pieces) != 1:
            raise ScheduleError(f"contract: the range of {it} is no single expression")
        last = pieces[0][1]
        return last // size if last.is_const else (last + 1) // size  # an empty reduction has a last chunk too

    def chunk(self) -> dict[str, int]:
        """A piece of the reduction, where that of all of it has no known size, or a vector panel of it does not stay in cache.

        Operands that are packed at run time want short panels: the block of rows that fits in L2 is then tall, and the panels are packed less often.
        """
        u, l2 = self.u, self.target.l2
        order = reduction_order(u)
        step = self.tile[u.vector] * _itemsize(self.scop, u)
        if not order or u.coupled:
            return {}
        i, *rest = order
        inner, block = prod(u.extents[k] for k in rest), max(1, _block(u, order[0]))
        total = inner * u.extents[i] * step
        runtime = len(u.vector_loads) == 1 and self.scop.tensor(u.vector_loads[0].access.tensor).role != "constant"
        limit, aim = (l2 // 12, l2 // 24) if runtime else (l2 // 2, l2 // 8)
        if total <= limit or inner * step > l2 // 2:
            return {}
        pieces = -(-total // aim)
        size = -(-u.extents[i] // (pieces * block)) * block if u.extents[i] < UNKNOWN else max(1, aim // (step * inner * block)) * block
        return {i: size} if size < u.extents[i] else {}

    def panels_at(self, chunk: str, v_loop: str) -> str:
        """Where the vector operand is packed: for all its tiles at once where they fit in a quarter of L3, else tile by tile."""
        u = self.u
        if not chunk or u.extents[u.vector] >= UNKNOWN:
            return v_loop
        return chunk if self.bytes_of(u.vector_loads) <= self.target.l3 // 4 else v_loop

    def order(self) -> tuple[list[tuple[str, str, int]], str, str]:
        """The loops above the register tile: (loop name, iterator, block size), and the loops at which operands are packed."""
        u, tile = self.u, self.tile
        rows = [i for i in u.results if i != u.vector]
        tiled = [i for i in rows if i in tile]
        outer = [(i, i, 1) for i in rows if i not in tile]
        v_loop = (f"t{u.vector}", u.vector, tile[u.vector])
        row_loops = [(f"t{i}", i, tile[i]) for i in tiled]
        # a result iterator of the broadcast operand alone, outside the tile, belongs to the rows: it moves inside the vector loop
        inside = [x for x in outer if not any(x[1] in iterators_of(a.access, u.statement) for a in u.vector_loads)]
        batch = [x for x in outer if x not in inside]
        chunk = [(f"c{i}", i, n) for i, n in self.chunk().items()]
        batch += chunk
        block = self.row_block(tiled, [x[1] for x in inside])
        blocked = [(f"b{i}", i, n) for i, n in block.items()]
        if self.vector_first():
            at = self.panels_at(chunk[0][0] if chunk else "", v_loop[0])
            return [*batch, *blocked, v_loop, *inside, *row_loops], (blocked or batch or [("", "", 0)])[-1][0], at
        return [*batch, *inside, *blocked, *row_loops, v_loop], "", v_loop[0]

    def vector_first(self) -> bool:
        """Whether the vector tiles run outside the rows: then the rows' operand stays in cache, and the vector operand streams once."""
        rows = self.bytes_of(self.u.other_loads)
        vectors = self.bytes_of(self.u.vector_loads)
        return rows <= self.target.l2 // 2 or vectors > self.target.l2 // 2

    def bytes_of(self, loads_: Sequence[Load], sizes: dict[str, int] | None = None) -> int:
        """Bytes of the elements that these loads touch (result iterators that both operands share count once)."""
        batch = {i for i in self.u.results if all(i in iterators_of(x.access, self.u.statement) for x in self.u.statement.loads())}
        total = 0
        for x in loads_:
            its = [i for i in iterators_of(x.access, self.u.statement) if i not in batch]
            cells = prod({**self.chunk(), **(sizes or {})}.get(i, min(self.u.extents[i], 4096)) for i in its)
            total += min(cells, prod(known_extent(e) for e in self.scop.tensor(x.access.tensor).shape)) * x.dtype.bytes
        return total

    def row_block(self, tiled: Sequence[str], inside: Sequence[str]) -> dict[str, int]:
        """A block of row tiles whose operand fits half of L2, where all rows do not."""
        rows = [*inside, *tiled]
        if not self.u.other_loads or not tiled or self.bytes_of(self.u.other_loads) <= self.target.l2 // 2:
            return {}
        i = rows[0] if inside else tiled[0]
        unit = self.tile.get(i, 1)
        per = self.bytes_of(self.u.other_loads, {i: unit})
        n = max(1, (self.target.l2 // 2) // max(1, per))
        size = unit * n
        return {i: size} if size < self.u.extents[i] else {}

    def nest(self) -> Tree:
        """The nest of U and its companions."""
        u, s = self.u, self.u.statement.name
        above = [self.member(name, i, size) for name, i, size in self.order()[0]]
        parts: list[Tree] = []
        for name in self.names():
            point = self.points(name)
            if name == s:
                point = [*self.reduction_loops(), *point]
            parts.append(loops(point, Leaf((name,))))
        if self.target.threads > 1 and above:
            first = next((q for q, (_, i, _) in enumerate(self.order()[0]) if i in u.results and u.extents[i] > 1), None)
            if first is not None:
                above[first] = replace(above[first], mark="parallel")
        return loops(above, sequence(parts))

    def points(self, stmt: str) -> list[Member]:
        """The loops inside the register tile: rows and strips unrolled, lanes as a vector."""
        u = self.u
        out = [self.member(i, i, 1, "unroll", [stmt]) for i in u.results if i in self.tile and i != u.vector]
        if self.tile[u.vector] > self.lanes:
            out.append(self.member(f"s{u.vector}", u.vector, self.lanes, "unroll", [stmt]))
        if self.lanes > 1:
            out.append(self.member(u.vector, u.vector, 1, f"vector:{self.lanes}", [stmt]))
        elif self.tile[u.vector] == 1:
            out.append(self.member(u.vector, u.vector, 1, "", [stmt]))
        return out

    def reduction_loops(self) -> list[Member]:
        """The reduced iterators; one that walks in blocks of an operand is split at the block."""
        s = self.u.statement.name
        order = reduction_order(self.u)
        split = [i for i in order if 0 < _block(self.u, i) < self.u.extents[i]]
        blocks = [make_member(self.scop, f"t{i}", {s: var(i) // _block(self.u, i)}) for i in split]
        out = [make_member(self.scop, i, {s: var(i)}) for i in order]
        if _taps(self.u) > 1:
            out[-1] = replace(out[-1], mark="unroll")
        return [*blocks, *out]

    # ---- data movement
    def promote_all(self, scop: Scop) -> Scop:
        """C into registers; operands packed where they walk memory badly and are read often enough."""
        above, row_pack, vector_pack = self.order()
        scop = self.pack_operand(scop, self.u.vector_loads, vector_pack, True)
        scop = self.pack_operand(scop, self.u.other_loads, row_pack, False)
        c = self.u.statement.write.tensor
        return promote(scop, c, at=above[-1][0], scope="registers", of=self.u.statement.name, lanes=self.lanes, prove=False)

    def pack_operand(self, scop: Scop, loads_: Sequence[Load], at: str, vector: bool) -> Scop:
        """Pack the runtime operands of one role into contiguous panels below the loop `at`, where that pays."""
        u = self.u
        if not at or u.coupled or self.target.isa.bytes == 0:
            return scop
        for a in dict.fromkeys(x.access for x in loads_):
            now = [x.access for x in scop.statement(u.statement.name).loads()]
            if a not in now or scop.tensor(a.tensor).role == "constant" or not self.pack_pays(scop, a, vector):
                continue
            try:
                scop = _packed(scop, self, a, at, len(a.indices), vector)
            except ScheduleError:  # no constant box below that loop: read the operand where it lies
                continue
        return scop

    def pack_pays(self, scop: Scop, a: Access, vector: bool) -> bool:
        """Whether the panel is read at least four times, and direct reads would be strided or collide in the cache's sets."""
        u, t = self.u, scop.tensor(a.tensor)
        step = abs(stride(a, t, u.vector) or 0)
        mine = set(iterators_of(a, u.statement))
        rows = prod(u.extents[i] for i in u.results if i not in mine and i != u.vector)
        if vector:
            reuse = -(-rows // max(1, prod(n for i, n in self.tile.items() if i not in mine)))
        else:
            reuse = -(-u.extents[u.vector] // self.tile[u.vector])
        if vector and step != 1:
            return True
        if reuse < 4:
            return False
        walkers = [i for i in (u.reduced if vector else self.tile) if i in mine and i != u.vector]
        distance = max((abs(stride(a, t, i) or 0) * t.dtype.bytes for i in walkers), default=0)
        count = prod(u.extents[i] for i in u.reduced if i in mine) if vector else prod(self.tile[i] for i in walkers)
        return distance >= 512 and count > 4


def _packed(scop: Scop, plan: _Plan, a: Access, at: str, rank: int, vector: bool) -> Scop:
    """The promoted scop: a vector panel is [reduced …][v]; a row panel is [row tile][reduced …][row in tile]."""
    u, t = plan.u, scop.tensor(a.tensor)
    dims = [var(f"d{d}") for d in range(rank)]
    owner = [next((i for i in u.results + u.reduced if i in x.names()), "") for x in a.affine_indices()]
    if vector:
        last = owner.index(u.vector) if u.vector in owner else rank - 1
        width = plan.tile[u.vector]
        rest = [d for q, d in enumerate(dims) if q != last]
        layout = [*rest, dims[last]] if at == f"t{u.vector}" else [dims[last] // width, *rest, dims[last] % width]
    else:
        row = next((q for q, i in enumerate(owner) if i in plan.tile), None)
        if row is None:
            return scop
        width = plan.tile[owner[row]]
        layout = [dims[row] // width, *(d for q, d in enumerate(dims) if q != row), dims[row] % width]
    lanes = plan.lanes if element_strides(t)[-1] == 1 and vector and owner[-1] == u.vector else 0
    several = len({x.access for x in u.statement.loads() if x.access.tensor == t.name}) > 1
    access = str(a) if several else None
    return promote(scop, t.name, at=at, scope="cache", of=u.statement.name, layout=layout, lanes=lanes, access=access, prove=False)
