"""Certificates: nests that come out of the compiler are proven, nests that were damaged afterwards are refused with a witness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from poly_programs import PROGRAMS, band, build, gemm, jacobi, seidel

from polyopt.errors import InternalError
from polyopt.ir.affine import affine
from polyopt.ir.loops import If, Instance, Loop, LoopNest, LoopNode, walk
from polyopt.ir.scop import Scop
from polyopt.lower.loops import lower_to_loops
from polyopt.poly.certify import certify
from polyopt.poly.deps import compute_dependences
from polyopt.target import cpu_target
from polyopt.verbs.recipe import apply_recipe

Edit = Callable[[LoopNode], LoopNode | tuple[LoopNode, ...]]


def edit(nodes: tuple[LoopNode, ...], fn: Edit) -> tuple[LoopNode, ...]:
    """Rewrite every node, innermost first."""
    out: list[LoopNode] = []
    for n in nodes:
        if isinstance(n, Loop):
            n = replace(n, body=edit(n.body, fn))
        elif isinstance(n, If):
            n = replace(n, body=edit(n.body, fn), orelse=edit(n.orelse, fn))
        new = fn(n)
        out.extend(new if isinstance(new, tuple) else (new,))
    return tuple(out)


def damaged(nest: LoopNest, fn: Edit) -> LoopNest:
    new = replace(nest, body=edit(nest.body, fn))
    assert new != nest
    return new


@pytest.mark.parametrize("name", PROGRAMS)
def test_source_order_is_proven(name: str) -> None:
    scop = compute_dependences(PROGRAMS[name][0]())
    certificate = certify(scop, lower_to_loops(scop))
    open_claims = [c for c in certificate.claims if not c.ok]
    if name in ("gather", "scatter"):
        assert [c.name for c in open_claims] == ["bounds"] and "run time" in open_claims[0].text
    else:
        assert not open_claims, str(certificate)


def big_gemm() -> Scop:
    return build(
        "gemm",
        {"A": "48,64", "B": "64,96", "C": "48,96"},
        [("I[i,j]: 0<=i<48 and 0<=j<96", "C[i,j]=0.0"), ("U[i,j,k]: 0<=i<48 and 0<=j<96 and 0<=k<64", "C[i,j]+=A[i,k]*B[k,j]")],
        f"""{{schedule: "{band("I[i,j]->[i];U[i,j,k]->[i]")}", child: {{schedule: "{band("I[i,j]->[j];U[i,j,k]->[j]")}", child:
            {{sequence: [{{filter: "{{I[i,j]}}"}}, {{filter: "{{U[i,j,k]}}", child: {{schedule: "{band("U[i,j,k]->[k]")}"}}}}]}}}}}}""",
    )


def test_recipe_is_proven() -> None:
    scop = apply_recipe(compute_dependences(big_gemm()), cpu_target("avx2"))
    nest = lower_to_loops(scop)
    certificate = certify(scop, nest)
    assert certificate.ok, str(certificate)
    assert any(isinstance(n, Loop) and n.mark == "vector" for n in walk(nest.body))
    assert "gemm" in str(certificate) and "each instance once" in str(certificate)


def test_a_spent_budget_is_no_proof() -> None:
    scop = compute_dependences(seidel())
    certificate = certify(scop, lower_to_loops(scop), budget=50)
    assert not certificate.ok and any("budget" in c.text for c in certificate.claims)


def shorter(n: LoopNode) -> LoopNode:
    return replace(n, upper=tuple(u - 1 for u in n.upper)) if isinstance(n, Loop) and not any(isinstance(b, Loop) for b in n.body) else n


def longer(n: LoopNode) -> LoopNode:
    return replace(n, upper=tuple(u + 1 for u in n.upper)) if isinstance(n, Loop) and not any(isinstance(b, Loop) for b in n.body) else n


def twice(n: LoopNode) -> tuple[LoopNode, ...]:
    return (n, n) if isinstance(n, Instance) else (n,)


def every_second(n: LoopNode) -> LoopNode:
    return replace(n, step=2) if isinstance(n, Loop) else n


def other_cell(n: LoopNode) -> LoopNode:
    return replace(n, write=replace(n.write, indices=(n.write.indices[0], affine(0)))) if isinstance(n, Instance) else n


def swapped(n: LoopNode) -> LoopNode:
    return replace(n, body=n.body[::-1]) if isinstance(n, Loop) and len(n.body) > 1 else n


def marked(mark: str, depth_of: str) -> Edit:
    return lambda n: replace(n, mark=mark) if isinstance(n, Loop) and n.name == depth_of else n


@pytest.mark.parametrize("make", [seidel, gemm, jacobi])
@pytest.mark.parametrize(
    "fn, message", [(shorter, "leaves out"), (longer, "outside its domain|twice"), (twice, "twice"), (every_second, "leaves out")]
)
def test_wrong_instances_are_found(make: Callable[[], Scop], fn: Edit, message: str) -> None:
    scop = compute_dependences(make())
    with pytest.raises(InternalError, match=message):
        certify(scop, damaged(lower_to_loops(scop), fn))


@pytest.mark.parametrize("make", [gemm, jacobi])
def test_wrong_order_is_found(make: Callable[[], Scop]) -> None:
    scop = compute_dependences(make())
    with pytest.raises(InternalError, match=r"the order breaks a (flow|anti|output) dependence from"):
        certify(scop, damaged(lower_to_loops(scop), swapped))


@pytest.mark.parametrize("mark", ["parallel", "vector"])
def test_carried_dependences_are_found(mark: str) -> None:
    scop = compute_dependences(seidel())
    nest = lower_to_loops(scop)
    for name in {n.name for n in walk(nest.body) if isinstance(n, Loop)}:
        with pytest.raises(InternalError, match=f"the {mark} loop .* breaks a"):
            certify(scop, damaged(nest, marked(mark, name)))


def test_free_loops_are_proven() -> None:
    scop = compute_dependences(jacobi())
    nest = lower_to_loops(scop)
    inner = {n.name for loop in walk(nest.body) if isinstance(loop, Loop) for n in loop.body if isinstance(n, Loop)}
    for mark in ("parallel", "vector"):
        for name in inner:
            assert certify(scop, damaged(nest, marked(mark, name))).ok


def test_wrong_accesses_are_found() -> None:
    scop = compute_dependences(gemm())
    with pytest.raises(InternalError, match="writes C"):
        certify(scop, damaged(lower_to_loops(scop), other_cell))


def test_out_of_bounds_is_found() -> None:
    scop = compute_dependences(
        build("edge", {"X": "N", "Y": "N"}, [("S[i]: 0<=i<N", "Y[i]=X[i+1]")], f'{{schedule: "{band("S[i]->[i]")}"}}', "N", "N>0")
    )
    with pytest.raises(InternalError, match=r"X\[.*\] in S is out of bounds at"):
        certify(scop, lower_to_loops(scop))
