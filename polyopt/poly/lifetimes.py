"""Lives of declared buffers, for the certificate of a LoopNest.

A buffer's life begins where it is declared and ends with the body that declares it: each iteration of the loops around has its own. Takes the
leaves of a nest (`poly/nest.py`) and the Scop. Proves that no value is handed on from one life to another; and finds, for each life, by how
much the nest moves the buffer's indices against the Scop's: a constant of the life, since a new buffer may keep its elements anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from ..errors import InternalError
from ..ir.affine import Affine, affine
from ..ir.expr import Access, Expr, loads, substitute_access
from ..ir.scop import Scop
from ..isl_ext import IN, OUT, maps_of, sample_map
from .convert import to_multi_aff
from .deps import compute_flow_through
from .nest import Leaf, guarded_loads

Life = tuple[str, int, tuple[int, ...]]  # buffer, how many loops stand around its declaration, the place of that declaration
Moves = Mapping[Life, tuple[Affine, ...]]


def life_of(x: Leaf, tensor: str) -> Life | None:
    """The life of a buffer that a leaf uses; None for a tensor that is declared nowhere around it."""
    for depth in reversed(range(len(x.declared))):
        if tensor in x.declared[depth]:
            return tensor, depth, x.declared[depth][tensor]
    return None


def find_moves(scop: Scop, leaves: list[Leaf]) -> Moves:
    """For each life, the index in the Scop less the index in the nest, as a function of the loops around the declaration."""
    out: dict[Life, tuple[Affine, ...]] = {}
    for x in leaves:
        write = x.instance.write
        life = life_of(x, write.tensor)
        if life is None or life in out or not write.is_affine:
            continue
        s = scop.statement(x.instance.statement)
        own = substitute_access(s.write, dict(zip(s.iters, x.instance.coords)))
        if own.tensor != write.tensor or not own.is_affine or len(own.indices) != len(write.indices):
            continue
        ranges = {loop.var: loop.range for loop in x.loops}  # only to find a simple form: whether it is right is asked at each access
        moved = tuple(p.simplify(ranges) - q for p, q in zip(own.affine_indices(), write.affine_indices(), strict=True))
        around = {*scop.params, *(loop.var for loop in x.loops[: life[1]])}
        if all(d.names() <= around for d in moved):
            out[life] = moved
    return out


def move(a: Access, x: Leaf, moves: Moves) -> Access:
    """An access of the Scop where the nest keeps that element."""
    life = life_of(x, a.tensor)
    if life is None or life not in moves or not a.is_affine:
        return a
    return Access(a.tensor, tuple(p - d for p, d in zip(a.affine_indices(), moves[life], strict=True)))


def prove_lives(scop: Scop, leaves: list[Leaf]) -> str:
    """Every value of a declared buffer is read within the life in which it was written.

    Seen at once where the nest writes each element that is read earlier in the same life, which runs without a break: then the last write does
    so too. Else the flow tells.
    """
    names = sorted({t for x in leaves for body in x.declared for t in body})
    by_name: dict[str, list[Leaf]] = {}
    for x in leaves:
        by_name.setdefault(x.instance.statement, []).append(x)
    for t in names:
        if _is_filled_first(leaves, t):
            continue
        for dep in maps_of(compute_flow_through(scop, t).intersect_params(scop.context)):
            for a, b, pairs in _pairs(dep, by_name):
                pairs = pairs.intersect_range(_reads_at(b, t))  # a load that is guarded against it is not evaluated
                life = life_of(a, t)
                if pairs.is_empty():
                    continue
                if life is None or life_of(b, t) != life:
                    _refuse(t, pairs, a, b)
                for d in range(life[1]):  # type: ignore[index]
                    for bad in (pairs.order_lt(IN, d, OUT, d), pairs.order_gt(IN, d, OUT, d)):
                        if not bad.is_empty():
                            _refuse(t, bad, a, b)
    return f"{len(names)} declared buffers hand no value from one life to another" if names else "no buffer is declared"


def _is_filled_first(leaves: list[Leaf], tensor: str) -> bool:
    """Whether each element of a buffer that is read was written before by a leaf further up, in the same iteration of all loops around both."""
    writers = [x for x in leaves if x.instance.write.tensor == tensor]
    if not all(x.instance.write.is_affine for x in writers):
        return False
    for y in leaves:
        life = life_of(y, tensor)
        for access, at in _reads(y, tensor):
            if life is None or not access.is_affine:
                return False
            left = at
            for depth in range(life[1], len(y.positions)):
                before = [x for x in writers if life_of(x, tensor) == life and _parts_at(x, y) == depth and x.positions[depth] < y.positions[depth]]
                if before:
                    left = left.subtract(_written(before, depth).preimage_multi_aff(_cells(y, access, depth)))
                if left.is_empty():
                    break
            else:
                return False
    return True


def _parts_at(x: Leaf, y: Leaf) -> int:
    """How many loops two leaves share."""
    return next((d for d, (p, q) in enumerate(zip(x.positions, y.positions)) if p != q), len(x.loops))


def _cells(x: Leaf, a: Access, depth: int) -> isl.MultiAff:
    """The values of the outer loop variables and the element, as a function of all loop variables."""
    outer = [affine(loop.var) for loop in x.loops[:depth]]
    return to_multi_aff([*outer, *a.affine_indices()], x.domain.get_space(), None, x.cols)


def _written(leaves: list[Leaf], depth: int) -> isl.Set:
    """What leaves write: values of the outer loop variables, then the element."""
    parts = [x.domain.apply(isl.Map.from_multi_aff(_cells(x, x.instance.write, depth))) for x in leaves]
    out = parts[0]
    for p in parts[1:]:
        out = out.union(p)
    return out


def _pairs(dep: isl.Map, by_name: Mapping[str, list[Leaf]]) -> Iterator[tuple[Leaf, Leaf, isl.Map]]:
    for a in by_name.get(dep.get_tuple_name(IN), ()):
        left = dep.preimage_domain_multi_aff(a.coordinates()).intersect_domain(a.domain)
        for b in by_name.get(dep.get_tuple_name(OUT), ()) if not left.is_empty() else ():
            pairs = left.preimage_range_multi_aff(b.coordinates()).intersect_range(b.domain)
            if not pairs.is_empty():
                yield a, b, pairs


def _reads_at(x: Leaf, tensor: str) -> isl.Set:
    """Where a leaf may read a tensor: by a load that is evaluated, or as an update."""
    out = isl.Set.empty(x.domain.get_space())
    for _, at in _reads(x, tensor):
        out = out.union(at)
    return out


def _reads(x: Leaf, tensor: str) -> Iterator[tuple[Access, isl.Set]]:
    """The reads of a tensor by a leaf, that of an update's own cell included, each with the points at which it may be evaluated."""
    if x.instance.reduction is not None and x.instance.write.tensor == tensor:
        yield x.instance.write, x.domain
    trees = [x.instance.expr, *(i for i in x.instance.write.indices if isinstance(i, Expr))]
    for tree in trees:
        if any(load.access.tensor == tensor for load in loads(tree)):
            yield from ((load.access, at) for load, at, _ in guarded_loads(tree, x.domain, x.cols) if load.access.tensor == tensor)


def _refuse(tensor: str, bad: isl.Map, a: Leaf, b: Leaf) -> None:
    found = sample_map(bad)
    raise InternalError(f"a value of {tensor} goes from {a.instance.statement} to {b.instance.statement}, beyond its declaration: {found}")
