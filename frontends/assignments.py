"""Assignments of a loop nest as raw statements. Takes assignment nodes and where the translation stands; gives `Raw` statements,
learns the dtypes of locals and which locals are only names for an expression; raises `NotAffine` for targets that cannot be written.

`x = x op e` and `x op= e` become updates, with x - e as x + (-e), which is exact. Whether an update is an associative reduction is
decided later, where isl can tell which cells its operand reads.
"""

from __future__ import annotations

import ast
from typing import Any

from polyopt.ir.affine import var
from polyopt.ir.dtype import DType, bool_
from polyopt.ir.expr import Access, Binary, Call, Const, Expr, IndexValue, Load, Scalar, walk
from polyopt.ir.tensor import Tensor

from . import typing_rules as rules
from .affine_terms import affine_of
from .pysource import PySource, quote
from .scope import NonAffine, Typed, UntypedYet
from .tree import Loop, Node, Raw, Walk, fresh, written
from .values import affine_access, operator_of, split_subscript, value_of

ALIAS_NODES = 12


def assign(w: Walk, s: ast.Assign) -> list[Node]:
    """`x = value`, also with several targets, or the declaration of a local array."""
    scope = w.scope
    if len(s.targets) > 1:
        if any(isinstance(t, ast.Tuple) for t in s.targets):
            raise scope.src.refuse(s, f"{quote(s)}: assign one name at a time")
        bases = {n for t in s.targets for n in written(ast.Assign([t], s.value))}
        if bases & {n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)}:
            raise scope.src.refuse(s, f"{quote(s)}: the value reads what is assigned: assign one name at a time")
        return [n for t in s.targets for n in _store(w, s, t, s.value)]
    target = s.targets[0]
    if isinstance(target, ast.Tuple | ast.List):
        return _tuple(w, s, target)
    if isinstance(target, ast.Name) and isinstance(s.value, ast.Call):
        made = scope.meaning(s.value.func)
        if made is local or made is zeros:
            return _declare(w, s, target, s.value, made is zeros)
    return _store(w, s, target, s.value)


def _tuple(w: Walk, s: ast.Assign, target: ast.Tuple | ast.List) -> list[Node]:
    values = s.value.elts if isinstance(s.value, ast.Tuple | ast.List) else []
    if len(values) != len(target.elts):
        raise w.scope.src.refuse(s, f"{quote(s)}: give as many values as targets, or assign one name at a time")
    done: set[str] = set()
    out: list[Node] = []
    for t, v in zip(target.elts, values):
        inner = t.slice if isinstance(t, ast.Subscript) else ast.Constant(0)
        if done & {n.id for e in (v, inner) for n in ast.walk(e) if isinstance(n, ast.Name)}:
            raise w.scope.src.refuse(s, f"{quote(s)}: {quote(v)} reads what is assigned before it: keep it in a local first")
        out += _store(w, s, t, v)
        done |= written(ast.Assign([t], v))
    return out


def annotated(w: Walk, s: ast.AnnAssign) -> list[Node]:
    """`x: f64 = value`: a local of a stated dtype."""
    dtype = w.scope.meaning(s.annotation)
    if not isinstance(s.target, ast.Name) or s.value is None or not isinstance(dtype, DType):
        raise w.scope.src.refuse(s, f"{quote(s)}: a typed local is written `name: f32 = value`")
    web = w.scope.webs.get(s.target)
    assert web is not None
    value = rules.cast(value_of(w.scope, s.value), dtype)
    _learn(w, s, web.name, Typed(Const(0, dtype)))
    return [raw(w, s, Access(web.name, ()), value, w.scope.types[web.name].dtype)]


def _store(w: Walk, s: ast.stmt, target: ast.expr, node: ast.expr) -> list[Node]:
    scope = w.scope
    if isinstance(target, ast.Subscript):
        access = affine_access(scope, target)
        value = value_of(scope, node)
        return [raw(w, s, access, value, scope.tensors[access.tensor].dtype)]
    if not isinstance(target, ast.Name):
        raise scope.src.refuse(s, f"{quote(target)} cannot be assigned: write to a tensor element or a local")
    web = scope.webs.get(target)
    if web is None:
        raise scope.src.refuse(s, f"`{target.id}` cannot be assigned: it is an argument, a tensor or a loop variable; give it its subscripts")
    value = value_of(scope, node)
    if web.plain is s and web.dominates and _is_alias(value.expr):
        scope.aliases[web.name] = value
        return []
    _learn(w, s, web.name, value)
    return [raw(w, s, Access(web.name, ()), value, scope.types[web.name].dtype)]


def _is_alias(e: Expr) -> bool:
    nodes = list(walk(e))
    if len(nodes) == 1:
        return isinstance(e, IndexValue | Const | Scalar)
    costly = any(isinstance(n, Load | Call) or (isinstance(n, Binary) and n.op == "pow") for n in nodes)
    return len(nodes) <= ALIAS_NODES and not costly


def _learn(w: Walk, s: ast.stmt, name: str, value: Typed) -> None:
    """Widen the type of a local by the type of a value assigned to it."""
    old = w.scope.types.get(name)
    new = Typed(Const(0, value.dtype), value.weak)
    if old is not None and (old.dtype, old.weak) != (value.dtype, value.weak):
        try:
            dtype, weak = rules.common_dtype((old, value))
        except rules.TypeRule as e:
            raise w.scope.src.refuse(s, f"{quote(s)}: the local has values of several types: {e}") from None
        new = Typed(Const(0, dtype), weak)
    if new != old:
        w.scope.types[name] = new
        w.changed = True


