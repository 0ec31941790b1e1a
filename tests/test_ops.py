"""Every operator: shape rule = nests = NumPy reference = another implementation (ONNX Runtime, or ONNX's own reference evaluator).

A case is one node with concrete inputs. It is checked with shapes as they are and, where it names dims, with those dims symbolic.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from ops_cases import FAMILIES, Array, Case
from run_nests import np_type, run_definition

from polyopt import ops
from polyopt.errors import ModelError
from polyopt.ir.affine import affine
from polyopt.ir.dtype import BY_NUMPY, DType, f32, i64
from polyopt.ir.expr import loads
from polyopt.ir.graph import Node, Value
from polyopt.ops.registry import Nest


# ---- the other implementation
def _oracle(c: Case, node: Node) -> list[Array] | None:
    if c.oracle == "none":
        return None
    attrs = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in c.attrs.items()}
    proto = helper.make_node(c.op, node.inputs, node.outputs, **attrs)
    ins = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(node.inputs, c.inputs)
        if a is not None
    ]
    outs = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in node.outputs]
    graph = helper.make_graph([proto], "g", ins, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", c.opset)], ir_version=10)
    feeds = {n: a for n, a in zip(node.inputs, c.inputs) if a is not None}
    if c.oracle == "onnx":
        return list(ReferenceEvaluator(model).run(None, feeds))
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds))


def _equal(a: Array, b: Array, tol: float, what: str) -> None:
    assert a.shape == b.shape, f"{what}: shapes {a.shape} and {b.shape}"
    assert a.dtype == b.dtype, f"{what}: dtypes {a.dtype} and {b.dtype}"
    if a.dtype.kind == "f":
        tol = 2e-3 if a.dtype == np.float16 else tol
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tol, atol=tol, err_msg=what)
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


# ---- one check
def _values(c: Case, node: Node, symbolic: bool) -> tuple[list[Value | None], dict[str, int]]:
    ins: list[Value | None] = []
    sizes: dict[str, int] = {}
    for k, (name, a) in enumerate(zip(node.inputs, c.inputs)):
        if a is None:
            ins.append(None)
            continue
        shape = []
        for d, n in enumerate(a.shape):
            dim = c.dims.get((k, d)) if symbolic else None
            if dim is not None:
                assert sizes.setdefault(dim, n) == n
            shape.append(affine(dim if dim is not None else n))
        ins.append(Value(name, BY_NUMPY[a.dtype.name], tuple(shape)))
    return ins, sizes


def check(c: Case, symbolic: bool) -> None:
    op = ops.lookup(c.op)
    assert op is not None and op.define is not None
    names = tuple("" if a is None else f"x{k}" for k, a in enumerate(c.inputs))
    node = Node("node", c.op, names, tuple(f"y{k}" for k in range(c.outputs)), dict(c.attrs))
    ins, sizes = _values(c, node, symbolic)
    arrays = {n: a for n, a in zip(names, c.inputs) if a is not None}
    known = {names[k]: arrays[names[k]] for k in (*op.consts, *c.known) if k < len(names) and names[k]}
    outs = [Value(n, d, s) for n, (d, s) in zip(node.outputs, op.infer(node, ins, known))]
    want = [np.asarray(a) for a in op.reference(node, c.inputs)]
    for o, w in zip(outs, want):
        assert o.shape is not None and tuple(d.evaluate(sizes) for d in o.shape) == w.shape, f"infer says {o.shape}, not {w.shape}"
        assert o.dtype is not None and np_type(o.dtype) == w.dtype
    definition = op.define(node, ins, outs, known)
    for got, w in zip(run_definition(definition, arrays, outs, sizes), want):
        _equal(got, w, c.tol, "nests against reference")
    other = None if symbolic else _oracle(c, node)
    for w, o in zip(want, other or []):
        _equal(w, np.asarray(o), c.tol, f"reference against {c.oracle}")



@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    """All cases of a family; failures are collected, so that one run shows them all."""
    failures = []
    for c in FAMILIES[family]:
        for symbolic in (False, True) if c.dims else (False,):
            try:
                check(c, symbolic)
            except Exception as error:
                failures.append(f"{c}{' (symbolic)' if symbolic else ''}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    assert not failures, f"{len(failures)} of {len(FAMILIES[family])} cases:\n" + "\n".join(failures)


def test_every_operator_has_a_case() -> None:
    tested = {c.op for cases in FAMILIES.values() for c in cases}
    assert not set(ops.names()) - tested - {"Constant"}


# ---- the form of the nests, which schedules rely on
def _value(name: str, shape: str, dtype: DType = f32) -> Value:
    return Value(name, dtype, tuple(affine(int(d) if d.isdigit() else d) for d in shape.split()))


def _define(op: str, *ins: Value, known: dict[str, Array] | None = None, **attrs: object) -> list[str]:
    node = Node("node", op, tuple(v.name for v in ins), ("y",), attrs)
    found = ops.lookup(op)
    assert found is not None and found.define is not None
    types = found.infer(node, ins, known or {})
    outs = [Value(n, d, s) for n, (d, s) in zip(node.outputs, types)]
    return [_text(n) for n in found.define(node, ins, outs, known or {}).nests]


def _text(n: Nest) -> str:
    loops = " ".join(f"{i}<{e}" for i, e in n.iters)
    where = f" if {', '.join(map(str, n.where))}" if n.where else ""
    return f"{loops}{where}: {n.write} {n.reduction or ''}= {' '.join(map(str, loads(n.expr)))}"


@pytest.mark.parametrize(
    ("op", "ins", "attrs", "nests"),
    [
        ("Add", [_value("a", "N 4"), _value("b", "4")], {}, ["i0<N i1<4: y[i0, i1] = a[i0, i1] b[i1]"]),
        ("Add", [_value("a", "i0 4"), _value("b", "1")], {}, ["i0_<i0 i1<4: y[i0_, i1] = a[i0_, i1] b[0]"]),
        (
            "MatMul",
            [_value("a", "2 3 4"), _value("b", "4 5")],
            {},
            ["b0<2 i<3 j<5: y[b0, i, j] = ", "b0<2 i<3 j<5 k<4: y[b0, i, j] += a[b0, i, k] b[k, j]"],
        ),
        (
            "Conv",
            [_value("x", "1 3 8 8"), _value("w", "4 3 3 1")],
            {"pads": [1, 0, 0, 0]},
            [
                "n<1 o<4 h<7 w<8: y[n, o, h, w] = ",
                "n<1 o<4 h<7 w<8 c<3 r<3 s<1 if h + r - 1: y[n, o, h, w] += x[n, c, h + r - 1, s + w] w[o, c, r, s]",
            ],
        ),
        (
            "Conv",
            [_value("x", "n 3 h"), _value("w", "3 1 3")],
            {"group": 3},
            ["n_<n g<3 w<h - 2: y[n_, g, w] = ", "n_<n g<3 w<h - 2 s<3: y[n_, g, w] += x[n_, g, s + w] w[g, 0, s]"],
        ),
        ("Transpose", [_value("x", "2 3 4")], {"perm": [2, 0, 1]}, ["i0<4 i1<2 i2<3: y[i0, i1, i2] = x[i1, i2, i0]"]),
        ("Flatten", [_value("x", "N 3 4")], {}, ["i0<N i1<12: y[i0, i1] = x[i0, floor((i1)/4), i1 - 4*floor((i1)/4)]"]),
        (
            "Concat",
            [_value("a", "2 N"), _value("b", "2 3")],
            {"axis": 1},
            ["i0<2 i1<N: y[i0, i1] = a[i0, i1]", "i0<2 i1<3: y[i0, N + i1] = b[i0, i1]"],
        ),
    ],
)
def test_form(op: str, ins: list[Value], attrs: dict[str, object], nests: list[str]) -> None:
    assert _define(op, *ins, **attrs) == nests


def test_split_dims_read_without_a_linear_index() -> None:
    shape = np.array([0, 0, 3, 4], np.int64)
    assert _define("Reshape", _value("x", "B S 12"), Value("s", i64, (affine(4),)), known={"s": shape}) == [
        "i0<B i1<S i2<3 i3<4: y[i0, i1, i2, i3] = x[i0, i1, 4*i2 + i3]"
    ]


def test_symbolic_shape_vectors() -> None:
    dims = np.array([affine("B"), 1, affine("S")], object)
    shape = Value("s", i64, (affine(3),))
    assert _define("Expand", _value("x", "1 S"), shape, known={"s": dims}) == ["i0<B i1<1 i2<S: y[i0, i1, i2] = x[i1, i2]"]
    ends = {"b": np.array([0], np.int64), "e": np.array([affine("S")], object)}
    one = (affine(1),)
    assert _define("Slice", _value("x", "512 8"), Value("b", i64, one), Value("e", i64, one), known=ends) == ["i0<S i1<8: y[i0, i1] = x[i0, i1]"]


def test_known_scalars_are_literals() -> None:
    node = Node("node", "Clip", ("x", "lo", "hi"), ("y",))
    ins = [_value("x", "4"), Value("lo", f32, ()), Value("hi", f32, ())]
    op = ops.lookup("Clip")
    assert op is not None and op.define is not None
    (nest,) = op.define(node, ins, [_value("y", "4")], {"lo": np.float32(0), "hi": np.array([6], np.float32)}).nests
    assert [x.access.tensor for x in loads(nest.expr)] == ["x"]


@pytest.mark.parametrize(
    ("op", "ins", "attrs", "message"),
    [
        ("Add", [_value("a", "2 3"), _value("b", "2 4")], {}, "shapes [2, 3] and [2, 4] do not broadcast: 3 against 4 in dim 1"),
        ("Add", [_value("a", "N"), _value("b", "M")], {}, "shapes [N] and [M] do not broadcast: N against M in dim 0; bind M, N"),
        ("Add", [_value("a", "2"), _value("b", "2", i64)], {}, "inputs have dtypes f32, i64, which must be equal"),
        ("MatMul", [_value("a", "2 3"), _value("b", "4 5")], {}, "inner dims differ: [2, 3] times [4, 5]"),
        ("Conv", [_value("x", "1 3 8 8"), _value("w", "4 2 3 3")], {}, "3 input channels do not match weights [4, 2, 3, 3] in 1 groups"),
        (
            "Conv",
            [_value("x", "1 3 2 2"), _value("w", "4 3 3 3")],
            {},
            "the window of 3 does not fit into spatial dim 0 of size 2 with padding 0 and 0",
        ),
        ("Flatten", [_value("x", "2 N M")], {}, "flattening multiplies N by M, which is not affine: bind one of M, N"),
        ("Squeeze", [_value("x", "N 1 4")], {}, "without axes, whether it drops N of [N, 1, 4] depends on its value"),
        ("Softmax", [_value("x", "2 3")], {"axis": 2}, "axis 2 is out of range for rank 2"),
        ("Softmax", [_value("x", "2 3", i64)], {}, "'x' has dtype i64, which is not allowed here (allowed: f16, bf16, f32, f64)"),
        ("Expand", [_value("x", "2 3"), _value("s", "2", i64)], {}, "the shape ('s') must be known at compile time"),
        ("Relu", [_value("x", "2"), _value("z", "2")], {}, "Relu takes 1 inputs, not 2"),
    ],
)
def test_refusals(op: str, ins: list[Value], attrs: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as error:
        _define(op, *ins, **attrs)
    assert str(error.value) == message
