"""Device dialects as data: how a kernel, a helper and the grid axes are spelled. Takes a dialect's name; gives a `Dialect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyopt.errors import UserError


@dataclass(frozen=True)
class Dialect:
    """`words` replaces whole words of the scalar C text; `axes` gives the index expression of each grid axis, outermost launch order x, y, z."""

    name: str
    kernel: str
    function: str
    headers: tuple[str, ...]
    words: Mapping[str, str]
    axes: Mapping[str, str]
    flags: tuple[str, ...]


CUDA = Dialect(
    name="cuda",
    kernel='extern "C" __global__ void',
    function="static __device__ __forceinline__",
    headers=("stdint.h", "math.h", "string.h", "cuda_fp16.h"),
    words={"restrict": "__restrict__", "_Float16": "__half", "_Alignas": "__align__", "__builtin_fmaf": "fmaf", "__builtin_fma": "fma"},
    axes={f"{level}.{a}": f"(int){var}.{a}" for level, var in (("block", "blockIdx"), ("thread", "threadIdx")) for a in "xyz"},
    flags=("-fmad=false",),
)
DIALECTS = {"cuda": CUDA}


def dialect(name: str) -> Dialect:
    """The dialect of that name."""
    if name not in DIALECTS:
        raise UserError(f"dialect {name!r} is not known to the device emitter: choose one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
