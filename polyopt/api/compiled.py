"""Compiled models, and `compile`, which finds them in the cache or has them made.

Takes a model's file, bytes, or a value in memory; gives `Model`. A model that was compiled before starts without the compiler: this module
needs the runtime only, and imports the front end, isl and the passes (`polyopt.api.models`) where there is something to compile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyopt.runtime.artifact import load_artifact, write_artifact
from polyopt.runtime.build import is_for_this_machine
from polyopt.runtime.cache import key_of, key_of_file
from polyopt.runtime.load import load_program
from polyopt.runtime.model import CompiledModel
from polyopt.runtime.programs import code_fingerprint, recall, remember

from ..errors import UserError
from ..ir.program import Port, Program
from ..options import Options
from ..target import cpu_target
from .registered import REGISTERED

if TYPE_CHECKING:
    from ..ir.scop import Scop
    from ..pipeline import Compiled
    from .models import Kernels, LoadedModel
    from .schedules import Schedule

Array = np.ndarray[Any, Any]


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
            _, self._compiled = self.loaded.compile_program()
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
        return self.loaded.certificate(self.compiled)

    def save(self, directory: str | Path) -> list[Path]:
        """Write the shared library, C sources, header, weights, manifest, Makefile, certificate and an example."""
        if not isinstance(directory, str | os.PathLike):
            raise UserError(f"save takes a folder's path, not {type(directory).__name__}")
        text = json.dumps(self.certificate(), indent=1)
        return write_artifact(self.program, directory, extra_files={"certificate.json": text.encode()})


def chosen_options(options: Options | None, **given: Any) -> Options:
    """The options with those replaced that are given."""
    if not isinstance(options, Options | None):
        raise UserError(f"options are a po.Options, not {type(options).__name__}")
    return replace(options or Options(), **{k: v for k, v in given.items() if v is not None})


def compile(
    model: Any, *, options: Options | None = None, target: str | None = None, isa: str | None = None, threads: int | None = None,
    fp: str | None = None, dims: Mapping[str, int] | None = None,
) -> Any:  # fmt: skip
    """Compile a model, an artifact's folder, or a Python loop nest (by its recipe).

    model: a path, bytes, ModelProto or Graph gives a `Model`; a folder that `save` wrote a `CompiledModel`; a `@po.scop` function or a
    schedule a `CompiledKernel`. The other arguments override those of `options`; dims binds symbolic dims.
    """
    options = chosen_options(options, target=target, isa=isa, threads=threads, fp=fp, dims=dims)
    if not isinstance(model, str | os.PathLike | bytes):
        return _models().compile_value(model, options)
    if not isinstance(model, bytes) and Path(model).is_dir():
        return load_artifact(model, threads=threads)
    key = _program_key(model, options)
    known = None if key is None else recall(key)
    if known is not None:
        return Model(known, lambda: _load(model, options))
    loaded = _load(model, options)
    made: list[Mapping[str, Compiled]] = []

    def build() -> Program:
        program, kernels = loaded.compile_program()
        made.append(kernels)
        return program

    keep = key is not None and not _has_external_data(model) and _program_key(model, options) == key  # still the file that was read
    program = remember(key, build) if keep and key is not None else build()
    return Model(program, lambda: loaded, made[0] if made else None)


def _models() -> Any:
    """The module that compiles; it brings isl, onnx and all passes with it."""
    return import_module("polyopt.api.models")


def _load(model: Any, options: Options) -> LoadedModel:
    loaded: LoadedModel = _models().load(model, options=options)
    return loaded


def _program_key(model: str | os.PathLike[str] | bytes, options: Options) -> str | None:
    """The cache key of a model given by its file or bytes; None where the result depends on more than those, the options and this machine."""
    if REGISTERED or os.environ.get("POLYOPT_DUMP"):
        return None
    try:
        content = key_of(model) if isinstance(model, bytes) else key_of_file(Path(model))
    except OSError:
        return None  # reading it again gives the error its wording
    chosen = replace(options, dims=dict(sorted(options.dims.items())))
    name = "" if isinstance(model, bytes) else Path(model).stem  # the program is called so
    return key_of(code_fingerprint(), name, repr(chosen), repr(cpu_target(options.isa, options.threads)), content)


def _has_external_data(model: str | os.PathLike[str] | bytes) -> bool:
    """Whether tensors may lie in other files, whose contents the key does not see."""
    return b"location" in (model if isinstance(model, bytes) else Path(model).read_bytes())
