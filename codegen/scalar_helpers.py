"""Scalar helper functions in C for operations whose meaning is not C's. Takes a key and a dtype; gives name and text.

`//` and `%` floor; min and max propagate NaN; shifts by the width or more give zero (or the sign); an integer division by zero gives
zero and never traps, as vector tails may meet zeros in unused lanes; integers wrap.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyopt.ir.dtype import DType

_UNARY_LIBM = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
    "atanh", "exp", "log", "tanh", "erf", "sqrt", "floor", "ceil", "trunc",
)  # fmt: skip


@dataclass(frozen=True)
class Helper:
    """One C function, the helpers and headers it needs."""

    name: str
    text: str
    needs: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


# {T} the C type, {U} the unsigned type that arithmetic wraps in, {f} the libm suffix, {B} the bits; the name is po_<key>_<dtype>
_FLOAT: dict[str, tuple[str, str]] = {
    "min": ("ab", "return a < b || a != a ? a : b;"),
    "max": ("ab", "return a > b || a != a ? a : b;"),
    "hwmin": ("ab", "return a < b ? a : b;"),
    "hwmax": ("ab", "return a > b ? a : b;"),
    "pow": ("ab", "return pow{f}(a, b);"),
    "fmod": ("ab", "return fmod{f}(a, b);"),
    "atan2": ("ab", "return atan2{f}(a, b);"),
    "mod": ("ab", "{T} r = fmod{f}(a, b); return r == 0 ? copysign{f}(0, b) : (r < 0) != (b < 0) ? r + b : r;"),
    "div": ("ab", "{T} r = fmod{f}(a, b), q; if (b == 0) return a / b;\n"
                  "    q = (a - r) / b; if (r != 0 && (r < 0) != (b < 0)) q -= 1;\n"
                  "    {T} w = floor{f}(q); return q == 0 ? copysign{f}(0, a / b) : q - w > ({T})0.5 ? w + 1 : w;"),
    "sign": ("a", "return a != a ? a : ({T})((a > 0) - (a < 0));"),
    "sigmoid": ("a", "{T} z = exp{f}(-fabs{f}(a)); return (a >= 0 ? 1 : z) / (1 + z);"),
    "rsqrt": ("a", "return 1 / sqrt{f}(a);"),
    "abs": ("a", "return fabs{f}(a);"),
    "round": ("a", "return rint{f}(a);"),
    "fma": ("abc", "return fma{f}(a, b, c);"),
    "fms": ("abc", "return fma{f}(a, b, -c);"),
    "fnma": ("abc", "return fma{f}(-a, b, c);"),
}  # fmt: skip
_INT: dict[str, tuple[str, str]] = {
    "min": ("ab", "return a < b ? a : b;"),
    "max": ("ab", "return a > b ? a : b;"),
    "pow": ("ab", "{U} r = 1, x = ({U})a; if (b < 0) return a == 1 ? 1 : a == ({T})-1 ? (b & 1 ? a : 1) : 0;\n"
                  "    for (; b > 0; b = ({T})(b / 2), x *= x) if (b % 2) r *= x;\n    return ({T})r;"),
    "shl": ("ab", "return b < 0 || b >= {B} ? 0 : ({T})(({U})a << b);"),
    "shr": ("ab", "return b < 0 || b >= {B} ? ({T})(a < 0 ? -1 : 0) : ({T})(a >> b);"),
}  # fmt: skip
_SIGNED: dict[str, tuple[str, str]] = {
    "div": ("ab", "if (b == 0) return 0; if (b == -1) return ({T})(0 - ({U})a);\n"
                  "    return ({T})(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));"),
    "mod": ("ab", "if (b == 0 || b == -1) return 0; {T} r = ({T})(a % b); return ({T})(r != 0 && (r < 0) != (b < 0) ? r + b : r);"),
    "cdiv": ("ab", "if (b == 0) return 0; if (b == -1) return ({T})(0 - ({U})a); return ({T})(a / b);"),
    "fmod": ("ab", "return b == 0 || b == -1 ? 0 : ({T})(a % b);"),
    "abs": ("a", "return a < 0 ? ({T})(0 - ({U})a) : a;"),
    "sign": ("a", "return ({T})((a > 0) - (a < 0));"),
}  # fmt: skip
_UNSIGNED: dict[str, tuple[str, str]] = {
    "div": ("ab", "return b == 0 ? 0 : ({T})(a / b);"),
    "cdiv": ("ab", "return b == 0 ? 0 : ({T})(a / b);"),
    "mod": ("ab", "return b == 0 ? 0 : ({T})(a % b);"),
    "fmod": ("ab", "return b == 0 ? 0 : ({T})(a % b);"),
    "pow": ("ab", "{U} r = 1, x = a; for (; b > 0; b = ({T})(b / 2), x *= x) if (b % 2) r *= x;\n    return ({T})r;"),
    "shl": ("ab", "return b >= {B} ? 0 : ({T})(({U})a << b);"),
    "shr": ("ab", "return b >= {B} ? 0 : ({T})(a >> b);"),
    "abs": ("a", "return a;"),
    "sign": ("a", "return ({T})(a > 0);"),
}
_PLAIN: dict[str, Helper] = {
    "floordiv": Helper("po_floordiv", "static inline int64_t po_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }"),
    "imin": Helper("po_imin", "static inline int64_t po_imin(int64_t a, int64_t b) { return a < b ? a : b; }"),
    "imax": Helper("po_imax", "static inline int64_t po_imax(int64_t a, int64_t b) { return a > b ? a : b; }"),
    "from_bf16": Helper("po_from_bf16",
        "static inline float po_from_bf16(uint16_t a) {\n    uint32_t u = (uint32_t)a << 16;\n    float r;\n"
        "    memcpy(&r, &u, 4);\n    return r;\n}", headers=("string.h",)),
    "to_bf16": Helper("po_to_bf16",
        "static inline uint16_t po_to_bf16(float a) {\n    uint32_t u;\n    memcpy(&u, &a, 4);\n"
        "    return (uint16_t)(a != a ? (u >> 16 | 64) : (u + 0x7fffu + (u >> 16 & 1)) >> 16);\n}", headers=("string.h",)),
}  # fmt: skip
SCALAR_HELPERS = frozenset(_PLAIN) | set(_FLOAT) | set(_INT) | set(_SIGNED)


def wrap_type(dtype: DType) -> str:
    """The unsigned C type in which arithmetic of an integer dtype wraps (at least 32 bits: C promotes smaller ones to int)."""
    return f"uint{max(32, dtype.bits)}_t"


def scalar_helper(key: str, dtype: DType | None) -> Helper:
    """The helper for an operation on a dtype."""
    if dtype is None or key in _PLAIN:
        return _PLAIN[key]
    suffix = "f" if dtype.name == "f32" else ""
    if dtype.is_float:
        params, body = _FLOAT.get(key, ("a", f"return {key}{suffix}(a);"))
        assert key in _FLOAT or key in _UNARY_LIBM, key
    else:
        own = _SIGNED if dtype.kind == "i" else _UNSIGNED
        params, body = own[key] if key in own else _INT[key]
    for k, v in (("{T}", dtype.ctype), ("{U}", wrap_type(dtype)), ("{f}", suffix), ("{B}", str(dtype.bits))):
        body = body.replace(k, v)
    body = _one_statement_a_line(body)
    name = f"po_{key}_{dtype.name}"
    args = ", ".join(f"{dtype.ctype} {p}" for p in params)
    return Helper(name, f"static inline {dtype.ctype} {name}({args}) {{\n    {body}\n}}", headers=("math.h",) if dtype.is_float else ())


def _one_statement_a_line(body: str) -> str:
    """Break after each statement (compilers warn of statements that hide behind an `if` on one line)."""
    out, depth = "", 0
    for c in " ".join(body.split()):
        depth += (c == "(") - (c == ")")
        out += c + ("\n   " if c == ";" and depth == 0 else "")
    return out.rstrip()
