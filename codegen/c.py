"""The C emitter. Takes a LoopNest and a CPU target; gives a `Source` whose C11 text compiles without a warning.

One emitter for all ISAs: what differs is data (`isa.py`). The nest is unrolled, vector loops and local buffers are decided
(`prepare.py`), then statements are printed in one walk. Assumes what the LoopNest promises: tensors do not overlap, vector loops carry no
dependence other than marked reductions, indices are in bounds wherever they are evaluated.
"""

from __future__ import annotations

from collections import Counter

import cgen

from polyopt.errors import InternalError
from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, Range, affine
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, LoopNode, Prefetch, walk
from polyopt.ir.source import Source
from polyopt.ir.tensor import Tensor
from polyopt.target import Target

from .bounds import bound_text, has_loops, loop_bounds
from .memory import address, element_offset, load, plus, slot_name, store
from .names import Names, comment
from .offsets import IntText, product
from .operators import binary, fused, lift
from .parallel import emit_parallel, symbol_lines
from .prelude import Prelude
from .prepare import compute_dtype, prepare, scan_along
from .reductions import Key, accumulate, added_product, close_partial, conflicts, lane_key, open_partial, openings
from .scans import emit_scan, open_carries
from .state import Declared, Scope, State, Val, Vec
from .unroll import loop_range, unroll
from .values import value

LOCALITY = {1: 3, 2: 2, 3: 1}


def emit_kernel(nest: LoopNest, target: Target, fp: str = "default", openmp: bool = False) -> Source:
    """C text of a kernel.

    nest: what to compute. target: the CPU; its ISA picks vectors and flags. fp: strict (source order, nothing fused), default (FMA and
    reassociated reductions) or fast (also multiplication by reciprocals). openmp: loops marked parallel run on `target.threads` threads.
    """
    st = make_state(nest, target, fp, target.isa.name != "scalar", openmp and target.threads > 1)
    entry = "k_" + st.names.unique(nest.name, "kernel")
    emit_top(st)
    return _source(st, entry)


def make_state(nest: LoopNest, target: Target, fp: str, fma: bool, openmp: bool = False) -> State:
    """The state of a new emission: the nest unrolled and decided, names given."""
    nest, plan = prepare(unroll(nest), target.isa, fp)
    prelude = Prelude(target.isa)
    names = Names()
    ints = IntText(dict(nest.param_ranges), {}, {}, lambda: prelude.scalar("floordiv"))
    for p in nest.params:
        ints.ident[p], ints.ctypes[p] = names.unique(p, "n"), "int64_t"
        ints.ranges.setdefault(p, (None, None))
    ident = {t.name: names.unique(t.name, "t") for t in nest.tensors}
    ident.update({f"scalar {s.name}": names.unique(s.name, "s") for s in nest.scalars})
    symbols: dict[str, str] = {}
    strides = {t.name: _strides(t, ints, names, symbols) for t in nest.tensors}
    st = State(nest, target, fp, plan, names, prelude, ints, {t.name: t for t in nest.tensors}, ident, Scope(None, 0), strides,
               symbols, load, emit_body, openmp, fma and fp != "strict")  # fmt: skip
    st.stable.update(ident.values())
    return st


def emit_top(st: State) -> None:
    """The whole body: locals that no node declares, then the nodes."""
    declared = {n.tensor for n in walk(st.nest.body) if isinstance(n, Declare)}
    for t in st.nest.tensors:
        if t.role == "local" and t.name not in declared:
            _declare(st, t.name)
    emit_body(st, st.nest.body)


def _strides(t: Tensor, ints: IntText, names: Names, symbols: dict[str, str]) -> tuple[int | str, ...]:
    """Row-major strides: numbers, or symbols for those that depend on parameters."""
    out: list[int | str] = []
    for d in range(len(t.shape)):
        trailing = t.shape[d + 1 :]
        size = product(trailing)
        if size is None:
            text = " * ".join(ints.affine(x, wide=True) for x in trailing if x != affine(1))
            if text not in symbols:
                symbols[text] = names.fresh("stride")
            out.append(symbols[text])
        else:
            out.append(size)
    return tuple(out)


