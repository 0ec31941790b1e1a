"""Where statement instances stand in a picture: two (or three) loops as axes, the other dims projected away or held fixed.

Takes a Scop, statements and axes; gives a `Plane`. A statement without a loop that is an axis stands one step before or after that loop's range, as
it does in the code; statements that share all axes stand a little beside each other, in textual order. With
one axis each statement has a row of its own, the first on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError
from ..ir.expr import Load
from ..ir.scop import Scop, Statement
from ..poly.deps import PRIVATE_SCOPES
from ..verbs.tree import read_tree, statements_below
from .points import Instances, distinct_rows, instances

Array = np.ndarray[Any, Any]
ASIDE = 0.34  # of a step, between the first and the last of the statements that share a place


@dataclass(frozen=True)
class Plane:
    """The axes (names of iterators), the instances of each statement, which of them are shown, and where."""

    axes: tuple[str, ...]
    found: Mapping[str, Instances]
    fixed: Mapping[str, int]
    outside: Mapping[tuple[str, str], float]  # (statement, axis) → where a statement without that loop stands
    aside: Mapping[str, float]

    def shown(self, statement: str, points: Array) -> Array:
        """Which points lie in the slice."""
        keep = np.ones(len(points), bool)
        for name, value in self.fixed.items():
            iters = self.found[statement].iters
            if name in iters:
                keep &= points[:, iters.index(name)] == value
        return keep

    def at(self, statement: str, points: Array) -> Array:
        """Positions of points, one row each."""
        iters = self.found[statement].iters
        columns = []
        for k, axis in enumerate(self.axes):
            if axis in iters:
                column = points[:, iters.index(axis)].astype(float)
            else:
                column = np.full(len(points), self.outside[statement, axis])
            columns.append(column + self.aside[statement] if k == 0 and len(self.axes) > 1 else column)
        if len(columns) == 1:
            columns.append(np.full(len(points), -float(list(self.found).index(statement))))
        return np.column_stack(columns)

    def spots(self, statement: str) -> Array:
        """The distinct positions of the statement's shown instances."""
        points = self.found[statement].points
        return distinct_rows(self.at(statement, points[self.shown(statement, points)]))

    def hidden(self, statement: str) -> tuple[str, ...]:
        """The iterators that are neither axes nor fixed: projected away."""
        return tuple(i for i in self.found[statement].iters if i not in self.axes and i not in self.fixed)

    def note(self) -> str:
        """What the picture leaves out, in words."""
        hidden = list(dict.fromkeys(i for s in self.found for i in self.hidden(s)))
        parts = [f"{k} = {v}" for k, v in self.fixed.items()] + ([f"{', '.join(hidden)} projected away"] if hidden else [])
        return ", ".join(parts)


def make_plane(
    scop: Scop,
    params: Mapping[str, int],
    statements: Sequence[str] | None = None,
    axes: Sequence[str] | None = None,
    at: Mapping[str, int] | None = None,
    most: int = 2,
) -> Plane:
    """Places for the statements (the main ones where None). `axes`: names of up to `most` iterators; `at`: iterators held fixed."""
    wanted = main_statements(scop) if statements is None else statements
    order = [s for s in statements_below(read_tree(scop.schedule)) if s in wanted]
    for s in statements or ():
        instances(scop, s, params)  # refuses unknown names
    found = {s: instances(scop, s, params) for s in order}
    known = list(dict.fromkeys(i for s in order for i in scop.statement(s).iters))
    fixed = dict(at or {})
    for name in [*(axes or ()), *fixed]:
        if name not in known:
            raise UserError(f"there is no iterator {name!r} to draw; the iterators are {', '.join(known) or 'none'}")
    if axes is not None and not 1 <= len(axes) <= most:
        raise UserError(f"axes: give one to {most} iterators, not {len(axes)}")
    chosen = tuple(axes) if axes is not None else _choose_axes(scop, order, fixed, most)
    return Plane(chosen, found, fixed, _outside(order, found, chosen), _aside(scop, order, chosen))


def main_statements(scop: Scop) -> list[str]:
    """The statements but for the copies to and from the buffers of tiles; these have iterators of their own."""
    private = {t.name for t in scop.tensors if t.role == "local" and t.scope in PRIVATE_SCOPES}
    return [s.name for s in scop.statements if not _is_copy(s, private)] or [s.name for s in scop.statements]


def _is_copy(s: Statement, private: set[str]) -> bool:
    return isinstance(s.expr, Load) and s.reduction is None and not private.isdisjoint({s.write.tensor, s.expr.access.tensor})


def deepest(scop: Scop, statements: Sequence[str]) -> Statement:
    """The statement with the most iterators, the first of several."""
    return max((scop.statement(s) for s in statements), key=lambda s: len(s.iters))


def _choose_axes(scop: Scop, order: Sequence[str], fixed: Mapping[str, int], most: int) -> tuple[str, ...]:
    """The iterators of the deepest statement that are not fixed, outermost first."""
    free = [i for i in deepest(scop, order).iters if i not in fixed]
    return tuple(free[:most])


def _outside(order: Sequence[str], found: Mapping[str, Instances], axes: Sequence[str]) -> dict[tuple[str, str], float]:
    out: dict[tuple[str, str], float] = {}
    for axis in axes:
        having = [s for s in order if axis in found[s].iters and len(found[s].points)]
        lo = min((int(found[s].column(axis).min()) for s in having), default=0)
        hi = max((int(found[s].column(axis).max()) for s in having), default=0)
        for s in order:
            if axis not in found[s].iters:
                before = not having or order.index(s) < order.index(having[0])
                out[s, axis] = lo - 1.0 if before else hi + 1.0
    return out


def _aside(scop: Scop, order: Sequence[str], axes: Sequence[str]) -> dict[str, float]:
    out: dict[str, float] = {}
    groups: dict[frozenset[str], list[str]] = {}
    for s in order:
        groups.setdefault(frozenset(axes) & frozenset(scop.statement(s).iters), []).append(s)
    for names in groups.values():
        for k, s in enumerate(names):
            out[s] = 0.0 if len(names) == 1 else ASIDE * k / (len(names) - 1)
    return out
