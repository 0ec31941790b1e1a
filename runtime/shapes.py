"""Binding symbolic dims from the shapes of arrays. Takes affine shapes and concrete ones; gives the dims' values, or an `ArgumentError` that
names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyopt.errors import ArgumentError
from polyopt.ir.affine import Affine


def shape_text(shape: Sequence[Affine | int]) -> str:
    """A shape as a reader writes it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def bind_dims(
    dims: Sequence[str],
    expected: Sequence[tuple[str, Sequence[Affine]]],
    actual: Sequence[Sequence[int]],
    given: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Values of `dims` such that every expected shape is the actual one. `expected`: (what it is called, shape); `given`: values fixed before.

    A dim is solved from a size in which it is the only unknown and stands outside floors; everything else is checked by evaluation.
    """
    for (name, want), have in zip(expected, actual):
        if len(want) != len(have):
            raise ArgumentError(
                f"{name}: expected shape {shape_text(want)}, which has {len(want)} axes, got {shape_text(have)}, which has {len(have)}"
            )
    values = check_dims(dims, given or {})
    sizes = [(e, int(n)) for (_, want), have in zip(expected, actual) for e, n in zip(want, have) if not e.is_const]
    progress = True
    while progress and len(values) < len(dims):
        progress = False
        for expr, size in sizes:
            if _solve(expr, size, values):
                progress = True
    missing = [d for d in dims if d not in values]
    if missing:
        raise ArgumentError(f"dim {missing[0]} follows from no argument's shape: give it by keyword, {missing[0]}=…")
    for (name, want), have in zip(expected, actual):
        _check(name, want, have, values)
    return values


def check_dims(dims: Sequence[str], given: Mapping[str, int]) -> dict[str, int]:
    """Values for dims by name, as ints; raises ArgumentError for a name that is no dim and a value that is no size."""
    for name, value in given.items():
        if name not in dims:
            raise ArgumentError(f"there is no dim {name!r}: the dims are {', '.join(dims) or 'none'}")
        if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
            raise ArgumentError(f"dim {name}: expected a whole number of 0 or more, got {value!r}")
    return {name: int(value) for name, value in given.items()}


def _solve(expr: Affine, size: int, values: dict[str, int]) -> bool:
    unknown = [n for n in expr.names() if n not in values]
    if len(unknown) != 1 or not expr.is_linear_in(unknown[0]):
        return False
    name = unknown[0]
    k = expr.coefficient(name)
    rest = size - expr.substitute({name: 0}).evaluate(values)
    if k == 0 or rest % k or rest // k < 0:
        return False
    values[name] = rest // k
    return True


def _check(name: str, want: Sequence[Affine], have: Sequence[int], values: Mapping[str, int]) -> None:
    for axis, (expr, size) in enumerate(zip(want, have)):
        expected = expr.evaluate(values)
        if expected != size:
            bound = ", ".join(f"{n} = {values[n]}" for n in sorted(expr.names()))
            why = f" ({bound})" if str(expr) in expr.names() else f" ({expr} with {bound})" if bound else ""
            raise ArgumentError(f"{name}: expected shape {shape_text(want)}, got {shape_text(have)}: axis {axis} is {size}, expected {expected}{why}")
