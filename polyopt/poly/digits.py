"""Mixed-radix coordinates of statement instances, in which tiles are dims and nothing is divided.

Takes a Scop whose schedule and accesses divide iterators by constants (tiles, blocked layouts); gives coordinates in which an iterator o that
is divided by 16 and by 32 is written 32·o_32 + 16·o_16 + o_1, with 0 <= o_16 < 2 and 0 <= o_1 < 16. Dates and indices become affine
without floors, and isl's dataflow analysis and sets of pairs several times cheaper. The change is a bijection, so nothing is lost: a relation
goes back by substitution. A floor of another kind stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from ..ir.affine import Affine, FloorDiv, Range, affine, var
from ..ir.expr import Access
from ..ir.scop import Scop, Statement
from ..isl_ext import IN, OUT, PARAM, SET, maps_of, node_type, param_space, set_space, sets_of
from .access import access_map, remember
from .convert import columns, from_aff, to_aff, to_multi_aff

Dates = Mapping[str, Sequence[Affine]]  # by statement, in its iterators; all of one length
KIND = isl.schedule_node_type


# ---- dates
def read_dates(schedule: isl.Schedule, statements: Iterable[Statement]) -> dict[str, list[Affine]] | None:
    """The date of each statement, read off the tree; None where the tree splits a statement's domain or orders only in part."""
    iters = {s.name: s.iters for s in statements}
    out: dict[str, list[Affine]] = {n: [] for n in iters}

    def sequence(node: isl.ScheduleNode, names: set[str]) -> bool:
        seen: set[str] = set()
        for i in range(node.n_children()):
            child = node.child(i)
            inside = {s.get_tuple_name() for s in sets_of(child.filter_get_filter())} & names
            if inside & seen:
                return False
            seen |= inside
            for n in inside:
                out[n].append(affine(i))
            if not visit(child.child(0), inside):
                return False
        return True

    def band(node: isl.ScheduleNode, names: set[str]) -> bool:
        schedule = node.band_get_partial_schedule()
        for d in range(node.band_n_member()):
            parts = schedule.get_union_pw_aff(d).get_pw_aff_list()
            for part in (parts.get_at(q) for q in range(parts.n_pw_aff())):
                name = part.get_space().domain().get_tuple_name(SET)
                if name in names:
                    if part.n_piece() != 1:
                        return False
                    out[name].append(from_aff(part.get_pieces()[0][1], iters[name]))
        return True

    def visit(node: isl.ScheduleNode, names: set[str]) -> bool:
        kind = node_type(node)
        if kind == KIND.sequence:
            return sequence(node, names)
        if (kind == KIND.band and not band(node, names)) or kind not in (KIND.band, KIND.domain, KIND.mark, KIND.leaf):
            return False
        return node.n_children() == 0 or visit(node.child(0), names)

    root = schedule.get_root()
    if node_type(root) != KIND.domain or not visit(root, set(out)):
        return None
    most = max(map(len, out.values()))
    return {n: [*d, *(affine(0) for _ in range(most - len(d)))] for n, d in out.items()}


def shorten(dates: Dates) -> dict[str, list[Affine]]:
    """Dates in the same order, of fewer terms: a dim less a multiple of an outer dim, which is equal wherever the inner one decides."""
    out = {n: list(d) for n, d in dates.items()}

    def visit(names: list[str], k: int, free: tuple[int, ...]) -> None:
        if k == len(out[names[0]]):
            return
        if all(out[n][k].is_const for n in names):
            for c in sorted({out[n][k].const for n in names}):
                visit([n for n in names if out[n][k].const == c], k + 1, free)
            return
        for j in free:
            c = _common_factor([(out[n][k], out[n][j]) for n in names])
            if c:
                for n in names:
                    out[n][k] = out[n][k] - out[n][j] * c
        visit(names, k + 1, (*free, k))

    visit(list(out), 0, ())
    return out


def _common_factor(pairs: Sequence[tuple[Affine, Affine]]) -> int:
    """A factor c for which no x - c·y has more terms than x and some have fewer, 0 where there is none."""
    for x, y in pairs:
        have = dict(x.terms)
        for atom, k in y.terms:
            c, rest = divmod(have.get(atom, 0), k)
            if c and not rest:
                less = [len(a.terms) - len((a - b * c).terms) for a, b in pairs]
                if min(less) >= 0 and max(less) > 0:
                    return c
    return 0


