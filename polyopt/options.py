"""Options of a compilation: one frozen value, part of the cache key. Takes plain values; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import UserError

FP_LEVELS = ("strict", "default", "fast")
TARGETS = ("cpu", "cuda", "opencl", "hip")
MOST_THREADS = 1024
LARGEST_DIM = 2**56  # bytes of the largest address space there is: products of few such numbers are still told from sizes


@dataclass(frozen=True)
class Options:
    """What the user may choose.

    target: cpu, cuda, opencl or hip. isa: native, scalar, avx2, avx512 or neon. threads: of the compiled code.
    fp: strict (bit-identical to the source order), default (explicit FMA, reassociated reductions and linear recurrences), fast (also reciprocal
    division).
    dims: values for symbolic dims.
    """

    target: str = "cpu"
    isa: str = "native"
    threads: int = 1
    fp: str = "default"
    dims: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fp not in FP_LEVELS:
            raise UserError(f"Options(fp={self.fp!r}): choose one of {', '.join(FP_LEVELS)}")
        if self.target not in TARGETS:
            raise UserError(f"Options(target={self.target!r}): choose one of {', '.join(TARGETS)}")
        if isinstance(self.threads, bool) or not isinstance(self.threads, int) or not 1 <= self.threads <= MOST_THREADS:
            raise UserError(f"Options(threads={self.threads!r}): give a whole number of at least 1 and at most {MOST_THREADS}")
        if not isinstance(self.dims, Mapping):
            raise UserError(f"Options(dims={self.dims!r}): give a mapping from names to sizes, such as {{'batch': 1}}")
        for k, v in self.dims.items():
            if isinstance(v, bool) or not isinstance(v, int) or not 1 <= v <= LARGEST_DIM:
                raise UserError(f"Options(dims={{{k!r}: {v!r}}}): a dim must be a whole number of at least 1 and at most {LARGEST_DIM}")
