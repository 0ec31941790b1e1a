"""Reading ONNX: files, dims, constants, order, branches, functions; and one line for everything that is broken."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from run_graph import make, ops, run_graph

from polyopt.errors import ArgumentError, ModelError, UserError
from polyopt.frontends.onnx import read_onnx
from polyopt.frontends.onnx.dims import valid_name
from polyopt.passes.infer_shapes import infer_shapes

node, info = helper.make_node, helper.make_tensor_value_info
F, I = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def refused(source, *parts: str, dims=None, error: type[UserError] = ModelError) -> str:
    with pytest.raises(error) as e:
        read_onnx(source, dims or {})
    text = str(e.value)
    assert "\n" not in text, text
    for part in parts:
        assert part in text, text
    return text


def simple() -> ModelProto:
    return make([node("Relu", ["x"], ["y"])], {"x": (F, ["N", 3])}, ["y"])


# ---- files


def test_a_path_bytes_and_a_proto_give_the_same_graph(tmp_path):
    model = simple()
    path = tmp_path / "small.onnx"
    onnx.save(model, path)
    for source in (path, str(path), model, model.SerializeToString()):
        graph = read_onnx(source)
        assert ops(graph) == ["Relu"] and graph.inputs == ("x",) and graph.outputs == ("y",)
        assert graph.name == ("small" if isinstance(source, str) or source is path else "g")


def test_broken_files(tmp_path):
    refused(tmp_path / "none.onnx", "none.onnx does not exist")
    refused(tmp_path, "is a folder")
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    refused(empty, "empty.onnx is empty")
    text = tmp_path / "text.onnx"
    text.write_bytes(b"this is not a model at all\n" * 20)
    refused(text, "text.onnx is not an ONNX model")
    big = make([node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"], {"c": np.ones((2000, 3), np.float32)[:2]})
    data = big.SerializeToString()
    short = tmp_path / "short.onnx"
    short.write_bytes(data[: len(data) // 2])
    refused(short, "short.onnx")
    refused(b"", "no graph")
    refused(ModelProto(), "no graph")


def external(tmp_path, location="w.bin", data=True, **entries) -> ModelProto:
    w = np.arange(2000, dtype=np.float32)
    t = TensorProto(name="w", data_type=F, dims=[2000], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "8", "length": "8000", **entries}.items():
        e = t.external_data.add()
        e.key, e.value = key, value
    if data:
        (tmp_path / "w.bin").write_bytes(b"12345678" + w.tobytes())
    model = make([node("Add", ["x", "w"], ["y"])], {"x": (F, [2000])}, ["y"])
    model.graph.initializer.append(t)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return model


def test_external_data(tmp_path):
    external(tmp_path)
    graph = read_onnx(tmp_path / "m.onnx")
    np.testing.assert_array_equal(graph.constants["w"], np.arange(2000, dtype=np.float32))


def test_external_data_that_is_missing_short_or_outside(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    refused(external(tmp_path), "external file 'w.bin'", "path")
    external(inner, data=False)
    refused(inner / "m.onnx", "constant 'w'", "w.bin is missing")
    for outside in ("../w.bin", "a/../../w.bin", str(tmp_path / "w.bin"), ""):
        external(inner, location=outside)
        refused(inner / "m.onnx", "constant 'w'", "refused")
    (inner / "link.bin").symlink_to(tmp_path / "w.bin")
    external(inner, location="link.bin")
    refused(inner / "m.onnx", "refused")
    external(inner, length="4")
    refused(inner / "m.onnx", "needs 8000 bytes")
    external(inner, offset="-4")
    refused(inner / "m.onnx", "needs 8000 bytes")
    external(inner, offset="zwei")
    refused(inner / "m.onnx", "not a number")
    external(inner, offset=str(2**70))
    refused(inner / "m.onnx", "ends too early")
    external(inner, location="w\0.bin")
    refused(inner / "m.onnx", "refused")
    external(inner)
    (inner / "w.bin").write_bytes(b"too short")
    refused(inner / "m.onnx", "ends too early")


# ---- versions


def test_versions():
    newest = onnx.defs.onnx_opset_version()
    model = simple()
    model.opset_import[0].version = newest + 1
    refused(model, f"opset {newest + 1}", f"opset {newest}")
    del model.opset_import[:]
    refused(model, "opset_import is empty")
    old = make([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], opset=6)
    assert ops(read_onnx(old)) == ["Relu"]
    zero = simple()
    zero.opset_import[0].version = 0
    refused(zero, "opset 0")


# ---- dims


def test_named_dims_become_parameters():
    model = make([node("Relu", ["x"], ["y"])], {"x": (F, ["p2o.Dim.0", 3, "batch size", "while", "exists", "2nd"])}, ["y"])
    graph = read_onnx(model)
    assert [str(d) for d in graph.values["x"].shape] == ["p2o_Dim_0", "3", "batch_size", "dim_while", "dim_exists", "dim_2nd"]


def test_equal_names_are_one_dim_and_similar_ones_are_two():
    model = make([node("Add", ["a", "b"], ["y"])], {"a": (F, ["n.1", "n_1"]), "b": (F, ["n.1", "n_1"])}, ["y"])
    assert [str(d) for d in read_onnx(model).values["b"].shape] == ["n_1", "n_1_2"]


def test_dims_without_a_name():
    model = make([node("Relu", ["in put"], ["y"])], {"in put": (F, ["?", 3, "?", "", None])}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    assert [str(d) for d in read_onnx(model).values["in put"].shape] == [f"in_put_d{k}" for k in range(5)]


def test_specialised_dims():
    model = make([node("Relu", ["x"], ["y"])], {"x": (F, ["p2o.Dim.0", 3, "h"])}, ["y"])
    for name in ("p2o.Dim.0", "p2o_Dim_0"):
        graph = read_onnx(model, {name: 4})
        assert [str(d) for d in graph.values["x"].shape] == ["4", "3", "h"] and graph.dims() == ("h",)
    refused(model, "dim 'w' is not a dim of this model (its dims: h, p2o_Dim_0)", dims={"w": 1}, error=UserError)
    refused(model, "at least 1", dims={"h": 0}, error=UserError)
    refused(model, "at least 1", dims={"h": -3}, error=UserError)
    fixed = make([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    refused(fixed, "all its shapes are fixed", dims={"N": 2}, error=UserError)


def test_bad_shapes():
    model = simple()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -7
    refused(model, "input 'x'", "-7")
    model = simple()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    refused(model, "input 'x' declares no shape")


def test_valid_names():
    assert valid_name("a-b c") == "a_b_c" and valid_name("...") == "dim" and valid_name("7") == "dim_7"
    assert valid_name("int") == "dim_int" and valid_name("MOD") == "dim_MOD" and valid_name("n", frozenset({"n", "n_2"})) == "n_3"


# ---- types


def test_inputs_that_are_no_supported_tensor():
    model = simple()
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", F, [2]))
    refused(model, "input 'x' is a sequence")
    refused(make([node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [2])}, ["y"]), "string", "not supported")
    refused(make([node("Identity", ["x"], ["y"])], {"x": (TensorProto.COMPLEX64, [2])}, ["y"]), "complex64")


def test_ill_typed_models_name_the_node():
    mixed = make([node("Relu", ["a"], ["t"]), node("Add", ["t", "b"], ["y"], name="sum")], {"a": (F, [2]), "b": (I, [2])}, ["y"])
    refused(mixed, "node 'sum' (Add) is ill-typed")
    ranks = make([node("Relu", ["a"], ["t"]), node("Conv", ["t", "t"], ["y"], name="c")], {"a": (F, [2])}, ["y"])
    refused(ranks, "node 'c' (Conv) is ill-typed")
    declared = simple()
    declared.graph.output[0].CopyFrom(info("y", I, None))
    refused(declared, "node", "(Relu)")


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (node("Relu", ["x", "x"], ["y"], name="n"), "input size 2"),
        (node("Conv", ["x"], ["y"], name="n"), "input size 1"),
        (node("Cast", ["x"], ["y"], name="n"), "'to' is missing"),
        (node("Flatten", ["x"], ["y"], name="n", axis=1.5), "axis"),
        (node("Flatten", ["x"], ["y"], name="n", colour=1), "colour"),
    ],
)
def test_nodes_that_do_not_fit_their_operator(bad, part):
    refused(make([bad], {"x": X}, ["y"]), f"node 'n' ({bad.op_type}) is broken", part)


def test_a_cast_to_an_unsupported_type():
    refused(make([node("Cast", ["x"], ["y"], to=TensorProto.STRING, name="c")], {"x": X}, ["y"]), "node 'c' (Cast)", "string")


# ---- names, order


def test_node_names_are_unique_and_not_empty():
    nodes = [node("Relu", ["x"], ["a"], name="n"), node("Relu", ["a"], ["b"], name="n"), node("Relu", ["b"], ["c"]), node("Relu", ["c"], ["y"])]
    graph = read_onnx(make(nodes, {"x": X}, ["y"]))
    assert [n.name for n in graph.nodes] == ["n", "n_2", "relu_2", "relu_3"]


def test_nodes_are_sorted():
    nodes = [node("Neg", ["b"], ["y"]), node("Exp", ["a"], ["b"]), node("Relu", ["x"], ["a"])]
    graph = read_onnx(make(nodes, {"x": X}, ["y"]))
    assert ops(graph) == ["Relu", "Exp", "Neg"]


def test_a_long_unsorted_chain_does_not_recurse():
    nodes = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    graph = read_onnx(make(nodes[::-1], {"v0": X}, ["v3000"]))
    assert len(graph.nodes) == 3000 and graph.nodes[0].inputs == ("v0",)


def test_broken_graphs():
    a, b = node("Add", ["x", "q"], ["p"], name="a"), node("Neg", ["p"], ["q"], name="b")
    refused(make([a, b], {"x": X}, ["q"]), "cycle", "b -> a -> b")
    refused(make([node("Neg", ["x"], ["x1"], name="a"), node("Exp", ["x"], ["x1"], name="b")], {"x": X}, ["x1"]), "'x1' is written twice", "'a'")
    refused(make([node("Neg", ["x"], ["x"], name="a")], {"x": X}, ["x"]), "'a'", "also an input")
    refused(make([node("Neg", ["z"], ["y"], name="a")], {"x": X}, ["y"]), "node 'a' (Neg) reads 'z', which nothing writes")
    refused(make([node("Neg", ["x"], ["y"])], {"x": X}, ["u"]), "output 'u' is written by no node")
    twice = make([node("Neg", ["x"], ["y"])], {"x": X}, ["y"])
    twice.graph.input.append(twice.graph.input[0])
    refused(twice, "lists input 'x' twice")
    constants = make([node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"], {"c": np.float32(1)})
    constants.graph.initializer.append(constants.graph.initializer[0])
    refused(constants, "two constants named 'c'")


# ---- constants


def test_initializers_that_are_inputs_too_are_constants():
    model = make([node("Add", ["x", "c"], ["y"])], {"x": X, "c": np.float32([1, 2, 3])}, ["y"], {"c": np.float32([1, 2, 3])})
    graph = read_onnx(model)
    assert graph.inputs == ("x",) and graph.constants["c"].tolist() == [1, 2, 3]


def test_constants_of_all_forms():
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.float32([5, 7])), numpy_helper.from_array(np.int64([1, 3])), [2, 3])
    coordinates = helper.make_sparse_tensor(numpy_helper.from_array(np.float32([5, 7])), numpy_helper.from_array(np.int64([[0, 1], [1, 0]])), [2, 3])
    forms = {
        "value": (numpy_helper.from_array(np.float32([[1], [2]])), np.float32([[1], [2]])),
        "value_float": (1.5, np.float32(1.5)),
        "value_floats": ([1.5, 2, 3], np.float32([1.5, 2, 3])),
        "value_int": (3, np.int64(3)),
        "value_ints": ([1, 2], np.int64([1, 2])),
        "sparse_value": (sparse, np.float32([[0, 5, 0], [7, 0, 0]])),
    }
    for form, (value, expected) in forms.items():
        graph = read_onnx(make([node("Constant", [], ["c"], **{form: value}), node("Identity", ["c"], ["y"])], {"x": X}, ["y"]))
        found = graph.constants["c"]
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    graph = read_onnx(make([node("Constant", [], ["c"], sparse_value=coordinates), node("Identity", ["c"], ["y"])], {"x": X}, ["y"]))
    np.testing.assert_array_equal(graph.constants["c"], forms["sparse_value"][1])


def test_sparse_initializers():
    model = make([node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"])
    values = numpy_helper.from_array(np.float32([5, 7]), "c")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([1, 3])), [2, 3]))
    np.testing.assert_array_equal(read_onnx(model).constants["c"], np.float32([[0, 5, 0], [7, 0, 0]]))


@pytest.mark.parametrize(
    ("shape", "where", "why"),
    [
        ([2, 3], [-1, 3], "an index is negative"),
        ([2, 3], [1, 6], "do not fit"),
        ([-2, 3], [1, 3], "negative dim"),
        ([2**40, 2**40], [1, 3], "memory"),
    ],
)
def test_broken_sparse_initializers(shape, where, why):
    model = make([node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"])
    values = numpy_helper.from_array(np.float32([5, 7]), "c")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64(where)), shape))
    refused(model, "constant 'c'", why)


def test_broken_constants():
    model = make([node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"], {"c": np.float32([1, 2, 3])})
    model.graph.initializer[0].raw_data = b"1234567"
    refused(model, "constant 'c' of shape [3] holds broken data")
    refused(make([node("Constant", [], ["y"], value_string="a", name="k")], {"x": X}, ["y"]), "node 'k' (Constant)", "value_string")


def test_a_constant_output_is_written_by_a_node():
    model = make([node("Neg", ["x"], ["y"])], {"x": X}, ["y", "c"], {"c": np.float32([1, 2])})
    graph = read_onnx(model)
    assert graph.outputs == ("y", "c") and "c" not in graph.constants and "c" in graph.producer()
    y, c = run_graph(infer_shapes(graph), {"x": X})
    np.testing.assert_array_equal(c, [1, 2])
    np.testing.assert_array_equal(y, -X)


# ---- unsupported operators, control flow, functions


def test_all_unsupported_operators_are_listed_at_once():
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="f1"), node("Frobnicate", ["a"], ["b"], name="f2"),
        node("Magic", ["b"], ["c"], domain="com.acme", name="m"), node("Gelu", ["c"], ["d"], name="g"),
        node("StringNormalizer", ["d"], ["y"], name="s"),
    ]  # fmt: skip
    model = make(nodes, {"x": X}, ["y"], opset=17)
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    parts = ("Frobnicate (no operator of ONNX): nodes 'f1', 'f2'", "com.acme::Magic: node 'm'", "StringNormalizer (opset 17): node 's'")
    refused(model, *parts, "po.register_op", "Gelu (not in opset 17; it exists from opset 20 on): node 'g'")
    many = make([node("Frobnicate", ["x"], [f"y{i}"], name=f"n{i}") for i in range(9)], {"x": X}, ["y0"])
    refused(many, "'n4' and 4 more")


def branches(condition_nodes, constants=None, inputs=None):
    then_graph = helper.make_graph(
        [node("Add", ["x", "k"], ["t"], name="add")], "then", [], [info("t", F, None)],
        [numpy_helper.from_array(np.float32(10), "k")],
    )  # fmt: skip
    else_graph = helper.make_graph([node("Neg", ["x"], ["t"])], "else", [], [info("t", F, None)])
    nodes = [*condition_nodes, node("If", ["c"], ["r"], name="choose", then_branch=then_graph, else_branch=else_graph), node("Exp", ["r"], ["y"])]
    return make(nodes, inputs or {"x": X}, ["y"], constants)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_branch_with_a_constant_condition_is_taken(wanted):
    graph = read_onnx(branches([], {"c": np.array(wanted)}))
    assert "If" not in ops(graph)
    (y,) = run_graph(infer_shapes(graph), {"x": X})
    np.testing.assert_allclose(y, np.exp(X + 10 if wanted else -X), rtol=1e-6)


def test_a_branch_whose_condition_a_fixed_shape_decides():
    condition = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["n"]), node("Constant", [], ["three"], value_int=3),
        node("Equal", ["n", "three"], ["c"]),
    ]  # fmt: skip
    (y,) = run_graph(infer_shapes(read_onnx(branches(condition, {"one": np.int64(1)}))), {"x": X})
    np.testing.assert_allclose(y, np.exp(X + 10), rtol=1e-6)
    refused(branches(condition, {"one": np.int64(1)}, {"x": (F, [2, "N"])}), "If (control flow): node 'choose'", "condition is known")


def test_nested_branches():
    inner = helper.make_graph([node("Add", ["k", "x"], ["t"])], "inner", [], [info("t", F, None)])
    other = helper.make_graph([node("Neg", ["k"], ["t"])], "other", [], [info("t", F, None)])
    outer = helper.make_graph(
        [node("Sqrt", ["two"], ["k"]), node("If", ["no"], ["u"], then_branch=other, else_branch=inner)],
        "outer", [], [info("u", F, None)],
    )  # fmt: skip
    rest = helper.make_graph([node("Neg", ["x"], ["u"])], "rest", [], [info("u", F, None)])
    nodes = [node("Not", ["no"], ["yes"]), node("If", ["yes"], ["y"], then_branch=outer, else_branch=rest)]
    model = make(nodes, {"x": X}, ["y"], {"no": np.array(False), "two": np.float32(2)})
    (y,) = run_graph(infer_shapes(read_onnx(model)), {"x": X})
    np.testing.assert_allclose(y, np.sqrt(np.float32(2)) + X, rtol=1e-6)


def test_loops_are_refused_by_name():
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["v", "v"], ["w"])], "body",
        [info("i", I, []), info("c", TensorProto.BOOL, []), info("v", F, None)], [info("d", TensorProto.BOOL, []), info("w", F, None)],
    )  # fmt: skip
    model = make([node("Loop", ["n", "", "x"], ["y"], name="l", body=body)], {"x": X, "n": (I, [])}, ["y"])
    refused(model, "Loop (control flow): node 'l'", "control flow runs only where its condition is known")


def test_local_functions_are_inlined():
    f = helper.make_function(
        "my.domain", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["t"]), node("Exp", ["t"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = make([node("Twice", ["x"], ["u"], domain="my.domain"), node("Twice", ["u"], ["y"], domain="my.domain")], {"x": X}, ["y"])
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    model.functions.append(f)
    graph = read_onnx(model)
    assert ops(graph) == ["Add", "Exp", "Add", "Exp"]
    (y,) = run_graph(infer_shapes(graph), {"x": X - 3})
    np.testing.assert_allclose(y, np.exp(2 * np.exp(2 * (X - 3))), rtol=1e-5)


@pytest.mark.parametrize(
    ("n", "constants", "opset"),
    [
        (node("Shrink", ["x"], ["y"], bias=0.5, lambd=1.0), {}, 17),
        (node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2]), {}, 17),
        (node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2), {"s": np.float32([1, 2]), "b": np.float32([3, 4])}, 18),
        (node("RMSNormalization", ["x", "s"], ["y"]), {"s": np.float32([1, 2, 3, 4, 5])}, 23),
        (node("ReduceLogSumExp", ["x"], ["y"], keepdims=0), {}, 17),
        (node("Softsign", ["x"], ["y"]), {}, 17),
        (node("Celu", ["x"], ["y"], alpha=0.7), {}, 17),
    ],
    ids=lambda p: p.op_type if hasattr(p, "op_type") else "",
)
def test_composite_operators(n, constants, opset):
    x = np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32)
    model = make([n], {"x": x}, ["y"], constants, opset)
    graph = infer_shapes(read_onnx(model))
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(run_graph(graph, {"x": x})[0], expected, rtol=2e-5, atol=1e-5)


def test_a_composite_operator_with_an_absent_input():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    n = node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"], is_causal=1)
    model = make([n], {"q": q, "k": k, "v": v}, ["y"], {"n": np.int64([3])}, 24)
    graph = infer_shapes(read_onnx(model))
    assert "Attention" not in ops(graph)
    expected = ReferenceEvaluator(model).run(None, {"q": q, "k": k, "v": v})[0]
    np.testing.assert_allclose(run_graph(graph, {"q": q, "k": k, "v": v})[0], expected, rtol=1e-5, atol=1e-6)


def test_inputs_can_be_fixed():
    model = branches([], None, {"x": X, "c": (TensorProto.BOOL, [])})
    refused(model, "If (control flow)")
    graph = read_onnx(model, values={"c": np.array(False)})
    assert graph.inputs == ("x",) and ops(graph) == ["Neg", "Identity", "Exp"]
    (y,) = run_graph(infer_shapes(graph), {"x": X})
    np.testing.assert_allclose(y, np.exp(-X), rtol=1e-6)
    for values, part in (({"d": np.array(False)}, "'d' is not an input"), ({"c": np.float32(1)}, "'c' is bool, the given value is float")):
        with pytest.raises(ArgumentError, match=part):
            read_onnx(model, values=values)