def _source(st: State, entry: str) -> Source:
    scratch = st.arena.total()
    if st.per_thread:
        private = " + ".join(f"({a.total()})" for a in st.per_thread)
        sizes = [a.total() for a in st.per_thread]
        if all(isinstance(x, int) for x in [scratch, *sizes]):
            private = str(max(int(x) for x in sizes))
            scratch_all: int | str = int(scratch) + int(private) * st.target.threads
        else:
            scratch_all = f"{scratch} + {st.target.threads} * ({private})"
    else:
        private, scratch_all = "0", scratch
    lines = [*symbol_lines(st), *st.scope.used_lines()]
    head = cgen.FunctionDeclaration(cgen.Value("void", entry), parameters(st, isinstance(scratch_all, str) or scratch_all > 0))
    body = cgen.FunctionBody(head, cgen.Block([cgen.Line(x) for x in lines]))
    text = "\n".join([f"/* {comment(st.nest.name)} ({st.target.isa.name}) */", st.prelude.text(), *st.functions, str(body)]) + "\n"
    for token, arena in ((a.token, a) for a in [st.arena, *st.per_thread]):
        text = text.replace(token, str(arena.high))
    text = text.replace("@SHARED_TOTAL@", f"({scratch})").replace("@PRIVATE_TOTAL@", f"({private})")
    flags = st.target.isa.flags + (("-fopenmp",) if st.functions else ())
    nest = st.nest
    return Source(text, entry, nest.arguments(), nest.scalars, nest.params, st.target.isa.name, flags, scratch_all, joinable=True)


def parameters(st: State, scratch: bool) -> list[cgen.Declarator]:
    """The parameters of the entry point."""
    out: list[cgen.Declarator] = []
    for t in st.nest.arguments():
        const = "const " if t.role in ("input", "constant") else ""
        out.append(cgen.Value(f"{const}{t.dtype.ctype} *restrict", st.ident[t.name]))
    out += [cgen.Value(s.dtype.ctype, st.ident[f"scalar {s.name}"]) for s in st.nest.scalars]
    out += [cgen.Value("int64_t", st.ints.ident[p]) for p in st.nest.params]
    return out + ([cgen.Value("char *restrict", "scratch")] if scratch else [])


# ---- statements
def emit_body(st: State, nodes: tuple[LoopNode, ...]) -> None:
    """A list of nodes, with the lane partials that live across parts of it."""
    level, visible = st.arena.top, len(st.visible)
    mine: list[Key] = []
    for n in nodes:
        for key in [k for k in mine if conflicts(n, k)]:
            _close(st, key)
            mine.remove(key)
        for key, count in openings(st, n).items():
            open_partial(st, key, count)
            mine.append(key)
        _emit_node(st, n)
    for key in mine:
        _close(st, key)
    st.arena.top = level
    del st.visible[visible:]


def _close(st: State, key: Key) -> None:
    vec, st.vec = st.vec, None
    access, v = close_partial(st, key)
    dtype = st.tensors[access.tensor].dtype
    store(st, access, binary(st, key.op, load(st, ex.Load(access, dtype)), v))
    st.vec = vec


def _emit_node(st: State, n: LoopNode) -> None:
    if isinstance(n, Instance):
        _emit_instance(st, n)
    elif isinstance(n, Declare):
        _declare(st, n.tensor)
    elif isinstance(n, Prefetch):
        _prefetch(st, n)
    elif isinstance(n, If):
        cond = value(st, n.cond).text
        st.push()
        emit_body(st, n.body)
        st.pop(f"if {cond if cond.startswith('(') else f'({cond})'} {{")
        if n.orelse:
            st.push()
            emit_body(st, n.orelse)
            st.scope.parent.lines.pop()  # type: ignore[union-attr]
            st.pop("} else {")
    elif n.mark == "vector":
        _emit_vector(st, n)
    elif n.mark.startswith("bind:") and st.emit_bound is not None:
        st.emit_bound(st, n)
    elif n.mark == "parallel" and st.openmp and not st.in_parallel and emit_parallel(st, n):
        pass
    else:
        _emit_loop(st, n)


def _repeated(e: ex.Expr) -> dict[ex.Expr, Val | None]:
    """Subexpressions that occur more than once and are worth a local."""
    counts = Counter(x for x in ex.walk(e) if not isinstance(x, ex.Const | ex.IndexValue | ex.Scalar | ex.Load))
    return {x: None for x, k in counts.items() if k > 1}


