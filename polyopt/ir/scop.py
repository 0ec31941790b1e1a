"""The Scop: everything between a front end and the emitter, held as isl objects and a few frozen values.

Takes tensors, statements and an isl schedule; gives a frozen `Scop`. A statement instance is `name[iters]`; its domain is an isl set
with that tuple name and named dims. The schedule is isl's own tree; band members carry the loop's name as their dim id; marks
(`mark_name`) above a single-member band record intent: ``vector``, ``unroll``, ``parallel`` and ``bind:<axis>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import islpy as isl

from .expr import Access, Expr, Load, loads
from .tensor import ScalarArg, Tensor


@dataclass(frozen=True)
class Statement:
    """One statement: for each point of `domain`, `write = expr`, or `write = write <reduction> expr` when `reduction` is set.

    `reduction` is one of None, "+", "*", "min", "max": an associative update whose own dependences are kept apart.
    """

    name: str
    iters: tuple[str, ...]
    domain: isl.Set
    write: Access
    expr: Expr
    reduction: str | None = None

    def reads(self) -> tuple[Access, ...]:
        """The accesses read by the expression (the read of an update's own cell not included)."""
        return tuple(x.access for x in loads(self.expr))

    def loads(self) -> tuple[Load, ...]:
        """The loads of the expression."""
        return loads(self.expr)


@dataclass(frozen=True)
class Dependences:
    """Dependences as isl union maps from source to sink instance, for all parameter values.

    flow is value-based (each read to the last write before it). `reduction` holds the dependences between updates of one
    associative reduction, kept apart. `anti` and `output` are memory-based. `exact` is False where isl's budget was spent and flow
    is memory-based too: a superset.
    """

    flow: isl.UnionMap
    anti: isl.UnionMap
    output: isl.UnionMap
    reduction: isl.UnionMap
    exact: bool = True

    def all(self, reassociate: bool = False) -> isl.UnionMap:
        """The union that a schedule must respect (without the reduction part when it may be reassociated)."""
        out = self.flow.union(self.anti).union(self.output)
        return out if reassociate else out.union(self.reduction)

    def __str__(self) -> str:
        return "\n".join(f"{k:9} {getattr(self, k)}" for k in ("flow", "anti", "output", "reduction"))


@dataclass(frozen=True)
class Violation:
    """A witness that a schedule breaks a dependence: two instances that clash, the cell, their dates before and after, the step."""

    kind: str
    source: tuple[str, tuple[int, ...]]
    sink: tuple[str, tuple[int, ...]]
    params: Mapping[str, int]
    cell: tuple[str, tuple[int, ...]] | None
    before: tuple[tuple[int, ...], tuple[int, ...]]
    after: tuple[tuple[int, ...], tuple[int, ...]]
    step: str
    repair: str | None = None

    def __str__(self) -> str:
        def inst(x: tuple[str, tuple[int, ...]]) -> str:
            return f"{x[0]}({', '.join(map(str, x[1]))})"

        where = f" with {', '.join(f'{k}={v}' for k, v in self.params.items())}" if self.params else ""
        cell = f" through {self.cell[0]}[{', '.join(map(str, self.cell[1]))}]" if self.cell else ""
        text = (
            f"{self.step} breaks a {self.kind} dependence{where}: {inst(self.source)} must run before {inst(self.sink)}{cell}; "
            f"dates were {list(self.before[0])} < {list(self.before[1])} and would be {list(self.after[0])} >= {list(self.after[1])}"
        )
        return text + (f". Repair: {self.repair}" if self.repair else "")


@dataclass(frozen=True)
class Step:
    """One applied verb: name and arguments, enough to replay it."""

    verb: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.verb}({', '.join([*map(repr, self.args), *(f'{k}={v!r}' for k, v in self.kwargs)])})"


@dataclass(frozen=True)
class Scop:
    """A static control part. `dependences` is None until computed by `poly.deps`. `label` is 'bit-identical' or 'reassociates …'."""

    name: str
    params: tuple[str, ...]
    context: isl.Set
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    schedule: isl.Schedule
    scalars: tuple[ScalarArg, ...] = ()
    dependences: Dependences | None = None
    history: tuple[Step, ...] = ()
    label: str = "bit-identical"
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        tensors, statements = (", ".join(x.name for x in xs) for xs in (self.tensors, self.statements))
        return f"<scop {self.name}: statements {statements}; tensors {tensors}; {len(self.history)} steps, {self.label}>"

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name (KeyError where there is none)."""
        for t in self.tensors:
            if t.name == name:
                return t
        raise KeyError(name)

    def statement(self, name: str) -> Statement:
        """The statement of that name (KeyError where there is none)."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Statement]:
        return {s.name: s for s in self.statements}

    def domain(self) -> isl.UnionSet:
        """All statement instances."""
        out = isl.UnionSet.from_set(self.statements[0].domain)
        for s in self.statements[1:]:
            out = out.union(isl.UnionSet.from_set(s.domain))
        return out

    def with_schedule(self, schedule: isl.Schedule, step: Step | None = None) -> Scop:
        """The same statements in another order."""
        return replace(self, schedule=schedule, history=self.history + ((step,) if step else ()))
