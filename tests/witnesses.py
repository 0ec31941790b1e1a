"""Replays a refusal by brute force. Takes a `Refusal`; checks at its concrete sizes that the two instances exist, touch a common element
that one of them writes and that no plain write between them settles, ran in the order claimed, and would not any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from interpret import instances, tensor_shape
from random_schedules import Refusal

from polyopt.ir.affine import Affine
from polyopt.ir.expr import Access
from polyopt.ir.scop import Scop, Statement, Violation
from polyopt.isl_ext import fix_params, point_set, sample_set
from polyopt.poly.deps import PRIVATE_SCOPES
from polyopt.verbs.tree import Loop, Member, Seq, Tree, read_tree, statements_below

Instance = tuple[str, tuple[int, ...]]
Cell = tuple[str, tuple[int, ...]]


def check_witness(refusal: Refusal) -> None:
    """Raises AssertionError where the refusal's witness is wrong."""
    v: Violation = refusal.error.violation
    scop = refusal.scop
    params = {p: v.params.get(p, 0) for p in scop.params}
    order = instances(scop, params)
    assert v.source in order and v.sink in order, f"{v}: no such instances at {params}"
    first, then = order.index(v.source), order.index(v.sink)
    assert first < then, f"{v}: the source runs after the sink"
    shared = conflicts(scop, v, params)
    assert shared, f"{v}: nothing ties the two instances"
    assert v.cell is None or v.cell in shared, f"{v}: the element is not shared ({shared})"
    between = order[first + 1 : then]
    private = {t.name for t in scop.tensors if t.scope in PRIVATE_SCOPES}
    exact = scop.dependences is not None and scop.dependences.exact
    if exact and v.kind != "reduction" and not any(t in private for t, _ in shared):
        assert any(not any(overwrites(scop, x, cell, params) for x in between) for cell in shared), f"{v}: a write between them settles it"
    assert v.after[0] >= v.after[1], f"{v}: the new dates are in order"
    if refusal.call[0] in ("parallelize", "vectorize"):
        assert together(scop, refusal, v, params), f"{v}: no two iterations of the loop"
    else:
        assert refusal.order is not None
        after = instances(scop.with_schedule(refusal.order), params)
        assert v.after[0] == v.after[1] or after.index(v.source) > after.index(v.sink), f"{v}: the new order keeps them"


def accesses(scop: Scop, x: Instance, params: Mapping[str, int]) -> tuple[set[Cell], set[Cell]]:
    """The elements that an instance may read and write."""
    s = scop.statement(x[0])
    at = {**params, **dict(zip(s.iters, x[1]))}
    written = cells(scop, s.write, at)
    read = {c for a in s.reads() for c in cells(scop, a, at)}
    return read | (written if s.reduction is not None else set()), written


def cells(scop: Scop, a: Access, at: Mapping[str, int]) -> set[Cell]:
    """The elements that an access may touch: any in a dim whose index is read at run time."""
    shape = tensor_shape(scop.tensor(a.tensor), at)
    axes = [[x.evaluate(at)] if isinstance(x, Affine) else range(n) for x, n in zip(a.indices, shape, strict=True)]
    return {(a.tensor, c) for c in product(*axes)}


def conflicts(scop: Scop, v: Violation, params: Mapping[str, int]) -> set[Cell]:
    """The elements through which the two instances depend on each other in the way that the kind says."""
    (read, written), (read_later, written_later) = accesses(scop, v.source, params), accesses(scop, v.sink, params)
    return {"flow": written & read_later, "reduction": written & read_later, "anti": read & written_later, "output": written & written_later}[v.kind]


def overwrites(scop: Scop, x: Instance, cell: Cell, params: Mapping[str, int]) -> bool:
    """Whether an instance surely replaces an element."""
    s: Statement = scop.statement(x[0])
    return s.reduction is None and s.write.is_affine and cell in accesses(scop, x, params)[1]


def together(scop: Scop, refusal: Refusal, v: Violation, params: Mapping[str, int]) -> bool:
    """Whether the two instances are in one iteration of all loops around the refused one, and not in one of its own."""
    tree: Tree = read_tree(scop.schedule)
    loop = refusal.call[1][0]
    while True:
        if isinstance(tree, Seq):
            tree = next(p for p in tree.parts if v.source[0] in statements_below(p))
            assert v.sink[0] in statements_below(tree)
            continue
        assert isinstance(tree, Loop)
        x, y = (date(scop, tree.member, i, params) for i in (v.source, v.sink))
        if tree.member.name == loop and ("of" not in refusal.call[2] or refusal.call[2]["of"] in statements_below(tree)):
            size: Sequence[int] = refusal.call[1][1:] or [1]
            return x != y and (refusal.call[0] == "parallelize" or x // size[0] == y // size[0])
        if x != y:
            return False
        tree = tree.body


def date(scop: Scop, m: Member, x: Instance, params: Mapping[str, int]) -> int:
    """The date that a loop gives to an instance."""
    domain = scop.statement(x[0]).domain.get_space()
    at = m.upa.intersect_domain(fix_params(point_set(domain, x[1]), params).to_union_set())
    (piece,) = (at.get_pw_aff_list().get_at(k) for k in range(at.n_pw_aff()))
    found = sample_set(fix_params(piece.as_map().range(), params))
    assert found is not None
    return found[0][0]
