"""Build a Scop from text, for tests: tensors, statements with Python expressions, and a schedule tree in isl's syntax."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import islpy as isl

from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import f32, i64
from polyopt.ir.expr import Access, Binary, Call, Compare, Const, Expr, IndexValue, Load, Select, Unary
from polyopt.ir.scop import Scop, Statement
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import read_schedule, read_set

_OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_CMP = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


def to_affine(node: ast.AST) -> Affine:
    """An affine expression from Python syntax (+ - * // % with integer constants)."""
    if isinstance(node, ast.Constant):
        return affine(node.value)
    if isinstance(node, ast.Name):
        return var(node.id)
    if isinstance(node, ast.UnaryOp):
        return -to_affine(node.operand)
    assert isinstance(node, ast.BinOp), ast.dump(node)
    x, y = to_affine(node.left), to_affine(node.right)
    if isinstance(node.op, ast.Add):
        return x + y
    if isinstance(node.op, ast.Sub):
        return x - y
    if isinstance(node.op, ast.Mult):
        return x * y
    return x // int(y) if isinstance(node.op, ast.FloorDiv) else x % int(y)


def to_access(node: ast.AST) -> Access:
    """`A[i, j+1]`, with an indirect index where the index loads (`A[idx[i]]`)."""
    assert isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    elts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    indirect = [any(isinstance(n, ast.Subscript) for n in ast.walk(e)) for e in elts]
    return Access(node.value.id, tuple(to_expr(e, i64) if ind else to_affine(e) for e, ind in zip(elts, indirect, strict=True)))


def to_expr(node: ast.AST, dtype: object = f32) -> Expr:
    """A scalar expression from Python syntax; a bare name is an index value; `a if c else b` is a select."""
    if isinstance(node, ast.Constant):
        return Const(float(node.value), dtype)
    if isinstance(node, ast.Subscript):
        return Load(to_access(node), dtype)
    if isinstance(node, ast.Name):
        return IndexValue(var(node.id), dtype)
    if isinstance(node, ast.UnaryOp):
        return Unary("-", to_expr(node.operand, dtype))
    if isinstance(node, ast.IfExp):
        return Select(to_condition(node.test), to_expr(node.body, dtype), to_expr(node.orelse, dtype))
    if isinstance(node, ast.Call):
        name = node.func.id
        args = tuple(to_expr(a, dtype) for a in node.args)
        return Binary(name, *args) if name in ("min", "max") else Call(name, args)
    assert isinstance(node, ast.BinOp), ast.dump(node)
    return Binary(_OPS[type(node.op)], to_expr(node.left, dtype), to_expr(node.right, dtype))


def to_condition(node: ast.AST) -> Expr:
    """A condition over index values."""
    if isinstance(node, ast.BoolOp):
        out = to_condition(node.values[0])
        for v in node.values[1:]:
            out = Binary("and" if isinstance(node.op, ast.And) else "or", out, to_condition(v))
        return out
    assert isinstance(node, ast.Compare)
    parts = [node.left, *node.comparators]
    out = None
    for op, x, y in zip(node.ops, parts, parts[1:], strict=False):
        c = Compare(_CMP[type(op)], IndexValue(to_affine(x), i64), IndexValue(to_affine(y), i64))
        out = c if out is None else Binary("and", out, c)
    return out


def statement(params: Sequence[str], domain: str, text: str) -> Statement:
    """`statement(["N"], "S[i] : 0 <= i < N", "A[i] += B[i]")`. `max=` and `min=` are written `A[i] = max(A[i], x)` with `reduction`."""
    dom = read_set(f"[{', '.join(params)}] -> {{ {domain} }}")
    name = dom.get_tuple_name()
    iters = tuple(dom.get_dim_name(isl.dim_type.set, i) for i in range(dom.dim(isl.dim_type.set)))
    node = ast.parse(text).body[0]
    if isinstance(node, ast.AugAssign):
        return Statement(name, iters, dom, to_access(node.target), to_expr(node.value), _OPS[type(node.op)])
    assert isinstance(node, ast.Assign)
    return Statement(name, iters, dom, to_access(node.targets[0]), to_expr(node.value))


def build(
    name: str,
    tensors: Mapping[str, str],
    statements: Sequence[tuple[str, str]],
    tree: str,
    params: str = "",
    context: str = "true",
) -> Scop:
    """A Scop without dependences. `tensors`: name → "M, N" or "in M, N"; `tree`: the schedule below the domain, as isl's YAML text."""
    names = tuple(params.split())
    stmts = tuple(statement(names, d, t) for d, t in statements)
    made = []
    written = {s.write.tensor for s in stmts}
    for t, shape in tensors.items():
        role, _, dims = shape.partition(":")
        if not dims:
            role, dims = ("output" if t in written else "input"), shape
        parsed = ast.parse(f"({dims},)", mode="eval").body
        made.append(Tensor(t, f32, tuple(to_affine(e) for e in parsed.elts), role.strip()))
    head = f"[{', '.join(names)}] -> "
    domain = isl.UnionSet.empty(isl.Space.params_alloc(isl.DEFAULT_CONTEXT, 0))
    for s in stmts:
        domain = domain.union(isl.UnionSet.from_set(s.domain))
    schedule = read_schedule(f'{{ domain: "{domain}", child: {tree} }}')
    return Scop(name, names, read_set(f"{head}{{ : {context} }}"), tuple(made), stmts, schedule)
