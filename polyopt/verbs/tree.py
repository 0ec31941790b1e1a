"""Reading, editing and writing isl's schedule tree.

The Scop holds isl's own tree. A verb reads it into a throw-away nested form (`Loop`, `Seq`, `Leaf`), edits that, and writes a new isl tree: isl can
neither regroup the children of a sequence nor add statements to a tree. Every loop is a one-member band whose member's dim id is the loop's
name; intent is a mark right above it. A *chain* is a maximal run of loops, each the only child of the one before.
Assumes that filters separate whole statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

import islpy as isl

from ..errors import InternalError, ScheduleError
from ..ir.scop import Scop
from ..isl_ext import CTX, SET, node_type, param_space, sets_of

KIND = isl.schedule_node_type
Path = tuple[int, ...]  # which child of each sequence, from the root


@dataclass(frozen=True)
class Member:
    """One loop: its name, the date that it gives to each statement instance, and its mark ("" where there is none)."""

    name: str
    upa: isl.UnionPwAff
    mark: str = ""


@dataclass(frozen=True)
class Loop:
    """A one-member band."""

    member: Member
    body: Tree


@dataclass(frozen=True)
class Seq:
    """Parts that run one after another."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Leaf:
    """The statements that are here."""

    statements: tuple[str, ...]


Tree = Union[Loop, Seq, Leaf]


@dataclass(frozen=True)
class Chain:
    """A maximal run of loops: where it is, its members, what is below, and the statements below."""

    path: Path
    members: tuple[Member, ...]
    below: Tree
    statements: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """The loops' names, outermost first."""
        return tuple(m.name for m in self.members)

    def index(self, name: str) -> int:
        """The position of a loop in the chain."""
        return self.names().index(name)

    def member(self, name: str) -> Member:
        """The loop of that name."""
        return self.members[self.index(name)]


# ---- isl's tree to the nested form and back
def read_tree(schedule: isl.Schedule) -> Tree:
    """The nested form of a schedule."""
    root = schedule.get_root()
    return _read(root.child(0), "")


def _read(node: isl.ScheduleNode, mark: str) -> Tree:
    kind = node_type(node)
    if kind == KIND.mark:
        return _read(node.child(0), node.mark_get_id().get_name())
    if kind == KIND.band:
        mupa = node.band_get_partial_schedule()
        below = _read(node.child(0), "")
        for q in reversed(range(mupa.dim(SET))):
            named = mupa.get_space().has_dim_id(SET, q)
            name = str(mupa.get_dim_id(SET, q).get_name()) if named else f"c{node.get_schedule_depth() + q}"
            below = Loop(Member(name, mupa.get_at(q), mark if q == 0 else ""), below)
        return below
    if kind in (KIND.sequence, KIND.set):
        return sequence([_read(node.child(i), "") for i in range(node.n_children())])
    if kind == KIND.filter:
        return _read(node.child(0), "")
    if kind == KIND.leaf:
        return Leaf(tuple(s.get_tuple_name() for s in sets_of(node.get_domain())))
    raise InternalError(f"the schedule tree has a {kind} node, which no verb makes")


def sequence(parts: Sequence[Tree]) -> Tree:
    """Parts in order: empty ones dropped, nested sequences flattened."""
    flat: list[Tree] = []
    for p in parts:
        if isinstance(p, Seq):
            flat.extend(p.parts)
        elif not (isinstance(p, Leaf) and not p.statements):
            flat.append(p)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else Leaf(())


def write_tree(tree: Tree, domains: Mapping[str, isl.Set]) -> isl.Schedule:
    """The isl schedule of a nested form, over the given statement domains."""
    if isinstance(tree, Leaf):
        out = isl.UnionSet.from_set(domains[tree.statements[0]])
        for s in tree.statements[1:]:
            out = out.union(isl.UnionSet.from_set(domains[s]))
        return isl.Schedule.from_domain(out)
    if isinstance(tree, Seq):
        schedule = write_tree(tree.parts[0], domains)
        for p in tree.parts[1:]:
            schedule = schedule.sequence(write_tree(p, domains))
        return schedule
    m = tree.member
    schedule = write_tree(tree.body, domains)
    schedule = schedule.insert_partial_schedule(isl.MultiUnionPwAff.from_union_pw_aff(m.upa).set_dim_name(SET, 0, m.name))
    if m.mark:
        schedule = schedule.get_root().child(0).insert_mark(isl.Id(m.mark, context=CTX)).get_schedule()
    return schedule


