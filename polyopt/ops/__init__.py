"""Operators: importing this package registers them all. Each family is one file; `registry` holds what an `Op` is."""

from __future__ import annotations

from . import contraction, einsum, indexing, movement, normalization, padding, pointwise, pooling, reduction, registry, resize, shape, unary, views
from .registry import Definition, Known, Nest, Op, lookup, names, register

__all__ = [
    "Definition", "Known", "Nest", "Op", "contraction", "einsum", "indexing", "lookup", "movement", "names", "normalization", "padding",
    "pointwise", "pooling", "reduction", "register", "registry", "resize", "shape", "unary", "views",
]  # fmt: skip
