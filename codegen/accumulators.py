"""Scalar replacement: cells that a loop reads and writes at the same place in every iteration live in locals while it runs.

    for k: C[i, j] += A[i, k] * B[k, j]          ->          c = C[i, j]; for k: c += A[i, k] * B[k, j]; C[i, j] = c

Takes an unrolled nest whose vector loops are decided; gives one with register buffers around innermost loops. A tensor's cells are held where each of
its accesses in the loop stays where it is and any two are the same or apart; vectors are held where they stand in whole strips. The C compiler cannot
do this itself: it does not know that two rows of one array do not meet. Where the loop may run not at all, nothing is touched.
(Callahan, Carr and Kennedy 1990, Improving register allocation for subscripted variables.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, Range, affine, var
from polyopt.ir.dtype import i64
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch
from polyopt.ir.tensor import Tensor

from .unroll import loop_range

MOST_CELLS = 32  # locals that a loop may hold of one tensor: what a register file has
HELD_BYTES = (4, 8)


@dataclass(frozen=True)
class Use:
    """One access in a loop's body: the strip around it (None: a scalar), whether it stores, and whether the cell is read."""

    access: ex.Access
    strip: Loop | None
    store: bool
    read: bool


@dataclass
class _State:
    tensors: dict[str, Tensor]
    added: list[Tensor] = field(default_factory=list)

    def buffer(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A fresh register buffer for cells of a tensor."""
        k = len(self.added)
        while f"{t.name}.held{k}" in self.tensors:
            k += 1
        out = Tensor(f"{t.name}.held{k}", t.dtype, tuple(map(affine, shape)), "local", "registers")
        self.tensors[out.name] = out
        self.added.append(out)
        return out


def hold_accumulators(nest: LoopNest) -> LoopNest:
    """The nest with the cells that innermost loops go over again and again in register buffers."""
    state = _State({t.name: t for t in nest.tensors})
    body = _nodes(nest.body, dict(nest.param_ranges), state)
    return replace(nest, body=body, tensors=nest.tensors + tuple(state.added)) if state.added else nest


def _nodes(nodes: tuple[LoopNode, ...], ranges: Mapping[str, Range], state: _State, lane: str = "") -> tuple[LoopNode, ...]:
    return tuple(x for n in nodes for x in _node(n, ranges, state, lane))


def _node(n: LoopNode, ranges: Mapping[str, Range], state: _State, lane: str) -> tuple[LoopNode, ...]:
    """What comes of a node; `lane` is the variable of the vector loop around it."""
    if isinstance(n, If):
        return (replace(n, body=_nodes(n.body, ranges, state, lane), orelse=_nodes(n.orelse, ranges, state, lane)),)
    if not isinstance(n, Loop):
        return (n,)
    inner = {**ranges, n.var: loop_range(n, ranges)}
    if n.mark == "vector":
        return (replace(n, body=_nodes(n.body, inner, state, n.var)),)
    if n.mark == "" and all(isinstance(x, Instance | Prefetch) or _is_strip(x) for x in n.body):
        return _held(n, ranges, state, lane)
    return (replace(n, body=_nodes(n.body, inner, state, lane)),)


def _is_strip(n: LoopNode) -> bool:
    return isinstance(n, Loop) and n.mark == "vector" and n.is_strip and all(isinstance(x, Instance) for x in n.body)


# ---- one loop
def _held(loop: Loop, ranges: Mapping[str, Range], state: _State, lane: str) -> tuple[LoopNode, ...]:
    uses = list(_uses(loop.body, None))
    before: list[LoopNode] = []
    after: list[LoopNode] = []
    body = loop.body
    for name in dict.fromkeys(u.access.tensor for u in uses if u.store):
        t = state.tensors[name]
        mine = [u for u in uses if u.access.tensor == name]
        places = _places(mine, loop, uses, state)
        if t.scope == "registers" or t.dtype.bytes not in HELD_BYTES or not t.dtype.is_float or not places or len(places) > MOST_CELLS:
            continue
        if lane and not all(_one_a_lane(u.access, lane) for u in places):
            continue
        strip = places[0].strip
        held = state.buffer(t, (len(places),) if strip is None else (len(places), strip.trip or 0))
        slots = {_key(u): k for k, u in enumerate(places)}
        body = tuple(_turned(n, name, held.name, slots, None) for n in body)
        before.append(Declare(held.name))
        for k, u in enumerate(places):
            if next(x for x in mine if _key(x) == _key(u)).read:
                before.append(_copy(u, t, held, k, into=True))
            if any(x.store for x in mine if _key(x) == _key(u)):
                after.append(_copy(u, t, held, k, into=False))
    if not before:
        return (loop,)
    out = (*before, replace(loop, body=body), *after)
    return out if _runs(loop, ranges) else (If(_some_iteration(loop), out),)


def _uses(nodes: Sequence[LoopNode], strip: Loop | None) -> Iterator[Use]:
    """The accesses in the order of execution: what an instance reads, then what it writes."""
    for n in nodes:
        if isinstance(n, Loop):
            yield from _uses(n.body, n)
        elif isinstance(n, Instance):
            inner = tuple(y for x in n.write.indices if isinstance(x, ex.Expr) for y in ex.loads(x))
            for x in (*ex.loads(n.expr), *inner):
                yield Use(x.access, strip, False, True)
            yield Use(n.write, strip, True, n.reduction is not None)


def _places(mine: Sequence[Use], loop: Loop, uses: Sequence[Use], state: _State) -> list[Use]:
    """The distinct cells (or strips) of a tensor in a loop; none where one of them moves or two may overlap."""
    for u in mine:
        if not u.access.is_affine or any(loop.var in x.names() for x in u.access.affine_indices()) or not _whole(u, loop, uses, state):
            return []
    places = list({_key(u): u for u in reversed(mine)}.values())[::-1]
    if len({u.strip is None for u in places}) > 1 or len({u.strip.trip if u.strip is not None else 0 for u in places}) > 1:
        return []
    apart = all(_apart(a, b) for k, a in enumerate(places) for b in places[:k])
    return places if apart else []


def _one_a_lane(a: ex.Access, lane: str) -> bool:
    """Whether each lane has a cell of its own."""
    return any(x.is_linear_in(lane) and x.coefficient(lane) for x in a.affine_indices())


def _whole(u: Use, loop: Loop, uses: Sequence[Use], state: _State) -> bool:
    """Whether an access in a strip covers whole vectors: one cell a lane, next to each other, all of one width."""
    if u.strip is None:
        return True
    s = u.strip
    if s.trip is None or s.trip != s.lanes or loop.var in s.lower[0].names() or not u.access.indices:
        return False
    *outer, last = u.access.affine_indices()
    if any(s.var in x.names() for x in outer) or not last.is_linear_in(s.var) or last.coefficient(s.var) != 1:
        return False
    width = state.tensors[u.access.tensor].dtype.bytes
    return all(state.tensors[x.access.tensor].dtype.bytes == width for x in uses if x.strip is s)


def _first(u: Use) -> tuple[Affine, ...]:
    """The indices at the first lane."""
    x = u.access.affine_indices()
    return x if u.strip is None else tuple(i.substitute({u.strip.var: u.strip.lower[0]}) for i in x)


def _key(u: Use) -> tuple[tuple[Affine, ...], int | None]:
    return _first(u), None if u.strip is None else u.strip.trip


def _apart(a: Use, b: Use) -> bool:
    """Whether two accesses to different places never meet."""
    x, y = _first(a), _first(b)
    width = 1 if a.strip is None else a.strip.lanes
    gaps = [p - q for p, q in zip(x, y, strict=True)]
    if any(g.is_const and g.const for g in gaps[:-1]):
        return True
    return bool(gaps) and gaps[-1].is_const and abs(gaps[-1].const) >= width


# ---- what comes of it
def _turned(n: LoopNode, name: str, held: str, slots: Mapping[Any, int], strip: Loop | None) -> LoopNode:
    """A node with the accesses to a tensor turned to its buffer."""
    if isinstance(n, Loop):
        return replace(n, body=tuple(_turned(x, name, held, slots, n) for x in n.body))
    if not isinstance(n, Instance):
        return n

    def turn(a: ex.Access) -> ex.Access:
        slot = affine(slots[_key(Use(a, strip, False, False))])
        return ex.Access(held, (slot,) if strip is None else (slot, var(strip.var) - strip.lower[0]))

    def visit(e: ex.Expr) -> ex.Expr | None:
        return ex.Load(turn(e.access), e.dtype) if isinstance(e, ex.Load) and e.access.tensor == name else None

    write = turn(n.write) if n.write.tensor == name else n.write
    return replace(n, write=write, expr=ex.rewrite(n.expr, visit))


def _copy(u: Use, t: Tensor, held: Tensor, slot: int, into: bool) -> LoopNode:
    """The instance (or strip) that fills a slot of the buffer, or puts it back."""
    if u.strip is None:
        cell, own = u.access, ex.Access(held.name, (affine(slot),))
    else:
        v = f"{u.strip.var}.held"
        *outer, last = _first(u)
        cell, own = ex.Access(t.name, (*outer, last + var(v))), ex.Access(held.name, (affine(slot), var(v)))
    source, sink = (cell, own) if into else (own, cell)
    copy = Instance("", (), sink, ex.Load(source, t.dtype))
    if u.strip is None:
        return copy
    lanes = u.strip.lanes
    return Loop(v, (affine(0),), (affine(lanes),), (copy,), 1, "vector", "", lanes, (0, lanes - 1))


def _runs(loop: Loop, ranges: Mapping[str, Range]) -> bool:
    """Whether a loop surely runs."""
    least = [(u - low).bounds(ranges)[0] for u in loop.upper for low in loop.lower]
    return all(x is not None and x > 0 for x in least)


def _some_iteration(loop: Loop) -> ex.Expr:
    out: ex.Expr | None = None
    for low in loop.lower:
        for u in loop.upper:
            c: ex.Expr = ex.Compare("<", ex.IndexValue(low, i64), ex.IndexValue(u, i64))
            out = c if out is None else ex.Binary("and", out, c)
    assert out is not None
    return out
