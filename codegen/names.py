"""C identifiers for names that may hold any characters. Takes names of tensors, loops and kernels; gives unique C identifiers.

Every name that reaches the emitted text passes through here, comments included, so that no name can end a comment or open a string.
"""

from __future__ import annotations

import re

_KEYWORDS = (
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for",
    "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "asm", "typeof", "scratch", "main", "kernel",
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "intptr_t",
    "uintptr_t", "NULL", "INFINITY", "NAN", "HUGE_VAL", "THREADS", "true", "false", "bool", "memcpy", "memset", "memmove",
    "omp_get_thread_num", "isnan", "isinf", "isfinite", "signbit", "fpclassify", "isnormal", "blockIdx", "threadIdx",
    "blockDim", "gridDim", "warpSize", "half", "__half", "dim3", "assert", "errno", "stdin", "stdout", "stderr", "INT8_MIN",
    "INT16_MIN", "INT32_MIN", "INT64_MIN",
)  # fmt: skip
_LIBM = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf", "erfc",
    "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb", "ldexp",
    "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint", "lround", "modf", "nan", "nearbyint",
    "nextafter", "nexttoward", "pow", "remainder", "remquo", "rint", "round", "scalbln", "scalbn", "sin", "sinh", "sqrt",
    "tan", "tanh", "tgamma", "trunc", "abs", "labs", "j0", "j1", "jn", "y0", "y1", "yn", "gamma", "min", "max", "rsqrt",
)  # fmt: skip
RESERVED = frozenset(_KEYWORDS) | {f + s for f in _LIBM for s in ("", "f", "l")}
_SUSPECT = re.compile(r"_.*|po_.*|v\d+[fiu]\d+u?|m\d+|v\w*_[fsu]\d+|[A-Z][A-Z0-9]*_[A-Z0-9_]*|float\d+\w*|u?int\w*_t")


def identifier(name: str, fallback: str = "x") -> str:
    """A C identifier that resembles `name` and is no keyword, library function or helper of ours (not yet unique)."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:48].strip("_") if name else ""
    if not text:
        text = fallback
    if text[0].isdigit() or _SUSPECT.fullmatch(text):
        text = fallback + text
    return text + "_" if text in RESERVED else text


def comment(name: str) -> str:
    """The name reduced to characters that are harmless in a comment."""
    return re.sub(r"[^A-Za-z0-9_.,:+ \[\]()-]+", "_", name)[:96]


class Names:
    """Hands out identifiers, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._count: dict[str, int] = {}

    def unique(self, name: str, fallback: str = "x") -> str:
        """An identifier like `name` that was not handed out before."""
        base = identifier(name, fallback)
        text = base
        while text in self._taken:
            n = self._count[base] = self._count.get(base, 0) + 1
            text = f"{base}_{n}"
        self._taken.add(text)
        return text

    def fresh(self, prefix: str) -> str:
        """A temporary: prefix and a number."""
        while True:
            n = self._count[prefix] = self._count.get(prefix, -1) + 1
            text = f"{prefix}{n}"
            if text not in self._taken:
                self._taken.add(text)
                return text
