"""What a kernel of the suite is. Takes a loop nest, its five data-set sizes and its input formulas; gives `Kernel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyopt.frontends.python_loops import ScopFunction

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]
Init = Callable[..., Mapping[str, Any]]
SIZES = ("MINI", "SMALL", "MEDIUM", "LARGE", "EXTRALARGE")


@dataclass(frozen=True)
class Kernel:
    """A kernel: its nest, the dims of each data set, the inputs as a function of the dims, the arrays that are its result.

    `tolerance`: the largest error that counts as equal, relative to the largest magnitude of the array.
    """

    name: str
    nest: ScopFunction
    sizes: Mapping[str, tuple[int, ...]]
    init: Init
    outputs: tuple[str, ...]
    tolerance: float = 1e-9
    part: Callable[[str, Array, Sizes], Array] | None = None  # what of an output is well defined (all of it where None)

    def results(self, arrays: Mapping[str, Any], dims: Sizes) -> dict[str, Array]:
        """The outputs, as far as they are well defined."""
        return {k: arrays[k] if self.part is None else self.part(k, arrays[k], dims) for k in self.outputs}

    def dims(self, size: str) -> dict[str, int]:
        """The dims of a data set."""
        return {d: values[SIZES.index(size)] for d, values in self.sizes.items()}

    def arguments(self, dims: Sizes) -> list[Any]:
        """Fresh inputs, in the order of the nest's arguments."""
        made = self.init(**dims)
        return [made[name] for name, _ in self.nest.signature]


def grid(*shape: int) -> tuple[Array, ...]:
    """The index of each dim, as float64 arrays that broadcast to `shape`."""
    return tuple(x.astype(np.float64) for x in np.ogrid[tuple(slice(n) for n in shape)])


def fill(f: Callable[..., Any], *shape: int) -> Array:
    """An array of f(i, j, …)."""
    return np.ascontiguousarray(np.broadcast_to(f(*grid(*shape)), shape).astype(np.float64))
