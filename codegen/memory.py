"""Loads and stores as C. Takes accesses and values; gives `Val`s and store statements.

An address is a base pointer and an index: the part of the offset that does not change in the innermost loop goes into a pointer declared
before that loop. In a vector loop an access with stride 1 is a vector access, one that does not depend on the lane a scalar, any other one
a gather or scatter over the lanes. Each distinct load is made once in a straight-line block.
"""

from __future__ import annotations

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine, affine
from polyopt.ir.dtype import BY_NAME, DType, i64, u8
from polyopt.ir.tensor import Tensor

from .offsets import Offset, in_bounds, make_offset, split_offset
from .operators import any_lane, conjunction, lane_test, to_bits
from .prelude import storage_name
from .prepare import Local, compute_dtype, vector_slot
from .state import Scope, State, Val, Vec
from .values import value

Indirect = tuple[tuple[int | str, ex.Expr], ...]


def element_offset(st: State, access: ex.Access) -> tuple[Offset, Indirect]:
    """The row-major offset of an access and its indirect parts (stride, index expression)."""
    plain = affine(0)
    scaled: dict[str, Affine] = {}
    indirect: list[tuple[int | str, ex.Expr]] = []
    for x, stride in zip(access.indices, st.strides[access.tensor], strict=True):
        if isinstance(x, ex.Expr):
            indirect.append((stride, x))
        elif isinstance(stride, int):
            plain = plain + x * stride
        else:
            scaled[stride] = scaled.get(stride, affine(0)) + x
    return make_offset(plain, scaled), tuple(indirect)


def address(st: State, tensor: str, off: Offset) -> tuple[str, str]:
    """A pointer and an index ("" where it is zero)."""
    loop: Scope | None = st.scope
    while loop is not None and not loop.loop_var:
        loop = loop.parent
    home = loop.parent if loop is not None and loop.innermost else st.scope
    assert home is not None
    if st.depth_of.get(f"tensor {tensor}", 0) > home.depth:
        home = st.scope
    inv, rest = split_offset(off, lambda name: st.depth_of.get(name, 0) > home.depth)
    pointer = st.ident[tensor]
    if not inv.is_const or inv.plain.const:
        pointer = _base(st, home, tensor, inv)
    if rest.is_const and rest.plain.const == 0:
        return pointer, ""
    st.used_symbols.update(s for s, _ in rest.scaled)
    return pointer, st.ints.offset(rest)


def _base(st: State, home: Scope, tensor: str, inv: Offset) -> str:
    scope: Scope | None = home
    key = (tensor, inv)
    while scope is not None:
        if key in scope.pointers:
            return scope.pointers[key]
        scope = scope.parent
    t = st.tensors[tensor]
    name = st.names.fresh("p")
    const = "const " if t.role in ("input", "constant") else ""
    st.used_symbols.update(s for s, _ in inv.scaled)
    home.lines.append(f"{const}{t.dtype.ctype} *{name} = {st.ident[tensor]} + {st.ints.offset(inv)};")
    home.pointers[key] = name
    return name


def at(pointer: str, index: str) -> str:
    """An element as an lvalue."""
    return f"{pointer}[{index or '0'}]"


def plus(pointer: str, index: str) -> str:
    """An address."""
    return f"{pointer} + {index}" if index else pointer


# ---- named locals
def slot_name(st: State, tensor: str, key: tuple[int, ...], part: int | None = None) -> str:
    """The C name of an element of a buffer that became named locals."""
    full = f"{tensor}\0{key}\0{part}"
    if full not in st.ident:
        text = "_".join([st.ident[tensor], *(str(k).replace("-", "m") for k in key), *([] if part is None else [f"p{part}"])])
        st.ident[full] = st.names.unique(text)
    return st.ident[full]


