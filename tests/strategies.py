"""Random affine programs for hypothesis. Gives a `Program`: Python source, the `ScopFunction` made from it, and sizes, so that any transform
can be executed against the untransformed program. All values are small integers held in floats, so that sums and products are exact
and a comparison of bits is fair even where an update is reassociated.

Programs have 1–4 statements in 1–3 deep nests with triangular, parametric, min/max and strided bounds (also descending), affine and
data-dependent guards, updates (+, min, max), selects, // and %, local scalars and a local array. Every subscript is wrapped into its
dim by a `min`/`max`-free form that the front end proves in bounds: `i`, `i + c` under a guard, `i // 2`, `i % 3`, a constant under a guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from polyopt.errors import NotAffine
from polyopt.frontends.python_loops import ScopFunction, dims, scop_from_source
from polyopt.ir.affine import Affine

DIMS = dict(zip(("N", "M"), dims("N M")))
TENSORS = {"A": ("f64", ("N",)), "B": ("f64", ("M", "N")), "C": ("f64", ("N", "N")), "I": ("i32", ("N",))}
Range = tuple[str, str]
"""A loop variable's bounds as text: 0 <= lower <= i < upper <= dim, the dim's name in the second place."""


@dataclass(frozen=True)
class Program:
    """A random program. `arrays` makes fresh arguments; `params` are the sizes."""

    text: str
    function: ScopFunction
    params: Mapping[str, int]
    seed: int

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Fresh arrays of small integers, the same at every call."""
        rng = np.random.default_rng(self.seed)
        out = {}
        for name, (dtype, shape) in TENSORS.items():
            size = tuple(self.params[d] for d in shape)
            high = max(1, self.params["N"]) if dtype == "i32" else 4
            out[name] = rng.integers(0 if dtype == "i32" else -3, high, size).astype("int32" if dtype == "i32" else "float64")
        return out

    def reference(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays after running the original body."""
        arrays = self.arrays()
        self.function.reference(*(arrays[n] for n in TENSORS), **self.params)
        return arrays

    def __repr__(self) -> str:
        return f"Program(params={dict(self.params)}, seed={self.seed}):\n{self.text}"


@dataclass
class _Writer:
    draw: Any
    lines: list[str] = field(default_factory=list)
    statements: int = 0
    locals: int = 0
    guards: bool = True
    loops: list[tuple[str, str]] = field(default_factory=list)  # (variable, the dim that bounds it)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))


def _bounds(w: _Writer, name: str) -> tuple[str, str]:
    """The text of a range and the dim below which the variable stays."""
    dim = w.pick("N", "N", "M")
    outer = [v for v, d in w.loops if d == dim]
    lower, upper = "0", dim
    kind = w.pick("full", "full", "lower", "upper", "min", "max", "const")
    if kind == "lower" and outer:
        lower = w.pick(outer[-1], f"{outer[-1]} + 1")
    elif kind == "upper" and outer:
        upper = w.pick(outer[-1], f"{outer[-1]} + 1")
    elif kind == "min":
        upper = f"min({dim}, {w.pick('3', '5', f'2*{outer[-1]} + 1' if outer else '4')})"
    elif kind == "max":
        lower = f"max(0, {w.pick(f'{dim} - 2', f'{outer[-1]} - 1' if outer else f'{dim} - 3')})"
    elif kind == "const":
        lower = w.pick("1", "2")
    step = w.pick(1, 1, 1, 1, 2, 3, -1, -1, -2)
    if step == 1:
        return (f"range({upper})" if lower == "0" else f"range({lower}, {upper})"), dim
    if step > 0:
        return f"range({lower}, {upper}, {step})", dim
    return f"range({upper} - 1, {lower} - 1, {step})", dim


def _index(w: _Writer, dim: str) -> tuple[str, str | None]:
    """A subscript for a dim, and the condition under which it is in bounds (None: always)."""
    inside = [v for v, d in w.loops if d == dim]
    if not inside:
        return w.pick(("0", f"{dim} >= 1"), (f"{dim} - 1", f"{dim} >= 1"))
    v = w.pick(*inside)
    return w.pick(
        (v, None), (v, None), (v, None), (f"{v} // 2", None), (f"{v} % 3", None), (f"{dim} - 1 - {v}", None),
        (f"{v} + 1", f"{v} + 1 < {dim}"), (f"{v} - 1", f"{v} >= 1"), (f"2*{v}", f"2*{v} < {dim}"),
    )  # fmt: skip


def _access(w: _Writer, tensor: str) -> tuple[str, list[str]]:
    pairs = [_index(w, d) for d in TENSORS[tensor][1]]
    return f"{tensor}[{', '.join(p[0] for p in pairs)}]", [p[1] for p in pairs if p[1]]


def _operand(w: _Writer, locals_: list[str]) -> str:
    kind = w.pick("load", "load", "load", "constant", "index", "local", "select", "indirect", "call")
    if kind == "constant":
        return w.pick("1.0", "2.0", "-1.0", "0.5")
    if kind == "index" and w.loops:
        v = w.pick(*(v for v, _ in w.loops))
        return w.pick(v, f"{v} // 2", f"({v} - 1) % 3", f"float({v})")
    if kind == "local" and locals_:
        return w.pick(*locals_)
    text, needs = _access(w, w.pick("A", "B", "C"))
    if kind == "indirect" and any(d == "N" for _, d in w.loops):
        v = next(v for v, d in w.loops if d == "N")
        return w.pick(f"A[I[{v}]]", f"C[{v}, I[{v}]]")
    load = f"({text} if {' and '.join(needs)} else 0.0)" if needs else text
    if kind == "select":
        other, more = _access(w, w.pick("A", "B", "C"))
        test = f"{load} > 0" if not more else f"{' and '.join(more)} and {other} > 0"
        return f"({load} if {test} else {w.pick('1.0', '0.0')})"
    if kind == "call":
        return f"{w.pick('min', 'max')}({load}, {w.pick('1.0', '2.0')})"
    return load


def _statement(w: _Writer, depth: int, locals_: list[str]) -> None:
    target, needs = _access(w, w.pick("A", "B", "C"))
    if locals_ and w.statements and w.pick(True, False, False):
        target, needs = w.pick(*locals_), []
    if needs:
        w.line(depth, f"if {' and '.join(needs)}:")
        depth += 1
    guard = w.pick(None, None, None, "affine", "data", "else") if w.guards else None
    if guard == "affine" and w.loops:
        v, d = w.pick(*w.loops)
        w.line(depth, f"if {w.pick(f'{v} % 2 == 0', f'{v} != 2', f'not ({v} < 1 or {v} > {d} - 2)', f'1 <= {v} < 4')}:")
        depth += 1
    elif guard in ("data", "else"):
        w.line(depth, f"if {_operand(w, locals_)} > {w.pick('0.0', '1.0')}:")
        depth += 1
    kind = w.pick("=", "=", "+=", "+=", "-=", "min", "max", "=+")
    value = _operand(w, locals_)
    if w.pick(True, False):
        value = f"{value} {w.pick('+', '-', '*')} {_operand(w, locals_)}"
    if kind in ("min", "max"):
        w.line(depth, f"{target} = {kind}({target}, {value})")
    elif kind == "=+":
        w.line(depth, f"{target} = {target} + ({value})")
    else:
        scale = f"({value}) * 0.5" if kind == "=" else value
        w.line(depth, f"{target} {kind} {scale}")
    if guard == "else":
        w.line(depth - 1, "else:")
        w.line(depth, f"{target} = {_operand(w, locals_)}")
    w.statements += 1


def _nest(w: _Writer, depth: int, level: int, locals_: list[str]) -> None:
    name = "ijk"[level]
    text, dim = _bounds(w, name)
    w.line(depth, f"for {name} in {text}:")
    w.loops.append((name, dim))
    inner = list(locals_)
    if w.pick(True, False, False, False):
        local = f"s{w.locals}"
        w.locals += 1
        w.line(depth + 1, f"{local} = {w.pick('0.0', _operand(w, locals_))}")
        inner.append(local)
    for _ in range(w.pick(1, 1, 2)):
        if level < 2 and w.statements < 4 and w.pick(True, True, False):
            _nest(w, depth + 1, level + 1, inner)
        elif w.statements < 4:
            _statement(w, depth + 1, inner)
        else:
            w.line(depth + 1, "pass")
    w.loops.pop()


@st.composite
def programs(draw: Any, guards: bool = True, max_size: int = 7) -> Program:
    """Random affine programs with all sizes in 0 … `max_size`; without `guards` no `if` but for bounds."""
    w = _Writer(draw, guards=guards)
    header = ", ".join(f"{n}: {t}[{', '.join(s)}]" for n, (t, s) in TENSORS.items())
    w.line(0, f"def program({header}):")
    top: list[str] = []
    if w.pick(True, False, False):
        w.line(1, "s = 1.0")
        top.append("s")
    if w.pick(True, False):
        w.line(1, "t = zeros(f64[N])")
    for _ in range(w.pick(1, 1, 2)):
        _nest(w, 1, 0, top)
    if top:
        w.line(1, "if N >= 1:")
        w.line(2, "A[0] += s")
    text = "\n".join(w.lines) + "\n"
    params = {d: draw(st.integers(0, max_size)) for d in DIMS}
    function = make(text)
    try:
        function.scop  # noqa: B018
    except NotAffine as e:
        if "no statement that is ever executed" in str(e):
            reject()  # guards that contradict each other
        raise
    return Program(text, function, params, draw(st.integers(0, 3)))


def make(text: str, names: Mapping[str, Affine] = DIMS) -> ScopFunction:
    """The ScopFunction of a program's text."""
    return scop_from_source(text, dict(names), "program.py")
