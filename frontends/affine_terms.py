"""Indices, loop bounds and conditions of a loop nest as affine expressions and isl text. Takes syntax trees in a `Scope`; gives
`Affine`s, or text in isl's syntax where min, max or a disjunction is needed; raises `NonAffine` with the smallest term at fault.

`//` and `%` floor, as in Python, and need a constant divisor. isl reads the text of an `Affine` unchanged.
"""

from __future__ import annotations

import ast
import numbers
import operator
from collections.abc import Callable

import numpy as np

from polyopt.ir.affine import Affine, affine, var

from .intrinsics import callee
from .pysource import MISSING, quote
from .scope import NonAffine, Scope

COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
_TEXT_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip


def affine_of(scope: Scope, node: ast.expr) -> Affine:
    """The affine expression of a term; raises `NonAffine`."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return affine(node.value)
        raise NonAffine(node, f"{quote(node)} is not a whole number")
    if isinstance(node, ast.Name):
        return _name(scope, node)
    if isinstance(node, ast.Attribute):
        return _outer(scope, node)
    if isinstance(node, ast.Subscript):
        return _shape(scope, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        x = affine_of(scope, node.operand)
        return -x if isinstance(node.op, ast.USub) else x
    if isinstance(node, ast.BinOp):
        return _binary(scope, node)
    if isinstance(node, ast.Call):
        return _call(scope, node)
    raise NonAffine(node, f"{quote(node)} is not affine")


def _name(scope: Scope, node: ast.Name) -> Affine:
    if node.id in scope.iters:
        return var(node.id)
    if node.id in scope.params and node.id in scope.arguments:
        return var(node.id)
    alias = scope.alias(node)
    if alias is not None and alias.affine is not None:
        return alias.affine
    if node.id in scope.src.bound:
        what = "a scalar argument" if node.id in scope.scalars else "a tensor" if node.id in scope.tensors else "a local variable"
        hint = f"; annotate it `{node.id}: int` to make it a size" if node.id in scope.scalars else ""
        raise NonAffine(node, f"{quote(node)} is {what}, not a loop variable or dim{hint}")
    return _outer(scope, node)


def _outer(scope: Scope, node: ast.expr) -> Affine:
    found = scope.meaning(node)
    if isinstance(found, Affine):
        return scope.use_dims(found)
    if isinstance(found, numbers.Integral) and not isinstance(found, bool | np.bool_):
        return affine(int(found))
    if found is MISSING:
        raise NonAffine(node, f"{quote(node)} is not defined")
    raise NonAffine(node, f"{quote(node)} is a {type(found).__name__}, not a whole number or dim")


def _shape(scope: Scope, node: ast.Subscript) -> Affine:
    base = node.value
    if isinstance(base, ast.Attribute) and base.attr == "shape" and isinstance(base.value, ast.Name):
        tensor, axis = scope.tensors.get(base.value.id), node.slice
        if tensor is not None:
            k = affine_of(scope, axis)
            if not k.is_const or not -len(tensor.shape) <= int(k) < len(tensor.shape):
                raise NonAffine(node, f"{quote(node)}: {tensor.name} has {len(tensor.shape)} dims")
            return tensor.shape[int(k)]
    raise NonAffine(node, f"{quote(node)} is read from a tensor")


def _call(scope: Scope, node: ast.Call) -> Affine:
    if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        tensor = scope.tensors.get(node.args[0].id)
        if tensor is not None and tensor.shape:
            return tensor.shape[0]
    if callee(scope.src, node.func) == "int" and len(node.args) == 1:
        return affine_of(scope, node.args[0])
    raise NonAffine(node, f"{quote(node)} is not affine")


def _binary(scope: Scope, node: ast.BinOp) -> Affine:
    x, y = affine_of(scope, node.left), affine_of(scope, node.right)
    if isinstance(node.op, ast.Add):
        return x + y
    if isinstance(node.op, ast.Sub):
        return x - y
    if isinstance(node.op, ast.Mult):
        if x.is_const or y.is_const:
            return x * y
        raise NonAffine(node, f"{quote(node)} multiplies two variables")
    if isinstance(node.op, ast.FloorDiv | ast.Mod):
        if not y.is_const:
            raise NonAffine(node, f"{quote(node)} divides by {quote(node.right)}, which is not a constant")
        d = int(y)
        if d == 0:
            raise NonAffine(node, f"{quote(node)} divides by zero")
        whole = x // d if d > 0 else -x // -d
        return whole if isinstance(node.op, ast.FloorDiv) else x - whole * d
    if x.is_const and y.is_const and not isinstance(node.op, ast.Div | ast.Pow):
        folded = {ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_}.get(type(node.op))
        if folded is not None:
            return affine(folded(int(x), int(y)))
    if x.is_const and y.is_const and isinstance(node.op, ast.Pow) and int(y) >= 0:
        return affine(int(x) ** int(y))
    hint = ": use // for whole numbers" if isinstance(node.op, ast.Div) else ""
    raise NonAffine(node, f"{quote(node)} is not affine{hint}")


def try_affine(scope: Scope, node: ast.expr) -> Affine | None:
    """The affine expression of a term, None where it is not affine."""
    try:
        return affine_of(scope, node)
    except NonAffine:
        return None


# ---- bounds with min and max
def bounds_of(scope: Scope, node: ast.expr, extreme: str) -> tuple[str, ...]:
    """Terms whose min (`extreme` = "min", for an upper bound) or max is the value of the node, each as isl text.

    min and max are taken apart through sums and products with constants; what remains (a min in a lower bound) is one text.
    """
    try:
        return tuple(str(t) for t in _terms(scope, node, extreme))
    except NonAffine:
        return (piecewise_text(scope, node),)


def _terms(scope: Scope, node: ast.expr, extreme: str) -> list[Affine]:
    if isinstance(node, ast.Call) and callee(scope.src, node.func) == extreme and len(node.args) > 1:
        return [t for a in node.args for t in _terms(scope, a, extreme)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and try_affine(scope, node) is None:
        left, right = try_affine(scope, node.left), try_affine(scope, node.right)
        if right is not None:
            step = right if isinstance(node.op, ast.Add) else -right
            return [t + step for t in _terms(scope, node.left, extreme)]
        if left is not None and isinstance(node.op, ast.Add):
            return [left + t for t in _terms(scope, node.right, extreme)]
    return [affine_of(scope, node)]


def piecewise_text(scope: Scope, node: ast.expr) -> str:
    """A piecewise quasi-affine term as isl text: affine terms, min, max, and sums and constant multiples of them."""
    flat = try_affine(scope, node)
    if flat is not None:
        return f"({flat})"
    if isinstance(node, ast.Call):
        name = callee(scope.src, node.func)
        if name in ("min", "max") and len(node.args) > 1 and not node.keywords:
            return f"{name}({', '.join(piecewise_text(scope, a) for a in node.args)})"
        if name == "abs" and len(node.args) == 1:
            x = piecewise_text(scope, node.args[0])
            return f"max({x}, -1*{x})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"(-1*{piecewise_text(scope, node.operand)})"
    if isinstance(node, ast.BinOp):
        left, right = try_affine(scope, node.left), try_affine(scope, node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = "+" if isinstance(node.op, ast.Add) else "-"
            return f"({piecewise_text(scope, node.left)} {sign} {piecewise_text(scope, node.right)})"
        if isinstance(node.op, ast.Mult) and left is not None and left.is_const:
            return f"({int(left)}*{piecewise_text(scope, node.right)})"
        if isinstance(node.op, ast.Mult) and right is not None and right.is_const:
            return f"({int(right)}*{piecewise_text(scope, node.left)})"
        if isinstance(node.op, ast.FloorDiv) and right is not None and right.is_const and int(right) > 0:
            return f"floor({piecewise_text(scope, node.left)}/{int(right)})"
    affine_of(scope, node)  # raises with the smallest term at fault
    raise NonAffine(node, f"{quote(node)} is not affine")


# ---- conditions
def condition_text(scope: Scope, node: ast.expr, negate: bool = False) -> str:
    """A condition as isl text in negation normal form; raises `NonAffine` where it depends on data."""
    if isinstance(node, ast.BoolOp):
        both = isinstance(node.op, ast.And) != negate
        return "(" + (" and " if both else " or ").join(condition_text(scope, v, negate) for v in node.values) + ")"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return condition_text(scope, node.operand, not negate)
    if isinstance(node, ast.Compare):
        terms = [node.left, *node.comparators]
        parts = [_comparison(scope, a, op, b, negate) for a, op, b in zip(terms, node.ops, terms[1:])]
        return parts[0] if len(parts) == 1 else "(" + (" or " if negate else " and ").join(parts) + ")"
    known = node.value if isinstance(node, ast.Constant) else scope.meaning(node)
    if isinstance(known, bool | np.bool_):
        return "true" if bool(known) != negate else "false"
    return f"({piecewise_text(scope, node)} {'=' if negate else '!='} 0)"


def _comparison(scope: Scope, a: ast.expr, op: ast.cmpop, b: ast.expr, negate: bool) -> str:
    sign = COMPARE.get(type(op))
    if sign is None:
        raise NonAffine(a, f"{quote(a)} is compared by something else than < <= > >= == !=")
    sign = _NEGATED[sign] if negate else sign
    x, y = try_affine(scope, a), try_affine(scope, b)
    if x is not None and y is not None and (x - y).is_const:
        return "true" if _TEXT_COMPARE[sign](int(x - y), 0) else "false"
    return f"({piecewise_text(scope, a)} {sign} {piecewise_text(scope, b)})"