def augmented(w: Walk, s: ast.AugAssign) -> list[Node]:
    """`x op= value`."""
    scope = w.scope
    op = operator_of(s.op)
    if op is None:
        raise scope.src.refuse(s, f"{quote(s)}: @= works on whole arrays: write the loops")
    if isinstance(s.target, ast.Subscript):
        access = affine_access(scope, s.target)
        dtype, weak = scope.tensors[access.tensor].dtype, False
    else:
        web = scope.web(s.target)
        if web is None:
            raise scope.src.refuse(s, f"`{quote(s.target)[1:-1]}` cannot be assigned: it is an argument, a tensor or a loop variable")
        access = Access(web.name, ())
        if web.name not in scope.types:
            assert isinstance(s.target, ast.Name)
            raise UntypedYet(s.target)
        dtype, weak = scope.types[web.name].dtype, scope.types[web.name].weak
    try:
        value = rules.binary(op, Typed(Load(access, dtype), weak), value_of(scope, s.value))
    except rules.TypeRule as e:
        raise scope.src.refuse(s, f"{quote(s)}: {e}") from None
    if isinstance(s.target, ast.Name):
        _learn(w, s, access.tensor, value)
        dtype = scope.types[access.tensor].dtype
    return [raw(w, s, access, value, dtype)]


def raw(w: Walk, s: ast.stmt, write: Access, value: Typed, dtype: DType) -> Raw:
    """The raw statement `write = value` (or an update) where the walk stands, under the guards on data around it."""
    update, operand = _as_update(write, value.expr) if value.dtype == dtype else (None, value.expr)
    guard: Expr | None = None
    for g, _ in w.guards:
        guard = g if guard is None else Binary("and", guard, g)
    keeps = True
    if w.guards and isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
        web = w.scope.webs.get(s.targets[0])
        keeps = web is None or not w.scope.webs.private_to(web, w.guards[-1][1])
    try:
        expr = rules.coerce(operand, dtype)
    except rules.TypeRule as e:
        raise w.scope.src.refuse(s, f"`{ast.unparse(s).splitlines()[0]}`: {e}") from None
    return Raw(tuple(w.scope.iters), tuple(w.constraints), write, dtype, expr, s, update, guard, keeps)


def _as_update(write: Access, e: Expr) -> tuple[str | None, Expr]:
    """`x op e` with x the written cell as (op, e); x - e is x + (-e), which is exact."""
    if not isinstance(e, Binary) or e.op not in ("+", "-", "*", "min", "max") or e.dtype == bool_:
        return None, e

    def own(x: Expr) -> bool:
        return isinstance(x, Load) and x.access == write

    if own(e.x):
        return ("+", rules.negated(e.y)) if e.op == "-" else (e.op, e.y)
    if own(e.y) and e.op != "-":
        return e.op, e.x
    return None, e


# ---- local arrays
def local(type: Any) -> Any:
    """`t = local(f32[M, N])` in a loop nest: an uninitialised local array."""
    raise TypeError("local() has a meaning only inside a function decorated with @scop")


def zeros(type: Any) -> Any:
    """`t = zeros(f32[M, N])` in a loop nest: a local array of zeros."""
    raise TypeError("zeros() has a meaning only inside a function decorated with @scop")


def _declare(w: Walk, s: ast.Assign, target: ast.Name, call: ast.Call, filled: bool) -> list[Node]:
    scope = w.scope
    if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], ast.Subscript):
        raise scope.src.refuse(s, f"{quote(call)}: give the type, as in {ast.unparse(call.func)}(f32[M, N])")
    dtype = scope.meaning(call.args[0].value)
    if not isinstance(dtype, DType):
        raise scope.src.refuse(s, f"{quote(call)}: `{ast.unparse(call.args[0].value)}` is not a dtype")
    if target.id in scope.tensors:
        raise scope.src.refuse(s, f"{quote(s)}: `{target.id}` is already a tensor: choose another name")
    if scope.iters or w.constraints or w.guards:
        raise scope.src.refuse(s, f"{quote(s)}: declare local arrays at the top of the function, outside loops and ifs")
    _, items = split_subscript(call.args[0])
    try:
        shape = tuple(affine_of(scope, x) for x in items)
    except NonAffine as e:
        raise scope.src.refuse(s, f"{quote(call)}: {e.reason}") from None
    scope.tensors[target.id] = Tensor(target.id, dtype, shape)
    if not filled:
        return []
    names = []
    for k in range(len(shape)):
        names.append(fresh(scope, f"d{k}"))
    bounds = [(f"{n} >= 0", f"{n} < {x}") for n, x in zip(names, shape)]
    zero = Const(0.0 if dtype.is_float else False if dtype == bool_ else 0, dtype)
    write = Access(target.id, tuple(var(n) for n in names))
    node: Node = Raw(tuple(names), tuple(c for b in bounds for c in b), write, dtype, zero, s)
    for n, b in reversed(list(zip(names, bounds))):
        node = Loop(n, b, False, (node,))
    return [node]


def declared(src: PySource, body: list[ast.stmt]) -> frozenset[str]:
    """The names that a body declares as local arrays."""
    out = set()
    for s in body:
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and isinstance(s.targets[0], ast.Name):
            if src.resolve(s.value.func) in (local, zeros):
                out.add(s.targets[0].id)
    return frozenset(out)
