"""Full tiles apart from partial ones, on the LoopNest.

A loop that is to be unrolled or vectorised needs a constant trip count, but the last tile of an extent N that is no multiple of the tile size T has
min(T, N - T·t) iterations. Where the tile loop's bounds are constant, its last iterations are peeled off and their trip counts become constants;
where they are parametric, the body is written twice, and a test at run time picks the full version.
isl's `isolate` would do the same, but it anchors the subtree and costs a case split per dim inside isl (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.affine import Affine, Range, affine
from ..ir.dtype import i64
from ..ir.expr import Access, Compare, Expr, IndexValue, Load, loads, rewrite, substitute, substitute_access
from ..ir.loops import Declare, If, Instance, Loop, LoopNode, Prefetch, walk

Ranges = Mapping[str, Range]
Refused = frozenset[tuple[Affine, Affine]]  # (constant bound, smallest other bound) of tests that have failed around here


def peel_partial_tiles(body: tuple[LoopNode, ...], ranges: Ranges, refused: Refused = frozenset()) -> tuple[LoopNode, ...]:
    """The same instances in the same order, with constant trip counts in full tiles of unrolled and vector loops."""
    return tuple(x for n in body for x in _peel(n, ranges, refused))


def _peel(n: LoopNode, ranges: Ranges, refused: Refused) -> tuple[LoopNode, ...]:
    if isinstance(n, If):
        return (If(n.cond, peel_partial_tiles(n.body, ranges, refused), peel_partial_tiles(n.orelse, ranges, refused)),)
    if not isinstance(n, Loop):
        return (n,)
    cut = None if n.mark in ("vector", "unroll") else _first_partial(n, n.body, ranges)
    if cut is not None:
        lo, hi = n.lower[0].const, n.upper[0].const
        full = with_range(n, lo, cut, ranges)
        rest = [with_range(n, i, i + 1, ranges) for i in range(cut, hi)]
        return tuple(y for x in (*full, *(y for r in rest for y in r)) for y in _peel(x, ranges, refused))
    inner = {**ranges, n.var: n.range}
    if n.mark not in ("vector", "unroll"):
        return (replace(n, body=_tested(n.body, inner, refused)),)
    return (replace(n, body=peel_partial_tiles(n.body, inner, refused)),)


def _tested(body: tuple[LoopNode, ...], ranges: Ranges, refused: Refused) -> tuple[LoopNode, ...]:
    """The body of a plain loop, in a full and a partial version for each test that is decided here."""
    test = _full_test(body, ranges, refused)
    if test is None:
        return peel_partial_tiles(body, ranges, refused)
    cond, key, cuts = test
    full, partial = body, body
    for cut, rest in cuts.items():
        full = tuple(assume(x, cut, None) for x in full)
        partial = partial if rest is None else tuple(assume(x, cut, rest) for x in partial)
    full, first = _tested(full, ranges, refused), next(iter(cuts))
    if cuts[first] is not None:
        return (If(cond, full, _tested(partial, ranges, refused | {key})),)
    single = one_at_a_time(partial, first, ranges)
    return (If(cond, full, peel_partial_tiles(partial, ranges, refused | {key}) if single is None else single),)


def _constant_bounds(n: Loop) -> bool:
    return n.step == 1 and len(n.lower) == 1 and len(n.upper) == 1 and n.lower[0].is_const and n.upper[0].is_const


def _first_partial(n: Loop, body: tuple[LoopNode, ...], ranges: Ranges) -> int | None:
    """The first iteration of a constant loop at which an unrolled or vector loop below is cut short, where that is a short tail."""
    if not _constant_bounds(n):
        return None
    lo, hi = n.lower[0].const, n.upper[0].const
    best: int | None = None
    for full, cut, _ in _min_bounds(body, {}):
        d = full - cut  # positive: the tile is cut short
        k = d.coefficient(n.var)
        rest = d - affine(n.var) * k
        if k <= 0 or not rest.is_const:
            continue
        first = max(lo, -rest.const // k + 1)  # smallest t with k·t + rest > 0
        if lo <= first < hi and hi - first <= 2 and hi - lo > 1:
            best = first if best is None else min(best, first)
    return best


def _min_bounds(body: tuple[LoopNode, ...], inside: Mapping[str, int]) -> list[tuple[Affine, Affine, Affine]]:
    """(constant bound, smallest value of the other bound, the other bound) of the unrolled and vector loops below that end at the smaller.

    `inside`: the last value of each unrolled or vector loop that the walk has entered; the smallest value is taken over those.
    """
    out: list[tuple[Affine, Affine, Affine]] = []
    for n in body:
        if isinstance(n, Loop):
            entered = inside
            if n.mark in ("vector", "unroll"):
                full = next((u for u in n.upper if u.is_const), None) if n.mark == "unroll" or n.is_strip else None
                if full is not None:
                    out += [(full, u.substitute({v: x for v, x in inside.items() if u.coefficient(v) < 0}), u) for u in n.upper if u is not full]
                    entered = {**inside, n.var: full.const - 1}
            out += _min_bounds(n.body, entered)
        elif isinstance(n, If):
            out += _min_bounds(n.body, inside) + _min_bounds(n.orelse, inside)
    return out


def _full_test(
    body: tuple[LoopNode, ...], ranges: Ranges, refused: Refused
) -> tuple[Expr, tuple[Affine, Affine], dict[Affine, Affine | None]] | None:
    """A test, in variables known here, under which some cut bounds below have no effect: its two sides, and the bounds with their other values.

    None where there is no cut bound, or where one depends on a plain loop further in (the test is then made there). A tile that
    is not full has the same size wherever it is, if its start is always a multiple of the tile size: the bound is then that rest.
    """
    known = set(ranges)
    # a constant smallest value is settled by unrolling
    every = [x for x in _min_bounds(body, {}) if x[1].terms and (x[0], x[1]) not in refused]
    if not every or any(not worst.names() <= known for _, worst, _ in every):
        return None
    full, worst, _ = every[0]
    cond = Compare(">=", IndexValue(worst, i64), IndexValue(full, i64))
    return cond, (full, worst), {c: _rest_of(c, full, worst, known) for f, w, c in every if (f, w) == (full, worst)}


def _rest_of(cut: Affine, full: Affine, worst: Affine, known: set[str]) -> Affine | None:
    """The value of a bound in a tile that is not full, where it is the same in all such tiles."""
    base = Affine(tuple((a, k) for a, k in cut.terms if isinstance(a, str) and a in known), cut.const)
    inside = cut - base
    whole = full.const + (base - worst).const if (base - worst).is_const else 0  # the size of a full tile in this bound's unit
    if whole <= 0 or any(k % whole for _, k in base.terms) or base.const % whole == 0:
        return None
    return inside + base.const % whole


def one_at_a_time(body: tuple[LoopNode, ...], cut: Affine, ranges: Ranges) -> tuple[LoopNode, ...] | None:
    """A tile of unknown size, one of its iterations after the other: the unrolled loops that end at `cut` become one plain loop around the body.

    Each iteration then has its own registers, so their index in that loop becomes 0. None where the body is not of that form: only declared
    buffers may carry values between its parts, and each must be indexed by the loop's variable alone in some dim.
    """
    inner = [n for n in _loops(body) if n.mark == "unroll" and cut in n.upper]
    buffers = {n.tensor for n in body if isinstance(n, Declare)}
    parts = [n for n in body if not isinstance(n, Declare)]
    if not buffers or any(sum(1 for x in _loops((p,)) if x in inner) != 1 for p in parts):
        return None
    first = inner[0]
    if any(n.lower != first.lower or n.upper != first.upper for n in inner) or not _apart(parts, inner, buffers):
        return None
    made = []
    for p in parts:
        out = _without(p, cut, first.var, buffers)
        if out is None:
            return None
        made.append(out)
    declares = tuple(n for n in body if isinstance(n, Declare))
    moved = Loop(first.var, first.lower, first.upper, (*declares, *made), first.step, "", first.name, 0, first.range)
    return peel_partial_tiles((moved,), ranges)


def _apart(parts: Sequence[LoopNode], inner: list[Loop], buffers: set[str]) -> bool:
    """Whether each tensor that is no buffer and is written is used by one part alone, which runs the iterations in the same order as before."""
    written = [{x.write.tensor for x in walk((p,)) if isinstance(x, Instance)} - buffers for p in parts]
    used = [w | {x.access.tensor for n in walk((p,)) if isinstance(n, Instance) for x in loads(n.expr)} for w, p in zip(written, parts)]
    return all(
        not w or (any(p is n for n in inner) and not any(w & u for j, u in enumerate(used) if j != k)) for k, (p, w) in enumerate(zip(parts, written))
    )


def _loops(body: tuple[LoopNode, ...]) -> list[Loop]:
    return [n for n in walk(body) if isinstance(n, Loop)]


def _without(n: LoopNode, cut: Affine, name: str, buffers: set[str]) -> LoopNode | None:
    """The node without its loop that ends at `cut`, whose variable becomes `name`, and the buffers' index in it 0; None where that fails."""
    if isinstance(n, Loop):
        body = [_without(x, cut, name, buffers) for x in n.body]
        if any(x is None for x in body):
            return None
        if n.mark == "unroll" and cut in n.upper:
            if len(body) != 1:
                return None
            return _renamed(body[0], n.var, name, buffers)
        return replace(n, body=tuple(x for x in body if x is not None))
    return n if isinstance(n, Instance) else None


