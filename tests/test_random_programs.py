"""Random affine programs under random verbs and under the recipes: the compiled C leaves in memory what plain Python leaves, and each
refusal names two instances that depend on each other and would run in the wrong order.

All values are small integers in doubles, so sums and products are exact; a kernel at fp=strict under a bit-identical schedule must
give the very bits. Programs are drawn first, in parts; a part's kernels are compiled as one library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from batch import Job, build_batch, emit_jobs, run_kernel
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from random_schedules import Trial, schedules
from strategies import Program, programs
from witnesses import check_witness

from polyopt.ir.scop import Dependences, Scop
from polyopt.ir.verify import verify_nest, verify_scop
from polyopt.lower.loops import lower_to_loops
from polyopt.options import Options
from polyopt.poly import deps, legality
from polyopt.poly.certify import certify
from polyopt.target import ISAS, cpu_flags, cpu_target
from polyopt.verbs.recipe import apply_recipe

PARTS, EACH = 4, 50
HERE = [n for n in ("scalar", "avx2", "avx512", "neon") if set(ISAS[n].cpu) <= cpu_flags() and (n != "neon" or cpu_target().isa.name == "neon")]


@dataclass(frozen=True)
class Case:
    """A program, how it was scheduled, and the kernel."""

    program: Program
    trial: Trial | None
    scop: Scop
    job: Job

    def __repr__(self) -> str:
        how = repr(self.trial) if self.trial is not None else "\n".join(["Recipe:", *(f"  {s}" for s in self.scop.history)])
        return f"{self.program!r}\n{how}\non {self.job.isa}, fp={self.job.fp}, threads={self.job.threads}"


def draw_cases(part: int, make: Callable[[Any], list[Case]]) -> list[Case]:
    """The same random cases in every run."""
    cases: list[Case] = []

    @seed(part)
    @settings(max_examples=EACH, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.data())
    def collect(data: Any) -> None:
        cases.extend(make(data.draw))

    collect()
    return cases


def check_cases(cases: list[Case], name: str) -> None:
    """Compile all, run all, compare each with the original body."""
    sources = emit_jobs([c.job for c in cases])
    library = build_batch(sources, name)
    for case, source in zip(cases, sources, strict=True):
        got = run_kernel(library, source, case.program.arrays(), case.program.params)
        exact = case.scop.label == "bit-identical" and case.job.fp == "strict"
        for tensor, want in case.program.reference().items():
            same = np.array_equal(want, got[tensor], equal_nan=True) if exact else np.allclose(want, got[tensor], equal_nan=True)
            assert same, f"{tensor} differs\n{want}\n{got[tensor]}\n{case!r}\n{source.text}"


def lowered(scop: Scop, isa: str, fp: str, threads: int) -> Job:
    """The job of a scheduled scop, verified and certified on the way."""
    verify_scop(scop)
    nest = lower_to_loops(scop)
    verify_nest(nest)
    for claim in certify(scop, nest).claims:
        assert claim.ok or "read at run time" in claim.text or "budget" in claim.text, claim
    return Job(nest, isa, fp, threads)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs with indirect accesses take isl seconds: the budget is cut, and the memory-based fallback is tested too. No repairs are sought."""
    monkeypatch.setattr(deps, "BUDGET", 100_000)
    monkeypatch.setattr(legality, "suggest_loops", lambda *_: None)
    monkeypatch.setattr(legality, "suggest_skew", lambda *_: None)


def by_verbs(draw: Any, program: Program, accepted: Counter[str]) -> Case:
    """A program under random verbs, its refusals checked."""
    trial = draw(schedules(program.function.scop))
    for refusal in trial.refusals:
        check_witness(refusal)
    accepted.update(call[0] for call in trial.calls)
    isa, fp = draw(st.sampled_from(HERE)), draw(st.sampled_from(["strict", "strict", "default", "fast"]))
    return Case(program, trial, trial.scop, lowered(trial.scop, isa, fp, draw(st.sampled_from([1, 1, 2]))))


def by_recipe(draw: Any, program: Program, dependences: Dependences | None) -> Case:
    """A program as the recipes schedule it."""
    isa, fp = draw(st.sampled_from(HERE)), draw(st.sampled_from(["strict", "default", "fast"]))
    threads = draw(st.sampled_from([1, 1, 2]))
    given = replace(program.function.scop, dependences=dependences)
    scop = apply_recipe(given, replace(cpu_target(isa, threads), l2=4096), Options(isa=isa, fp=fp, threads=threads))
    assert fp != "strict" or scop.label == "bit-identical"
    return Case(program, None, scop, lowered(scop, isa, fp, threads))


@pytest.mark.cc
@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_programs_equal_python(part: int) -> None:
    accepted: Counter[str] = Counter()

    def make(draw: Any) -> list[Case]:
        program = draw(programs())
        verbs = by_verbs(draw, program, accepted)
        return [verbs, by_recipe(draw, program, verbs.trial.start if verbs.trial is not None else None)]

    cases = draw_cases(part, make)
    assert len(accepted) >= 6 and sum(accepted.values()) >= EACH // 2, accepted
    check_cases(cases, f"random{part}")
