"""Emitted text and how to build it. Takes an emitter's output; gives `Source`, half of the contract between compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass

from .tensor import ScalarArg, Tensor


@dataclass(frozen=True)
class Source:
    """One kernel's text. The C function is

        void <entry>(<tensor pointers in order of `tensors`>, <scalars by value>, <int64_t params>, char *scratch)

    read-only tensors are `const T *restrict`, others `T *restrict`; `scratch` is present iff `scratch_bytes` > 0 or it is a str
    (a C expression in the params), 64-byte aligned and private to the calling thread. Where `dialect` is not "c" the entry is a device kernel
    and `launch` holds grid and block sizes as C expressions in the params.
    `joinable`: the text may be compiled in one file with other joinable texts of the same flags.
    """

    text: str
    entry: str
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarArg, ...] = ()
    params: tuple[str, ...] = ()
    isa: str = "scalar"
    flags: tuple[str, ...] = ()
    scratch_bytes: int | str = 0
    dialect: str = "c"
    joinable: bool = False
    launch: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def needs_scratch(self) -> bool:
        """Whether the function takes a scratch pointer."""
        return isinstance(self.scratch_bytes, str) or self.scratch_bytes > 0
