"""Contractions: MatMul, Gemm, Conv. An init nest (0 or a bias), then `y += a * b` over output and reduced iterators.

Takes and gives what `registry.Op` says. Padding of a convolution is a constraint of the domain, never a test in the expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Shape, Value
from .build import (
    FLOATS,
    NUMBERS,
    Ins,
    Iters,
    Typed,
    accumulator,
    align,
    array,
    broadcast,
    check_dtype,
    content,
    fail,
    iters,
    load,
    maybe,
    need,
    operand,
    operator,
    points,
    present,
    raw,
    shape_of,
    show,
    store,
    widen,
)  # fmt: skip
from .exprs import add, mul
from .pointwise import same_dtype
from .registry import Array, Definition, Known
from .window import Window, concrete, numpy_taps, window


# ---- MatMul
def _infer_matmul(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    a, b = shape_of(need(ins, 0)), shape_of(need(ins, 1))
    dtype = same_dtype(ins)
    check_dtype(need(ins, 0), NUMBERS)
    if not a or not b:
        fail("operands must have at least one dim")
    k, l = a[-1], b[-2] if len(b) > 1 else b[-1]
    if k != l:
        fail(f"inner dims differ: {show(a)} times {show(b)}")
    return [(dtype, broadcast([a[:-2], b[:-2]]) + a[-2:-1] * (len(a) > 1) + b[-1:] * (len(b) > 1))]


def _define_matmul(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    a, b, out = need(ins, 0), need(ins, 1), outs[0]
    sa, sb = shape_of(a), shape_of(b)
    batch = broadcast([sa[:-2], sb[:-2]])
    bits: Iters = iters(batch, "b")
    i = (("i", sa[-2]),) if len(sa) > 1 else ()
    j = (("j", sb[-1]),) if len(sb) > 1 else ()
    k = (("k", sa[-1]),)
    pb, pi, pj, pk = points(bits), points(i), points(j), points(k)
    x = load(a, (*align(sa[:-2], batch, pb), *pi, *pk))
    y = load(b, (*align(sb[:-2], batch, pb), *pk, *pj))
    acc, local, last = accumulator(node, out)
    at = (*pb, *pi, *pj)
    init = store(acc, at, bits + i + j, 0)
    update = store(acc, at, bits + i + j + k, mul(x, y), "+")
    return Definition((init, update, *last), local)


def _np_matmul(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    a, b = array(arrays, 0), array(arrays, 1)
    return [np.asarray(np.matmul(widen(a), widen(b))).astype(a.dtype)]


operator("MatMul", _infer_matmul, _define_matmul, _np_matmul, arity=(2, 2))


# ---- Gemm
def _infer_gemm(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    a, b, c = shape_of(need(ins, 0)), shape_of(need(ins, 1)), present(ins, 2)
    dtype = same_dtype(ins)
    check_dtype(need(ins, 0), NUMBERS)
    if len(a) != 2 or len(b) != 2:
        fail(f"operands must be matrices, not {show(a)} and {show(b)}")
    m, k = a[::-1] if node.attr("transA", 0) else a
    l, n = b[::-1] if node.attr("transB", 0) else b
    if k != l:
        fail(f"inner dims differ: {k} and {l}")
    if c is not None and broadcast([shape_of(c), (m, n)]) != (m, n):
        fail(f"C of shape {show(shape_of(c))} does not broadcast to {show((m, n))}")
    return [(dtype, (m, n))]


def _define_gemm(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    a, b, c, out = need(ins, 0), need(ins, 1), present(ins, 2), outs[0]
    ta, tb, alpha, beta = node.attr("transA", 0), node.attr("transB", 0), node.attr("alpha", 1.0), node.attr("beta", 1.0)
    shape = shape_of(out)
    its: Iters = (("i", shape[0]), ("j", shape[1]))
    ks: Iters = (("k", shape_of(a)[0 if ta else 1]),)
    (i, j), (k,) = points(its), points(ks)
    x, y = load(a, (k, i) if ta else (i, k)), load(b, (j, k) if tb else (k, j))
    acc, local, last = accumulator(node, out)
    bias = None
    if c is not None and beta != 0:
        bias = operand(c, align(shape_of(c), shape, (i, j)), known)
        bias = bias if beta == 1 else mul(bias, beta)
    update = store(acc, (i, j), its + ks, mul(x, y), "+")
    if alpha == 1:
        return Definition((store(acc, (i, j), its, 0 if bias is None else bias), update, *last), local)
    scaled = mul(raw(acc, (i, j)), alpha)
    scale = store(acc, (i, j), its, scaled if bias is None else add(scaled, bias))
    return Definition((store(acc, (i, j), its, 0), update, scale, *last), local)


def _np_gemm(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    a, b, c = widen(array(arrays, 0)), widen(array(arrays, 1)), maybe(arrays, 2)
    t = a.dtype.type
    y = np.matmul(a.T if node.attr("transA", 0) else a, b.T if node.attr("transB", 0) else b) * t(node.attr("alpha", 1.0))
    if c is not None and node.attr("beta", 1.0) != 0:
        y = y + widen(c) * t(node.attr("beta", 1.0))
    return [y.astype(array(arrays, 0).dtype)]


operator("Gemm", _infer_gemm, _define_gemm, _np_gemm, arity=(2, 3))


# ---- Conv
def conv_window(node: Node, x: Shape, w: Shape) -> Window:
    """The window of a convolution, with its shapes checked."""
    if len(x) < 3 or len(w) != len(x):
        fail(f"input {show(x)} and weights {show(w)} must have one rank of at least 3")
    kernel = [affine(k) for k in node.attr("kernel_shape") or w[2:]]
    if tuple(kernel) != w[2:]:
        fail(f"kernel_shape {show(tuple(kernel))} differs from the weights' {show(w[2:])}")
    return window(node, x[2:], [_constant(k) for k in kernel])


def _constant(k: Affine) -> int:
    if not k.is_const:
        fail(f"the kernel's size {k} must be a constant")
    return k.const


def _infer_conv(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, w, b = shape_of(need(ins, 0)), shape_of(need(ins, 1)), present(ins, 2)
    win, groups = conv_window(node, x, w), node.attr("group", 1)
    if x[1] != w[1] * groups:
        fail(f"{x[1]} input channels do not match weights {show(w)} in {groups} groups")
    if content(w[0])[0] % groups:
        fail(f"{w[0]} output channels do not divide into {groups} groups")
    if b is not None and shape_of(b) != (w[0],):
        fail(f"bias {show(shape_of(b))} does not match {w[0]} output channels")
    return [(check_dtype(need(ins, 0), NUMBERS), (x[0], w[0], *win.out))]


def group_iters(groups: int, per_out: Affine, per_in: Affine) -> tuple[Iters, Iters, Affine, Affine, Affine]:
    """(output-channel iterators, reduced channel iterator, output channel, input channel within the group, group)."""
    if groups == 1:
        return (("o", per_out),), (("c", per_in),), affine("o"), affine("c"), affine(0)
    g = affine("g")
    outer: Iters = (("g", affine(groups)),) + ((("o", per_out),) if per_out != 1 else ())
    inner: Iters = (("c", per_in),) if per_in != 1 else ()
    o = affine("o") if per_out != 1 else affine(0)
    return outer, inner, g * per_out + o, affine("c") if per_in != 1 else affine(0), g


SPACE, TAPS = ("d", "h", "w"), ("q", "r", "s")


def spatial(names: Sequence[str], shape: Sequence[Affine], prefix: str) -> Iters:
    """Iterators over spatial dims: the last of `names`, or numbered ones where there are more than three dims."""
    rank = len(shape)
    return tuple(zip(names[-rank:], shape)) if rank <= len(names) else iters(shape, prefix)


def _define_conv(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    x, w, b, out = need(ins, 0), need(ins, 1), present(ins, 2), outs[0]
    sx, sw, groups = shape_of(x), shape_of(w), node.attr("group", 1)
    win = conv_window(node, sx, sw)
    per_out = (sw[0]) // groups
    channels, reduced, o, c, g = group_iters(groups, per_out, sw[1])
    space, taps = spatial(SPACE, win.out, "h"), spatial(TAPS, sw[2:], "r")
    batch: Iters = (("n", sx[0]),)
    at = (affine("n"), o, *points(space))
    index = win.index(points(space), points(taps))
    acc, local, last = accumulator(node, out)
    init = store(acc, at, batch + channels + space, 0 if b is None else load(b, (o,)))
    term = mul(load(x, (affine("n"), g * sw[1] + c, *index)), load(w, (o, c, *points(taps))))
    update = store(acc, at, batch + channels + space + reduced + taps, term, "+", win.inside(index))
    return Definition((init, update, *last), local)


def _np_conv(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, w, b = widen(array(arrays, 0)), widen(array(arrays, 1)), maybe(arrays, 2)
    groups = node.attr("group", 1)
    win = concrete(node, x.shape[2:], w.shape[2:])
    out = tuple(o.const for o in win.out)
    y = np.zeros((groups, w.shape[0] // groups, x.shape[0], *out), x.dtype)
    wg = w.reshape(groups, -1, *w.shape[1:])
    for tap, part in numpy_taps(x, win, 0):
        cols = part.reshape(x.shape[0], groups, w.shape[1], -1).transpose(1, 2, 0, 3).reshape(groups, w.shape[1], -1)
        at: Any = (..., *tap)
        y += np.matmul(wg[at], cols).reshape(y.shape)
    y = np.moveaxis(y, 2, 0).reshape(x.shape[0], w.shape[0], *out)
    if b is not None:
        y = y + widen(b).reshape(-1, *(1,) * len(out))
    return [y.astype(array(arrays, 0).dtype)]


operator("Conv", _infer_conv, _define_conv, _np_conv, arity=(2, 3))


# ---- ConvTranspose
def _transpose_pads(node: Node, x: Shape, w: Shape) -> tuple[list[int], list[int], list[int], list[Affine], list[Affine]]:
    """(kernel, stride, dilation, padding before, output size) per spatial dim."""
    rank = len(x) - 2
    if rank < 1 or len(w) != len(x):
        fail(f"input {show(x)} and weights {show(w)} must have one rank of at least 3")
    kernel = [_constant(k) for k in w[2:]]
    ones, zeros = [1] * rank, [0] * rank
    stride, dilation, extra, pads = (
        [int(v) for v in node.attr(key) or default]
        for key, default in (("strides", ones), ("dilations", ones), ("output_padding", zeros), ("pads", zeros * 2))
    )
    wanted, auto = node.attr("output_shape"), node.attr("auto_pad", "NOTSET") or "NOTSET"
    before, out = [], []
    for k in range(rank):
        full = (x[2 + k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 + extra[k]
        if wanted or auto in ("SAME_UPPER", "SAME_LOWER"):
            size = affine(int(wanted[len(wanted) - rank + k])) if wanted else x[2 + k] * stride[k]
            total = full - size
            total = affine(max(total.const, 0)) if total.is_const else total
            small = total // 2
            before.append(small if auto == "SAME_UPPER" else total - small)
        else:
            p, q = (0, 0) if auto == "VALID" else (pads[k], pads[k + rank])
            size = full - p - q
            before.append(affine(p))
        out.append(size)
    return kernel, stride, dilation, before, out


def _infer_conv_transpose(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    x, w, b = shape_of(need(ins, 0)), shape_of(need(ins, 1)), present(ins, 2)
    *_, out = _transpose_pads(node, x, w)
    channels = w[1] * node.attr("group", 1)
    if x[1] != w[0]:
        fail(f"{x[1]} input channels do not match weights {show(w)}")
    if b is not None and shape_of(b) != (channels,):
        fail(f"bias {show(shape_of(b))} does not match {channels} output channels")
    return [(check_dtype(need(ins, 0), FLOATS), (x[0], channels, *out))]


def _define_conv_transpose(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    """y[.., h] = sum of x[.., i] w[.., r] over i s + r d - p = h, gathered so that each output is one reduction.

    Dilation 1: h + p = s m + u, so r = u + s t and i = m - t: the phase u and m are iterators, and every index is linear.
    Otherwise r is an iterator and i = (h + p - r d)/s must be whole.
    """
    x, w, b, out = need(ins, 0), need(ins, 1), present(ins, 2), outs[0]
    sx, sw, groups = shape_of(x), shape_of(w), node.attr("group", 1)
    kernel, stride, dilation, before, size = _transpose_pads(node, sx, sw)
    per_in = sx[1] // groups
    channels, reduced, o, c, g = group_iters(groups, sw[1], per_in)
    in_group = affine("o") if groups == 1 or sw[1] != 1 else affine(0)
    space: Iters = ()
    taps: Iters = ()
    at: list[Affine] = []
    index: list[Affine] = []
    tap: list[Affine] = []
    where: list[Affine] = []
    for k, (h, r) in enumerate(zip(spatial(SPACE, size, "h"), spatial(TAPS, sw[2:], "r"))):
        (h_name, _), (r_name, _), s, p = h, r, stride[k], before[k]
        hv, rv = affine(h_name), affine(r_name)
        if dilation[k] == 1 and s > 1:
            phase = affine(h_name + "p")
            low = p % s
            space += ((h_name, (size[k] - 1 + low) // s + 1), (h_name + "p", affine(s)))
            taps += ((r_name, affine(-(-kernel[k] // s))),)
            y_at, r_at, x_at = hv * s + phase - low, phase + rv * s, hv + p // s - rv
            where += [y_at, size[k] - 1 - y_at, affine(kernel[k] - 1) - r_at]
        else:
            space, taps = (*space, h), (*taps, r)
            reach = hv + p - rv * dilation[k]
            y_at, r_at, x_at = hv, rv, reach // s
            where.append(-(reach % s))
        where += [x_at, sx[2 + k] - 1 - x_at]
        at, index, tap = [*at, y_at], [*index, x_at], [*tap, r_at]
    n: Iters = (("n", sx[0]),)
    plain = iters(shape_of(out))
    acc, local, last = accumulator(node, out)
    init = store(acc, points(plain), plain, 0 if b is None else load(b, (points(plain)[1],)))
    in_channel = g * per_in + c
    term = mul(load(x, (affine("n"), in_channel, *index)), load(w, (in_channel, in_group, *tap)))
    update = store(acc, (affine("n"), o, *at), n + channels + space + reduced + taps, term, "+", where)
    return Definition((init, update, *last), local)


def _np_conv_transpose(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    x, w, b = widen(array(arrays, 0)), widen(array(arrays, 1)), maybe(arrays, 2)
    groups, rank = node.attr("group", 1), x.ndim - 2
    sx, sw = (tuple(map(affine, a.shape)) for a in (x, w))
    kernel, stride, dilation, before, size = _transpose_pads(node, sx, sw)
    low, out = [p.const for p in before], [n.const for n in size]
    full = [(x.shape[2 + k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 for k in range(rank)]
    full = [max(f, p + n) for f, p, n in zip(full, low, out)]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *full), x.dtype)
    xg = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    wg = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for tap in np.ndindex(*kernel):
        at: Any = (..., *tap)
        part = np.einsum("ngc...,gco->ngo...", xg, wg[at]).reshape(x.shape[0], -1, *x.shape[2:])
        cut: Any = tuple(slice(t * d, t * d + (m - 1) * s + 1, s) for t, d, m, s in zip(tap, dilation, x.shape[2:], stride))
        y[(slice(None), slice(None), *cut)] += part
    y = y[(slice(None), slice(None), *(slice(p, p + n) for p, n in zip(low, out)))]
    if b is not None:
        y = y + widen(b).reshape(-1, *(1,) * rank)
    return [y.astype(array(arrays, 0).dtype)]


operator("ConvTranspose", _infer_conv_transpose, _define_conv_transpose, _np_conv_transpose, arity=(2, 3))