def _emit_instance(st: State, n: Instance) -> None:
    st.shared_values = _repeated(n.expr)
    t = st.tensors[n.write.tensor]
    scan = scan_along(n, st.vec.loop, st.tensors, st.fp) if st.vec is not None else None
    if scan is not None:
        emit_scan(st, n, scan)
        return
    key = lane_key(n, st.vec.loop if st.vec is not None else None, st.plan)
    if key is not None:
        accumulate(st, n, key)
        return
    e, dtype = n.expr, compute_dtype(t.dtype)
    if n.reduction is None:
        local = st.plan.locals.get(n.write.tensor)
        st.once = isinstance(e, ex.Load) and local is not None and local.kind in ("names", "vectors", "private")
        new = value(st, e)
        st.once = False
    else:
        old = load(st, ex.Load(n.write, t.dtype))
        product, op = added_product(e)
        if st.has_fma and n.reduction == "+" and product is not None and dtype.is_float:
            new = fused(st, op, value(st, product.x), value(st, product.y), old)
        else:
            new = binary(st, n.reduction, old, value(st, e))
    if new.dtype != dtype:
        raise InternalError(f"statement {n.statement}: a value of type {new.dtype} is written to {t.name} of type {t.dtype}")
    if st.vec is not None and _on_lanes(st, n):
        new = lift(st, new)
    store(st, n.write, new)


def _on_lanes(st: State, n: Instance) -> bool:
    assert st.vec is not None
    local = st.plan.locals.get(n.write.tensor)
    if local is not None and local.kind in ("private", "vectors"):
        return True
    var = st.vec.loop.var
    names: set[str] = set()
    for x in n.write.indices:
        if isinstance(x, Affine):
            names |= x.names()
        else:
            names.update(*(y.index.names() for y in ex.walk(x) if isinstance(y, ex.IndexValue)))
            for y in ex.loads(x):
                names.update(*(i.names() for i in y.access.indices if isinstance(i, Affine)))
    return var in names


def _prefetch(st: State, n: Prefetch) -> None:
    local = st.plan.locals.get(n.access.tensor)
    if (local is not None and local.kind in ("names", "vectors", "private")) or not n.access.is_affine:
        return
    off, _ = element_offset(st, n.access)
    if st.vec is not None:
        off = off.substitute({st.vec.loop.var: st.vec.base})
    st.line(f"__builtin_prefetch({plus(*address(st, n.access.tensor, off))}, 0, {LOCALITY.get(n.level, 1)});")


def _declare(st: State, tensor: str) -> None:
    """Declare a local buffer in the current C block (once)."""
    if tensor in st.scope.declared:
        return
    st.scope.declared.add(tensor)
    st.depth_of[f"tensor {tensor}"] = st.scope.depth
    t, local = st.tensors[tensor], st.plan.locals[tensor]
    dtype = compute_dtype(t.dtype)
    if local.kind in ("names", "vectors"):
        ctype = dtype.ctype if local.kind == "names" else st.prelude.vector(local.lanes, dtype)
        for slot in local.slots:
            _local_line(st, ctype, slot_name(st, tensor, slot), "0" if local.kind == "names" else "{0}")
    elif local.kind == "private":
        assert st.vec is not None
        mask = dtype.kind == "b" and st.target.isa.masks
        ctype = st.ctype(Val(("",), dtype, True, 8))
        for p in range(len(st.vec.active)):
            for slot in local.slots:
                _local_line(st, ctype, slot_name(st, tensor, slot, p), "0" if mask else "{0}")
            if not local.slots:
                st.line(f"{ctype} {slot_name(st, tensor, (), p)}[{product(t.shape)}];")
    elif local.kind == "array":
        st.line(f"_Alignas(64) {t.dtype.ctype} {st.ident[tensor]}[{max(1, product(t.shape) or 1)}];")
    else:
        size = product(t.shape)
        text = " * ".join(st.ints.affine(d, wide=True) for d in t.shape)
        st.stable.add(st.ident[tensor])
        offset = st.arena.take(size * t.dtype.bytes if size is not None else f"{text} * {t.dtype.bytes}")
        st.line(f"{t.dtype.ctype} *restrict {st.ident[tensor]} = ({t.dtype.ctype} *)(scratch + {offset});")
        st.visible.append(tensor)


def _local_line(st: State, ctype: str, name: str, zero: str) -> None:
    text = f"{ctype} {name} = {zero}; (void){name};"  # a partial tile may use none of it
    st.scope.locals[text] = Declared(ctype, name, zero)
    st.line(text)


# ---- loops
def _emit_loop(st: State, n: Loop) -> None:
    ctype, low, high, rng = loop_bounds(st, n)
    st.push(n.var, not has_loops(n.body))
    var = st.bind(n.var, rng, ctype)
    emit_body(st, n.body)
    step = f"{var}++" if n.step == 1 else f"{var} += {n.step}"
    note = f" /* {comment(n.name)} */" if n.name and comment(n.name) != var else ""
    st.pop(f"for ({ctype} {var} = {low}; {var} < {high}; {step}) {{{note}")


