"""A group as nests over buffers, before isl: the key by which equal kernels are found.

Takes a plan with storage and one of its groups; gives a `Kernel` whose names are canonical (t0, t1, … in order of first use), so that
equal groups give equal values, and the buffers that its arguments are. Iterators and dims of extent 1 are gone and dims that are
always walked together are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..errors import InternalError
from ..ir.affine import affine, var
from ..ir.dtype import DType
from ..ir.expr import Access, Const, Expr, Load, loads, rewrite
from ..ir.graph import Graph, Group, Plan, Shape, Storage
from ..ir.tensor import Tensor
from ..ops.registry import Nest
from ..ops.structure import accesses_of, define, factors, is_identity, map_accesses, params_of, rename_iters, simplify_nest
from .collapse import collapse
from .inline import merge_nests
from .physical import border_nests, drop_single, is_noop, place_nests, split_blocks


@dataclass(frozen=True)
class Kernel:
    """Nests over canonical tensors. `args[i]` is the buffer or constant that argument tensor i is; equal `key`s give equal code."""

    name: str
    params: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    nests: tuple[Nest, ...]
    args: tuple[str, ...]

    @property
    def key(self) -> object:
        """What the code depends on."""
        return self.params, self.tensors, self.nests


def lower_group(plan: Plan, group: Group) -> Kernel:
    """The kernel of a group."""
    graph, storage = plan.graph, plan.storage
    nests, local_types = _gather(graph, group)
    types = {**_types(graph, group), **local_types}
    keep = frozenset(group.outputs)
    merged = _aligned(merge_nests(nests, types, keep))
    placed = place_nests(merged, storage, graph)
    for v in group.outputs:
        if storage[v].halo and any(n.write.tensor == v for n in merged):
            dtype, shape = types[v]
            placed += place_nests(border_nests(v, dtype, shape, storage[v]), storage, graph)
    if not any(factors(n) for n in placed):
        placed = split_blocks(placed)
    placed = tuple(n for n in (simplify_nest(drop_single(n)) for n in placed) if not is_noop(n))
    return _canonical(group, graph, placed, _buffers(graph, group, storage, local_types))


def _gather(graph: Graph, group: Group) -> tuple[list[Nest], dict[str, tuple[DType, Shape]]]:
    """All nests of the group in order, and its nodes' locals; constants of one element become literals."""
    nests: list[Nest] = []
    local_types: dict[str, tuple[DType, Shape]] = {}
    for node in group.nodes:
        d = define(graph, node)
        if d is None:
            raise InternalError(f"node {node.name} ({node.op}) has no affine form and cannot be lowered as loops")
        nests += [_literals(n, graph) for n in d.nests]
        local_types |= {t.name: (t.dtype, t.shape) for t in d.locals}
    return nests, local_types


def _literals(n: Nest, graph: Graph) -> Nest:
    from_constants = {x.access.tensor for x in loads(n.expr)} & set(graph.constants)
    single = {t: graph.constants[t].reshape(-1)[0] for t in from_constants if graph.constants[t].size == 1}
    if not single:
        return n

    def visit(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.access.tensor in single:
            x = single[e.access.tensor]
            return None if e.dtype.is_float and np.isnan(x) else Const(float(x) if e.dtype.is_float else x.item(), e.dtype)
        return None

    return replace(n, expr=rewrite(n.expr, visit))


def _types(graph: Graph, group: Group) -> dict[str, tuple[DType, Shape]]:
    out: dict[str, tuple[DType, Shape]] = {}
    for v in (*group.inputs, *(o for n in group.nodes for o in n.outputs if o)):
        value = graph.values[v]
        if value.dtype is None or value.shape is None:
            raise InternalError(f"tensor {v} has no dtype or shape")
        out[v] = (value.dtype, value.shape)
    return out


def _aligned(nests: tuple[Nest, ...]) -> tuple[Nest, ...]:
    """Map nests that follow or start a reduction use the reduction's iterator names, dim by dim of the tensor that both write."""
    names: dict[str, list[str | None]] = {}
    for n in nests:
        if n.reduction and n.write.is_affine:
            ones = {i: affine(0) for i, e in n.iters if e == affine(1)}
            at = [x.substitute(ones) for x in n.write.affine_indices()]
            if all(x == affine(0) or (len(x.terms) == 1 and x == var(str(x.terms[0][0]))) for x in at):
                names.setdefault(n.write.tensor, [str(x) if x.terms else None for x in at])
    out = []
    for n in nests:
        wanted = names.get(n.write.tensor)
        if wanted and n.reduction is None and is_identity(n.write.indices, n.iters) and len(wanted) == len(n.iters):
            n = rename_iters(n, {i: w or f"{i}_" for (i, _), w in zip(n.iters, wanted)})
        out.append(n)
    return tuple(out)


@dataclass(frozen=True)
class _Buffer:
    dtype: DType
    shape: Shape
    role: str


def _buffers(graph: Graph, group: Group, storage: Mapping[str, Storage], local_types: Mapping[str, tuple[DType, Shape]]) -> dict[str, _Buffer]:
    """What each name in the placed nests is: buffers of stored tensors, constants, and locals."""
    out = {t: _Buffer(d, s, "local") for t, (d, s) in local_types.items()}
    for n in group.nodes:
        for o in n.outputs:
            value = graph.values.get(o)
            if value is not None and o not in storage and value.dtype is not None and value.shape is not None:
                out[o] = _Buffer(value.dtype, value.shape, "local")
    for v in (*group.inputs, *group.outputs):
        s, dtype = storage[v], graph.values[v].dtype
        assert dtype is not None
        role = "constant" if s.buffer in graph.constants else "output" if v in group.outputs else "input"
        if s.buffer in out and out[s.buffer].role != role:
            role = "inout"
        out[s.buffer] = _Buffer(dtype, s.shape, role)
    return out


def _canonical(group: Group, graph: Graph, nests: tuple[Nest, ...], buffers: Mapping[str, _Buffer]) -> Kernel:
    nests, shapes = _squeezed(nests, {b: x.shape for b, x in buffers.items()})
    nests, shapes = collapse(nests, shapes, frozenset())
    order = dict.fromkeys(a.tensor for n in nests for a in accesses_of(n))
    arguments = [b for b in order if buffers[b].role != "local"]
    new = {b: f"t{k}" for k, b in enumerate(arguments)}
    new |= {b: f"l{k}" for k, b in enumerate(b for b in order if buffers[b].role == "local")}
    nests = tuple(map_accesses(n, lambda a: Access(new[a.tensor], a.indices)) for n in nests)
    tensors = tuple(Tensor(new[b], buffers[b].dtype, shapes[b], buffers[b].role) for b in new)
    return Kernel(group.name, params_of(nests, tensors), tensors, nests, tuple(arguments))


def _squeezed(nests: tuple[Nest, ...], shapes: Mapping[str, Shape]) -> tuple[tuple[Nest, ...], dict[str, Shape]]:
    """Dims of extent 1 are left out (a tensor keeps at least one dim)."""
    kept: dict[str, list[int]] = {}
    for t, s in shapes.items():
        kept[t] = [k for k, e in enumerate(s) if e != affine(1)]

    def squeeze(a: Access) -> Access:
        idx = tuple(a.indices[k] for k in kept[a.tensor])
        return Access(a.tensor, idx or (affine(0),))

    out = {t: tuple(s[k] for k in kept[t]) or (affine(1),) for t, s in shapes.items()}
    return tuple(map_accesses(n, squeeze) for n in nests), out
