"""A compiled model as a Python callable. Takes a loaded library with the interface of `header`; gives arrays.

A context serves one call at a time; concurrent calls take contexts from a pool, which makes one where it is empty. The fast path, arrays of the
shape seen before, costs a few microseconds: everything that depends on shapes is kept per shape.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyopt.errors import ArgumentError, InternalError, UserError
from polyopt.ir.program import Port

from .arrays import Array, address, dense_input, dense_output, new_output, numpy_dtype
from .shapes import bind_dims, shape_text

_SHAPES_KEPT = 256


class ModelLibrary:
    """The C functions of a model's library. `library`: loaded by ctypes; `prefix`: of its names."""

    def __init__(self, library: ctypes.CDLL, prefix: str) -> None:
        pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

        def function(name: str, result: Any, *arguments: Any) -> Any:
            f = getattr(library, f"{prefix}_{name}")
            f.restype, f.argtypes = result, arguments
            return f

        self.create = function("create", pointer, text, text, ctypes.c_size_t)
        self.create_with = function("create_with", pointer, pointer, text, ctypes.c_size_t)
        self.run = function("run", integer, pointer, pointer, pointer, pointer)
        self.destroy = function("destroy", None, pointer)
        self.last_error = function("last_error", text, pointer)
        self.set_threads = function("set_threads", integer, pointer, integer)
        self.set_profile = function("set_profile", None, pointer, pointer)
        self.arena_bytes = function("arena_bytes", ctypes.c_size_t, pointer)


class _Context:
    """One arena, and the pointer arrays that go with a call. Destroyed with the object."""

    __slots__ = ("__weakref__", "dims", "handle", "inputs", "last", "outputs")

    def __init__(self, handle: int, library: ModelLibrary, inputs: int, outputs: int, dims: int) -> None:
        self.handle = handle
        self.inputs = (ctypes.c_void_p * max(1, inputs))()
        self.outputs = (ctypes.c_void_p * max(1, outputs))()
        self.dims = (ctypes.c_int64 * max(1, dims))()
        self.last: object = None
        weakref.finalize(self, library.destroy, handle)


class _Plan:
    """What follows from the shapes of the inputs: dims and the outputs to make."""

    __slots__ = ("dims", "outputs")

    def __init__(self, dims: tuple[int, ...], outputs: list[tuple[tuple[int, ...], np.dtype[Any], int]]) -> None:
        self.dims = dims
        self.outputs = outputs


