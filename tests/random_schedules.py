"""Random verbs for hypothesis. Takes a Scop; gives `Trial`s: the Scop after a random sequence of verbs (those that are refused are skipped
over), the steps tried, and each refusal that names two clashing instances, with the Scop and the order that were refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import islpy as isl
from hypothesis import strategies as st

from polyopt.errors import IllegalSchedule, ScheduleError
from polyopt.ir.scop import Dependences, Scop
from polyopt.poly import deps
from polyopt.verbs import VERBS, checked
from polyopt.verbs.tree import Chain, Seq, chains, read_tree, statements_below

Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # verb, arguments


TRIED = (
    "tile", "strip_mine", "interchange", "skew", "reverse", "shift", "fuse", "distribute", "vectorize", "unroll", "parallelize",
    "promote", "prefetch", "unroll_jam", "wavefront", "diamond", "privatize", "software_pipeline",
)  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """A verb that was refused because it breaks a dependence.

    order: the schedule that was refused, where the verb makes one.
    """

    scop: Scop
    call: Call
    error: IllegalSchedule
    order: isl.Schedule | None

    def __repr__(self) -> str:
        return f"Refusal: {self.error}"


@dataclass(frozen=True)
class Trial:
    """A scop after random verbs. `calls` are those that were accepted, `start` the dependences of the program itself."""

    scop: Scop
    start: Dependences | None
    calls: tuple[Call, ...]
    refusals: tuple[Refusal, ...]

    def __repr__(self) -> str:
        steps = [f"  {verb}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})" for verb, args, kwargs in self.calls]
        return "\n".join(["Trial:", *(steps or ["  (no verb)"]), f"  label: {self.scop.label}"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@contextmanager
def spying(module: Any, name: str, calls: list[tuple[Any, ...]]) -> Iterator[None]:
    """Appends the arguments of each call of a module's function."""
    real = getattr(module, name)

    def record(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return real(*args, **kwargs)

    setattr(module, name, record)
    try:
        yield
    finally:
        setattr(module, name, real)


@st.composite
def schedules(draw: Any, scop: Scop, most: int = 5) -> Trial:
    """Up to `most` random verbs on a scop, tried until they are accepted (half as many more tries at most)."""
    calls: list[Call] = []
    refusals: list[Refusal] = []
    scop = deps.compute_dependences(scop)
    start = scop.dependences
    wanted = draw(st.sampled_from(range(most, -1, -1)))
    for _ in range(wanted + wanted // 2):
        call = draw(verb_calls(scop)) if len(calls) < wanted else None
        if call is None:
            break
        verb, args, kwargs = call
        asked: list[tuple[Any, ...]] = []
        try:
            with spying(checked, "check_schedule", asked):
                scop = VERBS[verb](scop, *args, **kwargs)
        except IllegalSchedule as e:
            refusals.append(Refusal(scop, call, e, asked[-1][1] if asked else None))
        except ScheduleError:
            pass
        else:
            calls.append(call)
    return Trial(scop, start, tuple(calls), tuple(refusals))


@st.composite
def verb_calls(draw: Any, scop: Scop) -> Call | None:
    """A call of a random verb; None where the scop has no loop."""
    pick = lambda *xs: draw(st.sampled_from(xs))  # noqa: E731
    here = [c for c in chains(read_tree(scop.schedule)) if c.members]
    if not here:
        return None
    chain: Chain = pick(*here)
    loops, statements = chain.names(), chain.statements
    loop = pick(*loops)
    of = {"of": pick(*statements)}
    verb = pick(*(v for v in TRIED if v in VERBS), "tile", "promote")
    if verb == "tile":
        some = draw(st.lists(st.sampled_from(loops), min_size=1, max_size=3, unique=True))
        return verb, (), {**{n: pick(1, 2, 3, 4) for n in some}, **of}
    if verb == "strip_mine":
        return verb, (loop, pick(1, 2, 3, 5)), of
    if verb == "interchange":
        return verb, tuple(draw(st.permutations(loops))[: pick(2, 3)]), of
    if verb == "skew" and len(loops) > 1 and pick(True, False):
        a, b = draw(st.permutations(loops))[:2]
        return verb, (), {a: f"{pick(1, -1)}*{a} + {pick(1, -1, 2)}*{b} + {pick(0, 3)}", **of}
    if verb == "skew":
        return verb, (loop,), {"by": pick(*loops), "factor": pick(1, 1, -1, 2), **of}
    if verb == "shift":
        return verb, (of["of"], loop, pick(-2, -1, 1, 2)), {}
    if verb == "fuse":
        two = draw(st.lists(st.sampled_from([s.name for s in scop.statements]), min_size=1, max_size=2, unique=True))
        return verb, tuple(two), pick({}, {"depth": 1}, {"depth": 2})
    if verb == "distribute":
        return verb, (loop,), {**of, **pick({}, {}, {"loops": loops[len(loops) - 1 :]})}
    if verb == "vectorize":
        return verb, (loop, pick(2, 4, 8)), of
    if verb == "unroll":
        return verb, (loop, *pick((), (2,), (3,))), of
    if verb in ("promote", "prefetch"):
        tensor = pick(*(a.tensor for n in statements for s in [scop.statement(n)] for a in (s.write, *s.reads())))
        if verb == "prefetch":
            return verb, (tensor,), {"at": loop, "distance": pick(1, 2), **of}
        return verb, (tensor,), {"at": loop, "scope": pick("registers", "cache"), "lanes": pick(0, 0, 4), **of}
    if verb == "unroll_jam":
        return verb, (loop, pick(2, 3)), of
    if verb == "wavefront":
        return verb, tuple(draw(st.permutations(loops))[:2]), of
    if verb == "diamond":
        inner = [n for c in here if c.path[: len(chain.path)] == chain.path for n in c.names() if n != loop]
        return (verb, (loop, pick(*inner)), {"size": pick(2, 3, 4), **of}) if inner else (verb, (loop,), {"size": 3, **of})
    if verb == "privatize":
        written = [scop.statement(n).write.tensor for n in statements]
        return verb, (pick(*written),), {"at": loop, **of, **pick({}, {}, {"copies": 2})}
    if verb == "software_pipeline":
        return verb, (loops[-1],), {**of, **stages_of(draw, chain)}
    return verb, (loop,), of  # reverse, parallelize


def stages_of(draw: Any, chain: Chain) -> dict[str, Any]:
    """The parts below a chain cut in two stages, in either order; nothing where there is one part."""
    if not isinstance(chain.below, Seq):
        return {}
    parts = [statements_below(p) for p in chain.below.parts]
    cut = draw(st.integers(1, len(parts) - 1))
    two = (tuple(n for p in parts[:cut] for n in p), tuple(n for p in parts[cut:] for n in p))
    return {"stages": draw(st.sampled_from((two, two, two[::-1])))}
