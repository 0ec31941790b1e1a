"""Scop → LoopNest: the last place where isl is seen.

Takes a scheduled Scop; isl generates the AST; its loops, guards and user nodes are read off as polyopt's own values. Loops are shifted to
start at 0, so that an index such as 32·ti + i - 32·floor(i/32) simplifies by interval arithmetic to i. Register buffers get a `Declare` in the
innermost body that holds all their uses. Assumes one-member bands named by dim ids, with an intent mark right above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import islpy as isl

from ..errors import InternalError, ScheduleError
from ..ir.affine import Affine, Range, affine, var
from ..ir.dtype import i64
from ..ir.expr import Binary, Compare, Expr, IndexValue, Load, substitute, substitute_access
from ..ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode
from ..ir.scop import Scop, Statement
from ..isl_ext import CTX, PARAM, SET, OperationBudget, max_operations, node_type, sets_of
from .peel import peel_partial_tiles, simplify_access, simplify_expr, tightest
from .prefetch import place_prefetches

# islpy's stubs type these enums as ints on one side only
AST: Any = isl.ast_node_type
EXPR: Any = isl.ast_expr_type
OP: Any = isl.ast_expr_op_type
LOOP: Any = isl.ast_loop_type
BUDGET = 20_000_000


@dataclass
class _Reader:
    """State of one walk over isl's AST."""

    scop: Scop
    statements: Mapping[str, Statement]
    bands: list[tuple[str, str, int]]  # band number -> (loop name, mark, loops around it)
    taken: set[str] = field(default_factory=set)
    depths: dict[str, int] = field(default_factory=dict)  # loop variable -> loops of the schedule around it


@dataclass(frozen=True)
class _Env:
    """What is known at a point of the AST: isl iterator → expression, variable ranges, and the band that the next loop is."""

    values: Mapping[str, Affine]
    ranges: Mapping[str, Range]
    band: int = -1
    decided: Mapping[Expr, bool] = field(default_factory=dict)


class _Undecided(Exception):
    """A value that differs by a condition, which no guard around has decided yet."""

    def __init__(self, cond: Expr) -> None:
        super().__init__(str(cond))
        self.cond = cond


def lower_to_loops(scop: Scop) -> LoopNest:
    """The LoopNest of a scheduled Scop. Raises ScheduleError where isl needs more than its operation budget."""
    schedule, bands = _number_bands(scop.schedule, scop.meta.get("separate", ()))
    build = isl.AstBuild.from_context(scop.context)
    try:
        with max_operations(BUDGET):
            ast = build.node_from_schedule(schedule)
    except OperationBudget:
        raise ScheduleError(f"{scop.name}: isl's code generation exceeds its budget on this schedule; use fewer tile levels") from None
    ranges = param_ranges(scop)
    reader = _Reader(scop, {s.name: s for s in scop.statements}, bands)
    body = _read(reader, ast, _Env({}, dict(ranges)))
    locals_ = tuple(t for t in scop.tensors if t.role == "local")
    for t in locals_:
        if t.scope != "heap":
            body = place_declare(body, t.name, {v for v, d in reader.depths.items() if d < scop.meta.get("buffers", {}).get(t.name, 0)})
    body = place_prefetches(body, scop.meta.get("prefetch", ()))
    body = peel_partial_tiles(body, dict(ranges))
    arguments = tuple(t for t in scop.tensors if t.role != "local")
    return LoopNest(scop.name, scop.params, arguments + locals_, scop.scalars, body, tuple(ranges.items()))


def param_ranges(scop: Scop) -> dict[str, Range]:
    """The proven inclusive bounds of each parameter, from the context."""
    out: dict[str, Range] = {}
    for q in range(scop.context.dim(PARAM)):
        name = str(scop.context.get_dim_name(PARAM, q))
        one = scop.context.move_dims(SET, 0, PARAM, q, 1)
        out[name] = (_value(one.dim_min_val(0)), _value(one.dim_max_val(0)))
    return out


def _value(v: isl.Val) -> int | None:
    return int(v.to_python()) if v.is_int() else None


