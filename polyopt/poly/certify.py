"""Certificates: proofs about a LoopNest, made after lowering and apart from the verbs.

Takes the Scop and the LoopNest that came out of it; gives a frozen `Certificate`. The nest is read back into isl and compared with the
Scop: the same instances, each once; the dependences in order; accesses that are the statements' own and in bounds; parallel and vector
loops that carry nothing; buffers whose values are not read beyond their declaration; copies that change no value. A claim that fails is a
defect of polyopt (`InternalError` with a witness); one whose proof exceeds isl's budget, or rests on an index read at run time, is marked
as not proven.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import islpy as isl

from ..errors import InternalError, ScheduleError
from ..ir.loops import Loop, LoopNest, recurrence_along
from ..ir.scop import Scop
from ..isl_ext import IN, OUT, OperationBudget, maps_of, max_operations, sample_map, sample_set
from .agree import follows_schedule
from .deps import compute_dependences, is_private
from .legality import is_respected, kinds, private_kinds
from .lifetimes import life_of, prove_lives
from .nest import Leaf, compute_leaves
from .promotion import prove_promotions
from .prove_accesses import NotProven, prove_accesses, prove_bounds
from .separate import iterations_apart

BUDGET = 10_000_000  # isl operations for each claim
THOROUGH, QUICK = 1_000_000, 10_000  # isl operations for one statement's instances, where code is made without a certificate


@dataclass(frozen=True)
class Claim:
    """One statement about the nest. `ok` is True where it is proven, False where it is not (`text` says why)."""

    name: str
    ok: bool
    seconds: float
    text: str


@dataclass(frozen=True)
class Certificate:
    """What was proven about one kernel."""

    kernel: str
    label: str
    claims: tuple[Claim, ...]

    @property
    def ok(self) -> bool:
        """Whether all claims are proven."""
        return all(c.ok for c in self.claims)

    def __str__(self) -> str:
        rows = [f"  {'proven    ' if c.ok else 'not proven'} {c.name:10} {c.text} ({c.seconds * 1e3:.0f} ms)" for c in self.claims]
        return "\n".join([f"{self.kernel}: {self.label}", *rows])


def certify(scop: Scop, nest: LoopNest, *, budget: int = BUDGET) -> Certificate:
    """Prove the nest against the Scop that it was lowered from. Raises `InternalError` with a witness where a claim is false.

    Dependences that the Scop does not carry are those of its own schedule.
    """
    leaves = compute_leaves(nest, scop)
    full = cache(lambda: scop if scop.dependences is not None else compute_dependences(scop))
    dependent = cache(lambda: dependent_pairs(full(), leaves))
    claims: tuple[tuple[str, Callable[[], str]], ...] = (
        ("instances", lambda: prove_instances(scop, leaves)),
        ("order", lambda: prove_order(scop, leaves, full, dependent)),
        ("parallel", lambda: prove_parallel(scop, leaves, full, dependent)),
        ("accesses", lambda: prove_accesses(scop, leaves)),
        ("bounds", lambda: prove_bounds(scop, nest, leaves)),
        ("lives", lambda: prove_lives(scop, leaves)),
        ("copies", lambda: prove_promotions(scop)),
    )
    return Certificate(nest.name, scop.label, tuple(_claim(nest.name, name, prove, budget) for name, prove in claims))


def _claim(kernel: str, name: str, prove: Callable[[], str], budget: int) -> Claim:
    start = time.perf_counter()
    try:
        with max_operations(budget):
            ok, text = True, prove()
    except OperationBudget:
        ok, text = False, f"not proven (budget of {budget} isl operations)"
    except NotProven as e:
        ok, text = False, str(e)
    except InternalError as e:
        raise InternalError(f"certificate of {kernel}: {name}: {e}") from e
    return Claim(name, ok, time.perf_counter() - start, text)


# ---- instances
def check_instances(scop: Scop, nest: LoopNest, budget: int = THOROUGH) -> None:
    """Refuse a nest that does not run each statement's domain once, as isl's code generation gives for some odd schedules.

    Raises ScheduleError. A statement for which that takes more than the budget is left to the certificate.
    """
    try:
        leaves = _by_statement(scop, compute_leaves(nest, scop))
        for name, own in leaves.items():
            with contextlib.suppress(OperationBudget), max_operations(budget):
                _prove_statement(scop, name, own)
    except InternalError as e:
        raise ScheduleError(
            f"{scop.name}: isl generates wrong loops for this schedule: {e}; undo the last step, or tile before other loops"
        ) from None


def prove_instances(scop: Scop, leaves: list[Leaf]) -> str:
    """The nest runs exactly the Scop's instances, each once."""
    for name, own in _by_statement(scop, leaves).items():
        _prove_statement(scop, name, own)
    return f"{len(scop.statements)} statements in {len(leaves)} places run exactly their domains, each instance once"


