"""Text and structural verifiers of every value: what is well-formed passes, each single fault is named, and text is deterministic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

from polyopt.errors import InternalError
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import bool_, f32, f64, i32, i64
from polyopt.ir.expr import Access, Binary, Call, Cast, Compare, Const, IndexValue, Load, Scalar, Select, Unary
from polyopt.ir.graph import Graph, Group, Node, Plan, Storage, Value
from polyopt.ir.loops import Declare, If, Instance, Loop, LoopNest, Prefetch
from polyopt.ir.program import Arg, Buffer, KernelCall, Port, Program
from polyopt.ir.scop import Scop, Statement, Step
from polyopt.ir.source import Source
from polyopt.ir.tensor import ScalarArg, Tensor
from polyopt.ir.text import expr_text, to_text
from polyopt.ir.verify import VERIFIERS, live_ranges

N = var("N")


def verify(value: Any) -> None:
    for check in VERIFIERS[type(value)]:
        check(value)


def refused(value: Any, match: str) -> None:
    with pytest.raises(InternalError, match=match):
        verify(value)


# ---- values to break
def graph() -> Graph:
    values = {n: Value(n, f32, (affine(2), N)) for n in ("x", "y", "z")} | {"w": Value("w", f32, (affine(3),))}
    nodes = (Node("first", "Relu", ("x",), ("y",), {"alpha": 0.5}), Node("second", "Add", ("y", "w", ""), ("z",), domain="my"))
    return Graph("g", ("x",), ("z",), values, {"w": np.ones(3, np.float32)}, nodes, 21)


def plan() -> Plan:
    g = graph()
    groups = (Group("first", g.nodes[:1], ("x",), ("y",)), Group("second", g.nodes[1:], ("y", "w"), ("z",)))
    return Plan(g, groups, {"y": Storage("y", (var("d0"), var("d1")), (affine(2), N))}, {("first", "second"): "shapes differ"})


def scop() -> Scop:
    domain = isl.Set("[N] -> { S[i, j] : 0 <= i < N and 0 <= j < 4 }")
    load = Load(Access("A", (var("i"), var("j"))), f32)
    expr = Binary("*", load, Scalar("alpha", f32))
    tensors = (Tensor("A", f32, (N, affine(4)), "input"), Tensor("c", f32, (N,), "output"))
    schedule = isl.Schedule.from_domain(isl.UnionSet.from_set(domain))
    band = isl.MultiUnionPwAff("[N] -> L[{ S[i, j] -> [(i)] }, { S[i, j] -> [(j)] }]")
    band = band.set_dim_id(isl.dim_type.out, 0, isl.Id("i")).set_dim_id(isl.dim_type.out, 1, isl.Id("j"))
    schedule = schedule.insert_partial_schedule(band)
    statement = Statement("S", ("i", "j"), domain, Access("c", (var("i"),)), expr, "+")
    context = isl.Set("[N] -> { : N >= 1 }")
    return Scop("k", ("N",), context, tensors, (statement,), schedule, (ScalarArg("alpha", f32),), history=(Step("tile", ("i", 4)),))


def nest() -> LoopNest:
    inner = Instance("S", (var("i"), var("j")), Access("c", (var("i"),)), Load(Access("t", (var("j"),)), f32), "+")
    guard = If(Compare("<", IndexValue(var("j"), i64), IndexValue(N, i64)), (inner,), (Prefetch(Access("c", (var("i"),)), 2),))
    loop = Loop("j", (affine(0),), (N, affine(8)), (guard,), mark="vector", lanes=8, range=(0, 7))
    outer = Loop("i", (affine(0),), (N,), (Declare("t"), loop), step=2, name="ti")
    tensors = (Tensor("c", f32, (N,), "output"), Tensor("t", f32, (affine(8),), "local", "registers"))
    return LoopNest("k", ("N",), tensors, (), (outer,), (("N", (1, None)),))


def program() -> Program:
    tensors = (Tensor("a", f32, (affine(64),), "input"), Tensor("b", f32, (affine(64),), "output"))
    kernel = Source("void k(const float *restrict a, float *restrict b) {}", "k", tensors)

    def call(a: Arg, b: Arg) -> KernelCall:
        return KernelCall("k", (a, b), (), "n")

    calls = (
        call(Arg("input", "x"), Arg("arena", "p")),
        call(Arg("arena", "p"), Arg("arena", "q")),
        call(Arg("arena", "q"), Arg("arena", "r")),
        call(Arg("arena", "r"), Arg("output", "y")),
    )
    buffers = (Buffer("p", (affine(64),), 4, 0), Buffer("q", (affine(64),), 4, 256), Buffer("r", (affine(64),), 4, 0))
    port = (affine(64),)
    return Program("m", (Port("x", f32, port),), (Port("y", f32, port),), (), (kernel,), calls, buffers, 512, {"w": np.ones(2)})


MAKERS: tuple[Callable[[], Any], ...] = (graph, plan, scop, nest, program)


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_well_formed_values_pass_and_print_the_same_twice(make: Callable[[], Any]) -> None:
    verify(make())
    text = to_text(make())
    assert text == to_text(make())
    assert text.splitlines()[0].startswith(make.__name__)
    assert to_text((make(), make())) == f"{text}\n{text}"


def test_expression_text() -> None:
    x = Load(Access("A", (var("i") + 1, Load(Access("idx", (var("j"),)), i64))), f32)
    e = Select(Compare("<", x, Const(0.5, f32)), Unary("-", x), Call("exp", (Cast(Scalar("n", i32), f32),)))
    assert expr_text(e) == "((-A[i + 1, idx[j]]) if (A[i + 1, idx[j]] < 0.5:f32) else exp(f32(n)))"
    assert expr_text(Binary("max", x, x)) == "max(A[i + 1, idx[j]], A[i + 1, idx[j]])"
    assert expr_text(Unary("not", Const(True, bool_))) == "(not True:bool_)"
    assert expr_text(IndexValue(var("i"), i64)) == "(i):i64"


def test_scop_text_shows_statements_and_tree() -> None:
    text = to_text(scop())
    assert "S: c[i] += (A[i, j] * alpha)" in text
    assert "band\n" in text and "i: [N] -> { S[i, j] -> [i] }" in text
    assert text.splitlines()[-1] == "step tile('i', 4)"


def test_nest_text_is_pseudo_code() -> None:
    lines = to_text(nest()).splitlines()
    assert "for i in 0 .. N by 2:  # ti" in lines
    assert "  for j in 0 .. min(N, 8):  # vector, lanes 8, in [0, 7]" in lines
    assert "      c[i] += t[j]  # S(i, j)" in lines


# ---- one fault each
def test_graph_faults() -> None:
    g = graph()
    refused(replace(g, nodes=g.nodes[::-1]), "second .Add. reads y, which nothing before it defines")
    refused(replace(g, nodes=(g.nodes[0], replace(g.nodes[1], outputs=("y",)))), "value y defined more than once")
    refused(replace(g, nodes=(g.nodes[0], replace(g.nodes[1], name="first"))), "node first defined more than once")
    refused(replace(g, outputs=("nothing",)), "output nothing is never written")
    refused(replace(g, values={k: v for k, v in g.values.items() if k != "y"}), "value y has no entry")
    refused(replace(g, values={**g.values, "y": Value("other", f32, ())}), "is called other")
    refused(replace(g, values={**g.values, "y": Value("y", f32, (affine(-1),))}), "negative dim -1")
    refused(replace(g, constants={"w": np.ones(3)}), "constant w is float64, declared f32")
    refused(replace(g, constants={"w": np.ones(4, np.float32)}), r"shape \[4\], declared \[3\]")


def test_plan_faults() -> None:
    p = plan()
    refused(replace(p, groups=p.groups[::-1]), "group second reads y before group first writes it")
    refused(replace(p, groups=(p.groups[0], replace(p.groups[0], name="again"))), "grouped node first")
    refused(replace(p, groups=(replace(p.groups[0], inputs=("nothing",)),)), "value nothing")
    refused(replace(p, storage={"y": Storage("y", (var("d0"),), (affine(2), N))}), "1 indices for the 2 dims")


def _with(s: Scop, **changes: Any) -> Scop:
    return replace(s, statements=(replace(s.statements[0], **changes),))


def test_scop_faults() -> None:
    s = scop()
    a = Load(Access("A", (var("i"), var("j"))), f32)
    refused(_with(s, write=Access("c", (var("i"), var("j")))), "has 2 indices, c has 1 dims")
    refused(_with(s, write=Access("c", (var("k"),))), "k uses k, which is not defined")
    refused(_with(s, write=Access("A", (var("i"), var("j")))), "read-only")
    refused(_with(s, write=Access("gone", (var("i"),))), "names no tensor")
    refused(_with(s, expr=Const(1.0, f64)), "writes f64 to c, which is f32")
    refused(_with(s, expr=Load(Access("A", (var("i"), var("j"))), f64)), "loaded as f64")
    refused(_with(s, expr=Binary("+", a, Const(1.0, f64))), "operands of . are f32 and f64")
    refused(_with(s, expr=Binary("@", a, a)), "no operator @")
    refused(_with(s, expr=Call("exp", (a, a))), "exp of 2 arguments is no intrinsic")
    refused(_with(s, expr=Scalar("beta", f32)), "scalar beta")
    refused(_with(s, expr=Select(a, a, a)), "selection by f32")
    refused(_with(s, write=Access("c", (a,))), "index of c is f32")
    refused(_with(s, reduction="-"), "'-' is no reduction")
    refused(_with(s, iters=("i",)), "1 iterators for a domain of 2 dims")
    refused(_with(s, iters=("i", "i")), "iterator of S i")
    refused(_with(s, name="T"), "domain of T is called S")
    refused(_with(s, domain=isl.Set("[N] -> { S[i, j] : 0 <= i < N and 0 <= j < 3 }")), "beyond the domains")
    refused(replace(s, tensors=(*s.tensors, s.tensors[0])), "name A defined more than once")
    refused(replace(s, tensors=(replace(s.tensors[0], shape=(var("Q"), affine(4))), s.tensors[1])), "shape of A")
    refused(replace(s, tensors=(replace(s.tensors[0], role="thing"), s.tensors[1])), "role 'thing'")


def _loop(n: LoopNest, **changes: Any) -> LoopNest:
    assert isinstance(n.body[0], Loop)
    return replace(n, body=(replace(n.body[0], **changes),))


def test_nest_faults() -> None:
    n = nest()
    outer = n.body[0]
    assert isinstance(outer, Loop)
    refused(_loop(n, upper=(var("M"),)), "bound of loop i: M uses M")
    refused(_loop(n, step=0), "step 0")
    refused(_loop(n, lower=()), "0 lower")
    refused(_loop(n, body=(outer,)), "i is already defined")
    refused(_loop(n, mark="vector"), "vector loop i has 0 lanes")
    refused(_loop(n, body=(Declare("c"),)), "declares c, which is no local")
    refused(_loop(n, body=(If(IndexValue(N, i64), ()),)), "guard is i64")
    refused(_loop(n, body=(Prefetch(Access("c", (var("z"),))),)), "a prefetch: z uses z")
    refused(replace(n, body=outer.body), "uses i, which is not defined")
    refused(replace(n, param_ranges=(("M", (1, 2)),)), "M, which is no parameter")


def test_program_faults() -> None:
    p = program()
    overlapping = (p.buffers[0], replace(p.buffers[1], offset=128), p.buffers[2])
    refused(replace(p, buffers=overlapping), "p and q overlap and are both live at call 1")
    refused(replace(p, buffers=(replace(p.buffers[0], zero=True), *p.buffers[1:])), "p and r overlap")
    refused(replace(p, arena_bytes=300), "ends at byte 512 of an arena of 300")
    refused(replace(p, buffers=(p.buffers[0], replace(p.buffers[1], offset=260), p.buffers[2])), "multiple of 64")
    refused(replace(p, calls=(replace(p.calls[0], entry="gone"),)), "names no kernel")
    refused(replace(p, calls=(replace(p.calls[0], args=p.calls[0].args[:1]),)), "passes 1 pointers")
    refused(replace(p, calls=(replace(p.calls[0], args=(Arg("arena", "p"), Arg("constant", "w"))),)), "writes constant w")
    refused(replace(p, calls=(replace(p.calls[0], args=(Arg("input", "gone"), Arg("arena", "p"))),)), "gone, which does not exist")
    refused(replace(p, kernels=p.kernels * 2), "kernel k defined more than once")
    refused(replace(p, buffers=(replace(p.buffers[0], elements=(N,)), *p.buffers[1:])), "the size N uses N")


def test_program_slots() -> None:
    p = program()

    def slotted(*slots: int) -> Program:
        sizes: tuple[Affine, ...] = (N * 64,)
        buffers = tuple(replace(b, elements=sizes, slot=s, offset=0) for b, s in zip(p.buffers, slots))
        return replace(p, dims=("N",), buffers=buffers)

    verify(slotted(0, 1, 0))
    refused(slotted(0, 0, 1), "p and q overlap")
    refused(slotted(-1, 1, 0), "symbolic size and no slot")
    assert live_ranges(p) == {"p": (0, 1), "q": (1, 2), "r": (2, 3)}


def test_source_faults() -> None:
    s = program().kernels[0]
    verify(s)
    refused(replace(s, entry="other"), "does not define the entry")
    refused(replace(s, dialect="cuda"), "without a launch shape")
    refused(replace(s, params=("N", "N")), "parameter N")
