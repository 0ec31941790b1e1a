"""How many elements and cache lines a group of accesses touches in one run of a loop, as functions of the dates of the loops around.

Takes sets of elements whose parameters are those dates; gives `Region`s. A set without closed form is taken as the box around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod

import islpy as isl

from ..ir.affine import Affine
from ..ir.tensor import Tensor
from ..isl_ext import SET
from .caches import Stretch
from .convert import from_pw_aff
from .counting import Count, Piece, count
from .quasipoly import lift

BUDGET = 60_000  # isl operations for the closed form of one footprint

Values = Mapping[str, int]


@dataclass(frozen=True)
class Ends:
    """A piecewise affine function of dates: where each piece holds, and its value."""

    pieces: tuple[tuple[Piece, Affine], ...]

    def names(self) -> frozenset[str]:
        """The dates that matter."""
        conditions = {n for where, _ in self.pieces for row in where.rows for e, _ in row for n in e.names()}
        return frozenset(conditions | {n for _, x in self.pieces for n in x.names()})

    def at(self, values: Values) -> int:
        """The value at given dates."""
        return next((x.evaluate(values) for where, x in self.pieces if where.holds(values)), 0)


def ends(p: isl.PwAff) -> Ends:
    """The function that isl gives."""
    return Ends(tuple((Piece(where, lift(0)), x) for where, x in from_pw_aff(p)))


@dataclass(frozen=True, eq=False)
class Region:
    """The elements of a tensor that some references touch in one run of a place, as a function of the dates of the loops around."""

    tensor: Tensor
    points: isl.Set
    row: int | None  # elements from one row to the next, where known
    line: int
    around: isl.Set | None = None  # where the dates lie
    at: Values | None = None  # where alone the forms have to hold

    @cached_property
    def elements(self) -> Count:
        """How many elements."""
        return count(self.points, self.around, BUDGET, self.at)

    @cached_property
    def rows(self) -> Count:
        """How many rows (the last dim runs along a row)."""
        n = self.points.dim(SET)
        return count(self.points.project_out(SET, n - 1, 1), self.around, BUDGET, self.at) if n else self.elements

    @cached_property
    def is_closed(self) -> bool:
        """Whether elements and rows have closed forms; else the box around them counts."""
        return self.elements.is_closed and self.rows.is_closed

    @cached_property
    def box(self) -> tuple[tuple[Ends, Ends], ...]:
        """The least and the greatest index in each dim."""
        points = self.points if self.around is None else self.points.gist_params(self.around)
        return tuple((ends(points.dim_min(d)), ends(points.dim_max(d))) for d in range(points.dim(SET)))

    def numbers(self, values: Values) -> tuple[float, float]:
        """Elements and rows; at most, where they have no closed form."""
        if self.is_closed:
            return float(self.elements.at(values)), float(self.rows.at(values))
        extents = [max(0, high.at(values) - low.at(values) + 1) for low, high in self.box]
        rows = float(prod(extents[:-1]))
        return rows * (extents[-1] if extents else 1), rows

    @cached_property
    def exact(self) -> Count | None:
        """How many lines, where rows start at lines and there is a closed form."""
        n, per = self.points.dim(SET), self.line // self.itemsize
        if per < 1 or n == 0 or (n > 1 and (self.row is None or self.row % per)) or not self.is_closed:
            return None
        lines = count(self.points.reset_tuple_id().apply(to_lines(n, per)), self.around, BUDGET, self.at)
        return lines if lines.is_closed else None

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(1, self.tensor.dtype.bits // 8)

    @cached_property
    def names(self) -> frozenset[str]:
        """The dates that matter."""
        if not self.is_closed:
            return frozenset(n for low, high in self.box for e in (low, high) for n in e.names())
        counts = [self.elements, self.rows] if self.exact is None else [self.exact]
        return frozenset(n for c in counts for n in c.names())

    @cached_property
    def _share(self) -> float:
        """The part of a line that one element takes."""
        n = self.points.dim(SET)
        step = int(self.points.get_stride(n - 1).to_python()) if n else 1
        return min(1.0, max(1, step) * self.itemsize / self.line)

    def stretch(self, values: Values) -> Stretch:
        """The lines as runs in memory."""
        lines, n = self.lines(values), self.points.dim(SET)
        rows = round(self.numbers(values)[1]) if n > 1 and self.row is not None else 1
        if rows <= 1 or self.row is None or lines >= rows * self.row * self.itemsize / self.line:
            return Stretch(1, lines, lines)
        step = max(1, int(self.points.get_stride(n - 2).to_python()))
        return Stretch(rows, lines / rows, step * self.row * self.itemsize / self.line)

    def lines(self, values: Values) -> float:
        """The lines that hold the elements: exact, or on average over where rows start."""
        if self.exact is not None:
            return float(self.exact.at(values))
        (elements, rows), share = self.numbers(values), self._share
        out = rows * (1 - share) + elements * share
        if self.row is not None and rows:  # rows that follow one another share lines
            out = min(out, rows * self.row * self.itemsize / self.line + 1 - self.itemsize / self.line)
        return out


@cache
def to_lines(n: int, per: int) -> isl.Map:
    """The map from n indices to the same with the last one divided by the number of elements in a line."""
    outer = "".join(f"i{k}, " for k in range(n - 1))
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{outer}x] -> [{outer}q] : {per}q <= x < {per}q + {per} }}")