def _by_statement(scop: Scop, leaves: list[Leaf]) -> dict[str, list[Leaf]]:
    by_name: dict[str, list[Leaf]] = {s.name: [] for s in scop.statements}
    for x in leaves:
        if x.instance.statement not in by_name:
            raise InternalError(f"the nest runs {x.instance.statement}, which is no statement of the scop")
        by_name[x.instance.statement].append(x)
    return by_name


def _prove_statement(scop: Scop, name: str, leaves: list[Leaf]) -> None:
    wanted = scop.statement(name).domain.intersect_params(scop.context)
    seen = isl.Set.empty(wanted.get_space())
    for x in leaves:
        runs = x.instances()
        if not runs.is_injective():
            raise InternalError(f"{name} runs an instance twice: {sample_map(runs.apply_range(runs.reverse()))}")
        ran = runs.range()
        if not ran.is_disjoint(seen):
            raise InternalError(f"{name} runs an instance twice: {sample_set(ran.intersect(seen))}")
        seen = seen.union(ran)
    for a, b, word in ((wanted, seen, "leaves out"), (seen, wanted, "runs, outside its domain,")):
        if not a.is_subset(b):
            raise InternalError(f"the nest {word} {name}{_instance(a.subtract(b))}")


def _instance(s: isl.Set) -> str:
    """Some point of a set, with the parameters' values."""
    point, params = sample_set(s) or ((), {})
    where = f" with {', '.join(f'{k}={v}' for k, v in params.items())}" if params else ""
    return f"({', '.join(map(str, point))}){where}"


# ---- order
Pair = tuple[str, isl.Map, Leaf, Leaf]


def dependent_pairs(scop: Scop, leaves: list[Leaf]) -> list[Pair]:
    """Each dependence between two leaves that share a loop or are in the wrong order, over loop variable values."""
    by_name: dict[str, list[Leaf]] = {}
    for x in leaves:
        by_name.setdefault(x.instance.statement, []).append(x)
    coords = {id(x): x.coordinates() for x in leaves}
    out: list[Pair] = []
    # the Scop's own order is what was lowered, so the nest keeps what its private buffers need, be it more than their flow
    for kind, deps in (*kinds(scop, reassociate=False), *private_kinds(scop)):
        for dep in maps_of(deps.intersect_params(scop.context)):
            for a in by_name.get(dep.get_tuple_name(IN), ()):
                left = dep.preimage_domain_multi_aff(coords[id(a)]).intersect_domain(a.domain)
                if left.is_empty():
                    continue
                for b in by_name.get(dep.get_tuple_name(OUT), ()):
                    if a.positions[0] < b.positions[0]:
                        continue
                    pairs = left.preimage_range_multi_aff(coords[id(b)]).intersect_range(b.domain)
                    if not pairs.is_empty():
                        out.append((kind, pairs, a, b))
    return out


def find_unordered_pair(active: isl.Map, a: Leaf, b: Leaf, start: int = 0, lane: int | None = None) -> isl.Map | None:
    """Some pairs whose source does not come first, looking at the bodies and loops from depth `start` inwards.

    `lane`: pairs of one leaf that nothing else orders are in order where the loop of that depth orders them.
    """
    for d in range(start, min(len(a.positions), len(b.positions))):
        if a.positions[d] != b.positions[d]:
            return None if a.positions[d] < b.positions[d] else active
        if d < len(a.loops) and d < len(b.loops):
            bad = active.order_gt(IN, d, OUT, d)
            if not bad.is_empty():
                return bad
            active = active.equate(IN, d, OUT, d)
            if active.is_empty():
                return None
    if lane is not None:
        active = active.order_ge(IN, lane, OUT, lane)
    return None if active.is_empty() else active


def _refuse(scop: Scop, kind: str, bad: isl.Map, a: Leaf, b: Leaf, what: str) -> None:
    found = sample_map(bad)
    assert found is not None
    x, y, params = found

    def coords(leaf: Leaf, point: tuple[int, ...]) -> str:
        values = {**params, **{loop.var: v for loop, v in zip(leaf.loops, point)}}
        return f"{leaf.instance.statement}({', '.join(str(c.evaluate(values)) for c in leaf.instance.coords)})"

    text = f"{what} breaks a {kind} dependence from {coords(a, x)} to {coords(b, y)} with {params}"
    if scop.dependences is not None and not scop.dependences.exact:
        raise NotProven(f"not proven: {text}, unless a write between them settles it (the dependences exceed isl's budget)")
    raise InternalError(text)


