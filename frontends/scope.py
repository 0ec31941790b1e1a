"""What the names of a loop nest mean while it is translated: tensors, scalar arguments, dims, iterators, locals. Filled by the
front end, read by the translators of indices, conditions and values."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType, f64, i64
from polyopt.ir.expr import Const, Expr, IndexValue
from polyopt.ir.tensor import Tensor

from .pysource import PySource
from .webs import Web, Webs


class NonAffine(Exception):
    """A term that is not affine. `node` is the smallest term at fault, `reason` says why."""

    def __init__(self, node: ast.expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class UntypedYet(Exception):
    """A local whose dtype is not known in this round of type inference."""

    def __init__(self, node: ast.Name) -> None:
        super().__init__(node.id)
        self.node = node


@dataclass(frozen=True)
class Typed:
    """An expression, and whether its type is weak: a Python number adapts to the other operand, as in NumPy (NEP 50)."""

    expr: Expr
    weak: bool = False

    @property
    def dtype(self) -> DType:
        """The type of the value (f64 or i64 where it is weak)."""
        return self.expr.dtype

    @property
    def affine(self) -> Affine | None:
        """The value as an affine expression, None where it is not one."""
        if isinstance(self.expr, IndexValue):
            return self.expr.index
        if isinstance(self.expr, Const) and isinstance(self.expr.value, int) and not isinstance(self.expr.value, bool):
            return Affine((), self.expr.value)
        return None


def number(value: int | float) -> Typed:
    """A Python number as a weakly typed constant."""
    return Typed(Const(value, i64 if isinstance(value, int) else f64), weak=True)


@dataclass
class Scope:
    """The names of one function. `params` keeps the order in which dims are first met."""

    src: PySource
    arguments: tuple[str, ...] = ()
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, DType] = field(default_factory=dict)
    params: dict[str, None] = field(default_factory=dict)
    iters: list[str] = field(default_factory=list)
    webs: Webs = field(default_factory=Webs)
    types: dict[str, Typed] = field(default_factory=dict)
    aliases: dict[str, Typed] = field(default_factory=dict)

    def meaning(self, node: ast.expr) -> Any:
        """The object that a free name means (`MISSING` where there is none)."""
        return self.src.resolve(node)

    def alias(self, node: ast.expr) -> Typed | None:
        """The value of a local that is only another name for an expression."""
        web = self.web(node)
        return self.aliases.get(web.name) if web else None

    def web(self, node: ast.expr) -> Web | None:
        """The web of a local scalar, None for other nodes."""
        return self.webs.get(node) if isinstance(node, ast.Name) else None

    def use_dims(self, e: Affine) -> Affine:
        """Note that the dims of an expression are parameters of this nest."""
        for name in sorted(e.names()):
            self.params.setdefault(name)
        return e
