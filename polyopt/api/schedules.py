"""A schedule under construction: an immutable wrapper of a Scop whose methods are the verbs.

Takes a Scop, or a Python loop nest; gives `Schedule`s. Every verb is checked against the dependences and gives a new schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import islpy as isl

from polyopt.codegen.c import emit_kernel
from polyopt.codegen.cuda import emit_device_kernel
from polyopt.frontends.python_loops import ScopFunction
from polyopt.runtime.kernel import CompiledKernel
from polyopt.runtime.load import load_kernel

from ..errors import OutputError, UserError
from ..ir.expr import Access
from ..ir.loops import LoopNest
from ..ir.scop import Dependences, Scop, Step
from ..ir.source import Source
from ..ir.text import schedule_text, show, to_text, update_text
from ..ir.verify import verify_nest, verify_scop, verify_source
from ..lower.loops import lower_to_loops
from ..options import Options
from ..poly.certify import QUICK, THOROUGH, Certificate, certify, check_instances
from ..poly.cost import Cost
from ..poly.cost_model import compute_cost
from ..poly.deps import compute_dependences
from ..target import cpu_target
from ..verbs import VERBS
from ..verbs.checked import with_dependences
from ..verbs.recipe import apply_recipe
from ..verbs.replay import check_arguments, history_from_json, history_to_json, replay

__all__ = ["Schedule", "auto", "schedule", "with_dependences"]

Reference = Callable[..., Any]


@dataclass(frozen=True)
class Schedule:
    """A Scop with its schedule. Verbs are methods: `s.tile(i=32)`, `s.interchange("i", "j")`, `s.vectorize("j", 8)`, …

    `reference(*arrays)` is the oracle: the original Python body, or the operator's NumPy reference.
    """

    scop: Scop
    reference: Reference | None = None

    # ---- what it is
    @property
    def domain(self) -> isl.UnionSet:
        """All statement instances."""
        return self.scop.domain()

    @property
    def accesses(self) -> dict[str, tuple[Access, tuple[Access, ...]]]:
        """For each statement, the access that it writes and those that it reads."""
        return {s.name: (s.write, s.reads()) for s in self.scop.statements}

    @cached_property
    def dependences(self) -> Dependences:
        """Flow, anti, output and reduction dependences."""
        deps = self.scop.dependences
        if deps is None:
            deps = compute_dependences(self.scop).dependences
        assert deps is not None
        return deps

    @property
    def history(self) -> tuple[Step, ...]:
        """The verbs applied so far."""
        return self.scop.history

    @property
    def label(self) -> str:
        """bit-identical, or which reductions are reassociated."""
        return self.scop.label

    # ---- verbs
    def __getattr__(self, name: str) -> Callable[..., Schedule]:
        verb = VERBS.get(name)
        if verb is None:
            raise AttributeError(f"a schedule has no verb {name!r}; the verbs are {', '.join(sorted(VERBS))}")

        def apply(*args: Any, **kwargs: Any) -> Schedule:
            check_arguments(name, verb, (self.scop, *args), kwargs)
            return replace(self, scop=verb(self.scop, *args, **kwargs))

        apply.__name__, apply.__doc__ = name, verb.__doc__
        return apply

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *VERBS})

    # ---- its history elsewhere
    def replay(self, other: Scop | ScopFunction | Schedule) -> Schedule:
        """The verbs of this schedule applied to another nest, or to the same nest at another size, each checked anew.

        Raises ScheduleError or IllegalSchedule with the step that does not fit.
        """
        start = schedule(other)
        return replace(start, scop=replay(start.scop, self.history))

    def to_json(self) -> str:
        """The history as text."""
        return history_to_json(self.scop.name, self.history)

    @staticmethod
    def from_json(text: str, nest: Scop | ScopFunction | Schedule) -> Schedule:
        """The schedule of a nest under a history in text, as `to_json` gives it. Raises ScheduleError for text that is none."""
        start = schedule(nest)
        return replace(start, scop=replay(start.scop, history_from_json(text)))

    def save(self, path: str | Path) -> Path:
        """Write the history to a file. Raises OutputError where that fails."""
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
        except OSError as e:
            raise OutputError(f"the schedule cannot be written to {path}: {e.strerror}") from None
        return Path(path)

    @staticmethod
    def load(path: str | Path, nest: Scop | ScopFunction | Schedule) -> Schedule:
        """The schedule of a nest under the history in a file. Raises UserError for a file that cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise UserError(f"the schedule {path} cannot be read: {getattr(e, 'strerror', None) or 'it is no text'}") from None
        return Schedule.from_json(text, nest)

    # ---- looking at it
    def __str__(self) -> str:
        return to_text(self.scop)

    def __repr__(self) -> str:
        return f"<schedule of {self.scop.name}: {len(self.scop.statements)} statements, {len(self.history)} steps, {self.label}>"

    def show(self, **options: Any) -> Any:
        """Draw domains, dependences and tiles (needs matplotlib)."""
        return show(self.scop, **options)

    def cost(self, target: str = "cpu", isa: str = "native", **dims: int) -> Cost:
        """What this schedule computes, touches and moves: closed forms in the dims and, where all have values, numbers.

        `s.cost(N=1000)` gives a value to each dim; the caches are those of the target. Raises UserError for dims that are missing or unknown,
        and where isl would take too long.
        """
        if target != "cpu":
            raise UserError(f"target {target}: the cost model knows the caches of a cpu only")
        return compute_cost(replace(self.scop, dependences=self.dependences), cpu_target(isa), dims or None)

    def explain(self) -> str:
        """A report: what was applied, statements, dependences, the schedule tree, the loops that come of it, and what they cost."""
        steps = "\n".join(f"  {k}. {s}" for k, s in enumerate(self.history, 1)) or "  (none)"
        statements = "\n".join(f"  {s.name}: {s.domain}\n    {update_text(s.write, s.expr, s.reduction)}" for s in self.scop.statements)
        deps = str(self.dependences).replace("\n", "\n  ")
        try:
            cost = str(self.cost())
        except UserError as e:  # its budget is spent
            cost = str(e)
        return "\n".join(
            [f"{self.scop.name}: {self.label}", "steps:", steps, "statements:", statements, "dependences:", f"  {deps}",
             "schedule:", schedule_text(self.scop.schedule), "loops:", to_text(lower_to_loops(self.scop)), cost]
        )  # fmt: skip

    def verify(self) -> Certificate:
        """Prove that the loops run exactly the domains, in an order that respects all dependences, within bounds."""
        scop = replace(self.scop, dependences=self.dependences)
        verify_scop(scop)
        nest = lower_to_loops(scop)
        verify_nest(nest)
        return certify(scop, nest)

    # ---- running it
    def source(self, target: str = "cpu", isa: str = "native", threads: int = 1, fp: str = "default") -> Source:
        """The text of the kernel: C for the CPU, CUDA C for a nest whose loops are bound to blocks and threads (`bind`)."""
        options = Options(target=target, isa=isa, threads=threads, fp=fp)
        if options.target == "cuda":
            device: Source = emit_device_kernel(self._loops(), "cuda", fp=fp)
            return device
        if options.target != "cpu":
            raise UserError(f"target {target}: text is emitted for cpu and cuda")
        source: Source = emit_kernel(self._loops(), cpu_target(isa, threads), fp, threads > 1)
        verify_source(source)
        return source

    def _loops(self) -> LoopNest:
        """The loops, which run each statement's domain once: looked at in full where a user chose the verbs, shortly where a recipe did."""
        nest = lower_to_loops(self.scop)
        check_instances(self.scop, nest, THOROUGH if all(step.verb in VERBS for step in self.history) else QUICK)
        return nest

    def compile(self, target: str = "cpu", isa: str = "native", threads: int = 1, fp: str = "default") -> CompiledKernel:
        """A function of arrays, with the arguments of the Python function in its order (or arrays first), outputs written in place."""
        if target != "cpu":
            raise UserError(f"target {target}: kernels run on the CPU only; source(target={target!r}) gives the text")
        order = self.scop.meta.get("arguments", ())
        return load_kernel(self.source(target, isa, threads, fp), threads=threads if threads > 1 else None, order=order)


def schedule(nest: Scop | ScopFunction | Schedule) -> Schedule:
    """A schedule that starts in the order in which the nest is written. Raises NotAffine for a nest outside the model."""
    if isinstance(nest, Schedule):
        return nest
    if isinstance(nest, ScopFunction):
        return Schedule(with_dependences(nest.scop), nest.reference)
    if isinstance(nest, Scop):
        return Schedule(with_dependences(nest))
    raise UserError(f"schedule takes a function decorated with @po.scop, a Scop or a schedule, not {type(nest).__name__}")


def auto(nest: Scop | ScopFunction | Schedule, isa: str = "native", threads: int = 1, fp: str = "default") -> Schedule:
    """The schedule that the recipes choose by the nest's structure."""
    s = schedule(nest)
    return replace(s, scop=apply_recipe(s.scop, cpu_target(isa, threads), Options(isa=isa, threads=threads, fp=fp)))
