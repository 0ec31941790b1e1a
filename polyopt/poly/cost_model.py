"""The cost of a schedule, from its tree, its statements' access relations and a machine's caches.

Takes a scheduled Scop, a target, and values for the parameters or none; gives a `Cost`. Without values: closed forms only. Everything is read off the
polyhedra; no operator is known by name. Caches are those of the target, with least recent use (see `traffic`). Every isl call has a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import islpy as isl

from ..errors import UserError
from ..ir.affine import Affine
from ..ir.scop import Scop
from ..isl_ext import OperationBudget, fix_params, max_operations, sample_set
from ..target import Target
from .caches import Cache
from .cost import Amount, Cost, LevelCost, LoopCost, TensorCost, VectorCost
from .counting import Count, count
from .legality import is_parallel
from .loop_tree import Place, Ref, read_places
from .operations import compute_memory_operations, compute_operations
from .quasipoly import QuasiPolynomial, lift
from .summation import NoClosedForm
from .traffic import Traffic

LARGE = 10_007  # a size that stands for all large ones
ROWS = 14  # loops that are shown, the outer ones first
SPANS = (7, 3, 0)  # iterations at which a chain is looked at, by how many loops are around
WAYS = {"L1": 8, "L2": 16, "L3": 16}
BUDGET = 20_000_000  # isl operations for all that has no budget of its own
LEGALITY = 200_000  # isl operations for the question whether a loop is parallel


def compute_cost(scop: Scop, target: Target, sizes: Mapping[str, int] | None = None) -> Cost:
    """The cost of a Scop's schedule. `sizes`: a value for each parameter, or None.

    Raises UserError for values that are missing, unknown or outside the context, and for a schedule that takes isl too long.
    """
    values = check_sizes(scop, sizes)
    try:
        with max_operations(BUDGET):
            return _cost(scop, target, values, sizes is not None or not scop.params)
    except OperationBudget:
        raise UserError(f"cost: {scop.name} has too many loops to be counted within {BUDGET} isl operations") from None


def _cost(scop: Scop, target: Target, values: dict[str, int], concrete: bool) -> Cost:
    symbolic = read_places(scop)
    start = _large(scop)
    forms = Traffic(scop, symbolic, start, target.line, forms=True)
    numbers = Traffic(scop, symbolic if not scop.params else read_places(scop, values), values, target.line) if concrete else None
    loads, stores = compute_memory_operations(scop, symbolic)
    loads_now, stores_now = compute_memory_operations(scop, numbers.root) if numbers else (None, None)
    levels = _levels(target, numbers) if numbers else ()
    loops, hidden = _loops(scop, target, symbolic, forms, numbers)
    instances = tuple((s.name, _amount(count(s.domain, scop.context), values, concrete)) for s in scop.statements)
    operations = tuple((k, _amount(n, values, concrete)) for k, n in compute_operations(scop).items())
    tensors = _tensors(symbolic, forms, numbers)
    spans = _spans(numbers, scop) if numbers else None
    work = float(sum((n.value or 0 for _, n in instances), Fraction(0)))
    notes = [f"{hidden} inner loops are not shown"] if hidden else []
    if numbers is not None and not numbers.all_closed():
        notes.append("at most: some footprints have no closed form, and the box around them counts")
    return Cost(
        scop.name, tuple(values.items()), concrete, instances, operations, _pair(loads, loads_now), _pair(stores, stores_now), tensors, loops,
        levels, max(1.0, work / spans[0]) if spans and spans[0] else None, max(1.0, work / spans[1]) if spans and spans[1] else None,
        _vectors(symbolic, numbers), tuple(start.items()), tuple(notes),
    )  # fmt: skip


def _amount(form: Count, values: Mapping[str, int], concrete: bool) -> Amount:
    try:
        return Amount(form, form.at(values) if concrete else None)
    except NoClosedForm:
        return Amount(form, None)


def _pair(form: Count, now: Count | None) -> Amount:
    return Amount(form, None) if now is None else replace(_amount(now, {}, True), form=form)


def check_sizes(scop: Scop, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """The sizes in the order of the parameters."""
    if sizes is None:
        return {}
    known = ", ".join(scop.params) or "none"
    for name, value in sizes.items():
        if name not in scop.params:
            raise UserError(f"cost: {scop.name} has no dim {name}; its dims are {known}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"cost: {name}={value!r} is no integer")
    missing = [p for p in scop.params if p not in sizes]
    if missing:
        raise UserError(f"cost: give a value to {', '.join(missing)} too, or to no dim")
    values = {p: sizes[p] for p in scop.params}
    if fix_params(scop.context, values).is_empty():
        raise UserError(f"cost: {scop.name} is not defined at {', '.join(f'{k}={v}' for k, v in values.items())}")
    return values


def _large(scop: Scop) -> dict[str, int]:
    """Sizes that stand for all large ones; some sizes in the context where it bounds them."""
    values = {p: LARGE + 6 * k for k, p in enumerate(scop.params)}
    if scop.params and fix_params(scop.context, values).is_empty():
        found = sample_set(isl.Set.from_params(scop.context))
        return found[1] if found is not None else values
    return values


# ---- parts
def _levels(target: Target, numbers: Traffic) -> tuple[LevelCost, ...]:
    out = []
    for name, size in (("L1", target.l1), ("L2", target.l2), ("L3", target.l3)):
        lines = numbers.misses(Cache(size, WAYS[name], target.line))
        out.append(LevelCost(name, size, target.line, tuple(lines.items())))
    return tuple(out)


def _tensors(root: Place, forms: Traffic, numbers: Traffic | None) -> tuple[TensorCost, ...]:
    lines = numbers.lines(numbers.root, {}) if numbers else {}
    out = []
    for t in root.tensors:
        region = forms.region(t, tuple(r for r in root.refs if r.access.tensor == t), root)
        value = None
        if numbers is not None:
            value = Fraction(round(numbers.region(t, tuple(r for r in numbers.root.refs if r.access.tensor == t), numbers.root).numbers({})[0]))
        out.append(TensorCost(t, region.itemsize, Amount(region.elements, value), lines.get(t)))
    return tuple(out)


def _loops(
    scop: Scop, target: Target, root: Place, forms: Traffic, numbers: Traffic | None
) -> tuple[tuple[LoopCost, ...], int]:
    """The outer loops, in the order of the tree, and how many more there are."""
    places = [p for p in root.walk() if p.kind == "loop"]
    concrete = [p for p in numbers.root.walk() if p.kind == "loop"] if numbers else [None] * len(places)
    shown = set(sorted(range(len(places)), key=lambda k: (len(places[k].path), k))[:ROWS])
    out = []
    for k, (p, now) in enumerate(zip(places, concrete)):
        if k not in shown:
            continue
        trips = size = None
        fits = ""
        if numbers is not None and now is not None:
            at = numbers.middle(now)
            if at is not None:
                trips, lines = float(numbers.trips(now, at)), numbers.total(now, at)
                size = lines * target.line
                fits = next((n for n, s in (("L1", target.l1), ("L2", target.l2), ("L3", target.l3)) if size <= s), "-")
        around = forms.middle(p) if numbers is None else None
        iterations = None if around is None else forms.trip_count(p).at_large(around)
        touches = None if around is None else _bytes(p, forms, around)
        out.append(LoopCost(p.name, len(p.path), p.mark, iterations, touches, trips, size, fits, _free(scop, p)))
    return tuple(out), len(places) - len(shown)


def _bytes(p: Place, forms: Traffic, around: Mapping[str, int]) -> QuasiPolynomial | None:
    total = lift(0)
    for t in p.tensors:
        region = forms.region(t, tuple(r for r in p.refs if r.access.tensor == t), p)
        part = region.elements.at_large(around)
        if part is None:
            return None
        total = total + part * region.itemsize
    return total


def _free(scop: Scop, p: Place) -> bool | None:
    """Whether a loop carries no dependence; None where that is not known within the budget."""
    if scop.dependences is None or p.band is None:
        return None
    try:
        with max_operations(LEGALITY):
            return is_parallel(scop, *p.band)
    except OperationBudget:
        return None


def _spans(numbers: Traffic, scop: Scop) -> tuple[float, float]:
    """The longest chain of instances as scheduled, and if all loops that carry no dependence ran in parallel."""
    free = {p: bool(_free(scop, p)) for p in numbers.root.walk() if p.kind == "loop"}

    known: dict[tuple[Place, tuple[int, ...], bool], float] = {}

    def span(p: Place, at: Mapping[str, int], ideal: bool) -> float:
        key = (p, tuple(at[n] for n in sorted(numbers.depends(p))), ideal)
        if key not in known:
            known[key] = chain(p, at, ideal)
        return known[key]

    def chain(p: Place, at: Mapping[str, int], ideal: bool) -> float:
        if p.kind == "leaf":
            return float(len(p.statements))
        if p.kind == "sequence":
            return sum(span(c, at, ideal) for c in p.children if c.kind != "loop" or numbers.trips(c, at) > 0)
        parts = [(span(p.children[0], x, ideal), w) for x, w in numbers.samples(p, at, SPANS)]
        if p.mark == "parallel" or (ideal and free[p]):
            return max((s for s, _ in parts), default=0.0)
        return sum(s * w for s, w in parts)

    return span(numbers.root, {}, False), span(numbers.root, {}, True)


def _vectors(root: Place, numbers: Traffic | None) -> tuple[VectorCost, ...]:
    """The innermost loops, each with the statements that it runs."""
    out = []
    concrete = iter([p for p in numbers.root.walk() if p.kind == "loop"] if numbers else [])
    for p in root.walk():
        if p.kind != "loop":
            continue
        now = next(concrete, None)
        if any(c.kind == "loop" for c in p.children[0].walk()):
            continue
        kind, _, width = p.mark.partition(":")
        lanes = int(width or 1) if kind == "vector" else 1
        full = None
        at = numbers.middle(now) if numbers is not None and now is not None else None
        if lanes > 1 and numbers is not None and now is not None and at is not None:
            n = numbers.trips(now, at)
            full = n // lanes * lanes / n if n else None
        moves = dict.fromkeys((r.access.tensor, _move(r, p.name)) for r in p.refs)
        out.append(VectorCost(p.statements, p.name, lanes, full, tuple(moves)))
    return tuple(out)


def _move(r: Ref, loop: str) -> str:
    """How an access moves in memory from one iteration of a loop to the next."""
    f = r.function
    if f is None:
        return "gather"
    moving = [k for k, x in enumerate(f) if loop in x.names()]
    if not moving:
        return "invariant"
    last = len(f) - 1
    if moving != [last]:
        return "column"
    x: Affine = f[last]
    if not x.is_linear_in(loop):
        return "in blocks"
    step = x.coefficient(loop)
    return "contiguous" if abs(step) == 1 else f"stride {step}"

