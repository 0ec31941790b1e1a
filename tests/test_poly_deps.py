"""Dependences against a trace of the execution, for hand-built programs."""

from __future__ import annotations

import pytest
from poly_programs import PROGRAMS, brute_force, pairs_of

from polyopt.poly.deps import compute_dependences


@pytest.mark.parametrize("name", PROGRAMS)
def test_dependences_equal_the_trace(name: str) -> None:
    make, params = PROGRAMS[name]
    scop = compute_dependences(make())
    want = brute_force(scop, params)
    assert scop.dependences is not None
    for kind in ("flow", "anti", "output", "reduction"):
        got = pairs_of(getattr(scop.dependences, kind), params)
        assert got == want[kind], (kind, sorted(got - want[kind])[:3], sorted(want[kind] - got)[:3])
