"""Models that are read and planned: look at their kernels, put a schedule back, compile.

Takes a path, bytes, a ModelProto, a `Graph` or a Python loop nest; gives `LoadedModel` (a plan, nothing compiled) and what comes of it.
A user's schedule for a kernel is certified, and compared with the default kernel on random data, before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from polyopt.frontends.onnx import read_onnx
from polyopt.frontends.python_loops import ScopFunction

from ..errors import InternalError, UserError
from ..ir.graph import Graph, Plan
from ..ir.program import Program
from ..ir.scop import Scop
from ..ir.verify import verify_scop
from ..isl_ext import OperationBudget
from ..lower.kernel import Kernel, lower_group
from ..lower.scop import kernel_scop
from ..options import Options
from ..passes.fusion_facts import find_facts
from ..passes.sharing import prove_sharing
from ..pipeline import Compiled, compile_plan, new_trace, plan_graph
from ..poly.certify import certify
from .checks import check_kernel
from .compiled import Model, chosen_options
from .reports import Reports
from .schedules import Schedule, auto, with_dependences


class Kernels(Mapping[str, Scop]):
    """The kernels of a plan by name, each a Scop with dependences, made when asked for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._groups = {g.name: g for g in plan.groups}
        self._scops: dict[str, Scop] = {}

    def kernel(self, name: str) -> Kernel:
        """The kernel before isl. Raises UserError for a name that the model lacks."""
        if name not in self._groups:
            raise UserError(f"there is no kernel {name!r}; the kernels are {', '.join(self._groups)}")
        return lower_group(self._plan, self._groups[name])

    def __getitem__(self, name: str) -> Scop:
        if name not in self._groups:
            raise KeyError(f"there is no kernel {name!r}; the kernels are {', '.join(self._groups)}")
        if name not in self._scops:
            self._scops[name] = with_dependences(kernel_scop(self.kernel(name)))
        return self._scops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return f"<kernels {', '.join(self._groups)}>"


@dataclass(frozen=True)
class LoadedModel:
    """A model that is read and planned, not compiled. `schedules` holds what the user put in place of the recipes."""

    graph: Graph
    options: Options
    schedules: Mapping[str, Scop] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The fusion plan with storages and why-nots."""
        return plan_graph(self.graph, self.options, new_trace())

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels by name."""
        return Kernels(self.plan)

    @cached_property
    def reports(self) -> Reports:
        """What `polyopt explain` prints of each kernel, by name: schedule, proof and text. Nothing is built."""
        return Reports(self.plan, self.options)

    def with_schedule(self, name: str, schedule: Schedule | Scop) -> LoadedModel:
        """The model with another schedule for one kernel. It is checked when the model is compiled."""
        scop = schedule.scop if isinstance(schedule, Schedule) else schedule
        if not isinstance(scop, Scop):
            raise UserError(f"with_schedule({name!r}): give a schedule or a Scop of the model's kernel, not {type(schedule).__name__}")
        kernel = self.kernels.kernel(name)
        missing = [t.name for t in kernel.tensors if t.role != "local" and t.name not in {_origin(x) for x in scop.tensors}]
        if missing:
            raise UserError(f"with_schedule({name!r}): the schedule is not one of this kernel: it has no tensor {missing[0]}")
        try:
            verify_scop(scop)
        except InternalError as e:  # one that was put together by hand
            raise UserError(f"with_schedule({name!r}): {e}") from None
        out = replace(self, schedules={**self.schedules, name: scop})
        out.__dict__.update({k: self.__dict__[k] for k in ("plan", "kernels") if k in self.__dict__})
        return out

    def compile(self) -> Model:
        """The compiled model."""
        program, kernels = self.compile_program()
        return Model(program, lambda: self, kernels)

    def certificate(self, compiled: Mapping[str, Compiled]) -> dict[str, Any]:
        """What is proven of each compiled kernel, as `compile_program` gives them."""
        proof, kernels = storage_claim(self.plan), certificate_of(self.graph.name, compiled)
        return {**kernels, "ok": kernels["ok"] and proof["ok"], "storage": proof}

    def compile_program(self) -> tuple[Program, Mapping[str, Compiled]]:
        """The program, and each kernel as compiled, by name."""
        trace = new_trace()
        for name, scop in self.schedules.items():
            check_kernel(self.kernels.kernel(name), scop, self.options, trace)
        program, kernels = compile_plan(self.plan, self.graph.output_names, self.options, trace, self.schedules)
        trace.finish()
        return program, kernels


def storage_claim(plan: Plan) -> dict[str, Any]:
    """What is proven of the buffers that tensors share, before a kernel is looked at."""
    try:
        shared = prove_sharing(plan, find_facts(plan.graph))
    except OperationBudget as e:
        return {"ok": False, "text": f"not proven that tensors in one buffer keep their values: {e}"}
    return {"ok": True, "text": f"{shared} tensors share buffers; none overwrites another, and each finds its elements in their cells"}


def certificate_of(name: str, compiled: Mapping[str, Compiled]) -> dict[str, Any]:
    """For each kernel what was proven, with the objects that a checker needs: domains, schedule, dependences."""
    kernels = {}
    for c in compiled.values():
        if c.source.entry not in kernels:
            proof = certify(c.scop, c.nest)
            deps = with_dependences(c.scop).dependences
            kernels[c.source.entry] = {
                "label": proof.label,
                "ok": proof.ok,
                "claims": [{"name": x.name, "ok": x.ok, "text": x.text} for x in proof.claims],
                "context": str(c.scop.context),
                "domain": str(c.scop.domain()),
                "schedule": str(c.scop.schedule.get_map()),
                "dependences": {k: str(getattr(deps, k)) for k in ("flow", "anti", "output", "reduction")},
                "history": [str(s) for s in c.scop.history],
            }
    return {"model": name, "ok": all(k["ok"] for k in kernels.values()), "kernels": kernels}


def _origin(t: Any) -> str:
    return str(t.source[0] if t.source is not None else t.name)


def load(
    model: Any, *, options: Options | None = None, target: str | None = None, isa: str | None = None, threads: int | None = None,
    fp: str | None = None, dims: Mapping[str, int] | None = None,
) -> LoadedModel:  # fmt: skip
    """Read and plan a model. model: a path, bytes, a ModelProto, or a Graph. Raises ModelError for one that cannot be read."""
    options = chosen_options(options, target=target, isa=isa, threads=threads, fp=fp, dims=dims)
    graph = model if isinstance(model, Graph) else read_onnx(model, options.dims)
    return LoadedModel(graph, options)


def compile_value(model: Any, options: Options) -> Any:
    """Compile what is in memory: a loop nest or a schedule (a `CompiledKernel`), a ModelProto or a Graph (a `Model`)."""
    if isinstance(model, ScopFunction | Scop):
        model = auto(model, options.isa, options.threads, options.fp)
    if isinstance(model, Schedule):
        return model.compile(options.target, options.isa, options.threads, options.fp)
    return load(model, options=options).compile()
