"""The body of a function as a tree of loops and raw statements. Takes the syntax tree in a `Scope` whose arguments are known; gives
blocks of `Loop`s and `Raw` statements, without isl: constraints are isl text. Raises `NotAffine` for what is no static control part.

Affine conditions become constraints of the statements below. A condition that depends on data becomes a Select of the new and the old
value of the cell (for an update: of the term and the operator's neutral element, which is exact). It is evaluated once, before its
branches, into a local bool where a branch writes what it reads. Locals become zero-dim tensors, one a web; a local that is set
once, to an affine term or a small expression of constants and scalar arguments, is only another name for it.
"""

from __future__ import annotations

import ast

from polyopt.ir.dtype import bool_
from polyopt.ir.expr import Access, Expr, Load, Unary
from polyopt.ir.tensor import Tensor

from .affine_terms import affine_of, bounds_of, condition_text, piecewise_text
from .assignments import annotated, assign, augmented, raw
from .pysource import quote
from .scope import NonAffine, Scope, Typed, UntypedYet
from .tree import Loop, Node, Raw, Walk, fresh, written
from .values import condition_of


def translate_body(scope: Scope, body: list[ast.stmt]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The blocks of a body and the asserted facts. Dtypes of locals are inferred by repeating the translation until they are stable."""
    tensors = dict(scope.tensors)
    while True:
        scope.tensors = dict(tensors)
        w = Walk(scope)
        blocks = _block(w, body)
        if not w.changed:
            break
    if w.pending is not None:
        raise scope.src.refuse(w.pending.node, f"{quote(w.pending.node)} is read before it is assigned")
    return blocks, tuple(w.asserts)


def _block(w: Walk, body: list[ast.stmt]) -> tuple[Node, ...]:
    out: list[Node] = []
    for s in body:
        try:
            out.extend(_statement(w, s))
        except UntypedYet as e:
            w.pending = w.pending or e
    return tuple(out)


def _statement(w: Walk, s: ast.stmt) -> list[Node]:
    if isinstance(s, ast.For):
        return [_for(w, s)]
    if isinstance(s, ast.If):
        return _if(w, s)
    if isinstance(s, ast.Assign):
        return assign(w, s)
    if isinstance(s, ast.AnnAssign):
        return annotated(w, s)
    if isinstance(s, ast.AugAssign):
        return augmented(w, s)
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
def _for(w: Walk, s: ast.For) -> Loop:
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


def _range(w: Walk, name: str, it: ast.expr) -> tuple[tuple[str, ...], bool]:
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
def _if(w: Walk, s: ast.If) -> list[Node]:
    merged = _merged(s)
    if merged is not None and not _is_affine(w, s.test):
        return _statement(w, merged)
    if _is_affine(w, s.test):
        yes = _under(w, (condition_text(w.scope, s.test),), None, s.body)
        return [*yes, *_under(w, (condition_text(w.scope, s.test, True),), None, s.orelse)]
    test, facts = s.test, []
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and not s.orelse:
        facts = [condition_text(w.scope, v) for v in test.values if _is_affine(w, v)]
        rest = [v for v in test.values if not _is_affine(w, v)]
        test = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(ast.And(), rest), test)
    single = len(s.body) == 1 and isinstance(s.body[0], ast.Assign | ast.AugAssign) and not s.orelse
    read = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    changes = {n for part in (*s.body, *s.orelse) for n in written(part)}
    cond = condition_of(w.scope, test)
    w.constraints.extend(facts)
    out: list[Node] = []
    if read & changes and not single:
        kept = _remember(w, s, cond)
        out.append(kept)
        cond = Load(kept.write, bool_)
    out += _under(w, (), cond, s.body)
    if s.orelse:
        out += _under(w, (), Unary("not", cond), s.orelse)
    del w.constraints[len(w.constraints) - len(facts) :]
    return out


def _is_affine(w: Walk, test: ast.expr) -> bool:
    try:
        condition_text(w.scope, test)
    except NonAffine:
        return False
    return True


def _under(w: Walk, constraints: tuple[str, ...], guard: Expr | None, body: list[ast.stmt]) -> tuple[Node, ...]:
    w.constraints.extend(constraints)
    if guard is not None:
        w.guards.append((guard, id(body)))
    out = _block(w, body)
    if guard is not None:
        w.guards.pop()
    del w.constraints[len(w.constraints) - len(constraints) :]
    return out


def _remember(w: Walk, s: ast.If, cond: Expr) -> Raw:
    """Evaluate a condition into a local bool before its branches."""
    name = fresh(w.scope, f"cond{w.conditions}")
    w.conditions += 1
    w.scope.tensors[name] = Tensor(name, bool_, ())
    return raw(w, s, Access(name, ()), Typed(cond), bool_)


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


def _assert(w: Walk, s: ast.Assert) -> list[Node]:
    scope = w.scope
    if scope.iters or w.guards or w.constraints:
        raise scope.src.refuse(s, f"`assert {ast.unparse(s.test)}`: facts about dims stand at the top of the function, outside loops and ifs")
    try:
        w.asserts.append(condition_text(scope, s.test))
    except NonAffine as e:
        raise scope.src.refuse(s, f"`assert {ast.unparse(s.test)}`: facts must be affine in the dims: {e.reason}") from None
    return []
