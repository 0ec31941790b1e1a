"""The models of the zoo: valid, the same at each build, read and simplified to what should be left, with the same results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from run_graph import ops, run_graph, simplified

from benchmarks import zoo

ONCE = ("mobilenetv2", "unet", "bert_mini", "vit_tiny")


@pytest.mark.parametrize("name", ONCE)
def test_a_model_is_valid_and_the_same_at_each_build(name):
    model = zoo.build(name)
    onnx.checker.check_model(model, full_check=True)
    assert model.SerializeToString(deterministic=True) == zoo.build(name).SerializeToString(deterministic=True)


def test_unknown_models_and_files(tmp_path, capsys):
    with pytest.raises(ValueError, match="choose one of bert_base, bert_mini"):
        zoo.build("lenet")
    assert zoo.main(["bert_mini", "-o", str(tmp_path / "none" / "m.onnx")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert zoo.main(["unet", "-o", str(tmp_path / "m.onnx")]) == 0
    assert onnx.load(tmp_path / "m.onnx").graph.name == "unet"


def test_bert_computes_what_the_standard_says():
    model = zoo.build("bert_mini")
    inputs = zoo.random_inputs(model, 3)
    expected = ReferenceEvaluator(model).run(None, inputs)
    for graph in simplified(model):
        for found, wanted in zip(run_graph(graph, inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_convolutions_take_in_their_batch_norms():
    model = zoo.build("mobilenetv2")
    graph, small = simplified(model)
    assert Counter(ops(graph))["BatchNormalization"] == 52
    assert Counter(ops(small)) == {"Conv": 52, "Clip": 35, "Add": 10, "ReduceMean": 1, "Gemm": 1}
    inputs = zoo.random_inputs(model, 3)
    (before,), (after,) = run_graph(graph, inputs), run_graph(small, inputs)
    np.testing.assert_allclose(before, after, rtol=1e-3, atol=1e-3 * np.abs(before).max())
    assert before.std() > 0.1


def test_strict_keeps_every_bit():
    model = zoo.build("bert_mini")
    graph, small = simplified(model, "strict")
    inputs = zoo.random_inputs(model, 4)
    for before, after in zip(run_graph(graph, inputs), run_graph(small, inputs), strict=True):
        np.testing.assert_array_equal(before, after)
