"""The parts of the command line that need no compiler: inputs, deviations, interleaved timing and its JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyopt.commands.inputs import bind_dims, default_arrays, dims_of, is_batch, parse_dims, read_npy, read_npz
from polyopt.commands.oracle import deviation
from polyopt.commands.timing import interleave, report, row, table
from polyopt.errors import ArgumentError
from polyopt.ir.affine import affine, var
from polyopt.ir.dtype import bool_, f16, f32, i64
from polyopt.ir.program import Port


def port(name: str, *shape: int | str, dtype: Any = f32) -> Port:
    return Port(name, dtype, tuple(var(d) if isinstance(d, str) else affine(d) for d in shape))


# ---- inputs
def test_made_up_inputs() -> None:
    ports = [port("x", "batch", 3, "H"), port("i", "batch", dtype=i64), port("b", 200, dtype=bool_), port("h", 5, dtype=f16)]
    dims = bind_dims(ports, {"H": 4})
    assert dims == {"batch": 2, "H": 4}
    arrays = default_arrays(ports, dims)
    assert {k: (a.shape, str(a.dtype)) for k, a in arrays.items()} == {
        "x": ((2, 3, 4), "float32"), "i": ((2,), "int64"), "b": ((200,), "bool"), "h": ((5,), "float16"),
    }  # fmt: skip
    assert -1 <= arrays["x"].min() < arrays["x"].max() < 1
    assert set(np.unique(arrays["i"])) <= {0, 1} and set(np.unique(arrays["b"])) == {False, True}
    again = default_arrays(ports, dims)
    assert all(np.array_equal(arrays[k], again[k]) for k in arrays)


@pytest.mark.parametrize(
    ("ports", "batch"),
    [
        ([port("x", "batch_size", "seq")], {"batch_size"}),
        ([port("x", "N", 3, "H", "W")], {"N"}),
        ([port("x", "unk__214", 2048)], {"unk__214"}),
        ([port("x", "s", "batch", 8)], {"batch"}),
        ([port("x", "a", 4), port("y", "b2", 4)], set()),
        ([port("x", 1, "T")], set()),
        ([port("x", "d", "e"), port("c", 4)], {"d"}),
    ],
)
def test_what_counts_as_a_batch(ports: list[Port], batch: set[str]) -> None:
    names = {n for p in ports for d in p.shape for n in d.names()}
    assert {n for n in names if is_batch(n, ports)} == batch
    assert bind_dims(ports, {}) == {n: 2 if n in batch else 1 for n in names}


def test_dims_on_the_command_line() -> None:
    assert parse_dims(["a=1", "b=22"]) == {"a": 1, "b": 22}
    for text in ("a", "a=", "=1", "a=0", "a=-1", "a=1.5", "a=b"):
        with pytest.raises(ArgumentError, match="NAME=VALUE"):
            parse_dims([text])
    with pytest.raises(ArgumentError, match=r"no such dim \(it has none\)"):
        bind_dims([port("x", 2)], {"q": 1})


def test_files_of_inputs(tmp_path: Path) -> None:
    ports = [port("x", "N", 2), port("y", 3)]
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.ones(3))
    arrays = read_npz(str(tmp_path / "a.npz"), ports)
    assert sorted(arrays) == ["x", "y"] and dims_of(ports, arrays) == {"N": 4}
    np.savez(tmp_path / "b.npz", x=np.ones((4, 2)), y=np.ones(3), z=np.ones(1))
    with pytest.raises(ArgumentError, match="no input z"):
        read_npz(str(tmp_path / "b.npz"), ports)
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    assert sorted(read_npy([f"x={tmp_path / 'x.npy'}"], ports)) == ["x"]
    np.save(tmp_path / "o.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(ArgumentError, match=r"not a readable \.npy"):
        read_npy([f"x={tmp_path / 'o.npy'}"], ports)


# ---- deviations
def _dev(ours: Any, reference: Any, dtype: Any = np.float32) -> Any:
    return deviation("y", np.array(ours, dtype), np.array(reference, dtype))


def test_deviation_of_floats() -> None:
    d = _dev([1.0, -2.0, 4.5], [1.0, -2.0, 4.0])
    assert (d.max_abs, d.max_rel, d.scale, d.ok) == (0.5, 0.125, 4.0, False)
    assert _dev([4.0003], [4.0]).ok and not _dev([4.0005], [4.0]).ok
    assert _dev([], []).ok and _dev([0.0], [0.0]).ok and not _dev([1e-30], [0.0]).ok
    assert _dev([1e-9, 1.0], [0.0, 1.0]).max_rel == 0.0


def test_nan_and_infinity_must_agree_in_place() -> None:
    inf, nan = math.inf, math.nan
    d = _dev([nan, inf, -inf, 1.0], [nan, inf, -inf, 1.0])
    assert (d.max_abs, d.scale, d.ok) == (0.0, 1.0, True)
    for ours, reference in (([nan], [1.0]), ([1.0], [nan]), ([inf], [-inf]), ([nan], [inf]), ([inf], [1.0])):
        d = _dev(ours, reference)
        assert not d.ok and d.json()["max_abs"] is None
        json.dumps(d.json(), allow_nan=False)


def test_deviation_of_integers_and_of_other_shapes() -> None:
    assert _dev([2**62 + 1], [2**62], np.int64).max_abs == 1.0
    assert _dev([0, 255], [255, 255], np.uint8).max_abs == 255.0
    assert _dev([True, False], [True, False], bool).ok
    assert not _dev([True, False], [True, True], bool).ok
    assert not _dev([1.0], [[1.0]]).ok
    assert not deviation("y", np.ones(2, np.float64), np.ones(2, np.float32)).ok


# ---- timing
def test_interleaving() -> None:
    calls: list[str] = []
    times = interleave({"polyopt": lambda: calls.append("p"), "peer": lambda: calls.append("q")}, seconds=0.0, min_runs=4)
    assert "".join(calls) == "pq" + "pq" + "qp" + "pq" + "qp"
    assert {n: len(ts) for n, ts in times.items()} == {"polyopt": 4, "peer": 4}


def test_rows_and_their_json() -> None:
    r = row("m", {"polyopt": [2.0, 1.0, 3.0], "slow": [9.0, 8.0], "fast": [0.5, 0.7]}, error=0.25)
    assert (r.ours, r.ours_median, r.ratio) == (1.0, 2.0, 2.0)
    assert r.peers == {"slow": 8.0, "fast": 0.5} and r.peers_median == {"slow": 8.5, "fast": 0.6}
    alone = row("a", {"polyopt": [1.0]}, error=math.inf)
    assert alone.ratio is None and alone.error is None
    other = row("o", {"polyopt": [1.0], "fast": [8.0]})
    found = report([r, alone, other], threads=2)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["geomean_ratio"] == pytest.approx(0.5) and found["threads"] == 2
    assert report([alone])["geomean_ratio"] is None
    assert "1000.000 (2000.000)" in table([r, alone])
