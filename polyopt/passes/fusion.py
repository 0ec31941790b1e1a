"""Cut a graph into kernels: which nodes share one loop nest, and for each pair that does not, why.

Takes a graph with inferred shapes; gives a `Plan` without storage. Decisions look at nests, never at names. An *anchor* reduces (contraction,
pooling, softmax, norm). A map that reads its producer's tensor at its own index, or through a reshape of it, joins the
producer's group; a group of maps whose only reader is another group joins that one, where no work is repeated that costs.
Moves (aliases) belong to no group, but where their root and a reader share one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ir.affine import Affine
from ..ir.expr import Binary, Call, Expr, Load, walk
from ..ir.graph import Graph, Group, Plan
from ..ops.registry import Nest
from ..ops.structure import droppable, factors, is_identity
from ..options import Options
from .fusion_facts import Fact, Facts, find_facts, reads_of

MAX_MEMBERS = 48  # nodes of a group
MAX_TENSORS = 24  # tensors that a group reads


def plan_fusion(graph: Graph, options: Options) -> Plan:
    """The groups of a graph in execution order; `storage` is empty until layouts are chosen."""
    g = _Grouping(find_facts(graph))
    for f in g.facts.nodes.values():
        if f.node.name not in g.facts.alias_nodes:
            g.place(f)
    for k in sorted(g.members, reverse=True):
        g.merge_into_reader(k)
    return g.plan()


@dataclass
class _Grouping:
    """Groups under construction: node -> group number, group number -> nodes in graph order."""

    facts: Facts
    home: dict[str, int] = field(default_factory=dict)
    members: dict[int, list[str]] = field(default_factory=dict)
    why_not: dict[tuple[str, str], str] = field(default_factory=dict)

    # ---- epilogues
    def place(self, f: Fact) -> None:
        """Put a node into the group of a producer, or into a new one."""
        name = f.node.name
        best: tuple[bool, int] | None = None
        if f.kind in ("map", "move"):
            for v in reads_of(f):
                k = self._maker(v)
                if k is None:
                    continue
                reason = self._refuse(f, v, k)
                if reason is None:
                    rank = (any(self.facts.nodes[m].kind == "anchor" for m in self.members[k]), k)
                    best = rank if best is None or rank > best else best
                else:
                    self._note(v, name, reason)
        else:
            for v in reads_of(f):
                if self._maker(v) is not None:
                    self._note(v, name, "the reader is no element-wise nest")
        if best is None:
            new = len(self.members)
            self.home[name], self.members[new] = new, [name]
        else:
            self.home[name] = best[1]
            self.members[best[1]].append(name)

    def _refuse(self, f: Fact, v: str, k: int) -> str | None:
        """Why the map `f` cannot follow tensor `v` of group `k` in its loops; None where it can."""
        facts, out = self.facts, f.node.outputs[0]
        root = facts.root(v)
        producer = facts.nodes[facts.producer[root]]
        if producer.kind in ("opaque", "pieces", "maps", "moves"):
            return "the producer writes in pieces" if producer.kind != "opaque" else "the producer has no affine form"
        if v != root and facts.aliases[v].inverse is None:
            return "the reader takes a part of the tensor, or repeats it"
        if facts.shape(v) != facts.shape(out):
            return f"the shapes differ: {_show(facts.shape(v))} and {_show(facts.shape(out))}"
        for w, uses in f.reads.items():
            if w in facts.graph.values and self._maker(w) == k:
                if facts.root(w) == root and w != v:
                    return "the reader uses the tensor through two different index maps"
                if facts.shape(w) == facts.shape(v) or facts.root(w) == root:
                    if not all(is_identity(x.access.indices, n.iters) for n, x in uses):
                        return "the reader uses other elements than its own"
                elif facts.root(w) != root and not self._is_anchor_free(k):
                    return "the reader also needs another tensor of the producer's group at other elements"
        if len(self.members[k]) >= MAX_MEMBERS:
            return f"the group has {MAX_MEMBERS} nodes already"
        if len({*self._tensors(k), *reads_of(f)}) > MAX_TENSORS:
            return f"the group would read more than {MAX_TENSORS} tensors"
        for w in reads_of(f):
            other = self._maker(w)
            if other is not None and other != k and self._depends(other, k):
                return f"the reader also needs {w}, which is computed from the group's results"
        return None

    def _is_anchor_free(self, k: int) -> bool:
        return all(self.facts.nodes[m].kind in ("map", "move") for m in self.members[k])

    # ---- prologues
    def merge_into_reader(self, k: int) -> None:
        """Join a group of maps with the only group that reads it, where its elements are then computed once, or cheaply."""
        if not self._is_anchor_free(k):
            return
        outs = [o for m in self.members[k] for o in self.facts.nodes[m].node.outputs]
        users = {self.home[u] for o in outs for u in self._users(o) if self.home[u] != k}
        if len(users) != 1 or any(self._is_output(o) for o in outs):
            return
        (a,) = users
        reason = self._refuse_prologue(k, a, outs)
        if reason is not None:
            self._note(outs[-1], self.members[a][0], reason, overwrite=True)
            return
        for m in self.members[k]:
            self.home[m] = a
        order = {n: i for i, n in enumerate(self.facts.nodes)}
        self.members[a] = sorted([*self.members.pop(k), *self.members[a]], key=order.__getitem__)

    def _refuse_prologue(self, k: int, a: int, outs: list[str]) -> str | None:
        facts = self.facts
        if len(self.members[k]) + len(self.members[a]) > MAX_MEMBERS:
            return f"the joined group would have more than {MAX_MEMBERS} nodes"
        if len({*self._tensors(k), *self._tensors(a)} - set(outs)) > MAX_TENSORS:
            return f"the joined group would read more than {MAX_TENSORS} tensors"
        cheap = all(is_cheap(n.expr) for m in self.members[k] for n in facts.nodes[m].nests)
        single = len(self.members[k]) == 1 and all(isinstance(n.expr, Load) for n in facts.nodes[self.members[k][0]].nests)
        for m in self.members[a]:
            f = facts.nodes[m]
            uses = [(n, x) for o in self._family(outs) for n, x in f.reads.get(o, ())]
            if uses and f.kind in ("opaque", "pieces", "maps", "moves"):
                return "the reader assembles its result from pieces"
            for n, x in uses:
                if not x.access.is_affine:
                    return "the reader's index is indirect"
                if factors(n) is not None and not single:
                    return "the reader is a contraction, which would compute each element many times"
                if factors(n) is not None and droppable(n, x, facts.graph):
                    return "the reader is a contraction that wants zeros around the tensor"
                if repeats(n, x) and not cheap:
                    return "the reader uses each element many times, and it is costly to compute"
        return None

    # ---- the graph of groups
    def _maker(self, v: str) -> int | None:
        """The group that computes a tensor's root."""
        made = self.facts.producer.get(self.facts.root(v))
        return None if made is None else self.home.get(made)

    def _family(self, outs: Iterable[str]) -> list[str]:
        return [v for o in outs for v in (o, *self.facts.members.get(o, ()))]

    def _users(self, v: str) -> list[str]:
        """The nodes with a kernel that read a tensor or an alias of it."""
        return [u for w in self._family([v]) for u in self.facts.readers.get(w, ()) if u not in self.facts.alias_nodes]

    def _is_output(self, v: str) -> bool:
        return any(w in self.facts.graph.outputs for w in self._family([v]))

    def _tensors(self, k: int) -> set[str]:
        made = {o for m in self.members[k] for o in self.facts.nodes[m].node.outputs}
        return {v for m in self.members[k] for v in reads_of(self.facts.nodes[m]) if self.facts.root(v) not in made}

    def _needs(self, k: int) -> set[int]:
        made = (self._maker(v) for m in self.members[k] for v in reads_of(self.facts.nodes[m]))
        return {g for g in made if g is not None and g != k}

    def _depends(self, k: int, on: int) -> bool:
        todo, seen = [k], {k}
        while todo:
            for g in self._needs(todo.pop()):
                if g == on:
                    return True
                if g not in seen:
                    seen.add(g)
                    todo.append(g)
        return False

    def _note(self, v: str, reader: str, reason: str, overwrite: bool = False) -> None:
        key = (self.facts.producer[self.facts.root(v)], reader)
        if overwrite or key not in self.why_not:
            self.why_not[key] = reason

    # ---- the result
    def plan(self) -> Plan:
        """The groups in an order that respects what they need, nearest to the graph's own."""
        needs = {k: self._needs(k) for k in self.members}
        users: dict[int, list[int]] = {k: [] for k in needs}
        for k, ns in needs.items():
            for n in ns:
                users[n].append(k)
        missing = {k: len(ns) for k, ns in needs.items()}
        order = {n: i for i, n in enumerate(self.facts.nodes)}
        first = {k: order[ms[0]] for k, ms in self.members.items()}
        ready = [(first[k], k) for k, c in missing.items() if c == 0]
        heapq.heapify(ready)
        groups = []
        while ready:
            _, k = heapq.heappop(ready)
            groups.append(self._group(k, order))
            for u in users[k]:
                missing[u] -= 1
                if missing[u] == 0:
                    heapq.heappush(ready, (first[u], u))
        joined = {key: r for key, r in self.why_not.items() if self.home.get(key[0]) != self.home.get(key[1])}
        return Plan(self.facts.graph, tuple(groups), {}, joined)

    def _group(self, k: int, order: dict[str, int]) -> Group:
        facts, names = self.facts, list(self.members[k])
        made = {o for m in names for o in facts.nodes[m].node.outputs if o}
        inner: dict[str, None] = {}
        inputs: dict[str, None] = {}
        for m in names:
            for v in reads_of(facts.nodes[m]):
                if v in facts.aliases and facts.root(v) in made:
                    inner.update(dict.fromkeys(facts.aliases[v].nodes))
                elif v not in made:
                    inputs[v] = None
        names = sorted({*names, *inner}, key=order.__getitem__)
        stored = [o for o in made if o not in facts.aliases]  # of a split, some pieces may be aliases and others copies
        outputs = [o for o in stored if self._is_output(o) or any(self.home[u] != k for u in self._users(o))]
        nodes = [facts.nodes[m].node for m in names]
        rank = {o: i for i, n in enumerate(nodes) for o in n.outputs}
        return Group(self._name(k), tuple(nodes), tuple(inputs), tuple(sorted(outputs, key=rank.__getitem__)))

    def _name(self, k: int) -> str:
        """The anchor's name; of several or none, the first node's."""
        names = self.members[k]
        return next((m for m in names if self.facts.nodes[m].kind == "anchor"), names[0])


def is_cheap(e: Expr) -> bool:
    """Whether an expression may be computed again rather than stored: few operators, no function, no division."""
    nodes = [x for x in walk(e) if not isinstance(x, Load)]
    return len(nodes) <= 8 and not any(isinstance(x, Call) or (isinstance(x, Binary) and x.op in ("/", "%", "pow")) for x in nodes)


def repeats(nest: Nest, load: Load) -> bool:
    """Whether a nest reads one element of the loaded tensor in many iterations."""
    used: set[str] = set()
    for x in load.access.indices:
        if isinstance(x, Affine):
            used |= x.names()
            if len(x.names()) > 1:
                return True
    return any(n not in used and extent != Affine((), 1) for n, extent in nest.iters)


def _show(shape: tuple[Affine, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
