"""Which tensors a loop nest reads and writes. Takes placed statements and the schedule; gives the role of each tensor; refuses locals that are
read before they are written. Both follow from one dataflow analysis: the reads that no write certainly comes before."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyopt.ir.expr import loads
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import SET, OperationBudget, max_operations, read_set

from .placed import Frame, Placed, access_map, smallest

FLOW_BUDGET = 20_000_000


def compute_roles(b: Frame, placed: Sequence[Placed], schedule: isl.Schedule) -> dict[str, str]:
    """The role of each tensor that is an argument or used; raises where a local is read before it is written."""
    space = b.context.get_space()
    reads, writes = isl.UnionMap.empty(space), isl.UnionMap.empty(space)
    written, read_tensors = set(), set()
    for p in placed:
        s = p.statement
        write = access_map(b, s, s.write).intersect_params(b.context)
        writes = writes.add_map(write)
        written.add(s.write.tensor)
        if s.reduction is not None:
            reads = reads.add_map(write)
            read_tensors.add(s.write.tensor)
        for load in loads(s.expr):
            reads = reads.add_map(access_map(b, s, load.access).intersect_params(b.context))
            read_tensors.add(load.access.tensor)
    orphans = _unwritten_reads(reads, writes, schedule)
    out: dict[str, str] = {}
    for name, t in b.tensors.items():
        if t.role == "local":
            if name in written | read_tensors:
                out[name] = "local"
                _check_defined(b, placed, name, orphans)
        elif name not in written:
            out[name] = "input"
        else:
            out[name] = "output" if _is_output(b, t, orphans, writes) else "inout"
    return out


def _unwritten_reads(reads: isl.UnionMap, writes: isl.UnionMap, schedule: isl.Schedule) -> isl.UnionMap | None:
    """The reads that no write of this nest certainly comes before (None where isl needs too long to tell)."""
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule(schedule)
    try:
        with max_operations(FLOW_BUDGET):
            return info.compute_flow().get_must_no_source()
    except OperationBudget:
        return None


def _cells(m: isl.UnionMap, tensor: str, rank: int) -> isl.Set | None:
    cells = m.range().get_set_list()
    for k in range(cells.n_set()):
        one = cells.get_at(k)
        if one.get_tuple_name() == tensor and one.dim(SET) == rank:
            return one
    return None


def _is_output(b: Frame, t: Tensor, orphans: isl.UnionMap | None, writes: isl.UnionMap) -> bool:
    """Whether every cell is written, and none is read before."""
    if orphans is None or _cells(orphans, t.name, len(t.shape)) is not None:
        return False
    dims = [f"o{k}" for k in range(len(t.shape))]
    box = " and ".join(f"0 <= {d} < {x}" for d, x in zip(dims, t.shape)) or "true"
    whole = read_set(f"{b.head}{{ {t.name}[{', '.join(dims)}] : {box} }}").intersect_params(b.context)
    done = _cells(writes, t.name, len(t.shape))
    return done is not None and bool(whole.is_subset(done))


def _check_defined(b: Frame, placed: Sequence[Placed], name: str, orphans: isl.UnionMap | None) -> None:
    if orphans is None:
        return
    for p in placed:
        s = p.statement
        own = [s.write] if s.reduction is not None else []
        for a in [*own, *(x.access for x in loads(s.expr) if x is not p.kept and x.access.is_affine)]:
            if a.tensor != name:
                continue
            bad = isl.UnionMap.from_map(access_map(b, s, a)).intersect(orphans).domain()
            if bad.is_empty():
                continue
            point = smallest(b, isl.Set.from_union_set(bad))
            where = ", ".join(f"{k}={v}" for k, v in point.items() if k)
            raise b.src.refuse(
                p.node, f"`{a if a.indices else name}` is read before it is written{' at ' + where if where else ''}: initialise it first, or "
                "state by `assert …` at the top of the function that these sizes do not occur"
            )  # fmt: skip
