"""Where Resize reads: for one axis, input positions of each output as quasi-affine indices, in segments without clamping.

Takes sizes (the input's may be symbolic where the scale is rational) and the node's modes; gives `Axis` values. Positions are exact
fractions, so that no rounding of a float coordinate moves a tap; see the Resize chapter of the ONNX operator reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node
from .build import content, fail

Line = tuple[Fraction, Fraction]  # position of output o: slope * o + offset
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Part:
    """Outputs start <= o < start + size whose tap k reads `taps[k](o)`; `taps` None: outside, the extrapolation value."""

    start: Affine
    size: Affine
    taps: tuple[Callable[[Affine], Affine], ...] | None
    inside: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Axis:
    """One resized axis. `line` gives the position; `base` its floor (of nearest: the rounded one) before clamping."""

    size: Affine
    out: Affine
    scale: Fraction
    line: Line
    base: Callable[[Affine], Affine]
    parts: tuple[Part, ...]


def rational(scale: float) -> Fraction:
    """The simplest fraction that rounds to the f32 scale."""
    for bound in (1, 2, 4, 8, 16, 64, 256, 1024):
        f = Fraction(scale).limit_denominator(bound)
        if np.float32(float(f)) == np.float32(scale):
            return f
    return Fraction(scale)


def position(node: Node, n: int | None, out: int | None, scale: Fraction, roi: tuple[float, float]) -> Line:
    """The input position of output o as a line; sizes None where symbolic."""
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return 1 / scale, Fraction(0)
    if mode in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn"):
        if mode == "pytorch_half_pixel" and out == 1:
            return Fraction(0), Fraction(0)
        shift = HALF / scale - (0 if mode == "tf_half_pixel_for_nn" else HALF)
        if mode == "half_pixel_symmetric":
            if n is None or out is None:
                fail("half_pixel_symmetric needs a constant size")
            shift += Fraction(n, 2) * (1 - Fraction(out) / (scale * n))
        return 1 / scale, shift
    if n is None or out is None:
        fail(f"{mode} needs a constant size")
    if mode == "align_corners":
        length = scale * n  # the ONNX node cases do not round it
        return ((n - 1) / (length - 1) if length != 1 else Fraction(0)), Fraction(0)
    if mode == "tf_crop_and_resize":
        start, end = (Fraction(r) for r in roi)
        if out > 1:
            return (end - start) * (n - 1) / (out - 1), start * (n - 1)
        return Fraction(0), (start + end) * (n - 1) / 2
    return fail(f"coordinate_transformation_mode {mode} is not known")


ROUND: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: ceil(x - HALF),
    "round_prefer_ceil": lambda x: floor(x + HALF),
    "floor": floor,
    "ceil": ceil,
}


def floor_form(values: Sequence[int], slope: Fraction) -> tuple[int, int, int] | None:
    """(a, b, c) of least c with values[o] = floor((a o + b)/c), where the true slope is known; None where there is none."""
    for bound in (1, 2, 4, 8, 16, 64, 256, 1024, 2**16, max(2**17, slope.denominator)):
        f = slope.limit_denominator(bound)
        a, c = f.numerator, f.denominator
        b = max((c * v - a * o for o, v in enumerate(values)), default=0)
        if all(a * o + b < c * (v + 1) for o, v in enumerate(values)):
            return a, b, c
    return None


def _index(form: tuple[int, int, int], start: Affine) -> Callable[[Affine], Affine]:
    a, b, c = form
    return lambda o: ((o - start) * a + b) // c


def _moved(base: Callable[[Affine], Affine], t: int) -> Callable[[Affine], Affine]:
    return lambda o: base(o) + t


def _constant(x: Affine) -> Callable[[Affine], Affine]:
    return lambda o: x


@dataclass(frozen=True)
class _Run:
    """Outputs lo <= o < hi of a concrete axis: outside, at the border with this base, or (border None) in the interior."""

    lo: int
    hi: int
    outside: bool
    border: int | None


def _runs(bases: Sequence[int], outside: Sequence[bool], taps: Sequence[int], n: int) -> list[_Run]:
    out: list[_Run] = []
    for o, (base, beyond) in enumerate(zip(bases, outside)):
        clamped = not (base + taps[0] >= 0 and base + taps[-1] <= n - 1)
        kind = (beyond, base if clamped and not beyond else None)
        if out and (out[-1].outside, out[-1].border) == kind:
            out[-1] = _Run(out[-1].lo, o + 1, *kind)
        else:
            out.append(_Run(o, o + 1, *kind))
    return out


def sample(node: Node, size: Affine, out: Affine, scale: Fraction, roi: tuple[float, float], taps: Sequence[int]) -> Axis:
    """The taps of an axis: offsets `taps` from the rounded position, clamped to the input."""
    rounding = ROUND[node.attr("nearest_mode", "round_prefer_floor")] if node.attr("mode", "nearest") == "nearest" else floor
    if size.is_const and out.is_const:
        n, m = size.const, out.const
        line = position(node, n, m, scale, roi)
        where = [line[0] * o + line[1] for o in range(m)]
        crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
        bases, outside = [rounding(x) for x in where], [crop and not 0 <= x <= n - 1 for x in where]
        form = floor_form(bases, line[0])
        if form is None:
            fail(f"the positions of scale {scale} have no affine form")
        base = _index(form, affine(0))
        if taps == [0] and not any(outside):
            clipped = floor_form([min(max(b, 0), n - 1) for b in bases], line[0])
            if clipped is not None:
                whole = Part(affine(0), out, (_index(clipped, affine(0)),), (True,))
                return Axis(size, out, scale, line, base, (whole,))
        parts = [_part(r, affine(r.lo), affine(r.hi - r.lo), base, taps, n, size) for r in _runs(bases, outside, taps, n)]
        return Axis(size, out, scale, line, base, tuple(parts))
    return _symbolic(node, size, out, scale, roi, taps, rounding)


def _part(r: _Run, start: Affine, size: Affine, base: Callable[[Affine], Affine], taps: Sequence[int], n: int, dim: Affine) -> Part:
    if r.outside:
        return Part(start, size, None)
    if r.border is None:
        return Part(start, size, tuple(_moved(base, t) for t in taps), (True,) * len(taps))
    found = [r.border + t for t in taps]
    reads = tuple(_constant(affine(0) if v < 0 else dim - 1 if v > n - 1 else dim - n + v) for v in found)
    return Part(start, size, reads, tuple(0 <= v < n for v in found))


def _symbolic(node: Node, size: Affine, out: Affine, scale: Fraction, roi: tuple[float, float], taps: Sequence[int],
              rounding: Callable[[Fraction], int]) -> Axis:  # fmt: skip
    """As `sample`, for a symbolic size: borders are found at large concrete sizes of every residue and must agree."""
    line = position(node, None, None, scale, roi)
    p, q = scale.numerator, scale.denominator
    shapes = []
    for n in range(64 * q, 65 * q):
        m = n * p // q
        bases = [rounding(line[0] * o + line[1]) for o in range(m)]
        runs = _runs(bases, [False] * m, taps, n)
        interior = [k for k, r in enumerate(runs) if r.border is None]
        if len(interior) != 1:
            fail(f"resizing {size} by {scale} needs the size to be constant")
        (k,) = interior
        head = [(r.lo, r.hi, r.border) for r in runs[:k]]
        tail = [(m - r.lo, m - r.hi, (r.border or 0) - n) for r in runs[k + 1 :]]
        shapes.append((head, tail, runs, m, n))
    head, tail, runs, m, n = shapes[0]
    if any(s[:2] != (head, tail) for s in shapes):
        fail(f"resizing {size} by {scale} clamps differently for different sizes: bind {', '.join(sorted(size.names()))}")
    bases = [rounding(line[0] * o + line[1]) for o in range(m)]
    form = floor_form(bases, line[0])
    assert form is not None
    base = _index(form, affine(0))
    parts = []
    for k, r in enumerate(runs):
        start = affine(r.lo) if k <= len(head) else out - (m - r.lo)
        end = affine(r.hi) if k < len(head) else out - (m - r.hi)
        low_border = k < len(head)
        parts.append(_part(r, start, end - start, base, taps, n, size) if not low_border else _low_part(r, start, end - start, taps))
    return Axis(size, out, scale, line, base, tuple(parts))


def _low_part(r: _Run, start: Affine, size: Affine, taps: Sequence[int]) -> Part:
    found = [(r.border or 0) + t for t in taps]
    return Part(start, size, tuple(_constant(affine(max(v, 0))) for v in found), tuple(v >= 0 for v in found))


def output_size(size: Affine, scale: Fraction, exact: float) -> Affine:
    """floor(size * scale)."""
    if size.is_const:
        return affine(floor(size.const * exact))
    g, rest = content(size)
    if (g * scale).denominator == 1:
        return rest * int(g * scale)
    return (size * scale.numerator) // scale.denominator
