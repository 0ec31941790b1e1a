"""The weights file: a 64-byte header, then each constant at a multiple of 64 bytes.

Takes a `Program`; gives offsets and bytes. Header: magic, sha256 of what follows, zeros; the library holds the same digest, so that weights of
another model are refused without hashing them at load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from polyopt.ir.program import Program

MAGIC = b"POLYOPT1"
HEADER_BYTES = 64
_ALIGN = 64


def used_constants(program: Program) -> list[str]:
    """The constants that calls read, in order of first use."""
    return list(dict.fromkeys(a.name for call in program.calls for a in call.args if a.kind == "constant"))


def layout_constants(program: Program) -> tuple[dict[str, int], int]:
    """Byte offset of each used constant in the weights file, and the file's size."""
    offsets, at = {}, HEADER_BYTES
    for name in used_constants(program):
        offsets[name] = at
        at = -(-(at + program.constants[name].nbytes) // _ALIGN) * _ALIGN
    return offsets, at


def constant_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """An array's bytes, dense, row-major, little-endian."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def weight_chunks(program: Program) -> Iterator[memoryview | bytes]:
    """What follows the header, piece by piece."""
    for name in used_constants(program):
        data = constant_bytes(program.constants[name])
        yield data
        yield bytes(-len(data) % _ALIGN)


def weights_digest(program: Program) -> bytes:
    """sha256 of what follows the header."""
    h = hashlib.sha256()
    for chunk in weight_chunks(program):
        h.update(chunk)
    return h.digest()


def weights_header(digest: bytes) -> bytes:
    """The header of a weights file."""
    return (MAGIC + digest).ljust(HEADER_BYTES, b"\0")
