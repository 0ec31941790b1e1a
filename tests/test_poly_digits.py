"""Mixed-radix coordinates: nothing is lost in them, and dataflow gives what isl gives on the schedule tree itself."""

from __future__ import annotations

import islpy as isl
import pytest
from poly_programs import PROGRAMS
from test_certify_emitted import KERNELS, made

from polyopt.ir.affine import affine, var
from polyopt.ir.scop import Scop
from polyopt.isl_ext import maps_of, param_space
from polyopt.poly.access import reads, write_map
from polyopt.poly.deps import compute_dependences
from polyopt.poly.digits import _longest_chain, compute_frame, read_dates, shorten

SCOPS = {name: lambda name=name: made(name)[0] for name in KERNELS} | {f"source {name}": make for name, (make, _) in PROGRAMS.items()}  # type: ignore[misc]


def flow_on_the_tree(scop: Scop) -> isl.UnionMap:
    """All flow, that among updates included, by isl on the tree."""
    must = may = isl.UnionMap.empty(param_space(scop.params))
    for s in scop.statements:
        w = write_map(scop, s).to_union_map()
        must, may = (must.union(w), may) if s.reduction is None and s.write.is_affine else (must, may.union(w))
    info = isl.UnionAccessInfo.from_sink(reads(scop).intersect_params(scop.context)).set_must_source(must).set_may_source(may)
    return info.set_schedule(scop.schedule).compute_flow().get_may_dependence()


@pytest.mark.parametrize("name", SCOPS)
def test_flow_is_that_of_the_tree(name: str) -> None:
    scop = SCOPS[name]()
    deps = compute_dependences(scop).dependences
    assert deps is not None
    assert deps.flow.union(deps.reduction).is_equal(flow_on_the_tree(scop))


@pytest.mark.parametrize("name", SCOPS)
def test_the_change_is_a_bijection(name: str) -> None:
    scop = SCOPS[name]()
    frame = compute_frame(scop)
    for s in scop.statements:
        d = frame.digits[s.name]
        there = isl.Map.from_multi_aff(d.inverse).intersect_domain(s.domain)
        assert there.is_injective() and there.range().is_equal(d.domain)
        assert there.reverse().is_equal(isl.Map.from_multi_aff(d.forward).intersect_domain(d.domain))


@pytest.mark.parametrize("name", SCOPS)
def test_dates_are_those_of_the_tree(name: str) -> None:
    """Shortened dates order the same pairs of instances."""
    scop = SCOPS[name]()
    frame, order = compute_frame(scop), scop.schedule.get_map().intersect_domain(scop.domain())
    assert frame.split
    for m in maps_of(order):
        own = m.to_union_map()
        short = frame.order.intersect_domain(isl.UnionSet.from_set(frame.digits[m.get_tuple_name(isl.dim_type.in_)].domain))
        want, got = own.lex_lt_union_map(own), frame.outward(short.lex_lt_union_map(short))
        assert want.is_equal(got)


def test_tiles_leave_no_floors() -> None:
    scop, _ = made("gemm")
    frame = compute_frame(scop)
    assert not any("floor" in str(m) for m in maps_of(frame.order))
    assert not any("floor" in str(m) for m in frame.writes.values())


def test_the_tree_is_read() -> None:
    scop, _ = made("gemm")
    dates = read_dates(scop.schedule, scop.statements)
    assert dates is not None and len({len(d) for d in dates.values()}) == 1
    assert var("i") // 6 in dates["S1"]


def test_shorter_dates() -> None:
    x, y = var("x"), var("y")
    assert shorten({"S": [x, x * 4 + y]}) == {"S": [x, y]}
    assert shorten({"S": [x, x * 4 + y], "T": [x, affine(0)]}) == {"S": [x, x * 4 + y], "T": [x, affine(0)]}
    assert shorten({"S": [affine(0), x, x + y], "T": [affine(1), y, x]}) == {"S": [affine(0), x, y], "T": [affine(1), y, x]}


def test_chains_of_divisors() -> None:
    assert _longest_chain({16, 32, 5}) == [16, 32]
    assert _longest_chain({4, 6, 12}) in ([4, 12], [6, 12])
    assert _longest_chain(set()) == []
