"""Decisions before the text: which vector loops run on vectors, how wide a chunk is, and what each local buffer becomes.

Takes an unrolled LoopNest; gives the nest with impossible vector loops turned into plain ones, and a `Plan`. A vector loop of L lanes is
emitted in chunks of W lanes, W the ISA's lanes for the widest element type in it, so that no vector exceeds the ISA's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, Range, var
from polyopt.ir.dtype import DType, f32
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch, Recurrence, recurrence_along, walk
from polyopt.ir.tensor import Tensor
from polyopt.target import Isa

from .accumulators import hold_accumulators
from .offsets import INT_MAX, product
from .unroll import loop_range

STACK_LIMIT = 16 << 10
NAMES_LIMIT = 1024
POWERS = {"f32": 100, "f64": 900}  # exponents that the powers of a recurrence's factor must stay below


@dataclass(frozen=True)
class Local:
    """What a local buffer becomes. kind: names (scalar locals), vectors (vector locals, `lanes` wide), private (one vector element per
    lane of the vector loop that declares it), array (on the stack) or scratch. `slots`: the constant indices in use (of vectors, the last
    index counts vectors). A private buffer without slots is an array of vectors."""

    kind: str
    lanes: int = 0
    slots: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """`chunk`: lanes per vector of each vector loop, by identity of the loop node; `locals` by tensor name."""

    chunk: dict[int, int]
    locals: dict[str, Local]


@dataclass(frozen=True)
class Use:
    """One access with the vector loop around it."""

    access: ex.Access
    loop: Loop | None


def compute_dtype(t: DType) -> DType:
    """The type that values of a storage type are computed in."""
    return f32 if t.name in ("f16", "bf16") else t


def prepare(nest: LoopNest, isa: Isa, fp: str) -> tuple[LoopNest, Plan]:
    """Decide vector loops and local buffers."""
    tensors = {t.name: t for t in nest.tensors}
    ranges = dict(nest.param_ranges)
    body = tuple(_settle(n, tensors, isa, fp, False) for n in nest.body)
    nest = hold_accumulators(replace(nest, body=body))
    chunk: dict[int, int] = {}
    _chunks(nest.body, isa, ranges, chunk)
    declared = {d.tensor: vec for d, vec in _declares(nest.body, None)}
    uses: dict[str, list[Use]] = {}
    for u in _uses(nest.body, None):
        uses.setdefault(u.access.tensor, []).append(u)
    locals_ = {
        t.name: _local(t, uses.get(t.name, []), declared.get(t.name), chunk) for t in nest.tensors if t.role == "local"
    }
    return nest, Plan(chunk, locals_)


# ---- which loops run on vectors
def _settle(n: LoopNode, tensors: dict[str, Tensor], isa: Isa, fp: str, inside: bool) -> LoopNode:
    if isinstance(n, If):
        return replace(n, body=tuple(_settle(b, tensors, isa, fp, inside) for b in n.body),
                       orelse=tuple(_settle(b, tensors, isa, fp, inside) for b in n.orelse))  # fmt: skip
    if not isinstance(n, Loop):
        return n
    vector = n.mark == "vector" and not inside and isa.bytes > 0 and _is_vectorizable(n, tensors, fp)
    mark = n.mark if n.mark != "vector" else "vector" if vector else ""
    body = tuple(_settle(b, tensors, isa, fp, inside or vector) for b in n.body)
    return replace(n, body=body, mark=mark)


def _is_vectorizable(loop: Loop, tensors: dict[str, Tensor], fp: str) -> bool:
    if loop.lanes < 2 or loop.step != 1:
        return False
    private = {d.tensor for d in walk(loop.body) if isinstance(d, Declare)}
    if any(product(tensors[p].shape) is None or (product(tensors[p].shape) or 0) > NAMES_LIMIT for p in private):
        return False
    for n in walk(loop.body):
        if isinstance(n, Loop) and any(loop.var in b.names() for b in n.lower + n.upper):
            return False
        if isinstance(n, If) and _depends(n.cond, loop.var):
            return False
        if isinstance(n, Instance) and not _instance_ok(n, loop, private, tensors, fp):
            return False
    return True


def _all_loads(n: Instance) -> tuple[ex.Load, ...]:
    inner = tuple(y for x in n.write.indices if isinstance(x, ex.Expr) for y in ex.loads(x))
    return ex.loads(n.expr) + inner


def _instance_ok(n: Instance, loop: Loop, private: set[str], tensors: dict[str, Tensor], fp: str) -> bool:
    if n.write.tensor in private:
        return not any(_index_depends(x, loop.var) for x in n.write.indices)
    if any(_index_depends(x, loop.var) for x in n.write.indices):
        if n.reduction is None:
            before = ex.substitute_access(n.write, {loop.var: var(loop.var) - 1})
            carried = any(x.access == before for x in _all_loads(n))
            return not carried or (scan_along(n, loop, tensors, fp) is not None and _writes(loop, n.write.tensor) == 1)
        return all(isinstance(x, Affine) and x.is_linear_in(loop.var) for x in n.write.indices)
    exact = not compute_dtype(tensors[n.write.tensor].dtype).is_float
    if tensors[n.write.tensor].dtype.kind == "b":
        return False
    own = any(x.access == n.write for x in _all_loads(n))  # other reads of the tensor are of other cells: the loop carries no dependence
    return n.reduction in ("+", "*", "min", "max") and (exact or fp != "strict") and not own and n.write.is_affine


def _writes(loop: Loop, tensor: str) -> int:
    return sum(isinstance(n, Instance) and n.write.tensor == tensor for n in walk(loop.body))


def scan_along(n: Instance, loop: Loop, tensors: dict[str, Tensor], fp: str) -> Recurrence | None:
    """The linear recurrence of an instance that may run as a scan in a vector loop; None where it is none or its powers leave the type's range."""
    r, name = recurrence_along(n, loop.var), tensors[n.write.tensor].dtype.name
    if r is None or fp == "strict" or name not in POWERS or r.factor == 0.0:
        return None
    return r if abs(math.log2(abs(r.factor))) * min(loop.lanes, 16) < POWERS[name] else None


