"""What a schedule costs, as a value that can be read: operations, memory accesses, footprints, cache lines moved, parallelism, vectors.

Holds numbers and closed forms; `str` prints them as a short table. `cost_model.compute_cost` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .counting import Count
from .operations import FLOPS
from .quasipoly import QuasiPolynomial

WIDTH = 100


@dataclass(frozen=True)
class Amount:
    """A number of things: as a closed form (or what has none), and its value where sizes are known."""

    form: Count
    value: Fraction | None

    def text(self, large: Mapping[str, int]) -> str:
        """The value and the closed form for large sizes, as far as they are there."""
        form = closed(self.form, large)
        if self.value is None:
            return form
        return number(self.value) if form == number(self.value) else f"{number(self.value)} = {form}"


@dataclass(frozen=True)
class TensorCost:
    """A tensor: what is touched of it, in elements and, where sizes are known, in lines."""

    name: str
    itemsize: int
    elements: Amount
    lines: float | None


@dataclass(frozen=True)
class LoopCost:
    """A loop: its iterations and the bytes that one run of it touches, as closed forms for large sizes in the middle of the loops around
    (None where there is none), and as numbers where sizes are known. `fits`: the nearest cache that holds them."""

    name: str
    depth: int
    mark: str
    iterations: QuasiPolynomial | None
    touches: QuasiPolynomial | None
    iterations_now: float | None
    bytes_now: float | None
    fits: str
    free: bool | None  # whether it carries no dependence; None where that was not asked, or is not known


@dataclass(frozen=True)
class LevelCost:
    """A cache: its size in bytes, and the lines of each tensor that are brought into it."""

    name: str
    size: int
    line: int
    lines: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """The lines of all tensors."""
        return sum(n for _, n in self.lines)


@dataclass(frozen=True)
class VectorCost:
    """An innermost loop: its lanes (1: no vectors), the share of its iterations in full vectors, and how each access moves along it."""

    statements: tuple[str, ...]
    loop: str
    lanes: int
    full: float | None
    moves: tuple[tuple[str, str], ...]  # access → contiguous, invariant, stride n, column, gather


@dataclass(frozen=True)
class Cost:
    """The cost of a schedule. `sizes`: the values for which numbers are given (none where sizes are unknown)."""

    name: str
    sizes: tuple[tuple[str, int], ...]
    concrete: bool
    instances: tuple[tuple[str, Amount], ...]
    operations: tuple[tuple[str, Amount], ...]
    loads: Amount
    stores: Amount
    tensors: tuple[TensorCost, ...]
    loops: tuple[LoopCost, ...]
    levels: tuple[LevelCost, ...]
    parallelism: float | None  # instances / longest chain, as scheduled
    available: float | None  # the same if every loop that carries no dependence ran in parallel
    vectors: tuple[VectorCost, ...]
    large: tuple[tuple[str, int], ...] = ()  # sizes around which the closed forms are printed
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> Amount:
        """All floating-point operations, an fma being two."""
        form, value = Count(), Fraction(0)
        for kind, n in self.operations:
            form = form + n.form.scale(FLOPS.get(kind, 1))
            value += (n.value or 0) * FLOPS.get(kind, 1)
        return Amount(form, value if self.concrete else None)

    def level(self, name: str) -> LevelCost:
        """A cache by name (KeyError where there is none)."""
        for x in self.levels:
            if x.name == name:
                return x
        raise KeyError(name)

    def __str__(self) -> str:
        lines = [f"cost of {self.name}" + (f" at {', '.join(f'{k}={v}' for k, v in self.sizes)}" if self.sizes else "")]
        large = dict(self.large)
        kinds = [f"{kind} {closed(n.form, large)}" for kind, n in self.operations] if len(self.operations) > 1 else [k for k, _ in self.operations]
        lines += _field("flops", [self.flops.text(large), *kinds] if self.operations else ["none"])
        lines += _field("loads", [self.loads.text(large)]) + _field("stores", [self.stores.text(large)])
        lines += _field("touches", [_tensor(t, large) for t in self.tensors])
        lines += _loops(self.loops, self.concrete)
        lines += _levels(self)
        if self.available is not None and self.parallelism is not None:
            lines += _field("parallelism", [f"{number(self.parallelism)} as scheduled", f"{number(self.available)} available"])
        free = list(dict.fromkeys(x.name for x in self.loops if x.free and x.mark != "parallel"))
        marked = [x.name for x in self.loops if x.mark == "parallel"]
        lines += _field("parallel", [*([f"marked: {' '.join(marked)}"] if marked else []), *([f"could be: {' '.join(free)}"] if free else [])])
        lines += [x for v in self.vectors for x in _field("vectors", [_vector(v)])]
        return "\n".join([*lines, *(f"  ({n})" for n in self.notes)])


# ---- text
def number(x: float | Fraction) -> str:
    """A number for readers: whole up to a million, then with a unit."""
    x = float(x)
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if abs(x) >= size:
            return f"{x / size:.4g} {unit}"
    return f"{x:.0f}" if x == int(x) or abs(x) >= 100 else f"{x:.3g}"


def size_text(x: float) -> str:
    """Bytes in binary units."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if x >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.0f} B"