def _number_bands(schedule: isl.Schedule, separate: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[isl.Schedule, list[tuple[str, str, int]]]:
    """Put a mark `#<n>` above each one-member band; gives the names, intents and depths by number.

    separate: loops, by name and statements below, whose iterations that lack some statement are split off.
    """
    bands: list[tuple[str, str, int]] = []
    apart = set(separate)

    def visit(node: isl.ScheduleNode, mark: str) -> isl.ScheduleNode:
        kind = node_type(node)
        if kind == isl.schedule_node_type.mark:
            return visit(node.child(0), node.mark_get_id().get_name()).parent()
        if kind == isl.schedule_node_type.band:
            mupa = node.band_get_partial_schedule()
            if mupa.dim(SET) > 1:
                node = node.band_split(1)
                mupa = node.band_get_partial_schedule()
            named = mupa.get_space().has_dim_id(SET, 0)
            depth = node.get_schedule_depth()
            name = str(mupa.get_dim_id(SET, 0).get_name()) if named else f"c{depth}"
            bands.append((name, mark, depth))
            if apart and (name, tuple(sorted(s.get_tuple_name() for s in sets_of(node.get_domain())))) in apart:
                node = node.band_member_set_ast_loop_type(0, LOOP.separate)
            node = node.insert_mark(isl.Id(f"#{len(bands) - 1}", context=CTX)).child(0)
            return visit(node.child(0), "").parent().parent()
        for i in range(node.n_children()):
            node = visit(node.child(i), "").parent()
        return node

    return visit(schedule.get_root(), "").get_schedule(), bands


# ---- isl's AST
def _read(r: _Reader, node: isl.AstNode, env: _Env) -> tuple[LoopNode, ...]:
    """The nodes of an AST; where a bound or coordinate differs by a condition, one version for each case."""
    try:
        return _node(r, node, env)
    except _Undecided as e:
        yes, no = (_read(r, node, replace(env, decided={**env.decided, e.cond: case})) for case in (True, False))
        return (If(e.cond, yes, no),)


def _node(r: _Reader, node: isl.AstNode, env: _Env) -> tuple[LoopNode, ...]:
    kind = node.get_type()
    if kind == AST.block:
        children = node.block_get_children()
        return tuple(x for i in range(children.n_ast_node()) for x in _read(r, children.get_at(i), env))
    if kind == AST.mark:
        name = node.mark_get_id().get_name()
        return _read(r, node.mark_get_node(), replace(env, band=int(name[1:])) if name.startswith("#") else env)
    if kind == AST.if_:
        cond = _bool(node.if_get_cond(), env)
        orelse = _read(r, node.if_get_else_node(), env) if node.if_has_else_node() else ()
        return (If(cond, _read(r, node.if_get_then_node(), env), orelse),)
    if kind == AST.user:
        return (_instance(r, node.user_get_expr(), env),)
    if kind == AST.for_:
        return _loop(r, node, env)
    raise InternalError(f"isl's AST has a node of type {kind}")


def _loop(r: _Reader, node: isl.AstNode, env: _Env) -> tuple[LoopNode, ...]:
    iterator = node.for_get_iterator().get_id().get_name()
    if node.for_is_degenerate():
        value = _affine(node.for_get_init(), env)
        return _read(r, node.for_get_body(), replace(env, values={**env.values, iterator: value}, band=-1))
    name, mark, depth = r.bands[env.band] if env.band >= 0 else (iterator, "", len(r.bands))
    lower = tuple(dict.fromkeys(_bounds(node.for_get_init(), env, OP.max)))
    upper = _upper(node.for_get_cond(), env)
    step = int(node.for_get_inc().get_val().to_python())
    v = _variable(r, name)
    r.depths[v] = depth
    if len(lower) == 1:  # shift to 0, so that the variable is a distance from the lower bound
        base, value = lower[0], var(v) * step + lower[0]
        upper = tuple((u - base + (step - 1)) // step for u in upper)
        lower, step = (affine(0),), 1
    else:
        value = var(v)
    upper = tuple(dict.fromkeys(u.simplify(env.ranges) for u in upper))
    upper = tightest(upper, env.ranges)
    lo = [x.bounds(env.ranges)[0] for x in lower]
    hi = [x.bounds(env.ranges)[1] for x in upper]
    known_lo, known_hi = [x for x in lo if x is not None], [x for x in hi if x is not None]
    rng = (max(known_lo) if known_lo else None, min(known_hi) - 1 if known_hi else None)
    inner = replace(env, values={**env.values, iterator: value}, ranges={**env.ranges, v: rng}, band=-1)
    body = _read(r, node.for_get_body(), inner)
    mark, _, lanes = mark.partition(":") if mark.startswith("vector") else (mark, "", "")
    return (Loop(v, lower, upper, body, step, mark, name, int(lanes or 0), rng),)


def _variable(r: _Reader, name: str) -> str:
    base = "".join(c if c.isalnum() else "_" for c in name)
    v, k = base, 1
    reserved = set(r.scop.params) | {t.name for t in r.scop.tensors}
    while v in r.taken or v in reserved:
        k += 1
        v = f"{base}_{k}"
    r.taken.add(v)
    return v


def _instance(r: _Reader, call: isl.AstExpr, env: _Env) -> Instance:
    name = call.get_op_arg(0).get_id().get_name()
    coords = tuple(_affine(call.get_op_arg(i), env).simplify(env.ranges) for i in range(1, call.get_op_n_arg()))
    s = r.statements[name]
    values = dict(zip(s.iters, coords))
    write = simplify_access(substitute_access(s.write, values), env.ranges)

    return Instance(name, coords, write, simplify_expr(substitute(s.expr, values), env.ranges), s.reduction)


# ---- isl's expressions
def _affine(e: isl.AstExpr, env: _Env) -> Affine:
    kind = e.get_type()
    if kind == EXPR.int:
        return affine(int(e.get_val().to_python()))
    if kind == EXPR.id:
        name = e.get_id().get_name()
        return env.values.get(name, var(name))
    op = e.get_op_type()
    if op in (OP.cond, OP.select):
        return _affine(e.get_op_arg(1 if _holds(_bool(e.get_op_arg(0), env), env) else 2), env)
    args = [_affine(e.get_op_arg(i), env) for i in range(e.get_op_n_arg())]
    if op in (OP.min, OP.max):
        return _extreme(args, op == OP.min, env)
    if op == OP.add:
        return args[0] + args[1]
    if op == OP.sub:
        return args[0] - args[1]
    if op == OP.mul:
        return args[0] * args[1]
    if op == OP.minus:
        return -args[0]
    if op in (OP.fdiv_q, OP.pdiv_q, OP.div):
        return (args[0] // int(args[1])).simplify(env.ranges)
    if op in (OP.pdiv_r, OP.zdiv_r):
        return (args[0] % int(args[1])).simplify(env.ranges)
    raise InternalError(f"isl's AST has the operator {op} in {e.to_C_str()}, where an affine expression is expected")


def _holds(cond: Expr, env: _Env) -> bool:
    """What the guards around say of a condition; raises _Undecided where they say nothing."""
    if cond not in env.decided:
        raise _Undecided(cond)
    return env.decided[cond]


def _extreme(args: list[Affine], least: bool, env: _Env) -> Affine:
    """The least or greatest of several values."""
    out = args[0]
    for x in args[1:]:
        lo, hi = (out - x).bounds(env.ranges)
        if hi is not None and hi <= 0:
            smaller = True
        elif lo is not None and lo >= 0:
            smaller = False
        else:
            smaller = _holds(Compare("<=", IndexValue(out, i64), IndexValue(x, i64)), env)
        out = out if smaller == least else x
    return out


def _bounds(e: isl.AstExpr, env: _Env, join: Any) -> list[Affine]:
    """The operands of nested max (or min) operators."""
    if e.get_type() == EXPR.op and e.get_op_type() == join:
        return [x for i in range(e.get_op_n_arg()) for x in _bounds(e.get_op_arg(i), env, join)]
    return [_affine(e, env).simplify(env.ranges)]


def _upper(cond: isl.AstExpr, env: _Env) -> tuple[Affine, ...]:
    op = cond.get_op_type()
    if op not in (OP.le, OP.lt):
        raise InternalError(f"isl's AST has the loop condition {cond.to_C_str()}")
    more = 1 if op == OP.le else 0
    return tuple(dict.fromkeys(x + more for x in _bounds(cond.get_op_arg(1), env, OP.min)))


_COMPARE = {OP.eq: "==", OP.le: "<=", OP.lt: "<", OP.ge: ">=", OP.gt: ">"}


def _bool(e: isl.AstExpr, env: _Env) -> Expr:
    op = e.get_op_type()
    if op in (OP.and_, OP.and_then, OP.or_, OP.or_else):
        word = "and" if op in (OP.and_, OP.and_then) else "or"
        out = _bool(e.get_op_arg(0), env)
        for i in range(1, e.get_op_n_arg()):
            out = Binary(word, out, _bool(e.get_op_arg(i), env))
        return out
    if op in _COMPARE:
        return _compare(_COMPARE[op], e.get_op_arg(0), e.get_op_arg(1), env)
    raise InternalError(f"isl's AST has the condition {e.to_C_str()}")


def _compare(op: str, x: isl.AstExpr, y: isl.AstExpr, env: _Env) -> Expr:
    """A comparison; min and max operands become conjunctions or disjunctions."""
    for side, other, flip in ((x, y, False), (y, x, True)):
        if side.get_type() == EXPR.op and side.get_op_type() in (OP.min, OP.max) and op != "==":
            is_min = side.get_op_type() == OP.min
            less = (op in ("<", "<=")) != flip  # side < other
            word = "or" if is_min == less else "and"
            parts = [side.get_op_arg(i) for i in range(side.get_op_n_arg())]
            out = None
            for p in parts:
                c = _compare(op, other, p, env) if flip else _compare(op, p, other, env)
                out = c if out is None else Binary(word, out, c)
            assert out is not None
            return out
    return Compare(op, IndexValue(_affine(x, env).simplify(env.ranges), i64), IndexValue(_affine(y, env).simplify(env.ranges), i64))


# ---- buffers of a tile
def place_declare(body: tuple[LoopNode, ...], tensor: str, around: set[str]) -> tuple[LoopNode, ...]:
    """Declare a buffer of a tile at the start of the innermost body that holds all its uses: parallel iterations around have their own.

    around: the variables of loops over tiles. Where isl has split such a loop, each part holds whole tiles and gets a declaration of its own.
    """
    users = [i for i, n in enumerate(body) if _uses(n, tensor)]
    alone = len(users) == 1
    inside = [i for i in users if _enters(body[i], tensor, around, alone)]
    out: list[LoopNode] = []
    for i, n in enumerate(body):
        if i in inside and isinstance(n, If):
            n = If(n.cond, place_declare(n.body, tensor, around), place_declare(n.orelse, tensor, around))
        elif i in inside and isinstance(n, Loop):
            n = replace(n, body=place_declare(n.body, tensor, around))
        elif i in users and not any(j in users and j not in inside for j in range(i)):
            out.append(Declare(tensor))
        out.append(n)
    return tuple(out)


def _enters(n: LoopNode, tensor: str, around: set[str], alone: bool) -> bool:
    """Whether whole tiles are inside a node that uses a buffer."""
    if isinstance(n, If):
        return alone or any(_enters(x, tensor, around, False) for x in (*n.body, *n.orelse) if _uses(x, tensor))
    return isinstance(n, Loop) and n.mark not in ("vector", "unroll") and (alone or n.var in around)


def _uses(n: LoopNode, tensor: str) -> bool:
    if isinstance(n, Instance):
        return n.write.tensor == tensor or _reads(n.expr, tensor)
    if isinstance(n, Loop):
        return any(_uses(x, tensor) for x in n.body)
    if isinstance(n, If):
        return any(_uses(x, tensor) for x in (*n.body, *n.orelse))
    return False


def _reads(e: Expr, tensor: str) -> bool:
    if isinstance(e, Load) and e.access.tensor == tensor:
        return True
    return any(_reads(c, tensor) for c in e.children())


