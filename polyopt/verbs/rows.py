"""The recipe for everything that is no contraction: pointwise kernels, row reductions (softmax, norms), data movement.

Nests that follow each other and agree in their outer loops run row by row in shared loops. In each statement the loop that walks memory by
one element becomes the innermost and runs as a vector; a reduction along it is reassociated in lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..errors import IllegalSchedule, ScheduleError
from ..ir.affine import var
from ..ir.expr import Select, walk
from ..ir.scop import Scop, Statement, Step
from ..poly.legality import find_vector_violation, is_parallel, is_vectorizable
from ..poly.strides import iterators_of, stride
from ..target import Target
from .checked import checked, labelled, with_dependences
from .pivot import row_oriented
from .promote import date_of, iterator_ranges, make_member
from .tree import (
    Leaf,
    Loop,
    Member,
    Seq,
    Tree,
    band_node,
    chains,
    loops,
    own_dates,
    read_tree,
    rewrite_schedule,
    sequence,
    split_chain,
    statements_below,
)

# how a nest is changed: lanes of an outer loop; statements apart, with whole rows innermost; whole rows; strips of lanes in the given order
FORMS = ("lanes", "apart", "rows", "strips")
MANY = 12  # nests that are not tried one by one
JAM = 4  # iterations of a reduced loop that share a row
ACCUMULATORS = 4  # vectors of partial results that hide the latency of one addition


def apply(scop: Scop, target: Target, reassociate: bool = True) -> Scop:
    """Schedule all nests of a scop; the order of a reduction's updates is kept unless they may be reassociated."""
    scop = with_dependences(scop)
    tree = read_tree(scop.schedule)
    parts = list(tree.parts) if isinstance(tree, Seq) else [tree]
    out = None
    for nests in (_fuse_rows(scop, parts), parts):
        out = _best(scop, nests, target, reassociate)
        if out is not None:
            break
    if out is None:
        raise ScheduleError("rows: no order of the loops is proven legal")
    out = drop_illegal_marks(out, reassociate)
    return _parallel(out) if target.threads > 1 else out


def _best(scop: Scop, nests: Sequence[Tree], target: Target, reassociate: bool) -> Scop | None:
    """All nests in the first form of FORMS that is legal: all at once where that goes, else nest by nest. None where not even the last one is."""

    def attempt(chosen: Sequence[Tree]) -> Scop | None:
        try:
            return checked(scop, rewrite_schedule(scop, sequence(chosen)), Step("rows", ()), reassociate=reassociate, marks=False)
        except IllegalSchedule:
            return None

    made = [_candidates(scop, p, target) for p in nests]
    out = attempt([m[0] for m in made])
    if out is not None or len(nests) > MANY:
        return out or attempt([m[-1] for m in made])
    now = [m[-1] for m in made]
    out = attempt(now)
    if out is None:
        return None
    for q, forms in enumerate(made):
        for form in forms[:-1]:
            better = attempt([*now[:q], form, *now[q + 1 :]])
            if better is not None:
                out, now[q] = better, form
                break
    return out


def _candidates(scop: Scop, nest: Tree, target: Target) -> list[Tree]:
    """What a nest may become, the best first."""

    def is_row(u: Statement, j: str, k: str) -> bool:
        return vector_iterator(scop, u, [j, k]) == j

    turned = [t for late in (False, True) if (t := row_oriented(scop, nest, is_row, late)) is not None]
    forms = FORMS if _in_lanes(scop, nest) else FORMS[1:]
    return [*(_with_vectors(scop, t, target, "rows") for t in turned), *(_with_vectors(scop, nest, target, form) for form in forms)]


def schedule_part(scop: Scop, part: Tree, target: Target) -> Tree:
    """One nest of a larger tree, vectorised."""
    return _with_vectors(scop, part, target, "strips")


# ---- shared rows
def _fuse_rows(scop: Scop, parts: Sequence[Tree]) -> list[Tree]:
    """Runs of nests with the same outer loops, in shared loops."""
    out: list[Tree] = []
    run: list[Tree] = []
    depth = 0
    for p in parts:
        if run:
            d = min(depth, _shared_depth(scop, run[-1], p))
            if d > 0:
                run.append(p)
                depth = d
                continue
            out.append(_fused(run, depth))
        run, depth = [p], _row_depth(scop, p)
    if run:
        out.append(_fused(run, depth))
    return out


