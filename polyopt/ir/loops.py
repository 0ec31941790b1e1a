"""The LoopNest: loops, guards and statement instances, in polyopt's own expressions. No isl here.

Takes what `lower/loops.py` reads off isl's AST; gives the value that every emitter prints. Each instance keeps the name of its
source statement and its domain coordinates as affine expressions of the loop variables and parameters. Accesses are physical
(row-major over `Tensor.shape`) and written in the loop variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Union

from .affine import Affine, Range, var
from .expr import Access, Expr, loads, split_linear, substitute_access
from .tensor import ScalarArg, Tensor


@dataclass(frozen=True)
class Instance:
    """`write = expr`, or `write = write <reduction> expr`, for one instance of `statement` at `coords`."""

    statement: str
    coords: tuple[Affine, ...]
    write: Access
    expr: Expr
    reduction: str | None = None


@dataclass(frozen=True)
class Recurrence:
    """What `write = expr` computes along a loop: x[v] = factor * x[v - 1] + rest (None: zero). `previous` is the load of x[v - 1]."""

    previous: Access
    factor: float
    rest: Expr | None


@dataclass(frozen=True)
class Loop:
    """`for var in [max(lower), min(upper))` by `step`. `name` is the schedule's loop name (for comments).

    `mark`: "" (plain), "vector" (`lanes` iterations at once, strip by strip from the first; what they carry is a reduction or a linear
    recurrence), "unroll", "parallel" (iterations independent), "bind:block.x" and so on. `range`: proven inclusive bounds of the variable,
    None where unbounded.
    """

    var: str
    lower: tuple[Affine, ...]
    upper: tuple[Affine, ...]
    body: tuple[LoopNode, ...]
    step: int = 1
    mark: str = ""
    name: str = ""
    lanes: int = 0
    range: Range = (None, None)

    @property
    def trip(self) -> int | None:
        """The trip count where the bounds differ by a constant, else None."""
        if len(self.lower) == 1 and len(self.upper) == 1:
            d = self.upper[0] - self.lower[0]
            if d.is_const:
                return max(0, -(-d.const // self.step))
        return None

    @property
    def is_strip(self) -> bool:
        """Whether a vector loop is one strip: some bounds say that it runs at most `lanes` iterations."""
        distances = [u - low for u in self.upper for low in self.lower]
        return any(d.is_const and d.const <= self.lanes for d in distances)


@dataclass(frozen=True)
class If:
    """A guard: `cond` is a bool expression of index values (Compare and and/or over IndexValue)."""

    cond: Expr
    body: tuple[LoopNode, ...]
    orelse: tuple[LoopNode, ...] = ()


@dataclass(frozen=True)
class Declare:
    """A local buffer whose life begins here (scope registers: named locals or a small array)."""

    tensor: str


@dataclass(frozen=True)
class Prefetch:
    """A hint to bring the line of `access` into cache level `level` (1 nearest)."""

    access: Access
    level: int = 1


LoopNode = Union[Instance, Loop, If, Declare, Prefetch]


@dataclass(frozen=True)
class LoopNest:
    """A kernel. `tensors` in argument order first (role not local), then locals. `params` are int64 dims with proven ranges."""

    name: str
    params: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarArg, ...]
    body: tuple[LoopNode, ...]
    param_ranges: tuple[tuple[str, Range], ...] = ()

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name (KeyError where there is none)."""
        for t in self.tensors:
            if t.name == name:
                return t
        raise KeyError(name)

    def arguments(self) -> tuple[Tensor, ...]:
        """The tensors that the caller passes, in order."""
        return tuple(t for t in self.tensors if t.role != "local")


def walk(nodes: tuple[LoopNode, ...]) -> Iterator[LoopNode]:
    """All nodes below, parents first."""
    for n in nodes:
        yield n
        if isinstance(n, Loop):
            yield from walk(n.body)
        elif isinstance(n, If):
            yield from walk(n.body)
            yield from walk(n.orelse)


def with_body(n: LoopNode, body: tuple[LoopNode, ...]) -> LoopNode:
    """A loop or guard with another body."""
    assert isinstance(n, Loop | If)
    return replace(n, body=body)


def recurrence_along(n: Instance, v: str) -> Recurrence | None:
    """The linear recurrence of first order that an instance computes along a loop; None where it reads no cell of the iteration before it, or
    reads it in another way."""
    if n.reduction is not None or not n.write.is_affine:
        return None
    previous = substitute_access(n.write, {v: var(v) - 1})
    own = [x.access for x in loads(n.expr) if x.access.tensor == n.write.tensor]
    if previous == n.write or previous not in own or not all(a == previous or _never_meet(a, previous) for a in own):
        return None
    part = split_linear(n.expr, previous)
    return None if part is None else Recurrence(previous, *part)


def _never_meet(a: Access, b: Access) -> bool:
    gaps = [x - y for x, y in zip(a.affine_indices(), b.affine_indices(), strict=True)] if a.is_affine else []
    return any(g.is_const and g.const for g in gaps)
