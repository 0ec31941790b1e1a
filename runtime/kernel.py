"""One kernel as a Python callable. Takes a `Source` and its loaded library; gives a function over arrays that are modified in place.

Tensors of role local are allocated here, as is the scratch. A frame (pointer arrays, scratch, locals) serves one call at a time; concurrent calls
take frames from a pool.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyopt.errors import ArgumentError, InternalError, UserError
from polyopt.ir.source import Source

from .arrays import Array, address, aligned_empty, dense_input, dense_output, numpy_dtype, overlaps
from .shapes import bind_dims, check_dims, shape_text

_READ = ("input", "constant")
_SHAPES_KEPT = 256
_NUMBERS = (float, int)
_Places = tuple[tuple[int, ...], tuple[tuple[str, int], ...]]


class _Frame:
    """The memory of one call."""

    __slots__ = ("last", "locals", "params", "scalars", "scratch", "scratch_at", "tensors", "values")

    def __init__(self, source: Source) -> None:
        self.tensors = (ctypes.c_void_p * max(1, len(source.tensors)))()
        self.params = (ctypes.c_int64 * max(1, len(source.params)))()
        self.values = [np.zeros((), numpy_dtype(s.dtype)) for s in source.scalars]
        self.scalars = (ctypes.c_void_p * max(1, len(source.scalars)))(*(address(v) for v in self.values))
        self.scratch: Array | None = None
        self.scratch_at = 0
        self.locals: list[Array] = []
        self.last: object = None


class CompiledKernel:
    """Call it as `f(a, b, c, alpha, N=…)`: arrays in the order of `source.tensors` (without locals), then scalars, by place or name.

    `order`: the arguments of the Python function that it comes from. Their places are understood too, `f(T, alpha, a, b)`, and come first where
    both fit; arguments of the function that the kernel does not use are passed over.
    Params that follow from shapes need not be given. Arrays that the kernel writes are modified in place: they must be dense and writable.
    Inputs that are not dense are copied once. Thread-safe as long as the arrays written are apart.
    """

    def __init__(self, source: Source, library: ctypes.CDLL, *, path: str = "", threads: int = 0, order: Sequence[str] = ()) -> None:
        self.source, self.path, self.threads = source, path, threads
        pointer = ctypes.c_void_p
        arguments: list[Any] = [pointer, pointer, pointer, pointer, ctypes.c_int]
        self._call, self._time = library.polyopt_call, library.polyopt_time
        self._call.restype, self._call.argtypes = None, arguments
        self._time.restype, self._time.argtypes = ctypes.c_double, arguments
        self._scratch_bytes = library.polyopt_scratch_bytes
        self._scratch_bytes.restype, self._scratch_bytes.argtypes = ctypes.c_int64, [pointer]
        missing = library.polyopt_missing_feature
        missing.restype, missing.argtypes = ctypes.c_char_p, []
        if (feature := missing()) is not None:
            raise UserError(f"kernel {source.entry} was compiled for isa {source.isa}, and this CPU lacks {feature.decode()}: choose another isa")
        self._names = [t.name for t in source.tensors if t.role != "local"] + [s.name for s in source.scalars]
        self._order = list(order) if list(order) != self._names else []
        self._ranks = {t.name: len(t.shape) for t in source.tensors} | dict.fromkeys([*(s.name for s in source.scalars), *source.params], 0)
        self._arrays = [(i, t.name, numpy_dtype(t.dtype), t.role not in _READ) for i, t in enumerate(source.tensors) if t.role != "local"]
        self._scalars = [s.name for s in source.scalars]
        self._locals = [(i, t) for i, t in enumerate(source.tensors) if t.role == "local"]
        self._expected = [(f"argument {t.name!r}", t.shape) for t in source.tensors if t.role != "local"]
        self._pairs = [(i, j) for i, a in enumerate(self._arrays) for j, b in enumerate(self._arrays) if i < j and (a[3] or b[3])]
        self._plans: dict[Any, tuple[int, ...]] = {}
        self._forms: dict[Any, _Places] = {}
        self._pool: list[_Frame] = []

    def __repr__(self) -> str:
        kinds = {t.name: f"{numpy_dtype(t.dtype)}{shape_text(t.shape)}" for t in self.source.tensors}
        kinds |= {s.name: str(numpy_dtype(s.dtype)) for s in self.source.scalars} | dict.fromkeys(self.source.params, "int")
        arguments = ", ".join(f"{n}: {kinds.get(n, 'not used')}" for n in self._order or self._names)
        return f"<kernel {self.source.entry}: {arguments}; isa {self.source.isa}>"

    def __call__(self, *args: Any, **named: Any) -> None:
        """Run once."""
        try:
            frame = self._pool.pop()
        except IndexError:
            frame = _Frame(self.source)
        try:
            keep = self._fill(frame, args, named)
            self._call(frame.tensors, frame.scalars, frame.params, frame.scratch_at, self.threads)
            del keep
        finally:
            self._pool.append(frame)

    def time(self, *args: Any, repeat: int = 10, **named: Any) -> list[float]:
        """Seconds of each of `repeat` runs, measured around the kernel alone."""
        frame = _Frame(self.source)
        keep = self._fill(frame, args, named)
        times = [self._time(frame.tensors, frame.scalars, frame.params, frame.scratch_at, self.threads) * 1e-9 for _ in range(repeat)]
        del keep
        return times

    # ---- arguments
    def _fill(self, frame: _Frame, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Array]:
        """Write pointers, scalars and params of a call into the frame; gives the arrays to keep alive."""
        given: Mapping[str, Any] = named
        values: Sequence[Any] = args
        if named or self._order or len(args) != len(self._names):
            values, given = self._arguments(args, named)
        keep: list[Array] = []
        starts: list[int] = []
        shapes: list[Any] = []
        for (i, name, dtype, written), x in zip(self._arrays, values):
            if type(x) is not np.ndarray or x.dtype != dtype or not x.flags.carray:
                x = (dense_output if written else dense_input)(x, dtype, f"argument {name!r}")
            keep.append(x)
            shapes.append(x.shape)
            start = address(x)
            starts.append(start)
            frame.tensors[i] = start
        for i, j in self._pairs:
            if overlaps(keep[i], starts[i], keep[j], starts[j]):
                a, b = self._arrays[i][1], self._arrays[j][1]
                raise ArgumentError(f"arguments {a!r} and {b!r} share memory and one of them is written: give separate arrays")
        for place, name, x in zip(frame.values, self._scalars, values[len(keep) :]):
            _set_scalar(place, x, name)
        key = tuple(shapes)
        if given:
            key = (*key, tuple(sorted(given.items())))
        params = self._plans.get(key)
        if params is None:
            params = self._bind(key, keep, given)
        if frame.last is not params:
            self._set_params(frame, params)
        if 0 in [x.size for x in keep]:
            for (i, name, dtype, _), x in zip(self._arrays, tuple(keep)):
                if not x.size:
                    keep.append(_stand_in(x.shape, dtype, name))
                    frame.tensors[i] = address(keep[-1])
        return keep

    def _arguments(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments in the kernel's order, and the dims given."""
        form: tuple[Any, ...] = (len(args), *named)
        if self._order:
            form += tuple([x.ndim if type(x) is np.ndarray else type(x) if type(x) in _NUMBERS else _rank(x) for x in args])
        places = self._forms.get(form)
        if places is None:
            if len(self._forms) >= _SHAPES_KEPT:
                self._forms.clear()
            places = self._forms[form] = self._places(args, named)
        values = (*args, *named.values()) if named else args
        wanted, dims = places
        return [values[k] for k in wanted], check_dims(self.source.params, {d: values[k] for d, k in dims}) if dims else {}

    def _places(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> _Places:
        """Where each argument and each dim stands among the values of a call: those by place in the order of the Python function where they fit
        there, else in the kernel's own."""
        names, order, entry = self._names, self._order, self.source.entry
        if order and not self._fit(args, order) and not self._fit(args, names):
            raise ArgumentError(
                f"kernel {entry}: {len(args)} arguments by place ({', '.join(map(_kind, args))}) fit neither the function's order "
                f"({', '.join(order)}) nor arrays before scalars ({', '.join(names)}): give them by name"
            )
        by_place = order if order and self._fit(args, order) else names
        if len(args) > len(by_place):
            raise ArgumentError(f"kernel {entry} takes {len(names)} arguments ({', '.join(names)}), got {len(args)}")
        places = {name: k for k, name in enumerate(by_place[: len(args)])}
        for k, name in enumerate(named, len(args)):
            if name in places:
                raise ArgumentError(f"kernel {entry}: argument {name!r} is given twice")
            if name not in self._ranks and name not in order:
                raise ArgumentError(f"kernel {entry} has no argument {name!r}: it has {', '.join([*names, *self.source.params])}")
            places[name] = k
        missing = next((n for n in names if n not in places), None)
        if missing is not None:
            raise ArgumentError(f"kernel {entry}: argument {missing!r} is missing; it takes {', '.join(names)}")
        return tuple(places[n] for n in names), tuple((p, places[p]) for p in self.source.params if p in places)

    def _fit(self, args: tuple[Any, ...], names: Sequence[str]) -> bool:
        """Whether there is an array where an array is wanted, and none where a number is."""
        ranks = [self._ranks.get(n) for n in names]
        return len(args) <= len(ranks) and all(r is None or (_rank(x) > 0) == (r > 0) for x, r in zip(args, ranks))

    def _bind(self, key: Any, arrays: list[Array], given: Mapping[str, Any]) -> tuple[int, ...]:
        values = bind_dims(self.source.params, self._expected, [x.shape for x in arrays], given)
        for name, value in values.items():
            if value >= 2**63:
                raise ArgumentError(f"dim {name}: {value} does not fit in 64 bits")
        if len(self._plans) >= _SHAPES_KEPT:
            self._plans.clear()
        params = self._plans[key] = tuple(values[p] for p in self.source.params)
        return params

    def _set_params(self, frame: _Frame, params: tuple[int, ...]) -> None:
        for i, value in enumerate(params):
            frame.params[i] = value
        nbytes = self._scratch_bytes(frame.params) if self.source.needs_scratch else 0
        if nbytes < 0:
            raise InternalError(f"kernel {self.source.entry}: its scratch has {nbytes} bytes")
        if nbytes and (frame.scratch is None or frame.scratch.nbytes < nbytes):
            frame.scratch = aligned_empty((nbytes,), np.dtype(np.uint8))
            frame.scratch_at = address(frame.scratch)
        values = dict(zip(self.source.params, params))
        frame.locals = []
        for i, t in self._locals:
            shape = tuple(e.evaluate(values) for e in t.shape)
            array = aligned_empty(shape, numpy_dtype(t.dtype)) if 0 not in shape else _stand_in(shape, numpy_dtype(t.dtype), t.name)
            frame.locals.append(array)
            frame.tensors[i] = address(array)
        frame.last = params


def _rank(x: Any) -> int:
    """The axes of an argument; a list is taken for an array of one, which is refused later."""
    return len(x) > 0 if isinstance(x, (list, tuple)) else len(getattr(x, "shape", ()))


def _kind(x: Any) -> str:
    return f"an array of shape {tuple(x.shape)}" if _rank(x) and hasattr(x, "shape") else type(x).__name__


def _stand_in(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    """What is read in place of an array without elements: an index from data is moved to element 0, and finds zeros there."""
    try:
        return np.zeros(tuple(max(1, n) for n in shape), dtype)
    except (MemoryError, ValueError):
        raise ArgumentError(f"argument {name!r}: the shape {shape} is too large") from None


def _set_scalar(value: Array, x: Any, name: str) -> None:
    try:
        value[()] = x if value.dtype.kind not in "iu" else operator.index(x.item() if isinstance(x, np.ndarray) else x)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"argument {name!r}: expected a scalar of dtype {value.dtype}, got {x!r}") from None
