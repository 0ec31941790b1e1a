"""`import polyopt` loads nothing heavy and costs next to nothing; its exports arrive on first use."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys

import pytest

import polyopt

HEAVY = ("islpy", "numpy", "onnx", "cgen", "click", "rich")


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout


def test_import_loads_nothing_heavy() -> None:
    loaded = json.loads(_python("import json, sys, polyopt; print(json.dumps(sorted(sys.modules)))"))
    assert [m for m in HEAVY if m in loaded] == []
    assert [m for m in loaded if m.startswith("polyopt.")] == []


def test_dims_and_dtypes_need_no_isl_or_numpy() -> None:
    code = "import json, sys, polyopt as po; M, N = po.dims('M N'); po.f32[M, N]; print(json.dumps(sorted(sys.modules)))"
    assert [m for m in HEAVY if m in json.loads(_python(code))] == []


def test_import_costs_at_most_40_ms_over_bare_python() -> None:
    def seconds(code: str) -> float:
        """Of the processor, which other processes on the machine lengthen less than the clock's."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _python(code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    _python("import polyopt")
    extra = [seconds("import polyopt") - seconds("pass") for _ in range(9)]
    assert statistics.median(extra) <= 0.040, extra


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = polyopt.nothing
