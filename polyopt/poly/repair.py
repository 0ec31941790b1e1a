"""Repairs: what would make a refused step legal, where that can be computed.

Takes a Scop and the pairs that a step breaks; gives a sentence, or None. The least skew makes the loops around the broken pairs
permutable, so that they can be tiled and interchanged; for a loop that carries a dependence, the loops that do not are named.
(Wolf and Lam 1991, A loop transformation theory and an algorithm to maximize parallelism.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import islpy as isl

from ..ir.scop import Scop
from ..isl_ext import CTX, IN, OUT, SET, node_type, sets_of

LARGEST_FACTOR = 4  # sum of the factors of one loop
KIND = isl.schedule_node_type
NamedLoop = tuple[str, isl.UnionPwAff]


def band_members(node: isl.ScheduleNode) -> Iterator[tuple[isl.ScheduleNode, int, str]]:
    """All band members below a node in tree order: band node, member, name."""
    if node_type(node) == KIND.band:
        for m in range(node.band_n_member()):
            yield node, m, member_name(node, m)
    if node.has_children():
        for i in range(node.n_children()):
            yield from band_members(node.child(i))


def member_name(band: isl.ScheduleNode, member: int) -> str:
    """The name of a band member: its dim id, or c and its depth where it has none."""
    space = band.band_get_space()
    if space.has_dim_id(SET, member):
        return str(space.get_dim_id(SET, member).get_name())
    return f"c{band.get_schedule_depth() + member}"


def shared_loops(schedule: isl.Schedule, *statements: str) -> list[NamedLoop]:
    """The loops around all of some statements, outermost first."""
    out: list[NamedLoop] = []
    for node, m, name in band_members(schedule.get_root()):
        inside = {s.get_tuple_name() for s in sets_of(node.get_domain())}
        if inside.issuperset(statements):
            out.append((name, node.band_get_partial_schedule().get_at(m)))
    return out


def single(upa: isl.UnionPwAff) -> isl.MultiUnionPwAff:
    """A one-dimensional schedule."""
    return isl.MultiUnionPwAff.from_union_pw_aff(upa)


def combine(inner: isl.UnionPwAff, outer: Sequence[NamedLoop], factors: Sequence[int]) -> isl.UnionPwAff:
    """inner + the sum of factor · outer loop."""
    for f, (_, upa) in zip(factors, outer, strict=True):
        if f:
            inner = inner.add(upa.scale_val(isl.Val.int_from_si(CTX, f)))
    return inner


def least_factors(deps: isl.UnionMap, inner: isl.UnionPwAff, outer: Sequence[NamedLoop]) -> tuple[int, ...] | None:
    """The factors of least sum such that no dependence has a negative distance in inner + Σ factor · outer; None where none are small."""
    tries = (f for f in product(range(LARGEST_FACTOR + 1), repeat=len(outer)) if sum(f) <= LARGEST_FACTOR)
    for factors in sorted(tries, key=lambda f: (sum(f), max(f, default=0), f)):
        if deps.lex_gt_at_multi_union_pw_aff(single(combine(inner, outer, factors))).is_empty():
            return factors
    return None


def least_skews(deps: isl.UnionMap, loops: Sequence[NamedLoop]) -> list[tuple[str, str, int]] | None:
    """The skews (loop, by, factor), in order, after which no dependence has a negative distance in any loop; None where none are found.

    `deps` are those active at the outermost of the loops.
    """
    out: list[tuple[str, str, int]] = []
    done: list[NamedLoop] = []
    for name, upa in loops:
        factors = least_factors(deps, upa, done)
        if factors is None:
            return None
        out += [(name, by, f) for f, (by, _) in zip(factors, done, strict=True) if f]
        done.append((name, combine(upa, done, factors)))
    return out


def suggest_skew(scop: Scop, bad: isl.Map) -> str | None:
    """The least skews, where every broken pair runs backwards in a loop around both statements."""
    loops = shared_loops(scop.schedule, bad.get_tuple_name(IN), bad.get_tuple_name(OUT))
    pairs = bad.to_union_map()
    backwards = [name for name, upa in loops if pairs.is_subset(pairs.lex_gt_at_multi_union_pw_aff(single(upa)))]
    if not backwards or scop.dependences is None:
        return None
    skews = least_skews(scop.dependences.all(), loops)
    if not skews or not {name for name, _, _ in skews} & set(backwards):
        return None
    return " then ".join(f'skew("{name}", by="{by}", factor={f})' for name, by, f in skews) + " first"


def suggest_loops(scop: Scop, verb: str, refused: str, is_free: Callable[[isl.ScheduleNode, int], bool]) -> str | None:
    """The other loops for which a question such as `is_parallel` is answered yes."""
    free = [name for node, m, name in band_members(scop.schedule.get_root()) if name != refused and is_free(node, m)]
    if not free:
        return None
    names = list(dict.fromkeys(free))
    return f"{' or '.join(names[:4])} can be {verb}"
