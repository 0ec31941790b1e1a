"""Models: compile an ONNX file, look at its kernels, put a schedule back, run, save.

Takes a path, bytes, a ModelProto, a `Graph` or a Python loop nest; gives `LoadedModel` (a plan, nothing compiled) and `Model` (callable).
A user's schedule for a kernel is certified, and compared with the default kernel on random data, before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polyopt.frontends.onnx import read_onnx
from polyopt.frontends.python_loops import ScopFunction
from polyopt.runtime.artifact import load_artifact, write_artifact
from polyopt.runtime.build import is_for_this_machine
from polyopt.runtime.cache import key_of
from polyopt.runtime.load import load_program
from polyopt.runtime.model import CompiledModel
from polyopt.runtime.programs import code_fingerprint, remember

from ..errors import InternalError, UserError
from ..ir.graph import Graph, Plan
from ..ir.program import Port, Program
from ..ir.scop import Scop
from ..ir.verify import verify_scop
from ..lower.kernel import Kernel, lower_group
from ..lower.scop import kernel_scop
from ..ops.registry import has_custom
from ..options import Options
from ..pipeline import Compiled, compile_plan, new_trace, plan_graph
from ..poly.certify import certify
from ..target import cpu_target
from .checks import check_kernel
from .schedules import Schedule, auto, with_dependences

Array = np.ndarray[Any, Any]


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
            raise KeyError(name)
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

    def compile_program(self) -> tuple[Program, Mapping[str, Compiled]]:
        """The program, and each kernel as compiled, by name."""
        trace = new_trace()
        for name, scop in self.schedules.items():
            check_kernel(self.kernels.kernel(name), scop, self.options, trace)
        program, kernels = compile_plan(self.plan, self.graph.outputs, self.options, trace, self.schedules)
        trace.finish()
        return program, kernels


def _origin(t: Any) -> str:
    return str(t.source[0] if t.source is not None else t.name)


class Profile(list[tuple[str, float]]):
    """Mean seconds of each kernel call, in order; prints as a table, the slowest first."""

    def __str__(self) -> str:
        total = sum(t for _, t in self) or 1.0
        rows = sorted(self, key=lambda r: -r[1])
        width = max((len(n) for n, _ in rows), default=0)
        lines = [f"{n:{width}}  {t * 1e3:9.3f} ms  {100 * t / total:5.1f} %" for n, t in rows]
        return "\n".join([*lines, f"{'total':{width}}  {total * 1e3:9.3f} ms"])


class Model:
    """A compiled model. Call it with arrays in the order of `inputs`, or by name; one output comes as an array, more as a tuple."""

    def __init__(self, program: Program, load: Callable[[], LoadedModel], compiled: Mapping[str, Compiled] | None = None) -> None:
        self.program, self._load, self._compiled = program, load, compiled
        if is_for_this_machine():  # else it can be saved, not run
            _ = self._run

    @cached_property
    def _run(self) -> CompiledModel:
        return load_program(self.program)

    @cached_property
    def loaded(self) -> LoadedModel:
        """The model as read and planned (read anew where the program came from the cache)."""
        return self._load()

    @property
    def compiled(self) -> Mapping[str, Compiled]:
        """Each kernel as compiled, by name: scheduled Scop, loops, text."""
        if self._compiled is None:
            loaded = self.loaded
            _, self._compiled = compile_plan(loaded.plan, loaded.graph.outputs, loaded.options, new_trace(), loaded.schedules)
        return self._compiled

    def __repr__(self) -> str:
        return f"<model {self.program.name}: {len(self.program.calls)} kernel calls, {len(self.program.kernels)} kernels>"

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs: name, dtype, shape."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs: name, dtype, shape."""
        return self.program.outputs

    @property
    def dims(self) -> tuple[str, ...]:
        """The symbolic dims."""
        return self.program.dims

    @property
    def kernels(self) -> Kernels:
        """The kernels by name, as Scops in their original order (`compiled` has them as scheduled)."""
        return self.loaded.kernels

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays. `out`: an array, or a sequence of arrays, to write to."""
        return self._run(*arrays, out=out, **named)

    def run(self, feeds: Mapping[str, Any], *, out: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run on named inputs; gives named outputs."""
        return self._run.run(feeds, out=out)

    def profile(self, feeds: Mapping[str, Any] | Sequence[Any], *, repeat: int = 10) -> Profile:
        """Mean seconds of each kernel call; the first, cold run is not counted."""
        return Profile(self._run.profile(feeds, repeat=repeat))

    def with_schedule(self, name: str, schedule: Schedule | Scop) -> Model:
        """The model compiled with another schedule for one kernel. Raises IllegalSchedule or WrongResult where it is not equivalent."""
        return self.loaded.with_schedule(name, schedule).compile()

    def certificate(self) -> dict[str, Any]:
        """For each kernel what was proven, with the objects that a checker needs: domains, schedule, dependences."""
        kernels = {}
        for c in self.compiled.values():
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
        return {"model": self.program.name, "ok": all(k["ok"] for k in kernels.values()), "kernels": kernels}

    def save(self, directory: str | Path) -> list[Path]:
        """Write the shared library, C sources, header, weights, manifest, Makefile, certificate and an example."""
        if not isinstance(directory, str | os.PathLike):
            raise UserError(f"save takes a folder's path, not {type(directory).__name__}")
        text = json.dumps(self.certificate(), indent=1)
        return write_artifact(self.program, directory, extra_files={"certificate.json": text.encode()})


