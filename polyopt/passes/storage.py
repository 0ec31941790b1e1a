"""Choose where each tensor lives: blocked channels and zero borders for convolutions, shared buffers for reshapes and concatenations.

Takes a fusion plan; gives the plan with `storage`, without the groups that have become no-ops, and with a copy before each contraction that
reads a model input beyond its border. Model outputs are dense in their own buffer. A concatenation or padding costs nothing for
each piece that can be computed right where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..ir.affine import Affine, affine, var
from ..ir.expr import Load
from ..ir.graph import Group, Node, Plan, Shape, Storage, Value
from ..isl_ext import OperationBudget
from ..ops.registry import Nest
from ..ops.structure import Map, compose, dim_vars, droppable, factors, floors, padding_tests
from ..options import Options
from .fusion_facts import Facts, find_facts
from .sharing import prove_sharing
from .storage_blocked import BLOCK, blocked_roots

Halo = tuple[tuple[int, int], ...]


def choose_storage(plan: Plan, options: Options) -> Plan:
    """The plan with the storage of each tensor that lives in memory."""
    plan = _pad_inputs(plan)
    facts = find_facts(plan.graph)
    c = _Chooser(plan, facts, blocked_roots(plan, facts), _halos(facts))
    for v in (*(v for g in plan.groups for v in (*g.inputs, *g.outputs)), *plan.graph.outputs):
        c.of(v)
    groups = tuple(g for g in plan.groups if not c.is_empty(g))
    plan = replace(plan, groups=groups, storage=dict(c.done))
    with suppress(OperationBudget):  # the certificate says so
        prove_sharing(plan, facts)
    return plan


# ---- zero borders
def _halos(facts: Facts) -> dict[str, Halo]:
    """The zeros that contractions with constant finite factors read around each computed tensor."""
    out: dict[str, list[tuple[int, int]]] = {}
    for f in facts.nodes.values():
        for n in f.nests if f.is_contraction else ():
            for x in factors(n) or ():
                v = x.access.tensor
                if v in facts.producer and droppable(n, x, facts.graph):
                    now = out.setdefault(v, [(0, 0)] * len(facts.shape(v)))
                    for k, low, high in padding_tests(n, x, facts.shape(v)).values():
                        now[k] = (max(now[k][0], low), max(now[k][1], high))
    return {v: tuple(h) for v, h in out.items() if any(a or b for a, b in h)}


def _pad_inputs(plan: Plan) -> Plan:
    """Copy each model input that a contraction reads beyond its border, so that the copy can have a zero border."""
    graph, facts = plan.graph, find_facts(plan.graph)
    wanted = {
        x.access.tensor: None
        for f in facts.nodes.values()
        for n in f.nests
        for x in factors(n) or ()
        if x.access.tensor in graph.inputs and droppable(n, x, graph)
    }
    if not wanted:
        return plan
    values, copies, new = dict(graph.values), [], {}
    for v in wanted:
        name = f"{v}__padded"
        new[v] = name
        values[name] = Value(name, graph.values[v].dtype, graph.values[v].shape)
        copies.append(Node(name, "Identity", (v,), (name,)))

    def moved(n: Node) -> Node:
        reads = any(x.access.tensor in new for m in facts.nodes[n.name].nests for x in factors(m) or ())
        return replace(n, inputs=tuple(new.get(i, i) for i in n.inputs)) if reads else n

    nodes = tuple(moved(n) for n in graph.nodes)
    by_name = {n.name: n for n in nodes}
    groups = [Group(c.name, (c,), c.inputs, c.outputs) for c in copies]
    for g in plan.groups:
        ns = tuple(by_name[n.name] for n in g.nodes)
        still = {i for n in ns for i in n.inputs}
        inputs = dict.fromkeys(w for i in g.inputs for w in ((i,) if i in still else ()) + ((new[i],) if i in new else ()))
        groups.append(replace(g, nodes=ns, inputs=tuple(w for w in inputs if w in still)))
    return replace(plan, graph=replace(graph, values=values, nodes=(*copies, *nodes)), groups=tuple(groups))


# ---- the storage of each tensor
@dataclass
class _Chooser:
    """Resolves storages root by root; `done` also holds aliases."""

    plan: Plan
    facts: Facts
    blocked: frozenset[str]
    halos: Mapping[str, Halo]
    done: dict[str, Storage] = field(default_factory=dict)
    homes: dict[str, tuple[str, Map]] = field(init=False)

    def __post_init__(self) -> None:
        self.homes = self._homes()

    def of(self, v: str) -> Storage:
        """The storage of a tensor: a root's own, an alias's through its map."""
        if v in self.done:
            return self.done[v]
        alias = self.facts.aliases.get(v)
        if alias is None:
            s = self._root(v)
        else:
            base = self.of(alias.root)
            s = Storage(base.buffer, compose(base.indices, alias.map, self.facts.shape(v)), base.shape)
        self.done[v] = s
        return s

    def _root(self, v: str) -> Storage:
        facts, shape = self.facts, self.facts.shape(v)
        if v not in facts.producer or v in facts.graph.outputs:
            return Storage(v, dim_vars(len(shape)), shape)
        pinned = next((m for m in facts.members.get(v, ()) if m in facts.graph.outputs), None)
        if pinned is not None:
            return Storage(pinned, self._inverse(pinned), facts.shape(pinned))
        if v in self.homes:
            whole, place = self.homes[v]
            base = self.of(whole)
            return Storage(base.buffer, compose(base.indices, place, shape), base.shape, base.halo and self._piece_halo(v, base))
        halo = self.halos.get(v, ())
        if v in self.blocked:
            return blocked_storage(v, shape, halo)
        if halo:
            at = tuple(d + lo for d, (lo, _) in zip(dim_vars(len(shape)), halo))
            return Storage(v, at, tuple(e + lo + hi for e, (lo, hi) in zip(shape, halo)), halo)
        return self._dense(v, shape)

    def _dense(self, v: str, shape: Shape) -> Storage:
        """Row-major in the shape, of the tensor or of an alias of it, that gives the simplest indices to writer and readers."""
        facts = self.facts
        family = [v, *facts.members.get(v, ())]
        read = [m for m in family if any(u not in facts.alias_nodes for u in facts.readers.get(m, ()))]
        best: tuple[int, int] | None = None
        chosen = Storage(v, dim_vars(len(shape)), shape)
        for k, m in enumerate(family):
            if m != v and facts.aliases[m].inverse is None:
                continue
            base = dim_vars(len(shape)) if m == v else self._inverse(m)
            cost = floors(base) + sum(
                floors(compose(base, facts.aliases[r].map, facts.shape(r))) for r in read if r != v
            )  # fmt: skip
            if best is None or (cost, k) < best:
                best, chosen = (cost, k), Storage(v, base, facts.shape(m))
        return chosen

    def _inverse(self, m: str) -> Map:
        inverse = self.facts.aliases[m].inverse
        assert inverse is not None
        return inverse

    # ---- pieces of a concatenation
    def _homes(self) -> dict[str, tuple[str, Map]]:
        """Roots that can be computed inside the tensor that they are a piece of: root -> (whole, index in the whole)."""
        facts = self.facts
        out: dict[str, tuple[str, Map]] = {}
        pinned = {facts.root(v) for v in facts.graph.outputs}
        for f in facts.nodes.values():
            if f.kind != "pieces":
                continue
            for n in f.nests:
                placed = self._place(n)
                if placed is not None and placed[0] not in pinned and placed[0] not in out:
                    out[placed[0]] = (n.write.tensor, placed[1])
        return out

    def _place(self, n: Nest) -> tuple[str, Map] | None:
        """For a nest that copies all of a computed tensor: its root, and where the root's elements go."""
        facts = self.facts
        if not isinstance(n.expr, Load) or n.where or not n.expr.access.is_affine or not n.write.is_affine:
            return None
        v, whole = n.expr.access.tensor, n.write.tensor
        root = facts.root(v)
        if root not in facts.producer or facts.nodes[facts.producer[root]].kind == "opaque" or root == facts.root(whole):
            return None
        shape = facts.shape(v)
        values = _walked(n, n.expr.access.affine_indices(), shape)
        if values is None:
            return None
        place = tuple(x.substitute(values) for x in n.write.affine_indices())
        if v != root:
            inverse = facts.aliases[v].inverse
            if inverse is None:
                return None
            place = compose(place, inverse, facts.shape(root))
        return (root, place) if self._agrees(root, whole, place) else None

    def _agrees(self, root: str, whole: str, place: Map) -> bool:
        """Whether a piece and the whole want the same layout, and the piece begins at a whole block."""
        if root in self.halos and not (whole in self.halos and self._covers(root, whole)):
            return False
        if (root in self.blocked) != (whole in self.blocked):
            return False
        halo, mine, of = self.halos.get(whole, ()), self.facts.shape(root), self.facts.shape(whole)
        if halo and len(mine) != len(of):
            return False
        for k, zeros in enumerate(halo):
            if zeros != (0, 0) and (place[k] != dim_vars(len(place))[k] or mine[k] != of[k]):
                return False
        return whole not in self.blocked or place[1].const % BLOCK == 0

    def _covers(self, root: str, whole: str) -> bool:
        return all(a <= c and b <= d for (a, b), (c, d) in zip(self.halos[root], self.halos[whole]))

    def _piece_halo(self, v: str, base: Storage) -> Halo:
        """The border that a piece's own group writes: the whole's, since only dims that the piece spans have one."""
        return base.halo if len(base.halo) == len(self.facts.shape(v)) else ()

    # ---- groups that do nothing
    def is_empty(self, g: Group) -> bool:
        """Whether all of the group's nests copy elements onto themselves."""
        nests = [n for node in g.nodes for n in self.facts.nodes[node.name].nests]
        if not nests or any(self.facts.nodes[n.name].kind == "opaque" for n in g.nodes):
            return False
        for n in nests:
            if not isinstance(n.expr, Load) or n.write.tensor not in g.outputs or n.expr.access.tensor not in self.done:
                return False
            root = self.facts.root(n.expr.access.tensor)
            if self.homes.get(root, ("",))[0] != n.write.tensor:
                return False
            if not self._same_cell(n):
                return False
        return True

    def _same_cell(self, n: Nest) -> bool:
        """Whether the nest reads the very element that it writes."""
        assert isinstance(n.expr, Load)
        ranges = {i: (0, e.const - 1 if e.is_const else None) for i, e in n.iters}

        def cell(tensor: str, indices: tuple[Affine, ...]) -> tuple[Affine, ...]:
            values = {f"d{k}": x for k, x in enumerate(indices)}
            return tuple(x.substitute(values).simplify(ranges) for x in self.of(tensor).indices)

        read, write = n.expr.access, n.write
        return self.of(read.tensor).buffer == self.of(write.tensor).buffer and cell(read.tensor, read.affine_indices()) == cell(
            write.tensor, write.affine_indices()
        )


