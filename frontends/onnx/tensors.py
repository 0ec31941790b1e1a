"""Scalar types, tensors and attributes of ONNX as plain Python and NumPy values.

Takes protobuf values; gives `DType`s, arrays and attribute values. External data is read from inside the model's folder only.
Anything broken is a `ModelError` that says which tensor or node it is.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from polyopt.errors import ModelError
from polyopt.ir.dtype import BY_NUMPY, DType
from polyopt.options import LARGEST_DIM

Array = np.ndarray[Any, Any]


def elem_name(elem_type: int) -> str:
    """The ONNX spelling of an element type: float, int64, …"""
    try:
        return str(TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"type {elem_type}"


def dtype_of(elem_type: int, where: str) -> DType:
    """The `DType` of an ONNX element type; ModelError where it is not supported."""
    try:
        name = onnx.helper.tensor_dtype_to_np_dtype(elem_type).name
    except (KeyError, TypeError, ValueError):
        name = ""
    if name not in BY_NUMPY or elem_type == TensorProto.STRING:
        known = ", ".join(sorted(BY_NUMPY))
        raise ModelError(f"{where} has element type {elem_name(elem_type)}, which is not supported (supported: {known})")
    return BY_NUMPY[name]


def array_dtype(array: Array, where: str) -> DType:
    """The `DType` of an array."""
    if array.dtype.name not in BY_NUMPY:
        raise ModelError(f"{where} has element type {array.dtype.name}, which is not supported")
    return BY_NUMPY[array.dtype.name]


def tensor_array(tensor: TensorProto, folder: Path | None, where: str) -> Array:
    """The values of a tensor, read from `folder` where they are stored outside the model."""
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"{where} has a negative dim in its shape {list(tensor.dims)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external_array(tensor, folder, where)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as e:
        raise ModelError(f"{where} of shape {list(tensor.dims)} holds broken data: {_first_line(e)}") from None


def _external_array(tensor: TensorProto, folder: Path | None, where: str) -> Array:
    info = {e.key: e.value for e in tensor.external_data}
    location = info.get("location", "")
    if folder is None:
        raise ModelError(f"{where} is stored in the external file {location!r}: give the model's path, not its bytes")
    dtype_of(tensor.data_type, where)
    path = _inside(folder, location, where)
    size = math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    try:
        offset, length = int(info.get("offset", 0) or 0), int(info.get("length", size) or size)
    except ValueError:
        raise ModelError(f"{where}: offset or length of its external data is not a number") from None
    if offset < 0 or length != size:
        shape = list(tensor.dims)
        raise ModelError(f"{where} of shape {shape} needs {size} bytes of external data, its entry says {length} at {offset}")
    try:
        with path.open("rb") as f:
            there = max(0, min(size, os.fstat(f.fileno()).st_size - offset))  # before memory is asked for
            if there == size:
                f.seek(offset)
                data = f.read(size)
                there = len(data)
    except OSError as e:
        raise ModelError(f"{where}: the external data file {path} cannot be read: {e.strerror or e}") from None
    if there != size:
        raise ModelError(f"{where}: the external data file {path} ends too early ({there} of {size} bytes at offset {offset})")
    plain = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data)
    return np.asarray(numpy_helper.to_array(plain))


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file of that location, refused where it lies outside the model's folder (also through `..` or links)."""
    root = Path(os.path.realpath(folder))
    if not location or "\0" in location or Path(location).is_absolute():
        raise ModelError(f"{where}: its external data file {location!r} is no path relative to the model's folder: refused")
    path = Path(os.path.realpath(root / location))
    if not path.is_relative_to(root):
        raise ModelError(f"{where}: its external data file {location!r} lies outside the model's folder {folder}: refused")
    if not path.is_file():
        raise ModelError(f"{where}: the external data file {root / location} is missing")
    return path


def sparse_array(sparse: onnx.SparseTensorProto, folder: Path | None, where: str) -> Array:
    """A sparse tensor as a dense array (indices are linear, or one row of coordinates a value)."""
    values = tensor_array(sparse.values, folder, where)
    indices = tensor_array(sparse.indices, folder, where)
    dims = tuple(sparse.dims)
    if any(d < 0 for d in dims):
        raise ModelError(f"{where} has a negative dim in its shape {list(dims)}")
    if math.prod(dims) * values.itemsize > LARGEST_DIM:
        raise ModelError(f"{where} of shape {list(dims)} is larger than any memory")
    dense = np.zeros(dims, values.dtype)
    try:
        if (indices < 0).any():
            raise ValueError("an index is negative")
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as e:
        raise ModelError(f"{where}: indices of the sparse tensor do not fit its shape {list(dims)}: {_first_line(e)}") from None
    return dense


def attribute_value(a: AttributeProto, folder: Path | None, where: str) -> Any:
    """An attribute as int, float, str, tuple or array; graphs and types stay protobuf values."""
    at = f"attribute {a.name} of {where}"
    if a.type == AttributeProto.TENSOR:
        return tensor_array(a.t, folder, at)
    if a.type == AttributeProto.SPARSE_TENSOR:
        return sparse_array(a.sparse_tensor, folder, at)
    if a.type == AttributeProto.TENSORS:
        return tuple(tensor_array(t, folder, at) for t in a.tensors)
    if a.type == AttributeProto.STRING:
        return a.s.decode("utf-8", "replace")
    if a.type == AttributeProto.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in a.strings)
    if a.type == AttributeProto.UNDEFINED:
        raise ModelError(f"{at} has no type")
    value = onnx.helper.get_attribute_value(a)
    return tuple(value) if a.type in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.GRAPHS) else value


def _first_line(e: BaseException) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]
