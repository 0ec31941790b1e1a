"""A scop in parts that are scheduled one by one: cut it where statements do not depend on each other in a cycle, put the parts together again.

    for i: for j: { S; for k: U; for k: V }          for i: for j: { S; for k: U }     for i: for j: for k: V        (two parts)

Takes a scop with dependences; gives sub-scops that hold some of its statements each, in an order that respects all dependences, and the whole scop
of their schedules. A part keeps all tensors, so that buffers get names of their own over all parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from ..ir.scop import Dependences, Scop, Statement, Step
from ..isl_ext import IN, OUT, maps_of, param_space
from ..poly.strides import iterators_of, match_iterators
from .checked import checked, with_dependences
from .tree import Seq, only_statements, read_tree, rewrite_schedule, sequence, statements_below, write_tree


def is_compute_bound(s: Statement) -> bool:
    """Whether a statement does more operations than it touches cells: an update in which each operand lacks some iterator (a contraction)."""
    if s.reduction is None or not s.write.is_affine or not all(a.is_affine for a in s.reads()):
        return False
    loads = [a for a in s.reads() if a.indices]
    used = [set(iterators_of(a, s)) for a in (s.write, *loads)]
    return len(loads) > 1 and len(s.iters) > 2 and all(u < set(s.iters) for u in used)


def cut(scop: Scop) -> list[list[str]]:
    """The statements in groups, in an order that respects the dependences: each compute-bound statement with what initialises and ends its result.

    Nests without a compute-bound statement stay together.
    """
    scop = with_dependences(scop)
    tree = read_tree(scop.schedule)
    groups: list[list[str]] = []
    light: list[str] = []
    for part in tree.parts if isinstance(tree, Seq) else (tree,):
        names = statements_below(part)
        if not any(is_compute_bound(scop.statement(n)) for n in names):
            light += names
            continue
        for component in components(scop, names):
            heavy = len(component) == 1 and is_compute_bound(scop.statement(component[0])) and component[0] not in scop.meta.get("edges", ())
            if not heavy:
                light += component
                continue
            split_up = component[0] in scop.meta.get("blocks", {})  # its result has another part: nothing may be fused to this one
            lead = [] if split_up else _companions_at_the_end(scop, light, component[0])
            rest = light[: len(light) - len(lead)]
            groups += [rest] if rest else []
            groups.append([*lead, *component])
            light = []
    groups += [light] if light else []
    return _with_epilogues(scop, groups)


def _is_companion(scop: Scop, name: str, update: Statement) -> bool:
    """Whether a statement touches the update's result cell by cell."""
    s = scop.statement(name)
    touching = [a for a in (s.write, *s.reads()) if a.tensor == update.write.tensor]
    if s.write.tensor != update.write.tensor or any(a != touching[0] for a in touching) or is_compute_bound(s):
        return False
    names = match_iterators(s.write, s.iters, update.write, update.iters)
    return names is not None and set(names) >= set(s.iters)


def _companions_at_the_end(scop: Scop, light: Sequence[str], update: str) -> list[str]:
    out: list[str] = []
    for n in reversed(light):
        if not _is_companion(scop, n, scop.statement(update)):
            break
        out.insert(0, n)
    return out


def _with_epilogues(scop: Scop, groups: list[list[str]]) -> list[list[str]]:
    """What ends the result of an update, at the start of the next group, moves to the update's group."""
    out: list[list[str]] = []
    for g in groups:
        before = out[-1][-1] if out else ""
        if before and before not in scop.meta.get("blocks", {}) and is_compute_bound(scop.statement(before)):
            update = scop.statement(before)
            while g and _is_companion(scop, g[0], update) and not any(is_compute_bound(scop.statement(n)) for n in g):
                out[-1].append(g[0])
                g = g[1:]
        out += [g] if g else []
    return out


