"""Vector exp, log, tanh, erf, sigmoid, sin and cos for f32, as C templates over the number of lanes.

Takes a function name and a lane count; adds the helpers to a `Prelude`. Largest errors seen on a dense sample of all finite inputs (not an
exhaustive search), in units in the last place: exp 0.9, log 0.8, tanh 1.3, erf 1.0, sigmoid 2.2, sin and cos 1.6 (absolute 1e-7);
tests/test_codegen_vmath.py holds them to exp 2, log 2, tanh 4, erf 4, sigmoid 4. Infinities, NaN and
denormals come out as IEEE and C say. Methods: Cody and Waite argument reduction with minimax polynomials (Moshier, Cephes); erf after
N. Juffa's two-interval form. Products and sums are fused where the ISA fuses them.
"""

from __future__ import annotations

from polyopt.ir.dtype import f32, i32

from .prelude import Prelude

_EXP = """static inline {V} po_exp_{V}({V} x) {{
    const {V} c = {sel}({lt}(x, {s}(-104.0f)), {s}(-104.0f), {sel}({gt}(x, {s}(89.0f)), {s}(89.0f), x));
    const {V} n = {fma}(c, {s}(1.44269504f), {s}(12582912.0f)) - {s}(12582912.0f);
    {V} r = {fma}(n, {s}(-0.693145752f), c);
    r = {fma}(n, {s}(-1.42860677e-6f), r);
    {V} p = {s}(1.37805939e-3f);
    p = {fma}(p, r, {s}(8.37312452e-3f));
    p = {fma}(p, r, {s}(4.16695364e-2f));
    p = {fma}(p, r, {s}(1.66664720e-1f));
    p = {fma}(p, r, {s}(4.99999851e-1f));
    p = {fma}(p, r, {s}(1.0f));
    p = {fma}(p, r, {s}(1.0f));
    const {I} e = __builtin_convertvector({sel}({ne}(x, x), {s}(0.0f), n), {I});
    const {I} h = e >> 1;
    return {sel}({ne}(x, x), x, p * ({V})((h + 127) << 23) * ({V})((e - h + 127) << 23));
}}"""

_LOG = """static inline {V} po_log_{V}({V} x) {{
    const {V} tiny = {s}(1.17549435e-38f), scaled = x * {s}(8388608.0f);
    const {V} y = {sel}({lt}(x, tiny), scaled, x);
    const {I} bits = (({I})y - 0x3f3504f3);
    const {I} e = bits >> 23;
    const {V} m = ({V})((bits & 0x007fffff) + 0x3f3504f3) - {s}(1.0f);
    const {V} k = __builtin_convertvector(e, {V}) - {sel}({lt}(x, tiny), {s}(23.0f), {s}(0.0f));
    const {V} z = m * m;
    {V} p = {s}(7.0376836292e-2f);
    p = {fma}(p, m, {s}(-1.1514610310e-1f));
    p = {fma}(p, m, {s}(1.1676998740e-1f));
    p = {fma}(p, m, {s}(-1.2420140846e-1f));
    p = {fma}(p, m, {s}(1.4249322787e-1f));
    p = {fma}(p, m, {s}(-1.6668057665e-1f));
    p = {fma}(p, m, {s}(2.0000714765e-1f));
    p = {fma}(p, m, {s}(-2.4999993993e-1f));
    p = {fma}(p, m, {s}(3.3333331174e-1f));
    p = p * m * z;
    p = {fma}(k, {s}(-2.12194440e-4f), p);
    p = {fma}(z, {s}(-0.5f), p);
    {V} r = {fma}(k, {s}(0.693359375f), m + p);
    r = {sel}({gt}(x, {s}(3.40282347e38f)), x, r);
    r = {sel}({eq}(x, {s}(0.0f)), {s}(-INFINITY), r);
    return {sel}({ge}(x, {s}(0.0f)), r, {s}(NAN));
}}"""

_TANH = """static inline {V} po_tanh_{V}({V} x) {{
    const {V} a = ({V})(({I})x & 0x7fffffff), z = x * x;
    {V} p = {s}(-5.70498872745e-3f);
    p = {fma}(p, z, {s}(2.06390887954e-2f));
    p = {fma}(p, z, {s}(-5.37397155531e-2f));
    p = {fma}(p, z, {s}(1.33314422036e-1f));
    p = {fma}(p, z, {s}(-3.33332819422e-1f));
    p = {fma}(p * z, x, x);
    const {V} q = {s}(1.0f) - {s}(2.0f) / (po_exp_{V}(a + a) + {s}(1.0f));
    return {sel}({lt}(a, {s}(0.625f)), p, ({V})(({I})q | (({I})x & INT32_MIN)));
}}"""

