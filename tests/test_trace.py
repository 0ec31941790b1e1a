"""The tracer: verifies, times, dumps what changed, names the step of an exception, climbs the debug ladder."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polyopt.errors import InternalError, OutputError, UserError
from polyopt.ir.source import Source
from polyopt.trace import Trace, debug_level


def double(x: int) -> int:
    return 2 * x


def add(x: int, y: int) -> int:
    return x + y


def keep(x: Any) -> Any:
    return x


def refuse(x: Any) -> Any:
    raise UserError("no")


def _even(x: int) -> None:
    if x % 2:
        raise InternalError(f"{x} is odd")


def _quiet(**options: Any) -> Trace:
    return Trace(**({"debug": 0, "dump": None} | options))


def test_a_step_returns_the_functions_result() -> None:
    trace = _quiet()
    assert trace.step(add, trace.step(double, 3), y=4) == 10
    assert [t.step for t in trace.times] == ["double", "add"]
    assert trace.step(partial(add, y=1), 1) == 2
    assert trace.times[-1].step == "add"


def test_results_are_verified_by_type_also_inside_sequences() -> None:
    trace = _quiet(verifiers={int: (_even,)})
    trace.step(double, 3)
    with pytest.raises(InternalError, match="3 is odd") as caught:
        trace.step(keep, (2, [3]))
    assert caught.value.__notes__ == ["in step keep"]
    assert trace.step(keep, "no verifier for a str") == "no verifier for a str"


def test_an_exception_names_its_step_and_what_it_worked_on() -> None:
    trace = _quiet(label="conv1")
    with pytest.raises(UserError) as caught:
        trace.step(refuse, 1)
    assert caught.value.__notes__ == ["in step refuse [conv1]"]


def test_only_what_changed_is_dumped(tmp_path: Path) -> None:
    trace = _quiet(dump=str(tmp_path / "dumps"))
    x = trace.step(double, 3)
    trace.step(keep, x)
    trace.step(add, x, 0)
    trace.label = "conv 1/a"
    trace.step(add, x, 1)
    trace.step(lambda_to_source, 7)
    names = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert names == ["00_double.txt", "01_add_conv_1_a.txt", "02_lambda_to_source_conv_1_a.c"]
    assert (tmp_path / "dumps" / "00_double.txt").read_text() == "6\n"


def lambda_to_source(x: int) -> Source:
    return Source(f"void f(void) {{ /* {x} */ }}", "f", ())


def test_a_dump_that_cannot_be_written_is_the_users_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="POLYOPT_DUMP"):
        _quiet(dump=str(tmp_path / "file")).step(double, 3)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0, ""), (1, ""), (2, "double: "), (3, "first\n"), (4, "first\nsecond\n"), (5, "arguments: y=3")],
)
def test_the_debug_ladder(level: int, expected: str) -> None:
    out = io.StringIO()
    trace = _quiet(debug=level, stream=out, text=lambda x: "first\nsecond")
    trace.step(double, 1)
    trace.step(add, 1, y=3)
    steps = out.getvalue()
    assert expected in steps
    assert ("second" in steps) == (level >= 4)
    trace.finish()
    assert ("(verifiers)" in out.getvalue()) == (level >= 1)


@pytest.mark.parametrize(("text", "level"), [("", 0), ("3", 3), ("yes", 1), (" 2 ", 2)])
def test_debug_level(text: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_DEBUG", text)
    assert debug_level() == level


def test_the_listener_hears_of_each_step_first() -> None:
    heard: list[tuple[str, str]] = []
    trace = _quiet(listener=lambda step, label: heard.append((step, label)), label="k")
    with pytest.raises(UserError):
        trace.step(refuse, 1)
    assert heard == [("refuse", "k")]
