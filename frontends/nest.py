"""The body of a function as a tree of loops and raw statements. Takes the syntax tree in a `Scope` whose arguments are known; gives
blocks of `Loop`s and `Raw` statements, without isl: constraints are isl text. Raises `NotAffine` for what is no static control part.

Affine conditions become constraints of the statements below. A condition that depends on data becomes a Select of the new and the old
value of the cell (for an update: of the term and the operator's neutral element, which is exact). It is evaluated once, before its
branches, into a local bool where a branch writes what it reads. Locals become zero-dim tensors, one a web; a local that is set
once, to an affine term or a small expression of constants and scalar arguments, is only another name for it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Union

from polyopt.ir.affine import var
from polyopt.ir.dtype import DType, bool_
from polyopt.ir.expr import Access, Binary, Call, Const, Expr, IndexValue, Load, Scalar, Unary, walk
from polyopt.ir.tensor import Tensor

from . import typing_rules as rules
from .affine_terms import affine_of, bounds_of, condition_text, piecewise_text
from .pysource import PySource, quote
from .scope import NonAffine, Scope, Typed, UntypedYet
from .values import affine_access, condition_of, operator_of, split_subscript, value_of

ALIAS_NODES = 12


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
    condition on data; `keeps` whether the old value must be kept where the guard is false; `undefined_ok`: the old value may be undefined."""

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
class _Walk:
    """Where the translation stands. `asserts` are facts about the dims, as isl text."""

    scope: Scope
    final: bool
    constraints: list[str] = field(default_factory=list)
    guards: list[tuple[Expr, int]] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    conditions: int = 0
    pending: UntypedYet | None = None
    changed: bool = False


