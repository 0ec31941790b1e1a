"""Storage: index maps and their inverses, blocked channels, borders, shared buffers; joined dims."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from plan_models import MODELS, rand
from run_graph import make, simplified
from run_plan import check_model, planned

from polyopt.errors import InternalError
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import f32
from polyopt.ir.expr import Access, Binary, Const, Load
from polyopt.ir.graph import Shape
from polyopt.lower.collapse import collapse
from polyopt.lower.kernel import lower_group
from polyopt.lower.physical import border_nests, split_blocks
from polyopt.ops.registry import Nest
from polyopt.ops.structure import compose, dim_vars, invert
from polyopt.passes.fusion_facts import find_facts
from polyopt.passes.sharing import prove_sharing
from polyopt.passes.storage import _walked, blocked_storage

D = dim_vars(4)


def shape(*sizes: int) -> Shape:
    return tuple(affine(s) for s in sizes)


@pytest.mark.parametrize(
    ("index", "of", "into"),
    [
        ((D[1], D[0] * 64 + D[2]), shape(4, 64, 64), shape(64, 256)),
        ((D[0] // 64, D[1], D[0] % 64), shape(256, 64), shape(4, 64, 64)),
        ((D[0], D[2], D[1]), shape(2, 3, 4), shape(2, 4, 3)),
        ((D[0] // 4 % 8, D[0] % 4, D[0] // 32), shape(96), shape(8, 4, 3)),
        ((D[0] * 6 + D[1] * 2 + D[2],), shape(4, 3, 2), shape(24)),
        ((D[0] // 6, D[0] // 2 % 3 * 5 + D[1], D[0] % 2), shape(24, 5), shape(4, 15, 2)),
    ],
)
def test_inverse_of_a_bijection(index: Shape, of: Shape, into: Shape) -> None:
    inverse = invert(index, of, into)
    assert inverse is not None
    for point in itertools.product(*(range(int(e)) for e in of)):
        at = {f"d{k}": v for k, v in enumerate(point)}
        image = {f"d{k}": x.evaluate(at) for k, x in enumerate(index)}
        assert tuple(x.evaluate(image) for x in inverse) == point
    assert compose(index, inverse, into) == dim_vars(len(into))


@pytest.mark.parametrize(
    ("index", "of", "into"),
    [
        ((D[0] // 2,), shape(4), shape(2)),
        ((D[0] * 2,), shape(4), shape(8)),
        ((D[0] + 1,), shape(4), shape(5)),
        ((D[0], D[0]), shape(4), shape(4, 4)),
        ((D[0] * 2 + D[1],), shape(4, 3), shape(9)),
    ],
)
def test_what_is_no_bijection_has_no_inverse(index: Shape, of: Shape, into: Shape) -> None:
    assert invert(index, of, into) is None


def test_blocked_storage_is_injective_and_its_border_is_disjoint() -> None:
    logical, halo = shape(2, 20, 3, 4), ((0, 0), (0, 0), (1, 2), (0, 1))
    s = blocked_storage("t", logical, halo)
    hit = np.zeros([int(e) for e in s.shape], int)
    for point in itertools.product(*(range(int(e)) for e in logical)):
        hit[tuple(x.evaluate({f"d{k}": v for k, v in enumerate(point)}) for x in s.indices)] += 1
    for n in border_nests("t", f32, logical, s):
        for point in itertools.product(*(range(int(e)) for _, e in n.iters)):
            at = {name: v for (name, _), v in zip(n.iters, point)}
            cell = [i.evaluate(at) for i in n.write.affine_indices()]
            hit[tuple(x.evaluate({f"d{k}": v for k, v in enumerate(cell)}) for x in s.indices)] += 1
    assert hit[:, 0].min() == hit.max() == 1  # every cell of the full block once
    assert hit[:, 1, ..., 4:].max() == 0  # nothing beyond channel 20


def test_pieces_of_a_concatenation_live_inside_it() -> None:
    plan = planned(simplified(MODELS["concat_blocked"]()[0])[1])
    assert plan.storage["a"].buffer == plan.storage["b"].buffer == "k"
    assert not any(n.op == "Concat" for g in plan.groups for n in g.nodes)
    assert plan.storage["k"].halo[2:] == ((1, 1), (1, 1))


def test_an_unaligned_piece_is_copied() -> None:
    plan = planned(simplified(MODELS["concat_unaligned"]()[0])[1])
    assert plan.storage["b"].buffer == "b"
    assert any(n.op == "Concat" for g in plan.groups for n in g.nodes)


@pytest.mark.parametrize(
    ("mode", "n", "pads"),
    [
        ("reflect", 3, [2, 0]), ("reflect", 3, [0, 2]), ("reflect", 4, [3, 3]), ("reflect", 2, [1, 0]),
        ("wrap", 2, [1, 0]), ("wrap", 3, [3, 0]), ("wrap", 3, [0, 3]), ("wrap", 4, [3, 1]), ("edge", 1, [2, 1]), ("edge", 3, [1, 1]),
    ],
)  # fmt: skip
def test_a_mirrored_piece_is_not_where_the_padded_tensor_lives(mode: str, n: int, pads: list[int]) -> None:
    """n-1-i spans all of a dim of n elements, as i does, but the tensor must not be computed there in order."""
    nodes = [helper.make_node("Neg", ["x"], ["e"]), helper.make_node("Pad", ["e", "p"], ["y"], mode=mode)]
    x = np.arange(1, n + 1, dtype=np.float32)
    check_model(make(nodes, {"x": x}, ["y"], {"p": np.array(pads)}, opset=19), {"x": x})
    two = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    check_model(make(nodes, {"x": two}, ["y"], {"p": np.array([0, pads[0], 0, pads[1]])}, opset=19), {"x": two})


def faulty(nodes: list[NodeProto], x: np.ndarray, constants: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str, fault: Any) -> None:
    """The proof refuses the plan that a fault of the chooser gives, and accepts it without the fault."""
    graph = simplified(make(nodes, {"x": x}, [nodes[-1].output[0]], constants, opset=19))[1]
    assert prove_sharing(planned(graph), find_facts(planned(graph).graph)) >= 0
    monkeypatch.setattr(f"polyopt.passes.storage.{name}", fault)
    with pytest.raises(InternalError, match=r"^storage of .* in buffer "):
        planned(graph)


def test_the_proof_of_shared_buffers_finds_a_mirrored_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["e"]), helper.make_node("Pad", ["e", "p"], ["y"], mode="reflect")]
    faulty(nodes, rand(3), {"p": np.array([2, 0])}, monkeypatch, "_walked", lambda n, source, shape: {n.iters[0][0]: var("d0")})


def test_the_proof_of_shared_buffers_finds_zeros_that_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["a", "d"], ["k"], axis=2),
        helper.make_node("Conv", ["k", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    faulty(nodes, rand(1, 16, 4, 5), {"w": rand(16, 16, 3, 3)}, monkeypatch, "_Chooser._agrees", lambda *_: True)


def test_the_proof_of_shared_buffers_finds_a_group_that_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["e"]), helper.make_node("Concat", ["e", "e"], ["k"], axis=0), helper.make_node("Exp", ["k"], ["y"])]
    nodes[1:1] = [helper.make_node("Softmax", ["e"], ["s"], axis=0)]
    nodes[2].input[1] = "s"
    faulty(nodes, rand(5, 3), {}, monkeypatch, "_Chooser.is_empty", lambda c, g: any(n.op == "Concat" for n in g.nodes) or g.nodes[0].op == "Neg")


def test_a_diagonal_is_not_where_the_matrix_lives() -> None:
    its = (("i", affine(3)),)
    nest = Nest(its, Access("y", (var("i"),)), Load(Access("x", (var("i"), var("i"))), f32))
    assert _walked(nest, nest.expr.access.affine_indices(), shape(3, 3)) is None  # type: ignore[union-attr]


@pytest.mark.parametrize("axis", [1, 2])
def test_a_piece_that_is_read_beyond_its_border_finds_zeros_there(axis: int) -> None:
    """A piece of the rows of a tensor with a border has the next piece's rows below it, not zeros."""
    x, w, v = rand(1, 16, 4, 5), rand(16, 16, 3, 3), rand(8, 16 * (3 - axis), 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["a", "d"], ["k"], axis=axis),
        helper.make_node("Conv", ["k", "v"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["y", "one"], ["u"]),
        helper.make_node("Conv", ["a", "w2"], ["z"], pads=[1, 1, 1, 1]),
    ]
    check_model(make(nodes, {"x": x}, ["u", "z"], {"w": w, "v": v, "w2": w + 1, "one": np.float32(1)}), {"x": x})