def rewrite_schedule(scop: Scop, tree: Tree) -> isl.Schedule:
    """The isl schedule of an edited tree over the scop's own statements."""
    return write_tree(tree, {s.name: s.domain for s in scop.statements})


# ---- the nested form
def loops(members: Sequence[Member], below: Tree) -> Tree:
    """Loops, outermost first, around a tree."""
    for m in reversed(members):
        below = Loop(m, below)
    return below


def statements_below(tree: Tree) -> tuple[str, ...]:
    """The names of the statements in a tree, in textual order."""
    if isinstance(tree, Leaf):
        return tree.statements
    if isinstance(tree, Seq):
        return tuple(s for p in tree.parts for s in statements_below(p))
    return statements_below(tree.body)


def only_statements(tree: Tree, scop: Scop, keep: Sequence[str]) -> Tree:
    """The tree of some of its statements (an empty leaf where it has none of them)."""
    if isinstance(tree, Seq):
        return sequence([only_statements(p, scop, keep) for p in tree.parts])
    if isinstance(tree, Leaf):
        return Leaf(tuple(s for s in tree.statements if s in keep))
    body = only_statements(tree.body, scop, keep)
    left = statements_below(body)
    return Loop(own_dates(tree.member, scop, left), body) if left else Leaf(())


def split_chain(tree: Tree) -> tuple[list[Member], Tree]:
    """The loops at the top of a tree and what is below them."""
    members = []
    while isinstance(tree, Loop):
        members.append(tree.member)
        tree = tree.body
    return members, tree


def chains(tree: Tree, path: Path = ()) -> Iterator[Chain]:
    """All chains (also empty ones, where a sequence or statement has no loop of its own), outermost first, in textual order."""
    members, below = split_chain(tree)
    yield Chain(path, tuple(members), below, statements_below(below))
    if isinstance(below, Seq):
        for i, p in enumerate(below.parts):
            yield from chains(p, (*path, i))


def edit(tree: Tree, path: Path, fn: Callable[[Tree], Tree]) -> Tree:
    """The tree with the subtree at `path` replaced by `fn` of it."""
    if not path:
        return fn(tree)
    members, below = split_chain(tree)
    assert isinstance(below, Seq)
    parts = list(below.parts)
    parts[path[0]] = edit(parts[path[0]], path[1:], fn)
    return loops(members, sequence(parts))


def with_members(scop: Scop, chain: Chain, members: Sequence[Member]) -> isl.Schedule:
    """The schedule with a chain's loops replaced."""
    return rewrite_schedule(scop, edit(read_tree(scop.schedule), chain.path, lambda _: loops(members, chain.below)))


def own_dates(m: Member, scop: Scop, statements: Sequence[str]) -> Member:
    """A loop for some of its statements."""
    own = isl.UnionSet.empty(param_space(scop.params))
    for s in statements:
        own = own.union(isl.UnionSet.from_set(isl.Set.universe(scop.statement(s).domain.get_space())))
    return replace(m, upa=m.upa.intersect_domain(own))