def _walked(n: Nest, source: Map, shape: Shape) -> dict[str, Affine] | None:
    """Where a nest reads each element of a tensor of that shape once, at its iterators in some order: iterator -> dim. None elsewhere.

    An index such as n-1-i spans the dim as well, but does not give the element that the iterator counts.
    """
    extents, values = dict(n.iters), dict[str, Affine]()
    for k, (x, extent) in enumerate(zip(source, shape)):
        name = next(iter(x.names()), "")
        if name in values or name not in extents or x != var(name):
            if x == affine(0) and extent == affine(1):
                continue
            return None
        if extents[name] != extent:
            return None
        values[name] = var(f"d{k}")
    return values if len(values) == len(extents) and n.reduction is None else None


def blocked_storage(v: str, shape: Shape, halo: Halo) -> Storage:
    """Channels in blocks of 16 innermost: (n, c//16, …, c%16), with a zero border on the spatial dims."""
    d = dim_vars(len(shape))
    h = halo or ((0, 0),) * len(shape)
    inner = tuple(x + lo for x, (lo, _) in zip(d[2:], h[2:]))
    space = tuple(e + lo + hi for e, (lo, hi) in zip(shape[2:], h[2:]))
    blocks = (shape[1] + (BLOCK - 1)) // BLOCK
    return Storage(v, (d[0], d[1] // BLOCK, *inner, d[1] % BLOCK), (shape[0], blocks, *space, affine(BLOCK)), halo)
