"""Arrays and scalar arguments of a kernel, shared by Scop and LoopNest. Takes names, dtypes and affine shapes; no isl here."""

from __future__ import annotations

from dataclasses import dataclass

from .affine import Affine
from .dtype import DType


@dataclass(frozen=True)
class Tensor:
    """An array. `shape` is physical and row-major. `role`: input, output, inout, constant or local.

    `scope` says where a local lives: heap (the arena), cache (a packed panel on the scratch arena), registers (named locals), shared.
    `source`, for a constant that is laid out anew: the tensor it is packed from and, for each of its dims, an `Affine` in
    d0, d1, … (this tensor's indices) that gives the source index; a source index out of bounds gives zero.
    """

    name: str
    dtype: DType
    shape: tuple[Affine, ...]
    role: str = "local"
    scope: str = "heap"
    source: tuple[str, tuple[Affine, ...]] | None = None


@dataclass(frozen=True)
class ScalarArg:
    """A scalar argument such as alpha."""

    name: str
    dtype: DType
