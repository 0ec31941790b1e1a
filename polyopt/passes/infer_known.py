"""Values that are known when compiling, shape arithmetic on symbolic dims included.

Takes a node with the known values of its inputs; gives those of its outputs, or None. A vector that holds named dims is an object
array of ints and `Affine`s. Named dims are at least 1; what that leaves open (a product of two dims, a comparison) is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Shape, Value
from ..ops.registry import Array, Known, Op

MOST_ELEMENTS = 1 << 13  # of the values that are computed here; simplify folds larger ones
RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"})

Partial = Callable[[Node, Sequence[Array | None], Sequence[Value | None], Sequence[Shape | None]], "Sequence[Array] | None"]


class _NotKnown(Exception):
    """An element that the named dims do not decide."""


def is_symbolic(a: Array) -> bool:
    """Whether an array holds named dims."""
    return bool(a.dtype == object)


def evaluate(node: Node, op: Op, ins: Sequence[Value | None], known: Known, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    """The values of the outputs, where the known inputs (or their shapes alone) decide them."""
    if node.op in RANDOM and not node.domain:
        return None
    arrays = [known.get(i) if i else None for i in node.inputs]
    from_shape = node.op in ("Shape", "Size") and not node.domain
    if not from_shape and any(i and a is None for i, a in zip(node.inputs, arrays)):
        return None
    sizes = [0 if a is None else a.size for a in arrays]
    if not from_shape and sum(sizes) > MOST_ELEMENTS:
        return None
    if any(s is not None and all(d.is_const for d in s) and prod(d.const for d in s) > MOST_ELEMENTS for s in shapes):
        return None
    if not from_shape and not any(a is not None and is_symbolic(a) for a in arrays):
        return [np.asarray(a) for a in op.reference(node, arrays)]
    rule = _PARTIAL.get(node.op) if not node.domain else None
    if rule is None:
        return None
    try:
        out = rule(node, arrays, ins, shapes)
    except _NotKnown:
        return None
    return None if out is None else [_plain(a) for a in out]


def _plain(a: Array) -> Array:
    """Object arrays without named dims become int64 (their float uses are not tracked: only exact integers are kept)."""
    if a.dtype != object:
        return a
    flat = [int(x) if not isinstance(x, Affine) else x.const if x.is_const else x for x in a.reshape(-1)]
    if any(isinstance(x, Affine) for x in flat):
        out = np.empty(len(flat), object)
        out[:] = flat
        return out.reshape(a.shape)
    return np.array(flat, np.int64).reshape(a.shape)


def _objects(a: Array | None) -> Array:
    assert a is not None
    return a.astype(object)


def _dims(shape: Sequence[Affine]) -> Array:
    out = np.empty(len(shape), object)
    out[:] = [d.const if d.is_const else d for d in shape]
    return out


# ---- elements


def _bounds(x: Any) -> tuple[int | None, int | None]:
    a = affine(x)
    return a.bounds({n: (1, None) for n in a.names()})


def _integer(x: Any) -> Any:
    """An element as int or Affine; floats that are whole are ints."""
    if isinstance(x, Affine):
        return x
    if float(x) != int(x):
        raise _NotKnown
    return int(x)


def _times(x: Any, y: Any) -> Any:
    x, y = _integer(x), _integer(y)
    if isinstance(x, Affine) and isinstance(y, Affine) and not (x.is_const or y.is_const):
        raise _NotKnown
    return affine(x) * affine(y)


def _over(x: Any, y: Any) -> Any:
    """Exact division, or one that rounds towards zero of what is not negative."""
    x, y = affine(_integer(x)), affine(_integer(y))
    if x == y and (_bounds(x)[0] or 0) > 0:
        return 1
    if not y.is_const or y.const <= 0:
        raise _NotKnown
    low = _bounds(x)[0]
    if (low is None or low < 0) and not (x % y.const == affine(0)):
        raise _NotKnown
    return x // y.const


def _exactly_over(x: Any, y: Any) -> Any:
    quotient = _over(x, y)
    if _times(quotient, y) != affine(_integer(x)):
        raise _NotKnown
    return quotient


def _remainder(x: Any, y: Any) -> Any:
    y = affine(_integer(y))
    if not y.is_const or y.const <= 0:
        raise _NotKnown
    return affine(_integer(x)) % y.const


def _compare(x: Any, y: Any) -> tuple[int | None, int | None]:
    return _bounds(affine(_integer(x)) - affine(_integer(y)))


def _equal(x: Any, y: Any) -> bool:
    low, high = _compare(x, y)
    if low == high == 0:
        return True
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    raise _NotKnown


def _less(x: Any, y: Any) -> bool:
    low, high = _compare(x, y)
    if high is not None and high < 0:
        return True
    if low is not None and low >= 0:
        return False
    raise _NotKnown


def _pick(wanted: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def pick(x: Any, y: Any) -> Any:
        if affine(_integer(x)) == affine(_integer(y)):
            return x
        return x if wanted(x, y) else y

    return pick


# ---- operators


def _pointwise(f: Callable[..., Any], boolean: bool = False) -> Partial:
    def rule(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array]:
        out = _objects(arrays[0])
        for a in arrays[1:]:
            out = np.asarray(np.frompyfunc(f, 2, 1)(out, _objects(a)))
        return [out.astype(bool) if boolean else out.astype(object)]

    return rule


def _divide(node: Node, arrays: Sequence[Array | None], ins: Sequence[Value | None], shapes: Any) -> Sequence[Array]:
    first = ins[0]
    whole = first is not None and first.dtype is not None and first.dtype.is_integer
    return _pointwise(_over if whole else _exactly_over)(node, arrays, ins, shapes)  # type: ignore[return-value]


def _unary(f: Callable[[Any], Any]) -> Partial:
    def rule(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array]:
        return [np.asarray(np.frompyfunc(f, 1, 1)(_objects(arrays[0]))).astype(object)]

    return rule


def _cast(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array] | None:
    """Between numbers nothing happens to a dim; dims that are at least 1 are true."""
    to = node.attr("to")
    name = getattr(to, "name", to)
    a = _objects(arrays[0])
    if name in (9, "bool", "bool_"):
        return [np.asarray(np.frompyfunc(lambda x: not _equal(x, 0), 1, 1)(a)).astype(bool)]
    return [a]


def _shape_of(node: Node, arrays: Any, ins: Sequence[Value | None], shapes: Any) -> Sequence[Array] | None:
    x = ins[0]
    if x is None or x.shape is None:
        return None
    end = node.attr("end")
    return [_dims(x.shape[slice(node.attr("start", 0), len(x.shape) if end is None else end)])]


def _size_of(node: Node, arrays: Any, ins: Sequence[Value | None], shapes: Any) -> Sequence[Array] | None:
    x = ins[0]
    return None if x is None or x.shape is None else [_product(_dims(x.shape))]


def _product(a: Array) -> Array:
    total: Any = 1
    for x in a.reshape(-1):
        total = _times(total, x)
    out = np.empty((), object)
    out[()] = total
    return out


def _reduce_prod(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    a, shape = _objects(arrays[0]), _static(shapes[0])
    return [_product(a).reshape(shape)] if shape is not None and prod(shape) == 1 else None


def _reduce_sum(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    a, shape = _objects(arrays[0]), _static(shapes[0])
    if shape is None or prod(shape) != 1:
        return None
    total: Any = affine(0)
    for x in a.reshape(-1):
        total = total + _integer(x)
    out = np.empty((), object)
    out[()] = total
    return [out.reshape(shape)]


def _static(shape: Shape | None) -> tuple[int, ...] | None:
    return tuple(d.const for d in shape) if shape is not None and all(d.is_const for d in shape) else None


def _view(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    shape = _static(shapes[0])
    return None if shape is None else [_objects(arrays[0]).reshape(shape)]


def _expand(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    shape = _static(shapes[0])
    return None if shape is None else [np.broadcast_to(_objects(arrays[0]), shape)]


def _gather(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array] | None:
    a, where = _objects(arrays[0]), arrays[1]
    if where is None or is_symbolic(where):
        return None
    return [_as_objects(np.take(a, where.astype(np.int64), axis=int(node.attr("axis", 0)), mode="wrap"))]


def _as_objects(a: Any) -> Array:
    if isinstance(a, np.ndarray):
        return a
    out = np.empty((), object)
    out[()] = a
    return out


def _concat(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array]:
    return [np.concatenate([_objects(a) for a in arrays], axis=int(node.attr("axis", 0)))]


def _slice(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array] | None:
    a = _objects(arrays[0])
    rest = [None if i >= len(arrays) else arrays[i] for i in range(1, 5)]
    if any(r is not None and is_symbolic(r) for r in rest) or rest[0] is None or rest[1] is None:
        return None
    starts, ends = rest[0].tolist(), rest[1].tolist()
    axes = list(range(len(starts))) if rest[2] is None else rest[2].tolist()
    steps = [1] * len(starts) if rest[3] is None else rest[3].tolist()
    index: list[slice] = [slice(None)] * a.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        index[axis] = slice(start, None if step < 0 and end < -a.shape[axis] else end, step)
    return [a[tuple(index)]]


def _split(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Sequence[Shape | None]) -> Sequence[Array] | None:
    a, axis = _objects(arrays[0]), int(node.attr("axis", 0))
    parts = [_static(s) for s in shapes]
    if any(p is None for p in parts):
        return None
    at = np.cumsum([0] + [p[axis] for p in parts if p is not None])
    return [np.take(a, range(low, high), axis=axis) for low, high in pairwise(at.tolist())]


def _transpose(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array]:
    return [np.transpose(_objects(arrays[0]), node.attr("perm"))]


def _where(node: Node, arrays: Sequence[Array | None], ins: Any, shapes: Any) -> Sequence[Array] | None:
    condition = arrays[0]
    if condition is None or is_symbolic(condition):
        return None
    return [np.where(condition, _objects(arrays[1]), _objects(arrays[2]))]


def _same(x: Any) -> Any:
    return _integer(x)


_PARTIAL: Mapping[str, Partial] = {
    "Abs": _unary(lambda x: x if not _less(x, 0) else _times(x, -1)),
    "Add": _pointwise(lambda x, y: affine(_integer(x)) + affine(_integer(y))),
    "Cast": _cast,
    "Ceil": _unary(_same),
    "Concat": _concat,
    "Div": _divide,
    "Equal": _pointwise(_equal, boolean=True),
    "Expand": _expand,
    "Flatten": _view,
    "Floor": _unary(_same),
    "Gather": _gather,
    "Greater": _pointwise(lambda x, y: _less(y, x), boolean=True),
    "GreaterOrEqual": _pointwise(lambda x, y: not _less(x, y), boolean=True),
    "Identity": _view,
    "Less": _pointwise(_less, boolean=True),
    "LessOrEqual": _pointwise(lambda x, y: not _less(y, x), boolean=True),
    "Max": _pointwise(_pick(lambda x, y: _less(y, x))),
    "Min": _pointwise(_pick(_less)),
    "Mod": _pointwise(_remainder),
    "Mul": _pointwise(_times),
    "Neg": _unary(lambda x: _times(x, -1)),
    "ReduceProd": _reduce_prod,
    "ReduceSum": _reduce_sum,
    "Reshape": _view,
    "Round": _unary(_same),
    "Shape": _shape_of,
    "Size": _size_of,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _view,
    "Sub": _pointwise(lambda x, y: affine(_integer(x)) - affine(_integer(y))),
    "Transpose": _transpose,
    "Unsqueeze": _view,
    "Where": _where,
}
