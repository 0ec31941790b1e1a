"""Fusion: each model's kernels, run by the interpreter of nests, compute what the operators' references do; and how many there are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from plan_models import MODELS, rand
from run_graph import make, simplified
from run_plan import check_model, planned

from polyopt.ir.expr import Load
from polyopt.lower.kernel import lower_group

GROUPS = {
    "conv_bn_relu_residual": 3,  # the copy of the input into a border, conv+bn+add+relu+sigmoid, conv
    "concat_blocked": 4,  # copy, two convs that write inside the concatenation, conv
    "attention": 7,  # q k v, scores+scale, softmax, values, projection+bias+residual … norm
    "reshaped_epilogue": 1,
    "write_through_output": 1,
    "two_branches_no_cycle": 2,
}


@pytest.mark.parametrize("name", MODELS)
def test_plan_computes_the_model(name: str) -> None:
    plan = check_model(*MODELS[name]())
    if name in GROUPS:
        assert len(plan.groups) <= GROUPS[name] + (name == "attention"), [g.name for g in plan.groups]


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed: int) -> None:
    """Random graphs of convolutions, pools, element-wise nodes, concatenations and moves over rank 4."""
    rng = np.random.default_rng(seed)
    x = rand(int(rng.integers(1, 3)), 16, 6, 6, seed=seed)
    nodes, constants, pool = [], {}, [("x", 16)]
    for k in range(9):
        a, ca = pool[rng.integers(len(pool))]
        same = [v for v, c in pool if c == ca]
        kind = rng.choice(["conv", "pointwise", "add", "relu", "concat", "pool", "depthwise", "tanh", "flip", "slice"])
        y = f"v{k}"
        if kind == "conv":
            cy = int(rng.choice([8, 16, 24]))
            constants[f"w{k}"] = rand(cy, ca, 3, 3, seed=k) / 4
            nodes.append(helper.make_node("Conv", [a, f"w{k}"], [y], pads=[1, 1, 1, 1]))
        elif kind == "pointwise":
            cy = int(rng.choice([4, 16, 32]))
            constants[f"w{k}"], constants[f"b{k}"] = rand(cy, ca, 1, 1, seed=k), rand(cy, seed=k)
            nodes.append(helper.make_node("Conv", [a, f"w{k}", f"b{k}"], [y]))
        elif kind == "depthwise":
            cy = ca
            constants[f"w{k}"] = rand(ca, 1, 3, 3, seed=k)
            nodes.append(helper.make_node("Conv", [a, f"w{k}"], [y], pads=[1, 1, 1, 1], group=ca))
        elif kind == "concat":
            b, cb = pool[rng.integers(len(pool))]
            cy = ca + cb
            nodes.append(helper.make_node("Concat", [a, b], [y], axis=1))
        elif kind == "slice" and ca > 8:
            cy = 8
            constants |= {f"s{k}": np.array([4]), f"e{k}": np.array([12]), f"a{k}": np.array([1])}
            nodes.append(helper.make_node("Slice", [a, f"s{k}", f"e{k}", f"a{k}"], [y]))
        elif kind == "flip":
            cy = ca
            nodes.append(helper.make_node("Transpose", [a], [y], perm=[0, 1, 3, 2]))
        elif kind == "pool":
            cy = ca
            nodes.append(helper.make_node("MaxPool", [a], [y], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        elif kind == "add":
            cy = ca
            nodes.append(helper.make_node("Add", [a, same[rng.integers(len(same))]], [y]))
        else:
            cy = ca
            nodes.append(helper.make_node("Tanh" if kind == "tanh" else "Relu", [a], [y]))
        pool.append((y, cy))
    used = {i for n in nodes for i in n.input}
    outs = [v for v, _ in pool[1:] if v not in used or rng.random() < 0.15]
    check_model(make(nodes, {"x": x}, outs, constants), {"x": x}, rtol=1e-3)


def test_why_not_is_said_for_each_pair() -> None:
    model, _ = MODELS["two_branches_no_cycle"]()
    plan = planned(simplified(model)[1])
    assert any("computed from the group's results" in why for why in plan.why_not.values()), plan.why_not
    home = {n.name: g.name for g in plan.groups for n in g.nodes}
    assert all(home.get(a) != home.get(b) for a, b in plan.why_not)


def test_bias_and_activation_accumulate_in_the_output() -> None:
    model, _ = MODELS["reshaped_epilogue"]()
    plan = planned(simplified(model)[1])
    kernel = lower_group(plan, plan.groups[0])
    assert not [t for t in kernel.tensors if t.role == "local"]
    assert len({n.write.tensor for n in kernel.nests}) == 1


def test_equal_groups_have_equal_keys() -> None:
    """Two layers that differ in names and weights only are one kernel."""
    x = rand(1, 16, 6, 6)
    c = {f"{p}{k}": rand(*s, seed=k) for k in range(3) for p, s in (("w", (16, 16, 3, 3)), ("b", (16,)))}
    nodes = []
    for k in range(3):
        nodes += [helper.make_node("Conv", [f"x{k}" if k else "x", f"w{k}", f"b{k}"], [f"c{k}"], pads=[1, 1, 1, 1]),
                  helper.make_node("Relu", [f"c{k}"], [f"x{k + 1}"])]  # fmt: skip
    nodes.append(helper.make_node("Conv", ["x3", "w0"], ["y"], pads=[1, 1, 1, 1]))
    plan = check_model(make(nodes, {"x": x}, ["y"], c), {"x": x})
    keys = [lower_group(plan, g).key for g in plan.groups]
    assert keys[2] == keys[3] and len(set(keys)) == len(keys) - 1


def test_moves_cost_no_kernel() -> None:
    model, _ = MODELS["attention"]()
    plan = planned(simplified(model)[1])
    for g in plan.groups:
        kernel = lower_group(plan, g)
        assert not all(isinstance(n.expr, Load) for n in kernel.nests), g.name