def find_chain(scop: Scop, verb: str, names: Sequence[str], of: str | None = None) -> Chain:
    """The one chain that has all the named loops; `of` (a statement) picks where there are several. Raises ScheduleError."""
    if not names:
        raise ScheduleError(f"{verb}: name at least one loop")
    every = list(chains(read_tree(scop.schedule)))
    known = {n for c in every for n in c.names()}
    for n in names:
        if not isinstance(n, str) or n not in known:
            raise ScheduleError(f"{verb}: there is no loop {n!r}; the loops are {', '.join(sorted(known)) or 'none'}")
    if len(set(names)) != len(names):
        raise ScheduleError(f"{verb}: a loop is named twice in {', '.join(names)}")
    check_statements(scop, verb, [of] if of is not None else [])
    hits = [c for c in every if set(names) <= set(c.names()) and (of is None or of in c.statements)]
    if len(hits) == 1:
        return hits[0]
    if hits:
        where = "; ".join(", ".join(c.statements) for c in hits)
        raise ScheduleError(f"{verb}: several nests have the loops {', '.join(names)} (of {where}); say which with of={hits[0].statements[0]!r}")
    inner = next((c for c in reversed(every) if set(names) & set(c.names()) and c.path), None)
    hint = f"; distribute({inner.names()[0]!r}) makes its nest perfect" if inner is not None else ""
    raise ScheduleError(f"{verb}: the loops {', '.join(names)} are not nested perfectly (statements stand between them){hint}")


def band_node(schedule: isl.Schedule, chain: Chain, loop: str) -> isl.ScheduleNode:
    """isl's band node of a loop of a chain."""
    below = set(chain.statements)
    node = _at_path(schedule.get_root().child(0), chain.path)
    while node is not None and node_type(node) in (KIND.band, KIND.mark):
        if node_type(node) == KIND.band and _is_band_of(node, loop, below):
            return node
        node = node.child(0)

    def visit(node: isl.ScheduleNode) -> isl.ScheduleNode | None:
        if node_type(node) == KIND.band and _is_band_of(node, loop, below):
            return node
        for i in range(node.n_children()):
            found = visit(node.child(i))
            if found is not None:
                return found
        return None

    node = visit(schedule.get_root())  # sequences within sequences have no path of their own
    if node is None:
        raise InternalError(f"the schedule has no band {loop} over {', '.join(chain.statements)}")
    return node


def _is_band_of(node: isl.ScheduleNode, loop: str, below: set[str]) -> bool:
    """Whether a band is the loop of that name around these statements."""
    mupa = node.band_get_partial_schedule()
    if not mupa.get_space().has_dim_id(SET, 0) or mupa.get_dim_id(SET, 0).get_name() != loop:
        return False
    return {s.get_tuple_name() for s in sets_of(node.get_domain())} == below


def _at_path(node: isl.ScheduleNode, path: Path) -> isl.ScheduleNode | None:
    """The first node of the subtree at a path, where the sequences of the tree are those of the path."""
    for step in path:
        while node_type(node) in (KIND.band, KIND.mark, KIND.filter):
            node = node.child(0)
        if node_type(node) not in (KIND.sequence, KIND.set) or step >= node.n_children():
            return None
        node = node.child(step)
    return node.child(0) if node_type(node) == KIND.filter else node


def check_statements(scop: Scop, verb: str, names: Sequence[str]) -> None:
    """Raises ScheduleError where a statement is not known."""
    known = [s.name for s in scop.statements]
    for n in names:
        if n not in known:
            raise ScheduleError(f"{verb}: there is no statement {n!r}; the statements are {', '.join(known)}")


def members_above(scop: Scop, chain: Chain, count: int) -> list[Member]:
    """All loops from the root down to and including the first `count` of a chain."""
    out: list[Member] = []
    for c in chains(read_tree(scop.schedule)):
        if len(c.path) < len(chain.path) and chain.path[: len(c.path)] == c.path:
            out += c.members
    return [*out, *chain.members[:count]]


def is_taken(scop: Scop, name: str, statements: Sequence[str]) -> bool:
    """Whether a loop around some of these statements has that name."""
    return any(name in c.names() for c in chains(read_tree(scop.schedule)) if set(statements) & set(c.statements))


def fresh_name(scop: Scop, base: str, statements: Sequence[str]) -> str:
    """A loop name that no loop around these statements has yet: ti, t2i, t3i, …"""
    name, k = f"t{base}", 2
    while is_taken(scop, name, statements):
        name, k = f"t{k}{base}", k + 1
    return name
