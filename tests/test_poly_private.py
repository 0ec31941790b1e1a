"""Buffers that are private to a tile: their anti and output dependences do not pin the tile loop, their flow does what it must."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import pytest
from poly_programs import band, build
from test_poly_legality import replay

from polyopt.errors import IllegalSchedule
from polyopt.ir.scop import Scop
from polyopt.isl_ext import read_schedule
from polyopt.poly.deps import compute_dependences, compute_private_order
from polyopt.poly.legality import check_schedule, is_legal, is_parallel, is_vectorizable

LOAD, USE = "P[t,i]: 0<=t<T and 0<=i<4", "Q[t,i]: 0<=t<T and 0<=i<4"


def tiled(scope: str) -> Scop:
    """A buffer of four elements is filled and used by each tile."""
    scop = build(
        "tiled",
        {"A": "4*T", "B": "4*T", "buf": "local: 4"},
        [(LOAD, "buf[i]=A[4*t+i]"), (USE, "B[4*t+i]=buf[i]+buf[3-i]")],
        tree("t", "i", "i"),
        "T",
        "T>0",
    )
    return compute_dependences(replace(scop, tensors=tuple(replace(t, scope=scope) if t.name == "buf" else t for t in scop.tensors)))


def tree(outer: str, load: str, use: str) -> str:
    """for outer: { for load: P; for use: Q }"""
    return f"""{{schedule: "{band(f"P[t,i]->[{outer}];Q[t,i]->[{outer}]")}", child: {{sequence: [
        {{filter: "{{P[t,i]}}", child: {{schedule: "{band(f"P[t,i]->[{load}]")}"}}}},
        {{filter: "{{Q[t,i]}}", child: {{schedule: "{band(f"Q[t,i]->[{use}]")}"}}}}]}}}}"""


def order(scop: Scop, text: str) -> isl.Schedule:
    return read_schedule(f'{{ domain: "{scop.domain()}", child: {text} }}')


def test_the_tile_loop_is_free() -> None:
    private, shared = tiled("cache"), tiled("heap")
    assert private.dependences is not None and private.dependences.anti.is_empty() and private.dependences.output.is_empty()
    assert not compute_private_order(private)[0].is_empty()
    backwards = order(private, tree("-t", "i", "i"))
    assert is_legal(private, backwards) and not is_legal(shared, backwards)
    for scop, free in ((private, True), (shared, False)):
        node = scop.schedule.get_root().child(0)
        assert is_parallel(scop, node, 0) is free
        assert not is_vectorizable(scop, node, 0)  # lanes would share the buffer


@pytest.mark.parametrize(
    "text",
    [
        # all tiles are loaded before one is used
        f"""{{sequence: [{{filter: "{{P[t,i]}}", child: {{schedule: "{band("P[t,i]->[t]", "P[t,i]->[i]")}"}}}},
            {{filter: "{{Q[t,i]}}", child: {{schedule: "{band("Q[t,i]->[t]", "Q[t,i]->[i]")}"}}}}]}}""",
        # loads run one tile ahead
        f"""{{schedule: "{band("P[t,i]->[t];Q[t,i]->[t+1]")}", child: {{sequence: [
            {{filter: "{{P[t,i]}}", child: {{schedule: "{band("P[t,i]->[i]")}"}}}},
            {{filter: "{{Q[t,i]}}", child: {{schedule: "{band("Q[t,i]->[i]")}"}}}}]}}}}""",
        # the tiles' elements interleave
        tree("i", "t", "t"),
    ],
)
def test_mixed_tiles_are_refused(text: str) -> None:
    scop = tiled("registers")
    new = order(scop, text)
    with pytest.raises(IllegalSchedule, match=r"breaks a (flow|anti|output) dependence") as e:
        check_schedule(scop, new, "step()")
    replay(scop, new.get_map(), e.value.violation, (e.value.violation.kind,))


def test_inside_a_tile_the_flow_decides() -> None:
    scop = tiled("cache")
    assert is_legal(scop, order(scop, tree("t", "-i", "i")))
    fused = f"""{{schedule: "{band("P[t,i]->[t];Q[t,i]->[t]", "P[t,i]->[i];Q[t,i]->[i]")}", child:
        {{sequence: [{{filter: "{{P[t,i]}}"}}, {{filter: "{{Q[t,i]}}"}}]}}}}"""
    with pytest.raises(IllegalSchedule, match="breaks a flow dependence"):
        check_schedule(scop, order(scop, fused), "fuse()")
