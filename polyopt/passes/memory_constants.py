"""Constants laid out anew at compile time: a packed weight is an index map over its source, evaluated by NumPy.

Takes tensors with `source` and the arrays they come from; gives arrays. An index out of the source's bounds gives zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InternalError
from ..ir.affine import Affine, FloorDiv
from ..ir.tensor import Tensor

Array = np.ndarray[Any, Any]


def materialize(t: Tensor, source: Array) -> Array:
    """The array of a constant whose element d0, d1, … is `source` at the tensor's index map."""
    if t.source is None:
        return np.ascontiguousarray(source)
    shape = tuple(int(d) for d in t.shape)
    grid = {f"d{k}": np.arange(n).reshape([-1 if j == k else 1 for j in range(len(shape))]) for k, n in enumerate(shape)}
    index, inside = [], np.ones((1,) * len(shape), bool)
    for x, n in zip(t.source[1], source.shape):
        at = np.asarray(_value(x, grid))
        inside = inside & (at >= 0) & (at < n)
        index.append(np.clip(at, 0, max(n - 1, 0)))
    if len(index) != source.ndim:
        raise InternalError(f"constant {t.name} has {len(index)} source indices for an array of {source.ndim} dims")
    out = np.broadcast_to(source[tuple(index)], shape)
    if not inside.all():
        out = np.where(np.broadcast_to(inside, shape), out, np.zeros((), source.dtype))
    return np.ascontiguousarray(out)


def _value(x: Affine, grid: Mapping[str, Array]) -> Any:
    total: Any = x.const
    for atom, k in x.terms:
        total = total + k * (_value(atom.num, grid) // atom.den if isinstance(atom, FloorDiv) else grid[atom])
    return total