# ---- coordinates
@dataclass(frozen=True)
class Digits:
    """Coordinates of one statement: its iterators as expressions of the digits, the digits' ranges, the domain, and both ways between."""

    values: Mapping[str, Affine]
    ranges: Mapping[str, Range]
    domain: isl.Set
    forward: isl.MultiAff  # digits -> iterators
    inverse: isl.MultiAff  # iterators -> digits

    def rewrite(self, x: Affine) -> Affine:
        """An expression of the iterators, in the digits."""
        return x.substitute(self.values).simplify(self.ranges)

    def map(self, xs: Sequence[Affine], tuple_name: str | None) -> isl.Map:
        """The map from the digits to the values of expressions of the iterators."""
        return self.map_of([self.rewrite(x) for x in xs], tuple_name)

    def map_of(self, xs: Sequence[Affine], tuple_name: str | None) -> isl.Map:
        """The map from the digits to the values of expressions of the digits."""
        space = self.domain.get_space()
        return isl.Map.from_multi_aff(to_multi_aff(xs, space, tuple_name, columns(space))).intersect_domain(self.domain)

    def access(self, s: Statement, a: Access, shape: Sequence[Affine]) -> isl.Map:
        """The relation from the digits to the elements that an access of the statement (or of one with these iterators) may touch."""
        if a.is_affine:
            return self.map(a.affine_indices(), a.tensor)
        return access_map(s, a, shape).preimage_domain_multi_aff(self.forward).intersect_domain(self.domain)


def statement_digits(s: Statement, used: Sequence[Affine]) -> Digits:
    """The coordinates in which the floors of the expressions `used` go, as far as they divide one iterator."""
    divisors: dict[str, set[int]] = {}
    for x in used:
        _divisors(x, divisors)
    chains = {i: [1, *_longest_chain(divisors.get(i, set()))] for i in s.iters}
    return remember(s, f"digits {chains}", lambda: _digits(s, chains))


