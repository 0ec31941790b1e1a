"""The head of an emitted file: includes, vector types and the static inline helpers that the body asked for.

Takes requests (an operation, a number of lanes, an element type); gives helper names and, at the end, the text. A helper is one
instruction where the ISA's table has a template, else plain vector C or a loop over the lanes. Only requested helpers are emitted, so that
no compiler warns of unused ones. Vectors never exceed the ISA's width, so that passing them by value has one ABI.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from polyopt.ir.dtype import BY_NAME, DType, i8, i16, i32, i64
from polyopt.target import Isa

from .isa import HEADERS, template
from .scalar_helpers import scalar_helper

SIGNED = {8: i8, 16: i16, 32: i32, 64: i64}
INLINE = "static inline __attribute__((always_inline))"


def storage_name(dtype: DType) -> str:
    """The element name used in helper names: bool is stored as u8, bf16 as u16."""
    return {"bool_": "u8", "bf16": "u16"}.get(dtype.name, dtype.name)


@dataclass
class Prelude:
    """Collects what the emitted text needs."""

    isa: Isa
    headers: set[str] = field(default_factory=lambda: {"math.h", "stdint.h"})
    types: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The collected head."""
        heads = sorted(self.headers - {"immintrin.h", "arm_neon.h"}) + sorted(self.headers & {"immintrin.h", "arm_neon.h"})
        parts = ["".join(f"#include <{h}>\n" for h in heads), "".join(f"{t}\n" for t in self.types.values())]
        # guarded, so that the texts of several kernels can be compiled as one file
        helpers = [f"#ifndef HAVE_{name}\n#define HAVE_{name}\n{text}\n#endif" for name, text in self.functions.items()]
        return "\n".join(p for p in [*parts, *helpers] if p) + "\n"

    # ---- types
    def vector(self, lanes: int, dtype: DType) -> str:
        """The vector type of `lanes` elements."""
        name = storage_name(dtype)
        ctype = BY_NAME[name].ctype
        text = f"v{lanes}{name}"
        if text not in self.types:
            self.headers.update(HEADERS[self.isa.name])
            self.types[text] = f"typedef {ctype} {text} __attribute__((vector_size({lanes * dtype.bytes})));"
        return text

    def unaligned(self, lanes: int, dtype: DType) -> str:
        """The vector type for memory accesses: any element alignment, may alias the scalars."""
        base = self.vector(lanes, dtype)
        text = base + "u"
        if text not in self.types:
            ctype = BY_NAME[storage_name(dtype)].ctype
            self.types[text] = (
                f"typedef {ctype} {text} __attribute__((vector_size({lanes * dtype.bytes}), aligned({dtype.bytes}), may_alias));"
            )
        return text

    def mask(self, lanes: int, bits: int) -> str:
        """The type of a lane mask: a mask register, or a vector of 0 and -1 of `bits` wide integers."""
        if self.isa.masks:
            self.headers.update(HEADERS[self.isa.name])
            return f"__mmask{max(8, lanes)}"
        return self.vector(lanes, SIGNED[bits])

    # ---- helpers
    def define(self, name: str, text: str) -> str:
        """Add a helper once."""
        if name not in self.functions:
            self.functions[name] = text
        return name

    def scalar(self, key: str, dtype: DType | None = None) -> str:
        """A scalar helper of `scalar_helpers`."""
        helper = scalar_helper(key, dtype)
        self.headers.update(helper.headers)
        for k in helper.needs:
            self.scalar(k, dtype)
        return self.define(helper.name, helper.text)

    def template(self, op: str, lanes: int, dtype: DType) -> str | None:
        """The ISA's template, if any."""
        return template(op, self.isa.name, lanes * dtype.bytes, storage_name(dtype))

    def splat(self, lanes: int, dtype: DType) -> str:
        """Broadcast a scalar."""
        v = self.vector(lanes, dtype)
        body = self.template("splat", lanes, dtype)
        body = body.format("x") if body else f"({v}){{{', '.join(['x'] * lanes)}}}"
        ctype = BY_NAME[storage_name(dtype)].ctype
        return self.define(f"po_splat_{v}", f"{INLINE} {v} po_splat_{v}({ctype} x) {{ return {body}; }}")

    def op(self, op: str, lanes: int, dtype: DType, arity: int) -> str:
        """An elementwise operation: the template, else lane by lane through the scalar helper of the same name."""
        v = self.vector(lanes, dtype)
        name = f"po_{op}_{v}"
        if name in self.functions:
            return name
        args = "abc"[:arity]
        params = ", ".join(f"{v} {a}" for a in args)
        body = self.template(op, lanes, dtype)
        if body is not None:
            cast = "" if dtype.is_float else f"({v})"
            return self.define(name, f"{INLINE} {v} {name}({params}) {{ return {cast}{body.format(*args)}; }}")
        if dtype.is_integer and op in ("hwmin", "hwmax"):
            sign = "<" if op == "hwmin" else ">"
            body = f"{v} m = ({v})(a {sign} b); return (a & m) | (b & ~m);"
            return self.define(name, f"{INLINE} {v} {name}({params}) {{ {body} }}")
        return self.lanewise(op, lanes, dtype, arity)

    def lanewise(self, op: str, lanes: int, dtype: DType, arity: int) -> str:
        """An elementwise operation as a loop over the lanes."""
        v = self.vector(lanes, dtype)
        name = f"po_{op}_{v}"
        if name in self.functions:
            return name
        scalar = self.scalar(op, dtype)
        args = "abc"[:arity]
        call = ", ".join(f"{a}[i]" for a in args)
        loop = f"for (int i = 0; i < {lanes}; i++) r[i] = {scalar}({call});"
        params = ", ".join(f"{v} {a}" for a in args)
        return self.define(name, f"static inline {v} {name}({params}) {{\n    {v} r = {{0}};\n    {loop}\n    return r;\n}}")

    # ---- masks
    def count_mask(self, lanes: int, bits: int) -> str:
        """The mask of the first n lanes."""
        m = self.mask(lanes, bits)
        if self.isa.masks:
            name = f"po_first{lanes}"
            ones = "0xffffffffu >> (32 - n)" if lanes == 32 else "~0ull >> (64 - n)" if lanes == 64 else "(1u << n) - 1u"
            zero = " if (n <= 0) return 0;" if lanes >= 32 else ""
            return self.define(name, f"{INLINE} {m} {name}(int n) {{{zero} return ({m})({ones}); }}")
        name = f"po_first_{m}"
        splat = self.splat(lanes, SIGNED[bits])
        iota = ", ".join(map(str, range(lanes)))
        ctype = SIGNED[bits].ctype
        return self.define(name, f"{INLINE} {m} {name}(int n) {{ return ({m})(({m}){{{iota}}} < {splat}(({ctype})n)); }}")

    def compare(self, op: str, lanes: int, dtype: DType) -> str:
        """Compare two vectors into a mask."""
        v = self.vector(lanes, dtype)
        m = self.mask(lanes, dtype.bits)
        word = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}[op]
        name = f"po_{word}_{v}"
        body = self.template(f"cmp{op}", lanes, dtype) if self.isa.masks else None
        if body is not None:
            return self.define(name, f"{INLINE} {m} {name}({v} a, {v} b) {{ return {body.format('a', 'b')}; }}")
        if self.isa.masks:
            loop = f"for (int i = 0; i < {lanes}; i++) r |= ({m})(({m})(a[i] {op} b[i]) << i);"
            return self.define(name, f"{INLINE} {m} {name}({v} a, {v} b) {{ {m} r = 0; {loop} return r; }}")
        return self.define(name, f"{INLINE} {m} {name}({v} a, {v} b) {{ return ({m})(a {op} b); }}")

    def blend(self, lanes: int, dtype: DType) -> str:
        """yes where the mask is set, else no."""
        v = self.vector(lanes, dtype)
        m = self.mask(lanes, dtype.bits)
        name = f"po_blend_{v}"
        body = self.template("blend", lanes, dtype)
        if body is not None:
            return self.define(name, f"{INLINE} {v} {name}({m} m, {v} a, {v} b) {{ return ({v}){body.format('a', 'b', m='m')}; }}")
        if self.isa.masks:
            loop = f"for (int i = 0; i < {lanes}; i++) if (m >> i & 1) b[i] = a[i];"
            return self.define(name, f"{INLINE} {v} {name}({m} m, {v} a, {v} b) {{ {loop} return b; }}")
        body = f"({v})((({m})a & m) | (({m})b & ~m))"
        return self.define(name, f"{INLINE} {v} {name}({m} m, {v} a, {v} b) {{ return {body}; }}")

    def load(self, lanes: int, dtype: DType) -> str:
        """Load the lanes that a mask selects; the others are zero and are not touched."""
        return self._masked(lanes, dtype, "mask_load")

    def store(self, lanes: int, dtype: DType) -> str:
        """Store the lanes that a mask selects."""
        return self._masked(lanes, dtype, "mask_store")

    def _masked(self, lanes: int, dtype: DType, op: str) -> str:
        v = self.vector(lanes, dtype)
        ctype = BY_NAME[storage_name(dtype)].ctype
        m = self.mask(lanes, dtype.bits)
        test = "m >> i & 1" if self.isa.masks else "m[i]"
        body = self.template(op, lanes, dtype)
        if op == "mask_load":
            name = f"po_load_{v}"
            body = f"return ({v}){body.format(p='p', m='m')};" if body else (
                f"{v} r = {{0}}; for (int i = 0; i < {lanes}; i++) if ({test}) r[i] = p[i]; return r;")  # fmt: skip
            return self.define(name, f"{INLINE} {v} {name}(const {ctype} *p, {m} m) {{ {body} }}")
        name = f"po_store_{v}"
        body = f"{body.format('a', p='p', m='m')};" if body else f"for (int i = 0; i < {lanes}; i++) if ({test}) p[i] = a[i];"
        return self.define(name, f"{INLINE} void {name}({ctype} *p, {m} m, {v} a) {{ {body} }}")

    def count_access(self, lanes: int, dtype: DType, store: bool) -> str:
        """Load or store the first n lanes: by mask where the ISA has masked accesses of that type, else by memcpy."""
        v = self.vector(lanes, dtype)
        ctype = BY_NAME[storage_name(dtype)].ctype
        name = f"po_{'store' if store else 'load'}_n_{v}"
        if self.template("mask_store" if store else "mask_load", lanes, dtype) is not None:
            first = self.count_mask(lanes, dtype.bits)
            inner = self.store(lanes, dtype) if store else self.load(lanes, dtype)
            if store:
                return self.define(name, f"{INLINE} void {name}({ctype} *p, int n, {v} a) {{ {inner}(p, {first}(n), a); }}")
            return self.define(name, f"{INLINE} {v} {name}(const {ctype} *p, int n) {{ return {inner}(p, {first}(n)); }}")
        self.headers.add("string.h")
        size = f"(size_t)n * {dtype.bytes}"
        if store:
            return self.define(name, f"{INLINE} void {name}({ctype} *p, int n, {v} a) {{ memcpy(p, &a, {size}); }}")
        return self.define(name, f"{INLINE} {v} {name}(const {ctype} *p, int n) {{ {v} r = {{0}}; memcpy(&r, p, {size}); return r; }}")

    def mask_convert(self, lanes: int, bits: int, to: int) -> str:
        """Widen or narrow a vector mask (identity on mask registers is the caller's)."""
        a, b = self.mask(lanes, bits), self.mask(lanes, to)
        name = f"po_mask_{a}_{b}"
        return self.define(name, f"{INLINE} {b} {name}({a} m) {{ return __builtin_convertvector(m, {b}); }}")

    def mask_bytes(self, lanes: int) -> str:
        """A mask register as bytes 0 and 1."""
        m, b = self.mask(lanes, 8), self.vector(lanes, BY_NAME["u8"])
        name = f"po_bytes_{b}"
        width = {64: "512", 32: "256"}.get(lanes, "")
        if lanes >= 16:
            body = f"return ({b})_mm{width}_maskz_set1_epi8(m, 1);"
        else:
            self.headers.add("string.h")
            body = f"{b} r; __m128i t = _mm_maskz_set1_epi8((__mmask16)m, 1); memcpy(&r, &t, sizeof r); return r;"
        return self.define(name, f"{INLINE} {b} {name}({m} m) {{ {body} }}")

    # ---- reductions and conversions
    def reduce(self, op: str, lanes: int, dtype: DType) -> str:
        """All lanes combined by op (add, mul, min, max; min and max propagate NaN)."""
        v = self.vector(lanes, dtype)
        name = f"po_reduce_{op}_{v}"
        if name in self.functions:
            return name
        body = self.template(f"reduce{op}", lanes, dtype) if op in ("add", "mul") else None
        if body is not None:
            return self.define(name, f"{INLINE} {dtype.ctype} {name}({v} a) {{ return {body.format('a')}; }}")
        lines = []
        half = lanes // 2
        while half:
            order = ", ".join(str(i ^ half) for i in range(lanes))
            lines.append(f"    b = __builtin_shufflevector(a, a, {order});")
            lines.append(f"    a = {self._combine(op, lanes, dtype)};")
            half //= 2
        text = "\n".join(lines)
        return self.define(name, f"{INLINE} {dtype.ctype} {name}({v} a) {{\n    {v} b;\n{text}\n    return a[0];\n}}")

    def _combine(self, op: str, lanes: int, dtype: DType) -> str:
        if op in ("min", "max"):
            return f"{self.op(op if dtype.is_float else 'hw' + op, lanes, dtype, 2)}(a, b)"
        sign = "+" if op == "add" else "*"
        return f"a {sign} b" if dtype.is_float else self.wrapped(sign, lanes, dtype, "a", "b")

    def wrapped(self, sign: str, lanes: int, dtype: DType, a: str, b: str) -> str:
        """Integer vector arithmetic that wraps."""
        v, u = self.vector(lanes, dtype), self.vector(lanes, BY_NAME[f"u{dtype.bits}"])
        return f"({v})(({u}){a} {sign} ({u}){b})"

    def convert(self, lanes: int, src: DType, dst: DType) -> str:
        """Element conversion (storage halves included)."""
        a, b = self.vector(lanes, src), self.vector(lanes, dst)
        name = f"po_{src.name}_to_{dst.name}_v{lanes}"
        half = self.template("widen", lanes, src) if src.name == "f16" else None
        if dst.name == "f16" and self.template("narrow", lanes, dst):
            half = self.template("narrow", lanes, dst)
        if half is not None and "f32" in (src.name, dst.name):
            body = f"return ({b}){half.format('a')};"
        elif src.name == "bf16":
            u = self.vector(lanes, BY_NAME["u32"])
            body = f"return ({b})(__builtin_convertvector(a, {u}) << 16);"
        elif dst.name == "bf16":
            scalar = self.scalar("to_bf16")
            body = f"{b} r = {{0}}; for (int i = 0; i < {lanes}; i++) r[i] = {scalar}(a[i]); return r;"
        elif "f16" in (src.name, dst.name):
            body = f"{b} r = {{0}}; for (int i = 0; i < {lanes}; i++) r[i] = ({BY_NAME[storage_name(dst)].ctype})a[i]; return r;"
        elif src.is_float and dst.is_integer and dst.bits < 32:
            mid = self.vector(lanes, i32)
            body = f"return __builtin_convertvector(__builtin_convertvector(a, {mid}), {b});"
        else:
            body = f"return __builtin_convertvector(a, {b});"
        return self.define(name, f"{INLINE} {b} {name}({a} a) {{ {body} }}")
