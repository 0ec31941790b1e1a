"""The right-hand sides of a loop nest as typed expressions. Takes syntax trees in a `Scope`; gives `Typed` values and `Access`es;
raises `NotAffine` (file, line, term) for what has no meaning here.

Whatever is affine in loop variables and dims becomes an `IndexValue`, a weakly typed Python integer. A subscript that reads a
tensor or a scalar is an indirect index: a negative one counts from the end, and one that lies outside the dim reads the nearest element
(the reference raises IndexError); min, max and `a if c else b` of affine terms in a subscript of a read become a Select of two reads.
"""

from __future__ import annotations

import ast
import numbers
from typing import Any

import numpy as np

from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType, bool_, f64, i64
from polyopt.ir.expr import INTRINSICS, Access, Binary, Const, Expr, Index, IndexValue, Load, Scalar, Unary, walk

from . import typing_rules as rules
from .affine_terms import affine_of, try_affine
from .intrinsics import OTHERS, callee, dtype_of_numpy
from .pysource import MISSING, quote
from .scope import NonAffine, Scope, Typed, UntypedYet, number

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "pow",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def value_of(scope: Scope, node: ast.expr) -> Typed:
    """The typed expression of a right-hand side."""
    try:
        return _value(scope, node)
    except rules.TypeRule as e:
        raise scope.src.refuse(node, f"{quote(node)}: {e}") from None


def operator_of(op: ast.operator) -> str | None:
    """The name of a Python operator in `Binary`, None for those that have none (@)."""
    return _BINARY.get(type(op))


def condition_of(scope: Scope, node: ast.expr) -> Expr:
    """The truth value of a term."""
    if isinstance(node, ast.BoolOp):
        op = "and" if isinstance(node.op, ast.And) else "or"
        out = condition_of(scope, node.values[0])
        for v in node.values[1:]:
            out = Binary(op, out, condition_of(scope, v))
        return out
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Unary("not", condition_of(scope, node.operand))
    return rules.truth(value_of(scope, node))