def _digits(s: Statement, chains: Mapping[str, Sequence[int]]) -> Digits:
    known = remember(s, "ranges", lambda: _ranges(s))
    names: list[str] = []
    values: dict[str, Affine] = {}
    inverse: list[Affine] = []
    ranges: dict[str, Range] = {}
    for i in s.iters:
        dens = chains[i]
        digits = [i] if len(dens) == 1 else [f"{i}_{d}" for d in dens]
        values[i] = affine(0)
        for k in reversed(range(len(dens))):
            quotient = var(i) // dens[k]
            if k + 1 < len(dens):
                radix = dens[k + 1] // dens[k]
                quotient = quotient - (var(i) // dens[k + 1]) * radix
                ranges[digits[k]] = (0, radix - 1)
            else:
                lo, hi = known[i]
                ranges[digits[k]] = (None if lo is None else lo // dens[k], None if hi is None else hi // dens[k])
            values[i] = values[i] + var(digits[k]) * dens[k]
            names.append(digits[k])
            inverse.append(quotient)
    space = set_space([str(s.domain.get_dim_name(PARAM, i)) for i in range(s.domain.dim(PARAM))], s.name, names)
    forward = to_multi_aff([values[i] for i in s.iters], space, s.name, columns(space))
    domain = s.domain.preimage_multi_aff(forward)
    if len(names) > len(s.iters):
        domain = domain.intersect(_box(space, ranges, names)).remove_redundancies()
    own = s.domain.get_space()
    return Digits(values, ranges, domain, forward, to_multi_aff(inverse, own, s.name, columns(own, s.iters)))


def _ranges(s: Statement) -> dict[str, Range]:
    out: dict[str, Range] = {}
    for k, i in enumerate(s.iters):
        lo, hi = s.domain.dim_min_val(k), s.domain.dim_max_val(k)
        out[i] = (int(lo.to_python()) if lo.is_int() else None, int(hi.to_python()) if hi.is_int() else None)
    return out


def _box(space: isl.Space, ranges: Mapping[str, Range], names: Sequence[str]) -> isl.Set:
    cols = columns(space)
    ls = isl.LocalSpace.from_space(space)
    out = isl.BasicSet.universe(space)
    for k, n in enumerate(names):
        lo, hi = ranges[n]
        v = isl.Aff.var_on_domain(ls, SET, k)
        if lo is not None:
            out = out.intersect(v.ge_basic_set(to_aff(lo, space, cols)))
        if hi is not None:
            out = out.intersect(v.le_basic_set(to_aff(hi, space, cols)))
    return isl.Set.from_basic_set(out)


def _divisors(x: Affine, out: dict[str, set[int]]) -> None:
    for atom, _ in x.terms:
        if isinstance(atom, FloorDiv):
            _divisors(atom.num, out)
            if len(atom.num.terms) == 1 and not atom.num.const:
                ((name, k),) = atom.num.terms
                if isinstance(name, str) and k == 1:
                    out.setdefault(name, set()).add(atom.den)


def _longest_chain(divisors: set[int]) -> list[int]:
    """The longest chain of divisors, each of which divides the next."""
    best: dict[int, list[int]] = {}
    for d in sorted(divisors):
        before = max((best[q] for q in best if d % q == 0), key=len, default=[])
        best[d] = [*before, d]
    return max(best.values(), key=lambda c: (len(c), c), default=[])


# ---- a Scop in its digits
@dataclass(frozen=True)
class Frame:
    """A Scop in the coordinates of one of its orders: the digits of each statement; its order and accesses over them.

    Where the order cannot be read off the tree, or a tensor is called like a statement, the digits are the iterators (`split` is False).
    """

    params: tuple[str, ...]
    split: bool
    digits: Mapping[str, Digits]
    order: isl.UnionMap  # digits -> date
    writes: Mapping[str, isl.Map]  # by statement: digits -> the element written
    reads: Mapping[str, tuple[isl.Map, ...]]  # by statement: digits -> the elements of each load

    def inward(self, deps: isl.UnionMap) -> isl.UnionMap:
        """A relation between instances, in the digits."""
        if not self.split:
            return deps
        out = isl.UnionMap.empty(param_space(self.params))
        for m in maps_of(deps):
            a, b = self.digits[m.get_tuple_name(IN)], self.digits[m.get_tuple_name(OUT)]
            m = m.preimage_domain_multi_aff(a.forward).preimage_range_multi_aff(b.forward)
            out = out.add_map(m.intersect_domain(a.domain).intersect_range(b.domain))
        return out

    def outward(self, deps: isl.UnionMap) -> isl.UnionMap:
        """A relation between instances (or from elements to instances, and back), in the statements' iterators."""
        if not self.split:
            return deps
        out = isl.UnionMap.empty(param_space(self.params))
        for m in maps_of(deps):
            a, b = self.digits.get(m.get_tuple_name(IN)), self.digits.get(m.get_tuple_name(OUT))
            m = m.coalesce()
            m = m if a is None else m.preimage_domain_multi_aff(a.inverse)
            out = out.add_map(m if b is None else m.preimage_range_multi_aff(b.inverse))
        return out


def compute_frame(scop: Scop, order: isl.Schedule | None = None) -> Frame:
    """The frame of a Scop in an order (its own, where none is given)."""
    if order is None or order is scop.schedule:
        return remember(scop, "frame", lambda: compute_frames((scop, scop.schedule))[0])
    return compute_frames((scop, order))[0]


def compute_plain_frame(scop: Scop, order: isl.Schedule) -> Frame:
    """The frame whose digits are the iterators."""
    return _frame(scop, order, None, compute_digits((scop, None)))


def compute_frames(*scops: tuple[Scop, isl.Schedule]) -> list[Frame]:
    """The frames of several Scops, each in an order, such that statements of one name have the same digits in all of them."""
    dates = [read_dates(order, scop.statements) for scop, order in scops]
    split = all(d is not None and not {t.name for t in scop.tensors} & set(d) for d, (scop, _) in zip(dates, scops))
    digits = compute_digits(*((scop, d if split else None) for d, (scop, _) in zip(dates, scops)))
    return [_frame(scop, order, d if split else None, digits) for d, (scop, order) in zip(dates, scops)]


def compute_digits(*scops: tuple[Scop, Dates | None]) -> dict[str, Digits]:
    """By statement, coordinates in which the floors of its accesses and dates go, in all of the Scops; its iterators, where no dates are given."""
    used: dict[str, list[Affine]] = {}
    statements: dict[str, Statement] = {}
    for scop, dates in scops:
        for s in scop.statements:
            statements[s.name] = s
            if dates is not None:
                indices = [x for a in (s.write, *s.reads()) for x in a.indices if isinstance(x, Affine)]
                used.setdefault(s.name, []).extend((*indices, *dates[s.name]))
    return {n: statement_digits(s, used.get(n, ())) for n, s in statements.items()}


def _frame(scop: Scop, order: isl.Schedule, dates: Dates | None, digits: Mapping[str, Digits]) -> Frame:
    if dates is None:
        union = order.get_map()
    else:
        union = isl.UnionMap.empty(param_space(scop.params))
        for n, d in shorten({n: [digits[n].rewrite(x) for x in d] for n, d in dates.items()}).items():
            union = union.add_map(digits[n].map_of(d, None))

    def relation(s: Statement, a: Access) -> isl.Map:
        return digits[s.name].access(s, a, scop.tensor(a.tensor).shape)

    writes = {s.name: relation(s, s.write) for s in scop.statements}
    reads = {s.name: tuple(relation(s, a) for a in dict.fromkeys(s.reads())) for s in scop.statements}
    return Frame(scop.params, dates is not None, digits, union, writes, reads)
