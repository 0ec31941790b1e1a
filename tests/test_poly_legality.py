"""Legality: random orders judged against the trace of the execution; every witness is replayed."""

from __future__ import annotations

import random
from collections.abc import Mapping

import islpy as isl
import pytest
from poly_programs import PROGRAMS, band, brute_force, build, dates_of, pairs_of

from polyopt.errors import IllegalSchedule
from polyopt.ir.scop import Scop, Violation
from polyopt.isl_ext import CTX
from polyopt.poly.deps import compute_dependences
from polyopt.poly.legality import (
    check_parallel,
    check_schedule,
    check_vectorizable,
    coincident,
    is_legal,
    is_parallel,
    is_permutable,
    is_vectorizable,
    member_schedule,
    vector_order,
)

BAND = isl.schedule_node_type.band
LARGER = {"seidel": {"T": 4, "N": 7}, "heat_mod": {"T": 6, "N": 8}, "jacobi": {"T": 4, "N": 8}, "blocked": {"N": 13}}


def bands(scop: Scop) -> list[isl.ScheduleNode]:
    """All band nodes."""
    found: list[isl.ScheduleNode] = []

    def visit(node: isl.ScheduleNode) -> None:
        if node.get_type() == BAND:
            found.append(node)
        for i in range(node.n_children() if node.has_children() else 0):
            visit(node.child(i))

    visit(scop.schedule.get_root())
    return found


def random_band(rng: random.Random, node: isl.ScheduleNode) -> isl.Schedule:
    """The schedule with one band's members permuted, skewed, reversed or tiled."""
    old = node.band_get_partial_schedule()
    n = node.band_n_member()
    upas = [old.get_at(i) for i in range(n)]
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice(("permute", "skew", "reverse", "tile"))
        i, j = rng.randrange(n), rng.randrange(n)
        if kind == "permute":
            rng.shuffle(upas)
        elif kind == "skew" and i != j:
            upas[i] = upas[i].add(upas[j].scale_val(isl.Val.int_from_si(CTX, rng.choice((1, 1, 2, -1)))))
        elif kind == "reverse":
            upas[i] = upas[i].neg()
        elif kind == "tile":
            size = isl.Val.int_from_si(CTX, rng.choice((2, 3)))
            tiles = [u.scale_down_val(size).floor() for u in upas[:2]]
            upas = tiles + upas
            n = len(upas)
    space = old.get_space().params().add_unnamed_tuple_ui(len(upas))
    parts = isl.UnionPwAffList.alloc(CTX, len(upas))
    for u in upas:
        parts = parts.add(u)
    return node.delete().insert_partial_schedule(isl.MultiUnionPwAff.from_union_pw_aff_list(space, parts)).get_schedule()


def replay(scop: Scop, new: isl.UnionMap, v: Violation, kinds: tuple[str, ...]) -> None:
    """The witness is a dependence, in order before and not in order after."""
    deps = brute_force(scop, v.params)
    assert any((v.source, v.sink) in deps[k] for k in kinds), v
    before = dates_of(scop.schedule.get_map().intersect_domain(scop.domain()), v.params)
    assert (before[v.source], before[v.sink]) == v.before and v.before[0] < v.before[1]
    after = dates_of(new.intersect_domain(scop.domain()), v.params)
    assert (after[v.source], after[v.sink]) == v.after and v.after[0] >= v.after[1]
    assert v.cell is not None


def in_order(deps: dict, new: isl.UnionMap, scop: Scop, params: Mapping[str, int], kinds: tuple[str, ...]) -> bool:
    after = dates_of(new.intersect_domain(scop.domain()), params)
    return all(after[a] < after[b] for k in kinds for a, b in deps[k])


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_orders(name: str) -> None:
    rng = random.Random(f"{name} 1")
    make, params = PROGRAMS[name]
    params = LARGER.get(name, params)
    scop = compute_dependences(make())
    deps = brute_force(scop, params)
    verdicts = set()
    for round in range(60 if name != "conv" else 6):
        reassociate = bool(round % 2)
        kinds = ("flow", "anti", "output") + (() if reassociate else ("reduction",))
        new = random_band(rng, rng.choice(bands(scop)))
        try:
            check_schedule(scop, new, "step()", reassociate=reassociate)
            legal = True
        except IllegalSchedule as e:
            legal = False
            assert "step() breaks a" in str(e)
            replay(scop, new.get_map(), e.violation, (e.violation.kind,))
        verdicts.add(legal)
        assert legal == is_legal(scop, new, reassociate=reassociate)
        # an illegal order may need larger sizes than these to show; its witness was replayed above
        assert not legal or in_order(deps, new.get_map(), scop, params, kinds)
    assert verdicts == {True, False} or name in ("gather", "scatter", "conv")