def _index_depends(x: ex.Index, var: str) -> bool:
    return var in x.names() if isinstance(x, Affine) else _depends(x, var)


def _depends(e: ex.Expr, var: str) -> bool:
    for x in ex.walk(e):
        if isinstance(x, ex.IndexValue) and var in x.index.names():
            return True
        if isinstance(x, ex.Load) and any(isinstance(i, Affine) and var in i.names() for i in x.access.indices):
            return True
    return False


# ---- how wide a chunk is
def narrow_index(e: ex.Expr, ranges: dict[str, Range]) -> bool:
    """Whether an index value or integer constant provably fits 32 bits."""
    if isinstance(e, ex.IndexValue):
        lo, hi = e.index.bounds(ranges)
        return lo is not None and hi is not None and lo >= -INT_MAX and hi <= INT_MAX
    return isinstance(e, ex.Const) and e.dtype.is_integer and abs(int(e.value)) <= INT_MAX


def _sizes(e: ex.Expr, ranges: dict[str, Range]) -> Iterator[int]:
    """Bytes of the vector values that an expression computes (indirect indices are evaluated lane by lane)."""
    if isinstance(e, ex.Load):
        yield compute_dtype(e.dtype).bytes
        return
    if isinstance(e, ex.Compare | ex.Cast) and all(narrow_index(c, ranges) for c in e.children()):
        yield 4
    else:
        for c in e.children():
            yield from _sizes(c, ranges)
    if not isinstance(e, ex.Compare):
        yield compute_dtype(e.dtype).bytes


def _chunks(nodes: tuple[LoopNode, ...], isa: Isa, ranges: dict[str, Range], out: dict[int, int]) -> None:
    for n in nodes:
        if isinstance(n, If):
            _chunks(n.body + n.orelse, isa, ranges, out)
        elif isinstance(n, Loop):
            inner = {**ranges, n.var: loop_range(n, ranges)}
            if n.mark == "vector":
                sizes = list(_loop_sizes(n.body, inner))
                width = 2
                while width * 2 <= isa.bytes // max(sizes, default=4) and width < n.lanes:
                    width *= 2
                out[id(n)] = width
            _chunks(n.body, isa, inner, out)


