"""Operators: importing this package registers them all. Each family is one file; `registry` holds what an `Op` is."""

from __future__ import annotations

from . import contraction, movement, normalization, pointwise, pooling, reduction, registry, views
from .registry import Definition, Known, Nest, Op, lookup, names, register

__all__ = ["Definition", "Known", "Nest", "Op", "lookup", "names", "register",
           "contraction", "movement", "normalization", "pointwise", "pooling", "reduction", "registry", "views"]  # fmt: skip