def _chosen(options: Options | None, **given: Any) -> Options:
    """The options with those replaced that are given."""
    if not isinstance(options, Options | None):
        raise UserError(f"options are a po.Options, not {type(options).__name__}")
    return replace(options or Options(), **{k: v for k, v in given.items() if v is not None})


def load(
    model: Any, *, options: Options | None = None, target: str | None = None, isa: str | None = None, threads: int | None = None,
    fp: str | None = None, dims: Mapping[str, int] | None = None,
) -> LoadedModel:  # fmt: skip
    """Read and plan a model. model: a path, bytes, a ModelProto, or a Graph. Raises ModelError for one that cannot be read."""
    options = _chosen(options, target=target, isa=isa, threads=threads, fp=fp, dims=dims)
    graph = model if isinstance(model, Graph) else read_onnx(model, options.dims)
    return LoadedModel(graph, options)


def compile(
    model: Any, *, options: Options | None = None, target: str | None = None, isa: str | None = None, threads: int | None = None,
    fp: str | None = None, dims: Mapping[str, int] | None = None,
) -> Any:  # fmt: skip
    """Compile a model, an artifact's folder, or a Python loop nest (by its recipe).

    model: a path, bytes, ModelProto or Graph gives a `Model`; a folder that `save` wrote a `CompiledModel`; a `@po.scop` function or a
    schedule a `CompiledKernel`. The other arguments override those of `options`; dims binds symbolic dims.
    """
    options = _chosen(options, target=target, isa=isa, threads=threads, fp=fp, dims=dims)
    if isinstance(model, ScopFunction | Scop):
        return auto(model, options.isa, options.threads, options.fp).compile(options.target, options.isa, options.threads, options.fp)
    if isinstance(model, Schedule):
        return model.compile(options.target, options.isa, options.threads, options.fp)
    if isinstance(model, str | Path) and Path(model).is_dir():
        return load_artifact(model, threads=threads)
    key = _program_key(model, options)
    if key is None:
        return load(model, options=options).compile()
    made: list[tuple[LoadedModel, Mapping[str, Compiled]]] = []

    def build() -> Program:
        loaded = load(model, options=options)
        program, kernels = loaded.compile_program()
        made.append((loaded, kernels))
        return program

    program = remember(key, build)
    if made:
        return Model(program, lambda: made[0][0], made[0][1])
    return Model(program, lambda: load(model, options=options))


def _program_key(model: Any, options: Options) -> str | None:
    """The cache key of a model given by its file or bytes; None where the result depends on more than those, the options and this machine."""
    if has_custom() or os.environ.get("POLYOPT_DUMP"):
        return None
    try:
        data = Path(model).read_bytes() if isinstance(model, str | Path) else model if isinstance(model, bytes) else None
    except OSError:
        return None  # reading it again gives the error its wording
    if data is None or b"location" in data:  # external data lies in other files
        return None
    chosen = replace(options, dims=dict(sorted(options.dims.items())))
    name = "" if isinstance(model, bytes) else Path(model).stem  # the program is called so
    return key_of(code_fingerprint(), name, repr(chosen), repr(cpu_target(options.isa, options.threads)), data)
