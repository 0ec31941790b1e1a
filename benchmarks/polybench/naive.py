"""A nest as the plain C that a person would write: what the peers compile. Takes a Scop in its original order, its sizes bound; gives C text.

Arrays are C99 pointers to rows with constant sizes, scalars are locals, loops are `for` over int. Nothing is vectorised, unrolled or blocked.
Loop variables are those of the source, with its bounds and directions: lowering shifts each loop to start at 0, which the printer undoes, since
compilers do worse on subscripts such as A[i + j + 1][j].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import DType
from polyopt.ir.loops import If, Instance, Loop, LoopNode, walk
from polyopt.ir.scop import Scop
from polyopt.ir.tensor import Tensor
from polyopt.lower.loops import lower_to_loops

_CTYPE = {"f32": "float", "f64": "double", "i32": "int", "i64": "long", "bool": "_Bool"}
_TIMED = """double {entry}({arguments})
{{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    nest({names});
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}}
"""
_WORDS = {"and": "&&", "or": "||", "not": "!"}


def emit_naive(scop: Scop, entry: str = "kernel") -> str:
    """The text of `double kernel(tensors…, scalars…)`, which runs the nest once and gives its seconds."""
    nest = lower_to_loops(scop)
    arguments = ", ".join([*(_declared(t) for t in nest.arguments()), *(f"{_ctype(s.dtype)} {s.name}" for s in nest.scalars)])
    names = ", ".join([*(_name(t.name) for t in nest.arguments()), *(s.name for s in nest.scalars)])
    locals_ = [f"    {_local(t)};" for t in nest.tensors if t.role == "local"]
    body = _nodes(nest.body, {s.name: s.iters for s in scop.statements}, {}, 1)
    head = f"static __attribute__((noinline)) void nest({arguments})"
    timed = _TIMED.format(entry=entry, arguments=arguments, names=names)
    return "\n".join(["#include <math.h>", "#include <time.h>", head, "{", *locals_, *body, "}", timed])


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


def _nodes(nodes: tuple[LoopNode, ...], iters: Mapping[str, tuple[str, ...]], values: Mapping[str, Affine], depth: int) -> list[str]:
    """The lines. `values`: what the loop variables of the nest are in those of the source."""
    pad, out = "    " * depth, []
    for n in nodes:
        if isinstance(n, Loop):
            head, inner = _loop(n, iters, values)
            out += [f"{pad}for ({head}) {{", *_nodes(n.body, iters, {**values, n.var: inner}, depth + 1), f"{pad}}}"]
        elif isinstance(n, If):
            out += [f"{pad}if ({_bare(ex.substitute(n.cond, values))}) {{", *_nodes(n.body, iters, values, depth + 1), f"{pad}}}"]
            if n.orelse:
                out[-1] += " else {"
                out += [*_nodes(n.orelse, iters, values, depth + 1), f"{pad}}}"]
        else:
            assert isinstance(n, Instance)
            out.append(pad + _statement(n, values))
    return out


def _loop(n: Loop, iters: Mapping[str, tuple[str, ...]], values: Mapping[str, Affine]) -> tuple[str, Affine]:
    """The head of a loop over the source's variable, and the nest's variable in terms of it."""
    name, k, rest = _source_variable(n, iters, values)
    lower, upper = ([x.substitute(values) * k + rest for x in bounds] for bounds in (n.lower, n.upper))
    step = f"{name}{'++' if k > 0 else '--'}" if n.step == 1 else f"{name} {'+' if k > 0 else '-'}= {n.step}"
    if k > 0:
        return f"int {name} = {_extreme(lower, '>')}; {name} < {_extreme(upper, '<')}; {step}", var(name) - rest
    return f"int {name} = {_extreme(lower, '<')}; {name} >= {_extreme([x + 1 for x in upper], '>')}; {step}", rest - name


def _source_variable(n: Loop, iters: Mapping[str, tuple[str, ...]], values: Mapping[str, Affine]) -> tuple[str, int, Affine]:
    """(name, ±1, rest) where the source's variable is ±var + rest in all statements of the loop; the nest's own where they disagree."""
    found = set()
    for x in walk(n.body):
        if isinstance(x, Instance) and n.name in iters[x.statement]:
            found.add(x.coords[iters[x.statement].index(n.name)].substitute(values))
    moving = [c for c in found if n.var in c.names()]
    k = moving[0].coefficient(n.var) if len(moving) == 1 else 0
    if k not in (1, -1) or not moving[0].is_linear_in(n.var):
        return n.var, 1, affine(0)
    return n.name, k, moving[0] - var(n.var) * k


def _statement(n: Instance, values: Mapping[str, Affine]) -> str:
    cell, value = _access(ex.substitute_access(n.write, values)), ex.substitute(n.expr, values)
    if n.reduction in ("min", "max"):
        text = _expr(value)
        return f"{cell} = {cell} {'<' if n.reduction == 'min' else '>'} {text} ? {cell} : {text};"
    if n.reduction == "+" and isinstance(value, ex.Unary) and value.op == "-":
        return f"{cell} -= {_bare(value.x)};"
    return f"{cell} {n.reduction or ''}= {_bare(value)};"


def _extreme(bounds: Sequence[Affine], op: str) -> str:
    text = _affine(bounds[0])
    for b in bounds[1:]:
        text = f"({text} {op} {_affine(b)} ? {text} : {_affine(b)})"
    return text


def _affine(x: Affine) -> str:
    parts = []
    for atom, k in sorted(x.terms, key=lambda t: -t[1]):
        base = atom if isinstance(atom, str) else f"(({_affine(atom.num)}) / {atom.den})"
        parts.append(f"{'+' if k > 0 else '-'} {'' if abs(k) == 1 else f'{abs(k)} * '}{base}")
    if x.const or not parts:
        parts.append(f"{'+' if x.const >= 0 else '-'} {abs(x.const)}")
    return " ".join(parts).removeprefix("+ ")


def _access(a: ex.Access) -> str:
    return _name(a.tensor) + "".join(f"[{_affine(x) if isinstance(x, Affine) else _expr(x)}]" for x in a.indices)


def _bare(e: ex.Expr) -> str:
    """An expression without the parentheses around it."""
    text = _expr(e)
    return text[1:-1] if isinstance(e, ex.Binary | ex.Compare | ex.Unary | ex.Select) else text


def _expr(e: ex.Expr) -> str:
    if isinstance(e, ex.Const):
        text = repr(e.value) if e.dtype.is_float else str(int(e.value))
        return text + ("f" if e.dtype.name == "f32" else "")
    if isinstance(e, ex.Load):
        return _access(e.access)
    if isinstance(e, ex.Scalar):
        return e.name
    if isinstance(e, ex.IndexValue):
        return _affine(e.index) if len(e.index.terms) + bool(e.index.const) < 2 else f"({_affine(e.index)})"
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
    if e.op == "+" and isinstance(e.y, ex.Unary) and e.y.op == "-":
        return f"({_expr(e.x)} - {_expr(e.y.x)})"
    return f"({_expr(e.x)} {_WORDS.get(e.op, e.op)} {_expr(e.y)})"
