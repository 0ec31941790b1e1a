"""The ONNX front end: `read_onnx` takes a file, bytes or a ModelProto and gives a normalised `Graph`."""

from .read import read_onnx

__all__ = ["read_onnx"]
