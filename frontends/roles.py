"""Which tensors a loop nest reads and writes. Takes placed statements and the schedule; gives the role of each tensor; refuses locals that are
read before they are written. Both ask isl's dataflow analysis, tensor by tensor, for the reads that no write certainly comes before.

The analysis runs under a budget. Where it does not end, a written argument is inout, which is always right, and a local is not checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyopt.ir.expr import Access, loads
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import OperationBudget, max_operations, read_set

from .placed import Frame, Placed, access_map, smallest

FLOW_BUDGET = 3_000_000


def compute_roles(b: Frame, placed: Sequence[Placed], schedule: isl.Schedule) -> dict[str, str]:
    """The role of each tensor that is an argument or used; raises where a local is read before it is written."""
    written = {p.statement.write.tensor for p in placed}
    read = {a.tensor for p in placed for a in _reads(p)}
    out: dict[str, str] = {}
    for name, t in b.tensors.items():
        if t.role == "local":
            if name in written | read:
                out[name] = "local"
            if name in read:
                _check_defined(b, placed, name, schedule)
        elif name not in written:
            out[name] = "input"
        else:
            out[name] = "output" if _is_output(b, placed, t, schedule) else "inout"
    return out


def _reads(p: Placed, genuine: bool = False) -> list[Access]:
    """The cells that a statement reads; `genuine`: without the old value that a guard keeps, and without indirect ones."""
    s = p.statement
    own = [s.write] if s.reduction is not None else []
    return own + [x.access for x in loads(s.expr) if not genuine or (x is not p.kept and x.access.is_affine)]


def _maps(b: Frame, placed: Sequence[Placed], tensor: str) -> tuple[isl.UnionMap, isl.UnionMap]:
    """All reads and all writes of a tensor."""
    reads, writes = isl.UnionMap.empty(b.context.get_space()), isl.UnionMap.empty(b.context.get_space())
    for p in placed:
        for a in dict.fromkeys(_reads(p)):
            if a.tensor == tensor:
                reads = reads.add_map(access_map(b, p.statement, a).intersect_params(b.context))
        if p.statement.write.tensor == tensor:
            writes = writes.add_map(access_map(b, p.statement, p.statement.write).intersect_params(b.context))
    return reads, writes


def _unwritten_reads(reads: isl.UnionMap, writes: isl.UnionMap, schedule: isl.Schedule) -> isl.UnionMap | None:
    """The reads that no write of this nest certainly comes before; None where isl cannot tell in time."""
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes)
    try:
        with max_operations(FLOW_BUDGET):
            return info.set_schedule(schedule).compute_flow().get_must_no_source()
    except OperationBudget:
        return None
    except isl.Error:  # isl fails on some strided trees ("affine expression involves some of the domain dimensions")
        return None


def _is_output(b: Frame, placed: Sequence[Placed], t: Tensor, schedule: isl.Schedule) -> bool:
    """Whether every cell is written, and none is read before."""
    reads, writes = _maps(b, placed, t.name)
    dims = [f"o{k}" for k in range(len(t.shape))]
    box = " and ".join(f"0 <= {d} < {x}" for d, x in zip(dims, t.shape)) or "true"
    whole = isl.UnionSet.from_set(read_set(f"{b.head}{{ {t.name}[{', '.join(dims)}] : {box} }}").intersect_params(b.context))
    if not whole.is_subset(writes.range()):
        return False
    orphans = _unwritten_reads(reads, writes, schedule)
    return orphans is not None and bool(orphans.is_empty())


def _check_defined(b: Frame, placed: Sequence[Placed], name: str, schedule: isl.Schedule) -> None:
    orphans = _unwritten_reads(*_maps(b, placed, name), schedule)
    if orphans is None or orphans.is_empty():
        return
    for p in placed:
        for a in _reads(p, genuine=True):
            if a.tensor != name:
                continue
            bad = isl.UnionMap.from_map(access_map(b, p.statement, a)).intersect(orphans).domain()
            if bad.is_empty():
                continue
            point = smallest(b, isl.Set.from_union_set(bad))
            where = ", ".join(f"{k}={v}" for k, v in point.items())
            raise b.src.refuse(
                p.node, f"`{a if a.indices else name}` is read before it is written{' at ' + where if where else ''}: initialise it first, or "
                "state by `assert …` at the top of the function that these sizes do not occur"
            )  # fmt: skip
