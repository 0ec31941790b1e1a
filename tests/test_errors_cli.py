"""What a user can get wrong at the command line: exit code 1, one clear line on stderr, nothing on stdout, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyopt.cli import guarded, main
from polyopt.errors import InternalError, UserError, WrongResult

F, I = TensorProto.FLOAT, TensorProto.INT64
Capture = pytest.CaptureFixture[str]


def model(path: Path, nodes: list[Any], ins: list[Any], outs: list[Any], weights: list[Any] | None = None, opset: int = 17) -> str:
    """Write a model without checking it."""
    graph = helper.make_graph(nodes, "g", ins, outs, weights or [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return str(path)


def tensor(name: str, shape: list[Any], kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def small(path: Path) -> str:
    """y = relu(x + w): x f32[N, 4]."""
    w = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    nodes = [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    return model(path, nodes, [tensor("x", ["N", 4])], [tensor("y", ["N", 4])], [w])


def refused(capsys: Capture, arguments: list[str], *words: str, code: int = 1) -> None:
    """The command fails with the code and one line that holds the words."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("polyopt: ")]
    assert out == ""
    assert len(lines) == 1 and err.splitlines()[-1] == lines[0], err
    assert "Traceback" not in err
    for word in words:
        assert word in lines[0], lines[0]


# ---- arguments
def test_usage(capsys: Capture) -> None:
    refused(capsys, ["compile"], "M.onnx")
    refused(capsys, ["nothing"], "nothing")
    refused(capsys, ["check", "m.onnx", "--nothing"], "--nothing")
    refused(capsys, ["compile", "m.onnx"], "--output")


def test_options_that_make_no_sense(capsys: Capture, tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    refused(capsys, ["run", path, "--threads", "0"], "threads", "at least 1")
    refused(capsys, ["run", path, "--threads", "two"], "two")
    refused(capsys, ["run", path, "--target", "tpu"], "tpu", "cuda")
    refused(capsys, ["run", path, "--isa", "sse9"], "sse9", "avx2")
    refused(capsys, ["run", path, "--fp", "sloppy"], "sloppy", "strict")
    refused(capsys, ["run", path, "--dim", "N=0"], "N=0")
    refused(capsys, ["run", path, "--dim", "N"], "NAME=VALUE")
    refused(capsys, ["run", path, "--dim", "N=1" + "0" * 5000], "NAME=VALUE")
    refused(capsys, ["run", path, "--dim", f"N={2**56}"], "input 'x'", "more than any memory")
    refused(capsys, ["run", path, "--dim", "N=2", "--dim", "N=3"], "N is 2 already")
    refused(capsys, ["bench", path, "--against", "abacus"], "abacus", "onnxruntime")


# ---- files that are no model
def test_no_file(capsys: Capture, tmp_path: Path) -> None:
    refused(capsys, ["check", str(tmp_path / "none.onnx")], "none.onnx", "no such file")
    refused(capsys, ["check", str(tmp_path)], "folder")


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"not a model\n" * 40, b"\x08\x07\x12"], ids=["empty", "zeros", "text", "cut"])
def test_no_onnx(content: bytes, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    refused(capsys, ["check", str(tmp_path / "bad.onnx")], "bad.onnx")


def test_truncated(capsys: Capture, tmp_path: Path) -> None:
    whole = Path(small(tmp_path / "m.onnx")).read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) * 2 // 3])
    refused(capsys, ["check", str(tmp_path / "cut.onnx")], "cut.onnx")


