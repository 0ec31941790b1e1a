"""Repairs that a refusal names: applying them makes the step legal."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from poly_programs import build, gemm, heat_mod, jacobi, seidel

from polyopt.errors import IllegalSchedule
from polyopt.ir.scop import Scop
from polyopt.poly.deps import compute_dependences
from polyopt.poly.legality import check_parallel, is_parallel
from polyopt.poly.repair import band_members, least_skews, shared_loops
from polyopt.verbs.interchange import interchange
from polyopt.verbs.skew import reverse, skew
from polyopt.verbs.tile import tile


def diagonal_seidel() -> Scop:
    members = ",".join(f"{{S[t,i,j]->[{x}]}}" for x in "tij")
    return build(
        "seidel",
        {"A": "N,N"},
        [("S[t,i,j]: 0<=t<T and 1<=i<N-1 and 1<=j<N-1", "A[i,j]=A[i-1,j-1]+A[i-1,j+1]+A[i,j]+A[i+1,j-1]+A[i+1,j+1]")],
        f'{{schedule: "[{members}]"}}',
        "T N",
        "N>3 and T>1",
    )


def repaired(scop: Scop, message: str) -> Scop:
    """The scop after the skews that a refusal names."""
    found = re.findall(r'skew\("(\w+)", by="(\w+)", factor=(\d+)\)', message)
    assert found, message
    for loop, by, factor in found:
        scop = skew(scop, loop, by=by, factor=int(factor))
    return scop


@pytest.mark.parametrize("make", [diagonal_seidel, heat_mod, seidel])
def test_the_named_skew_makes_tiling_legal(make: Callable[[], Scop]) -> None:
    scop = compute_dependences(make())
    names = [name for _, _, name in band_members(scop.schedule.get_root())]
    sizes = {n: 4 - q for q, n in enumerate(names)}
    with pytest.raises(IllegalSchedule, match="Repair: skew") as e:
        tile(scop, **sizes)
    better = repaired(scop, str(e.value))
    assert tile(better, **sizes).schedule is not None
    assert least_skews(better.dependences.all(), shared_loops(better.schedule, "S")) == []


def test_least_skews_are_least() -> None:
    scop = compute_dependences(diagonal_seidel())
    loops = shared_loops(scop.schedule, "S")
    assert least_skews(scop.dependences.all(), loops) == [("c1", "c0", 1), ("c2", "c0", 1), ("c2", "c1", 1)]
    assert least_skews(scop.dependences.all(), loops[1:]) is None


def test_no_skew_is_named_where_none_helps() -> None:
    scop = compute_dependences(seidel())
    with pytest.raises(IllegalSchedule) as e:
        reverse(scop, "c0")
    assert "Repair" not in str(e.value)


def test_interchange_names_the_skew() -> None:
    scop = compute_dependences(seidel())
    with pytest.raises(IllegalSchedule, match=r'Repair: skew\("c1", by="c0", factor=1\)') as e:
        interchange(scop, "c1", "c0")
    assert interchange(repaired(scop, str(e.value)), "c1", "c0") is not None


@pytest.mark.parametrize("make", [gemm, jacobi])
def test_parallel_loops_are_named(make: Callable[[], Scop]) -> None:
    scop = compute_dependences(make())
    refused = 0
    for node, m, _ in band_members(scop.schedule.get_root()):
        if is_parallel(scop, node, m):
            continue
        refused += 1
        with pytest.raises(IllegalSchedule, match=r"Repair: .* can be parallel"):
            check_parallel(scop, node, m, "parallelize()")
    assert refused
