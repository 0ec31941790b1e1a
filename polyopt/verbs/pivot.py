"""Row-oriented order of nests that compute each element by a dot product with a column (LU, triangular solves, dynamic programs):

    for j: { for k < j: U(j, k) ; T(j) }          for k: { T(k) ; for j > k: U(j, k) }

Takes one nest of a scop; gives the nest with the reduced loop outside the loop along the row, or None where it has another form. What stood after
the sum of an element runs in the iteration of k that comes right after its last update; what stood before it runs in a loop of its own, or there too.
Nothing is checked here. (Golub and Van Loan, Matrix computations, 3.2: the ikj forms.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.affine import var
from ..ir.scop import Scop, Statement
from ..isl_ext import SET
from .promote import date_of, make_member
from .tree import Leaf, Loop, Member, Seq, Tree, loops, sequence, split_chain


@dataclass(frozen=True)
class Dot:
    """A loop j over statements and one loop k around an update: what stands before that loop and after it."""

    j: Member
    k: Member
    update: Statement
    before: tuple[str, ...]
    after: tuple[str, ...]


def row_oriented(scop: Scop, tree: Tree, is_row: Callable[[Statement, str, str], bool], late: bool) -> Tree | None:
    """The nest with the reduced loops outside; `late`: what stands before a sum runs as late as what stands after it. `is_row(U, j, k)` says
    whether j walks along rows where k does not."""
    members, below = split_chain(tree)
    if isinstance(below, Leaf):
        return None
    dot = _find(scop, members, below, is_row)
    if dot is not None:
        return loops(members[:-1], _turned(scop, dot, late))
    assert isinstance(below, Seq)
    parts = [row_oriented(scop, p, is_row, late) for p in below.parts]
    if all(p is None for p in parts):
        return None
    return loops(members, sequence([p if q is None else q for p, q in zip(below.parts, parts, strict=True)]))


def _find(scop: Scop, members: Sequence[Member], below: Tree, is_row: Callable[[Statement, str, str], bool]) -> Dot | None:
    if not members or not isinstance(below, Seq):
        return None
    inner = [p for p in below.parts if isinstance(p, Loop)]
    if len(inner) != 1 or not isinstance(inner[0].body, Leaf) or len(inner[0].body.statements) != 1:
        return None
    at = below.parts.index(inner[0])
    around = [p.statements for p in below.parts if isinstance(p, Leaf)]
    if len(around) != len(below.parts) - 1 or any(len(x) != 1 for x in around):
        return None
    u = scop.statement(inner[0].body.statements[0])
    j, k = members[-1], inner[0].member
    names = [date_of(m, u) for m in (j, k)]
    if any(d != var(n) for d, n in zip(names, (j.name, k.name), strict=True)) or not is_row(u, j.name, k.name):
        return None
    return Dot(j, k, u, tuple(x[0] for x in around[:at]), tuple(x[0] for x in around[at:]))


def _turned(scop: Scop, dot: Dot, late: bool) -> Tree:
    own = {s: date_of(dot.j, scop.statement(s)) for s in (*dot.before, *dot.after)}
    rows: dict[str, Tree] = {s: Loop(make_member(scop, dot.j.name, {s: own[s]}), Leaf((s,))) for s in own}
    update = Loop(make_member(scop, dot.j.name, {dot.update.name: var(dot.j.name)}), Leaf((dot.update.name,)))
    last = _after_last(dot)
    slot = (*(dot.before if late else ()), *dot.after) if last is not None else ()
    first = [rows[s] for s in dot.before if s not in slot]
    then = [rows[s] for s in dot.after if s not in slot]
    dates = {dot.update.name: var(dot.k.name), **{s: own[s] + (last or 0) for s in slot}}
    middle = Loop(make_member(scop, dot.k.name, dates), sequence([*(Leaf((s,)) for s in slot), update]))
    return sequence([*first, middle, *then])


def _after_last(dot: Dot) -> int | None:
    """c where the last iteration of k is j + c - 1 for each j; None where it does not move with j."""
    u = dot.update
    parts = u.domain.get_basic_sets()
    if len(parts) != 1:
        return None
    j, k = u.iters.index(dot.j.name), u.iters.index(dot.k.name)
    for c in parts[0].get_constraints():
        others = [q for q in range(len(u.iters)) if q not in (j, k) and c.involves_dims(SET, q, 1)]
        if others or c.is_equality():
            continue
        if int(c.get_coefficient_val(SET, k).to_python()) == -1 and int(c.get_coefficient_val(SET, j).to_python()) == 1:
            return int(c.get_constant_val().to_python()) + 1
    return None
