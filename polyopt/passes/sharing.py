"""Proof that tensors which share a buffer never overwrite each other.

Takes a plan with storage and its facts; gives how many tensors share buffers, or raises `InternalError`. Each kernel's own certificate speaks
of buffers, after storage was chosen; what stands here is the step before: an element keeps its cell. Proven, with isl, for each buffer:
different elements of a tensor have different cells; a nest that stores to a cell of a tensor written before it, or to the zeros around that
one, only copies the cell onto itself; and what the nodes without a kernel would write stands there already, zeros included.
"""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from ..errors import InternalError
from ..ir.affine import Affine, var
from ..ir.expr import Load
from ..ir.graph import Plan
from ..isl_ext import max_operations, param_space
from ..ops.registry import Nest
from ..ops.structure import compose, dim_vars, params_of
from ..poly.access import box
from ..poly.convert import Columns, columns, to_aff, to_multi_aff
from .fusion_facts import Facts

BUDGET = 10_000_000  # isl operations for one plan


def prove_sharing(plan: Plan, facts: Facts) -> int:
    """How many tensors live in a buffer with others; InternalError where one would lose its values, OperationBudget where isl gives up."""
    position = {n.name: k for k, n in enumerate(n for g in plan.groups for n in g.nodes)}
    proof = _Proof(plan, facts, position)
    buffers: dict[str, list[str]] = {}
    for v, s in plan.storage.items():
        if v in facts.aliases:
            proof.check_alias(v)
        else:
            buffers.setdefault(s.buffer, []).append(v)
    shared = 0
    with max_operations(BUDGET):
        for roots in buffers.values():
            for v in roots:
                proof.check_injective(v)
            if len(roots) > 1:
                shared += len(roots)
                ordered = sorted(roots, key=proof.rank)
                for k, w in enumerate(ordered):
                    proof.check_writes(w, ordered[:k])
    return shared


@dataclass(frozen=True)
class _Proof:
    """The plan, and where each node that has a kernel stands in the order of execution."""

    plan: Plan
    facts: Facts
    position: dict[str, int]

    def rank(self, v: str) -> int:
        """When a tensor is complete: inputs first, then the nodes in order; a node without a kernel has no time of its own."""
        made = self.facts.producer.get(v)
        return -1 if made is None else self.position.get(made, len(self.position))

    def check_alias(self, v: str) -> None:
        """An alias finds its elements where its root has them."""
        alias, storage = self.facts.aliases[v], self.plan.storage
        base = storage.get(alias.root)
        if base is not None and storage[v].indices != compose(base.indices, alias.map, self.facts.shape(v)):
            self._fail(v, f"it is not where {alias.root} has its elements")

    def check_injective(self, v: str) -> None:
        """Different elements have different cells."""
        if self.plan.storage[v].indices != dim_vars(len(self.facts.shape(v))) and not self._cells(v).is_injective():
            self._fail(v, "two of its elements have one cell")

    def check_writes(self, w: str, earlier: list[str]) -> None:
        """Writing `w` changes no cell of the tensors that were written before it, nor the zeros around those."""
        made = self.facts.producer.get(w)
        if made is None:
            return
        border = self._border(w)
        values, zeros = [self._cells(r).range() for r in earlier], [self._border(r) for r in earlier]
        for cells in self._changed(w, made):
            if made not in self.position and not cells.is_empty():
                self._fail(w, f"node {made} has no kernel, but elements that it writes are not in place")
            for r, kept in zip((*earlier, *earlier), (*values, *zeros)):
                if not cells.is_disjoint(kept):
                    self._fail(w, f"node {made} overwrites {r}")
        if made in self.position:
            for r, kept in zip(earlier, values):
                if not border.is_disjoint(kept):
                    self._fail(w, f"its zeros overwrite {r}")
        elif not border.is_empty():
            written = isl.Set.empty(border.get_space())
            for z in zeros:
                written = written.union(z)
            if not border.is_subset(written):
                self._fail(w, "nothing writes the zeros around it")

    def _changed(self, w: str, made: str) -> list[isl.Set]:
        """For each nest of a node the cells of `w` that it stores to, without those that it copies onto themselves."""
        f = self.facts.nodes[made]
        nests = [n for n in f.nests if n.write.tensor == w]
        if not nests or not all(n.write.is_affine for n in nests):
            return [self._cells(w).range()]
        return [self._stored(n) for n in nests]

    def _stored(self, n: Nest) -> isl.Set:
        storage = self.plan.storage
        space = param_space(params_of([n], ())).add_unnamed_tuple_ui(len(n.iters))
        cols = columns(space, [i for i, _ in n.iters])
        domain = box(space, tuple(e for _, e in n.iters))
        zero = to_aff(0, space, cols)
        for c in n.where:
            domain = domain.intersect(to_aff(c, space, cols).ge_set(zero))
        writes = self._at(n.write.tensor, n.write.affine_indices(), domain, cols)
        if isinstance(n.expr, Load) and n.reduction is None and n.expr.access.is_affine:
            source = storage.get(n.expr.access.tensor)
            if source is not None and source.buffer == storage[n.write.tensor].buffer:
                reads = self._at(n.expr.access.tensor, n.expr.access.affine_indices(), domain, cols)
                writes = writes.subtract(reads)
        return writes.range()

    def _at(self, v: str, indices: tuple[Affine, ...], domain: isl.Set, cols: Columns) -> isl.Map:
        """From a domain to the cells of the elements of `v` with these indices."""
        values = {f"d{k}": x for k, x in enumerate(indices)}
        cells = tuple(x.substitute(values) for x in self.plan.storage[v].indices)
        return isl.Map.from_multi_aff(to_multi_aff(cells, domain.get_space(), None, cols)).intersect_domain(domain)

    def _cells(self, v: str, low: tuple[int, ...] = (), high: tuple[int, ...] = ()) -> isl.Map:
        """From the elements of a tensor to their cells; `low` and `high`: with so many zeros before and after in each dim."""
        shape = self.facts.shape(v)
        low, high = low or (0,) * len(shape), high or (0,) * len(shape)
        space = param_space(sorted({n for e in shape for n in e.names()})).add_unnamed_tuple_ui(len(shape))
        names = [f"d{k}" for k in range(len(shape))]
        domain = box(space, tuple(e + a + b for e, a, b in zip(shape, low, high)))
        shifted = tuple(var(d) - a for d, a in zip(names, low))
        return self._at(v, shifted, domain, columns(space, names))

    def _border(self, v: str) -> isl.Set:
        """The cells of the zeros around a tensor."""
        inner, halo = self._cells(v).range(), self.plan.storage[v].halo
        if not halo:
            return isl.Set.empty(inner.get_space())
        return self._cells(v, tuple(a for a, _ in halo), tuple(b for _, b in halo)).range().subtract(inner)

    def _fail(self, v: str, why: str) -> None:
        raise InternalError(f"storage of {v} in buffer {self.plan.storage[v].buffer}: {why}")