def test_missing_external_data(capsys: Capture, tmp_path: Path) -> None:
    w = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [tensor("x", [2, 64])], [tensor("y", [2, 64])], [w])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(whole, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    refused(capsys, ["check", str(tmp_path / "m.onnx")], "weights.bin")


# ---- graphs that make no sense
BROKEN: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "cyclic": (
        lambda p: model(
            p, [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Relu", ["a"], ["b"], "two")],
            [tensor("x", [2])], [tensor("b", [2])],
        ),
        (),
    ),
    "undefined": (lambda p: model(p, [helper.make_node("Relu", ["z"], ["y"])], [tensor("x", [2])], [tensor("y", [2])]), ("z",)),
    "twice": (
        lambda p: model(
            p, [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])]
        ),
        ("y",),
    ),
    "ill-typed": (
        lambda p: model(
            p, [helper.make_node("Add", ["x", "k"], ["y"])], [tensor("x", [2]), tensor("k", [2], I)], [tensor("y", [2])]
        ),
        ("Add",),
    ),
    "shapes": (
        lambda p: model(
            p, [helper.make_node("MatMul", ["x", "z"], ["y"])], [tensor("x", [2, 3]), tensor("z", [4, 5])], [tensor("y", [2, 5])]
        ),
        ("MatMul",),
    ),
    "negative": (lambda p: model(p, [helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [2, -3])], [tensor("y", [2, -3])]), ("-3",)),
    "zero": (lambda p: model(p, [helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [2, 0])], [tensor("y", [2, 0])]), ("0",)),
    "huge": (
        lambda p: model(p, [helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [2**32, 2**32])], [tensor("y", [2**32, 2**32])]),
        ("input 'x'", "more than any memory"),
    ),
    "huge inside": (
        lambda p: model(
            p, [helper.make_node("Range", ["zero", "limit", "one"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])],
            [tensor("x", [1], I)], [tensor("y", [2**60], I)],
            [numpy_helper.from_array(np.asarray(v, np.int64), n) for n, v in (("zero", 0), ("limit", 2**60), ("one", 1))],
        ),
        ("Range", "more than any memory"),
    ),
    "cut to nothing": (
        lambda p: model(
            p, [helper.make_node("Pad", ["x", "pads"], ["y"])], [tensor("x", [4])], [tensor("y", ["n"])],
            [numpy_helper.from_array(np.array([-3, -3]), "pads")],
        ),
        ("Pad", "negative dim -2"),
    ),
    "index outside": (
        lambda p: model(
            p, [helper.make_node("Gather", ["x", "at"], ["y"])], [tensor("x", [4, 3])], [tensor("y", [1, 3])],
            [numpy_helper.from_array(np.array([-5]), "at")],
        ),
        ("Gather", "index -5", "dim of 4"),
    ),
    "unknown": (
        lambda p: model(p, [helper.make_node("Frobnicate", ["x"], ["y"], "frob")], [tensor("x", [2])], [tensor("y", [2])]),
        ("Frobnicate", "frob"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_graph(case: str, capsys: Capture, tmp_path: Path) -> None:
    make, words = BROKEN[case]
    refused(capsys, ["check", make(tmp_path / "m.onnx")], *words)


# ---- inputs
@pytest.mark.cc
def test_wrong_inputs(capsys: Capture, tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")

    def given(array: np.ndarray[Any, Any], name: str = "x") -> list[str]:
        np.savez(tmp_path / "in.npz", **{name: array})
        return ["check", path, "--inputs", str(tmp_path / "in.npz")]

    refused(capsys, given(np.ones((2, 4), np.float32), "z"), "x", "z")
    refused(capsys, given(np.ones((2, 4), np.float64)), "x", "float64", "float32")
    refused(capsys, given(np.ones((2, 5), np.float32)), "x", "5", "4")
    refused(capsys, given(np.ones(4, np.float32)), "x")
    (tmp_path / "in.npz").write_text("no archive")
    refused(capsys, ["check", path, "--inputs", str(tmp_path / "in.npz")], "in.npz")
    refused(capsys, ["check", path, "--inputs", str(tmp_path / "none.npz")], "none.npz")
    refused(capsys, ["check", path, "--dim", "Q=3"], "Q", "N")
    refused(capsys, ["run", path, "--input", "x"], "NAME=FILE.npy")
    refused(capsys, ["run", path, "--input", f"q={tmp_path / 'in.npz'}"], "q", "x")
    refused(capsys, ["run", path, "--input", f"x={tmp_path / 'in.npz'}"], "x")


@pytest.mark.cc
def test_an_index_outside_reads_the_nearest_element(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", "at"], ["y"])]
    path = model(tmp_path / "m.onnx", nodes, [tensor("x", [4, 3]), tensor("at", [5], I)], [tensor("y", [5, 3])])
    np.save(tmp_path / "at.npy", np.array([2, -1, 2**40, -9, 4]))
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    given = [w for n in ("x", "at") for w in ("--input", f"{n}={tmp_path / n}.npy")]
    assert main(["run", path, *given, "--output", str(tmp_path)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, 0], [6, 9, 9, 0, 9])


# ---- places and tools
def test_unwritable_output(capsys: Capture, tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    (tmp_path / "file").write_text("")
    refused(capsys, ["compile", path, "-o", str(tmp_path / "file")], "file")
    refused(capsys, ["compile", path, "-o", str(tmp_path / "file" / "below")], "file")
    refused(capsys, ["run", path, "--output", str(tmp_path / "file")], "file")
    assert (tmp_path / "file").read_text() == ""
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        refused(capsys, ["compile", path, "-o", str(tmp_path / "locked" / "out")], "locked")


@pytest.mark.cc
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_while_answering(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "polyopt", "check", small(tmp_path / "m.onnx"), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.cc
def test_a_cache_that_cannot_be_written_is_one_warning(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POLYOPT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("polyopt.runtime.cache._warned", threading.Event())
    assert main(["run", small(tmp_path / "m.onnx")]) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "warning" in x.lower() or "models.py" in x]
    assert line.startswith("polyopt: warning: the cache folder") and "POLYOPT_CACHE_DIR" in line


def test_no_compiler(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYOPT_CC", "no-such-compiler")
    refused(capsys, ["check", small(tmp_path / "m.onnx")], "POLYOPT_CC", "no-such-compiler")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_compiler_that_crashes(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = tmp_path / "crash-cc"
    crash.write_text('#!/bin/sh\ncase "$1" in --version|-dumpmachine) echo crash-cc 1.0;; *) kill -SEGV $$;; esac\n')
    crash.chmod(0o755)
    monkeypatch.setenv("POLYOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYOPT_CC", str(crash))
    path = small(tmp_path / "m.onnx")
    refused(capsys, ["compile", path, "-o", str(tmp_path / "out")], "crash-cc")
    assert not (tmp_path / "out").exists()


# ---- what works
@pytest.mark.qemu
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="crosses from x86-64")
def test_compile_for_another_machine(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_CC", "aarch64-linux-gnu-gcc")
    path = small(tmp_path / "m.onnx")
    assert main(["compile", path, "-o", str(tmp_path / "o"), "--isa", "neon"]) == 0
    assert (tmp_path / "o" / "libm_m.so").read_bytes()[18:20] == b"\xb7\x00"  # ELF's number of aarch64
    capsys.readouterr()
    refused(capsys, ["run", path, "--isa", "neon"], "another machine")


@pytest.mark.cc
def test_a_copy_of_a_model_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_CACHE_DIR", str(tmp_path / "cache"))
    small(tmp_path / "one.onnx")
    shutil.copy(tmp_path / "one.onnx", tmp_path / "two.onnx")
    for name in ("one", "two"):
        assert main(["compile", str(tmp_path / f"{name}.onnx"), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name / f"lib{name}.so").exists()


@pytest.mark.cc
def test_check_json_is_alone_on_stdout(capsys: Capture, tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    assert main(["check", path, "--json", "--dim", "N=3"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["ok"] is True and found["oracle"] == "onnxruntime" and found["model"] == path
    assert [o["name"] for o in found["outputs"]] == ["y"]
    assert set(found["outputs"][0]) == {"name", "max_abs", "max_rel", "scale"}
    assert found["outputs"][0]["scale"] > 1
    assert "compile m.onnx" in err


@pytest.mark.cc
def test_dims_come_from_the_inputs(capsys: Capture, tmp_path: Path) -> None:
    ins = [tensor("x", ["N"]), tensor("z", ["M"])]
    path = model(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "z"], ["y"])], ins, [tensor("y", ["K"])])
    refused(capsys, ["compile", path, "-o", str(tmp_path / "out")], "do not broadcast")
    np.savez(tmp_path / "in.npz", x=np.ones(3, np.float32), z=np.arange(3, dtype=np.float32))
    assert main(["check", path, "--inputs", str(tmp_path / "in.npz")]) == 0
    assert main(["check", path]) == 0
    assert main(["bench", path, "--seconds", "0.1", "--inputs", str(tmp_path / "in.npz")]) == 0
    np.save(tmp_path / "x.npy", np.ones(5, np.float32))
    capsys.readouterr()
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "y: float32[5]" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.ones(0, np.float32))
    refused(capsys, ["run", path, "--input", f"x={tmp_path / 'x.npy'}"], "dim N 0")


@pytest.mark.cc
def test_bench_json(capsys: Capture, tmp_path: Path) -> None:
    assert main(["bench", small(tmp_path / "m.onnx"), "--json", "--seconds", "0.1", "--threads", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    (line,) = found["rows"]
    assert {"name", "ours", "ours_median", "peers", "peers_median", "ratio", "error", "note"} == set(line)
    assert 0 < line["ours"] <= line["ours_median"]
    assert line["ratio"] == pytest.approx(line["ours"] / line["peers"]["onnxruntime"])
    assert found["geomean_ratio"] == pytest.approx(line["ratio"])
    assert found["machine"]["cpus"] == os.cpu_count()


@pytest.mark.cc
def test_run_and_inspect_and_compile(capsys: Capture, tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    x = np.linspace(-4, 4, 12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "answers")]) == 0
    assert "y: float32[3, 4]" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "answers" / "y.npy"), np.maximum(x + np.arange(4, dtype=np.float32), 0))
    assert main(["inspect", path]) == 0
    out = capsys.readouterr().out
    assert "input x: f32[N, 4]" in out and "1 Add, 1 Relu" in out
    assert main(["compile", path, "-o", str(tmp_path / "artifact"), "--dim", "N=3"]) == 0
    suffixes = {p.suffix for p in (tmp_path / "artifact").rglob("*")}
    assert {".c", ".h", ".so"} <= suffixes


def test_exit_codes_and_reports(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: Exception) -> Callable[[], int]:
        def run() -> int:
            raise error

        return run

    bug = ValueError("boom\nsecond line")
    bug.add_note("in step lower_to_loops [conv1]")
    assert guarded(failing(bug)) == 70
    err = capsys.readouterr().err
    assert "internal error in step lower_to_loops [conv1]: ValueError: boom second line" in err and "report" in err
    assert err.count("\n") == 1
    assert guarded(failing(InternalError("malformed"))) == 70
    assert guarded(failing(WrongResult("differs"))) == 2
    assert guarded(failing(UserError("wrong"))) == 1
    assert guarded(failing(OSError(28, "No space left on device", "/x"))) == 1
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("POLYOPT_DEBUG", "1")
    assert guarded(failing(UserError("wrong"))) == 1
    assert "Traceback" in capsys.readouterr().err


def test_help_loads_neither_isl_nor_onnx() -> None:
    code = "import sys, polyopt.cli as c; c.main(['--help']); print([m for m in ('islpy', 'onnx', 'onnxruntime') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_script_is_installed() -> None:
    script = shutil.which("polyopt", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("polyopt")
