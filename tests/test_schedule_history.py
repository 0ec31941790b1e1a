"""Histories: to JSON and back for every verb, replayed at another size and on another nest, saved and loaded; what does not fit is one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_verbs_nests import check, dot, gemm, jacobi, rows, seidel

import polyopt as po
from polyopt.api.schedules import Schedule
from polyopt.errors import IllegalSchedule, OutputError, ScheduleError, UserError
from polyopt.ir.affine import var
from polyopt.verbs import VERBS
from polyopt.verbs.replay import history_from_json, history_to_json

S = po.schedule


def every_verb() -> list[Schedule]:
    """Schedules that use every verb between them."""
    g = S(gemm).distribute("k")
    return [
        g.tile(i=(4, 2), j=4, k=2, of="S1", names=None).promote("A", at="tk", scope="cache", layout=(var("d1"), var("d0")), name="packed"),
        g.tile(i=4, k=2, of="S1", names={"i": "block"}).promote("A", at="tk").privatize("A_cache", at="tk", copies=2).software_pipeline("tk"),
        g.strip_mine("i", 4, of="S1", name="outer").unroll_jam("i", 2, into="k", of="S1").vectorize("j", 4, of="S0").unroll("i", 2, of="S0"),
        g.interchange("k", "i", "j", of="S1").prefetch("B", at="k", distance=2).parallelize("i", of="S0"),
        g.fuse("S0", "S1", depth=1).shift("S1", "i", 1),
        S(gemm).skew(i="i + 2*j").skew("j", by="i", factor=-1).reverse("i"),
        S(gemm).bind("i", "block.x"),
        S(jacobi).diamond("t", "i", size=4),
        S(seidel).skew("i", by="t").wavefront("t", "i", name="front"),
        S(dot).strip_mine("k", 4).privatize("S", at="tk", name="sums"),
        S(rows).privatize("buffer", at="i"),
    ]


def test_every_verb_survives_json() -> None:
    seen: set[str] = set()
    nests = {"gemm": gemm, "jacobi": jacobi, "seidel": seidel, "dot": dot, "rows": rows}
    for s in every_verb():
        text = s.to_json()
        assert history_to_json(s.scop.name, history_from_json(text)) == text
        back = Schedule.from_json(text, nests[s.scop.name])
        assert back.history == s.history and str(back) == str(s)
        seen.update(step.verb for step in s.history)
    assert seen == set(VERBS)


@pytest.mark.cc
def test_replay_at_another_size_and_on_another_nest() -> None:
    s = S(gemm).distribute("k").tile(i=4, j=4, k=2, of="S1").unroll_jam("i", 2, of="S1")
    small = gemm.specialize(M=8, N=5, K=3)
    check(s.replay(small), small, M=8, N=5, K=3)
    other = s.replay(S(gemm))
    assert other.history == s.history
    with pytest.raises(ScheduleError, match=r"step 2 of 3: tile: the tile size of i is 4, but the loop runs over 3 dates"):
        s.replay(gemm.specialize(M=3))
    with pytest.raises(ScheduleError, match=r"step 1 of 3: distribute: there is no loop 'k'; the loops are i, t"):
        s.replay(seidel)
    with pytest.raises(IllegalSchedule, match="step 1 of 1: reverse") as e:
        S(gemm).reverse("i").replay(S(seidel))
    assert e.value.violation.kind in ("flow", "anti", "output")


def test_save_and_load(tmp_path: Path) -> None:
    s = S(gemm).tile(i=4, j=8)
    path = s.save(tmp_path / "gemm.json")
    assert Schedule.load(path, gemm).history == s.history
    with pytest.raises(OutputError, match="cannot be written"):
        s.save(tmp_path / "none" / "gemm.json")
    with pytest.raises(UserError, match="cannot be read"):
        Schedule.load(tmp_path / "other.json", gemm)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read: it is no text"):
        Schedule.load(tmp_path / "binary.json", gemm)


GOOD = {"format": "polyopt schedule", "version": 1, "kernel": "gemm"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "this is no schedule"),
        ("[]", "must be an object"),
        (json.dumps({**GOOD, "version": 7, "steps": []}), "version 7; version 1 can be read"),
        (json.dumps({**GOOD, "steps": [3]}), "step is 3"),
        (json.dumps({**GOOD, "steps": [{"verb": "tile", "args": 3}]}), "args must be a list"),
        (json.dumps({**GOOD, "steps": [{"verb": "melt"}]}), r"step 1 of 1, melt\(\), is no verb"),
        (json.dumps({**GOOD, "steps": [{"verb": "reverse", "args": []}]}), "step 1 of 1: reverse: missing a required argument"),
        (json.dumps({**GOOD, "steps": [{"verb": "tile", "kwargs": {"i": "4"}}]}), "the tile size of i is '4'"),
        (json.dumps({**GOOD, "steps": [{"verb": "tile", "kwargs": {"i": 2**40}}]}), "at most 2147483647"),
    ],
)
def test_text_that_is_no_schedule(value: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule.from_json(value, gemm)


@pytest.mark.parametrize(
    ("verb", "args", "kwargs", "message"),
    [
        ("tile", (), {"i": True}, "the tile size of i is True"),
        ("tile", (), {"i": ()}, "the tile sizes of i are empty"),
        ("tile", (), {"i": 4, "names": {"j": "x"}}, "names has 'j', which is not tiled here"),
        ("tile", (), {"i": 4, "names": {"i": "j"}}, "the name 'j' for the tile loop of i is taken"),
        ("strip_mine", ("i", 10**12), {}, "at most 2147483647"),
        ("vectorize", ("i", -1), {}, "the width for i is -1"),
        ("vectorize", ("i", 10**12), {}, "at most 1024"),
        ("unroll", ("i", 0), {}, "the factor of i is 0"),
        ("shift", ("S0", "i", 2.5), {}, "amount is 2.5; it must be a whole number"),
        ("shift", ("S0", "i", 10**12), {}, "at most 2147483647"),
        ("prefetch", ("A",), {"at": "k", "distance": 10**12}, "at most 2147483647"),
        ("skew", ("i",), {"by": "i"}, "cannot be skewed by itself"),
        ("skew", (), {}, "name a loop and by="),
        ("skew", (), {"i": "i +"}, "not affine"),
        ("skew", (), {"i": 3}, "determinant 0"),
        ("privatize", ("Q",), {"at": "i"}, "there is no tensor 'Q'"),
        ("privatize", ("C",), {"at": "i", "copies": 0}, "copies is 0"),
        ("software_pipeline", ("k",), {}, "is one nest, which has no stages"),
        ("wavefront", ("i", "i"), {}, "a loop is named twice"),
        ("diamond", ("i", "i"), {"size": 4}, "a loop is named twice"),
        ("diamond", ("i", "zz"), {"size": 4}, "the loop zz does not stand around S0"),
    ],
)
def test_bad_arguments_are_one_clear_line(verb: str, args: tuple[object, ...], kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ScheduleError, match=message) as e:
        getattr(S(gemm), verb)(*args, **kwargs)
    assert "\n" not in str(e.value) and str(e.value).startswith(verb)
