"""Index-set splitting: an innermost loop apart where one iteration of it writes what all others read.

    for j: x[i, j] = f(x[i, j], x[i, k], x[k, j])          ->          for j < k: … ; j = k: … ; for j > k: …

The loops before and after that iteration carry nothing and run as vectors; the order stays as it was. (Griebl, Feautrier and Lengauer 2000, Index set
splitting.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from ..ir.affine import Affine, affine, var
from ..ir.scop import Scop, Statement, Step
from ..isl_ext import SET
from ..poly.convert import columns, to_aff
from .promote import date_of, make_member
from .tree import Leaf, Seq, Tree, loops, read_tree, sequence, split_chain, write_tree

PARTS = ("before", "at", "after")


def split_points(scop: Scop) -> Scop:
    """The scop with such loops split in each nest of one statement; the scop itself where there are none."""
    tree = read_tree(scop.schedule)
    statements = list(scop.statements)
    made: list[tuple[str, str]] = []
    parts: list[tuple[Tree, list[Statement] | None]] = []
    for part in tree.parts if isinstance(tree, Seq) else (tree,):
        members, below = split_chain(part)
        new = None
        if members and isinstance(below, Leaf) and len(below.statements) == 1:
            s = scop.statement(below.statements[0])
            point = _point(s, members[-1].name) if date_of(members[-1], s) == var(members[-1].name) else None
            if point is not None:
                new = _split(s, members[-1].name, point)
            if new is not None and len(new) < 2:
                new = None
            if new is not None:
                statements = [y for x in statements for y in (new if x is s else [x])]
                made.append((s.name, str(point)))
        parts.append((part, new))
    if not made:
        return scop
    out = replace(scop, statements=tuple(statements), dependences=None, history=(*scop.history, Step("split_points", (), tuple(made))))
    whole = sequence([part if new is None else _nest(scop, out, part, new) for part, new in parts])
    return out.with_schedule(write_tree(whole, {x.name: x.domain for x in out.statements}))


def _point(s: Statement, j: str) -> Affine | None:
    """The iteration of a loop whose cell the other iterations read; None where there is none, or more than one."""
    if not s.write.is_affine or j not in s.iters:
        return None
    found: dict[Affine, None] = {}
    for a in s.reads():
        if a.tensor != s.write.tensor or not a.is_affine or a == s.write:
            continue
        for w, r in zip(s.write.affine_indices(), a.affine_indices(), strict=True):
            if w.is_linear_in(j) and w.coefficient(j) == 1 and j not in r.names():
                found[r - (w - var(j))] = None
    points = [p for p in found if p.names() and p.names() <= set(s.iters)]
    return points[0] if len(points) == 1 == len(found) else None


def _split(s: Statement, j: str, point: Affine) -> list[Statement]:
    """The statement's instances before, at and after a point of a loop; parts without any are left out."""
    space = s.domain.get_space()
    cols = columns(space, s.iters)
    at, own = to_aff(point, space, cols), to_aff(affine(var(j)), space, cols)
    sets: Sequence[isl.Set] = (own.lt_set(at), own.eq_set(at), own.gt_set(at))
    out = []
    for word, part in zip(PARTS, sets, strict=True):
        domain = s.domain.intersect(part)
        if not domain.is_empty():
            domain = domain.set_tuple_name(f"{s.name}_{word}")
            for q, it in enumerate(s.iters):
                domain = domain.set_dim_name(SET, q, it)
            out.append(replace(s, name=f"{s.name}_{word}", domain=domain))
    return out


def _nest(old: Scop, new: Scop, part: Tree, made: Sequence[Statement]) -> Tree:
    members, below = split_chain(part)
    assert isinstance(below, Leaf)
    s = old.statement(below.statements[0])
    dates = [date_of(m, s) for m in members]
    outer = [make_member(new, m.name, {x.name: d for x in made}, m.mark) for m, d in zip(members[:-1], dates, strict=False)]
    inner = [loops([make_member(new, members[-1].name, {x.name: dates[-1]})], Leaf((x.name,))) for x in made]
    return loops(outer, sequence(inner))
