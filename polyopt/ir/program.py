"""A compiled model: kernel calls in order over one arena. Takes Sources and a memory plan; gives `Program`, the runtime's input.

Sizes are products of affine dims, so that a plan made once serves every size of the symbolic dims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .affine import Affine
from .dtype import DType
from .source import Source

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Port:
    """An input or output of the model: logical shape, dense row-major."""

    name: str
    dtype: DType
    shape: tuple[Affine, ...]


@dataclass(frozen=True)
class Buffer:
    """A region of the arena: `elements` dims multiplied by `itemsize` bytes, at byte `offset` (static plans) or in slot `slot`.

    Static program (no dims): every `offset` is an int and `slot` is -1. Otherwise slots lie one after another, each as large as its
    largest buffer (rounded up to 64 bytes), and `offset` is 0 within the slot. `zero`: filled with zeros once, when a context is made.
    """

    name: str
    elements: tuple[Affine, ...]
    itemsize: int
    offset: int = 0
    slot: int = -1
    zero: bool = False


@dataclass(frozen=True)
class Arg:
    """A pointer argument of a call: kind is input, output, constant or arena; `name` the port, constant or buffer."""

    kind: str
    name: str


@dataclass(frozen=True)
class KernelCall:
    """Call `entry` with pointers `args`; the kernel's params (int64) are given as affine expressions of the program's dims."""

    entry: str
    args: tuple[Arg, ...]
    params: tuple[Affine, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Program:
    """Everything that the runtime and the artifact writer need. `dims` are the symbolic dims, bound from the inputs' shapes."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dims: tuple[str, ...]
    kernels: tuple[Source, ...]
    calls: tuple[KernelCall, ...]
    buffers: tuple[Buffer, ...]
    arena_bytes: int
    constants: Mapping[str, np.ndarray[Any, Any]]
    scratch_bytes: int = 0
    threads: int = 1
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<program {self.name}: {len(self.calls)} calls of {len(self.kernels)} kernels, {len(self.constants)} constants>"

    def kernel(self, entry: str) -> Source:
        """The kernel of that entry (KeyError where there is none)."""
        for k in self.kernels:
            if k.entry == entry:
                return k
        raise KeyError(entry)
