"""Cells held in locals while a loop runs: which loops get them, which must not, and that the result is the same to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_common import HERE, call, target

from polyopt.codegen.accumulators import hold_accumulators
from polyopt.codegen.c import emit_kernel
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Binary, Load
from polyopt.ir.loops import If, Instance, Loop, LoopNest, LoopNode, walk
from polyopt.ir.tensor import Tensor

I, J, K = var("i"), var("j"), var("k")


def update(write: Access, *loads: Access) -> Instance:
    """write += product of loads."""
    e = Load(loads[0], f32)
    for a in loads[1:]:
        e = Binary("*", e, Load(a, f32))
    return Instance("S", (), write, e, "+")


def nest(body: tuple[LoopNode, ...], upper: int | str = 6, size: int = 12) -> LoopNest:
    """Loops i and k around a body."""
    inner = Loop("k", (affine(0),), (affine(upper),), body, range=(0, upper - 1 if isinstance(upper, int) else None))
    outer = Loop("i", (affine(0),), (affine(3),), (inner,), range=(0, 2))
    tensors = tuple(Tensor(n, f32, (affine(size), affine(size)), "inout" if n == "C" else "input") for n in "ABC")
    params = () if isinstance(upper, int) else (upper,)
    return LoopNest("n", params, tensors, (), (outer,), tuple((p, (0, 6)) for p in params))


def strip(body: Instance, lanes: int = 8) -> Loop:
    return Loop("j", (affine(0),), (affine(lanes),), (body,), 1, "vector", "j", lanes, (0, lanes - 1))


A, B = Access("A", (I, K)), Access("B", (K, J))
HELD = {
    "one cell": (update(Access("C", (I, affine(2))), A),),
    "two rows": (update(Access("C", (I, affine(0))), A), update(Access("C", (I + 1, affine(0))), A)),
    "two columns": (update(Access("C", (I, affine(0))), A), update(Access("C", (I, affine(3))), A)),
    "a strip": (strip(update(Access("C", (I, J)), A, B)),),
    "two strips": (strip(update(Access("C", (I, J)), A, B)), strip(update(Access("C", (I + 1, J)), A, B))),
    "written, then read": (
        Instance("S", (), Access("C", (I, affine(1))), Load(A, f32)),
        update(Access("C", (I, affine(2))), Access("C", (I, affine(1)))),
    ),
}
LEFT = {
    "moves": (update(Access("C", (I, K)), A),),
    "may meet": (update(Access("C", (I, affine(0))), A), update(Access("C", (affine(2), affine(0))), A)),
    "read elsewhere": (update(Access("C", (I, affine(0))), Access("C", (I, K + 1))),),
    "strips overlap": (strip(update(Access("C", (I, J)), A)), strip(update(Access("C", (I, J + 4)), A))),
    "scalar in a strip": (strip(update(Access("C", (I, affine(0))), A, B)), update(Access("C", (I, affine(1))), A)),
}


def held(n: LoopNest) -> list[str]:
    return [t.name for t in hold_accumulators(n).tensors if t.scope == "registers"]


@pytest.mark.parametrize("name", HELD)
def test_what_stays_is_held(name: str) -> None:
    assert held(nest(HELD[name])) == ["C.held0"]


@pytest.mark.parametrize("name", LEFT)
def test_what_moves_or_may_meet_is_left(name: str) -> None:
    assert hold_accumulators(nest(LEFT[name])) == nest(LEFT[name])


def test_a_loop_that_may_not_run_is_guarded() -> None:
    assert not [x for x in walk(hold_accumulators(nest(HELD["one cell"])).body) if isinstance(x, If)]
    assert [x for x in walk(hold_accumulators(nest(HELD["one cell"], "n")).body) if isinstance(x, If)]


@pytest.mark.cc
@pytest.mark.parametrize("isa", HERE)
@pytest.mark.parametrize("name", [*HELD, *LEFT])
def test_same_bits_as_numpy(name: str, isa: str) -> None:
    for upper, trip in ((6, 6), ("n", 0), ("n", 5)):
        n = nest({**HELD, **LEFT}[name], upper)
        rng = np.random.default_rng(1)
        arrays = {x: rng.integers(-3, 4, (12, 12)).astype("f4") for x in "ABC"}
        want = {k: a.copy() for k, a in arrays.items()}
        for i in range(3):
            for k in range(trip):
                for s in walk({**HELD, **LEFT}[name]):
                    if isinstance(s, Instance):
                        _run(s, want, i, k, 8 if any(isinstance(x, Loop) and s in x.body for x in {**HELD, **LEFT}[name]) else 1)
        call(emit_kernel(n, target(isa), "strict" if "scalar in" not in name else "default"), arrays, params={p: trip for p in n.params})
        np.testing.assert_array_equal(arrays["C"], want["C"], err_msg=f"{name} {isa} {trip}")


def _run(s: Instance, arrays: dict[str, np.ndarray], i: int, k: int, lanes: int) -> None:
    for j in range(lanes):
        env = {"i": i, "j": j, "k": k}

        def cell(a: Access, env: dict[str, int] = env) -> tuple[int, ...]:
            return tuple(x.evaluate(env) for x in a.affine_indices())

        def value(e: object) -> float:
            return arrays[e.access.tensor][cell(e.access)] if isinstance(e, Load) else value(e.x) * value(e.y)  # type: ignore[attr-defined]

        old = arrays[s.write.tensor][cell(s.write)] if s.reduction else 0
        arrays[s.write.tensor][cell(s.write)] = old + value(s.expr)
