"""Arrays in and out: NumPy and DLPack to dense memory, dtypes, aligned outputs. Takes foreign arrays; gives NumPy arrays whose memory a
kernel may use, without a copy where the input is dense and aligned."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from polyopt.errors import ArgumentError
from polyopt.ir.dtype import DType

Array = np.ndarray[Any, Any]
_addressof = ctypes.addressof
_from_buffer: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer
_TOO_LARGE = 2**62  # bytes; NumPy calls more than its index type holds a ValueError
_ALIGN_FROM = 16384  # bytes from which the cost of vector stores across cache lines exceeds that of an aligned allocation


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a polyopt one."""
    return np.dtype(getattr(ml_dtypes, dtype.numpy)) if dtype.numpy == "bfloat16" else np.dtype(dtype.numpy)


def address(array: Array) -> int:
    """The address of a dense array's first element (a buffer's address is five times quicker to get than `__array_interface__`)."""
    try:
        return _addressof(_from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype that the buffer protocol does not know
        return array.ctypes.data


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], align: int = 64) -> Array:
    """An uninitialised dense array whose memory starts at a multiple of `align`."""
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if nbytes >= _TOO_LARGE:
        raise MemoryError(f"an array of shape {shape} and {nbytes} bytes")
    raw = np.empty(nbytes + align, np.uint8)
    start = -address(raw) % align
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """The array itself where it is dense and 64-byte aligned, else a copy that is."""
    if array.flags.c_contiguous and address(array) % 64 == 0 and array.dtype.isnative:
        return array
    out = aligned_empty(array.shape, array.dtype.newbyteorder("="))
    out[...] = array
    return out


def new_output(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
    """A fresh output array; large ones are aligned."""
    return np.empty(shape, dtype) if nbytes < _ALIGN_FROM else aligned_empty(shape, dtype)


def as_numpy(x: Any, what: str) -> Array:
    """A NumPy view of an array of any library on the CPU: ndarray, `__dlpack__`, `__array__` (bfloat16 has no DLPack form in NumPy)."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    try:
        if hasattr(x, "__dlpack__"):
            return np.from_dlpack(x)
        if hasattr(x, "__array__"):
            return np.asarray(x)
    except Exception as e:  # whatever the other library raises: a device array, a type NumPy lacks, an array that needs grad
        raise ArgumentError(f"{what}: a {type(x).__name__} that NumPy cannot read ({str(e).splitlines()[0] if str(e) else e!r})") from None
    raise ArgumentError(f"{what}: expected an array (NumPy or DLPack), got {type(x).__name__}")


def dense_input(x: Any, dtype: np.dtype[Any], what: str) -> Array:
    """An array to read from: of this dtype, dense and aligned to its elements; copied once where it is not."""
    array = as_numpy(x, what)
    if array.dtype != dtype:
        raise ArgumentError(f"{what}: expected dtype {dtype}, got {array.dtype}")
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.array(array, dtype=dtype, order="C", copy=True)


def dense_output(x: Any, dtype: np.dtype[Any], what: str) -> Array:
    """An array to write to in place: of this dtype, dense, aligned, writable. Never a copy."""
    array = as_numpy(x, what)
    if not array.flags.writeable and not isinstance(x, np.ndarray) and hasattr(x, "__array__"):
        # NumPy makes a DLPack capsule without a version read-only; the same memory through `__array__` is not
        shared = np.asarray(x)
        if shared.shape == array.shape and address(shared) == address(array):
            array = shared
    if array.dtype != dtype:
        raise ArgumentError(f"{what}: expected dtype {dtype}, got {array.dtype}")
    flags = array.flags
    if not flags.writeable:
        raise ArgumentError(f"{what}: is written to and the array given is read-only: give a writable one")
    if not (flags.c_contiguous and flags.aligned):
        raise ArgumentError(f"{what}: is written in place and must be dense and row-major: give np.ascontiguousarray(…) of it")
    return array


def overlaps(a: Array, at: int, b: Array, bt: int) -> bool:
    """Whether two dense arrays, at their addresses, share memory."""
    return at < bt + b.nbytes and bt < at + a.nbytes
