"""What the command line answers a newcomer: help with examples, the table of `inspect`, one kernel of `explain`, hints in errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyopt.api import reports
from polyopt.cli import commands, main
from polyopt.commands import oracle
from polyopt.commands.explain import kernel_called
from polyopt.errors import ArgumentError
from polyopt.poly.certify import certify

Capture = pytest.CaptureFixture[str]


def write(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> str:
    tensors = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (*inputs, *outputs)]
    graph = helper.make_graph(nodes, "g", kinds[: len(inputs)], kinds[len(inputs) :], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.fixture
def two_products(tmp_path: Path) -> str:
    """x[n, 4] times 4 × 3, then times 3 × 5: two kernels."""
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"], "net/one/MatMul"), helper.make_node("MatMul", ["t", "b"], ["y"], "net/two/MatMul")]
    weights = {n: np.ones(s, np.float32) for n, s in (("a", (4, 3)), ("b", (3, 5)))}
    return write(tmp_path / "m.onnx", nodes, [("x", ["n", 4])], [("y", ["n", 5])], weights)


# ---- help
def test_without_arguments_there_is_help(capsys: Capture) -> None:
    assert main([]) == 0
    plain = capsys.readouterr()
    assert main(["--help"]) == 0
    assert plain.out == capsys.readouterr().out and plain.out.startswith("Usage: polyopt") and plain.err == ""


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_each_command_has_an_example_of_itself(name: str, capsys: Capture) -> None:
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"    polyopt {name} " in out[out.index("Example") :]


def test_a_wrong_usage_names_the_help(capsys: Capture) -> None:
    assert main(["check"]) == 1 and "Try `polyopt check --help`" in capsys.readouterr().err
    assert main(["chek"]) == 1 and "Try `polyopt --help`" in capsys.readouterr().err


# ---- inspect
def test_inspect_is_a_table(two_products: str, capsys: Capture) -> None:
    assert main(["inspect", two_products]) == 0
    out = capsys.readouterr().out.splitlines()
    one = next(x for x in out if x.startswith("one/MatMul"))
    two = next(x for x in out if x.startswith("two/MatMul"))
    assert one.split()[1:] == ["MatMul", "[n,", "3]", "48"]  # 2 · 4 · 3 for each of 2 samples
    assert "[n, 5]" in two and " 60 " in two and "no element-wise nest" in two
    assert "names of kernels start with net/" in out and "2 kernels, 108 flop at n=2" in out[-1]


def test_inspect_in_full_and_as_json(two_products: str, capsys: Capture) -> None:
    assert main(["inspect", two_products, "--full"]) == 0
    out = capsys.readouterr().out
    assert "kernel net/one/MatMul: MatMul -> t [n, 3]" in out and "not fused: net/one/MatMul -> net/two/MatMul: " in out
    assert main(["inspect", two_products, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [k["flops"] for k in found["kernels"]] == [48, 60] and found["flops_at"] == {"n": 2}


# ---- explain
def test_explain_certifies_the_kernel_that_is_named(two_products: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setenv("POLYOPT_CC", "no-such-compiler")  # nothing is built
    monkeypatch.setattr(reports, "certify", lambda scop, nest: (seen.append(nest.name), certify(scop, nest))[1])
    assert main(["explain", two_products, "--kernel", "two/MatMul"]) == 0
    two = capsys.readouterr().out
    assert seen == ["k1_net_two_MatMul"] and two.startswith("kernel net/two/MatMul (") and "FAILS" not in two
    assert main(["explain", two_products]) == 0
    assert capsys.readouterr().out.endswith(two) and len(seen) == 3
    assert main(["explain", two_products, "--kernel", "three"]) == 1
    assert "no such kernel" in capsys.readouterr().err and len(seen) == 3


def test_a_kernel_by_the_end_of_its_name() -> None:
    names = ["a/b/Sum", "a/c/Sum", "Sum/x", "b/Sum"]
    assert [kernel_called(n, names) for n in ("c/Sum", "x", "b/Sum", "a/b/Sum")] == ["a/c/Sum", "Sum/x", "b/Sum", "a/b/Sum"]
    with pytest.raises(ArgumentError, match="3 kernels end so"):
        kernel_called("Sum", names)
    with pytest.raises(ArgumentError, match=r"no such kernel \(it has a/c/Sum, .*inspect"):
        kernel_called("a/c/Som", names)


# ---- hints
def test_dims_that_were_not_given_are_named(tmp_path: Path, capsys: Capture) -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    path = write(tmp_path / "m.onnx", nodes, [("x", ["n", 3, "h", "w"])], [("y", ["n", 3, "p", "q"])], {})
    assert main(["bench", path, "--dim", "h=8"]) == 1
    err = capsys.readouterr().err
    assert "n=2, w=1" in err and "--dim NAME=VALUE" in err and "h=" not in err.split("this is with")[1].split(", not given")[0]


@pytest.mark.cc
def test_made_up_inputs_are_named(two_products: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["check", two_products]) == 0
    assert "inputs made up: x float32[2, 4]" in capsys.readouterr().err
    monkeypatch.setattr(oracle.Deviation, "ok", False)
    assert main(["check", two_products]) == 2
    assert "made up" in capsys.readouterr().err.splitlines()[-1]
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    assert main(["check", two_products, "--inputs", str(tmp_path / "x.npz")]) == 2
    assert "made up" not in capsys.readouterr().err


@pytest.mark.cc
def test_dims_of_an_artifact(two_products: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["compile", two_products, "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main(["run", str(tmp_path / "out"), "--dim", "n=7"]) == 0
    assert "y: float32[7, 5]" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "out"), "--dim", "m=7"]) == 1
    assert "no such dim (it has n)" in capsys.readouterr().err


def test_a_peer_that_is_missing_is_refused_before_anything_is_compiled(two_products: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYOPT_CC", "no-such-compiler")
    monkeypatch.setattr(oracle.importlib.util, "find_spec", lambda name: None)
    for command in ("check", "bench"):
        assert main([command, two_products]) == 1
        assert "pip install 'polyopt[bench]'" in capsys.readouterr().err