class CompiledModel:
    """Call it with arrays in the order of `inputs`, or by name: `model(x, mask=m)`; one output comes as an array, more as a tuple.

    `run(feeds)` takes and gives dicts. Dense inputs are not copied. Thread-safe.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        dims: Sequence[str],
        library: ModelLibrary,
        create: Callable[[Any, int], int | None],
        *,
        labels: Sequence[str],
        threads: int,
        path: str = "",
        keep: object = None,
    ) -> None:
        self.name, self.inputs, self.outputs, self.dims = name, tuple(inputs), tuple(outputs), tuple(dims)
        self.labels, self.threads, self.path = tuple(labels), threads, path
        self._library, self._create, self._keep = library, create, keep
        self._input_dtypes = [numpy_dtype(p.dtype) for p in self.inputs]
        self._output_dtypes = [numpy_dtype(p.dtype) for p in self.outputs]
        self._index = {p.name: i for i, p in enumerate(self.inputs)}
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        self._single = len(self.outputs) == 1
        self._pool: list[_Context] = [self._new_context()]

    def __repr__(self) -> str:
        takes, gives = (", ".join(f"{p.name}: {p.dtype.numpy}{shape_text(p.shape)}" for p in ports) for ports in (self.inputs, self.outputs))
        return f"<model {self.name}: {takes or 'nothing'} -> {gives}; {len(self.labels)} kernel calls, threads={self.threads}>"

    # ---- calling
    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays. `out`: an array, or a sequence of arrays, to write the outputs to."""
        if named or len(arrays) != len(self.inputs):
            arrays = self._arguments(arrays, named)
        results = self._run(arrays, None if out is None else self._outputs(out))
        return results[0] if self._single else tuple(results)

    def run(self, feeds: Mapping[str, Any], *, out: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run on named inputs; gives named outputs."""
        if not isinstance(feeds, Mapping):
            raise ArgumentError(f"model {self.name}: run takes a mapping from input names to arrays, not {type(feeds).__name__}")
        results = self._run(self._arguments((), feeds), None if out is None else self._outputs(out))
        return {p.name: r for p, r in zip(self.outputs, results)}

    def profile(self, feeds: Mapping[str, Any] | Sequence[Any], *, repeat: int = 10) -> list[tuple[str, float]]:
        """Mean seconds of each kernel call, in order: (label, seconds). The first, cold run is not counted."""
        if not isinstance(feeds, (Mapping, list, tuple)):
            raise ArgumentError(f"model {self.name}: profile takes a mapping or a sequence of arrays, not {type(feeds).__name__}")
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ArgumentError(f"profile(repeat={repeat!r}): give a whole number of at least 1")
        arrays = self._arguments((), feeds) if isinstance(feeds, Mapping) else self._arguments(tuple(feeds), {})
        times = np.zeros(max(1, len(self.labels)))
        context = self._take()
        try:
            self._run_in(context, arrays, None)
            self._library.set_profile(context.handle, address(times))
            for _ in range(repeat):
                self._run_in(context, arrays, None)
        finally:
            self._library.set_profile(context.handle, None)
            self._pool.append(context)
        return [(label, float(t) * 1e-9 / repeat) for label, t in zip(self.labels, times)]

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory of one context."""
        context = self._take()
        try:
            return int(self._library.arena_bytes(context.handle))
        finally:
            self._pool.append(context)

    def _run(self, arrays: Sequence[Any], outs: Sequence[Any] | None) -> list[Array]:
        try:
            context = self._pool.pop()
        except IndexError:
            context = self._new_context()
        try:
            return self._run_in(context, arrays, outs)
        finally:
            self._pool.append(context)

    def _run_in(self, context: _Context, arrays: Sequence[Any], outs: Sequence[Any] | None) -> list[Array]:
        pointers, kept, shapes, starts = context.inputs, [], [], []
        for i, (x, dtype) in enumerate(zip(arrays, self._input_dtypes)):
            if type(x) is not np.ndarray or x.dtype != dtype or not x.flags.carray:
                x = dense_input(x, dtype, f"input {self.inputs[i].name!r}")
            kept.append(x)
            shapes.append(x.shape)
            pointers[i] = start = address(x)
            starts.append(start)
        key = tuple(shapes)
        plan = self._plans.get(key) or self._plan(key)
        if outs is None:
            outs = [new_output(*o) for o in plan.outputs]
            for i, y in enumerate(outs):
                context.outputs[i] = address(y)
        else:
            outs = self._given_outputs(context, outs, plan, kept, starts)
        if context.last is not plan:
            for i, value in enumerate(plan.dims):
                context.dims[i] = value
            context.last = plan
        if self._library.run(context.handle, pointers, context.outputs, context.dims):
            context.last = None
            raise UserError(f"model {self.name}: {self._library.last_error(context.handle).decode('utf-8', 'replace')}")
        return outs

    # ---- arguments
    def _arguments(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [p.name for p in self.inputs]
        if len(arrays) > len(names):
            raise ArgumentError(f"model {self.name} takes {len(names)} inputs ({', '.join(names)}), got {len(arrays)}")
        values = list(arrays)
        for name in named:
            if name not in self._index:
                raise ArgumentError(f"model {self.name} has no input {name!r}: its inputs are {', '.join(names) or 'none'}")
            if self._index[name] < len(arrays):
                raise ArgumentError(f"model {self.name}: input {name!r} is given twice")
        for name in names[len(arrays) :]:
            if name not in named:
                raise ArgumentError(f"model {self.name}: input {name!r} is missing; its inputs are {', '.join(names)}")
            values.append(named[name])
        return tuple(values)

    def _outputs(self, out: Any) -> Sequence[Any]:
        """The arrays to write to, in the order of the outputs."""
        if type(out) is np.ndarray and self._single:
            out = (out,)
        elif isinstance(out, Mapping):
            names = [p.name for p in self.outputs]
            wrong = [n for n in out if n not in names] or [n for n in names if n not in out]
            if wrong:
                raise ArgumentError(f"out: expected the outputs {', '.join(names)}; {wrong[0]!r} is unknown or missing")
            out = [out[n] for n in names]
        elif self._single and not isinstance(out, (list, tuple)):
            out = [out]
        if len(out) != len(self.outputs):
            raise ArgumentError(f"out: expected {len(self.outputs)} arrays ({', '.join(p.name for p in self.outputs)}), got {len(out)}")
        return tuple(out)

    def _given_outputs(self, context: _Context, outs: Sequence[Any], plan: _Plan, inputs: list[Array], starts: list[int]) -> list[Array]:
        """Bind the arrays to write to, which must have the outputs' shapes and lie apart from each other and from the inputs."""
        spans = [(start, start + x.nbytes) for start, x in zip(starts, inputs)]
        bound = []
        for i, (y, (shape, dtype, nbytes)) in enumerate(zip(outs, plan.outputs)):
            if type(y) is not np.ndarray or y.dtype != dtype or not y.flags.carray:
                y = dense_output(y, dtype, f"output {self.outputs[i].name!r}")
            if y.shape != shape:
                raise ArgumentError(f"output {self.outputs[i].name!r}: expected shape {shape_text(shape)}, got {shape_text(y.shape)}")
            context.outputs[i] = at = address(y)
            for start, end in spans:
                if at < end and start < at + nbytes:
                    raise ArgumentError(f"output {self.outputs[i].name!r} shares memory with another argument: give separate arrays")
            spans.append((at, at + nbytes))
            bound.append(y)
        return bound

    def _plan(self, shapes: tuple[tuple[int, ...], ...]) -> _Plan:
        values = bind_dims(self.dims, [(f"input {p.name!r}", p.shape) for p in self.inputs], shapes)
        empty = next((d for d in self.dims if values[d] < 1), None)
        if empty is not None:
            raise ArgumentError(f"dim {empty} is {values[empty]}: a model's dims are at least 1, since empty inputs hold nothing to compute with")
        outputs = []
        for port, dtype in zip(self.outputs, self._output_dtypes):
            shape = tuple(e.evaluate(values) for e in port.shape)
            if any(n < 0 for n in shape):
                raise ArgumentError(f"output {port.name!r} would have shape {shape_text(shape)} with {values}: the inputs are too small")
            outputs.append((shape, dtype, int(np.prod(shape, dtype=object)) * dtype.itemsize))
        if len(self._plans) >= _SHAPES_KEPT:
            self._plans.clear()
        plan = self._plans[shapes] = _Plan(tuple(values[d] for d in self.dims), outputs)
        return plan

    # ---- contexts
    def _take(self) -> _Context:
        try:
            return self._pool.pop()
        except IndexError:
            return self._new_context()

    def _new_context(self) -> _Context:
        error = ctypes.create_string_buffer(512)
        handle = self._create(error, len(error))
        if not handle:
            raise UserError(error.value.decode("utf-8", "replace") or f"model {self.name}: no context could be made")
        if self._library.set_threads(handle, self.threads) < 1:
            raise InternalError(f"model {self.name}: the library runs no thread")
        return _Context(handle, self._library, len(self.inputs), len(self.outputs), len(self.dims))