def test_pieces_of_another_rank_leave_the_border_to_the_concatenation() -> None:
    x, w, v = rand(1, 16, 4, 5), rand(16, 16), rand(8, 32, 3, 3)
    nodes = [
        helper.make_node("Reshape", ["x", "five"], ["x5"]),
        helper.make_node("Exp", ["x5"], ["e5"]),
        helper.make_node("Sin", ["x5"], ["s5"]),
        helper.make_node("Reshape", ["e5", "four"], ["e"]),
        helper.make_node("Reshape", ["s5", "four"], ["s"]),
        helper.make_node("Concat", ["e", "s"], ["k"], axis=1),
        helper.make_node("Conv", ["k", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    consts = {"w": w, "v": v, "five": np.array([1, 16, 4, 5, 1]), "four": np.array([1, 16, 4, 5])}
    check_model(make(nodes, {"x": x}, ["y"], consts), {"x": x})


def test_zeros_replace_tests_only_beside_finite_constants() -> None:
    x = rand(1, 16, 5, 5)
    for bad, tested in ((np.inf, True), (1.0, False)):
        w = rand(16, 16, 3, 3)
        w[0, 0, 0, 0] = bad
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
        plan = planned(simplified(make(nodes, {"x": x}, ["y"], {"w": w}))[1])
        kernel = lower_group(plan, plan.groups[-1])
        assert any(n.where for n in kernel.nests) == tested


def test_outputs_are_dense_in_their_own_buffer() -> None:
    for name in MODELS:
        plan = planned(simplified(MODELS[name]()[0])[1])
        for o in plan.graph.outputs:
            s = plan.storage[o]
            assert s.buffer == o and s.indices == dim_vars(len(s.shape)) and not s.halo, (name, o)


def test_padding_of_an_input_that_is_also_read_plainly() -> None:
    x = rand(1, 3, 5, 5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "v"], ["b"], pads=[2, 0, 0, 2]),
        helper.make_node("MaxPool", ["x"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    check_model(make(nodes, {"x": x}, ["a", "b", "c"], {"w": rand(3, 3, 3, 3), "v": rand(4, 3, 3, 3)}), {"x": x})


def test_collapse_makes_one_loop_of_a_dense_map() -> None:
    its = (("i", affine(3)), ("j", affine(4)), ("k", affine(5)))
    at = tuple(var(i) for i, _ in its)
    y, x, b = Access("y", at), Access("x", at), Access("b", (var("k"),))
    shapes = {"x": shape(3, 4, 5), "y": shape(3, 4, 5), "b": shape(5)}
    alone = Nest(its, y, Binary("+", Load(x, f32), Const(1.0, f32)))
    (n,), now = collapse((alone,), {k: shapes[k] for k in "xy"}, frozenset())
    assert n.iters == (("i", affine(60)),) and now["x"] == shape(60)
    (n,), now = collapse((Nest(its, y, Binary("+", Load(x, f32), Load(b, f32))),), shapes, frozenset())
    assert n.iters == (("i", affine(12)), ("k", affine(5))) and now == {"x": shape(12, 5), "y": shape(12, 5), "b": shape(5)}


def test_split_blocks_leaves_linear_indices() -> None:
    c = var("c")
    at = (c // 16, var("h"), c % 16)
    nest = Nest((("c", affine(20)), ("h", affine(3))), Access("y", at), Load(Access("x", at), f32))
    (n,) = split_blocks((nest,))
    assert [i for i, _ in n.iters] == ["cb", "h", "cl"]
    assert n.write.indices == (var("cb"), var("h"), var("cl"))
    assert n.where == (affine(19) - var("cb") * 16 - var("cl"),)
