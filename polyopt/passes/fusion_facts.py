"""What fusion and layouts know of a graph: each node's nests and kind, and which tensors are renamings of others.

Takes a graph with inferred shapes; gives `Facts`. An *alias* is a tensor v whose elements are elements of another one, v[d] = root[map(d)],
by nodes that only move data (reshape, transpose, slice, expand, split); it costs nothing when its reader, or the writer of its
root, can use the map. `inverse` is set where the map is a bijection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..errors import ModelError
from ..ir.expr import Expr, Load, loads
from ..ir.graph import Graph, Node, Shape
from ..ir.tensor import Tensor
from ..ops.registry import Nest
from ..ops.structure import Map, compose, define, dim_vars, factors, floors, invert, kind_of, move_map, padding_tests


@dataclass(frozen=True)
class Fact:
    """A node with its nests. kind: move, map, pieces, anchor (see ops.structure.kind_of), or opaque for a node without affine form."""

    node: Node
    kind: str
    nests: tuple[Nest, ...] = ()
    locals: tuple[Tensor, ...] = ()

    @cached_property
    def reads(self) -> dict[str, list[tuple[Nest, Load]]]:
        """For each tensor that is read: the nests and loads that do, also those inside indirect indices."""
        out: dict[str, list[tuple[Nest, Load]]] = {}
        for n in self.nests:
            inner = [x for i in n.write.indices if isinstance(i, Expr) for x in loads(i)]
            for x in (*loads(n.expr), *inner):
                out.setdefault(x.access.tensor, []).append((n, x))
        return out

    @cached_property
    def is_contraction(self) -> bool:
        """Whether a nest sums products of two tensors."""
        return any(factors(n) is not None for n in self.nests)


@dataclass(frozen=True)
class Alias:
    """v[d] = root[map(d)]; inverse(e) is the d that holds root[e], where the map is a bijection. `nodes`: the moves, from root to v."""

    root: str
    map: Map
    inverse: Map | None
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """All nodes by name, in order, the aliases by tensor, and who makes and reads each tensor."""

    graph: Graph
    nodes: dict[str, Fact]
    aliases: dict[str, Alias] = field(default_factory=dict)

    @cached_property
    def producer(self) -> dict[str, str]:
        """The node that computes a tensor."""
        return {o: n for n, f in self.nodes.items() for o in f.node.outputs if o}

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """The nodes that read a tensor by name, aliases not followed."""
        out: dict[str, list[str]] = {}
        for n, f in self.nodes.items():
            for v in reads_of(f):
                out.setdefault(v, []).append(n)
        return out

    @cached_property
    def alias_nodes(self) -> frozenset[str]:
        """Nodes that need no kernel, because all their outputs are aliases."""
        made = {self.producer[v] for v in self.aliases}
        return frozenset(n for n in made if all(o in self.aliases for o in self.nodes[n].node.outputs if o))

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The aliases of each root."""
        out: dict[str, list[str]] = {}
        for v, a in self.aliases.items():
            out.setdefault(a.root, []).append(v)
        return out

    def root(self, v: str) -> str:
        """The tensor that a tensor is an alias of (itself where it is none)."""
        a = self.aliases.get(v)
        return a.root if a else v

    def shape(self, v: str) -> Shape:
        """The shape, which inference has found."""
        s = self.graph.values[v].shape
        if s is None:
            raise ModelError(f"the shape of tensor {v!r} is not known at compile time: bind the symbolic dims")
        return s


def reads_of(f: Fact) -> tuple[str, ...]:
    """The graph's tensors that a node reads (of an opaque node, all its inputs)."""
    if f.kind == "opaque":
        return tuple(dict.fromkeys(i for i in f.node.inputs if i))
    mine = {t.name for t in f.locals} | set(f.node.outputs)
    return tuple(v for v in f.reads if v not in mine)


def find_facts(graph: Graph) -> Facts:
    """The nests and kinds of all nodes, and the aliases."""
    nodes: dict[str, Fact] = {}
    for n in graph.nodes:
        d = define(graph, n)
        if d is None:
            nodes[n.name] = Fact(n, "opaque")
        else:
            nodes[n.name] = Fact(n, kind_of(d, [graph.values[o] for o in n.outputs if o]), d.nests, d.locals)
    facts = Facts(graph, nodes)
    return Facts(graph, nodes, _aliases(facts))


def _aliases(facts: Facts) -> dict[str, Alias]:
    graph, out = facts.graph, dict[str, Alias]()
    outputs = set(graph.outputs)
    pinned: set[str] = set()  # roots that an output will live in
    padded = _padded(facts)
    for f in facts.nodes.values():
        if f.kind not in ("move", "moves"):
            continue
        for nest in f.nests:
            v = nest.write.tensor
            alias = _alias(facts, f, nest, out)
            if v in padded or (alias.inverse is None and floors(alias.map)):
                continue
            if v in outputs:
                if alias.inverse is None or alias.root in outputs | pinned or alias.root not in facts.producer:
                    continue
                pinned.add(alias.root)
            out[v] = alias
    return out


def _alias(facts: Facts, f: Fact, nest: Nest, known: dict[str, Alias]) -> Alias:
    v, src = nest.write.tensor, next(iter(f.reads)) if len(f.nests) == 1 else _source(nest)
    m, shape = move_map(nest), facts.shape(v)
    before = known.get(src)
    if before is None:
        root = src
        nodes: tuple[str, ...] = (f.node.name,)
    else:
        root, m, nodes = before.root, compose(before.map, m, shape), (*before.nodes, f.node.name)
    return Alias(root, m, invert(m, shape, facts.shape(root)), nodes)


def _source(nest: Nest) -> str:
    assert isinstance(nest.expr, Load)
    return nest.expr.access.tensor


def _padded(facts: Facts) -> frozenset[str]:
    """Tensors that a contraction reads beyond their border."""
    out = set()
    for f in facts.nodes.values():
        if f.is_contraction:
            for n in f.nests:
                for x in factors(n) or ():
                    if x.access.is_affine and x.access.tensor in facts.graph.values and n.where:
                        if padding_tests(n, x, facts.shape(x.access.tensor)):
                            out.add(x.access.tensor)
    return frozenset(out)


def identity_map(facts: Facts, v: str) -> Map:
    """The index map of a tensor onto itself."""
    return dim_vars(len(facts.shape(v)))
