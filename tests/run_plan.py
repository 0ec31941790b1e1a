"""Runs the kernels of a plan with the interpreter of nests: the check of fusion, storage and lowering, without isl and without C.

Buffers start as garbage, so that a cell which a kernel forgets to write, a border included, shows in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto
from run_graph import run_graph, simplified
from run_nests import _Run, np_type

from polyopt.ir.graph import Graph, Plan
from polyopt.ir.verify import verify_plan
from polyopt.lower.kernel import lower_group
from polyopt.options import Options
from polyopt.passes.fusion import plan_fusion
from polyopt.passes.storage import choose_storage

Array = np.ndarray[Any, Any]


def planned(graph: Graph) -> Plan:
    """The plan with storage, verified."""
    plan = plan_fusion(graph, Options())
    verify_plan(plan)
    plan = choose_storage(plan, Options())
    verify_plan(plan)
    return plan


def run_plan(plan: Plan, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs, by the plan's kernels in order."""
    graph = plan.graph
    dims: dict[str, int] = {}
    for v in graph.inputs:
        for d, n in zip(graph.values[v].shape or (), inputs[v].shape):
            if d.names():
                dims[next(iter(d.names()))] = n
    buffers: dict[str, Array] = {}
    for v, s in plan.storage.items():
        if s.buffer in graph.constants:
            buffers[s.buffer] = graph.constants[s.buffer]
        elif s.buffer in graph.inputs:
            buffers[s.buffer] = inputs[s.buffer]
        elif s.buffer not in buffers:
            dtype = graph.values[v].dtype
            assert dtype is not None
            garbage = np.nan if dtype.is_float else 99
            buffers[s.buffer] = np.full([d.evaluate(dims) for d in s.shape], garbage, np_type(dtype))
    for group in plan.groups:
        kernel = lower_group(plan, group)
        arrays: dict[str, Array] = {}
        args = iter(kernel.args)
        for t in kernel.tensors:
            shape = [d.evaluate(dims) for d in t.shape]
            if t.role == "local":
                arrays[t.name] = np.full(shape, np.nan if t.dtype.is_float else 99, np_type(t.dtype))
            else:
                arrays[t.name] = buffers[next(args)].reshape(shape)
        written = {k: np.zeros(a.shape, np.bool_) for k, a in arrays.items()}
        runner = _Run(arrays)
        with np.errstate(all="ignore"):
            for n in kernel.nests:
                runner.nest(n, {p: dims[p] for p in kernel.params}, written)
    return [buffers[o] for o in graph.outputs]


def check_model(model: ModelProto, inputs: Mapping[str, Array], rtol: float = 1e-4) -> Plan:
    """Plan a model, run it, compare with the operators' references; gives the plan."""
    graph, small = simplified(model)
    plan = planned(small)
    want = run_graph(graph, inputs)
    got = run_plan(plan, inputs)
    for name, w, g in zip(graph.outputs, want, got):
        assert g.dtype == w.dtype and g.shape == w.shape, name
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=1e-5 * (1 + np.abs(w).max(initial=0)), err_msg=name)
    return plan
