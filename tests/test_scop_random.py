"""Random programs: the Scop, run instance by instance, gives the bits of the original body."""

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from interpret import instances, run_scop
from strategies import Program, programs

from polyopt.errors import NotAffine


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_scop_equals_reference(program: Program) -> None:
    wanted = program.reference()
    got = program.arrays()
    scop = program.function.scop
    run_scop(scop, got, {}, {p: program.params[p] for p in scop.params}, random.Random(program.seed))
    for name, array in wanted.items():
        assert np.array_equal(array, got[name]), f"{name}\n{array}\n{got[name]}"


def test_instances_are_in_textual_order() -> None:
    from strategies import make

    scop = make("def f(A: f64[N], B: f64[M, N], C: f64[N, N], I: i32[N]):\n  for i in range(N - 1, -1, -2):\n    A[i] = 0.0\n    A[i] += 1.0\n").scop
    assert instances(scop, {"N": 4, "M": 0}) == [("S0", (3,)), ("S1", (3,)), ("S0", (1,)), ("S1", (1,))]
    assert NotAffine.exit_code == 1
