"""A nest as the plain C that a person would write: what the peers compile. Takes a Scop in its original order, its sizes bound; gives C text.

Arrays are C99 pointers to rows with constant sizes, scalars are locals, loops are `for` over int. Nothing is vectorised, unrolled or blocked.
"""

from __future__ import annotations

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.loops import If, Instance, Loop, LoopNode
from polyopt.ir.scop import Scop
from polyopt.ir.tensor import Tensor
from polyopt.lower.loops import lower_to_loops

_CTYPE = {"f32": "float", "f64": "double", "i32": "int", "i64": "long", "bool": "_Bool"}
_WORDS = {"and": "&&", "or": "||", "not": "!"}


def emit_naive(scop: Scop, entry: str = "kernel") -> str:
    """The text of one function `void kernel(tensors…, scalars…)`."""
    nest = lower_to_loops(scop)
    arguments = [_declared(t) for t in nest.arguments()] + [f"{_ctype(s.dtype)} {s.name}" for s in nest.scalars]
    locals_ = [f"    {_local(t)};" for t in nest.tensors if t.role == "local"]
    body = _nodes(nest.body, 1)
    return "\n".join(["#include <math.h>", f"void {entry}({', '.join(arguments)})", "{", *locals_, *body, "}", ""])


def _ctype(t: DType) -> str:
    return _CTYPE[t.name]


def _name(tensor: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in tensor)


def _declared(t: Tensor) -> str:
    rows = "".join(f"[{d}]" for d in t.shape[1:])
    return f"{_ctype(t.dtype)} (*restrict {_name(t.name)}){rows}" if rows else f"{_ctype(t.dtype)} *restrict {_name(t.name)}"


def _local(t: Tensor) -> str:
    static = "static " if t.shape else ""
    return f"{static}{_ctype(t.dtype)} {_name(t.name)}{''.join(f'[{d}]' for d in t.shape)}"


def _nodes(nodes: tuple[LoopNode, ...], depth: int) -> list[str]:
    pad, out = "    " * depth, []
    for n in nodes:
        if isinstance(n, Loop):
            low, high = _extreme(n.lower, ">"), _extreme(n.upper, "<")
            out += [f"{pad}for (int {n.var} = {low}; {n.var} < {high}; {n.var} += {n.step}) {{", *_nodes(n.body, depth + 1), f"{pad}}}"]
        elif isinstance(n, If):
            out += [f"{pad}if ({_expr(n.cond)}) {{", *_nodes(n.body, depth + 1), f"{pad}}}"]
            if n.orelse:
                out[-1] += " else {"
                out += [*_nodes(n.orelse, depth + 1), f"{pad}}}"]
        else:
            assert isinstance(n, Instance)
            out.append(pad + _statement(n))
    return out


def _statement(n: Instance) -> str:
    cell, value = _access(n.write), _expr(n.expr)
    if n.reduction in ("min", "max"):
        return f"{cell} = {cell} {'<' if n.reduction == 'min' else '>'} {value} ? {cell} : {value};"
    return f"{cell} {n.reduction or ''}= {value};"


def _extreme(bounds: tuple[Affine, ...], op: str) -> str:
    text = _affine(bounds[0])
    for b in bounds[1:]:
        text = f"({text} {op} {_affine(b)} ? {text} : {_affine(b)})"
    return text


def _affine(x: Affine) -> str:
    parts = []
    for atom, k in x.terms:
        base = atom if isinstance(atom, str) else f"(({_affine(atom.num)}) / {atom.den})"
        parts.append(f"{'+' if k > 0 else '-'} {'' if abs(k) == 1 else f'{abs(k)} * '}{base}")
    if x.const or not parts:
        parts.append(f"{'+' if x.const >= 0 else '-'} {abs(x.const)}")
    return " ".join(parts).removeprefix("+ ")


def _access(a: ex.Access) -> str:
    return _name(a.tensor) + "".join(f"[{_affine(x) if isinstance(x, Affine) else _expr(x)}]" for x in a.indices)


def _expr(e: ex.Expr) -> str:
    if isinstance(e, ex.Const):
        text = repr(e.value) if e.dtype.is_float else str(int(e.value))
        return text + ("f" if e.dtype.name == "f32" else "")
    if isinstance(e, ex.Load):
        return _access(e.access)
    if isinstance(e, ex.Scalar):
        return e.name
    if isinstance(e, ex.IndexValue):
        return f"({_affine(e.index)})"
    if isinstance(e, ex.Unary):
        return f"({_WORDS.get(e.op, e.op)}{_expr(e.x)})"
    if isinstance(e, ex.Cast):
        return f"(({_ctype(e.dtype)}){_expr(e.x)})"
    if isinstance(e, ex.Select):
        return f"({_expr(e.cond)} ? {_expr(e.yes)} : {_expr(e.no)})"
    if isinstance(e, ex.Call):
        return f"{e.fn}{'f' if e.dtype.name == 'f32' else ''}({', '.join(map(_expr, e.args))})"
    assert isinstance(e, ex.Binary | ex.Compare)
    if e.op in ("min", "max"):
        x, y = _expr(e.x), _expr(e.y)
        return f"({x} {'<' if e.op == 'min' else '>'} {y} ? {x} : {y})"
    return f"({_expr(e.x)} {_WORDS.get(e.op, e.op)} {_expr(e.y)})"
