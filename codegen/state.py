"""The state of one emission: C scopes with the loads and base pointers already at hand, the vector context, and values as C text.

Mutable on purpose, private to `emit_kernel`. A `Scope` is one C block; loops put base pointers into the scope before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from polyopt.ir.affine import Affine, Range
from polyopt.ir.dtype import DType
from polyopt.ir.expr import Expr, Load
from polyopt.ir.loops import Loop, LoopNest, LoopNode
from polyopt.ir.tensor import Tensor
from polyopt.target import Target

from .names import Names
from .offsets import IntText
from .prelude import Prelude
from .prepare import Plan
from .tidy import WORD, tidy


@dataclass(frozen=True)
class Val:
    """A value: one C expression, or one for each vector of the chunked lanes. `bits`: lane width of a vector mask (bool vectors).
    `ordered`: known not to be NaN."""

    parts: tuple[str, ...]
    dtype: DType
    vector: bool = False
    bits: int = 0
    ordered: bool = False

    @property
    def text(self) -> str:
        """The only part."""
        (part,) = self.parts
        return part


@dataclass(frozen=True)
class Vec:
    """The vector loop being emitted: lane l stands for var = base + l; `active` lanes of each chunk (a number or C text)."""

    loop: Loop
    base: Affine
    width: int
    active: tuple[int | str, ...]

    @property
    def full(self) -> bool:
        """Whether all lanes of all chunks are active."""
        return all(a == self.width for a in self.active)


A_LINE = 7  # locals declared on one line


class Declared(NamedTuple):
    """A local of a block."""

    ctype: str
    name: str
    zero: str


@dataclass
class Scope:
    """One C block. `loop_var`: set on the body of a C loop; `innermost`: no C loop inside it."""

    parent: Scope | None
    depth: int
    loop_var: str = ""
    innermost: bool = False
    lines: list[str] = field(default_factory=list)
    loads: dict[object, Val] = field(default_factory=dict)
    pointers: dict[object, str] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    locals: dict[str, Declared] = field(default_factory=dict)  # by their lines, dropped where this block never reads them

    def used_lines(self) -> list[str]:
        """The lines without declarations of locals that occur nowhere else in them (a partial tile uses some of its registers); the others of a
        type share lines."""
        if not self.locals:
            return self.lines
        seen: set[str] = set()
        out: list[str] = []
        for x in reversed(self.lines):
            if x in self.locals:
                if self.locals[x].name not in seen:
                    continue
            elif x.strip() not in self.locals:  # an inner block may have locals of the same names
                seen.update(WORD.findall(x))
            out.append(x)
        return list(self._joined(out[::-1]))

    def _joined(self, lines: list[str]) -> Iterator[str]:
        run: list[Declared] = []
        for x in [*lines, None]:
            d = self.locals.get(x) if x is not None else None
            if run and (d is None or d.ctype != run[0].ctype or len(run) == A_LINE):
                names = ", ".join(f"{r.name} = {r.zero}" for r in run)
                yield f"{run[0].ctype} {names}; {' '.join(f'(void){r.name};' for r in run)}"
                run = []
            if d is not None:
                run.append(d)
            elif x is not None:
                yield x


@dataclass
class Arena:
    """Scratch memory of one thread: constant sizes are a stack that reuses space, parametric ones lie behind its highest level."""

    top: int = 0
    high: int = 0
    parametric: list[str] = field(default_factory=list)
    token: str = "@SHARED@"

    def take(self, size: int | str) -> str:
        """Reserve bytes (rounded up to 64); returns the C text of the offset."""
        if isinstance(size, str):
            text = " + ".join([self.token, *self.parametric])
            self.parametric.append(f"(({size}) + 63) / 64 * 64")
            return text
        at = self.top
        self.top += -(-size // 64) * 64
        self.high = max(self.high, self.top)
        return str(at)

    def total(self) -> int | str:
        """All bytes: a number, or C text."""
        return " + ".join([str(self.high), *self.parametric]) if self.parametric else self.high


@dataclass
class State:
    """Everything that the emitting functions share."""

    nest: LoopNest
    target: Target
    fp: str
    plan: Plan
    names: Names
    prelude: Prelude
    ints: IntText
    tensors: dict[str, Tensor]
    ident: dict[str, str]
    scope: Scope
    strides: dict[str, tuple[int | str, ...]]
    symbols: dict[str, str]
    load: Callable[[State, Load], Val]
    emit_body: Callable[[State, tuple[LoopNode, ...]], None]
    openmp: bool = False
    has_fma: bool = False  # a product that feeds a sum becomes one operation
    emit_bound: Callable[[State, Loop], None] | None = None  # device kernels: loops bound to a grid axis
    used_symbols: set[str] = field(default_factory=set)
    depth_of: dict[str, int] = field(default_factory=dict)
    vec: Vec | None = None
    guard: tuple[Val, ...] = ()
    once: bool = False  # the value is copied to a local of its own: no other is made for a load
    lazy: bool = False  # a load may be out of bounds: keep it conditional
    hard: bool = False  # inside one side of a C conditional: nothing may be evaluated ahead
    shared_values: dict[Expr, Val | None] = field(default_factory=dict)
    stable: set[str] = field(default_factory=set)
    partials: dict[Any, Any] = field(default_factory=dict)
    carries: dict[int, str] = field(default_factory=dict)  # of an instance: the register with the value before the next strip
    scans: dict[Any, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    arena: Arena = field(default_factory=lambda: Arena())
    per_thread: list[Arena] = field(default_factory=list)
    in_parallel: bool = False
    visible: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Append a line to the current scope."""
        self.scope.lines.append(text)

    def push(self, loop_var: str = "", innermost: bool = False) -> Scope:
        """Open a scope (its lines are kept apart until `pop`)."""
        self.scope = Scope(self.scope, self.scope.depth + 1, loop_var, innermost)
        return self.scope

    def pop(self, head: str, tail: str = "}") -> None:
        """Close the scope: head, its lines indented, tail."""
        inner = self.scope
        assert inner.parent is not None
        self.scope = inner.parent
        self.scope.lines.append(head)
        self.scope.lines.extend("    " + x for x in tidy(inner.used_lines()))
        self.scope.lines.append(tail)

    def bind(self, var: str, rng: Range, ctype: str | None = None) -> str:
        """Give an integer variable a C name, a type and its range; returns the C name."""
        if var not in self.ints.ident:
            self.ints.ident[var] = self.names.unique(var, "i")
        self.ints.ranges[var] = rng
        self.ints.ctypes[var] = ctype or self.ints.type_of(*rng)
        self.depth_of[var] = self.scope.depth
        return self.ints.ident[var]

    def temp(self, ctype: str, text: str, prefix: str = "t") -> str:
        """A constant local holding the value of an expression."""
        name = self.names.fresh(prefix)
        self.line(f"const {ctype} {name} = {text};")
        self.stable.add(name)
        return name

    def pin(self, v: Val) -> Val:
        """The value in locals, so that it may be used several times."""
        if all(p.isidentifier() for p in v.parts):
            return v
        ctype = self.ctype(v)
        return replace(v, parts=tuple(p if p.isidentifier() else self.temp(ctype, p) for p in v.parts))

    def ctype(self, v: Val) -> str:
        """The C type of a part of a value."""
        if not v.vector:
            return v.dtype.ctype
        assert self.vec is not None
        if v.dtype.kind == "b":
            return self.prelude.mask(self.vec.width, v.bits or 8)
        return self.prelude.vector(self.vec.width, v.dtype)

    def forget(self, tensors: set[str]) -> None:
        """Drop remembered loads of tensors that were written, in all open scopes."""
        scope: Scope | None = self.scope
        while scope is not None:
            for key in [k for k in scope.loads if isinstance(k, tuple) and k[0] in tensors]:
                del scope.loads[key]
            scope = scope.parent
