"""The loops of a schedule with the accesses below each, as the cost model looks at them.

Takes a scheduled Scop, and values for its parameters or none; gives a tree of `Place`s. The dates of the loops around a place are parameters of
the sets that it gives, named after the loops: the elements that a group of references touches in one run of a place, and the dates of its
loop. With values given, the sets have no other parameters. Registers (and locals without dims) are no memory and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import islpy as isl

from ..ir.affine import Affine
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..ir.tensor import Tensor
from ..isl_ext import IN, OUT, PARAM, SET, fix_params, maps_of, node_type, sets_of
from .access import access_map
from .convert import columns, from_pw_aff
from .nest import guarded_loads

KIND = isl.schedule_node_type


@dataclass(frozen=True, eq=False)
class Ref:
    """An access of a statement. `elements`: the dates of all loops around → the element; `times`: how often the statement makes this access."""

    statement: str
    access: Access
    is_write: bool
    times: int
    elements: isl.Map
    path: tuple[str, ...]

    @cached_property
    def function(self) -> tuple[Affine, ...] | None:
        """The index in the dates, None where it is no one function of them."""
        if not self.elements.is_single_valued():
            return None
        f = self.elements.as_pw_multi_aff().gist(self.elements.domain())
        out = []
        for i in range(f.dim(OUT)):
            pieces = from_pw_aff(f.get_pw_aff(i), self.path)
            if not pieces:
                return None
            out.append(pieces[0][1])
        return tuple(out)

    @cached_property
    def linear(self) -> object:
        """Equal for references whose elements differ by a constant offset (uniformly generated)."""
        f = self.function
        return id(self) if f is None else tuple(x.terms for x in f)


@dataclass(frozen=True, eq=False)
class Place:
    """A node of the schedule: a loop (one child), a sequence, or a leaf. `path` names the loops around it, outside in."""

    kind: str
    path: tuple[str, ...]
    statements: tuple[str, ...]
    children: tuple[Place, ...] = ()
    name: str = ""
    mark: str = ""
    dates: isl.Set | None = None  # of a loop, with the dates of the loops around as parameters
    refs: tuple[Ref, ...] = ()
    band: tuple[isl.ScheduleNode, int] | None = None  # of a loop, with its number in the band
    around: isl.Set | None = None  # the dates of the loops around at which something runs, as parameters

    def walk(self) -> Iterator[Place]:
        """This place and all below."""
        yield self
        for c in self.children:
            yield from c.walk()

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """What is touched below."""
        return tuple(dict.fromkeys(r.access.tensor for r in self.refs))


@dataclass
class _Reader:
    scop: Scop
    values: Mapping[str, int]
    dates: dict[str, list[isl.Map]]

    def bind(self, m: isl.Map) -> isl.Map:
        """With the sizes filled in."""
        if not self.values:
            return m.intersect_params(self.scop.context)
        fixed: isl.Map = fix_params(m, {k: v for k, v in self.values.items() if k in self.scop.params})
        return fixed.project_out(PARAM, 0, fixed.dim(PARAM))


def read_places(scop: Scop, values: Mapping[str, int] | None = None) -> Place:
    """The tree of a schedule. With `values`, every parameter must have one."""
    reader = _Reader(scop, values or {}, {s.name: [] for s in scop.statements})
    return _read(reader, scop.schedule.get_root().child(0), (), "")


def _read(r: _Reader, node: isl.ScheduleNode, path: tuple[str, ...], mark: str, member: int = 0) -> Place:
    kind = node_type(node)
    if kind == KIND.mark:
        return _read(r, node.child(0), path, node.mark_get_id().get_name())
    if kind == KIND.filter:
        return _read(r, node.child(0), path, "")
    names = tuple(s.get_tuple_name() for s in sets_of(node.get_domain()))
    if kind == KIND.band:
        mupa = node.band_get_partial_schedule()
        named = mupa.get_space().has_dim_id(SET, member)
        name = str(mupa.get_dim_id(SET, member).get_name()) if named else f"c{len(path)}"
        inner = _fresh(name, (*path, *r.scop.params))
        by_name = {m.get_tuple_name(IN): m for m in maps_of(isl.UnionMap.from_union_pw_aff(mupa.get_at(member)))}
        for s in names:
            r.dates[s].append(by_name[s])
        more = member + 1 < mupa.dim(SET)
        body = _read(r, node, (*path, inner), "", member + 1) if more else _read(r, node.child(0), (*path, inner), "")
        dates = _dates(r, names, path, inner)
        for s in names:
            r.dates[s].pop()
        return Place("loop", path, names, (body,), inner, mark, dates, body.refs, (node, member), _around(r, names, path))
    if kind in (KIND.sequence, KIND.set):
        children = tuple(_read(r, node.child(i), path, "") for i in range(node.n_children()))
        return Place("sequence", path, names, children, refs=tuple(x for c in children for x in c.refs), around=_around(r, names, path))
    refs = tuple(ref for s in names for ref in _refs(r, r.scop.statement(s), path))
    return Place("leaf", path, names, refs=refs, around=_around(r, names, path))


def _fresh(name: str, taken: Sequence[str]) -> str:
    base = "".join(c if c.isalnum() else "_" for c in name)
    out, k = base, 2
    while out in taken:
        out, k = f"{base}_{k}", k + 1
    return out


def _prefix(r: _Reader, s: Statement, path: Sequence[str]) -> isl.Map:
    """Instances → the dates of the loops on the path."""
    out = isl.Map.from_domain(s.domain)
    for date in r.dates[s.name][: len(path)]:
        out = out.flat_range_product(date.intersect_domain(s.domain))
    for i, name in enumerate(path):
        out = out.set_dim_name(OUT, i, name)
    return out.reset_tuple_id(OUT) if out.has_tuple_id(OUT) else out


def _dates(r: _Reader, names: Sequence[str], path: tuple[str, ...], name: str) -> isl.Set:
    out: isl.Set | None = None
    for s in names:
        one = r.bind(_prefix(r, r.scop.statement(s), (*path, name))).range()
        out = one if out is None else out.union(one)
    assert out is not None
    return outer_as_params(out.coalesce(), len(path))


def _around(r: _Reader, names: Sequence[str], path: tuple[str, ...]) -> isl.Set | None:
    if not path:
        return None
    out: isl.Set | None = None
    for s in names:
        one = r.bind(_prefix(r, r.scop.statement(s), path)).range()
        out = one if out is None else out.union(one)
    assert out is not None
    return outer_as_params(out.coalesce(), len(path)).params()


def outer_as_params(s: isl.Set, n: int) -> isl.Set:
    """The first n dims as parameters."""
    return s.move_dims(PARAM, s.dim(PARAM), SET, 0, n) if n else s


def is_memory(t: Tensor) -> bool:
    """Whether a tensor is in memory, rather than in registers."""
    return not (t.role == "local" and (t.scope == "registers" or not t.shape))


def _refs(r: _Reader, s: Statement, path: tuple[str, ...]) -> Iterator[Ref]:
    prefix = _prefix(r, s, path)
    for access, is_write, times, points in accesses_of(r.scop, s):
        touched = access_map(s, access, r.scop.tensor(access.tensor).shape).intersect_domain(points)
        elements = r.bind(prefix.intersect_domain(points).reverse().apply_range(touched))
        for i, name in enumerate(path):
            elements = elements.set_dim_name(IN, i, name)
        yield Ref(s.name, access, is_write, times, elements, path)


def accesses_of(scop: Scop, s: Statement) -> list[tuple[Access, bool, int, isl.Set]]:
    """The memory accesses of a statement: (access, whether it writes, how often, the instances that make it)."""
    cols = columns(s.domain.get_space(), s.iters)
    found: list[tuple[Access, bool, int, isl.Set]] = []
    for load, where, _ in guarded_loads(s.expr, s.domain, cols):
        for k, (access, _, times, points) in enumerate(found):
            if access == load.access and points.is_equal(where):
                found[k] = (access, False, times + 1, points)
                break
        else:
            found.append((load.access, False, 1, where))
    if s.reduction is not None:
        found.append((s.write, False, 1, s.domain))
    found.append((s.write, True, 1, s.domain))
    return [x for x in found if is_memory(scop.tensor(x[0].tensor))]


def elements_below(refs: Sequence[Ref], depth: int) -> isl.Set:
    """The elements that references touch in one run of a place inside `depth` loops; their dates are parameters."""
    out: isl.Set | None = None
    for ref in refs:
        m = ref.elements
        n = m.dim(IN)
        m = m.project_out(IN, depth, n - depth)
        m = m.move_dims(PARAM, m.dim(PARAM), IN, 0, depth)
        out = m.range() if out is None else out.union(m.range())
    assert out is not None
    return out.coalesce()
