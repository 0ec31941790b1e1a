"""Triangles apart from rectangles: an update whose iterators bound each other is split into whole blocks and the rest along the diagonal.

    for i: for j <= i: for k: U          for i: for j < B·⌊i/B⌋: for k: U ;  for i: for B·⌊i/B⌋ <= j <= i: for k: U_edge

Within a block no bound of U depends on another iterator, so that register tiles are full. The two parts share the statement's expression; nothing
is computed twice and nothing is added. Assumes that updates of one reduction may run in any order; the schedule is checked as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from ..ir.affine import var
from ..ir.scop import Scop, Statement, Step
from ..isl_ext import IN, SET
from ..poly.convert import columns, to_multi_aff
from .checked import with_dependences
from .tree import Leaf, Loop, Seq, Tree, read_tree, sequence, write_tree


def couplings(s: Statement) -> list[frozenset[str]]:
    """For each constraint of the domain that bounds several iterators by each other, those iterators."""
    every = [c for part in s.domain.get_basic_sets() for c in part.get_constraints()]
    involved = [frozenset(i for q, i in enumerate(s.iters) if c.involves_dims(SET, q, 1)) for c in every]
    return [x for x in involved if len(x) > 1]


def coupled_iterators(s: Statement) -> frozenset[str]:
    """The iterators that occur in one constraint with another one."""
    return frozenset().union(*couplings(s))


def split_edges(scop: Scop, name: str, block: int) -> Scop:
    """The scop with the statement's instances outside whole blocks in a statement of their own, `<name>_edge`, right after it in each nest.

    The scop is returned as it is where no iterators are coupled, or where no block is whole.
    """
    s = scop.statement(name)
    coupled = coupled_iterators(s)
    if not coupled:
        return scop
    inner, edge = _parts(s, sorted(coupled, key=s.iters.index), block)
    if inner.is_empty() or edge.is_empty():
        return scop
    other = f"{name}_edge"
    rest = replace(s, name=other, domain=_named(edge, other, s.iters))
    whole = replace(s, domain=_named(inner, name, s.iters))
    statements = tuple(y for x in scop.statements for y in ((whole, rest) if x.name == name else (x,)))
    tree = _both(scop, read_tree(scop.schedule), name, other, whole, rest)
    meta = {**scop.meta, "blocks": {**scop.meta.get("blocks", {}), name: block}, "edges": (*scop.meta.get("edges", ()), other)}
    step = Step("split_edges", (name, block))
    made = replace(scop, statements=statements, dependences=None, history=(*scop.history, step), meta=meta)
    return with_dependences(made.with_schedule(write_tree(tree, {x.name: x.domain for x in statements})))


def _parts(s: Statement, coupled: Sequence[str], block: int) -> tuple[isl.Set, isl.Set]:
    """Whole blocks of the domain, and the rest."""
    domain = s.domain
    hull = domain.get_space()
    box = isl.Set.universe(hull)
    for i in coupled:  # what each coupled iterator ranges over, given the iterators that are coupled with none
        others = [s.iters.index(j) for j in coupled if j != i]
        free = domain
        for o in sorted(others, reverse=True):
            free = free.project_out(SET, o, 1)
        for o in sorted(others):
            free = free.insert_dims(SET, o, 1)
        box = box.intersect(free.set_tuple_name(s.name))
    dates = [var(i) // block if i in coupled else var(i) for i in s.iters]
    to_block = isl.Map.from_multi_aff(to_multi_aff(dates, hull, "block", columns(hull, s.iters)))
    partial = box.subtract(domain).apply(to_block)
    inner = domain.subtract(partial.apply(to_block.reverse())).coalesce()
    return inner, domain.subtract(inner).coalesce()


def _named(domain: isl.Set, name: str, iters: Sequence[str]) -> isl.Set:
    domain = domain.set_tuple_name(name)
    for q, i in enumerate(iters):
        domain = domain.set_dim_name(SET, q, i)
    return domain


def _both(scop: Scop, tree: Tree, name: str, other: str, whole: Statement, rest: Statement) -> Tree:
    """The tree with the second part of a statement right after the first, under the same loops."""
    if isinstance(tree, Seq):
        return sequence([_both(scop, p, name, other, whole, rest) for p in tree.parts])
    if isinstance(tree, Leaf):
        return Seq((tree, Leaf((other,)))) if name in tree.statements else tree
    m = tree.member
    parts = m.upa.get_pw_aff_list()
    dates = [parts.get_at(i) for i in range(parts.n_pw_aff())]
    own = next((d for d in dates if d.get_space().domain().get_tuple_name(SET) == name), None)
    if own is not None:
        copy = own.set_tuple_id(IN, rest.domain.get_tuple_id())
        m = replace(m, upa=m.upa.union_add(isl.UnionPwAff.from_pw_aff(copy)))
    return Loop(m, _both(scop, tree.body, name, other, whole, rest))
