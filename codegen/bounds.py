"""Loop bounds as C. Takes a loop and the emission state; gives the variable's C type, its first value and its end."""

from __future__ import annotations

from polyopt.ir.affine import Affine, Range
from polyopt.ir.loops import Loop, LoopNode, walk

from .state import State
from .unroll import loop_range


def bound_text(st: State, bounds: tuple[Affine, ...], fn: str) -> str:
    """max or min of affine bounds as C."""
    text = st.ints.affine(bounds[0])
    for b in bounds[1:]:
        text = f"{st.prelude.scalar(fn)}({text}, {st.ints.affine(b)})"
    return text


def loop_bounds(st: State, n: Loop) -> tuple[str, str, str, Range]:
    """(C type, first value, end, range of the variable): the end is a number or a local."""
    rng = loop_range(n, st.ints.ranges)
    end = None if rng[1] is None else rng[1] + n.step
    ctype = st.ints.type_of(rng[0], end)
    cast = "(int)" if ctype == "int" else ""
    low, high = bound_text(st, n.lower, "imax"), bound_text(st, n.upper, "imin")
    if not (len(n.lower) == 1 and n.lower[0].is_const):
        low = f"{cast}{low}"
    if not (len(n.upper) == 1 and n.upper[0].is_const):
        high = st.temp(ctype, f"{cast}{high}", "e")
    return ctype, low, high, rng


def has_loops(nodes: tuple[LoopNode, ...]) -> bool:
    """Whether any C loop is below."""
    return any(isinstance(n, Loop) and not (n.mark == "vector" and n.is_strip) for n in walk(nodes))