def local_parts(st: State, access: ex.Access, local: Local) -> Val | None:
    """The lvalues of an access to a buffer that is named locals or private to the lanes; None where it lies in memory."""
    dtype = compute_dtype(st.tensors[access.tensor].dtype)
    if local.kind == "names":
        return Val((slot_name(st, access.tensor, tuple(int(i) for i in access.affine_indices())),), dtype)
    vec = st.vec
    if local.kind == "vectors":
        assert vec is not None
        slot = vector_slot(access, vec.loop, vec.width)
        assert slot is not None
        names = (slot_name(st, access.tensor, (*slot[:-1], slot[-1] // vec.width + p)) for p in range(len(vec.active)))
        return Val(tuple(names), dtype, True)
    if local.kind == "private":
        assert vec is not None
        bits = 0 if st.target.isa.masks else 8 if dtype.kind == "b" else 0
        if local.slots:
            key = tuple(int(i) for i in access.affine_indices())
            return Val(tuple(slot_name(st, access.tensor, key, p) for p in range(len(vec.active))), dtype, True, bits)
        index = _index_text(st, *element_offset(st, access))
        return Val(tuple(f"{slot_name(st, access.tensor, (), p)}[{index}]" for p in range(len(vec.active))), dtype, True, bits)
    return None


def _index_text(st: State, off: Offset, indirect: Indirect, lane: int | None = None) -> str:
    """The whole offset as one C expression; `lane` evaluates indirect indices for one lane of the vector loop."""
    st.used_symbols.update(s for s, _ in off.scaled)
    parts = [] if off.is_const and not off.plain.const and indirect else [st.ints.offset(off)]
    for stride, e in indirect:
        if isinstance(stride, str):
            st.used_symbols.add(stride)
        text = lane_value(st, e, lane)
        parts.append(text if stride == 1 else f"{stride} * {text}")
    return " + ".join(parts)


def lane_value(st: State, e: ex.Expr, lane: int | None) -> str:
    """The scalar value of an index expression, for one lane of the vector loop."""
    vec, guard, lazy = st.vec, st.guard, st.lazy
    if vec is not None and lane is not None:
        e = ex.substitute(e, {vec.loop.var: vec.base + lane})
    st.vec, st.guard, st.lazy = None, (), True
    text = value(st, e).text
    st.vec, st.guard, st.lazy = vec, guard, lazy
    return f"(int64_t){text}"


# ---- loads
def load(st: State, e: ex.Load) -> Val:
    """The value of a load in the current context."""
    t = st.tensors[e.access.tensor]
    local = st.plan.locals.get(t.name)
    if local is not None:
        parts = local_parts(st, e.access, local)
        if parts is not None:
            return parts
    off, indirect = element_offset(st, e.access)
    safe = not st.lazy or in_bounds(e.access.indices, t, st.ints.ranges)
    vec = st.vec
    if vec is None or not _varies(vec.loop.var, off, indirect):
        return _scalar_load(st, t, off, indirect, safe)
    stride = off.stride(vec.loop.var) if not indirect else None
    base = off.substitute({vec.loop.var: vec.base})
    parts_out = []
    for p, active in enumerate(vec.active):
        if stride == 1:
            parts_out.append(_vector_load(st, t, base.shift(p * vec.width), p, safe, vec))
        else:
            parts_out.append(_gather(st, t, off, indirect, p, active, safe, vec))
    return _widen(st, Val(tuple(parts_out), t.dtype, True))


def _varies(var: str, off: Offset, indirect: Indirect) -> bool:
    return var in off.names() or any(var in _expr_names(x) for _, x in indirect)


def _expr_names(e: ex.Expr) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for x in ex.walk(e):
        if isinstance(x, ex.IndexValue):
            out |= x.index.names()
        elif isinstance(x, ex.Load):
            out = out.union(*(i.names() for i in x.access.indices if isinstance(i, Affine)))
    return out


def _remember(st: State, tensor: str, key: str, ctype: str, text: str, keep: bool) -> str:
    """A local with the loaded value: the one at hand, or a new one; the text itself where the load must stay conditional."""
    if not keep:
        return text
    scope: Scope | None = st.scope
    while scope is not None:
        found = scope.loads.get((tensor, ctype, key))
        if found is not None:
            return found.text
        if scope.loop_var:
            break
        scope = scope.parent
    if st.once:
        return text
    name = st.temp(ctype, text)
    st.scope.loads[tensor, ctype, key] = Val((name,), i64)
    return name


def _scalar_load(st: State, t: Tensor, off: Offset, indirect: Indirect, safe: bool) -> Val:
    if indirect:
        text = at(st.ident[t.name], _index_text(st, off, indirect))
    else:
        text = at(*address(st, t.name, off))
    dtype = compute_dtype(t.dtype)
    source = text
    if t.dtype.name == "f16":
        source = f"(float){text}"
    elif t.dtype.name == "bf16":
        source = f"{st.prelude.scalar('from_bf16')}({text})"
    if not safe and st.guard:
        return Val((f"({any_lane(st, st.guard)} ? {source} : 0)",), dtype)
    if indirect and st.lazy:
        safe = False
    return Val((_remember(st, t.name, text, dtype.ctype, source, safe),), dtype)


def _vector_load(st: State, t: Tensor, off: Offset, part: int, safe: bool, vec: Vec) -> str:
    active = vec.active[part]
    pointer, index = address(st, t.name, off)
    where = plus(pointer, index)
    ctype = st.prelude.vector(vec.width, t.dtype)
    if not safe and st.guard:
        mask = conjunction(st, st.guard, part, t.dtype.bits, active)
        return f"{st.prelude.load(vec.width, _raw(t.dtype))}({where}, {mask})"
    if active == vec.width:
        text = f"*(const {st.prelude.unaligned(vec.width, t.dtype)} *)({where})"
        text = text if safe else f"({ctype}){text}"  # both sides of a conditional must have one type
    else:
        text = f"{st.prelude.count_access(vec.width, _raw(t.dtype), False)}({where}, {active})"
    return _remember(st, t.name, text, ctype, text, safe)


def _raw(t: DType) -> DType:
    return BY_NAME[storage_name(t)]


def _gather(
    st: State, t: Tensor, off: Offset, indirect: Indirect, part: int, active: int | str, safe: bool, vec: Vec
) -> str:
    ctype = st.prelude.vector(vec.width, t.dtype)
    lanes = []
    for l in range(vec.width):
        if isinstance(active, int) and l >= active:
            lanes.append("0")
            continue
        lane = part * vec.width + l
        at_lane = off.substitute({vec.loop.var: vec.base + lane})
        if indirect:
            text = at(st.ident[t.name], _index_text(st, at_lane, indirect, lane))
        else:
            text = at(*address(st, t.name, at_lane))
        tests = [] if isinstance(active, int) else [f"{active} > {l}"]
        if not safe:
            tests += [lane_test(st, m, part, l) for m in st.guard]
        lanes.append(f"{' && '.join(tests)} ? {text} : 0" if tests else text)
    text = f"({ctype}){{{', '.join(lanes)}}}"
    return _remember(st, t.name, text, ctype, text, safe and not (st.lazy and bool(indirect)))


def _widen(st: State, v: Val) -> Val:
    """Storage elements to the type they are computed in."""
    assert st.vec is not None
    width, dtype = st.vec.width, v.dtype
    if dtype.kind == "b":
        ne, splat = st.prelude.compare("!=", width, u8), st.prelude.splat(width, u8)
        bits = 0 if st.target.isa.masks else 8
        return Val(tuple(f"{ne}({p}, {splat}(0))" for p in v.parts), dtype, True, bits)
    target = compute_dtype(dtype)
    if target == dtype:
        return v
    fn = st.prelude.convert(width, dtype, target)
    return Val(tuple(f"{fn}({p})" for p in v.parts), target, True)


# ---- stores
def store(st: State, access: ex.Access, v: Val) -> None:
    """Write a value of the tensor's compute type."""
    t = st.tensors[access.tensor]
    local = st.plan.locals.get(t.name)
    if local is not None:
        places = local_parts(st, access, local)
        if places is not None:
            v = to_bits(st, v, places.bits) if places.vector and v.dtype.kind == "b" else v
            for place, text in zip(places.parts, v.parts, strict=True):
                st.line(f"{place} = {text};")
            return
    off, indirect = element_offset(st, access)
    vec = st.vec
    if vec is None or not _varies(vec.loop.var, off, indirect):
        text = _narrow_scalar(st, v.text, t.dtype)
        place = at(st.ident[t.name], _index_text(st, off, indirect)) if indirect else at(*address(st, t.name, off))
        st.line(f"{place} = {text};")
    else:
        _vector_store(st, t, off, indirect, _narrow(st, v, t.dtype), vec)
    st.forget({t.name})


def _vector_store(st: State, t: Tensor, off: Offset, indirect: Indirect, v: Val, vec: Vec) -> None:
    contiguous = not indirect and off.stride(vec.loop.var) == 1
    base = off.substitute({vec.loop.var: vec.base})
    ctype = st.prelude.vector(vec.width, t.dtype)
    for p, (active, text) in enumerate(zip(vec.active, v.parts, strict=True)):
        if contiguous:
            where = plus(*address(st, t.name, base.shift(p * vec.width)))
            if active == vec.width:
                st.line(f"*({st.prelude.unaligned(vec.width, t.dtype)} *)({where}) = {text};")
            else:
                st.line(f"{st.prelude.count_access(vec.width, _raw(t.dtype), True)}({where}, {active}, {text});")
            continue
        name = text if text.isidentifier() else st.temp(ctype, text)
        for l in range(active if isinstance(active, int) else vec.width):
            lane = p * vec.width + l
            at_lane = off.substitute({vec.loop.var: vec.base + lane})
            place = at(st.ident[t.name], _index_text(st, at_lane, indirect, lane)) if indirect else at(*address(st, t.name, at_lane))
            test = "" if isinstance(active, int) else f"if ({active} > {l}) "
            st.line(f"{test}{place} = {name}[{l}];")


def _narrow_scalar(st: State, text: str, dtype: DType) -> str:
    if dtype.name == "f16":
        return f"(_Float16){text}"
    if dtype.name == "bf16":
        return f"{st.prelude.scalar('to_bf16')}({text})"
    return text


def _narrow(st: State, v: Val, dtype: DType) -> Val:
    """Computed elements to storage: bytes for bool, halves for f16."""
    assert st.vec is not None
    width = st.vec.width
    if dtype.kind == "b":
        if st.target.isa.masks:
            return Val(tuple(f"{st.prelude.mask_bytes(width)}({p})" for p in v.parts), u8, True)
        v = to_bits(st, v, 8)
        b = st.prelude.vector(width, u8)
        return Val(tuple(f"(({b}){p} & 1)" for p in v.parts), u8, True)
    if compute_dtype(dtype) == dtype:
        return v
    fn = st.prelude.convert(width, v.dtype, dtype)
    return Val(tuple(f"{fn}({p})" for p in v.parts), dtype, True)


__all__ = ["address", "at", "element_offset", "load", "plus", "slot_name", "store"]
