"""Scalar types: name, kind, width, C spelling, NumPy name. `po.f32[M, K]` writes a tensor type.

Takes nothing; gives `DType` constants and `TensorType`. Imports no NumPy: names only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DType:
    """A scalar type. `kind` is one of f (float), i (signed), u (unsigned), b (bool); `bits` is the storage width."""

    name: str
    kind: str
    bits: int
    ctype: str
    numpy: str

    @property
    def bytes(self) -> int:
        """Storage size of one element, in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return self.kind in "iu"

    def __getitem__(self, shape: Any) -> TensorType:
        """`f32[M, 64]`: a tensor type whose dims are ints or affine expressions of named dims."""
        return TensorType(self, shape if isinstance(shape, tuple) else (shape,))

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@dataclass(frozen=True)
class TensorType:
    """A dtype with a shape (ints, or `Affine` expressions of named dims)."""

    dtype: DType
    shape: tuple[Any, ...]


f16 = DType("f16", "f", 16, "_Float16", "float16")
bf16 = DType("bf16", "f", 16, "uint16_t", "bfloat16")
f32 = DType("f32", "f", 32, "float", "float32")
f64 = DType("f64", "f", 64, "double", "float64")
i8 = DType("i8", "i", 8, "int8_t", "int8")
i16 = DType("i16", "i", 16, "int16_t", "int16")
i32 = DType("i32", "i", 32, "int32_t", "int32")
i64 = DType("i64", "i", 64, "int64_t", "int64")
u8 = DType("u8", "u", 8, "uint8_t", "uint8")
u16 = DType("u16", "u", 16, "uint16_t", "uint16")
u32 = DType("u32", "u", 32, "uint32_t", "uint32")
u64 = DType("u64", "u", 64, "uint64_t", "uint64")
bool_ = DType("bool_", "b", 8, "uint8_t", "bool")

ALL = (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)
BY_NAME = {t.name: t for t in ALL}
BY_NUMPY = {t.numpy: t for t in ALL}