def _value(scope: Scope, node: ast.expr) -> Typed:
    flat = try_affine(scope, node)
    if flat is not None:
        return number(int(flat)) if flat.is_const else Typed(IndexValue(flat, i64), weak=True)
    if isinstance(node, ast.Constant):
        return _constant(scope, node, node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(scope, node)
    if isinstance(node, ast.Subscript):
        return _load(scope, node)
    if isinstance(node, ast.BinOp):
        op = _BINARY.get(type(node.op))
        if op is None:
            raise scope.src.refuse(node, f"{quote(node)}: @ works on whole arrays: write the loops")
        return _checked(scope, node, rules.binary, op, value_of(scope, node.left), value_of(scope, node.right))
    if isinstance(node, ast.UnaryOp):
        return _unary(scope, node)
    if isinstance(node, ast.BoolOp):
        for v in node.values:
            if value_of(scope, v).dtype != bool_:
                raise scope.src.refuse(node, f"{quote(v)} in {quote(node)} is not a bool: compare it, as in {ast.unparse(v)} != 0")
        return Typed(condition_of(scope, node))
    if isinstance(node, ast.Compare):
        return _compare(scope, node)
    if isinstance(node, ast.IfExp):
        cond = condition_of(scope, node.test)
        return _checked(scope, node, rules.select, cond, value_of(scope, node.body), value_of(scope, node.orelse))
    if isinstance(node, ast.Call):
        return _call(scope, node)
    kinds = {ast.Lambda: "a lambda", ast.ListComp: "a comprehension", ast.GeneratorExp: "a generator", ast.Starred: "a star argument"}
    what = kinds.get(type(node), "this kind of expression")
    raise scope.src.refuse(node, f"{quote(node)}: {what} is not supported in a loop nest: write plain loops and scalar expressions")


def _checked(scope: Scope, node: ast.expr, fn: Any, *args: Any) -> Typed:
    try:
        out: Typed = fn(*args)
        return out
    except rules.TypeRule as e:
        raise scope.src.refuse(node, f"{quote(node)}: {e}") from None


def _constant(scope: Scope, node: ast.expr, value: Any) -> Typed:
    if isinstance(value, bool | np.bool_):
        return Typed(Const(bool(value), bool_))
    if isinstance(value, np.generic):
        dtype = dtype_of_numpy(value.dtype)
        if dtype is not None and dtype.kind in "fiu":
            return Typed(Const(float(value) if dtype.is_float else int(value), dtype))
    elif isinstance(value, numbers.Integral):
        return number(int(value))
    elif isinstance(value, float):
        return number(value)
    raise scope.src.refuse(node, f"{quote(node)} is a {type(value).__name__}: only numbers and bools are allowed here")


def _name(scope: Scope, node: ast.Name | ast.Attribute) -> Typed:
    text = quote(node)
    if isinstance(node, ast.Name):
        alias = scope.alias(node)
        if alias is not None:
            return alias
        if node.id in scope.scalars:
            return Typed(Scalar(node.id, scope.scalars[node.id]))
        if node.id in scope.tensors:
            raise scope.src.refuse(node, f"{text} is a whole tensor: give {_subscripts(scope, node.id)}")
        web = scope.web(node)
        if web is not None:
            if web.name not in scope.types:
                raise UntypedYet(node)
            known = scope.types[web.name]
            return Typed(Load(Access(web.name, ()), known.dtype), known.weak)
        if node.id in scope.src.bound:
            raise scope.src.refuse(node, f"{text} is read before it is assigned, or outside its loop")
    found = scope.meaning(node)
    if found is MISSING:
        raise scope.src.refuse(node, f"{text} is not defined: make it an argument, a dim or a constant outside the function")
    if isinstance(found, np.ndarray):
        raise scope.src.refuse(node, f"{text} is an array outside the function: make it an argument")
    return _constant(scope, node, found)


def _subscripts(scope: Scope, name: str) -> str:
    n = len(scope.tensors[name].shape)
    return f"its {n} subscript{'s' * (n != 1)}" if n else "the subscript [()]"


def _unary(scope: Scope, node: ast.UnaryOp) -> Typed:
    if isinstance(node.op, ast.Not):
        return Typed(Unary("not", condition_of(scope, node.operand)))
    x = value_of(scope, node.operand)
    if isinstance(node.op, ast.USub):
        return _checked(scope, node, rules.negative, x)
    if isinstance(node.op, ast.Invert):
        if x.dtype.is_float:
            raise scope.src.refuse(node, f"{quote(node)}: ~ needs an integer or a bool")
        return Typed(Unary("not" if x.dtype == bool_ else "~", x.expr), x.weak)
    return x


def _compare(scope: Scope, node: ast.Compare) -> Typed:
    terms = [value_of(scope, t) for t in (node.left, *node.comparators)]
    out: Expr | None = None
    for x, op, y in zip(terms, node.ops, terms[1:]):
        name = _COMPARE.get(type(op))
        if name is None:
            raise scope.src.refuse(node, f"{quote(node)}: only < <= > >= == != compare numbers")
        part = _checked(scope, node, rules.compare, name, x, y).expr
        out = part if out is None else Binary("and", out, part)
    assert out is not None
    return Typed(out)


def _call(scope: Scope, node: ast.Call) -> Typed:
    fn = callee(scope.src, node.func)
    text = quote(node.func)
    if fn is None:
        if isinstance(node.func, ast.Name) and node.func.id == scope.src.name:
            raise scope.src.refuse(node, f"{quote(node)}: recursion is not a loop nest: write the loop")
        raise scope.src.refuse(
            node, f"{quote(node)}: {text} is not a function that can be compiled: write its body here, or use one of "
            f"min, max, {', '.join(sorted(INTRINSICS))}"
        )  # fmt: skip
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        raise scope.src.refuse(node, f"{quote(node)}: give plain positional arguments")
    args = tuple(value_of(scope, a) for a in node.args)
    arity = 1 if isinstance(fn, DType) else INTRINSICS[fn] if fn in INTRINSICS else OTHERS[fn]
    if len(args) != arity and not (arity is None and len(args) >= 2):
        wanted = "at least 2 arguments" if arity is None else f"{arity} argument{'s' * (arity != 1)}"
        raise scope.src.refuse(node, f"{quote(node)}: {text} takes {wanted}, not {len(args)}")
    if isinstance(fn, DType):
        return rules.cast(args[0], fn)
    if fn in ("int", "float"):
        return rules.cast(args[0], i64 if fn == "int" else f64, weak=True)
    if fn == "bool":
        return Typed(rules.truth(args[0]))
    return _checked(scope, node, rules.call, fn, args)


# ---- tensors
def split_subscript(node: ast.Subscript) -> tuple[ast.expr, list[ast.expr]]:
    """The tensor and the indices of `A[i, j]` or `A[i][j]`."""
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(node.value, ast.Subscript):
        base, outer = split_subscript(node.value)
        return base, outer + items
    return node.value, items


def tensor_of(scope: Scope, node: ast.Subscript) -> tuple[str, list[ast.expr]]:
    """The name of the tensor that a subscript reads or writes and its index terms, which are as many as its dims."""
    base, items = split_subscript(node)
    if not isinstance(base, ast.Name) or base.id not in scope.tensors:
        known = isinstance(base, ast.Name) and isinstance(scope.meaning(base), np.ndarray)
        hint = "make it an argument" if known else "only tensors that are arguments, or made by local() or zeros(), have subscripts"
        raise scope.src.refuse(node, f"{quote(base)} in {quote(node)} is not a tensor: {hint}")
    rank = len(scope.tensors[base.id].shape)
    for x in items:
        if isinstance(x, ast.Slice) or (isinstance(x, ast.Constant) and (x.value is None or x.value is Ellipsis)):
            raise scope.src.refuse(node, f"{quote(node)} takes a part of the tensor: write the loop over its elements")
    if len(items) != rank:
        given = f"{len(items)} subscript{'s are' if len(items) != 1 else ' is'} given"
        raise scope.src.refuse(node, f"{quote(node)}: {base.id} has {rank} dim{'s' * (rank != 1)}, and {given}")
    return base.id, items


def _load(scope: Scope, node: ast.Subscript) -> Typed:
    name, items = tensor_of(scope, node)
    indices: list[Index] = []
    for item in items:
        flat = try_affine(scope, item)
        if flat is not None:
            indices.append(flat)
            continue
        choice = _first_choice(scope, item)
        if choice is not None:
            return _value(scope, _replace(node, choice, choice.test, choice.body, choice.orelse))
        indices.append(_inside(_indirect(scope, node, item), scope.tensors[name].shape[len(indices)]))
    return Typed(Load(Access(name, tuple(indices)), scope.tensors[name].dtype))


def _indirect(scope: Scope, node: ast.Subscript, item: ast.expr) -> Expr:
    x = value_of(scope, item)
    if not any(isinstance(e, Load | Scalar) for e in walk(x.expr)):
        raise scope.src.refuse(node, f"{quote(node)}: the subscript {_why(scope, item)}: subscripts must be affine in loop variables and dims")
    if not x.dtype.is_integer:
        raise scope.src.refuse(node, f"{quote(node)}: the subscript {quote(item)} is {x.dtype}: use an integer, as in int({ast.unparse(item)})")
    return x.expr


def _inside(x: Expr, size: Affine) -> Expr:
    """An index as Python reads it, a negative one from the end; one that lies outside is that of the nearest element."""
    if x.dtype.name == "u64":
        x = Binary("min", x, Const(2**63 - 1, x.dtype))
    wide = rules.coerce(x, i64)
    if x.dtype.kind == "i":
        wide = Binary("+", wide, Binary("&", Binary(">>", wide, Const(63, i64)), _size(size)))
    inside = Binary("min", wide, _size(size - 1))
    return Binary("max", inside, Const(0, i64)) if x.dtype.kind == "i" or not size.is_const else inside


def _size(x: Affine) -> Expr:
    return Const(int(x), i64) if x.is_const else IndexValue(x, i64)


def affine_access(scope: Scope, node: ast.Subscript) -> Access:
    """The access of an assignment's target: all subscripts must be affine."""
    name, items = tensor_of(scope, node)
    out: list[Affine] = []
    for item in items:
        try:
            out.append(affine_of(scope, item))
        except NonAffine as e:
            raise scope.src.refuse(
                node, f"{quote(node)} is written through a subscript that is not affine: {e.reason}; write to an affine place, or turn the loop "
                "around so that the indirect subscript is read"
            ) from None  # fmt: skip
    return Access(name, tuple(out))


def _why(scope: Scope, item: ast.expr) -> str:
    try:
        affine_of(scope, item)
    except NonAffine as e:
        return e.reason
    return quote(item)


def _first_choice(scope: Scope, item: ast.expr) -> Any:
    """The first min, max, abs or conditional of affine terms inside a subscript, as the conditional expression it stands for."""
    for n in ast.walk(item):
        made: ast.IfExp | None = None
        if isinstance(n, ast.IfExp):
            made = ast.IfExp(n.test, n.body, n.orelse)
        elif isinstance(n, ast.Call) and callee(scope.src, n.func) in ("min", "max") and len(n.args) > 1 and not n.keywords:
            if all(try_affine(scope, a) is not None for a in n.args[:2]):
                rest = n.args[2:]
                op = ast.LtE() if callee(scope.src, n.func) == "min" else ast.GtE()
                again = [ast.Call(n.func, [x, *rest], []) if rest else x for x in n.args[:2]]
                made = ast.IfExp(ast.Compare(n.args[0], [op], [n.args[1]]), again[0], again[1])
        elif isinstance(n, ast.Call) and callee(scope.src, n.func) == "abs" and len(n.args) == 1 and try_affine(scope, n.args[0]) is not None:
            zero = ast.Constant(0)
            made = ast.IfExp(ast.Compare(n.args[0], [ast.GtE()], [zero]), n.args[0], ast.UnaryOp(ast.USub(), n.args[0]))
        if made is not None:
            made.old = n  # type: ignore[attr-defined]
            return made
    return None


def _replace(node: ast.Subscript, choice: Any, test: ast.expr, yes: ast.expr, no: ast.expr) -> ast.expr:
    """`test ? node with yes : node with no`; subtrees are shared, because locals are known by the identity of their nodes."""
    both = [_rebuilt(node, choice.old, x) for x in (yes, no)]
    out = ast.IfExp(test, both[0], both[1])
    for n in ast.walk(out):
        if isinstance(n, ast.expr) and not hasattr(n, "lineno"):
            ast.copy_location(n, node)
    return out


def _rebuilt(node: ast.AST, old: ast.AST, new: ast.AST) -> Any:
    if node is old:
        return new
    changed: dict[str, Any] = {}
    for name, child in ast.iter_fields(node):
        if isinstance(child, list):
            items = [_rebuilt(c, old, new) if isinstance(c, ast.AST) else c for c in child]
            if any(a is not b for a, b in zip(items, child)):
                changed[name] = items
        elif isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
            made = _rebuilt(child, old, new)
            if made is not child:
                changed[name] = made
    if not changed:
        return node
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **changed}), node)
