"""Between `ir.affine.Affine` and isl.

Takes affine expressions whose names are dims or parameters of a given isl space; gives isl `Aff`, `MultiAff` and `Map`, and
back. Built through isl's API rather than text: about ten times faster here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from ..errors import InternalError
from ..ir.affine import Affine, AffineLike, affine
from ..ir.expr import Binary, Cast, Compare, Const, Expr, IndexValue, Unary
from ..isl_ext import CTX, IN, OUT, PARAM, SET

Columns = Mapping[str, tuple[isl.dim_type, int]]


def columns(space: isl.Space, names: Sequence[str] | None = None) -> dict[str, tuple[isl.dim_type, int]]:
    """Where each name stands in an `Aff` over this set space; `names` overrides the names of the set dims."""
    out = {str(space.get_dim_name(PARAM, i)): (PARAM, i) for i in range(space.dim(PARAM))}
    for i in range(space.dim(SET)):
        name = names[i] if names is not None else space.get_dim_name(SET, i)
        if name is not None:
            out[name] = (IN, i)
    return out


def to_aff(x: AffineLike, space: isl.Space, cols: Columns | None = None) -> isl.Aff:
    """The isl form of an affine expression over a set space. Any name that is no dim and no parameter is an internal error."""
    return _to_aff(affine(x), isl.LocalSpace.from_space(space), columns(space) if cols is None else cols)


def _to_aff(x: Affine, ls: isl.LocalSpace, cols: Columns) -> isl.Aff:
    out = isl.Aff.zero_on_domain(ls)
    if x.const:
        out = out.set_constant_val(isl.Val.int_from_si(CTX, x.const))
    for atom, k in x.terms:
        if isinstance(atom, str):
            if atom not in cols:
                raise InternalError(f"{atom} in {x} is neither a dim nor a parameter ({', '.join(cols)})")
            out = out.set_coefficient_val(*cols[atom], isl.Val.int_from_si(CTX, k))
    for atom, k in x.terms:
        if not isinstance(atom, str):
            floor = _to_aff(atom.num, ls, cols).scale_down_val(isl.Val.int_from_si(CTX, atom.den)).floor()
            out = out.add(floor.scale_val(isl.Val.int_from_si(CTX, k)))
    return out


def to_multi_aff(xs: Sequence[AffineLike], domain: isl.Space, tuple_name: str | None = None, cols: Columns | None = None) -> isl.MultiAff:
    """Several affine expressions over a set space, as one function into the tuple `tuple_name`."""
    cols = columns(domain) if cols is None else cols
    ls = isl.LocalSpace.from_space(domain)
    space = isl.Space.map_from_domain_and_range(domain, range_space(domain, tuple_name, len(xs)))
    affs = isl.AffList.alloc(CTX, len(xs))
    for x in xs:
        affs = affs.add(_to_aff(affine(x), ls, cols))
    return isl.MultiAff.from_aff_list(space, affs)


def range_space(domain: isl.Space, tuple_name: str | None, n: int) -> isl.Space:
    """An unnamed-dims set space with the parameters of `domain`."""
    space = domain.params().add_unnamed_tuple_ui(n)
    return space if tuple_name is None else space.set_tuple_name(SET, tuple_name)


def affine_map(xs: Sequence[AffineLike], domain: isl.Set, tuple_name: str | None = None) -> isl.Map:
    """The map from each point of `domain` to the values of the expressions."""
    return isl.Map.from_multi_aff(to_multi_aff(xs, domain.get_space(), tuple_name)).intersect_domain(domain)


def from_aff(a: isl.Aff, names: Sequence[str] | None = None) -> Affine:
    """The affine expression of an isl `Aff`, floors included. `names` overrides the names of its input dims."""
    space = a.get_domain_space()
    params = [str(space.get_dim_name(PARAM, i)) for i in range(space.dim(PARAM))]
    ins = list(names) if names is not None else [space.get_dim_name(SET, i) or f"i{i}" for i in range(space.dim(SET))]
    return _from_aff(a, params, ins)


def _from_aff(a: isl.Aff, params: Sequence[str], ins: Sequence[str]) -> Affine:
    den = a.get_denominator_val().to_python()
    if den != 1:
        raise InternalError(f"{a} is not an integer expression")
    out = Affine((), int(a.get_constant_val().to_python()))
    for kind, names in ((PARAM, params), (IN, ins)):
        for i, name in enumerate(names):
            k = int(a.get_coefficient_val(kind, i).to_python())
            if k:
                out = out + Affine(((name, k),))
    for i in range(a.dim(isl.dim_type.div)):
        k = int(a.get_coefficient_val(isl.dim_type.div, i).to_python())
        if k:
            div = a.get_div(i)
            d = int(div.get_denominator_val().to_python())
            out = out + (_from_aff(div.scale_val(isl.Val.int_from_si(CTX, d)), params, ins) // d) * k
    return out


def from_multi_aff(m: isl.MultiAff, names: Sequence[str] | None = None) -> tuple[Affine, ...]:
    """The affine expressions of a `MultiAff`."""
    return tuple(from_aff(m.get_at(i), names) for i in range(m.dim(OUT)))


def from_pw_aff(p: isl.PwAff, names: Sequence[str] | None = None) -> list[tuple[isl.Set, Affine]]:
    """The pieces of a piecewise affine function: (where, value)."""
    return [(where, from_aff(piece, names)) for where, piece in p.get_pieces()]


# ---- conditions
def index_of(e: Expr) -> Affine | None:
    """An integer expression of index values and constants as an affine expression; None where it is not one."""
    if isinstance(e, IndexValue):
        return e.index
    if isinstance(e, Const) and isinstance(e.value, int):
        return affine(int(e.value))
    if isinstance(e, Cast) and e.dtype.is_integer:
        return index_of(e.x)
    if isinstance(e, Unary) and e.op == "-":
        x = index_of(e.x)
        return None if x is None else -x
    if isinstance(e, Binary) and e.op in ("+", "-", "*", "//", "%"):
        x, y = index_of(e.x), index_of(e.y)
        if x is None or y is None:
            return None
        if e.op in "+-":
            return x + y if e.op == "+" else x - y
        if e.op == "*":
            return x * y if x.is_const or y.is_const else None
        if not y.is_const or y.const <= 0:
            return None
        return x // y.const if e.op == "//" else x % y.const
    return None


def condition_set(cond: Expr, space: isl.Space, cols: Columns | None = None) -> isl.Set | None:
    """Where a bool expression of index values holds, as a subset of a space; None where it is not affine."""
    cols = columns(space) if cols is None else cols
    if isinstance(cond, Const):
        return isl.Set.universe(space) if cond.value else isl.Set.empty(space)
    if isinstance(cond, Unary) and cond.op == "not":
        inner = condition_set(cond.x, space, cols)
        return None if inner is None else inner.complement()
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        a, b = condition_set(cond.x, space, cols), condition_set(cond.y, space, cols)
        if a is None or b is None:
            return None
        return a.intersect(b) if cond.op == "and" else a.union(b)
    if not isinstance(cond, Compare):
        return None
    x, y = index_of(cond.x), index_of(cond.y)
    if x is None or y is None:
        return None
    d, zero = to_aff(x - y, space, cols), isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    return {
        "<": d.lt_set, "<=": d.le_set, ">": d.gt_set, ">=": d.ge_set, "==": d.eq_set, "!=": d.ne_set,
    }[cond.op](zero)  # fmt: skip
