"""What differs between instruction sets, as tables. Takes an ISA name, a number of lanes and an element type; gives C templates.

A template is a `str.format` text of its operands. An operation without a template is emitted as plain vector C or lane by lane, so a table
may be incomplete and still correct. `{0}`, `{1}`, `{2}` are operands, `{n}` a lane count, `{p}` an address, `{m}` a mask.
Floats: fma = a*b+c, fms = a*b-c, fnma = c-a*b; hwmin and hwmax are the raw instructions, of which x86's return the second operand where
one is NaN (`nan_second`).
"""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, str, int, str]  # operation, ISA, bytes of the vector, element type

HEADERS: Mapping[str, tuple[str, ...]] = {
    "scalar": (),
    "avx2": ("immintrin.h",),
    "avx512": ("immintrin.h",),
    "neon": ("arm_neon.h",),
}
SCALAR_FMA = frozenset({"avx2", "avx512", "neon"})
NAN_SECOND = frozenset({"avx2", "avx512"})

_X86_PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}
_X86_REG = {16: "__m128", 32: "__m256", 64: "__m512"}
_ROUND = {"round": 8, "floor": 9, "ceil": 10, "trunc": 11}
COMPARE_IMM = {"==": 0, "<": 1, "<=": 2, "!=": 4, ">=": 5, ">": 6}  # integers
COMPARE_IMM_FLOAT = {"==": 0, "<": 17, "<=": 18, "!=": 4, ">=": 29, ">": 30}  # ordered but for !=, quiet or signalling alike
_FLOATS = (("f32", "ps", 4), ("f64", "pd", 8))
_INTS = (
    ("i8", "epi8", 1), ("i16", "epi16", 2), ("i32", "epi32", 4), ("i64", "epi64", 8),
    ("u8", "epu8", 1), ("u16", "epu16", 2), ("u32", "epu32", 4), ("u64", "epu64", 8),
)  # fmt: skip


def _x86_float(isa: str, width: int, name: str, suffix: str) -> dict[Key, str]:
    f = _X86_PREFIX[width]
    out = {
        "splat": f"{f}_set1_{suffix}({{0}})",
        "fma": f"{f}_fmadd_{suffix}({{0}}, {{1}}, {{2}})",
        "fms": f"{f}_fmsub_{suffix}({{0}}, {{1}}, {{2}})",
        "fnma": f"{f}_fnmadd_{suffix}({{0}}, {{1}}, {{2}})",
        "sqrt": f"{f}_sqrt_{suffix}({{0}})",
        "hwmin": f"{f}_min_{suffix}({{0}}, {{1}})",
        "hwmax": f"{f}_max_{suffix}({{0}}, {{1}})",
    }
    for op, imm in _ROUND.items():
        out[op] = f"{f}_roundscale_{suffix}({{0}}, {imm})" if width == 64 else f"{f}_round_{suffix}({{0}}, {imm})"
    if isa == "avx512":
        nan = f"{f}_cmp_{suffix}_mask({{0}}, {{0}}, 3)"
        for op in ("min", "max"):
            out[op] = f"{f}_mask_mov_{suffix}({f}_{op}_{suffix}({{0}}, {{1}}), {nan}, {{0}})"
    else:
        for op in ("min", "max"):
            out[op] = f"{f}_blendv_{suffix}({f}_{op}_{suffix}({{0}}, {{1}}), {{0}}, {f}_cmp_{suffix}({{0}}, {{0}}, 3))"
    return {(op, isa, width, name): text for op, text in out.items()}


def _x86_int(isa: str, width: int, name: str, suffix: str, size: int) -> dict[Key, str]:
    f = _X86_PREFIX[width]
    reg = f"__m{width * 8}i"
    out: dict[str, str] = {}
    if size < 8 or isa == "avx512":
        for op in ("min", "max"):
            out[f"hw{op}"] = f"{f}_{op}_{suffix}(({reg}){{0}}, ({reg}){{1}})"
    return {(op, isa, width, name): text for op, text in out.items()}


def _avx512_masks(width: int, name: str, suffix: str, size: int) -> dict[Key, str]:
    """Masked loads and stores, compares into mask registers, blends; `{m}` is a mask register."""
    f, lanes = _X86_PREFIX[width], width // size
    is_float = name[0] == "f"
    reg = _X86_REG[width] + ({"f32": "", "f64": "d"}[name] if is_float else "i")
    move = suffix if is_float else suffix.replace("epu", "epi")
    cast, to_mask = ("", f"(__mmask{max(8, lanes)})") if is_float else (f"({reg})", f"(__mmask{max(8, lanes)})")
    out = {
        "mask_load": f"{f}_maskz_loadu_{move}({to_mask}({{m}}), {{p}})",
        "mask_store": f"{f}_mask_storeu_{move}({{p}}, {to_mask}({{m}}), {cast}{{0}})",
        "blend": f"{f}_mask_blend_{move}({to_mask}({{m}}), {cast}{{1}}, {cast}{{0}})",
    }
    for op in COMPARE_IMM:
        imm = COMPARE_IMM_FLOAT[op] if is_float else COMPARE_IMM[op]
        out[f"cmp{op}"] = f"{f}_cmp_{suffix}_mask({cast}{{0}}, {cast}{{1}}, {imm})"
    return {(op, "avx512", width, name): text for op, text in out.items()}


