"""The enumeration that all pictures rest on: against isl's own, on sets with floors, holes, unions and existential variables."""

from __future__ import annotations

import random
import time

import islpy as isl
import numpy as np
import pytest
from poly_programs import PROGRAMS, dates_of, pairs_of

from polyopt.errors import UserError
from polyopt.isl_ext import SET, read_map, read_set
from polyopt.poly.deps import compute_dependences
from polyopt.viz.points import choose_params, instances, map_pairs, pairs_between, ranks, set_points

SETS = [
    "{ [i,j] : 0<=i<10 and 2j>=i and 3j<=20-i and (i+j)%3=1 }",
    "{ [i,j] : 0<=i<10 and exists k: i=2k+3j and 0<=k<5 and 0<=j<4 }",
    "{ [i,o] : 0<=i<30 and o = floor(i/4) + floor((i+3)/7) }",
    "{ [i,j,a,b]: 0<=i,j<6 and a=i+1 and b=j-1 and 0<=a<6 and 0<=b<6 }",
    "{ [i]: (0<=i<5) or (3<=i<9 and i%2=0) }",
    "{ []: }",
    "{ [i]: 0<=i<0 }",
    "{ [a,b,c]: 0<=a<20 and exists e,f: a=3e+5f and 0<=e and 0<=f and b=e+f and 0<=c<=b }",
]


def by_isl(s: isl.Set) -> list[list[int]]:
    out: list[list[int]] = []
    s.foreach_point(lambda p: out.append([p.get_coordinate_val(SET, i).to_python() for i in range(s.dim(SET))]))
    return sorted(out)


@pytest.mark.parametrize("text", SETS)
def test_points_of_a_set(text: str) -> None:
    s = read_set(text)
    assert set_points(s).tolist() == by_isl(s)


def random_set(rnd: random.Random) -> str:
    v = ["i", "j", "k"][: rnd.randint(1, 3)]
    tests = [f"-6 <= {x} <= 6" for x in v]
    for _ in range(rnd.randint(0, 3)):
        e = " + ".join(f"({rnd.randint(-3, 3)}{x})" for x in v)
        kinds = [
            f"{e} >= {rnd.randint(-8, 8)}",
            f"({e}) mod {rnd.randint(2, 4)} = {rnd.randint(0, 1)}",
            f"(exists q: {e} = {rnd.randint(2, 3)}q + {rnd.randint(0, 4)} and {rnd.choice(v)} <= 3q + 7)",
            f"floor(({e})/{rnd.randint(2, 5)}) <= {rnd.randint(-2, 2)}",
            f"(exists q, w: 0 <= q <= 3 and 0 <= w <= 2 and {v[0]} = 2q + 5w - {rnd.randint(0, 4)})",
        ]
        tests.append(rnd.choice(kinds))
    return f"{{ [{', '.join(v)}] : {' and '.join(tests)} }}"


def test_points_of_random_sets() -> None:
    rnd = random.Random(7)
    for _ in range(150):
        text = random_set(rnd)
        s = read_set(text)
        assert set_points(s).tolist() == by_isl(s), text


def test_pairs_of_a_map() -> None:
    a, b = map_pairs(read_map("[N] -> { S[i, j] -> [o, p] : 0 <= i, j < N and o = floor(i/3) and p = i + j }"), {"N": 7})
    assert len(a) == 49 and (b[:, 0] == a[:, 0] // 3).all() and (b[:, 1] == a.sum(axis=1)).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_instances_dates_and_dependences_of_programs(name: str) -> None:
    make, params = PROGRAMS[name]
    scop = compute_dependences(make())
    order = dates_of(scop.schedule.get_map().intersect_domain(scop.domain()), params)
    want = {inst: k for k, inst in enumerate(sorted(order, key=lambda x: order[x]))}
    got = ranks(scop, params)
    mine = {(s.name, tuple(p)): int(r) for s in scop.statements for p, r in zip(instances(scop, s.name, params).points.tolist(), got[s.name])}
    assert mine == want
    assert scop.dependences is not None
    for kind in ("flow", "anti", "output", "reduction"):
        deps = getattr(scop.dependences, kind)
        found = {((a, tuple(x)), (b, tuple(y))) for a, b, xs, ys in pairs_between(deps, params) for x, y in zip(xs.tolist(), ys.tolist())}
        assert found == pairs_of(deps, params)


def test_many_points_are_quick() -> None:
    start = time.perf_counter()
    points = set_points(read_set("{ S[i, j, k] : 0 <= i, j < 50 and 0 <= k < 40 }"))
    assert points.shape == (100_000, 3)
    assert time.perf_counter() - start < 2
    assert np.array_equal(points, np.argwhere(np.ones((50, 50, 40))))


def test_too_many_points_and_unbounded_sets_are_refused() -> None:
    with pytest.raises(UserError, match=r"more than 400000 points.*smaller params="):
        set_points(read_set("{ S[i, j] : 0 <= i, j < 10000 }"))
    with pytest.raises(UserError, match="unbounded"):
        set_points(read_set("{ S[i] : 0 <= i }"))


def test_params_are_chosen_and_checked() -> None:
    scop = PROGRAMS["seidel"][0]()
    assert choose_params(scop) == {"T": 8, "N": 8}
    assert choose_params(scop, {"T": 3}) == {"T": 3, "N": 8}
    with pytest.raises(UserError, match="has no parameter 'Q'; the parameters are T, N"):
        choose_params(scop, {"Q": 1})
    with pytest.raises(UserError, match="no statement instances"):
        choose_params(scop, {"N": 2})