def _loop_sizes(nodes: tuple[LoopNode, ...], ranges: dict[str, Range]) -> Iterator[int]:
    for n in nodes:
        if isinstance(n, Instance):
            yield from _sizes(n.expr, ranges)
        elif isinstance(n, If):
            yield from _loop_sizes(n.body + n.orelse, ranges)
        elif isinstance(n, Loop):
            yield from _loop_sizes(n.body, {**ranges, n.var: loop_range(n, ranges)})


# ---- what local buffers become
def _declares(nodes: tuple[LoopNode, ...], vec: Loop | None) -> Iterator[tuple[Declare, Loop | None]]:
    for n in nodes:
        if isinstance(n, Declare):
            yield n, vec
        elif isinstance(n, Loop):
            yield from _declares(n.body, n if n.mark == "vector" else vec)
        elif isinstance(n, If):
            yield from _declares(n.body + n.orelse, vec)


def _uses(nodes: tuple[LoopNode, ...], vec: Loop | None) -> Iterator[Use]:
    for n in nodes:
        if isinstance(n, Instance):
            yield Use(n.write, vec)
            for x in _all_loads(n):
                yield Use(x.access, vec)
        elif isinstance(n, Prefetch):
            yield Use(n.access, vec)
        elif isinstance(n, Loop):
            yield from _uses(n.body, n if n.mark == "vector" else vec)
        elif isinstance(n, If):
            yield from _uses(n.body + n.orelse, vec)


def _local(t: Tensor, uses: list[Use], private_to: Loop | None, chunk: dict[int, int]) -> Local:
    elements = product(t.shape)
    const = all(u.access.is_affine and all(i.is_const for i in u.access.affine_indices()) for u in uses)
    if private_to is not None:
        slots = _slots(tuple(int(i) for i in u.access.affine_indices()) for u in uses) if const else ()
        return Local("private", chunk[id(private_to)], slots)
    if t.scope != "registers" or elements is None or elements * t.dtype.bytes > STACK_LIMIT:
        return Local("scratch")
    if elements <= NAMES_LIMIT and t.dtype == compute_dtype(t.dtype):
        if const:
            return Local("names", 0, _slots(tuple(int(i) for i in u.access.affine_indices()) for u in uses))
        widths = {chunk[id(u.loop)] if u.loop is not None else 0 for u in uses}
        if t.shape and t.dtype.kind != "b" and len(widths) == 1 and 0 not in widths:
            width = widths.pop()
            bases = [vector_slot(u.access, u.loop, width) for u in uses]
            if None not in bases:
                return Local("vectors", width, _slots(_vector_slots(uses, bases, width)))
    return Local("array")


def _slots(keys: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(set(keys)))


def _vector_slots(uses: list[Use], bases: list[tuple[int, ...] | None], width: int) -> Iterator[tuple[int, ...]]:
    for u, base in zip(uses, bases, strict=True):
        assert base is not None and u.loop is not None
        lanes = u.loop.lanes if u.loop.trip is None else u.loop.trip
        for p in range(-(-lanes // width)):
            yield (*base[:-1], base[-1] // width + p)


def vector_slot(access: ex.Access, loop: Loop | None, width: int) -> tuple[int, ...] | None:
    """The constant indices of a whole-vector access, the last one at the loop's first lane; None where it is not one."""
    if loop is None or not loop.is_strip or not access.is_affine or len(loop.lower) != 1:
        return None
    *outer, last = access.affine_indices()
    if any(not i.is_const for i in outer) or not last.is_linear_in(loop.var) or last.coefficient(loop.var) != 1:
        return None
    base = last.substitute({loop.var: loop.lower[0]})
    if not base.is_const or base.const % width:
        return None
    return (*(i.const for i in outer), base.const)