def _row_depth(scop: Scop, part: Tree) -> int:
    """How many outer loops walk over results only (not reduced ones)."""
    members, _ = split_chain(part)
    depth = len(members)
    for name in statements_below(part):
        s = scop.statement(name)
        results = set(iterators_of(s.write, s))
        d = 0
        while d < len(members) and date_of(members[d], s).names() and date_of(members[d], s).names() <= results:
            d += 1
        it = vector_iterator(scop, s, s.iters)
        own = next((q for q, m in enumerate(members) if it is not None and date_of(m, s) == var(it)), d)
        depth = min(depth, d, own)  # the loop that walks along rows stays inside
    return depth


def _shared_depth(scop: Scop, a: Tree, b: Tree) -> int:
    """How many outer loops of two nests have the same constant or symbolic ranges and walk over results in both."""
    limit = min(_row_depth(scop, a), _row_depth(scop, b))
    (ma, _), (mb, _) = split_chain(a), split_chain(b)
    d = 0
    while d < limit and _range(scop, ma[d], a) == _range(scop, mb[d], b) is not None:
        d += 1
    # leave each nest a loop of its own, so that there is something to vectorise
    own = [len(split_chain(p)[0]) for p in (a, b)]
    return min(d, max(0, max(own) - 1))


def _range(scop: Scop, m: Member, part: Tree) -> tuple[object, ...] | None:
    s = scop.statement(statements_below(part)[0])
    date = date_of(m, s)
    if len(date.terms) != 1 or date.const or not isinstance(date.terms[0][0], str):
        return None
    name = date.terms[0][0]
    lo, hi = iterator_ranges(s)[name]
    if lo is None:
        return None
    q = s.iters.index(name)
    return (lo, hi) if hi is not None else (lo, str(s.domain.dim_max(q)))


def _fused(run: Sequence[Tree], depth: int) -> Tree:
    if len(run) == 1:
        return run[0]
    pieces = [split_chain(p) for p in run]
    outer = []
    for d in range(depth):
        m = pieces[0][0][d]
        for members, _ in pieces[1:]:
            m = replace(m, upa=m.upa.union_add(members[d].upa))
        outer.append(m)
    return loops(outer, sequence([loops(members[depth:], below) for members, below in pieces]))


