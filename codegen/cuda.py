"""The device emitter. Takes a LoopNest whose loops are marked "bind:block.x" … "bind:thread.y"; gives a `Source` with a device kernel.

A bound loop becomes a variable read from its grid axis and a guard for partial tiles; all other loops and the statements are the scalar C of
the CPU emitter, spelled in the dialect. Locals are per thread: named registers or a small array. Buffers in shared memory need barriers
and are refused here, as are locals too large for a thread and two different extents on one axis that no parameter relates.
"""

from __future__ import annotations

import re
from dataclasses import replace

import cgen

from polyopt.errors import ScheduleError, UserError
from polyopt.ir.affine import Affine
from polyopt.ir.loops import If, Loop, LoopNest, LoopNode, Prefetch, walk, with_body
from polyopt.ir.source import Source
from polyopt.target import ISAS, Target

from .bounds import bound_text
from .c import emit_top, make_state, parameters
from .dialects import Dialect
from .dialects import dialect as find_dialect
from .names import comment
from .parallel import symbol_lines
from .state import State
from .unroll import loop_range

AXES = ("block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z")


def emit_device_kernel(nest: LoopNest, dialect: str = "cuda", arch: str = "sm_90", fp: str = "default") -> Source:
    """Text of a device kernel and its launch shape (grid and block sizes as C expressions in the params)."""
    spelled = find_dialect(dialect)
    _check(nest)
    nest = replace(nest, body=_without_prefetch(nest.body))
    st = make_state(nest, Target(ISAS["scalar"]), fp, fma=True)
    entry = "k_" + st.names.unique(nest.name, "kernel")
    extents: dict[str, set[Affine]] = {}
    st.emit_bound = lambda state, loop: _emit_bound(state, loop, spelled, extents)
    emit_top(st)
    if st.arena.total():
        big = sorted(t for t, plan in st.plan.locals.items() if plan.kind == "scratch")
        raise ScheduleError(f"device kernel {nest.name!r}: local buffer {big[0]!r} is not in registers: promote it to registers, or pass it")
    head = cgen.FunctionDeclaration(cgen.Value("KERNEL", entry), parameters(st, False))
    body = cgen.FunctionBody(head, cgen.Block([cgen.Line(x) for x in [*symbol_lines(st), *st.scope.used_lines()]]))
    text = "\n".join([f"/* {comment(nest.name)} ({spelled.name} {comment(arch)}) */", _head(st, spelled), str(body)]) + "\n"
    launch = (tuple(_extent(st, extents, f"block.{a}") for a in "xyz"), tuple(_extent(st, extents, f"thread.{a}") for a in "xyz"))
    return Source(_spell(text, spelled), entry, nest.arguments(), nest.scalars, nest.params, arch, (f"-arch={arch}", *spelled.flags), 0,
                  spelled.name, launch=launch)  # fmt: skip


def _check(nest: LoopNest) -> None:
    for t in nest.tensors:
        if t.dtype.name == "bf16":
            raise UserError(f"device kernel {nest.name!r}: tensor {t.name!r} is bfloat16, which the device emitter does not support: cast it")
        if t.scope == "shared":
            raise ScheduleError(f"device kernel {nest.name!r}: buffer {t.name!r} is in shared memory, which needs barriers: use registers")
    for n in walk(nest.body):
        if isinstance(n, Loop) and n.mark.startswith("bind:") and n.mark[5:] not in AXES:
            raise ScheduleError(f"loop {n.name or n.var!r} is bound to {n.mark[5:]!r}: choose one of {', '.join(AXES)}")


def _without_prefetch(nodes: tuple[LoopNode, ...]) -> tuple[LoopNode, ...]:
    out: list[LoopNode] = []
    for n in nodes:
        if isinstance(n, Loop):
            n = with_body(n, _without_prefetch(n.body))
        elif isinstance(n, If):
            n = replace(n, body=_without_prefetch(n.body), orelse=_without_prefetch(n.orelse))
        if not isinstance(n, Prefetch):
            out.append(n)
    return tuple(out)


def _head(st: State, d: Dialect) -> str:
    includes = "".join(f"#include <{h}>\n" for h in d.headers)
    helpers = "\n".join(t.replace("static inline", d.function) for t in st.prelude.functions.values())
    return f"{includes}\n{helpers}\n"


def _spell(text: str, d: Dialect) -> str:
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: d.words.get(m[0], m[0]), text)
    return text.replace("KERNEL ", d.kernel + " ", 1)


def _emit_bound(st: State, n: Loop, d: Dialect, extents: dict[str, set[Affine]]) -> None:
    """A loop on a grid axis: its variable, a guard, its body."""
    axis = n.mark[5:]
    extents.setdefault(axis, set()).add(_trip(st, n))
    rng = loop_range(n, st.ints.ranges)
    ctype = st.ints.type_of(rng[0], None if rng[1] is None else rng[1] + n.step)
    low, high = bound_text(st, n.lower, "imax"), bound_text(st, n.upper, "imin")
    index = d.axes[axis] if n.step == 1 else f"{n.step} * {d.axes[axis]}"
    st.push()
    var = st.bind(n.var, rng, ctype)
    st.line(f"const {ctype} {var} = ({ctype})({low} + {index});")
    st.push()
    st.emit_body(st, n.body)
    st.pop(f"if ({var} < {high}) {{")
    st.pop(f"{{ /* {axis} */")


def _trip(st: State, n: Loop) -> Affine:
    """An upper bound of the trip count in the params: a number where one of the bounds gives it."""
    options = [(u - lo + (n.step - 1)) // n.step for u in n.upper for lo in n.lower[:1]]
    known = [o for o in options if o.is_const] or [o for o in options if o.names() <= set(st.nest.params)]
    if not known or len(n.lower) > 1:
        raise ScheduleError(f"loop {n.name or n.var!r} is bound to {n.mark[5:]!r} but its extent is not an expression of the parameters")
    return min(known, key=lambda o: (o.const, str(o)))


def _extent(st: State, extents: dict[str, set[Affine]], axis: str) -> str:
    found = sorted(extents.get(axis, set()), key=str)
    if not found:
        return "1"
    if all(e.is_const for e in found):
        return str(max(max(e.const for e in found), 1))
    if len(found) > 1:
        raise ScheduleError(f"two loops with extents {found[0]} and {found[1]} are bound to {axis!r}: bind one of them elsewhere")
    return launch_text(found[0], st)


def launch_text(a: Affine, st: State) -> str:
    """An extent in the params as plain C: sizes are positive, so C's division is the floor."""
    parts = [str(a.const)] if a.const or not a.terms else []
    for t, k in a.terms:
        text = st.ints.ident[t] if isinstance(t, str) else f"({launch_text(t.num, st)} / {t.den})"
        parts.append(text if k == 1 else f"{k} * {text}")
    return f"({' + '.join(parts)})"
