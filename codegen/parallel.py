"""Parallel loops as OpenMP. Takes a loop marked parallel; gives a static function with its body and the loop that calls it.

The body is a function of its own whose pointers are `restrict`, so that what the compiler knows outside holds inside the outlined region.
Each thread has a piece of the scratch memory. A region too small to be worth threads is left serial.
"""

from __future__ import annotations

from polyopt.ir import expr as ex
from polyopt.ir.affine import Range
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNode, walk

from .bounds import loop_bounds
from .names import identifier
from .state import Arena, Scope, State
from .unroll import loop_range

WORK_THRESHOLD = 1 << 16
UNKNOWN_TRIP = 64


def symbol_lines(st: State) -> list[str]:
    """Declarations of the strides that the current function uses."""
    return [f"const int64_t {name} = {text};" for text, name in st.symbols.items() if name in st.used_symbols]


def work(nodes: tuple[LoopNode, ...], ranges: dict[str, Range]) -> int:
    """Statement instances below, a guess where trip counts are unknown; calls count more."""
    total = 0
    for n in nodes:
        if isinstance(n, Instance):
            total += 1 + 8 * sum(isinstance(x, ex.Call) for x in ex.walk(n.expr))
        elif isinstance(n, If):
            total += max(work(n.body, ranges), work(n.orelse, ranges))
        elif isinstance(n, Loop):
            lo, hi = rng = loop_range(n, ranges)
            trip = n.trip
            if trip is None:
                trip = UNKNOWN_TRIP if lo is None or hi is None else (hi - lo) // n.step + 1
            total += trip * work(n.body, {**ranges, n.var: rng})
    return total


def emit_parallel(st: State, n: Loop) -> bool:
    """Emit the loop with threads; False where it cannot or should not be."""
    outer = {t for t, plan in st.plan.locals.items() if plan.kind not in ("scratch", "private")}
    inner = {d.tensor for d in walk(n.body) if isinstance(d, Declare)}
    used = {a for x in walk(n.body) if isinstance(x, Instance) for a in (x.write.tensor, *(y.access.tensor for y in ex.loads(x.expr)))}
    each = work(n.body, {**st.ints.ranges, n.var: loop_range(n, st.ints.ranges)})
    trip = n.trip
    if (outer & used) - inner or st.vec is not None or st.partials or (trip is not None and trip * each < WORK_THRESHOLD):
        return False
    ctype, low, high, rng = loop_bounds(st, n)
    name = st.names.fresh(f"po_{identifier(st.nest.name)}_body_")
    params, args = _parameters(st, ctype, n, rng)
    _outline(st, n, name, params, args)
    clause = "" if trip is not None else f" if (({high} - ({low})) * {each}ll > {WORK_THRESHOLD})"
    var = st.ints.ident[n.var]
    st.line(f"#pragma omp parallel for schedule(static) num_threads({st.target.threads}){clause}")
    step = f"{var}++" if n.step == 1 else f"{var} += {n.step}"
    st.line(f"for ({ctype} {var} = {low}; {var} < {high}; {step})")
    st.line(f"    {name}({', '.join(args)});")
    return True


def _parameters(st: State, ctype: str, n: Loop, rng: Range) -> tuple[list[str], list[str]]:
    """Parameters and arguments of the body: tensors, scalars, dims, outer loop variables, the variable, scratch."""
    params: list[str] = []
    args: list[str] = []
    for t in st.nest.tensors:
        if t.role != "local" or t.name in st.visible:
            const = "const " if t.role in ("input", "constant") else ""
            params.append(f"{const}{t.dtype.ctype} *restrict {st.ident[t.name]}")
            args.append(st.ident[t.name])
    for s in st.nest.scalars:
        params.append(f"{s.dtype.ctype} {st.ident[f'scalar {s.name}']}")
        args.append(st.ident[f"scalar {s.name}"])
    scope: Scope | None = st.scope
    loops: list[str] = []
    while scope is not None:
        loops += [scope.loop_var] if scope.loop_var else []
        scope = scope.parent
    for v in [*st.nest.params, *reversed(loops)]:
        params.append(f"{st.ints.ctypes[v]} {st.ints.ident[v]}")
        args.append(st.ints.ident[v])
    var = st.bind(n.var, rng, ctype)
    return [*params, f"{ctype} {var}"], [*args, var]


def _outline(st: State, n: Loop, name: str, params: list[str], args: list[str]) -> None:
    """Emit the body as a function; its scratch is the calling thread's piece."""
    kept = st.scope, st.arena, st.used_symbols, st.visible, st.depth_of
    own = Arena(token=f"@PRIVATE{len(st.per_thread)}@")
    st.scope, st.arena, st.used_symbols, st.visible, st.depth_of = Scope(None, 0), own, set(), [], {}
    st.in_parallel = True
    st.emit_body(st, n.body)
    st.in_parallel = False
    lines = [*symbol_lines(st), *st.scope.used_lines()]
    st.scope, st.arena, st.used_symbols, st.visible, st.depth_of = kept
    if own.total():
        st.per_thread.append(own)
        st.prelude.headers.add("omp.h")
        params.append("char *restrict scratch")
        args.append("scratch + @SHARED_TOTAL@ + (int64_t)omp_get_thread_num() * @PRIVATE_TOTAL@")
    st.functions.append("\n".join([f"static void {name}({', '.join(params)})", "{", *("    " + x for x in lines), "}"]) + "\n")
