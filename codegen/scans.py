"""Linear recurrences over the lanes of a vector loop: x[v] = c·x[v - 1] + r, computed in log2(lanes) steps.

Takes an instance that is one along the loop; gives the text of a *scan*: the rests of all lanes at once, then for d = 1, 2, 4 … each lane takes
c^d times the lane d before it, and at last c^(lane + 1) times the value before the first lane. Between the strips of a long loop that value stays
in a register. (Hillis and Steele 1986, Data parallel algorithms.)
"""

from __future__ import annotations

from polyopt.ir import expr as ex
from polyopt.ir.affine import Affine
from polyopt.ir.dtype import DType
from polyopt.ir.loops import Instance, Loop, Recurrence

from .memory import load, store
from .operators import constant, float_literal, lift
from .prelude import INLINE
from .prepare import scan_along
from .state import State, Val
from .values import value


def emit_scan(st: State, n: Instance, r: Recurrence) -> None:
    """The store of one strip of the recurrence."""
    vec = st.vec
    assert vec is not None
    t = st.tensors[n.write.tensor]
    fn = scan_helper(st, vec.width, t.dtype, r.factor)
    rest = lift(st, constant(0.0, t.dtype) if r.rest is None else value(st, r.rest))
    carry = st.carries.get(id(n))
    vector = st.prelude.vector(vec.width, t.dtype)
    before = carry or st.temp(vector, _before(st, r, t.dtype, vec.width, vec.loop.var, vec.base))
    parts = []
    for p, text in enumerate(rest.parts):
        parts.append(st.temp(vector, f"{fn}({text}, {before})", "x"))
        if carry is not None or p + 1 < len(rest.parts):
            before = f"{last_helper(st, vec.width, t.dtype)}({parts[-1]})"
    store(st, n.write, Val(tuple(parts), t.dtype, True))
    if carry is not None:
        st.line(f"{carry} = {before};")


def open_carries(st: State, n: Loop, width: int, first: Affine) -> None:
    """Declare registers for the values before the first lane of a long loop whose body computes recurrences."""
    for x in n.body:
        if isinstance(x, Instance) and (r := scan_along(x, n, st.tensors, st.fp)) is not None:
            name = st.names.fresh("c")
            dtype = st.tensors[x.write.tensor].dtype
            st.line(f"{st.prelude.vector(width, dtype)} {name} = {_before(st, r, dtype, width, n.var, first)};")
            st.carries[id(x)] = name


def _before(st: State, r: Recurrence, dtype: DType, width: int, v: str, first: Affine) -> str:
    """The value before the first lane, on all lanes."""
    vec, st.vec = st.vec, None
    text = load(st, ex.Load(ex.substitute_access(r.previous, {v: first}), dtype)).text
    st.vec = vec
    return f"{st.prelude.splat(width, dtype)}({text})"


# ---- helpers
def scan_helper(st: State, width: int, dtype: DType, factor: float) -> str:
    """x[l] = factor·x[l - 1] + r[l] with x[-1] = before."""
    v = st.prelude.vector(width, dtype)
    name = st.scans.get((v, factor))
    if name is not None:
        return name
    name = f"po_scan_{v}_{''.join(c if c.isalnum() else '_' for c in factor.hex())}"
    fma = st.prelude.op("fma", width, dtype, 3) if st.has_fma and factor != 1.0 else ""
    splat = st.prelude.splat(width, dtype) if factor != 1.0 else ""

    def add(product: str, times: str, to: str) -> str:
        if times == "":
            return f"{product} + {to}"
        return f"{fma}({product}, {times}, {to})" if fma else f"{product} * {times} + {to}"

    lines = [f"    const {v} zero = {{0}};"]
    d = 1
    while d < width:
        lanes = ", ".join(str(width + l - d if l >= d else 0) for l in range(width))
        power = "" if factor == 1.0 else f"{splat}({float_literal(factor**d, dtype)})"
        lines.append(f"    r = {add(f'__builtin_shufflevector(zero, r, {lanes})', power, 'r')};")
        d *= 2
    powers = "" if factor == 1.0 else f"({v}){{{', '.join(float_literal(factor ** (l + 1), dtype) for l in range(width))}}}"
    lines.append(f"    return {add('before', powers, 'r')};")
    text = "\n".join([f"{INLINE} {v} {name}({v} r, {v} before) {{", *lines, "}"])
    st.scans[v, factor] = st.prelude.define(name, text)
    return name


def last_helper(st: State, width: int, dtype: DType) -> str:
    """The last lane on all lanes."""
    v = st.prelude.vector(width, dtype)
    lanes = ", ".join([str(width - 1)] * width)
    name = f"po_last_{v}"
    return st.prelude.define(name, f"{INLINE} {v} {name}({v} a) {{ return __builtin_shufflevector(a, a, {lanes}); }}")
