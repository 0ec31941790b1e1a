"""The translated body of a function: loops and raw statements, and where the translation stands. Values only; constraints are isl text."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Union

from polyopt.ir.dtype import DType
from polyopt.ir.expr import Access, Expr

from .scope import Scope, UntypedYet
from .values import split_subscript


@dataclass(frozen=True)
class Loop:
    """One `for`: its iterator, the constraints on it as isl text, and whether it counts down."""

    name: str
    constraints: tuple[str, ...]
    descending: bool
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Raw:
    """One assignment in its loops. `update` is the operator of `write = write op expr` (then `expr` is the right operand); `guard` a
    condition on data; `keeps`: whether the old value must be kept where the guard is false."""

    iters: tuple[str, ...]
    constraints: tuple[str, ...]
    write: Access
    dtype: DType
    expr: Expr
    node: ast.stmt
    update: str | None = None
    guard: Expr | None = None
    keeps: bool = True


Node = Union[Loop, Raw]


@dataclass
class Walk:
    """Where the translation stands. `asserts` are facts about the dims, as isl text."""

    scope: Scope
    constraints: list[str] = field(default_factory=list)
    guards: list[tuple[Expr, int]] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    conditions: int = 0
    pending: UntypedYet | None = None
    changed: bool = False


def fresh(scope: Scope, name: str) -> str:
    """A name that nothing in the function has."""
    taken = {*scope.src.bound, *scope.tensors, *scope.params, *(web.name for web in scope.webs.of.values())}
    while name in taken:
        name += "_"
    return name


def written(s: ast.stmt) -> set[str]:
    """The names of the tensors, locals and loop variables that a statement changes."""
    out: set[str] = set()
    for n in ast.walk(s):
        for t in n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign | ast.AnnAssign | ast.For) else []:
            for leaf in t.elts if isinstance(t, ast.Tuple) else [t]:
                base = split_subscript(leaf)[0] if isinstance(leaf, ast.Subscript) else leaf
                if isinstance(base, ast.Name):
                    out.add(base.id)
    return out
