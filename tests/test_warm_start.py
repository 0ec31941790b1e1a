"""A model that was compiled before: it starts without the compiler, and the cache never answers for another model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.cc

_RUN = """
import json, sys
import numpy as np
import polyopt as po
m = po.compile(sys.argv[1])
y = m(np.arange(6, dtype=np.float32).reshape(2, 3))
heavy = [n for n in ("islpy", "onnx", "cgen", "polyopt.pipeline") if n in sys.modules]
print(json.dumps([m.program.name, y.tolist(), heavy, len(m.kernels) if len(sys.argv) > 2 else 0]))
"""


def write_model(path: Path, scale: float, external: bool = False) -> None:
    """y = scale · x, the scale as an initializer."""
    w = numpy_helper.from_array(np.full((2, 3), scale, np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    model = helper.make_model(helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [w]))
    onnx.save_model(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)


def run(path: Path, cache: Path, *more: str) -> list:
    out = subprocess.run(
        [sys.executable, "-c", _RUN, str(path), *more], capture_output=True, text=True, env={"POLYOPT_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_a_second_start_loads_no_compiler_and_still_knows_its_kernels(tmp_path: Path) -> None:
    path, want = tmp_path / "twice.onnx", (2.0 * np.arange(6).reshape(2, 3)).tolist()
    write_model(path, 2.0)
    assert "islpy" in run(path, tmp_path / "c")[2]
    assert run(path, tmp_path / "c") == ["twice", want, [], 0]
    assert run(path, tmp_path / "c", "kernels") == ["twice", want, [], 1]


def test_an_altered_or_renamed_model_is_compiled_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    write_model(path, 2.0)
    run(path, tmp_path / "c")
    write_model(path, 3.0)
    name, y, heavy, _ = run(path, tmp_path / "c")
    assert name == "a" and y[1] == [9.0, 12.0, 15.0] and heavy
    other = path.rename(tmp_path / "b.onnx")
    assert run(other, tmp_path / "c")[0] == "b"


def test_external_data_is_read_every_time(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    write_model(path, 2.0, external=True)
    assert run(path, tmp_path / "c")[1][1] == [6.0, 8.0, 10.0]
    (tmp_path / "weights.bin").write_bytes(np.full((2, 3), 5.0, np.float32).tobytes())
    assert run(path, tmp_path / "c")[1][1] == [15.0, 20.0, 25.0]
