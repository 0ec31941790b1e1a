"""isl by name: one context, budgets, reading, sampling and sorted printing.

Takes isl objects of the one context `CTX` (isl refuses to mix contexts, and is not thread-safe); gives plain Python values or isl
objects. Dims are found by name, never counted. Conversions to and from `ir.affine.Affine` are in `poly/convert.py`, because
this module knows nothing above the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Union

import islpy as isl

from .errors import PolyoptError

CTX = isl.DEFAULT_CONTEXT
IN, OUT, SET, PARAM = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set, isl.dim_type.param
Point = tuple[int, ...]
AnySet = Union[isl.Set, isl.BasicSet]
AnyMap = Union[isl.Map, isl.BasicMap]

_budgets: list[int] = []
_PROBE = isl.Set.read_from_str(CTX, "{ [i] : i > 0 or i < -9 }")


class OperationBudget(PolyoptError):
    """isl used more operations than `max_operations` allows: fall back to something simpler."""


@contextmanager
def max_operations(n: int) -> Iterator[None]:
    """Let isl spend at most `n` operations inside; raises `OperationBudget` beyond. Nested budgets restore the outer one."""
    _budgets.append(n)
    CTX.reset_operations()
    CTX.set_max_operations(n)
    try:
        yield
    except (isl.Error, TypeError) as e:  # the wrappers choke on the nothing that isl gives once the budget is spent
        if _spent(e):
            raise OperationBudget(f"isl needed more than {n} operations") from None
        raise
    finally:
        _budgets.pop()
        CTX.set_max_operations(_budgets[-1] if _budgets else 0)
        CTX.reset_operations()


def _spent(e: Exception) -> bool:
    """Whether the budget is spent (isl may report a follow-up error, so ask it for one more operation)."""
    if "maximal number of operations" in str(e):
        return True
    try:
        _PROBE.is_empty()
    except isl.Error:
        return True
    return False


# ---- reading
def read_set(text: str) -> isl.Set:
    """A set from isl's syntax."""
    return isl.Set.read_from_str(CTX, text)


def read_map(text: str) -> isl.Map:
    """A map from isl's syntax."""
    return isl.Map.read_from_str(CTX, text)


def read_union_set(text: str) -> isl.UnionSet:
    """A union set from isl's syntax."""
    return isl.UnionSet.read_from_str(CTX, text)


def read_union_map(text: str) -> isl.UnionMap:
    """A union map from isl's syntax."""
    return isl.UnionMap.read_from_str(CTX, text)


def read_schedule(text: str) -> isl.Schedule:
    """A schedule tree from isl's syntax."""
    return isl.Schedule.read_from_str(CTX, text)


# ---- spaces
def param_space(params: Sequence[str]) -> isl.Space:
    """The parameter space with these parameters in order."""
    space = isl.Space.params_alloc(CTX, len(params))
    for i, p in enumerate(params):
        space = space.set_dim_name(PARAM, i, p)
    return space


def set_space(params: Sequence[str], tuple_name: str | None, dims: Sequence[str] | int) -> isl.Space:
    """The space of a set with named parameters, tuple and dims (a count gives unnamed dims)."""
    n = dims if isinstance(dims, int) else len(dims)
    space = param_space(params).add_unnamed_tuple_ui(n)
    if tuple_name is not None:
        space = space.set_tuple_name(SET, tuple_name)
    if not isinstance(dims, int):
        for i, d in enumerate(dims):
            space = space.set_dim_name(SET, i, d)
    return space


def dim_index(obj: Any, name: str, kind: isl.dim_type = SET) -> int:
    """The position of the dim (or parameter) of that name; KeyError where there is none."""
    i = int(obj.find_dim_by_name(kind, name))
    if i < 0:
        raise KeyError(name)
    return i


def dim_names(obj: Any, kind: isl.dim_type = SET) -> tuple[str, ...]:
    """The names of the dims of that kind; unnamed ones are called i0, i1, …"""
    return tuple(obj.get_dim_name(kind, i) or f"i{i}" for i in range(obj.dim(kind)))


def node_type(node: isl.ScheduleNode) -> isl.schedule_node_type:
    """The type of a schedule node (the wrapper's annotation says int)."""
    kind: Any = node.get_type()
    return kind  # type: ignore[no-any-return]


# ---- unions
def maps_of(u: isl.UnionMap) -> list[isl.Map]:
    """The maps of a union map, sorted by their tuple names."""
    maps = u.get_map_list()
    return sorted((maps.get_at(i) for i in range(maps.n_map())), key=lambda m: str(m.get_space()))


def sets_of(u: isl.UnionSet) -> list[isl.Set]:
    """The sets of a union set, sorted by their tuple names."""
    sets = u.get_set_list()
    return sorted((sets.get_at(i) for i in range(sets.n_set())), key=lambda s: str(s.get_space()))


def union_maps(maps: Sequence[isl.Map], params: Sequence[str]) -> isl.UnionMap:
    """The union of maps, aligned to the parameters."""
    out = isl.UnionMap.empty(param_space(params))
    for m in maps:
        out = out.add_map(m)
    return out


def show(obj: Any) -> str:
    """Text of a set, map or union, one member a line in a fixed order."""
    if isinstance(obj, isl.UnionMap):
        return "\n".join(_pieces(m) for m in maps_of(obj)) or "{ }"
    if isinstance(obj, isl.UnionSet):
        return "\n".join(_pieces(s) for s in sets_of(obj)) or "{ }"
    return _pieces(obj) if isinstance(obj, isl.Set | isl.Map) else str(obj)


def _pieces(obj: isl.Set | isl.Map) -> str:
    text = str(obj)
    if "; " not in text:
        return text
    head, body = text.split("{ ", 1)
    return head + "{ " + "; ".join(sorted(body.rsplit(" }", 1)[0].split("; "))) + " }"


# ---- sampling
def sample_set(s: isl.Set) -> tuple[Point, dict[str, int]] | None:
    """A point of a set and the parameter values at it, as ints; None where the set is empty."""
    return _ints(s.sample_point())


def sample_map(m: isl.Map) -> tuple[Point, Point, dict[str, int]] | None:
    """A pair of a map and the parameter values at it, as ints; None where the map is empty."""
    n = m.dim(IN)
    found = _ints(m.wrap().sample_point())
    return None if found is None else (found[0][:n], found[0][n:], found[1])


def _ints(p: isl.Point) -> tuple[Point, dict[str, int]] | None:
    if p.is_void():
        return None
    space = p.get_space()
    point = tuple(p.get_coordinate_val(SET, i).to_python() for i in range(space.dim(SET)))
    params = {str(space.get_dim_name(PARAM, i)): p.get_coordinate_val(PARAM, i).to_python() for i in range(space.dim(PARAM))}
    return point, params


def fix_params(obj: Any, values: Mapping[str, int]) -> Any:
    """A set, map or union with parameters fixed to values (parameters that do not occur are ignored)."""
    texts = [f"{k} = {v}" for k, v in values.items()]
    if not texts:
        return obj
    return obj.intersect_params(read_set(f"[{', '.join(values)}] -> {{ : {' and '.join(texts)} }}"))


def point_set(space: isl.Space, point: Sequence[int]) -> isl.Set:
    """The set that holds one point of a set space."""
    out = isl.Set.universe(space)
    for i, v in enumerate(point):
        out = out.fix_val(SET, i, isl.Val.int_from_si(CTX, v))
    return out