def _renamed(n: LoopNode | None, old: str, new: str, buffers: set[str]) -> LoopNode | None:
    """The node with one variable renamed, and 0 in its place in the buffers' indices."""
    if isinstance(n, Loop):
        body = [_renamed(x, old, new, buffers) for x in n.body]
        lower, upper = (tuple(x.substitute({old: new}) for x in bounds) for bounds in (n.lower, n.upper))
        return None if any(x is None for x in body) else replace(n, lower=lower, upper=upper, body=tuple(x for x in body if x is not None))
    if not isinstance(n, Instance):
        return None
    ok = True

    def turn(a: Access) -> Access:
        nonlocal ok
        if a.tensor not in buffers:
            return substitute_access(a, {old: new})
        indices = [x.substitute({old: 0}) if isinstance(x, Affine) else x for x in a.indices]
        ok = ok and sum(1 for x in a.indices if isinstance(x, Affine) and old in x.names()) == 1
        return Access(a.tensor, tuple(indices))

    def visit(x: Expr) -> Expr | None:
        if isinstance(x, Load):
            return Load(turn(x.access), x.dtype)
        return IndexValue(x.index.substitute({old: new}), x.dtype) if isinstance(x, IndexValue) else None

    coords = tuple(c.substitute({old: new}) for c in n.coords)
    made = Instance(n.statement, coords, turn(n.write), rewrite(n.expr, visit), n.reduction)
    return made if ok else None


