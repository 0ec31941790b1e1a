"""What is compiled runs each instance once: a schedule of which isl makes other loops is refused before any code is emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from test_poly_certify import Edit, damaged, every_second, longer, shorter, twice
from test_verbs_nests import gemm, jacobi, seidel

import polyopt as po
from polyopt.api import schedules
from polyopt.api.schedules import Schedule
from polyopt.errors import ScheduleError
from polyopt.ir.loops import Loop, walk
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.poly.certify import check_instances

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "gemm in tiles": lambda: po.schedule(gemm).distribute("k").tile(i=4, j=4, k=2, of="S1"),
    "seidel in fronts": lambda: po.schedule(seidel).skew("i", by="t").tile(t=2, i=3).wavefront("tt", "ti"),
    "jacobi in diamonds": lambda: po.schedule(jacobi).diamond("t", "i", size=4),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(
    "fault, message", [(shorter, "leaves out"), (longer, "outside its domain|twice"), (twice, "twice"), (every_second, "leaves out")]
)
def test_loops_that_lose_or_repeat_an_instance_are_refused(name: str, fault: Edit, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = SCHEDULES[name]()
    s.source()
    monkeypatch.setattr(schedules, "lower_to_loops", lambda scop: damaged(lower_to_loops(scop), fault))
    with pytest.raises(ScheduleError, match=rf"isl generates wrong loops for this schedule: .*({message}).*[SU]?\w*\(.*; undo the last step"):
        s.source()
    with pytest.raises(ScheduleError):
        s.compile()


@pytest.mark.parametrize("fault, message", [(shorter, "leaves out"), (twice, "twice")])
def test_a_recipe_is_looked_at_too(fault: Edit, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = po.auto(gemm)
    monkeypatch.setattr(schedules, "lower_to_loops", lambda scop: damaged(lower_to_loops(scop), fault))
    with pytest.raises(ScheduleError, match=message):
        s.source()


def test_the_missing_instance_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(scop: Scop) -> object:
        nest = lower_to_loops(scop)
        assert any(isinstance(n, Loop) and n.name == "k" for n in walk(nest.body))
        return damaged(nest, lambda n: replace(n, lower=(n.lower[0] + 1,)) if isinstance(n, Loop) and n.name == "k" else n)

    s = po.schedule(gemm.specialize(M=4, N=5, K=6)).distribute("k")
    monkeypatch.setattr(schedules, "lower_to_loops", lose)
    with pytest.raises(ScheduleError, match=r"the nest leaves out S1\(\d, \d, 0\); undo"):
        s.source()


def test_a_check_over_its_budget_is_left_to_the_certificate() -> None:
    scop = po.schedule(seidel).skew("i", by="t").tile(t=2, i=3).scop
    check_instances(scop, damaged(lower_to_loops(scop), shorter), budget=1)
    with pytest.raises(ScheduleError):
        check_instances(scop, damaged(lower_to_loops(scop), shorter))
