"""Operators on values: arithmetic, masks, comparisons, blends, conversions and intrinsics as C text.

Takes `Val`s, scalar or one part for each vector chunk; gives `Val`s. A scalar that meets a vector is broadcast. Integers wrap in their unsigned
type; a bool on lanes is a mask register or a vector of 0 and -1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace

from polyopt.ir.affine import Affine
from polyopt.ir.dtype import BY_NAME, DType, f32, u8

from .isa import NAN_SECOND
from .offsets import literal
from .prelude import SIGNED
from .scalar_helpers import wrap_type
from .state import State, Val
from .vmath import VECTOR_MATH, vector_math

HELPER_OPS = {"//": "div", "%": "mod", "<<": "shl", ">>": "shr", "pow": "pow"}


def constant(x: float | int | bool, dtype: DType) -> Val:
    """A literal."""
    if dtype.is_float:
        return Val((float_literal(float(x), dtype),), dtype, ordered=not math.isnan(float(x)))
    if dtype.kind == "b":
        return Val(("1" if x else "0",), dtype)
    k = int(x) % (1 << dtype.bits)
    if dtype.kind == "i" and k >> (dtype.bits - 1):
        k -= 1 << dtype.bits
    if dtype.bits <= 32 and dtype.kind == "i":
        text = "INT32_MIN" if k == -(2**31) else f"({k})" if k < 0 else str(k)
    elif dtype.bits <= 32:
        text = f"{k}u"
    else:
        text = f"{k}ull" if dtype.kind == "u" else f"({literal(k)})" if k < 0 else f"(int64_t){literal(k)}"
    return Val((text,), dtype)


def float_literal(x: float, dtype: DType) -> str:
    """A floating-point literal that is read back exactly."""
    suffix = "f" if dtype.bits <= 32 else ""
    if math.isnan(x):
        return "NAN"
    if suffix and not math.isinf(x):
        try:
            x = struct.unpack("f", struct.pack("f", x))[0]
        except OverflowError:
            x = math.copysign(math.inf, x)
    if math.isinf(x):
        return "INFINITY" if x > 0 else "(-INFINITY)"
    text = repr(x) + suffix
    return f"({text})" if text.startswith("-") else text


def index_value(st: State, a: Affine, dtype: DType) -> Val:
    """An affine expression as a value."""
    vec = st.vec
    if vec is None or vec.loop.var not in a.names():
        return Val((f"(({dtype.ctype}){st.ints.affine(a)})",), dtype)
    var, v = vec.loop.var, st.prelude.vector(vec.width, dtype)
    parts = []
    for p in range(len(vec.active)):
        first = p * vec.width
        if a.is_linear_in(var):
            k = a.coefficient(var)
            base = st.ints.affine(a.substitute({var: vec.base + first}))
            iota = ", ".join(literal(k * l) for l in range(vec.width))
            parts.append(f"({st.prelude.splat(vec.width, dtype)}(({dtype.ctype}){base}) + ({v}){{{iota}}})")
        else:
            lanes = (st.ints.affine(a.substitute({var: vec.base + first + l})) for l in range(vec.width))
            parts.append(f"(({v}){{{', '.join(f'({dtype.ctype}){x}' for x in lanes)}}})")
    return Val(tuple(parts), dtype, True)


def lift(st: State, v: Val) -> Val:
    """A value on all lanes."""
    if v.vector:
        return v
    vec = st.vec
    assert vec is not None
    if v.dtype.kind == "b":
        if st.target.isa.masks:
            text = f"({st.prelude.mask(vec.width, 8)})({v.text} ? -1 : 0)"
            return Val((text,) * len(vec.active), v.dtype, True)
        text = f"{st.prelude.splat(vec.width, SIGNED[8])}((int8_t)-({v.text}))"
        return Val((text,) * len(vec.active), v.dtype, True, 8)
    text = f"{st.prelude.splat(vec.width, v.dtype)}({v.text})"
    if not st.hard and not v.ordered:
        key = ("", "splat", len(vec.active), text)
        if key in st.scope.loads:
            return st.scope.loads[key]
        if v.text.isidentifier() and v.text in st.stable:
            out = Val((st.temp(st.prelude.vector(vec.width, v.dtype), text),) * len(vec.active), v.dtype, True)
            st.scope.loads[key] = out
            return out
    return Val((text,) * len(vec.active), v.dtype, True, ordered=v.ordered)


def unify(st: State, *vals: Val) -> list[Val]:
    """All on lanes if one is."""
    return [lift(st, v) for v in vals] if any(v.vector for v in vals) else list(vals)


def to_bits(st: State, v: Val, bits: int) -> Val:
    """A mask whose lanes are `bits` wide (mask registers have no width)."""
    v = lift(st, v)
    assert st.vec is not None
    if st.target.isa.masks or v.bits == bits or bits == 0:
        return v
    fn = st.prelude.mask_convert(st.vec.width, v.bits, bits)
    return Val(tuple(f"{fn}({p})" for p in v.parts), v.dtype, True, bits)


def lane_test(st: State, mask: Val, part: int, lane: int) -> str:
    """Whether a mask has a lane set."""
    text = mask.parts[part]
    return f"({text} >> {lane} & 1)" if st.target.isa.masks else f"({text})[{lane}]"


def any_lane(st: State, masks: tuple[Val, ...]) -> str:
    """Whether any lane is set in all masks."""
    assert st.vec is not None
    tests = []
    for p, active in enumerate(st.vec.active):
        text = conjunction(st, masks, p, masks[0].bits or 8, active)
        if st.target.isa.masks:
            tests.append(f"{text} != 0")
        else:
            signed = st.prelude.mask(st.vec.width, masks[0].bits)
            tests += [f"(({signed}){text})[{l}]" for l in range(st.vec.width)]
    return f"({' || '.join(tests)})"


def conjunction(st: State, masks: tuple[Val, ...], part: int, bits: int, active: int | str) -> str:
    """The lanes that are active and set in all masks, as a mask for elements of `bits`."""
    assert st.vec is not None
    texts = [to_bits(st, m, bits).parts[part] for m in masks]
    if active != st.vec.width:
        texts.append(f"{st.prelude.count_mask(st.vec.width, bits)}({active})")
    joined = " & ".join(texts)
    return f"({st.prelude.mask(st.vec.width, bits)})({joined})" if len(texts) > 1 else joined


def unary(st: State, op: str, x: Val) -> Val:
    """-x, not x, ~x."""
    if x.dtype.kind == "b" or op == "not":
        x = to_bool(st, x)
        if not x.vector:
            return Val((f"(!{x.text})",), x.dtype)
        m = st.ctype(x)
        full = f" & {(1 << st.vec.width) - 1}" if st.vec is not None and st.vec.width < 8 and st.target.isa.masks else ""
        return replace(x, parts=tuple(f"(({m})(~{p}{full}))" for p in x.parts))
    if op == "~":
        return _arith(st, x, lambda u, p: f"~({u}){p}")
    if x.dtype.is_float:
        return replace(x, parts=tuple(f"(-{p})" for p in x.parts))
    return _arith(st, x, lambda u, p: f"0 - ({u}){p}" if not x.vector else f"-({u}){p}")


def _arith(st: State, x: Val, body: Callable[[str, str], str]) -> Val:
    """Integer arithmetic in the unsigned type, so that it wraps."""
    t, u = _wrap_types(st, x)
    return replace(x, parts=tuple(f"(({t})({body(u, p)}))" for p in x.parts))


def _wrap_types(st: State, x: Val) -> tuple[str, str]:
    if not x.vector:
        return x.dtype.ctype, wrap_type(x.dtype)
    assert st.vec is not None
    return st.ctype(x), st.prelude.vector(st.vec.width, BY_NAME[f"u{x.dtype.bits}"])


def fused(st: State, op: str, a: Val, b: Val, c: Val) -> Val:
    """fma = a*b+c, fms = a*b-c, fnma = c-a*b, rounded once."""
    a, b, c = unify(st, a, b, c)
    if a.vector:
        assert st.vec is not None
        fn = st.prelude.op(op, st.vec.width, a.dtype, 3)
        return Val(tuple(f"{fn}({x}, {y}, {z})" for x, y, z in zip(a.parts, b.parts, c.parts, strict=True)), a.dtype, True)
    fn = "__builtin_fmaf" if a.dtype == f32 else "__builtin_fma"
    left, right = ("-" if op == "fnma" else ""), ("-" if op == "fms" else "")
    return Val((f"{fn}({left}{a.text}, {b.text}, {right}{c.text})",), a.dtype)


def binary(st: State, op: str, x: Val, y: Val) -> Val:
    """An operator on values of one dtype."""
    fast = st.fp == "fast" and op == "/" and x.dtype.is_float and x.vector and not y.vector
    if fast:
        one = "1.0f" if y.dtype == f32 else "1.0"
        y = Val((f"({one} / {y.text})",), y.dtype)
        op = "*"
    x, y = unify(st, x, y)
    pairs = list(zip(x.parts, y.parts, strict=True))
    if x.dtype.kind == "b" and op in ("&", "|", "^"):
        return mask_op(st, op, x, y)
    if op in ("min", "max"):
        return _extremum(st, op, x, y)
    if x.dtype.is_float and op in "+-*/":
        return Val(tuple(f"({a} {op} {b})" for a, b in pairs), x.dtype, x.vector)
    if op in ("+", "-", "*"):
        t, u = _wrap_types(st, x)
        return Val(tuple(f"(({t})(({u}){a} {op} ({u}){b}))" for a, b in pairs), x.dtype, x.vector)
    if op in ("&", "|", "^"):
        t = st.ctype(x)
        return Val(tuple(f"(({t})({a} {op} {b}))" for a, b in pairs), x.dtype, x.vector)
    return helper(st, HELPER_OPS.get(op, "cdiv"), x, y)


def helper(st: State, key: str, *args: Val) -> Val:
    """A helper function: elementwise on vectors, scalar otherwise."""
    vals = unify(st, *args)
    dtype = vals[0].dtype
    if vals[0].vector:
        assert st.vec is not None
        fn = st.prelude.op(key, st.vec.width, dtype, len(vals))
    else:
        fn = st.prelude.scalar(key, dtype)
    texts = zip(*(v.parts for v in vals), strict=True)
    return Val(tuple(f"{fn}({', '.join(t)})" for t in texts), dtype, vals[0].vector)


def _extremum(st: State, op: str, x: Val, y: Val) -> Val:
    """min and max; where one side is known not to be NaN the raw instruction, which returns its second operand on NaN, is enough."""
    if x.dtype.kind == "b":
        return mask_op(st, "&" if op == "min" else "|", x, y)
    if not x.dtype.is_float:
        return helper(st, f"hw{op}" if x.vector else op, x, y)
    raw = not x.vector or st.target.isa.name in NAN_SECOND
    if raw and x.ordered:
        return replace(helper(st, f"hw{op}", x, y), ordered=y.ordered)
    if raw and y.ordered:
        return helper(st, f"hw{op}", y, x)
    return helper(st, op, x, y)


def mask_op(st: State, op: str, x: Val, y: Val) -> Val:
    """and, or, exclusive or of two bools."""
    x, y = unify(st, x, y)
    if not x.vector:
        return Val((f"({x.text} {op} {y.text})",), x.dtype)
    bits = max(x.bits, y.bits)
    x, y = to_bits(st, x, bits), to_bits(st, y, bits)
    m = st.ctype(x)
    return replace(x, parts=tuple(f"(({m})({a} {op} {b}))" for a, b in zip(x.parts, y.parts, strict=True)))


def to_bool(st: State, v: Val) -> Val:
    """Whether a value is not zero."""
    return v if v.dtype.kind == "b" else compare(st, "!=", v, constant(0, v.dtype))


def compare(st: State, op: str, x: Val, y: Val) -> Val:
    """A comparison of two values of one dtype."""
    x, y = unify(st, x, y)
    bool_t = BY_NAME["bool_"]
    if not x.vector:
        return Val((f"({x.text} {op} {y.text})",), bool_t)
    assert st.vec is not None
    if x.dtype.kind == "b":
        x, y = (bool_to(st, v, u8) for v in (x, y))
    fn = st.prelude.compare(op, st.vec.width, x.dtype)
    bits = 0 if st.target.isa.masks else x.dtype.bits
    return Val(tuple(f"{fn}({a}, {b})" for a, b in zip(x.parts, y.parts, strict=True)), bool_t, True, bits)


def blend(st: State, cond: Val, yes: Val, no: Val) -> Val:
    """yes where cond is set, else no, lane by lane."""
    cond, yes, no = lift(st, cond), lift(st, yes), lift(st, no)
    assert st.vec is not None
    if yes.dtype.kind == "b":
        if not st.hard:
            cond = st.pin(cond)
        return mask_op(st, "|", mask_op(st, "&", cond, yes), mask_op(st, "&", unary(st, "not", cond), no))
    cond = to_bits(st, cond, yes.dtype.bits)
    fn = st.prelude.blend(st.vec.width, yes.dtype)
    texts = zip(cond.parts, yes.parts, no.parts, strict=True)
    return Val(tuple(f"{fn}({c}, {a}, {b})" for c, a, b in texts), yes.dtype, True, ordered=yes.ordered and no.ordered)


def bool_to(st: State, v: Val, dtype: DType) -> Val:
    """A bool as 0 and 1 of a numeric type."""
    if not v.vector:
        return Val((f"(({dtype.ctype}){v.text})",), dtype)
    return blend(st, v, constant(1, dtype), constant(0, dtype))


def convert(st: State, x: Val, target: DType) -> Val:
    """Conversion between computed types."""
    if x.vector:
        assert st.vec is not None
        fn = st.prelude.convert(st.vec.width, x.dtype, target)
        return Val(tuple(f"{fn}({p})" for p in x.parts), target, True)
    middle = ""
    if x.dtype.is_float and target.is_integer and target.bits < 32:
        middle = "(int32_t)"
    elif x.dtype.is_float and target.name == "u32":
        middle = "(int64_t)"
    return Val((f"(({target.ctype}){middle}{x.text})",), target)


def round_to(st: State, v: Val, dtype: DType) -> Val:
    """Through a storage type and back."""
    if v.vector:
        assert st.vec is not None
        down, up = st.prelude.convert(st.vec.width, v.dtype, dtype), st.prelude.convert(st.vec.width, dtype, v.dtype)
        return Val(tuple(f"{up}({down}({p}))" for p in v.parts), v.dtype, True)
    if dtype.name == "bf16":
        return Val((f"{st.prelude.scalar('from_bf16')}({st.prelude.scalar('to_bf16')}({v.text}))",), v.dtype)
    return Val((f"((float)(_Float16){v.text})",), v.dtype)


def call(st: State, fn: str, args: list[Val]) -> Val:
    """An intrinsic."""
    x = args[0]
    if fn in ("isnan", "isinf"):
        if not x.dtype.is_float:
            return constant(False, BY_NAME["bool_"])
        if not x.vector:
            return Val((f"({fn}({x.text}) != 0)",), BY_NAME["bool_"])
        if fn == "isnan":
            x = x if st.hard else st.pin(x)
            return compare(st, "!=", x, x)
        return compare(st, "==", call(st, "abs", [x]), constant(math.inf, x.dtype))
    if not x.dtype.is_float and fn in ("floor", "ceil", "round", "trunc"):
        return x
    if x.dtype.kind == "b":
        return x
    if not x.vector and len(args) == 1:
        if x.dtype.is_float and fn not in ("sigmoid", "rsqrt", "sign"):
            name = {"abs": "fabs", "round": "rint"}.get(fn, fn)
            return Val((f"{name}{'f' if x.dtype == f32 else ''}({x.text})",), x.dtype)
        return helper(st, fn, x)
    if fn == "sign" and x.dtype.is_float and len(args) == 1:
        x = x if st.hard else st.pin(x)
        zero = constant(0.0, x.dtype)
        below = blend(st, compare(st, "<", x, zero), constant(-1.0, x.dtype), x)
        return blend(st, compare(st, ">", x, zero), constant(1.0, x.dtype), below)
    if fn == "rsqrt":
        return binary(st, "/", constant(1.0, x.dtype), helper(st, "sqrt", x))
    if fn == "abs" and x.dtype.is_float:
        return _float_abs(st, x)
    if fn in VECTOR_MATH and x.dtype == f32 and st.fp != "strict":
        assert st.vec is not None
        name = vector_math(st.prelude, fn, st.vec.width)
        return Val(tuple(f"{name}({p})" for p in x.parts), x.dtype, True)
    return helper(st, fn, *args)


def _float_abs(st: State, x: Val) -> Val:
    assert st.vec is not None
    u = st.prelude.vector(st.vec.width, BY_NAME[f"u{x.dtype.bits}"])
    v = st.ctype(x)
    mask = "0x7fffffffu" if x.dtype == f32 else "0x7fffffffffffffffull"
    return replace(x, parts=tuple(f"(({v})(({u}){p} & {mask}))" for p in x.parts))