def assume(n: LoopNode, cut: Affine, value: Affine | None) -> LoopNode:
    """The node with an upper bound replaced (dropped where `value` is None and another bound remains)."""
    if isinstance(n, Loop):
        upper = n.upper
        if n.mark in ("vector", "unroll") and cut in upper:
            others = tuple(u for u in upper if u != cut)
            if value is not None:
                upper = (value,) if all(u.is_const and value.is_const and value.const <= u.const for u in others) else (*others, value)
            elif others:
                upper = others
        return replace(n, upper=upper, body=tuple(assume(x, cut, value) for x in n.body))
    if isinstance(n, If):
        return If(n.cond, tuple(assume(x, cut, value) for x in n.body), tuple(assume(x, cut, value) for x in n.orelse))
    return n


def with_range(n: Loop, lo: int, hi: int, ranges: Ranges) -> tuple[LoopNode, ...]:
    """The iterations lo <= var < hi of a constant loop; a single iteration is substituted away."""
    if lo >= hi:
        return ()
    if hi == lo + 1:
        return tuple(specialise(x, {n.var: affine(lo)}, ranges) for x in n.body)
    rng = (lo, hi - 1)
    inner = {**ranges, n.var: rng}
    body = tuple(specialise(x, {}, inner) for x in n.body)
    return (replace(n, lower=(affine(lo),), upper=(affine(hi),), range=rng, body=body),)


def specialise(n: LoopNode, values: Mapping[str, Affine], ranges: Ranges) -> LoopNode:
    """The node with variables replaced and bounds and indices simplified under the ranges."""
    if isinstance(n, Loop):
        lower = tuple(dict.fromkeys(x.substitute(values).simplify(ranges) for x in n.lower))
        upper = tuple(dict.fromkeys(x.substitute(values).simplify(ranges) for x in n.upper))
        upper = tightest(upper, ranges)
        los = [b for x in lower if (b := x.bounds(ranges)[0]) is not None]
        his = [b for x in upper if (b := x.bounds(ranges)[1]) is not None]
        rng = (max(los) if los else None, min(his) - 1 if his else None)
        inner = {**ranges, n.var: rng}
        return replace(n, lower=lower, upper=upper, range=rng, body=tuple(specialise(x, values, inner) for x in n.body))
    if isinstance(n, If):
        body = tuple(specialise(x, values, ranges) for x in n.body)
        return If(substitute(n.cond, values), body, tuple(specialise(x, values, ranges) for x in n.orelse))
    if isinstance(n, Instance):
        coords = tuple(c.substitute(values).simplify(ranges) for c in n.coords)
        write = simplify_access(substitute_access(n.write, values), ranges)
        return Instance(n.statement, coords, write, simplify_expr(substitute(n.expr, values), ranges), n.reduction)
    if isinstance(n, Prefetch):
        return Prefetch(simplify_access(substitute_access(n.access, values), ranges), n.level)
    return n


def tightest(upper: tuple[Affine, ...], ranges: Ranges) -> tuple[Affine, ...]:
    """Bounds without those that another one always undercuts."""
    keep = list(upper)
    for u in upper:
        if any(x is not u and (lo := (u - x).bounds(ranges)[0]) is not None and lo >= 0 for x in keep):
            keep.remove(u)
    return tuple(keep)


def simplify_access(a: Access, ranges: Ranges) -> Access:
    """An access with its affine indices simplified."""
    return Access(a.tensor, tuple(x.simplify(ranges) if isinstance(x, Affine) else x for x in a.indices))


def simplify_expr(e: Expr, ranges: Ranges) -> Expr:
    """An expression with all indices simplified."""

    def visit(x: Expr) -> Expr | None:
        if isinstance(x, Load):
            return Load(simplify_access(x.access, ranges), x.dtype)
        if isinstance(x, IndexValue):
            return IndexValue(x.index.simplify(ranges), x.dtype)
        return None

    return rewrite(e, visit)