def closed(n: Count, large: Mapping[str, int]) -> str:
    """The closed form for large sizes."""
    form = n.at_large(large)
    if form is None:
        return "(no closed form)"
    if not form.names():
        return number(form.evaluate({}))
    text = str(form)
    return text if len(text) <= WIDTH - 20 else f"(closed form of {len(form.terms)} terms)"


def _tensor(t: TensorCost, large: Mapping[str, int]) -> str:
    if t.elements.value is None or t.lines is None:
        return f"{t.name} {t.itemsize}·{_braced(closed(t.elements.form, large))} B"
    return f"{t.name} {size_text(float(t.elements.value) * t.itemsize)} in {number(round(t.lines))} lines"


def _braced(text: str) -> str:
    return f"({text})" if " " in text and "·(" not in text and not text.startswith("(") else text


def _field(name: str, parts: Sequence[str]) -> list[str]:
    """A labelled list, wrapped."""
    if not parts:
        return []
    out, row = [], f"  {name:12}"
    for k, p in enumerate(parts):
        more = ("; " if k else "") + p
        if k and len(row) + len(more) > WIDTH:
            out.append(row + ";")
            row = " " * 14 + p
        else:
            row += more
    return [*out, row]


def _loops(loops: Sequence[LoopCost], concrete: bool) -> list[str]:
    if not loops:
        return []
    head = ("loop", "iterations", "one run touches", "fits")
    rows = [tuple(_loop(x, concrete)) for x in loops]
    shown = 4 if concrete else 3
    columns = [max(len(r[c]) for r in [head, *rows]) for c in range(shown)]
    return ["  " + "  ".join(x.ljust(w) for x, w in zip(r, columns)).rstrip() for r in [head, *rows]]


def _loop(x: LoopCost, concrete: bool) -> Iterator[str]:
    yield "  " * x.depth + x.name + (f" ({x.mark})" if x.mark else "")
    if concrete and x.iterations_now is not None:
        yield number(x.iterations_now)
        yield size_text(x.bytes_now or 0.0)
    else:
        yield "?" if x.iterations is None else str(x.iterations)
        yield "?" if x.touches is None else f"{x.touches} B"
    yield x.fits


def _levels(c: Cost) -> list[str]:
    if not c.levels:
        return []
    head = ("cache", "size", "lines brought", *(t for t, _ in c.levels[0].lines))
    rows = [(x.name, size_text(x.size), number(round(x.total)), *(number(round(n)) for _, n in x.lines)) for x in c.levels]
    columns = [max(len(r[k]) for r in [head, *rows]) for k in range(len(head))]
    return ["  " + "  ".join(x.ljust(w) for x, w in zip(r, columns)).rstrip() for r in [head, *rows]]


def _vector(v: VectorCost) -> str:
    along = f"{' '.join(v.statements)} along {v.loop}"
    kind = f"vectors of {v.lanes}" + (f", {v.full:.0%} of the iterations in full ones" if v.full is not None else "") if v.lanes > 1 else "scalar"
    moves: dict[str, list[str]] = {}
    for access, how in v.moves:
        moves.setdefault(how, []).append(access)
    return "; ".join([f"{along}: {kind}", *([", ".join(f"{' '.join(xs)} {how}" for how, xs in moves.items())] if moves else [])])
