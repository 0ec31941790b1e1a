"""Small pieces of C text: identifiers, string literals, affine expressions with overflow checks, kernel prototypes.

Takes names and `Affine`s; gives text. Expressions use the helpers of `CHECKED`, where `bad` collects any overflow.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from polyopt.ir.affine import Affine
from polyopt.ir.source import Source
from polyopt.target import ISAS

_KEYWORDS = frozenset({
    *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto"),
    *("if", "inline", "int", "long", "main", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch"),
    *("typedef", "union", "unsigned", "void", "volatile", "while"),
})  # fmt: skip

CHECKED = """
#define UNUSED __attribute__((unused))
UNUSED static inline int64_t add(int64_t a, int64_t b, int *bad) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) *bad = 1;
  return r;
}
UNUSED static inline int64_t mul(int64_t a, int64_t b, int *bad) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) *bad = 1;
  return r;
}
UNUSED static inline int64_t div_floor(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}
UNUSED static inline int64_t size(int64_t a, int *bad) {
  if (a < 0) *bad = 1;
  return a;
}
"""

# CPUID leaf, subleaf, register, bit, and the XCR0 bits that say that the system saves the registers
_CPU_FEATURES = {
    "sse4_1": (1, 0, "ecx", 19, 0), "sse4_2": (1, 0, "ecx", 20, 0), "popcnt": (1, 0, "ecx", 23, 0), "fma": (1, 0, "ecx", 12, 0x6),
    "avx": (1, 0, "ecx", 28, 0x6), "f16c": (1, 0, "ecx", 29, 0x6), "bmi": (7, 0, "ebx", 3, 0), "avx2": (7, 0, "ebx", 5, 0x6),
    "bmi2": (7, 0, "ebx", 8, 0), "avx512f": (7, 0, "ebx", 16, 0xE6), "avx512dq": (7, 0, "ebx", 17, 0xE6),
    "avx512cd": (7, 0, "ebx", 28, 0xE6), "avx512bw": (7, 0, "ebx", 30, 0xE6), "avx512vl": (7, 0, "ebx", 31, 0xE6),
    "avx512vbmi": (7, 0, "ecx", 1, 0xE6), "avx512vnni": (7, 0, "ecx", 11, 0xE6), "avxvnni": (7, 1, "eax", 4, 0x6),
    "avx512bf16": (7, 1, "eax", 5, 0xE6), "avx512fp16": (7, 0, "edx", 23, 0xE6),
}  # fmt: skip


def identifier(name: str) -> str:
    """A C identifier close to `name`."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    text = re.sub(r"^_+(?=\w)", "", text) or "model"
    return f"m_{text}" if text[0].isdigit() or text in _KEYWORDS else text


def string(text: str) -> str:
    """A C string literal (octal for what is not plain ASCII; `?` too, for trigraphs, and `@`, for marks)."""
    out = []
    for byte in text.encode("utf-8", "surrogatepass"):
        c = chr(byte)
        out.append(c if 32 <= byte < 127 and c not in '"\\?@' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def checked(expr: Affine, name: Callable[[str], str]) -> str:
    """An int64 C expression of `expr`; `name` spells a variable."""
    text = ""
    for atom, k in expr.terms:
        value = name(atom) if isinstance(atom, str) else f"div_floor({checked(atom.num, name)}, {atom.den})"
        if k != 1:
            value = f"mul({value}, {literal(k)}, &bad)"
        text = f"add({text}, {value}, &bad)" if text else value
    if not text:
        return literal(expr.const)
    return f"add({text}, {literal(expr.const)}, &bad)" if expr.const else text


def literal(value: int) -> str:
    """An int64 constant."""
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit in 64 bits")
    if value == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({value})" if abs(value) >= 2**31 else str(value)


def prototype(source: Source) -> str:
    """The declaration of a kernel."""
    params = [f"{pointer_type(t.dtype.ctype, t.role)}restrict" for t in source.tensors]
    params += [s.dtype.ctype for s in source.scalars]
    params += ["int64_t"] * len(source.params)
    if source.needs_scratch:
        params.append("char *")
    return f"void {source.entry}({', '.join(params) or 'void'});"


def param_identifiers(source: Source) -> list[str]:
    """How a kernel's text spells its params: an emitter may have to rename a dim that is no C identifier. Read from the definition."""
    found = re.search(rf"\b{re.escape(source.entry)}\s*\(([^)]*)\)\s*{{", source.text)
    args = [re.findall(r"\w+", a) for a in found.group(1).split(",")] if found else []
    end = len(args) - source.needs_scratch
    spelled = [a[-1] for a in args[end - len(source.params) : end] if a] if end >= len(source.params) else []
    return spelled if len(spelled) == len(source.params) else [identifier(p) for p in source.params]


def pointer_type(ctype: str, role: str) -> str:
    """`const T *` for what a kernel only reads, else `T *`."""
    return f"const {ctype} *" if role in ("input", "constant") else f"{ctype} *"


def cpu_features(isa: str, flags: tuple[str, ...]) -> set[str]:
    """The CPUID features that code of this ISA, built with these flags, may use."""
    asked = set(ISAS[isa].cpu) if isa in ISAS else set()
    asked |= {flag[2:].replace(".", "_") for flag in flags if flag.startswith("-m")}
    return asked & set(_CPU_FEATURES)


def cpu_check(features: set[str]) -> str:
    """A function `missing_feature()`: the first CPU feature that is missing, or NULL. CPUID is asked directly: the builtin is not
    to be relied on with every compiler (zig's runtime answers no to all)."""
    ordered = [f for f in _CPU_FEATURES if f in features]
    if not ordered:
        return "static const char *missing_feature(void) { return NULL; }\n"
    rows = [
        f"    {{{string(name)}, {leaf}, {sub}, {['eax', 'ebx', 'ecx', 'edx'].index(register)}, {bit}, {saved:#x}}},"
        for name in ordered
        for leaf, sub, register, bit, saved in [_CPU_FEATURES[name]]
    ]
    return _CPU_CHECK.replace("@rows@", "\n".join(rows))


_CPU_CHECK = """
#include <cpuid.h>
static const char *missing_feature(void) {
  static const struct { const char *name; unsigned leaf, subleaf, reg, bit, saved; } want[] = {
@rows@
  };
  unsigned r[4], saved = 0;
  if (__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) && (r[2] >> 27 & 1)) {
    unsigned high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  }
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    if (!__get_cpuid_count(want[i].leaf, want[i].subleaf, &r[0], &r[1], &r[2], &r[3])) return want[i].name;
    if (!(r[want[i].reg] >> want[i].bit & 1) || (saved & want[i].saved) != want[i].saved) return want[i].name;
  }
  return NULL;
}
"""
