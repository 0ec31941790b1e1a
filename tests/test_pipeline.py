"""The whole compiler on small models: compiled code computes what the operators' references do."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from plan_models import MODELS
from run_graph import make, run_graph, simplified

from polyopt.errors import ModelError, UserError
from polyopt.options import Options
from polyopt.pipeline import compile_graph, compile_plan, new_trace, plan_graph
from polyopt.runtime.load import load_program

COMPILED = ("conv_bn_relu_residual", "attention", "concat_unaligned", "squeeze_excite", "mish_and_gather", "symbolic_size", "slices_and_expand")


@pytest.mark.cc
@pytest.mark.parametrize(("name", "isa"), [*((n, "native") for n in COMPILED), ("attention", "scalar"), ("symbolic_size", "scalar")])
def test_compiled_models(name: str, isa: str) -> None:
    model, inputs = MODELS[name]()
    graph, _ = simplified(model)
    run = load_program(compile_graph(graph, Options(isa=isa)))
    got = run.run(inputs)
    for o, want in zip(graph.outputs, run_graph(graph, inputs)):
        np.testing.assert_allclose(got[o], want, rtol=1e-3, atol=1e-5 * (1 + np.abs(want).max()))


@pytest.mark.cc
def test_strict_keeps_the_order_of_sums() -> None:
    """At fp=strict a matrix product is the sequential sum, bit by bit."""
    model, inputs = MODELS["two_branches_no_cycle"]()
    graph, _ = simplified(model)
    program = compile_graph(graph, Options(fp="strict"))
    assert set(program.meta["labels"].values()) == {"bit-identical"}
    got = load_program(program).run(inputs)
    (want,) = run_graph(graph, inputs)
    np.testing.assert_allclose(got["y"], want, rtol=1e-3, atol=1e-4)


def test_equal_kernels_are_emitted_once() -> None:
    model, _ = MODELS["attention"]()
    graph, _ = simplified(model)
    program = compile_graph(graph, Options())
    assert len(program.calls) > len(program.kernels)
    assert len({c.label for c in program.calls}) == len(program.calls)


def test_programs_pass_their_verifiers() -> None:
    for name in ("concat_twice_and_output", "outputs_that_alias"):
        model, _ = MODELS[name]()
        graph, _ = simplified(model)
        trace = new_trace()
        program = compile_graph(graph, Options(), trace)
        assert [p.name for p in program.outputs] == list(graph.outputs)
        assert {"plan_fusion", "choose_storage", "apply_recipe", "lower_to_loops", "emit_kernel", "assemble_program"} <= {t.step for t in trace.times}


@pytest.mark.parametrize(
    ("node", "constants", "access"),
    [
        (helper.make_node("Gather", ["x", "at"], ["y"], "pick"), {"at": np.array([5])}, "t0[5, i1]"),
        (helper.make_node("Pad", ["x", "pads"], ["y"], "mirror", mode="reflect"), {"pads": np.array([2, 0, 2, 0])}, "t0[-i0 + 2, i1]"),
    ],
)
def test_a_read_that_some_size_puts_outside_is_refused(node, constants, access) -> None:
    graph, _ = simplified(make([node], {"x": (TensorProto.FLOAT, ["N", 3])}, ["y"], constants))
    with pytest.raises(ModelError) as e:
        compile_graph(graph, Options())
    assert f"{access}, outside the shape [N, 3]" in str(e.value) and "where N = 1: give a value to N" in str(e.value)


@pytest.mark.cc
def test_empty_outputs() -> None:
    cut = helper.make_node("Slice", ["x", "two", "one"], ["y"], "cut")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [cut, helper.make_node("ReduceSum", ["y", "zero"], ["z"], "none", keepdims=0)]
    graph, _ = simplified(make(nodes, {"x": x}, ["y", "z"], {k: np.array([v]) for k, v in (("zero", 0), ("one", 1), ("two", 2))}))
    got = load_program(compile_graph(graph, Options())).run({"x": x})
    assert got["y"].shape == (0, 3)
    np.testing.assert_array_equal(got["z"], np.zeros(3, np.float32))


def test_a_schedule_for_an_unknown_kernel_is_refused() -> None:
    model, _ = MODELS["reshaped_epilogue"]()
    graph, _ = simplified(model)
    plan = plan_graph(graph, Options(), new_trace())
    with pytest.raises(UserError, match="there is no kernel 'nobody'; the kernels are"):
        compile_plan(plan, graph.outputs, Options(), new_trace(), {"nobody": None})  # type: ignore[dict-item]