def _avx2_masks(width: int, name: str, size: int) -> dict[Key, str]:
    """AVX2 has masked loads and stores of 4- and 8-byte elements; `{m}` is an integer vector of 0 and -1."""
    f = _X86_PREFIX[width]
    reg = f"__m{width * 8}i"
    out: dict[str, str] = {}
    if name in ("f32", "f64"):
        suffix = "ps" if name == "f32" else "pd"
        r = _X86_REG[width] + ("" if name == "f32" else "d")
        out["mask_load"] = f"{f}_maskload_{suffix}({{p}}, ({reg}){{m}})"
        out["mask_store"] = f"{f}_maskstore_{suffix}({{p}}, ({reg}){{m}}, {{0}})"
        out["blend"] = f"{f}_blendv_{suffix}({{1}}, {{0}}, ({r}){{m}})"
    elif size >= 4:
        suffix, ptr = ("epi32", "int") if size == 4 else ("epi64", "long long")
        out["mask_load"] = f"{f}_maskload_{suffix}((const {ptr} *){{p}}, ({reg}){{m}})"
        out["mask_store"] = f"{f}_maskstore_{suffix}(({ptr} *){{p}}, ({reg}){{m}}, ({reg}){{0}})"
    if size <= 8 and name[0] in "iu":
        out["blend"] = f"{f}_blendv_epi8(({reg}){{1}}, ({reg}){{0}}, ({reg}){{m}})"
    return {(op, "avx2", width, name): text for op, text in out.items()}


def _neon() -> dict[Key, str]:
    out: dict[str, dict[str, str]] = {}
    for name, s in (("f32", "f32"), ("f64", "f64")):
        out[name] = {
            "splat": f"vdupq_n_{s}({{0}})",
            "fma": f"vfmaq_{s}({{2}}, {{0}}, {{1}})",
            "fnma": f"vfmsq_{s}({{2}}, {{0}}, {{1}})",
            "fms": f"vnegq_{s}(vfmsq_{s}({{2}}, {{0}}, {{1}}))",
            "sqrt": f"vsqrtq_{s}({{0}})",
            "min": f"vminq_{s}({{0}}, {{1}})",
            "max": f"vmaxq_{s}({{0}}, {{1}})",
            "hwmin": f"vminq_{s}({{0}}, {{1}})",
            "hwmax": f"vmaxq_{s}({{0}}, {{1}})",
            "round": f"vrndnq_{s}({{0}})",
            "floor": f"vrndmq_{s}({{0}})",
            "ceil": f"vrndpq_{s}({{0}})",
            "trunc": f"vrndq_{s}({{0}})",
        }
    return {(op, "neon", 16, name): text for name, ops in out.items() for op, text in ops.items()}


def _table() -> dict[Key, str]:
    out: dict[Key, str] = {}
    for isa, widths in (("avx2", (16, 32)), ("avx512", (16, 32, 64))):
        for width in widths:
            for name, suffix, size in _FLOATS:
                out |= _x86_float(isa, width, name, suffix)
                out |= _avx512_masks(width, name, suffix, size) if isa == "avx512" else _avx2_masks(width, name, size)
            for name, suffix, size in _INTS:
                out |= _x86_int(isa, width, name, suffix, size)
                out |= _avx512_masks(width, name, suffix, size) if isa == "avx512" else _avx2_masks(width, name, size)
    for op in ("add", "max", "min", "mul"):
        for name, suffix, _ in _FLOATS:
            out["reduce" + op, "avx512", 64, name] = f"_mm512_reduce_{op}_{suffix}({{0}})"
    out["widen", "avx512", 32, "f16"] = "_mm512_cvtph_ps((__m256i){0})"
    out["narrow", "avx512", 32, "f16"] = "_mm512_cvtps_ph({0}, 8)"
    out["widen", "avx512", 16, "f16"] = "_mm512_castps512_ps256(_mm512_cvtph_ps(_mm256_castsi128_si256((__m128i){0})))"
    out["narrow", "avx512", 16, "f16"] = "_mm256_castsi256_si128(_mm512_cvtps_ph(_mm512_castps256_ps512({0}), 8))"
    return out | _neon()


TABLE: Mapping[Key, str] = _table()


def template(op: str, isa: str, nbytes: int, dtype: str) -> str | None:
    """The template of an operation on a vector of `nbytes` bytes of `dtype`, None where the ISA has none."""
    if dtype == "f16" and op in ("mask_load", "mask_store", "blend"):
        dtype = "i16"
    return TABLE.get((op, isa, nbytes, dtype))