def prove_order(scop: Scop, leaves: list[Leaf], full: Callable[[], Scop], dependent: Callable[[], list[Pair]]) -> str:
    """All dependences are respected by the nest's sequential order (those among updates of a reduction where the label says so).

    They are where the nest runs in the order of the schedule and that order respects them; those that the Scop does not carry, and those
    through private buffers, are that order's own. Else each pair of leaves is looked at.
    """
    if not (follows_schedule(scop, leaves) and (scop.dependences is None or is_respected(scop))):
        for kind, pairs, a, b in dependent():
            bad = None if _is_free(scop, kind) else find_unordered_pair(pairs, a, b)
            if bad is not None:
                _refuse(full(), kind, bad, a, b, "the order")
    respected = "all dependences" if scop.label == "bit-identical" else "all dependences but those among updates of a reduction"
    return f"{respected} go forward in time"


def _is_free(scop: Scop, kind: str) -> bool:
    """Whether dependences of a kind are among updates of a reduction that the label says to be reordered."""
    return kind == "reduction" and scop.label != "bit-identical"


# ---- parallel and vector loops
def _is_parallel(loop: Loop) -> bool:
    return loop.mark == "parallel" or loop.mark.startswith("bind:block")


def prove_parallel(scop: Scop, leaves: list[Leaf], full: Callable[[], Scop], dependent: Callable[[], list[Pair]]) -> str:
    """Parallel loops carry no dependence; vector loops none that the order of vector execution breaks.

    They do not where each iteration touches elements of its own. Else each pair of leaves is looked at.
    """
    marked = {id(loop): loop for x in leaves for loop in x.loops if _is_parallel(loop) or loop.mark == "vector"}
    if not marked:
        return "there is no parallel or vector loop"
    if not all(_are_apart(scop, leaves, loop) for loop in marked.values()):
        _check_iterations(full(), dependent())
    for x in leaves:
        _check_private(scop, x)
    count = sum(_is_parallel(loop) for loop in marked.values())
    return f"{count} parallel and {len(marked) - count} vector loops carry no dependence"


def _are_apart(scop: Scop, leaves: list[Leaf], loop: Loop) -> bool:
    """Whether the iterations of a parallel or vector loop touch elements of their own (each parallel one has private buffers of its own)."""
    inside = [x for x in leaves if any(y is loop for y in x.loops)]
    places = {x.positions[: d + 1] for x in inside for d, y in enumerate(x.loops) if y is loop}
    if len(places) > 1:
        return False
    depth = len(places.pop()) - 1
    if _is_parallel(loop):
        return iterations_apart(inside, depth, ignore={t.name for t in scop.tensors if is_private(t)})
    return iterations_apart(inside, depth, reassociate=scop.label != "bit-identical")


def _check_iterations(scop: Scop, dependent: list[Pair]) -> None:
    for kind, pairs, a, b in dependent:
        active = pairs
        for d, loop in enumerate(a.loops):
            if d >= len(b.loops) or a.positions[d] != b.positions[d]:
                break
            bad = None
            if _is_parallel(loop):
                # each iteration has private buffers of its own; updates of one cell in two threads are a race in any order
                bad = None if kind.startswith("private") else _carried(active, d)
            elif loop.mark == "vector" and not _is_free(scop, kind):
                # all lanes run one statement before the next, and it reads all lanes before it writes any
                free = _recurrent(active, a, d) if kind == "flow" and a is b and scop.label != "bit-identical" else None
                seen = active if free is None else active.subtract(free)
                bad = find_unordered_pair(seen, a, b, d + 1, d if kind.endswith("anti") and a is b else None)
            if bad is not None:
                _refuse(scop, kind, bad, a, b, f"the {loop.mark} loop {loop.var}")
            active = active.equate(IN, d, OUT, d)


def _recurrent(active: isl.Map, x: Leaf, d: int) -> isl.Map | None:
    """The pairs in neighbouring iterations of the loop of depth d, equal in all others, where the leaf is a linear recurrence along it."""
    if recurrence_along(x.instance, x.loops[d].var) is None:
        return None
    own = isl.MultiAff.identity_on_domain_space(x.domain.get_space())
    step = own.set_at(d, own.get_at(d).add_constant_val(isl.Val.one(active.get_ctx())))
    return active.intersect(isl.Map.from_multi_aff(step))


def _carried(active: isl.Map, d: int) -> isl.Map | None:
    for bad in (active.order_lt(IN, d, OUT, d), active.order_gt(IN, d, OUT, d)):
        if not bad.is_empty():
            return bad
    return None


def _check_private(scop: Scop, x: Leaf) -> None:
    """A buffer of a tile that a parallel loop writes must begin its life inside that loop."""
    name = x.instance.write.tensor
    if not any(t.name == name and is_private(t) for t in scop.tensors):
        return
    life = life_of(x, name)
    for d, loop in enumerate(x.loops):
        if _is_parallel(loop) and (life is None or life[1] <= d):
            raise InternalError(f"iterations of the parallel loop {loop.var} share the buffer {name}")