@pytest.mark.parametrize("name", PROGRAMS)
def test_bands(name: str) -> None:
    make, params = PROGRAMS[name]
    scop = compute_dependences(make())
    deps = brute_force(scop, params)
    for node in bands(scop):
        prefix = dates_of(node.get_prefix_schedule_union_map().intersect_domain(node.get_domain()), params)
        members = [dict(pairs_of_member(node, m, params)) for m in range(node.band_n_member())]
        active = [(k, a, b) for k, v in deps.items() for a, b in v if a in prefix and b in prefix and prefix[a] == prefix[b]]
        whole = coincident(scop, node)
        for m in range(len(members)):
            carried = [(k, a, b) for k, a, b in active if all(members[q][a] == members[q][b] for q in range(m)) and members[m][a] != members[m][b]]
            assert is_parallel(scop, node, m) == (not carried), (node, m, carried[:3])
            assert is_parallel(scop, node, m, reassociate=True) == (not [c for c in carried if c[0] != "reduction"])
            assert whole[m] == all(members[m][a] == members[m][b] for _, a, b in active)
            if carried:
                with pytest.raises(IllegalSchedule, match=r"parallelize\(\) breaks"):
                    check_parallel(scop, node, m, "parallelize()")
            assert is_vectorizable(scop, node, m) == vector_legal(scop, node, m, deps, params), (node, m)
        assert is_permutable(scop, node) == all(x[a] <= x[b] for x in members for _, a, b in active)


def pairs_of_member(node: isl.ScheduleNode, m: int, params: Mapping[str, int]) -> list:
    order = isl.UnionMap.from_multi_union_pw_aff(member_schedule(node, m)).intersect_domain(node.get_domain())
    return [(a, b[1]) for a, b in pairs_of(order, params)]


def vector_legal(scop: Scop, node: isl.ScheduleNode, m: int, deps: dict, params: Mapping[str, int]) -> bool:
    """Each date runs all its lanes at once, reading before writing."""
    outer, full = (dates_of(u.intersect_domain(node.get_domain()), params) for u in vector_order(node, m))
    prefix = dates_of(node.get_prefix_schedule_union_map().intersect_domain(node.get_domain()), params)
    for kind, pairs in deps.items():
        for a, b in pairs:
            if a in outer and b in outer and prefix[a] == prefix[b]:
                dates = full if kind == "anti" and a[0] == b[0] else outer
                if dates[a] >= dates[b]:
                    return False
    return True


def test_vector_rules() -> None:
    far = compute_dependences(build("far", {"A": "N"}, [("S[i]: 8<=i<N", "A[i]=A[i-8]")], f'{{schedule: "{band("S[i]->[i]")}"}}', "N", "N>16"))
    node = bands(far)[0]
    assert not is_vectorizable(far, node) and is_vectorizable(far, node, lanes=8) and not is_vectorizable(far, node, lanes=16)
    left = compute_dependences(build("left", {"A": "N+1"}, [("S[i]: 0<=i<N", "A[i]=A[i+1]")], f'{{schedule: "{band("S[i]->[i]")}"}}', "N", "N>16"))
    assert is_vectorizable(left, bands(left)[0]) and not is_parallel(left, bands(left)[0])
    with pytest.raises(IllegalSchedule, match="vectorize") as e:
        check_vectorizable(far, node, 0, "vectorize('i', 16)", lanes=16)
    assert e.value.violation.cell is not None and e.value.violation.cell[0] == "A"
    # two statements in one body: S of all lanes runs before T of any
    for shift, ok in ((0, True), (1, False), (-1, True)):
        two = compute_dependences(
            build(
                "two",
                {"A": "N+2", "B": "N+2"},
                [("S[i]: 1<=i<N", "A[i]=1.0"), ("T[i]: 1<=i<N", f"B[i]=A[i+({shift})]")],
                f"""{{schedule: "{band("S[i]->[i];T[i]->[i]")}", child: {{sequence: [{{filter: "{{S[i]}}"}}, {{filter: "{{T[i]}}"}}]}}}}""",
                "N",
                "N>16",
            )
        )
        assert is_vectorizable(two, bands(two)[0]) is ok, shift
