"""Unrolling on the LoopNest. Takes a nest; gives one in which every loop marked "unroll" with a constant trip count is spelled out.

The loop variable is replaced by its value, affine expressions are simplified with the ranges of the enclosing loops, guards that the
ranges decide are resolved, and loops and guards that are left empty are dropped. Register buffers declared inside a copy get a name of
their own in each copy. A loop whose trip count is not constant stays a plain loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, AffineLike, Range, affine
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch, walk
from polyopt.ir.tensor import Tensor

Ranges = dict[str, Range]


@dataclass
class _State:
    tensors: dict[str, Tensor]
    added: list[Tensor] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)

    def clone(self, name: str) -> str:
        while True:
            n = self.copies[name] = self.copies.get(name, 0) + 1
            new = f"{name}.{n}"
            if new not in self.tensors:
                break
        self.tensors[new] = replace(self.tensors[name], name=new)
        self.added.append(self.tensors[new])
        return new


def unroll(nest: LoopNest) -> LoopNest:
    """Spell out the loops marked "unroll", simplify all affine expressions, resolve decided guards."""
    state = _State({t.name: t for t in nest.tensors})
    ranges: Ranges = dict(nest.param_ranges)
    body = _nodes(nest.body, {}, {}, ranges, state)
    return replace(nest, body=body, tensors=nest.tensors + tuple(state.added))


def loop_range(loop: Loop, ranges: Mapping[str, Range]) -> Range:
    """Inclusive bounds of a loop's variable: the loop's own proof met with what its bounds say."""
    los = [b for b in (x.bounds(ranges)[0] for x in loop.lower) if b is not None]
    his = [b - 1 for b in (x.bounds(ranges)[1] for x in loop.upper) if b is not None]
    if loop.range[0] is not None:
        los.append(loop.range[0])
    if loop.range[1] is not None:
        his.append(loop.range[1])
    lo, hi = (max(los) if los else None), (min(his) if his else None)
    return (lo, hi if hi is None or lo is None else max(lo, hi))


def _nodes(
    nodes: tuple[LoopNode, ...], values: Mapping[str, AffineLike], names: Mapping[str, str], ranges: Ranges, state: _State
) -> tuple[LoopNode, ...]:
    out: list[LoopNode] = []
    for n in nodes:
        out.extend(_node(n, values, names, ranges, state))
    return tuple(out)


def _node(n: LoopNode, values: Mapping[str, AffineLike], names: Mapping[str, str], ranges: Ranges, state: _State) -> list[LoopNode]:
    def aff(a: Affine) -> Affine:
        return a.substitute(values).simplify(ranges)

    if isinstance(n, Instance):
        return [
            replace(n, coords=tuple(map(aff, n.coords)), write=_access(n.write, values, names, ranges),
                    expr=_expr(n.expr, values, names, ranges))
        ]  # fmt: skip
    if isinstance(n, Declare):
        return [Declare(names.get(n.tensor, n.tensor))]
    if isinstance(n, Prefetch):
        return [replace(n, access=_access(n.access, values, names, ranges))]
    if isinstance(n, If):
        cond = _expr(n.cond, values, names, ranges)
        known = decide(cond, ranges)
        if known is not None:
            return list(_nodes(n.body if known else n.orelse, values, names, ranges, state))
        yes, no = (_nodes(x, values, names, ranges, state) for x in (n.body, n.orelse))
        return [If(cond, yes, no)] if yes or no else []
    loop = replace(n, lower=_tightest(tuple(map(aff, n.lower)), ranges, 1), upper=_tightest(tuple(map(aff, n.upper)), ranges, -1))
    if loop.trip == 0:
        return []
    if loop.mark == "unroll" and loop.trip is not None:
        return _copies(loop, loop.trip, values, names, ranges, state)
    inner = {**ranges, n.var: loop_range(loop, ranges)}
    kept = {k: v for k, v in values.items() if k != n.var}
    body = _nodes(n.body, kept, names, inner, state)
    return [replace(loop, body=body, mark="" if loop.mark == "unroll" else loop.mark)] if body else []


def _copies(
    loop: Loop, trip: int, values: Mapping[str, AffineLike], names: Mapping[str, str], ranges: Ranges, state: _State
) -> list[LoopNode]:
    private = [d.tensor for d in walk(loop.body) if isinstance(d, Declare) and state.tensors[d.tensor].scope == "registers"]
    out: list[LoopNode] = []
    for t in range(trip):
        own = dict(names)
        if t:
            own.update({p: state.clone(names.get(p, p)) for p in dict.fromkeys(private)})
        out.extend(_nodes(loop.body, {**values, loop.var: loop.lower[0] + t * loop.step}, own, ranges, state))
    return out


def _tightest(bounds: tuple[Affine, ...], ranges: Ranges, sign: int) -> tuple[Affine, ...]:
    """Drop bounds that another bound implies (sign 1: the list is maximised, -1: minimised)."""
    kept: list[Affine] = []
    for b in dict.fromkeys(bounds):
        if any(_at_least((k - b) * sign, ranges) for k in kept):
            continue
        kept = [k for k in kept if not _at_least((b - k) * sign, ranges)] + [b]
    return tuple(kept)


def _at_least(a: Affine, ranges: Ranges) -> bool:
    lo = a.bounds(ranges)[0]
    return lo is not None and lo >= 0


def _access(a: ex.Access, values: Mapping[str, AffineLike], names: Mapping[str, str], ranges: Ranges) -> ex.Access:
    idx = tuple(
        x.substitute(values).simplify(ranges) if isinstance(x, Affine) else _expr(x, values, names, ranges) for x in a.indices
    )
    return ex.Access(names.get(a.tensor, a.tensor), idx)


def _expr(e: ex.Expr, values: Mapping[str, AffineLike], names: Mapping[str, str], ranges: Ranges) -> ex.Expr:
    if isinstance(e, ex.Load):
        return ex.Load(_access(e.access, values, names, ranges), e.dtype)
    if isinstance(e, ex.IndexValue):
        return ex.IndexValue(e.index.substitute(values).simplify(ranges), e.dtype)
    if isinstance(e, ex.Select):
        cond = _expr(e.cond, values, names, ranges)
        known = decide(cond, ranges)
        yes, no = (_expr(x, values, names, ranges) for x in (e.yes, e.no))
        return ex.Select(cond, yes, no) if known is None else yes if known else no
    if isinstance(e, ex.Unary | ex.Cast):
        return replace(e, x=_expr(e.x, values, names, ranges))
    if isinstance(e, ex.Binary | ex.Compare):
        return replace(e, x=_expr(e.x, values, names, ranges), y=_expr(e.y, values, names, ranges))
    if isinstance(e, ex.Call):
        return ex.Call(e.fn, tuple(_expr(a, values, names, ranges) for a in e.args))
    return e


def decide(cond: ex.Expr, ranges: Mapping[str, Range]) -> bool | None:
    """The truth of a condition over index values where the ranges decide it, else None."""
    if isinstance(cond, ex.Const):
        return bool(cond.value)
    if isinstance(cond, ex.Unary) and cond.op == "not":
        inner = decide(cond.x, ranges)
        return None if inner is None else not inner
    if isinstance(cond, ex.Binary) and cond.op in ("and", "or"):
        known = [decide(cond.x, ranges), decide(cond.y, ranges)]
        stop = cond.op == "or"
        if stop in known:
            return stop
        return None if None in known else not stop
    if isinstance(cond, ex.Compare):
        x, y = as_index(cond.x), as_index(cond.y)
        if x is not None and y is not None:
            return _decide_sign(cond.op, *(x - y).bounds(ranges))
    return None


def as_index(e: ex.Expr) -> Affine | None:
    """An index value or an integer constant as an affine expression."""
    if isinstance(e, ex.IndexValue):
        return e.index
    if isinstance(e, ex.Const) and e.dtype.is_integer:
        return affine(int(e.value))
    return None


def _decide_sign(op: str, lo: int | None, hi: int | None) -> bool | None:
    """Decide `d op 0` for lo <= d <= hi."""
    if op in (">", ">="):
        op, lo, hi = {">": "<", ">=": "<="}[op], None if hi is None else -hi, None if lo is None else -lo
    if op in ("<", "<="):
        limit = 0 if op == "<" else 1
        if hi is not None and hi < limit:
            return True
        return False if lo is not None and lo >= limit else None
    apart = (lo is not None and lo > 0) or (hi is not None and hi < 0)
    equal = lo == 0 and hi == 0
    if not apart and not equal:
        return None
    return equal if op == "==" else apart
