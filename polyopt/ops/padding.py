"""Pad: constant, reflect, edge and wrap, each dim cut into segments whose input index is affine.

Takes and gives what `registry.Op` says. Pieces are disjoint boxes; k padded dims of mode constant make 2k + 1 of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Value
from . import exprs as e
from .build import (
    Ins,
    Typed,
    array,
    axes_of,
    dtype_of,
    fail,
    iters,
    known_dims,
    known_ints,
    maybe,
    need,
    operand,
    operator,
    points,
    present,
    raw,
    shape_of,
    show,
    static,
    store,
)  # fmt: skip
from .registry import Array, Definition, Known, Nest

# ---- Pad
ZERO = affine(0)


@dataclass(frozen=True)
class Segment:
    """Outputs start <= i < start + size of one dim read input slope*(i - start) + first; slope None: padding."""

    start: Affine
    size: Affine
    slope: int | None = 1
    first: Affine = ZERO


def segments(n: Affine, before: Affine, after: Affine, mode: str) -> list[Segment]:
    """The pieces of one padded dim of size n, in order."""
    if n.is_const and before.is_const and after.is_const:
        return _runs(_pad_map(n.const, before.const, after.const, mode))
    if before == 0 and after == 0:
        return [Segment(affine(0), n)]
    p, q = static(before, "padding"), static(after, "padding")
    crop = affine(max(-p, 0))
    middle = Segment(affine(max(p, 0)), n + min(p, 0) + min(q, 0), 1, crop)
    out, end = [middle], middle.start + middle.size
    if p > 0:
        head = {"constant": (None, affine(0)), "edge": (0, affine(0)), "reflect": (-1, affine(p)), "wrap": (1, n - p)}[mode]
        out.insert(0, Segment(affine(0), affine(p), *head))
    if q > 0:
        tail = {"constant": (None, affine(0)), "edge": (0, n - 1), "reflect": (-1, n - 2), "wrap": (1, affine(0))}[mode]
        out.append(Segment(end, affine(q), *tail))
    return out


def _pad_map(n: int, before: int, after: int, mode: str) -> list[int]:
    """The input index of each output of a padded dim; -1 in constant padding."""
    x = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
    width = (max(before, 0), max(after, 0))
    if mode == "constant":
        return [int(v) for v in np.pad(x, width, constant_values=-1)]
    if n == 0 and width != (0, 0):
        fail(f"mode {mode} cannot pad an empty dim")
    return [int(v) for v in np.pad(x, width, mode=mode)]  # type: ignore[call-overload]


def _runs(source: list[int]) -> list[Segment]:
    """Maximal runs of constant slope -1, 0 or 1."""
    out, k = [], 0
    while k < len(source):
        step = source[k + 1] - source[k] if k + 1 < len(source) else 1
        if source[k] < 0 or abs(step) > 1:
            step = 0
        end = k + 1
        while end < len(source) and source[end] - source[end - 1] == step and (source[k] < 0) == (source[end] < 0):
            end += 1
        padding = source[k] < 0
        out.append(Segment(affine(k), affine(end - k), None if padding else step, affine(0 if padding else source[k])))
        k = end
    return out


def _pads(node: Node, ins: Ins, known: Known) -> tuple[list[Affine], list[Affine]]:
    rank = len(shape_of(need(ins, 0)))
    pads = known_dims(ins, 1, known, "pads")
    axes = axes_of(known_ints(ins, 3, known, "axes"), rank) if present(ins, 3) is not None else list(range(rank))
    if len(pads) != 2 * len(axes):
        fail(f"pads {show(tuple(pads))} must have two entries for each of {len(axes)} axes")
    before, after = [affine(0)] * rank, [affine(0)] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return before, after


def _infer_pad(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    mode = node.attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        fail(f"mode {mode} is not constant, reflect, edge or wrap")
    before, after = _pads(node, ins, known)
    return [(dtype_of(ins[0]), tuple(n + p + q for n, p, q in zip(shape_of(ins[0]), before, after)))]


def _define_pad(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, out, mode = need(ins, 0), outs[0], node.attr("mode", "constant")
    dims = [segments(n, p, q, mode) for n, p, q in zip(shape_of(x), *_pads(node, ins, known))]
    fill: e.Operand = 0
    if present(ins, 2) is not None:
        fill = operand(need(ins, 2), (0,) * len(shape_of(ins[2])), known)
    nests: list[Nest] = []

    def box(chosen: list[Segment], padding: bool) -> None:
        its = iters(s.size for s in chosen)
        at = [i + s.start for i, s in zip(points(its), chosen)]
        source = [i * (s.slope or 0) + s.first for i, s in zip(points(its), chosen)]
        nests.append(store(out, at, its, fill if padding else raw(x, source)))

    def split(chosen: list[Segment]) -> None:
        """Boxes of all dims: padding of dim k covers the whole of later dims, so that k padded dims make 2k + 1 boxes."""
        k = len(chosen)
        if k == len(dims):
            box(chosen, False)
            return
        for s in dims[k]:
            if s.slope is None:
                box([*chosen, s, *(Segment(affine(0), n) for n in shape_of(out)[k + 1 :])], True)
            else:
                split([*chosen, s])

    split([])
    return Definition(tuple(nests))


def _np_pad(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, pads, fill, given = array(arrays, 0), [int(p) for p in array(arrays, 1).reshape(-1)], maybe(arrays, 2), maybe(arrays, 3)
    axes = list(range(x.ndim)) if given is None else [int(a) % x.ndim for a in given.reshape(-1)]
    width = [(0, 0)] * x.ndim
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    x = x[tuple(slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(width, x.shape))]
    grow = [(max(p, 0), max(q, 0)) for p, q in width]
    mode = node.attr("mode", "constant")
    if mode == "constant":
        return [np.pad(x, grow, constant_values=x.dtype.type(0) if fill is None else fill.reshape(-1)[0])]
    return [np.pad(x, grow, mode=mode)]


operator("Pad", _infer_pad, _define_pad, _np_pad, arity=(2, 4), consts=(1, 3))
