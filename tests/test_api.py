"""What users call: schedules with verbs, operators as Scops, models, custom operators, schedules put back into models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from plan_models import MODELS, rand
from run_graph import run_graph, simplified

import polyopt as po

M, N, K = po.dims("M N K")


@po.scop
def gemm(A: po.f32[M, K], B: po.f32[K, N], C: po.f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


@po.scop
def affine_op(x: po.f32[N, 4], y: po.f32[N, 4], alpha: po.f32):
    for i in range(N):
        for j in range(4):
            y[i, j] = alpha * x[i, j] + 1.0


@po.scop
def prefix(x: po.f32[N], y: po.f32[N], z: po.f32[N]):
    for i in range(1, N):
        y[i] = x[i]
        z[i] = y[i] + z[i - 1]


def test_a_schedule_is_immutable_and_verbs_are_methods() -> None:
    s = po.schedule(gemm)
    t = s.distribute("k").tile(i=8, j=16, k=4)
    assert [str(x).split("(")[0] for x in t.history] == ["distribute", "tile"] and not s.history
    assert t.verify().ok and "distribute" in t.explain()
    assert set(s.accesses) == {"S0", "S1"} and not s.dependences.flow.is_empty()
    assert po.schedule(t) is t
    with pytest.raises(AttributeError, match="no verb 'tiel'"):
        s.tiel(i=3)
    with pytest.raises(po.UserError, match="schedule takes"):
        po.schedule(3)  # type: ignore[arg-type]


@pytest.mark.cc
def test_compiled_schedules_compute_the_reference() -> None:
    a, b = rand(21, 33), rand(33, 18)
    for s in (po.schedule(gemm).distribute("k").tile(i=8, j=16, k=4), po.auto(gemm)):
        c = np.zeros((21, 18), np.float32)
        s.compile()(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    with pytest.raises(po.UserError, match="run on the CPU only"):
        po.schedule(gemm).compile(target="cuda")


@pytest.mark.cc
def test_operators_are_schedules() -> None:
    x, w = rand(1, 8, 9, 9), rand(16, 8, 3, 3)
    s = po.op.conv2d(x=po.f32[1, 8, 9, 9], w=po.f32[16, 8, 3, 3], pads=1)
    y = np.zeros((1, 16, 9, 9), np.float32)
    po.auto(s).compile()(x, w, y)
    np.testing.assert_allclose(y, s.reference(x, w), rtol=1e-4, atol=1e-5)  # type: ignore[misc]
    assert po.op.matmul(po.f32[4, 5], po.f32[5, 6]).verify().ok
    assert po.op.Softmax(po.f32[4, 5], axis=-1).verify().ok
    assert "conv" in dir(po.op)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: po.op.conv2d(x=po.f32[1, 8, 9, 9], w=po.f32[16, 8, 3, 3], padz=1), "no attribute 'padz'; its attributes are"),
        (lambda: po.op.conv2d(x=po.f32[1, 7, 9, 9], w=po.f32[16, 8, 3, 3]), "7 input channels do not match"),
        (lambda: po.op.matmul(), "needs its inputs as tensor types"),
        (lambda: po.op.relu(po.f32[3], po.f32[3]), "takes 1 inputs"),
        (lambda: po.register_op("", "Relu", affine_op), "ONNX's own domain"),
        (lambda: po.register_op("d", "Op", prefix), "read before it is written"),
        (lambda: po.register_op("d", "Op", 3), "give a @po.scop function"),
        (lambda: po.compile("nothing.onnx"), "nothing.onnx"),
    ],
)
def test_mistakes_are_one_clear_line(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(po.UserError, match=message) as e:
        call()
    assert "\n" not in str(e.value)


@pytest.mark.cc
def test_a_custom_operator_fuses_into_a_model(tmp_path: Path) -> None:
    po.register_op("my.domain", "AffineOp", affine_op)
    nodes = [helper.make_node("AffineOp", ["a"], ["b"], domain="my.domain", alpha=2.5), helper.make_node("Relu", ["b"], ["c"])]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "ac"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    model = po.compile(helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=opsets))
    a = rand(5, 4)
    np.testing.assert_allclose(model(a), np.maximum(2.5 * a + 1, 0), rtol=1e-5)
    assert len(model.kernels) == 1
    model.save(tmp_path / "art")
    assert (tmp_path / "art" / "certificate.json").exists()
    np.testing.assert_array_equal(po.compile(tmp_path / "art")(a), model(a))
    (name, scop), *_ = model.kernels.items()
    loop = scop.statements[0].iters[0]
    other = model.with_schedule(name, po.schedule(scop).strip_mine(loop, 3))
    np.testing.assert_array_equal(other(a), model(a))
    assert "total" in str(model.profile([a]))


@pytest.mark.cc
def test_a_schedule_is_put_back_and_a_foreign_one_refused() -> None:
    model, inputs = MODELS["reshaped_epilogue"]()
    graph, _ = simplified(model)
    loaded = po.load(model)
    (name,) = loaded.kernels
    s = po.schedule(loaded.kernels[name])
    update = next(x for x in s.scop.statements if x.reduction)
    tiled = s.tile(of=update.name, **{update.iters[0]: 2, update.iters[1]: 4})
    got = loaded.with_schedule(name, tiled).compile().run(inputs)
    np.testing.assert_allclose(got["y"], run_graph(graph, inputs)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(po.UserError, match="not one of this kernel"):
        loaded.with_schedule(name, po.schedule(gemm))
    with pytest.raises(po.UserError, match="there is no kernel 'x'"):
        loaded.with_schedule("x", s)


# ---- misuse
def test_verbs_with_arguments_that_do_not_fit() -> None:
    s = po.schedule(gemm)
    for verb, call in {
        "vectorize": lambda: s.vectorize(),
        "tile": lambda: s.tile(4),
        "skew": lambda: s.skew("i", "j", 1),
        "promote": lambda: s.promote(),
    }.items():
        with pytest.raises(po.ScheduleError, match=rf"^{verb}: .*; write {verb}\("):
            call()
    with pytest.raises(po.ScheduleError, match=r"there is no loop \['i'\]"):
        s.parallelize(["i"])


@pytest.mark.parametrize("dim", [None, 2.5, -3, 0, True, "N; x", 2**60])
def test_dims_of_operators(dim: object) -> None:
    with pytest.raises(po.UserError, match=r"op\.relu: x has the dim .*give a whole number"):
        po.op.relu(po.f32[dim])


def test_operators_with_arguments_that_do_not_fit() -> None:
    with pytest.raises(po.UserError, match="do not fit it"):
        po.op.softmax(po.f32[3, 4], axis="x")
    with pytest.raises(po.UserError, match="give a tensor type such as"):
        po.op.reshape(po.f32[3, 4], "x")
    for domain, name in ((None, "X"), ("d", ""), ("d", 3)):
        with pytest.raises(po.UserError, match="give a domain and a name"):
            po.register_op(domain, name, gemm)


def test_models_with_arguments_that_do_not_fit() -> None:
    for model in (3, None):
        with pytest.raises(po.ModelError, match="a model is a path"):
            po.compile(model)
    for options in ({"threads": True}, {"threads": 10**9}, {"dims": [3]}, {"dims": {"N": True}}, {"dims": {"N": 2**60}}):
        with pytest.raises(po.UserError, match=r"Options\("):
            po.Options(**options)
    with pytest.raises(po.UserError, match=r"options are a po\.Options"):
        po.compile(b"", options=3)