# ---- vectors
def _with_vectors(scop: Scop, tree: Tree, target: Target, form: str) -> Tree:
    """The tree with one loop of each innermost nest vectorised, in one of FORMS."""
    members, below = split_chain(tree)
    if target.isa.bytes == 0:
        return tree
    if form == "lanes":
        q = lane_loop(scop, tree)
        if q is not None:
            lanes = min(vector_lanes(scop, scop.statement(n), target) for n in statements_below(tree))
            return loops([*members[:q], replace(members[q], mark=f"vector:{lanes * ACCUMULATORS}"), *members[q + 1 :]], below)
    if isinstance(below, Seq):
        if members and all(isinstance(p, Leaf) for p in below.parts):
            return _shared_vector(scop, members, below, target, form)
        keep = _rows_outside(scop, members, below) if form == "apart" else len(members)
        own = [loops([own_dates(m, scop, statements_below(p)) for m in members[keep:]], p) for p in below.parts]
        return loops(members[:keep], sequence([_with_vectors(scop, p, target, form) for p in own]))
    assert isinstance(below, Leaf)
    if len(below.statements) != 1 or not members:
        return tree
    s = scop.statement(below.statements[0])
    it = vector_iterator(scop, s, [n for m in members for n in date_of(m, s).names()])
    at = next((q for q, m in enumerate(members) if it is not None and date_of(m, s) == var(it)), None)
    if it is None or at is None:
        return tree
    lanes = vector_lanes(scop, s, target)
    m, outer = members[at], [*members[:at], *members[at + 1 :]]
    reduced = it not in iterators_of(s.write, s)
    if at == len(members) - 1 or (form != "strips" and (reduced or _is_row(scop, s, it, target))):
        # one long loop, a reduction in several accumulators
        long = replace(m, mark=f"vector:{lanes * ACCUMULATORS if reduced else lanes}")
        if at == len(members) - 1 or reduced:
            return loops([*outer, long], below)
        return loops(_jammed(scop, s, outer, long), below)
    lo, hi = iterator_ranges(s)[it]
    strip = [make_member(scop, f"t{m.name}", {s.name: (var(it) - (lo or 0)) // lanes})] if hi is None or lo is None or hi - lo + 1 > lanes else []
    return loops([*members[:at], *strip, *members[at + 1 :], replace(m, mark=f"vector:{lanes}")], below)


def statements_in_lanes(scop: Scop) -> set[str]:
    """The statements of the nests that an outer loop should run in lanes."""
    return _in_lanes(scop, read_tree(scop.schedule))


def _in_lanes(scop: Scop, tree: Tree) -> set[str]:
    _, below = split_chain(tree)
    if lane_loop(scop, tree) is not None:
        return set(statements_below(tree))
    return set().union(*(_in_lanes(scop, p) for p in below.parts)) if isinstance(below, Seq) else set()


def lane_loop(scop: Scop, tree: Tree) -> int | None:
    """Which loop above several nests should run in lanes around them, where they walk down columns next to each other; None where none should.

    All statements move to the next element along it, or stay where they are, and some nest inside has no row of its own. Local scalars are
    thought of as one for each iteration.
    """
    members, below = split_chain(tree)
    if not isinstance(below, Seq) or all(isinstance(p, Leaf) for p in below.parts):
        return None
    statements = [scop.statement(n) for n in statements_below(tree)]
    for q, m in enumerate(members):
        if all(_moves_along(scop, s, _unit_iterator(m, s)) for s in statements):
            inner = loops(members[q + 1 :], below)
            inside = [(s, _inner_iterators(inner, s)) for s in statements]
            if any(own and vector_iterator(scop, s, own) is None for s, own in inside):
                return q
    return None


def _unit_iterator(m: Member, s: Statement) -> str:
    """The iterator that a loop walks over in steps of one; "" where it is another date."""
    d = date_of(m, s)
    return next(iter(d.names())) if len(d.terms) == 1 and abs(d.terms[0][1]) == 1 and isinstance(d.terms[0][0], str) else ""


def _inner_iterators(tree: Tree, s: Statement) -> list[str]:
    """The iterators that the loops around a statement walk over, outermost first."""
    members, below = split_chain(tree)
    own = [n for m in members for n in s.iters if n in date_of(m, s).names()]
    if isinstance(below, Seq):
        own += _inner_iterators(next(p for p in below.parts if s.name in statements_below(p)), s)
    return own


def _moves_along(scop: Scop, s: Statement, it: str) -> bool:
    """Whether a statement writes the next element in the next iteration, and reads the next or the same ones."""
    if it not in s.iters or not s.write.is_affine:
        return False
    written = scop.tensor(s.write.tensor)
    scalar = written.role == "local" and not written.shape
    reads = [stride(a, scop.tensor(a.tensor), it) for a in s.reads()]
    return (scalar or stride(s.write, written, it) == 1) and all(x in (0, 1) for x in reads)


def _rows_outside(scop: Scop, members: Sequence[Member], below: Seq) -> int:
    """How many loops above several nests stay common to them: those outside every loop that walks along some nest's rows."""
    keep = len(members)
    for name in statements_below(below):
        s = scop.statement(name)
        it = vector_iterator(scop, s, s.iters)
        keep = next((q for q, m in enumerate(members[:keep]) if it is not None and date_of(m, s) == var(it)), keep)
    return keep


def _is_row(scop: Scop, s: Statement, it: str, target: Target) -> bool:
    """Whether a result iterator walks along rows in all accesses, and the row that is updated stays in L1 meanwhile."""
    steps = [stride(a, scop.tensor(a.tensor), it) for a in (s.write, *s.reads())]
    lo, hi = iterator_ranges(s)[it]
    known = hi - lo + 1 if lo is not None and hi is not None else 0
    return all(x in (0, 1) for x in steps) and known * scop.tensor(s.write.tensor).dtype.bytes <= target.l1 // 2


def _jammed(scop: Scop, s: Statement, outer: Sequence[Member], long: Member) -> list[Member]:
    """Loops around a long vector loop; a reduced one next to it runs four iterations inside, so that the row is read and written once for all."""
    reduced = outer[-1]
    date = date_of(reduced, s)
    it = next(iter(date.names()), "")
    if s.reduction is None or date != var(it) or it in iterators_of(s.write, s):
        return [*outer, long]
    blocks = make_member(scop, f"t{reduced.name}", {s.name: date // JAM})
    return [*outer[:-1], blocks, long, replace(reduced, mark="unroll")]


def _shared_vector(scop: Scop, members: Sequence[Member], below: Seq, target: Target, form: str) -> Tree:
    """Loops that hold several statements, with one of them a vector loop, where that one suits each statement."""
    names = statements_below(below)
    lanes = min(vector_lanes(scop, scop.statement(n), target) for n in names)
    for q in [len(members) - 1, *(range(len(members) - 1) if form != "strips" else ())]:
        m, reduced = members[q], False
        for n in names:
            s = scop.statement(n)
            it = next(iter(date_of(m, s).names()), "")
            inner = q == len(members) - 1
            suits = vector_iterator(scop, s, [it] if inner else s.iters) == it and (inner or _is_row(scop, s, it, target))
            if date_of(m, s) != var(it) or not suits:
                break
            reduced = reduced or it not in iterators_of(s.write, s)
        else:
            width = lanes * ACCUMULATORS if reduced else lanes
            return loops([*members[:q], *members[q + 1 :], replace(m, mark=f"vector:{width}")], below)
    return loops(members, below)


def vector_lanes(scop: Scop, s: Statement, target: Target) -> int:
    """Lanes for a statement: whole vectors of its widest element type."""
    widest = max([scop.tensor(a.tensor).dtype.bytes for a in (s.write, *s.reads())])
    return max(1, target.lanes(widest))


def vector_iterator(scop: Scop, s: Statement, allowed: Sequence[str]) -> str | None:
    """The iterator that moves the write, or the loads of a reduction, by one element; None where none does or the order matters."""
    ranges = iterator_ranges(s)
    results = iterators_of(s.write, s)
    best: tuple[int, str] | None = None
    for it in allowed:
        lo, hi = ranges[it]
        if lo is not None and hi is not None and hi - lo + 1 < 2:
            continue
        w = stride(s.write, scop.tensor(s.write.tensor), it)
        steps = [stride(a, scop.tensor(a.tensor), it) for a in dict.fromkeys(s.reads())]
        contiguous = sum(1 for x in steps if x == 1)
        strided = sum(1 for x in steps if x is None or x not in (0, 1))
        if it in results:
            if w is None or (w != 1 and not contiguous):
                continue
            score = 8 * contiguous - 6 * strided + (10 if w == 1 else -10)
        elif s.reduction is not None and not any(isinstance(x, Select) for x in walk(s.expr)):
            if not contiguous:
                continue
            score = 8 * contiguous - 6 * strided
        else:
            continue
        if hi is not None and lo is not None and hi - lo + 1 < 4:
            score -= 6
        if score > 0 and (best is None or score > best[0]):
            best = (score, it)
    return None if best is None else best[1]


def drop_illegal_marks(scop: Scop, reassociate: bool = True) -> Scop:
    """Unmark each vector or parallel loop whose iterations depend on each other; the label says where a vector reassociates."""
    for c in list(chains(read_tree(scop.schedule))):
        for m in c.members:
            node = band_node(scop.schedule, c, m.name) if m.mark.startswith(("vector", "parallel")) else None
            if node is None:
                continue
            ok = is_parallel(scop, node, 0) if m.mark == "parallel" else is_vectorizable(scop, node, 0, reassociate=reassociate)
            if not ok:
                scop = scop.with_schedule(rewrite_schedule(scop, _unmark(read_tree(scop.schedule), m.name, c.statements)))
            elif m.mark != "parallel":
                scop = labelled(scop, partial(find_vector_violation, scop, node, 0, False))
    return scop


def _unmark(tree: Tree, loop: str, statements: Sequence[str], mark: str = "") -> Tree:
    if isinstance(tree, Seq):
        return Seq(tuple(_unmark(p, loop, statements, mark) for p in tree.parts))
    if isinstance(tree, Loop):
        m = tree.member
        hit = m.name == loop and tuple(statements_below(tree)) == tuple(statements)
        return Loop(replace(m, mark=mark) if hit else m, _unmark(tree.body, loop, statements, mark))
    return tree


def _parallel(scop: Scop) -> Scop:
    """Mark the outermost loop of each nest parallel, where it carries nothing."""
    for c in list(chains(read_tree(scop.schedule))):
        if len(c.path) > 1 or (not c.members):
            continue
        m = c.members[0]
        if not m.mark and is_parallel(scop, band_node(scop.schedule, c, m.name), 0):
            scop = scop.with_schedule(rewrite_schedule(scop, _unmark(read_tree(scop.schedule), m.name, c.statements, "parallel")))
    return scop