def is_alone(scop: Scop, name: str) -> bool:
    """Whether a statement is in no cycle of dependences with others of its nest, so that it may be a part of its own."""
    tree = read_tree(scop.schedule)
    nests = [statements_below(p) for p in (tree.parts if isinstance(tree, Seq) else (tree,))]
    return [name] in components(scop, next(n for n in nests if name in n))


def components(scop: Scop, names: Sequence[str]) -> list[list[str]]:
    """The strongly connected components of the dependences among some statements, in topological order, textual where that is free."""
    assert scop.dependences is not None
    after: dict[str, set[str]] = {n: set() for n in names}
    for m in maps_of(scop.dependences.all()):
        a, b = str(m.get_tuple_name(IN)), str(m.get_tuple_name(OUT))
        if a != b and a in after and b in after and not m.is_empty():
            after[a].add(b)
    reach = {n: _reachable(after, n) for n in names}
    left, out = list(names), []
    while left:
        free = next(n for n in left if all(n in reach[p] and p in reach[n] for p in left if n in reach[p] and p != n))
        component = [n for n in left if n == free or (n in reach[free] and free in reach[n])]
        out.append(component)
        left = [n for n in left if n not in component]
    return out


def _reachable(after: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for n in after[todo.pop()] - seen:
            seen.add(n)
            todo.append(n)
    return seen


def distribute_groups(scop: Scop, groups: Sequence[Sequence[str]]) -> Scop:
    """The scop with a nest of its own for each group. Raises IllegalSchedule where a dependence would go back."""
    tree = read_tree(scop.schedule)
    parts = sequence([only_statements(tree, scop, g) for g in groups])
    return checked(scop, rewrite_schedule(scop, parts), Step("distribute_groups", tuple(",".join(g) for g in groups)), marks=False)


def split(scop: Scop, groups: Sequence[Sequence[str]]) -> list[Scop]:
    """A sub-scop for each group."""
    deps = scop.dependences
    assert deps is not None
    tree = read_tree(scop.schedule)
    out = []
    for g in groups:
        statements = tuple(s for s in scop.statements if s.name in g)
        inside = isl.UnionSet.empty(param_space(scop.params))
        for s in statements:
            inside = inside.union(isl.UnionSet.from_set(s.domain))
        flow, anti, output, reduction = (
            u.intersect_domain(inside).intersect_range(inside) for u in (deps.flow, deps.anti, deps.output, deps.reduction)
        )
        own = Dependences(flow, anti, output, reduction, deps.exact)
        sub = replace(scop, statements=statements, dependences=own)
        out.append(sub.with_schedule(rewrite_schedule(sub, only_statements(tree, scop, g))))
    return out


def join(scop: Scop, parts: Sequence[Scop]) -> Scop:
    """The whole scop under the schedules of its parts, run one after another."""
    statements = tuple(s for p in parts for s in p.statements)
    tensors = {t.name: t for p in parts for t in p.tensors}
    tree = sequence([read_tree(p.schedule) for p in parts])
    schedule = write_tree(tree, {s.name: s.domain for s in statements})
    meta = dict(scop.meta)
    for key, empty in (("buffers", {}), ("promotions", ()), ("prefetch", ())):
        known = [p.meta[key] for p in parts if key in p.meta]
        if known:
            meta[key] = {k: v for m in known for k, v in m.items()} if empty == {} else tuple(dict.fromkeys(x for m in known for x in m))
    labels = [p.label.removeprefix("reassociates ") for p in parts if p.label != "bit-identical"]
    steps = tuple(s for p in parts for s in p.history[len(scop.history) :])
    order = [t.name for t in scop.tensors]
    ranked = sorted(tensors.values(), key=lambda t: order.index(t.name) if t.name in order else len(order))
    return replace(
        scop, statements=statements, tensors=tuple(ranked), schedule=schedule, meta=meta, dependences=None, history=scop.history + steps,
        label=f"reassociates {', '.join(dict.fromkeys(labels))}" if labels else scop.label,
    )  # fmt: skip
