"""Random schedules over kernels of PolyBench and of deep learning, judged by a trace: no illegal one is accepted, no legal one refused,
each refusal's witness is replayed. `python -m benchmarks.legality` runs the thousands; this is a sample of the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import legality

LIMIT_MS = 50


def test_random_schedules_are_judged_as_the_trace_judges_them() -> None:
    result = legality.run(schedules=200, seed=11)
    figures = legality.report(result)
    assert not result.wrong, "\n".join(result.wrong)
    assert result.illegal >= 100 and result.legal >= 100 and result.executed >= 5, figures
    assert len(result.verbs) >= 20, figures["verbs"]
    assert figures["check_ms"]["p95"] < LIMIT_MS, figures


def test_an_accepted_clash_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle's own test: with the legality check switched off, illegal schedules are found by the trace."""
    monkeypatch.setattr("polyopt.verbs.checked.check_schedule", lambda *args, **kwargs: None)
    result = legality.Result()
    program = next(p for p in legality.programs(["seidel-2d"]))
    legality.judge(program, program.scop, ("reverse", ("t",), {"of": "S0"}), result, legality.random.Random(0))
    assert len(result.wrong) == 1 and "accepted, but" in result.wrong[0]


def test_the_command_prints_its_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["legality", "jacobi-1d", "--schedules", "8", "--json"])
    assert legality.main() == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["illegal"] >= 4 and figures["legal"] >= 4 and not figures["wrong"]