_ERF = """static inline {V} po_erf_{V}({V} x) {{
    const {V} a = ({V})(({I})x & 0x7fffffff), z = x * x;
    {V} r = {fma}({s}(-1.72853470e-5f), a, {s}(3.83197126e-4f));
    const {V} u = {fma}({s}(-3.88396438e-3f), a, {s}(2.42546219e-2f));
    r = {fma}(r, z, u);
    r = {fma}(r, a, {s}(-1.06777877e-1f));
    r = {fma}(r, a, {s}(-6.34846687e-1f));
    r = {fma}(r, a, {s}(-1.28717512e-1f));
    r = {fma}(r, a, -a);
    r = {s}(1.0f) - po_exp_{V}(r);
    r = {sel}({gt}(a, {s}(4.0f)), {s}(1.0f), r);
    {V} p = {s}(-5.96761703e-4f);
    p = {fma}(p, z, {s}(4.99119423e-3f));
    p = {fma}(p, z, {s}(-2.67681349e-2f));
    p = {fma}(p, z, {s}(1.12819925e-1f));
    p = {fma}(p, z, {s}(-3.76125336e-1f));
    p = {fma}(p, z, {s}(1.28379166e-1f));
    p = {fma}(p, x, x);
    const {V} big = ({V})(({I})r | (({I})x & INT32_MIN));
    return {sel}({ne}(x, x), x, {sel}({gt}(a, {s}(0.927734375f)), big, p));
}}"""

_SIGMOID = """static inline {V} po_sigmoid_{V}({V} x) {{
    const {V} one = {s}(1.0f), z = po_exp_{V}(({V})(({I})x | INT32_MIN));
    return {sel}({ge}(x, {s}(0.0f)), one, z) / (one + z);
}}"""

_TRIG = """static inline {V} po_trig_{V}({V} x, int shift) {{
    const {V} big = {s}(12582912.0f);
    const {V} n = {fma}(x, {s}(0.636619772f), big) - big;
    {V} r = {fma}(n, {s}(-1.57079601e+00f), x);
    r = {fma}(n, {s}(-3.13916473e-07f), r);
    r = {fma}(n, {s}(-5.39030253e-15f), r);
    const {V} z = r * r;
    {V} a = {s}(-1.9515295891e-4f);
    a = {fma}(a, z, {s}(8.3321608736e-3f));
    a = {fma}(a, z, {s}(-1.6666654611e-1f));
    a = {fma}(a * z, r, r);
    {V} b = {s}(2.443315711809948e-5f);
    b = {fma}(b, z, {s}(-1.388731625493765e-3f));
    b = {fma}(b, z, {s}(4.166664568298827e-2f));
    b = {fma}(b * z, z, {fma}(z, {s}(-0.5f), {s}(1.0f)));
    const {I} q = __builtin_convertvector({sel}({lt}(({V})(({I})x & 0x7fffffff), {s}(8192.0f)), n, {s}(0.0f)), {I}) + shift;
    const {I} odd = -(q & 1);
    const {I} y = (({I})b & odd) | (({I})a & ~odd);
    return ({V})(y ^ ((q & 2) << 30));
}}"""

_TRIG_TOP = """static inline {V} po_{fn}_{V}({V} x) {{
    {V} r = po_trig_{V}(x, {shift});
    for (int i = 0; i < {W}; i++) if (!(x[i] < 8192.0f && x[i] > -8192.0f)) r[i] = {fn}f(x[i]);
    return r;
}}"""

_NEEDS = {"tanh": ("exp",), "erf": ("exp",), "sigmoid": ("exp",), "sin": ("trig",), "cos": ("trig",)}
_TEMPLATES = {"exp": _EXP, "log": _LOG, "tanh": _TANH, "erf": _ERF, "sigmoid": _SIGMOID, "trig": _TRIG, "sin": _TRIG_TOP, "cos": _TRIG_TOP}
VECTOR_MATH = frozenset(_TEMPLATES) - {"trig"}


def vector_math(prelude: Prelude, fn: str, lanes: int) -> str:
    """The helper's name; adds it and what it needs."""
    v, i = prelude.vector(lanes, f32), prelude.vector(lanes, i32)
    name = f"po_{fn}_{v}"
    if name in prelude.functions:
        return name
    for other in _NEEDS.get(fn, ()):
        vector_math(prelude, other, lanes)
    words = {word: prelude.compare(op, lanes, f32) if f"{{{word}}}" in _TEMPLATES[fn] else ""
             for word, op in (("lt", "<"), ("gt", ">"), ("eq", "=="), ("ne", "!="), ("ge", ">="))}  # fmt: skip
    prelude.headers.add("math.h")
    sel = prelude.blend(lanes, f32) if "{sel}" in _TEMPLATES[fn] else ""
    fma = prelude.op("fma", lanes, f32, 3) if "{fma}" in _TEMPLATES[fn] else ""
    splat = prelude.splat(lanes, f32) if "{s}" in _TEMPLATES[fn] else ""
    text = _TEMPLATES[fn].format(V=v, I=i, s=splat, fma=fma, sel=sel, fn=fn, shift=int(fn == "cos"), W=lanes, **words)
    return prelude.define(name, text)
