"""Programs of many statements: the sources that isl has to look at are few, and the dependences are the same."""

from __future__ import annotations

from typing import Any

import islpy as isl
import large_programs
import pytest
from poly_programs import PROGRAMS, brute_force, pairs_of

import polyopt as po
from polyopt.isl_ext import OperationBudget
from polyopt.poly import deps as module
from polyopt.poly.deps import compute_dependences

KINDS = ("flow", "anti", "output", "reduction")
LARGE = {"mixed": large_programs.mixed, "one_nest": large_programs.one_nest, "chain": large_programs.chain}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sink_by_sink_equals_the_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 0)
    make, params = PROGRAMS[name]
    scop = compute_dependences(make())
    assert scop.dependences is not None and scop.dependences.exact
    want = brute_force(scop, params)
    for kind in KINDS:
        assert pairs_of(getattr(scop.dependences, kind), params) == want[kind], kind


@pytest.mark.parametrize("name", LARGE)
def test_sink_by_sink_equals_all_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = LARGE[name]
    few = compute_dependences(make(40).scop).dependences
    monkeypatch.setattr(module, "MANY", 1000)
    whole = compute_dependences(make(40).scop).dependences
    assert few is not None and whole is not None and few.exact and whole.exact
    for kind in KINDS:
        assert getattr(few, kind).is_equal(getattr(whole, kind)), kind


@pytest.mark.parametrize("name", LARGE)
def test_what_isl_compares_grows_with_the_program_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []
    flow = module._View.flow

    def counted(self: Any, sink: isl.UnionMap, *sources: isl.UnionMap) -> isl.UnionFlow:
        pairs.append(sink.n_map() * sum(u.n_map() for u in sources))
        return flow(self, sink, *sources)

    monkeypatch.setattr(module._View, "flow", counted)
    found = compute_dependences(LARGE[name](150).scop).dependences
    assert found is not None and found.exact
    assert len(pairs) <= 3 * 150
    assert sum(pairs) <= 30 * 150  # all pairs of one tensor would be 150 * 150 / 8 at the least, for each of three kinds


def test_auto_computes_dependences_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    compute = module._dependences
    monkeypatch.setattr(module, "_dependences", lambda scop: (seen.append(scop.name), compute(scop))[1])
    source = po.auto(large_programs.mixed(60)).source()
    assert seen == ["mixed"]
    assert source.text.count("\n") < 1000


def test_a_statement_that_exceeds_the_budget_depends_on_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = compute_dependences(large_programs.mixed(30).scop).dependences
    flow = module._View.flow

    def refuse(self: Any, sink: isl.UnionMap, *sources: isl.UnionMap) -> isl.UnionFlow:
        if "S7" in str(sink.domain()):
            raise OperationBudget("spent")
        return flow(self, sink, *sources)

    monkeypatch.setattr(module._View, "flow", refuse)
    scop = compute_dependences(large_programs.mixed(30).scop)
    found = scop.dependences
    assert exact is not None and found is not None and exact.exact and not found.exact
    order = scop.schedule.get_map()
    for kind in KINDS:
        assert getattr(exact, kind).is_subset(getattr(found, kind)), kind
        assert getattr(found, kind).is_subset(order.lex_lt_union_map(order)), kind