def _emit_vector(st: State, n: Loop) -> None:
    width = st.plan.chunk[id(n)]
    if not n.is_strip:
        _emit_strips(st, n, width)
        return
    base = n.lower[0]
    if len(n.lower) > 1:
        rng = loop_range(n, st.ints.ranges)
        name = st.names.fresh("lb")
        ctype = st.ints.type_of(*rng)
        st.ints.ident[name] = name
        st.line(f"const {ctype} {name} = ({ctype}){bound_text(st, n.lower, 'imax')};")
        st.bind(name, rng, ctype)
        base = affine(name)
    if n.trip is not None:
        counts = tuple(min(width, n.trip - p * width) for p in range(-(-n.trip // width)))
        _vector_body(st, n, Vec(n, base, width, counts), "{" if any(isinstance(x, Declare) for x in walk(n.body)) else "")
        return
    count = st.temp("int", f"(int)({bound_text(st, n.upper, 'imin')} - {st.ints.affine(base)})", "n")
    chunks = -(-n.lanes // width)
    full = tuple([width] * (chunks - 1) + [n.lanes - (chunks - 1) * width])
    least = min((a or 0 for a in ((u - base).bounds(st.ints.ranges)[0] for u in n.upper)), default=0)
    head = "{" if least >= 1 else f"if ({count} > 0) {{"
    if not st.target.isa.masks:
        _vector_body(st, n, Vec(n, base, width, full), f"if ({count} == {n.lanes}) {{")
        st.scope.lines.pop()
        head = "} else " + head
    st.push()
    active: list[int | str] = [count]
    if chunks > 1:
        active = []
        for p in range(chunks):
            rest = f"{count} - {p * width}" if p else count
            low = f"{rest} < 0 ? 0 : " if p else ""
            active.append(st.temp("int", f"{low}{rest} < {width} ? {rest} : {width}", "n"))
    _vector_body(st, n, Vec(n, base, width, tuple(active)), "")
    st.pop(head)


def _emit_strips(st: State, n: Loop, width: int) -> None:
    """A vector loop of any length: whole strips, then single vectors, then a last one with its first lanes only."""
    ctype, low, end, rng = loop_bounds(st, n)
    first = st.names.fresh("v")
    st.ints.ident[first] = first
    st.line(f"{ctype} {first} = {low};")
    if any(scan_along(x, n, st.tensors, st.fp) for x in n.body if isinstance(x, Instance)):
        st.push()
        base = n.lower[0]
        if len(n.lower) > 1:  # not `first`, which moves on
            start = st.temp(ctype, first, "lb")
            st.ints.ident[start] = start
            st.bind(start, rng, ctype)
            base = affine(start)
        open_carries(st, n, width, base)
        _emit_chunks(st, n, width, first, (ctype, end, rng))
        st.pop(f"if ({first} < {end}) {{")
    else:
        _emit_chunks(st, n, width, first, (ctype, end, rng))


def _emit_chunks(st: State, n: Loop, width: int, first: str, bounds: tuple[str, str, Range]) -> None:
    ctype, end, rng = bounds
    chunks = -(-n.lanes // width)
    counts = [(width,) * chunks] + ([(width,)] if chunks > 1 else [])
    for active in counts:
        step = len(active) * width
        st.push(first, not has_loops(n.body))
        st.bind(first, rng, ctype)
        _vector_body(st, n, Vec(n, affine(first), width, active), "")
        st.pop(f"for (; {first} <= {end} - {step}; {first} += {step}) {{")
    if n.trip is not None and n.trip % width == 0:
        return
    st.push()
    st.bind(first, rng, ctype)
    rest: int | str = n.trip % width if n.trip is not None else st.temp("int", f"(int)({end} - {first})", "n")
    _vector_body(st, n, Vec(n, affine(first), width, (rest,)), "")
    st.pop("{" if n.trip is not None else f"if ({first} < {end}) {{")


def _vector_body(st: State, n: Loop, vec: Vec, head: str) -> None:
    """The statements of a vector loop, in a C block of their own where `head` is given."""
    if head:
        st.push()
    lo, hi = loop_range(n, st.ints.ranges)
    st.ints.ranges[n.var] = (lo, hi)
    st.depth_of[n.var] = st.scope.depth
    st.vec = vec
    emit_body(st, n.body)
    st.vec = None
    if head:
        st.pop(head)
