"""One-node cases for `test_ops.py`, by family: concrete inputs, attributes, which other implementation to ask, and dims to make symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
NAN, INF = float("nan"), float("inf")


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int64) -> Array:
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    op: str
    inputs: tuple[Array | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    oracle: str = "ort"  # ort, onnx, or none
    known: tuple[int, ...] = ()  # inputs known at compile time besides those that the operator needs
    dims: Mapping[tuple[int, int], str] = field(default_factory=dict)  # (input, dim) -> name, for a second run with symbolic dims
    opset: int = 22
    tol: float = 1e-5
    label: str = ""

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, a.shape)) + a.dtype.kind if a is not None else "-" for a in self.inputs)
        return f"{self.op}{'-' + self.label if self.label else ''}-{shapes}-{'-'.join(f'{k}={v}' for k, v in self.attrs.items())}"[:110]


def case(op: str, *inputs: Array | None, outputs: int = 1, oracle: str = "ort", known: tuple[int, ...] = (),
         dims: Mapping[tuple[int, int], str] | None = None, opset: int = 22, tol: float = 1e-5, label: str = "", **attrs: Any) -> Case:  # fmt: skip
    return Case(op, inputs, attrs, outputs, oracle, known, dims or {}, opset, tol, label)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.5, 3.5, 1e-8, -30.0, 30.0, 88.0, -88.0, INF, -INF, NAN], np.float32)
X, Y = f32(2, 3, 4), f32(3, 1)
BOOLS = RNG.integers(0, 2, (3, 4)).astype(np.bool_)
IMAGE, ODD = f32(2, 4, 7, 6), f32(1, 3, 9, 8)


def pointwise() -> list[Case]:
    unary = [
        "Neg",
        "Abs",
        "Sqrt",
        "Reciprocal",
        "Exp",
        "Log",
        "Sin",
        "Cos",
        "Tan",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "Erf",
        "Tanh",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Softsign",
        "Mish",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "IsNaN",
        "Celu",
        "ThresholdedRelu",
        "Softplus",
        "Gelu",
        "Identity",
    ]
    out = []
    for op in unary:
        odd = {
            "Acosh": SPECIAL[2:] * 3 + 4,
            "Mish": SPECIAL[:-4],
            "Sign": SPECIAL[:-1],
            "Celu": SPECIAL[:-1],
            "ThresholdedRelu": SPECIAL[:-1],
            "Sin": SPECIAL[:-3],
            "Cos": SPECIAL[:-3],
            "Tan": SPECIAL[:-3],
        }.get(op, SPECIAL)
        if op in ("Softsign", "HardSwish", "Gelu", "Sigmoid", "Erf"):
            odd = odd[:-3]
        out.append(case(op, odd, label="special", tol=3e-5, oracle="onnx" if op in ("Mish", "HardSwish") else "ort"))
        out.append(case(op, np.abs(X) + 1, dims={(0, 0): "N", (0, 2): "i0"}, tol=3e-5))
    binary = ["Add", "Sub", "Mul", "Div"]
    out += [case(op, X, Y, dims={(0, 0): "N", (0, 2): "W"}) for op in (*binary, "Pow") if op != "Pow"]
    out += [case(op, ints(4, 5), ints(4, 5, low=1)) for op in binary]
    out += [case(op, ints(4, 5, dtype=np.int32), np.where(ints(5) > 0, 3, -3).astype(np.int32)) for op in binary]
    out += [case(op, X.astype(np.float16), Y.astype(np.float16)) for op in binary]
    out += [case(op, X.astype(np.float64), Y.astype(np.float64), tol=1e-12) for op in binary]
    out += [case(op, X, np.array(0.5, np.float32), known=(1,)) for op in binary]
    out += [case("Mod", ints(20), np.where(ints(20) > 0, 4, -3).astype(np.int64), fmod=m) for m in (0, 1)]
    out += [case("Mod", f32(20), f32(20), fmod=1)]
    out += [
        case("Pow", np.abs(X), Y),
        case("Pow", X, np.array([2.0], np.float32), known=(1,)),
        case("Pow", X, i64(3)),
        case("Pow", X, np.array(3, np.int32), known=(1,)),
        case("Pow", ints(6, low=1), i64(2)),
        case("Pow", ints(6, low=1), f32(6)),
    ]
    out += [case(op, X, Y, SPECIAL[:4]) for op in ("Max", "Min", "Sum", "Mean")]
    out += [case(op, X) for op in ("Max", "Min", "Sum", "Mean")]
    out += [case(op, ints(3, 4, dtype=np.int32), ints(4, dtype=np.int32)) for op in ("Max", "Min")]
    out += [case(op, np.array([NAN, 1, NAN], np.float32), np.array([1, NAN, NAN], np.float32)) for op in ("Max", "Min")]
    out += [case(op, BOOLS, BOOLS[0]) for op in ("And", "Or", "Xor")] + [case("Not", BOOLS)]
    compare = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    out += [case(op, SPECIAL, SPECIAL[::-1].copy()) for op in compare] + [case(op, ints(3, 9), ints(9)) for op in compare]
    out += [case("Equal", BOOLS, BOOLS[::-1].copy()), case("Where", BOOLS, f32(4), f32(3, 1), dims={(0, 1): "n", (1, 0): "n"})]
    out += [case("Where", BOOLS, ints(4), ints(3, 1)), case("Where", BOOLS, np.array(1.0, np.float32), f32(3, 4), known=(1,))]
    out += [case("IsInf", SPECIAL, detect_positive=p, detect_negative=n) for p, n in ((1, 1), (1, 0), (0, 1))]
    out += [
        case("Clip", SPECIAL, np.array(-1, np.float32), np.array(2, np.float32), known=(1, 2)),
        case("Clip", X, None, np.array(0, np.float32)),
        case("Clip", X),
        case("Clip", ints(9), np.array(-2), np.array(3)),
        case("Clip", X, np.array(1, np.float32), np.array(0, np.float32)),
    ]
    out += [case("PRelu", X, f32(3, 1)), case("PRelu", IMAGE, f32(4, 1, 1), dims={(0, 2): "h", (0, 0): "n"})]
    out += [
        case("Gelu", X, approximate="tanh"),
        case("Elu", X, alpha=0.3),
        case("LeakyRelu", X, alpha=0.2),
        case("HardSigmoid", X, alpha=0.5, beta=0.6),
    ]
    out += [case("Dropout", X, outputs=2), case("Dropout", X, np.array(0.3, np.float32), np.array(False), outputs=1)]
    out += [
        case("Abs", ints(7)),
        case("Sign", ints(7)),
        case("Neg", ints(7)),
        case("Relu", ints(7, dtype=np.int32)),
        case("Abs", ints(4, low=0, dtype=np.uint8)),
    ]
    out += [case("BitShift", ints(8, low=0, dtype=np.uint8), ints(8, low=0, high=7, dtype=np.uint8), direction=d) for d in ("LEFT", "RIGHT")]
    out += [case(op, ints(8, dtype=np.int32), ints(8, dtype=np.int32)) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")]
    out += [case("BitwiseNot", ints(8, dtype=np.int32)), case("Shrink", X, lambd=1.0, bias=0.5)]
    kinds = (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_)
    out += [case("Cast", np.array([0, 1, 2, 5, 100]).astype(a), to=helper.np_dtype_to_tensor_dtype(np.dtype(b))) for a in kinds for b in kinds]
    return [*out, case("Cast", np.array([1.7, -1.7, 0.2], np.float32), to=TensorProto.INT32), case("Add", np.array(1.5, np.float32), f32(0, 3))]


def contraction() -> list[Case]:
    out = [
        case("MatMul", f32(*a), f32(*b), tol=1e-4)
        for a, b in (
            ((5, 6), (6, 7)),
            ((6,), (6, 7)),
            ((5, 6), (6,)),
            ((6,), (6,)),
            ((2, 3, 5, 6), (3, 6, 4)),
            ((3, 1, 5, 6), (1, 2, 6, 4)),
            ((2, 5, 6), (6, 4)),
            ((6,), (2, 6, 4)),
            ((2, 5, 6), (6,)),
            ((1, 1), (1, 1)),
        )
    ]
    out += [
        case("MatMul", f32(2, 5, 6), f32(2, 6, 4), dims={(0, 0): "b0", (1, 0): "b0", (0, 1): "i", (0, 2): "k", (1, 1): "k"}),
        case("MatMul", ints(3, 4, dtype=np.int32), ints(4, 2, dtype=np.int32)),
        case("MatMul", f32(5, 40).astype(np.float16), f32(40, 3).astype(np.float16)),
        case("MatMul", f32(4, 6), f32(6, 5).astype(np.float32)),
    ]
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = f32(6, 5) if ta else f32(5, 6), f32(7, 6) if tb else f32(6, 7)
            out += [
                case("Gemm", a, b, bias, transA=ta, transB=tb, alpha=alpha, beta=beta)
                for bias in (None, f32(7), f32(5, 1), f32(5, 7))
                for alpha, beta in ((1.0, 1.0), (0.5, 2.0))
            ]
    w = f32(6, 4, 3, 3)
    conv = [
        dict(),
        dict(pads=[1, 1, 1, 1]),
        dict(pads=[2, 0, 1, 3], strides=[2, 1]),
        dict(strides=[2, 3], dilations=[2, 1], pads=[1, 1, 1, 1]),
        dict(auto_pad="SAME_UPPER", strides=[2, 2]),
        dict(auto_pad="SAME_LOWER", strides=[2, 2]),
        dict(auto_pad="VALID", strides=[1, 2]),
    ]
    out += [case("Conv", IMAGE, w, f32(6), tol=1e-4, **a) for a in conv]
    out += [
        case("Conv", IMAGE, f32(4, 1, 3, 3), f32(4), group=4, pads=[1, 1, 1, 1]),
        case("Conv", IMAGE, f32(8, 1, 3, 3), group=4),
        case("Conv", IMAGE, f32(6, 2, 3, 3), f32(6), group=2, pads=[1, 0, 1, 0]),
        case("Conv", IMAGE, f32(6, 4, 1, 1), strides=[2, 2]),
        case("Conv", f32(2, 3, 11), f32(4, 3, 5), f32(4), pads=[2, 2], strides=[2]),
        case("Conv", f32(1, 2, 5, 4, 6), f32(3, 2, 2, 3, 3), pads=[1] * 6),
        case("Conv", IMAGE, f32(4, 4, 3, 3), pads=[1] * 4, dims={(0, 0): "n", (0, 2): "h", (0, 3): "w"}),
        case("Conv", IMAGE, f32(4, 4, 3, 3), pads=[1] * 4, strides=[2, 2], dims={(0, 2): "H", (0, 3): "W"}),
        case("Conv", IMAGE, f32(4, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2], dims={(0, 2): "H", (0, 3): "W"}),
        case("Conv", IMAGE.astype(np.float16), w.astype(np.float16), oracle="none", pads=[1] * 4),
        case("Conv", IMAGE.astype(np.float64), w.astype(np.float64), pads=[1] * 4, oracle="onnx"),
    ]
    wt = f32(4, 3, 3, 3)
    transposed = [
        dict(),
        dict(strides=[2, 2]),
        dict(strides=[2, 2], pads=[1, 1, 1, 1]),
        dict(strides=[3, 2], pads=[1, 2, 0, 1], output_padding=[1, 1]),
        dict(strides=[2, 2], auto_pad="SAME_UPPER"),
        dict(strides=[2, 2], auto_pad="SAME_LOWER"),
        dict(pads=[1, 1, 1, 1]),
        dict(dilations=[2, 2]),
        dict(dilations=[2, 3], strides=[2, 2], pads=[1, 0, 1, 0]),
        dict(strides=[2, 2], output_shape=[14, 12]),
        dict(dilations=[2, 2], strides=[4, 4]),
    ]
    out += [case("ConvTranspose", IMAGE, wt, f32(3), tol=1e-4, **a) for a in transposed]
    out += [
        case("ConvTranspose", IMAGE, f32(4, 2, 2, 2), group=2, strides=[2, 2]),
        case("ConvTranspose", IMAGE, f32(4, 1, 3, 3), f32(4), group=4, strides=[2, 2]),
        case("ConvTranspose", f32(2, 3, 7), f32(3, 4, 4), strides=[4], pads=[1, 2]),
        case("ConvTranspose", IMAGE, f32(4, 3, 2, 2), strides=[2, 2], dims={(0, 2): "h", (0, 3): "W"}),
        case("ConvTranspose", IMAGE, f32(4, 3, 4, 4), strides=[2, 2], pads=[3, 3, 3, 3]),
    ]
    equations = [
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("ii->i", (4, 4)),
        ("ii", (4, 4)),
        ("ij->ji", (3, 4)),
        ("...ij,...jk", (2, 3, 4), (2, 4, 2)),
        ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("i,i", (5,), (5,)),
        ("i,j->ij", (3,), (4,)),
        ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        ("i,ij,j->", (3,), (3, 4), (4,)),
        ("...i,...i->...", (2, 3, 4), (4,)),
        ("Ab,bA->A", (3, 4), (4, 3)),
        ("ijk->", (2, 3, 4)),
    ]
    return out + [case("Einsum", *(f32(*s) for s in shapes), equation=text, tol=1e-4, oracle="onnx") for text, *shapes in equations]


def pooling() -> list[Case]:
    shapes = [
        dict(kernel_shape=[2, 2], strides=[2, 2]),
        dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1]),
        dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        dict(kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1, pads=[1, 1, 1, 1]),
        dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
        dict(kernel_shape=[2, 3], auto_pad="VALID"),
        dict(kernel_shape=[2, 2], dilations=[2, 2]),
        dict(kernel_shape=[3, 2], dilations=[2, 3], pads=[2, 1, 2, 1]),
    ]
    out = [case("MaxPool", IMAGE, outputs=n, **a) for a in shapes for n in (1, 2)]
    out += [case("AveragePool", IMAGE, count_include_pad=c, **a) for a in shapes for c in (0, 1)]
    out += [case("LpPool", IMAGE, p=p, tol=1e-4, **a) for a in shapes[:4] for p in (1, 2, 3)]
    symbolic = {(0, 0): "n", (0, 2): "h", (0, 3): "W"}
    out += [
        case(op, IMAGE, dims=symbolic, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=m)
        for op in ("MaxPool", "AveragePool")
        for m in (0, 1)
    ]
    out += [
        case("MaxPool", IMAGE, outputs=2, kernel_shape=[2, 2], storage_order=1),
        case("MaxPool", ints(1, 2, 6, 6, low=0, high=200, dtype=np.uint8), kernel_shape=[2, 2]),
        case("MaxPool", ints(1, 1, 6, high=2).astype(np.float32), outputs=2, kernel_shape=[3]),
        case("AveragePool", f32(1, 2, 9), kernel_shape=[4], strides=[3], pads=[1, 2]),
        case("MaxPool", f32(1, 1, 4, 5, 6), kernel_shape=[2, 2, 2]),
        case("AveragePool", f32(1, 1, 4, 5, 6), kernel_shape=[2, 3, 2], pads=[1, 1, 1, 0, 0, 1]),
        case("AveragePool", IMAGE.astype(np.float16), kernel_shape=[3, 3], oracle="none"),
    ]
    out += [case(op, x, dims={(0, 2): "H"}, opset=18) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool") for x in (IMAGE, f32(2, 3, 5))]
    return out


def normalization() -> list[Case]:
    c = [f32(4), f32(4), f32(4), f32(4, low=0.5)]
    image = {(0, 0): "N", (0, 2): "H", (0, 3): "W"}
    out = [
        case("BatchNormalization", IMAGE, *c, dims=image, epsilon=1e-3),
        case("BatchNormalization", f32(5, 4), *c),
        case("BatchNormalization", IMAGE, *c, outputs=3, training_mode=1, momentum=0.7, oracle="onnx", tol=1e-4),
        case("InstanceNormalization", IMAGE, c[0], c[1], dims=image, tol=1e-4),
        case("InstanceNormalization", f32(2, 4, 5), c[0], c[1], tol=1e-4),
        case("GroupNormalization", IMAGE, c[0], c[1], num_groups=2, dims=image, tol=1e-4, oracle="onnx"),
        case("GroupNormalization", f32(2, 4, 5), c[0], c[1], num_groups=4, tol=1e-4, oracle="onnx"),
        case("LRN", f32(2, 7, 3, 3), size=3),
        case("LRN", f32(7, 7, 2, 2), size=4, alpha=0.01, beta=0.5, bias=2.0, oracle="onnx"),
        case("MeanVarianceNormalization", IMAGE, tol=1e-4),
        case("MeanVarianceNormalization", IMAGE, axes=[1, 2], tol=1e-4, oracle="onnx"),
    ]
    for axis in (-1, 1, 0):
        s = X.shape[axis:]
        out += [
            case("LayerNormalization", X, f32(*s), f32(*s), axis=axis, outputs=3, tol=1e-4, dims={(0, 0): "N"} if axis else {}),
            case("RMSNormalization", X, f32(*s), axis=axis, opset=23, oracle="onnx", tol=1e-4),
            case("LayerNormalization", X, f32(*s), axis=axis, tol=1e-4),
        ]
    out += [case(op, x, axis=axis, tol=1e-4, dims={(0, 0): "i"}) for op in ("Softmax", "LogSoftmax") for x in (X, 40 * X) for axis in (-1, 0, 1)]
    out += [
        case("Softmax", X.astype(np.float16)),
        case("Softmax", np.array([[-INF, 0, 1], [INF, 0, 1], [NAN, 0, 1]], np.float32)),
        case("Softmax", f32(3, 1)),
    ]
    return [*out, *(case("LpNormalization", X, p=p, axis=1) for p in (1, 2))]


def reduction() -> list[Case]:
    names = [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ]
    out = []
    for op in names:
        x = np.abs(X)
        out += [case(op, x, axes, keepdims=k, tol=1e-4) for axes in (i64(0), i64(-1, 0), i64(0, 1, 2)) for k in (0, 1)]
        out += [
            case(op, x, tol=1e-4),
            case(op, x, i64(), noop_with_empty_axes=1, oracle="onnx" if op == "ReduceSum" else "none"),
            case(op, x, i64(1, 2), dims={(0, 0): "N", (0, 1): "M", (0, 2): "K"}, tol=1e-4),
            case(op, x.astype(np.float16), i64(1), oracle="none"),
        ]
        if op not in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
            out.append(case(op, ints(3, 4, dtype=np.int32), i64(1)))
    out += [case(op, np.array([[NAN, 1.0], [INF, -INF]], np.float32), i64(1)) for op in ("ReduceSum", "ReduceProd")]
    out += [case("ReduceLogSumExp", np.array([[100.0, 100.0], [-INF, -INF], [-100, -99]], np.float32), i64(1), oracle="none")]
    out += [case(op, BOOLS, i64(1), opset=20) for op in ("ReduceMax", "ReduceMin")]
    out += [case("ReduceSum", f32(2, 0, 3), i64(1)), case("ReduceMax", f32(2, 0, 3), i64(1), opset=20, oracle="onnx")]
    ties = np.array([[1, 3, 3], [2, 2, 1]], np.float32)
    out += [
        case(op, x, axis=axis, keepdims=k, select_last_index=last)
        for op in ("ArgMax", "ArgMin")
        for x in (X[0], ties)
        for axis in (0, -1)
        for k in (0, 1)
        for last in (0, 1)
    ]
    out += [case("ArgMax", ints(3, 4, dtype=np.int32), axis=1), case("ArgMax", X, axis=1, dims={(0, 0): "N", (0, 1): "K"})]
    out += [
        case("CumSum", X, np.array(axis, np.int64), exclusive=e, reverse=r, dims={(0, 1): "i1"})
        for axis in (0, -1, 1)
        for e in (0, 1)
        for r in (0, 1)
    ]
    return [*out, case("CumSum", ints(5), np.array(0, np.int32)), case("CumSum", f32(1, 3), np.array(0))]


def movement() -> list[Case]:
    out = [case("Transpose", X, perm=[2, 0, 1], dims={(0, 0): "a", (0, 1): "b"}), case("Transpose", X), case("Transpose", BOOLS, perm=[1, 0])]
    reshapes = [(6, 4), (2, -1), (-1,), (0, 0, 2, 2), (1, 2, 3, 1, 4, 1), (4, 6), (8, 3), (3, 2, 2, 2), (2, 12)]
    out += [case("Reshape", X, i64(*s)) for s in reshapes]
    out += [
        case("Reshape", f32(2, 5, 12), i64(0, 0, 3, 4), dims={(0, 0): "B", (0, 1): "S"}),
        case("Reshape", f32(2, 5, 3, 4), i64(0, 0, -1), dims={(0, 0): "B", (0, 1): "S"}),
        case("Reshape", f32(0, 3), i64(3, -1)),
        case("Reshape", f32(2, 0), i64(0, 2), allowzero=1, oracle="onnx"),
        case("Flatten", X, axis=2),
        case("Flatten", X, axis=0),
        case("Flatten", X, axis=-1, dims={(0, 0): "N"}),
        case("Squeeze", f32(1, 3, 1, 4), i64(0, -2)),
        case("Squeeze", f32(1, 3, 1)),
        case("Unsqueeze", X, i64(0, -1, 2)),
        case("Identity", X),
        case("Unsqueeze", np.array(2.0, np.float32), i64(0)),
        case("Squeeze", f32(1, 1)),
    ]
    out += [
        case("Concat", f32(2, 3), f32(2, 1), f32(2, 4), axis=-1),
        case("Concat", f32(2, 3), f32(1, 3), axis=0, dims={(0, 0): "N", (1, 0): "M"}),
        case("Concat", f32(2, 3), f32(2, 0), axis=1),
        case("Split", f32(2, 7), i64(3, 0, 4), axis=1, outputs=3),
        case("Split", f32(2, 7), axis=1, outputs=3, num_outputs=3),
        case("Split", f32(6, 2), outputs=2, num_outputs=2, dims={(0, 1): "N"}),
    ]
    for start, end, axes, steps in (
        ((1,), (3,), (1,), (1,)),
        ((0, 1), (9, 3), (0, 2), (1, 2)),
        ((-1,), (-(2**31),), (1,), (-1,)),
        ((-3, -1), (-1, 0), (0, 2), (1, -2)),
        ((5,), (0,), (2,), (-3,)),
        ((2,), (1,), (0,), (1,)),
        ((-99,), (99,), (2,), (1,)),
        ((3,), (-99,), (2,), (-2,)),
    ):
        out.append(case("Slice", f32(4, 5, 6), i64(*start), i64(*end), i64(*axes), i64(*steps)))
    out += [
        case("Slice", f32(4, 5), i64(1, 0), i64(2, 3)),
        case("Slice", f32(4, 5), i64(-1), i64(2**63 - 1), i64(0), dims={(0, 0): "N"}),
        case("Slice", f32(4, 5), i64(1), i64(-1), i64(0), dims={(0, 0): "N"}),
        case("Slice", f32(4, 5), i64(-1), i64(-(2**62)), i64(0), i64(-2), dims={(0, 0): "N"}),
    ]
    pads = [(0, 1, 2, 0), (1, 0, 0, 3), (-1, 2, 0, -1), (0, 0, 0, 0)]
    out += [case("Pad", f32(4, 5), i64(*p), np.array(1.5, np.float32), known=(2,), mode="constant") for p in pads]
    out += [case("Pad", f32(4, 5), i64(*p), mode=m, oracle="ort" if min(p) >= 0 else "none") for p in pads for m in ("reflect", "edge", "wrap")]
    out += [case("Pad", f32(2, 3), i64(5, 7), None, i64(1), mode=m, oracle="none") for m in ("reflect", "edge", "wrap")]
    out += [case("Pad", f32(6, 5), i64(1, 2, 2, 0), dims={(0, 0): "N", (0, 1): "i1"}, mode=m) for m in ("constant", "reflect", "edge", "wrap")]
    out += [
        case("Pad", f32(1, 2, 4, 4), i64(1, 1, 2, 0), None, i64(2, -1)),
        case("Pad", ints(3), i64(1, 1)),
        case("Pad", BOOLS, i64(1, 0, 0, 1), np.array(True)),
    ]
    out += [
        case("Expand", f32(3, 1), i64(2, 3, 4)),
        case("Expand", f32(3, 4), i64(3, 1)),
        case("Expand", f32(1), i64(2, 2), known=(0,)),
        case("Expand", f32(3, 1), i64(1, 0)),
        case("Tile", f32(2, 3), i64(2, 2)),
        case("Tile", f32(1, 3), i64(4, 1), dims={(0, 1): "N"}),
        case("Tile", f32(2, 3), i64(0, 1)),
    ]
    out += [case("Trilu", f32(2, 4, 5), np.array(k), upper=u, dims={(0, 1): "N"}) for k in (-2, 0, 1, 9) for u in (0, 1)]
    out += [case("DepthToSpace", f32(2, 8, 2, 3), blocksize=2, mode=m, dims={(0, 2): "H", (0, 3): "W", (0, 0): "N"}) for m in ("DCR", "CRD")]
    return [*out, case("SpaceToDepth", f32(2, 3, 4, 6), blocksize=2), case("Trilu", ints(3, 4)), case("Trilu", f32(0, 4))]


def indexing() -> list[Case]:
    x = f32(4, 5, 6)
    out = [
        case("Gather", x, i, axis=axis, dims={(0, 0): "N"} if axis else {}, known=known)
        for i in (
            np.array(1),
            np.array(-1),
            i64(0, 2, 1),
            i64(0, -1),
            i64(0, 1, 2),
            np.array([[0, 2], [1, 3]]),
            np.array([[0, 1], [2, 3]], np.int32)[:, :1],
        )
        for axis in (0, 1, -1)
        for known in ((), (1,))
    ]
    out += [
        case("Gather", x, np.array(-1), axis=0, known=(1,), dims={(0, 0): "N"}),
        case("Gather", x, i64(0, -1), dims={(0, 0): "N"}),
        case("Gather", ints(5), i64(), oracle="ort"),
    ]
    out += [
        case("GatherElements", f32(3, 4), ints(2, 4, low=-3, high=2), axis=0),
        case("GatherElements", f32(3, 4), ints(3, 2, low=0, high=3), axis=1),
    ]
    out += [case("GatherND", x, np.array([[0, 1], [3, -1]]), known=k) for k in ((), (1,))]
    out += [
        case("GatherND", x, ints(2, 3, 3, low=0, high=3)),
        case("GatherND", x, ints(4, 2, 1, low=0, high=4), batch_dims=1),
        case("GatherND", x, np.array([[0]])),
    ]
    out += [
        case("Shape", x, dims={(0, 0): "N", (0, 2): "M"}),
        case("Shape", x, start=1, end=-1),
        case("Size", x, dims={(0, 0): "N", (0, 1): "M"}),
        case("Shape", np.array(1.0)),
    ]
    out += [
        case("ConstantOfShape", i64(2, 3)),
        case("ConstantOfShape", i64(2), value=np.array([3], np.int32)),
        case("ConstantOfShape", i64(0, 2), value=np.array([1.5], np.float32)),
    ]
    out += [case("Range", *(np.array(v, t) for v in (2, 11, 3))) for t in (np.float32, np.int64, np.int32)] + [
        case("Range", np.array(5), np.array(-3), np.array(-2))
    ]
    out += [case("EyeLike", f32(3, 4), k=k) for k in (-1, 0, 2)] + [case("EyeLike", ints(3, 3, dtype=np.int32), dtype=1)]
    out += [case("OneHot", ints(2, 3, low=-4, high=3), np.array(4), f32(2), axis=a) for a in (-1, 0, 1)]
    return [*out, case("OneHot", i64(0, 9, 2), np.array(4), i64(7, 8))]


def resize() -> list[Case]:
    out = []
    x = f32(1, 2, 6, 5)
    coordinates = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    factors = ((2.0, 3.0), (0.5, 1.5), (1.0, 1.6), (0.7, 0.4))
    for coordinate in coordinates:
        for factor in factors:
            if coordinate == "align_corners" and any((s * n) % 1 for s, n in zip(factor, (6, 5))):
                continue  # ONNX Runtime rounds the resized length, the ONNX node cases do not
            scales = np.array([1, 1, *factor], np.float32)
            out += [case("Resize", x, None, scales, coordinate_transformation_mode=coordinate, mode=m, tol=1e-4) for m in ("linear", "cubic")]
            out += [
                case("Resize", x, None, scales, coordinate_transformation_mode=coordinate, mode="nearest", nearest_mode=r)
                for r in ("floor", "round_prefer_floor")
            ]
        out += [
            case("Resize", x, None, None, i64(1, 2, 9, 10), coordinate_transformation_mode=coordinate, mode=m, tol=1e-4)
            for m in ("nearest", "linear", "cubic")
        ]
    for m in ("linear", "cubic"):
        out += [
            case("Resize", x, None, np.array([1, 1, 0.6, 0.5], np.float32), mode=m, antialias=1, oracle="onnx", tol=1e-4),
            case(
                "Resize",
                x,
                None,
                np.array([0.6, 2], np.float32),
                mode=m,
                axes=[3, 2],
                exclude_outside=1 if m == "cubic" else 0,
                oracle="onnx",
                tol=1e-4,
            ),
        ]
    roi = np.array([0, 0, 0.2, -0.3, 1, 1, 0.8, 1.1], np.float32)
    out += [
        case(
            "Resize",
            x,
            roi,
            None,
            i64(1, 2, 7, 4),
            mode=m,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=9.0,
            tol=1e-4,
            oracle="onnx",
        )
        for m in ("nearest", "linear", "cubic")
    ]
    out += [case("Resize", x, None, None, i64(9, 9), axes=[2, 3], keep_aspect_ratio_policy=p, oracle="onnx") for p in ("not_larger", "not_smaller")]
    symbolic = {(0, 2): "h", (0, 3): "W"}
    big = f32(1, 1, 8, 10)
    for factor in (2.0, 3.0, 0.5, 1.5):
        for m in ("nearest", "linear", "cubic"):
            out += [
                case(
                    "Resize",
                    big,
                    None,
                    np.array([1, 1, factor, factor], np.float32),
                    mode=m,
                    dims=symbolic if factor >= 2 or m == "nearest" else {},
                    coordinate_transformation_mode=t,
                    nearest_mode="floor",
                    tol=1e-4,
                )
                for t in ("half_pixel", "asymmetric")
            ]
    out += [
        case("Resize", ints(1, 1, 4, 4, dtype=np.int32, low=0), None, np.array([1, 1, 2, 2], np.float32), mode="nearest"),
        case("Resize", x, None, np.ones(4, np.float32)),
    ]
    return [*out, case("Resize", x, None, np.array([1, 1, 8, 8], np.float32), mode="cubic", cubic_coeff_a=-0.5, tol=1e-4)]


def newer() -> list[Case]:
    """Operators that ONNX Runtime lacks or that are newer than the opset of the others."""
    return [
        case("CastLike", X, ints(1), oracle="onnx"),
        case("Swish", X, alpha=0.7, opset=24, oracle="onnx"),
        case("CumProd", X, np.array(1), exclusive=1, opset=26, oracle="onnx"),
        case("CumProd", X, np.array(-1), reverse=1, opset=26, oracle="onnx", dims={(0, 2): "N"}),
    ]


FAMILIES = {f.__name__: f() for f in (pointwise, contraction, pooling, normalization, reduction, movement, indexing, resize, newer)}
