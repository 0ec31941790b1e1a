"""Bad input to verbs: one line that names the verb, the argument, and what is allowed. Every verb is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_verbs_nests import dot, gemm, jacobi, rows, seidel

import polyopt as po
from polyopt.api.schedules import Schedule
from polyopt.errors import ScheduleError
from polyopt.verbs import VERBS

HUGE = 2**40
STARTS: dict[str, Callable[[], Schedule]] = {
    "gemm": lambda: po.schedule(gemm).distribute("k"),
    "small": lambda: po.schedule(gemm.specialize(M=10, N=2000, K=10)).distribute("k"),
    "dot": lambda: po.schedule(dot),
    "rows": lambda: po.schedule(rows),
    "jacobi": lambda: po.schedule(jacobi),
    "seidel": lambda: po.schedule(seidel),
}
OF = {"of": "S1"}
NO_LOOP = "there is no loop 'q'; the loops are "
COUNT = "must be a whole number of at least 1"
LARGEST = "at most 2147483647"
Case = tuple[str, str, tuple[Any, ...], dict[str, Any], str]
CASES: list[Case] = [
    ("gemm", "tile", (), {"q": 4}, NO_LOOP),
    ("gemm", "tile", (), {}, "give at least one loop and its tile size"),
    ("gemm", "tile", (), {"i": 0, **OF}, f"the tile size of i is 0; it {COUNT}"),
    ("gemm", "tile", (), {"i": -3, **OF}, f"the tile size of i is -3; it {COUNT}"),
    ("gemm", "tile", (), {"i": 2.5, **OF}, f"the tile size of i is 2.5; it {COUNT}"),
    ("gemm", "tile", (), {"i": HUGE, **OF}, f"the tile size of i is {HUGE}; it {COUNT} and {LARGEST}"),
    ("gemm", "tile", (), {"i": (8, HUGE), **OF}, f"the tile size of i is {HUGE}"),
    ("small", "tile", (), {"i": 11, **OF}, "the tile size of i is 11, but the loop runs over 10 dates; give 1 to 10"),
    ("gemm", "tile", (), {"i": 4, "of": "S9"}, "there is no statement 'S9'; the statements are S0, S1"),
    ("gemm", "tile", (), {"i": 4}, "several nests have the loops i"),
    ("gemm", "strip_mine", ("q", 4), {}, NO_LOOP),
    ("gemm", "strip_mine", ("i", 0), OF, f"the tile size of i is 0; it {COUNT}"),
    ("gemm", "strip_mine", ("i", HUGE), OF, LARGEST),
    ("small", "strip_mine", ("i", 11), OF, "give 1 to 10"),
    ("gemm", "interchange", ("q", "i"), {}, NO_LOOP),
    ("gemm", "interchange", ("i",), OF, "name at least two loops of one nest; the loops around and inside i are j, k"),
    ("gemm", "interchange", ("i", "i"), OF, "a loop is named twice"),
    ("gemm", "interchange", (), {}, "name at least one loop"),
    ("gemm", "skew", ("i",), {"by": "q", **OF}, NO_LOOP),
    ("gemm", "skew", ("i",), {"by": "i", **OF}, "i cannot be skewed by itself; by= names another loop"),
    ("gemm", "skew", ("i",), {"by": "j", "factor": HUGE, **OF}, f"factor is {HUGE}; it must be a whole number and {LARGEST}"),
    ("gemm", "skew", ("i",), {"by": "j", "factor": 1.5, **OF}, "factor is 1.5; it must be a whole number"),
    ("gemm", "skew", (), {"i": "2*i", **OF}, r"determinant 2; it must be 1 or -1"),
    ("gemm", "skew", (), {"i": "i*j", **OF}, "is not affine; write sums of loops times whole numbers"),
    ("gemm", "skew", (), {"i": f"i + {HUGE}*j", **OF}, "is not affine"),
    ("gemm", "reverse", ("q",), {}, NO_LOOP),
    ("gemm", "reverse", (), {}, r"missing a required argument: 'loop'; write reverse\("),
    ("gemm", "shift", ("S9", "i", 1), {}, "there is no statement 'S9'; the statements are S0, S1"),
    ("gemm", "shift", ("S1", "q", 1), {}, NO_LOOP),
    ("gemm", "shift", ("S1", "i", HUGE), {}, f"amount is {HUGE}; it must be a whole number and {LARGEST}"),
    ("gemm", "shift", ("S1", "i", "x"), {}, "amount is 'x'; it must be a whole number"),
    ("gemm", "fuse", ("S0", "S9"), {}, "there is no statement 'S9'"),
    ("gemm", "fuse", ("S0",), {}, "name statements of different nests"),
    ("gemm", "fuse", ("S0", "S1"), {"depth": 0}, "depth is 0; these nests share 2 loops, and at least 1 must be fused"),
    ("gemm", "fuse", ("S0", "S1"), {"depth": HUGE}, f"depth is {HUGE}; these nests share 2 loops"),
    ("gemm", "distribute", ("q",), {}, NO_LOOP),
    ("gemm", "distribute", ("k",), {}, "name innermost loops of a nest"),
    ("gemm", "vectorize", ("q", 4), {}, NO_LOOP),
    ("gemm", "vectorize", ("j", 0), OF, f"the width for j is 0; it {COUNT}"),
    ("gemm", "vectorize", ("j", HUGE), OF, f"the width for j is {HUGE}; it {COUNT} and at most 1024"),
    ("gemm", "unroll", ("q", 4), {}, NO_LOOP),
    ("gemm", "unroll", ("i", -1), OF, f"the factor of i is -1; it {COUNT}"),
    ("gemm", "unroll", ("i", 10**7), OF, f"the factor of i is {10**7}; it {COUNT} and at most 1024"),
    ("small", "unroll", ("i", 11), OF, "the factor of i is 11, but the loop runs over 10 dates"),
    ("small", "unroll", ("j",), OF, "the loop j runs over 2000 dates; give a factor of at most 1024"),
    ("gemm", "unroll_jam", ("q", 4), {}, NO_LOOP),
    ("gemm", "unroll_jam", ("i", 4), {"into": "q", **OF}, "into is 'q'; it must be a loop inside i: j, k"),
    ("gemm", "unroll_jam", ("i", 0), {"into": "k", **OF}, "must be a whole number of at least 2"),
    ("gemm", "unroll_jam", ("i", HUGE), {"into": "k", **OF}, "at most 1024"),
    ("gemm", "unroll_jam", ("k", 4), OF, "k has no loop inside; unroll"),
    ("gemm", "parallelize", ("q",), {}, NO_LOOP),
    ("gemm", "parallelize", ("i",), {}, "several nests have the loops i"),
    ("gemm", "privatize", ("Q",), {"at": "i"}, "there is no tensor 'Q'; the tensors are A, B, C"),
    ("gemm", "privatize", ("C",), {"at": "q"}, NO_LOOP),
    ("rows", "privatize", ("buffer",), {"at": "i", "copies": 0}, f"copies is 0; it {COUNT}"),
    ("rows", "privatize", ("buffer",), {"at": "i", "copies": HUGE}, LARGEST),
    ("dot", "privatize", ("S",), {"at": "k", "copies": 2}, "leave out copies"),
    ("gemm", "bind", ("q", "block.x"), {}, NO_LOOP),
    ("gemm", "bind", ("i", "nowhere"), OF, "axis is 'nowhere'; it must be one of block.x"),
    ("gemm", "promote", ("Q",), {"at": "i"}, "there is no tensor 'Q'; the tensors are A, B, C"),
    ("gemm", "promote", ("A",), {"at": "q"}, NO_LOOP),
    ("gemm", "promote", ("A",), {"at": "i", "scope": "nowhere", **OF}, "scope is 'nowhere'; it must be registers, cache or shared"),
    ("gemm", "prefetch", ("Q",), {"at": "k", "distance": 2}, "there is no tensor 'Q'"),
    ("gemm", "prefetch", ("A",), {"at": "q", "distance": 2}, NO_LOOP),
    ("gemm", "prefetch", ("A",), {"at": "k", "distance": 0}, f"distance is 0; it {COUNT}"),
    ("gemm", "prefetch", ("A",), {"at": "k", "distance": HUGE}, LARGEST),
    ("gemm", "software_pipeline", ("q",), {}, NO_LOOP),
    ("gemm", "software_pipeline", ("i",), OF, "name a loop with several statements or nests right below"),
    ("seidel", "wavefront", ("t",), {}, "name at least two loops"),
    ("seidel", "wavefront", ("t", "q"), {}, NO_LOOP),
    ("seidel", "wavefront", ("t", "t"), {}, "a loop is named twice"),
    ("jacobi", "diamond", ("q", "i"), {"size": 4}, NO_LOOP),
    ("jacobi", "diamond", ("t", "q"), {"size": 4}, "the loop q does not stand around S0, which t runs; the loops there are i, j"),
    ("jacobi", "diamond", ("t",), {"size": 4}, "name the time loop and at least one space loop"),
    ("jacobi", "diamond", ("t", "i"), {"size": 1}, "size is 1; it must be a whole number of at least 2"),
    ("jacobi", "diamond", ("t", "i"), {"size": HUGE}, LARGEST),
    ("jacobi", "diamond", ("t", "i"), {"size": [4, 4]}, "size has 2 numbers for 1 space loops"),
    ("seidel", "diamond", ("t", "i"), {"size": 8}, "there is no concurrent start along i"),
]


@pytest.mark.parametrize("start, verb, args, kwargs, message", CASES, ids=lambda x: x if isinstance(x, str) and x in VERBS else "")
def test_bad_input_is_one_clear_line(start: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    s = STARTS[start]()
    with pytest.raises(ScheduleError, match=message) as e:
        getattr(s, verb)(*args, **kwargs)
    assert str(e.value).startswith(f"{verb}: ") and "\n" not in str(e.value)


def test_every_verb_is_here() -> None:
    assert {verb for _, verb, *_ in CASES} == set(VERBS)


GOOD: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("gemm", "tile", (), {"i": 4, **OF}),
    ("gemm", "strip_mine", ("i", 4), OF),
    ("gemm", "interchange", ("i", "j"), OF),
    ("gemm", "skew", ("i",), {"by": "j", **OF}),
    ("gemm", "reverse", ("i",), OF),
    ("gemm", "shift", ("S1", "i", 1), {}),
    ("gemm", "fuse", ("S0", "S1"), {"depth": 1}),
    ("joined", "distribute", ("k",), {}),
    ("gemm", "vectorize", ("j", 4), OF),
    ("gemm", "unroll", ("i", 4), OF),
    ("gemm", "unroll_jam", ("i", 4), OF),
    ("gemm", "parallelize", ("i",), OF),
    ("dot", "privatize", ("S",), {"at": "k"}),
    ("gemm", "bind", ("i", "block.x"), OF),
    ("gemm", "promote", ("A",), {"at": "k", **OF}),
    ("gemm", "prefetch", ("A",), {"at": "k", "distance": 2}),
    ("rows", "software_pipeline", ("i",), {}),
    ("seidel", "wavefront", ("t", "i"), {}),
    ("jacobi", "diamond", ("t", "i"), {"size": 4}),
]


@pytest.mark.parametrize("start, verb, args, kwargs", GOOD, ids=lambda x: x if isinstance(x, str) and x in VERBS else "")
def test_a_context_without_values_is_named(start: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    s = po.schedule(gemm).scop if start == "joined" else STARTS[start]().scop
    empty = replace(s, context=s.context.empty(s.context.get_space()), dependences=None)
    with pytest.raises(ScheduleError, match=rf"^{s.name}: no values of {', '.join(s.params)} satisfy its context; nothing can be scheduled$"):
        VERBS[verb](empty, *args, **kwargs)
