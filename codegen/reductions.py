"""Reductions over the lanes of a vector loop. Takes statement lists; gives vector partials around them and horizontal reductions.

An update `w = w op e` whose target does not depend on the lane accumulates into vectors. They are initialised before the outermost
statement list in which nothing else touches the target, and folded into it afterwards, so a strip loop around the vector loop runs on
vectors only. Several updates of one target in a body take turns on up to four accumulators, which hides the latency of the operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.loops import If, Instance, Loop, LoopNode, walk

from .operators import binary, constant, fused, lift
from .prepare import Plan, compute_dtype
from .state import State, Val
from .values import value

MAX_ACCUMULATORS = 4
WORDS = {"+": "add", "*": "mul", "min": "min", "max": "max"}


@dataclass(frozen=True)
class Key:
    """The target of an update over lanes: cell, operator and lanes of a chunk."""

    access: ex.Access
    op: str
    width: int


@dataclass
class Partial:
    """The accumulators of a key, and whose turn it is."""

    names: tuple[str, ...]
    turn: int = 0


def lane_key(n: Instance, loop: Loop | None, plan: Plan) -> Key | None:
    """The key of an update over the lanes of `loop`, None where the statement is none."""
    if loop is None or n.reduction is None or not n.write.is_affine:
        return None
    local = plan.locals.get(n.write.tensor)
    if local is not None and local.kind == "private":
        return None
    if any(loop.var in x.names() for x in n.write.affine_indices()):
        return None
    return Key(n.write, n.reduction, plan.chunk[id(loop)])


def keys_in(n: LoopNode, loop: Loop | None, plan: Plan) -> Iterator[tuple[Key, int]]:
    """All keys below a node, with the number of chunks of their loop."""
    if isinstance(n, Instance):
        key = lane_key(n, loop, plan)
        if key is not None and loop is not None:
            lanes = loop.lanes if loop.trip is None else min(loop.trip, loop.lanes)
            yield key, -(-lanes // key.width)
    elif isinstance(n, If):
        for b in n.body + n.orelse:
            yield from keys_in(b, loop, plan)
    elif isinstance(n, Loop) and n.mark != "parallel":
        for b in n.body:
            yield from keys_in(b, n if n.mark == "vector" else loop, plan)


def conflicts(n: LoopNode, key: Key) -> bool:
    """Whether a node touches the key's cell other than by the same kind of update."""
    for x in walk((n,)):
        if not isinstance(x, Instance):
            continue
        inner = [y.access for i in x.write.indices if isinstance(i, ex.Expr) for y in ex.loads(i)]
        reads = [y.access for y in ex.loads(x.expr)] + inner
        if x.reduction != key.op:
            reads.append(x.write)
        if any(_may_meet(r, key.access) for r in reads):
            return True
    return False


def _may_meet(a: ex.Access, b: ex.Access) -> bool:
    if a.tensor != b.tensor:
        return False
    for i, j in zip(a.indices, b.indices, strict=True):
        if isinstance(i, Affine) and isinstance(j, Affine):
            d = i - j
            if d.is_const and d.const:
                return False
    return True


def openings(st: State, n: LoopNode) -> dict[Key, int]:
    """The keys that may accumulate across a whole node, with the number of accumulators each should have."""
    loop = st.vec.loop if st.vec is not None else None
    bound = {x.var for x in walk((n,)) if isinstance(x, Loop)}
    counts: dict[Key, int] = {}
    for key, chunks in keys_in(n, loop, st.plan):
        if key in st.partials:
            continue
        if any(bound & i.names() for i in key.access.affine_indices()):
            continue
        counts[key] = counts.get(key, 0) + chunks
    alone = isinstance(n, Loop) and n.mark == "vector"  # it carries no other dependence, so its other reads are of other cells
    return {k: min(c, MAX_ACCUMULATORS) for k, c in counts.items() if alone or not conflicts(n, k)}


def open_partial(st: State, key: Key, count: int) -> None:
    """Declare the accumulators."""
    dtype = compute_dtype(st.tensors[key.access.tensor].dtype)
    v, splat = st.prelude.vector(key.width, dtype), st.prelude.splat(key.width, dtype)
    names = []
    for _ in range(count):
        name = st.names.fresh("r")
        st.line(f"{v} {name} = {splat}({constant(ex.neutral_element(key.op, dtype), dtype).text});")
        names.append(name)
    st.partials[key] = Partial(tuple(names))


def accumulate(st: State, n: Instance, key: Key) -> None:
    """One update of the accumulators, masked to the active lanes."""
    vec, partial = st.vec, st.partials[key]
    assert vec is not None
    dtype = compute_dtype(st.tensors[key.access.tensor].dtype)
    e = n.expr
    count = len(vec.active)
    names = tuple(partial.names[(partial.turn + p) % len(partial.names)] for p in range(count))
    partial.turn += count
    old = Val(names, dtype, True)
    if len(set(names)) < count:  # several chunks share an accumulator: one after another
        lanes = lift(st, value(st, e))
        for p, name in enumerate(names):
            _set(st, (name,), binary(st, key.op, Val((name,), dtype, True), Val((lanes.parts[p],), dtype, True)), p)
        return
    product, op = added_product(e)
    if st.has_fma and key.op == "+" and product is not None and dtype.is_float:
        new = fused(st, op, value(st, product.x), value(st, product.y), old)
        new = new if new.vector else lift(st, new)
    else:
        new = binary(st, key.op, old, lift(st, value(st, e)))
    _set(st, names, new, 0)


def added_product(e: ex.Expr) -> tuple[ex.Binary | None, str]:
    """The product that an update adds or takes away, and the fused operation for it."""
    op = "fnma" if isinstance(e, ex.Unary) and e.op == "-" else "fma"
    e = e.x if isinstance(e, ex.Unary) and e.op == "-" else e
    return (e, op) if isinstance(e, ex.Binary) and e.op == "*" else (None, op)


def _set(st: State, names: tuple[str, ...], new: Val, first: int) -> None:
    vec = st.vec
    assert vec is not None
    for p, (name, text) in enumerate(zip(names, new.parts, strict=True)):
        active = vec.active[first + p]
        if active != vec.width:
            mask = f"{st.prelude.count_mask(vec.width, new.dtype.bits)}({active})"
            text = f"{st.prelude.blend(vec.width, new.dtype)}({mask}, {text}, {name})"
        st.line(f"{name} = {text};")


def close_partial(st: State, key: Key) -> tuple[ex.Access, Val]:
    """Fold the accumulators into one scalar: (target, value)."""
    partial = st.partials.pop(key)
    dtype = compute_dtype(st.tensors[key.access.tensor].dtype)
    names = list(partial.names)
    while len(names) > 1:
        half = (len(names) + 1) // 2
        for i in range(len(names) - half):
            st.line(f"{names[i]} = {_fold(st, key, dtype, names[i], names[i + half])};")
        names = names[:half]
    fn = st.prelude.reduce(WORDS[key.op], key.width, dtype)
    return key.access, Val((f"{fn}({names[0]})",), dtype)


def _fold(st: State, key: Key, dtype: DType, a: str, b: str) -> str:
    if key.op in ("min", "max"):
        op = key.op if dtype.is_float else "hw" + key.op
        return f"{st.prelude.op(op, key.width, dtype, 2)}({a}, {b})"
    if dtype.is_float:
        return f"{a} {key.op} {b}"
    return st.prelude.wrapped(key.op, key.width, dtype, a, b)


__all__ = ["Key", "accumulate", "added_product", "close_partial", "conflicts", "lane_key", "open_partial", "openings"]
