"""The recipes see structure, not names: tensors, loops, sizes and operators renamed, loops written in another order and factors swapped give
the same C up to names. The kernels are the library's operators and Python loop nests; names are numbered in order of first appearance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import pytest

import polyopt as po
from polyopt.api.schedules import Schedule
from polyopt.frontends.python_loops import scop_from_source
from polyopt.ir.affine import var
from polyopt.ir.expr import Access, Load, rewrite

COMMON = re.compile(  # names that are not the kernel's own
    r"(void|u?int(8|16|32|64)?(_t)?|float|double|char|const|restrict|static|inline|for|if|else|while|return|sizeof|long|unsigned|omp|"
    r"include|define|ifndef|endif|pragma|_mm\w*|__\w*|v\d+[fiu]\d+u?|po_(?!\w+_body_\d)\w+)"
)
ISAS = ("scalar", "avx2", "avx512", "neon")


def normal(text: str) -> str:
    """C without comments, its own names numbered by their first appearance; the helpers that stand in front stay as they are."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    cut = text.rindex("#endif") if "#endif" in text else 0
    numbers: dict[str, str] = {}

    def number(m: re.Match[str]) -> str:
        name = m[0]
        return name if COMMON.fullmatch(name) else numbers.setdefault(name, f"n{len(numbers)}")

    return text[:cut] + re.sub(r"(?<![\w.])[A-Za-z_]\w*", number, text[cut:])


def c_of(text: str, dims: str = "", isa: str = "avx2", threads: int = 1) -> str:
    names = dims.split()
    function = scop_from_source(text, {n: var(n) for n in names}, "nest.py")
    return normal(po.auto(function, isa=isa, threads=threads).source(isa=isa, threads=threads).text)


def gemm(order: str = "ijk", names: Mapping[str, str] | None = None, swapped: bool = False, sizes: tuple[object, ...] = (61, 77, 50)) -> str:
    """A product, its loops in an order, its names replaced, its factors swapped."""
    m, n, k = sizes
    bounds = {"i": m, "j": n, "k": k}
    product = "B[k, j] * A[i, k]" if swapped else "A[i, k] * B[k, j]"
    lines = [f"def gemm(A: f32[{m}, {k}], B: f32[{k}, {n}], C: f32[{m}, {n}]):"]
    lines += [f"{'    ' * (d + 1)}for {v} in range({bounds[v]}):" for d, v in enumerate(order)]
    lines.append(f"                C[i, j] += {product}")
    return renamed("\n".join(lines) + "\n", names or {})


def renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z]\w*\b", lambda m: names.get(m[0], m[0]), text)


@pytest.mark.parametrize("isa", ISAS)
def test_gemm_with_other_names(isa: str) -> None:
    names = {"gemm": "softmax", "A": "weights", "B": "image", "C": "conv_out", "i": "row", "j": "batch", "k": "head"}
    assert c_of(gemm(names=names), isa=isa) == c_of(gemm(), isa=isa)


@pytest.mark.parametrize("order", ["".join(p) for p in permutations("ijk")])
def test_gemm_with_its_loops_in_another_order(order: str) -> None:
    assert c_of(gemm(order)) == c_of(gemm())


@pytest.mark.parametrize("order", ["ijk", "kji"])
def test_gemm_with_its_factors_swapped(order: str) -> None:
    assert c_of(gemm(order, swapped=True)) == c_of(gemm())


@pytest.mark.parametrize("order", ["ikj", "kji"])
def test_symbolic_gemm_with_everything_changed(order: str) -> None:
    names = {"A": "Z", "B": "Y", "C": "X", "i": "k", "j": "i", "k": "j", "M": "P", "N": "M", "K": "N"}
    sizes = ("M", "N", "K")
    assert c_of(gemm(order, names, True, sizes), "P M N") == c_of(gemm(sizes=sizes), "M N K")


CONV = """def conv(X: f32[2, 16, 18, 18], W: f32[24, 16, 3, 3], Y: f32[2, 24, 16, 16]):
    for n in range(2):
        for f in range(24):
            for y in range(16):
                for x in range(16):
                    Y[n, f, y, x] = 0.0
                    for c in range(16):
                        for r in range(3):
                            for s in range(3):
                                Y[n, f, y, x] += X[n, c, y + r, x + s] * W[f, c, r, s]
"""
OTHER_CONV = """def attention(image: f32[2, 16, 18, 18], kernel: f32[24, 16, 3, 3], result: f32[2, 24, 16, 16]):
    for a in range(2):
        for b in range(24):
            for c in range(16):
                for d in range(16):
                    result[a, b, c, d] = 0.0
                    for x in range(16):
                        for y in range(3):
                            for z in range(3):
                                result[a, b, c, d] += kernel[b, x, y, z] * image[a, x, c + y, d + z]
"""


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize("threads", [1, 4])
def test_conv_with_other_names(isa: str, threads: int) -> None:
    assert c_of(OTHER_CONV, isa=isa, threads=threads) == c_of(CONV, isa=isa, threads=threads)


SOFTMAX = """def softmax(X: f32[13, 100], Y: f32[13, 100]):
    for i in range(13):
        m = -1.0e30
        for j in range(100):
            m = max(m, X[i, j])
        t = 0.0
        for j in range(100):
            Y[i, j] = exp(X[i, j] - m)
        for j in range(100):
            t += Y[i, j]
        for j in range(100):
            Y[i, j] = Y[i, j] / t
"""


def test_rows_with_other_names() -> None:
    names = {"softmax": "gemm", "X": "C", "Y": "A", "i": "j", "j": "i", "m": "t", "t": "m"}
    assert c_of(renamed(SOFTMAX, names)) == c_of(SOFTMAX)


# ---- operators of the library
def relabelled(s: Schedule) -> Schedule:
    """The operator's scop under another kernel name and other tensor names."""
    scop = s.scop
    new = {t.name: f"other{k}" for k, t in enumerate(reversed(scop.tensors))}

    def turn(a: Access) -> Access:
        return Access(new[a.tensor], a.indices)

    statements = tuple(
        replace(x, write=turn(x.write), expr=rewrite(x.expr, lambda e: Load(turn(e.access), e.dtype) if isinstance(e, Load) else None))
        for x in scop.statements
    )
    tensors = tuple(replace(t, name=new[t.name]) for t in scop.tensors)
    return replace(s, scop=replace(scop, name="nothing", tensors=tensors, statements=statements, dependences=None))


def test_a_renamed_scop_gives_the_same_c() -> None:
    s = po.schedule(scop_from_source(CONV, {}, "nest.py"))
    want = normal(po.auto(s, isa="avx2").source(isa="avx2").text)
    assert normal(po.auto(relabelled(s), isa="avx2").source(isa="avx2").text) == want


def test_normal_form_tells_programs_apart() -> None:
    assert normal("a[i] = b[i]; /* c */") == normal("x[k] = y[k]; // d") != normal("a[i] = b[j];")