def translate_body(scope: Scope, body: list[ast.stmt]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The blocks of a body and the asserted facts. Dtypes of locals are inferred by repeating the translation until they are stable."""
    tensors = dict(scope.tensors)
    while True:
        scope.tensors = dict(tensors)
        walk_ = _Walk(scope, final=False)
        _block(walk_, body)
        if not walk_.changed:
            break
    if walk_.pending is not None:
        name = walk_.pending.node
        raise scope.src.refuse(name, f"{quote(name)} is read before it is assigned")
    scope.tensors = dict(tensors)
    walk_ = _Walk(scope, final=True)
    return _block(walk_, body), tuple(walk_.asserts)


def _block(w: _Walk, body: list[ast.stmt]) -> tuple[Node, ...]:
    out: list[Node] = []
    for s in body:
        try:
            out.extend(_statement(w, s, body))
        except UntypedYet as e:
            w.pending = e
    return tuple(out)


def _statement(w: _Walk, s: ast.stmt, block: list[ast.stmt]) -> list[Node]:
    if isinstance(s, ast.For):
        return [_for(w, s)]
    if isinstance(s, ast.If):
        return _if(w, s)
    if isinstance(s, ast.Assign):
        return _assign(w, s, block)
    if isinstance(s, ast.AnnAssign):
        return _annotated(w, s)
    if isinstance(s, ast.AugAssign):
        return _augmented(w, s)
    if isinstance(s, ast.Assert):
        return _assert(w, s)
    if isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)):
        return []
    raise w.scope.src.refuse(s, _refusal(s))


def _refusal(s: ast.stmt) -> str:
    first = ast.unparse(s).splitlines()[0]
    reasons: dict[type[ast.stmt], str] = {
        ast.While: "a while loop has no static trip count: write `for i in range(...)` with affine bounds",
        ast.Break: "break makes the trip count depend on data: guard the statements with an `if` instead",
        ast.Continue: "continue is not supported: put the rest of the body under an `if`",
        ast.Return: "a loop nest returns nothing: write the result into an argument",
        ast.Expr: "an expression alone has no effect: assign it to a tensor element",
        ast.FunctionDef: "a function inside a loop nest is not supported: write its body in place",
        ast.With: "a with block is not supported: keep only the loops",
        ast.Try: "exceptions are not supported: keep only the loops",
        ast.Delete: "del is not supported", ast.Global: "global is not supported: make it an argument",
        ast.Nonlocal: "nonlocal is not supported: make it an argument",
        ast.Import: "import outside the function", ast.ImportFrom: "import outside the function",
    }  # fmt: skip
    return f"`{first}`: {reasons.get(type(s), 'this statement is not supported in a loop nest')}"


# ---- loops
def _for(w: _Walk, s: ast.For) -> Loop:
    scope, src = w.scope, w.scope.src
    if s.orelse:
        raise src.refuse(s, "for … else is not supported: put the else part after the loop")
    if not isinstance(s.target, ast.Name):
        raise src.refuse(s, f"{quote(s.target)}: a loop has one variable")
    name = s.target.id
    if name in scope.iters or name in scope.tensors or name in scope.arguments or name in scope.params or w.scope.webs.get(s.target):
        raise src.refuse(s, f"the loop variable `{name}` is already a loop around it, an argument, a dim or a local: choose another name")
    constraints, descending = _range(w, name, s.iter)
    scope.iters.append(name)
    w.constraints.extend(constraints)
    body = _block(w, s.body)
    del w.constraints[len(w.constraints) - len(constraints) :]
    scope.iters.pop()
    return Loop(name, constraints, descending, body)


def _range(w: _Walk, name: str, it: ast.expr) -> tuple[tuple[str, ...], bool]:
    scope, src = w.scope, w.scope.src
    if isinstance(it, ast.Call) and scope.meaning(it.func) is reversed and len(it.args) == 1:
        constraints, descending = _range(w, name, it.args[0])
        return constraints, not descending
    if not isinstance(it, ast.Call) or scope.meaning(it.func) is not range or it.keywords or not 1 <= len(it.args) <= 3:
        raise src.refuse(it, f"`for {name} in {ast.unparse(it)}`: loop over range(stop), range(start, stop) or range(start, stop, step)")
    start = it.args[0] if len(it.args) > 1 else ast.copy_location(ast.Constant(0), it)
    stop = it.args[1] if len(it.args) > 1 else it.args[0]
    step = 1
    if len(it.args) == 3:
        try:
            value = affine_of(scope, it.args[2])
        except NonAffine as e:
            raise src.refuse(it, f"the step {quote(it.args[2])} must be a constant: {e.reason}") from None
        if not value.is_const or int(value) == 0:
            raise src.refuse(it, f"the step {quote(it.args[2])} must be a constant other than zero")
        step = int(value)
    try:
        first = bounds_of(scope, start, "max" if step > 0 else "min")
        last = bounds_of(scope, stop, "min" if step > 0 else "max")
        base = first[0] if len(first) == 1 else piecewise_text(scope, start)
    except NonAffine as e:
        raise src.refuse(e.node, f"the bound of the loop {name} is not affine: {e.reason}; bounds may use loop variables, dims, constants, "
                         "min, max, and // and % by constants") from None  # fmt: skip
    sign = (">=", "<") if step > 0 else ("<=", ">")
    out = [*(f"{name} {sign[0]} {b}" for b in first), *(f"{name} {sign[1]} {b}" for b in last)]
    if abs(step) > 1:
        out.append(f"({name} - ({base})) mod {abs(step)} = 0")
    return tuple(out), step < 0


# ---- conditions
def _if(w: _Walk, s: ast.If) -> list[Node]:
    merged = _merged(s)
    if merged is not None and not _is_affine(w, s.test):
        return _statement(w, merged, [merged])
    if _is_affine(w, s.test):
        yes = _under(w, (condition_text(w.scope, s.test),), None, s.body)
        return [*yes, *_under(w, (condition_text(w.scope, s.test, True),), None, s.orelse)] if s.orelse else yes
    test, facts = s.test, []
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and not s.orelse:
        facts = [condition_text(w.scope, v) for v in test.values if _is_affine(w, v)]
        rest = [v for v in test.values if not _is_affine(w, v)]
        test = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(ast.And(), rest), test)
    single = len(s.body) == 1 and isinstance(s.body[0], ast.Assign | ast.AugAssign) and not s.orelse
    read = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    written = {n for part in (*s.body, *s.orelse) for n in _written(part)}
    w.constraints.extend(facts)
    cond = condition_of(w.scope, test)
    out: list[Node] = []
    if read & written and not single:
        out.append(_remember(w, s, cond))
        assert isinstance(out[0], Raw)
        cond = Load(out[0].write, bool_)
    out += _under(w, (), cond, s.body)
    if s.orelse:
        out += _under(w, (), Unary("not", cond), s.orelse)
    del w.constraints[len(w.constraints) - len(facts) :]
    return out


def _is_affine(w: _Walk, test: ast.expr) -> bool:
    try:
        condition_text(w.scope, test)
    except NonAffine:
        return False
    return True


def _under(w: _Walk, constraints: tuple[str, ...], guard: Expr | None, body: list[ast.stmt]) -> tuple[Node, ...]:
    w.constraints.extend(constraints)
    if guard is not None:
        w.guards.append((guard, id(body)))
    out = _block(w, body)
    if guard is not None:
        w.guards.pop()
    del w.constraints[len(w.constraints) - len(constraints) :]
    return out


def _remember(w: _Walk, s: ast.If, cond: Expr) -> Raw:
    """Evaluate a condition into a local bool before its branches."""
    name = _fresh(w.scope, f"cond{w.conditions}")
    w.conditions += 1
    w.scope.tensors[name] = Tensor(name, bool_, ())
    return _raw(w, s, Access(name, ()), Typed(cond), bool_)


def _fresh(scope: Scope, name: str) -> str:
    taken = {*scope.src.bound, *scope.tensors, *scope.params, *(web.name for web in scope.webs.of.values())}
    while name in taken:
        name += "_"
    return name


def _written(s: ast.stmt) -> set[str]:
    out: set[str] = set()
    for n in ast.walk(s):
        for t in n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign | ast.AnnAssign | ast.For) else []:
            for leaf in t.elts if isinstance(t, ast.Tuple) else [t]:
                base = split_subscript(leaf)[0] if isinstance(leaf, ast.Subscript) else leaf
                if isinstance(base, ast.Name):
                    out.add(base.id)
    return out


def _merged(s: ast.If) -> ast.Assign | None:
    """`if c: x = a else: x = b` as `x = a if c else b`."""
    def only(body: list[ast.stmt]) -> ast.Assign | None:
        if len(body) != 1:
            return None
        if isinstance(body[0], ast.If):
            return _merged(body[0])
        one = body[0]
        return one if isinstance(one, ast.Assign) and len(one.targets) == 1 else None

    yes, no = only(s.body), only(s.orelse)
    if yes is None or no is None or ast.dump(yes.targets[0]) != ast.dump(no.targets[0]) or isinstance(yes.targets[0], ast.Tuple):
        return None
    value = ast.copy_location(ast.IfExp(s.test, yes.value, no.value), s)
    return ast.copy_location(ast.Assign([yes.targets[0]], value), s)


def _assert(w: _Walk, s: ast.Assert) -> list[Node]:
    scope = w.scope
    if scope.iters or w.guards or w.constraints:
        raise scope.src.refuse(s, f"`assert {ast.unparse(s.test)}`: facts about dims stand at the top of the function, outside loops and ifs")
    try:
        w.asserts.append(condition_text(scope, s.test))
    except NonAffine as e:
        raise scope.src.refuse(s, f"`assert {ast.unparse(s.test)}`: facts must be affine in the dims: {e.reason}") from None
    return []


# ---- assignments
def _assign(w: _Walk, s: ast.Assign, block: list[ast.stmt]) -> list[Node]:
    scope = w.scope
    if len(s.targets) > 1:
        if any(isinstance(t, ast.Tuple) for t in s.targets):
            raise scope.src.refuse(s, f"{quote(s)}: assign one name at a time")
        bases = {n for t in s.targets for n in _written(ast.Assign([t], s.value))}
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


def _tuple(w: _Walk, s: ast.Assign, target: ast.Tuple | ast.List) -> list[Node]:
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
        done |= _written(ast.Assign([t], v))
    return out


def _annotated(w: _Walk, s: ast.AnnAssign) -> list[Node]:
    dtype = w.scope.meaning(s.annotation)
    if not isinstance(s.target, ast.Name) or s.value is None or not isinstance(dtype, DType):
        raise w.scope.src.refuse(s, f"{quote(s)}: a typed local is written `name: f32 = value`")
    web = w.scope.webs.get(s.target)
    assert web is not None
    value = rules.cast(value_of(w.scope, s.value), dtype)
    _learn(w, web.name, Typed(Const(0, dtype)))
    return [_raw(w, s, Access(web.name, ()), value, w.scope.types[web.name].dtype)]


def _store(w: _Walk, s: ast.stmt, target: ast.expr, node: ast.expr) -> list[Node]:
    scope = w.scope
    if isinstance(target, ast.Subscript):
        access = affine_access(scope, target)
        value = value_of(scope, node)
        return [_raw(w, s, access, value, scope.tensors[access.tensor].dtype)]
    if not isinstance(target, ast.Name):
        raise scope.src.refuse(s, f"{quote(target)} cannot be assigned: write to a tensor element or a local")
    web = scope.webs.get(target)
    if web is None:
        raise scope.src.refuse(s, f"`{target.id}` cannot be assigned: it is an argument, a tensor or a loop variable; give it its subscripts")
    value = value_of(scope, node)
    if web.plain is s and web.dominates and _is_alias(value.expr):
        scope.aliases[web.name] = value
        return []
    _learn(w, web.name, value)
    return [_raw(w, s, Access(web.name, ()), value, scope.types[web.name].dtype)]


def _is_alias(e: Expr) -> bool:
    nodes = list(walk(e))
    if len(nodes) == 1:
        return isinstance(e, IndexValue | Const | Scalar)
    return len(nodes) <= ALIAS_NODES and not any(isinstance(n, Load | Call) for n in nodes)


def _learn(w: _Walk, name: str, value: Typed) -> None:
    """Widen the type of a local by the type of a value assigned to it."""
    old = w.scope.types.get(name)
    if old is None:
        new = Typed(Const(0, value.dtype), value.weak)
    else:
        dtype, weak = rules.common_dtype((old, value)) if old.dtype != value.dtype or old.weak != value.weak else (old.dtype, old.weak)
        new = Typed(Const(0, dtype), weak)
    if new != old:
        w.scope.types[name] = new
        w.changed = True


def _augmented(w: _Walk, s: ast.AugAssign) -> list[Node]:
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
        _learn(w, access.tensor, value)
        dtype = scope.types[access.tensor].dtype
    return [_raw(w, s, access, value, dtype)]


def _raw(w: _Walk, s: ast.stmt, write: Access, value: Typed, dtype: DType) -> Raw:
    update, operand = _as_update(write, value.expr) if value.dtype == dtype else (None, value.expr)
    guard: Expr | None = None
    for g, _ in w.guards:
        guard = g if guard is None else Binary("and", guard, g)
    keeps = True
    if w.guards and isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
        web = w.scope.webs.get(s.targets[0])
        keeps = web is None or not w.scope.webs.private_to(web, w.guards[-1][1])
    expr = rules.coerce(operand, dtype)
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


def _declare(w: _Walk, s: ast.Assign, target: ast.Name, call: ast.Call, filled: bool) -> list[Node]:
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
        names.append(_fresh(scope, f"d{k}"))
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

