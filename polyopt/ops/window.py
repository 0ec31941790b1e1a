"""Sliding windows: how kernel, stride, dilation, padding and rounding give output sizes and indices.

Takes the attributes of convolution and pooling nodes and symbolic input sizes; gives a `Window` and, for NumPy, strided views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node
from .build import fail, static
from .registry import Array


@dataclass(frozen=True)
class Window:
    """Per spatial dim: kernel, stride, dilation, padding before and after, input size and output size."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[Affine, ...]
    after: tuple[Affine, ...]
    size: tuple[Affine, ...]
    out: tuple[Affine, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dims."""
        return len(self.kernel)

    def index(self, at: Sequence[Affine], taps: Sequence[Affine]) -> tuple[Affine, ...]:
        """The input index of tap `taps` of the window at output `at`."""
        return tuple(o * s + r * d - p for o, r, s, d, p in zip(at, taps, self.stride, self.dilation, self.before))

    def inside(self, index: Sequence[Affine]) -> tuple[Affine, ...]:
        """Constraints (>= 0) that say that the index is not in the padding."""
        return tuple(c for i, n in zip(index, self.size) for c in (i, n - 1 - i))


def ints(node: Node, key: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute that is a list of `rank` integers."""
    got = node.attr(key)
    out = (default,) * rank if got is None else tuple(int(x) for x in got)
    if len(out) != rank:
        fail(f"{key} {list(out)} has {len(out)} entries for {rank} spatial dims")
    return out


def window(node: Node, size: Sequence[Affine], kernel: Sequence[int]) -> Window:
    """The window that a node slides over an input of spatial `size`."""
    rank = len(size)
    kernel, stride, dilation = tuple(kernel), ints(node, "strides", rank, 1), ints(node, "dilations", rank, 1)
    if len(kernel) != rank:
        fail(f"kernel_shape {list(kernel)} has {len(kernel)} entries for {rank} spatial dims")
    if min((*kernel, *stride, *dilation), default=1) < 1:
        fail("kernel_shape, strides and dilations must be positive")
    auto, ceil = node.attr("auto_pad", "NOTSET") or "NOTSET", bool(node.attr("ceil_mode", 0))
    before, after, out = [], [], []
    pads = ints(node, "pads", 2 * rank, 0)
    if min(pads, default=0) < 0:
        fail(f"pads {list(pads)} must not be negative")
    for k in range(rank):
        span = (kernel[k] - 1) * dilation[k] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            p, q, o = _same_padding(size[k], span, stride[k], auto == "SAME_LOWER")
        else:
            p, q = (affine(0), affine(0)) if auto == "VALID" else (affine(pads[k]), affine(pads[k + rank]))
            o = _rounded_up(size[k], p, q, span, stride[k]) if ceil else (size[k] + p + q - span) // stride[k] + 1
        if o.is_const and o.const < 1 and size[k].const > 0:
            fail(f"the window of {span} does not fit into spatial dim {k} of size {size[k]} with padding {p} and {q}")
        before.append(p)
        after.append(q)
        out.append(o)
    return Window(kernel, stride, dilation, tuple(before), tuple(after), tuple(map(affine, size)), tuple(out))


def _same_padding(size: Affine, span: int, stride: int, lower: bool) -> tuple[Affine, Affine, Affine]:
    out = (size + (stride - 1)) // stride
    total = (out - 1) * stride + (span - size)  # within [span - stride, span - 1]
    if total.is_const:
        total = affine(max(total.const, 0))
    elif span == 1:
        total = affine(0)
    elif span < stride:
        fail(f"auto_pad with stride {stride} over a window of {span} needs the size {size} to be constant")
    small = total // 2
    return (total - small, small, out) if lower else (small, total - small, out)


def _rounded_up(size: Affine, p: Affine, q: Affine, span: int, stride: int) -> Affine:
    """ceil((size + p + q - span)/stride) + 1, less windows that would start in the padding on the right."""
    return (size + p + min(static(q, "padding") - span + stride, 0) + (stride - 1)) // stride


def concrete(node: Node, size: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window over an input of known size, for references."""
    return window(node, [affine(n) for n in size], kernel)


def numpy_taps(x: Array, w: Window, fill: Any) -> list[tuple[tuple[int, ...], Array]]:
    """For each tap of the kernel in row-major order: (tap, the input under that tap at all outputs), `fill` in the padding."""
    low, out, size = [p.const for p in w.before], [o.const for o in w.out], [n.const for n in w.size]
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, w.stride, w.kernel, w.dilation)]
    widths = [(0, 0)] * (x.ndim - w.rank) + [(p, max(0, r - p - n)) for p, r, n in zip(low, reach, size)]
    padded = np.pad(x, widths, constant_values=fill)
    taps = []
    for tap in product(*map(range, w.kernel)):
        cut: Any = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, w.dilation, out, w.stride))
        taps.append((tap, padded[(..., *cut)]))
    return taps
