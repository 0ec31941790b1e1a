"""Random schedules judged by the legality check and by execution: `python -m benchmarks.legality [--schedules 2000] [--seed 0] [--json]`.

Takes kernels of PolyBench and of deep learning at tiny sizes; gives random verbs, illegal ones among them. What an order may be is decided by a
trace of the program (every pair of instances that touch a common element), not by isl: each illegal schedule must be refused, with two instances
of which the trace shows that they clash; no legal one may be refused; a sample of the legal ones is executed and compared. Also times each check
(processor time). Runs until half of `--schedules` are illegal and half are legal. Exit 2 where the check and the trace differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np

import polyopt as po
from polyopt.errors import IllegalSchedule, ScheduleError
from polyopt.ir.scop import Scop
from polyopt.poly.deps import compute_dependences
from polyopt.verbs import VERBS, checked, marks
from polyopt.verbs.tree import Chain, Seq, chains, read_tree, statements_below

from . import polybench

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the trace and the interpreter are the tests' oracles

from interpret import run_scop
from poly_programs import brute_force, dates_of
from random_schedules import Refusal
from witnesses import check_witness

WAVEFRONT, DIAMOND = (import_module(f"polyopt.verbs.{n}") for n in ("wavefront", "diamond"))  # the package has functions of these names
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Pair = tuple[Any, Any]
SAMPLE = 10  # each tenth legal schedule is executed
POLYBENCH = (
    "gemm", "2mm", "syrk", "trmm", "atax", "mvt", "bicg", "doitgen", "trisolv", "lu", "cholesky", "gramschmidt", "correlation", "floyd-warshall",
    "adi", "fdtd-2d", "heat-3d", "jacobi-1d", "jacobi-2d", "seidel-2d",
)  # fmt: skip
M, N, K, L = po.dims("M N K L")


@po.scop
def softmax(X: po.f64[M, N], Y: po.f64[M, N]):
    assert N >= 1
    for i in range(M):
        top = X[i, 0]
        for j in range(1, N):
            top = max(top, X[i, j])
        total = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j] - top)  # noqa: F821
            total += Y[i, j]
        for j in range(N):
            Y[i, j] = Y[i, j] / total


@po.scop
def conv(X: po.f64[K, M + 2, N + 2], W: po.f64[L, K, 3, 3], Y: po.f64[L, M, N]):
    for o in range(L):
        for h in range(M):
            for w in range(N):
                Y[o, h, w] = 0.0
                for c in range(K):
                    for r in range(3):
                        for s in range(3):
                            Y[o, h, w] += X[c, h + r, w + s] * W[o, c, r, s]


@po.scop
def chain(A: po.f64[M, K], B: po.f64[K, N], C: po.f64[N, L], T: po.f64[M, N], D: po.f64[M, L]):
    for i in range(M):
        for j in range(N):
            T[i, j] = 0.0
            for k in range(K):
                T[i, j] += A[i, k] * B[k, j]
            T[i, j] = max(T[i, j], 0.0)
    for i in range(M):
        for j in range(L):
            D[i, j] = 0.0
            for k in range(N):
                D[i, j] += T[i, k] * C[k, j]


@po.scop
def scan(X: po.f64[M, N], W: po.f64[N, N], H: po.f64[M + 1, N]):
    for t in range(M):
        for i in range(N):
            acc = X[t, i]
            for j in range(N):
                acc = acc + W[i, j] * H[t, j]
            H[t + 1, i] = max(acc, 0.0)


@dataclass(frozen=True)
class Program:
    """A kernel at a tiny size, with its dependences by trace. reference: what is in memory after the untransformed order."""

    name: str
    scop: Scop
    params: Mapping[str, int]
    pairs: Mapping[str, set[Pair]]


@dataclass
class Result:
    """What was found."""

    legal: int = 0
    illegal: int = 0
    executed: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused_seconds: list[float] = field(default_factory=list)
    slow: list[tuple[float, str]] = field(default_factory=list)
    verbs: Counter[str] = field(default_factory=Counter)


def programs(names: Sequence[str] | None = None) -> list[Program]:
    """The kernels (or those named)."""
    out = []
    known = polybench.KERNELS
    nests = [(n, known[n].nest) for n in POLYBENCH] + [(f.__name__, f) for f in (softmax, conv, chain, scan)]
    for name, nest in nests:
        if names is not None and name not in names:
            continue
        scop = compute_dependences(nest.scop)
        params = tiny(scop)
        deps = brute_force(scop, params)
        out.append(Program(name, scop, params, deps))
    return out


def tiny(scop: Scop) -> dict[str, int]:
    """Small sizes within the context, not all equal."""
    out = {p: 2 + (3 * k + len(p)) % 2 + (p in ("N",)) * 2 for k, p in enumerate(scop.params)}
    for p in ("T",):
        if p in out:
            out[p] = 3
    return out


# ---- random verbs
def random_call(rng: random.Random, scop: Scop) -> Call | None:
    """A verb with arguments that fit the scop's loops."""
    here = [c for c in chains(read_tree(scop.schedule)) if c.members]
    if not here:
        return None
    chain: Chain = rng.choice(here)
    loops, statements = list(chain.names()), chain.statements
    loop, of = rng.choice(loops), {"of": rng.choice(statements)}
    several = rng.sample(loops, min(len(loops), rng.choice((1, 2, 2, 3))))
    verb = rng.choice(
        ("tile", "tile", "interchange", "interchange", "skew", "skew", "reverse", "shift", "fuse", "distribute", "unroll_jam", "wavefront",
         "parallelize", "parallelize", "software_pipeline", "strip_mine", "diamond")
    )  # fmt: skip
    if verb == "tile":
        return verb, (), {**{n: rng.choice((2, 3)) for n in several}, **of}
    if verb == "strip_mine":
        return verb, (loop, rng.choice((2, 3))), of
    if verb == "interchange":
        return verb, tuple(rng.sample(loops, len(loops))), of
    if verb == "skew":
        if rng.random() < 0.5 or len(several) < 2:
            return verb, (loop,), {"by": rng.choice(loops), "factor": rng.choice((1, 1, -1, 2)), **of}
        a, b = several[:2]
        return verb, (), {a: f"{rng.choice((-1, 1))}*{a} + {rng.choice((-1, 1, 2))}*{b}", **of}
    if verb == "shift":
        return verb, (of["of"], loop, rng.choice((-2, -1, 1, 2))), {}
    if verb == "fuse":
        return verb, tuple(rng.sample([s.name for s in scop.statements], min(2, len(scop.statements)))), rng.choice(({}, {"depth": 1}, {"depth": 2}))
    if verb == "distribute":
        return verb, (loop,), {**of, **rng.choice(({}, {}, {"loops": tuple(loops[-1:])}))}
    if verb == "unroll_jam":
        return verb, (loop, 2), of
    if verb == "wavefront":
        return verb, tuple(rng.sample(loops, min(2, len(loops)))), of
    if verb == "diamond":
        inner = [n for c in chains(read_tree(scop.schedule)) if c.path[: len(chain.path)] == chain.path for n in c.names() if n != loop]
        return (verb, (loop, rng.choice(inner)), {"size": rng.choice((3, 4)), **of}) if inner else None
    if verb == "software_pipeline":
        return _pipeline(rng, chain, of)
    return verb, (loop,), of  # reverse, parallelize


def _pipeline(rng: random.Random, chain: Chain, of: dict[str, str]) -> Call | None:
    if not isinstance(chain.below, Seq):
        return None
    parts = [statements_below(p) for p in chain.below.parts]
    cut = rng.randrange(1, len(parts))
    stages = (tuple(n for p in parts[:cut] for n in p), tuple(n for p in parts[cut:] for n in p))
    return "software_pipeline", (chain.names()[-1],), {"stages": rng.choice((stages, stages[::-1])), **of}


# ---- judging
@contextmanager
def timing(spent: list[float], orders: list[isl.Schedule]) -> Iterator[None]:
    """Measure the checks that verbs ask for, and keep the orders that are asked about."""
    places: list[tuple[Any, str]] = [(checked, "check_schedule"), *((m, "check_parallel") for m in (checked, marks, WAVEFRONT, DIAMOND))]
    real = {(m, n): getattr(m, n) for m, n in places}

    def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if isinstance(args[1], isl.Schedule):
                orders.append(args[1])
            t = time.process_time()
            try:
                return fn(*args, **kwargs)
            finally:
                spent.append(time.process_time() - t)

        return call

    for (m, n), fn in real.items():
        setattr(m, n, wrap(fn))
    try:
        yield
    finally:
        for (m, n), fn in real.items():
            setattr(m, n, fn)


def clashes(p: Program, order: isl.Schedule) -> Pair | None:
    """A dependent pair (updates of one reduction among themselves left out) that an order puts the wrong way round."""
    dates = dates_of(order.get_map().intersect_domain(order.get_domain()), p.params)
    for kind in ("flow", "anti", "output"):
        for a, b in p.pairs[kind]:
            if not dates[a] < dates[b]:
                return a, b
    return None


def carried(p: Program, scop: Scop, call: Call) -> Pair | None:
    """A dependent pair in two iterations of a loop that is to run in parallel, in one iteration of the loops around."""
    of = call[2]["of"]
    (c,) = (c for c in chains(read_tree(scop.schedule)) if call[1][0] in c.names() and of in c.statements)
    at = next(k for k, m in enumerate(around(scop, c)) if m is c.member(call[1][0]))
    dates = dates_by_loops(scop, c, p.params)
    for kind in ("flow", "anti", "output", "reduction"):
        for a, b in p.pairs[kind]:
            if a in dates and b in dates and dates[a][:at] == dates[b][:at] and dates[a][at] != dates[b][at]:
                return a, b
    return None


def around(scop: Scop, c: Chain) -> list[Any]:
    """The loops around a chain and its own."""
    outer = [m for o in chains(read_tree(scop.schedule)) if len(o.path) < len(c.path) and c.path[: len(o.path)] == o.path for m in o.members]
    return [*outer, *c.members]


def dates_by_loops(scop: Scop, c: Chain, params: Mapping[str, int]) -> dict[Any, tuple[int, ...]]:
    """The dates of the instances below a chain in the loops around it and its own."""
    out: dict[Any, tuple[int, ...]] = {}
    domain = isl.UnionSet.empty(scop.domain().get_space())
    for n in c.statements:
        domain = domain.union(isl.UnionSet.from_set(scop.statement(n).domain))
    for m in around(scop, c):
        for inst, date in dates_of(isl.UnionMap.from_union_pw_aff(m.upa).intersect_domain(domain), params).items():
            out[inst] = (*out.get(inst, ()), *date)
    return out


def judge(p: Program, scop: Scop, call: Call, result: Result, rng: random.Random) -> Scop | None:
    """Try one verb; compare with the trace. Gives the new scop where it is accepted (and is an order of its own)."""
    verb, args, kwargs = call
    spent: list[float] = []
    orders: list[isl.Schedule] = []
    text = f"{p.name}: {'.'.join(map(str, scop.history))}.{verb}{args}{kwargs}"
    try:
        with timing(spent, orders):
            new = VERBS[verb](scop, *args, **kwargs)
    except IllegalSchedule as e:
        result.refused_seconds.append(sum(spent))
        result.illegal += 1
        result.verbs[f"{verb} refused"] += 1
        result.slow.append((sum(spent), text))
        try:
            check_witness(Refusal(scop, call, e, orders[-1] if orders else None))
        except AssertionError as wrong:
            result.wrong.append(f"{text}: refused with a wrong witness: {wrong}")
        return None
    except ScheduleError:
        return None
    result.seconds += spent
    result.slow.append((sum(spent), text))
    found = carried(p, scop, call) if verb == "parallelize" else clashes(p, new.schedule)
    if found is not None:
        result.wrong.append(f"{text}: accepted, but {found[0]} must run before {found[1]}")
        return None
    result.legal += 1
    result.verbs[f"{verb} accepted"] += 1
    if verb == "parallelize":
        return None
    if rng.random() < 1 / SAMPLE:
        execute(p, new, text, result)
    return new


def execute(p: Program, new: Scop, text: str, result: Result) -> None:
    """Run both orders on the same data. Small whole numbers keep sums exact; what divides or takes roots may round otherwise when reassociated."""
    rng = np.random.default_rng(len(text))
    arrays = {
        t.name: rng.integers(1, 4, [x.evaluate(p.params) for x in t.shape]).astype(t.dtype.numpy) for t in p.scop.tensors if t.role != "local"
    }
    scalars = {s.name: 2 for s in p.scop.scalars}
    one, two = ({k: a.copy() for k, a in arrays.items()} for _ in range(2))
    want, got = run_scop(p.scop, one, scalars, p.params), run_scop(new, two, scalars, p.params)
    exact = new.label == "bit-identical"
    for name in arrays:
        same = np.array_equal(want[name], got[name], equal_nan=True) if exact else np.allclose(want[name], got[name], equal_nan=True)
        if not same:
            result.wrong.append(f"{text}: accepted, but {name} differs")
    result.executed += 1


def run(schedules: int, seed: int, names: Sequence[str] | None = None) -> Result:
    """Judge random schedules until half of the number are legal and half illegal."""
    rng, result = random.Random(seed), Result()
    every = programs(names)
    seen: set[str] = set()
    half = schedules // 2
    while result.legal < half or result.illegal < half:
        p = rng.choice(every)
        scop = p.scop
        for _ in range(rng.choice((1, 2, 3, 4))):
            call = random_call(rng, scop)
            if call is None:
                break
            key = f"{p.name} {'.'.join(map(str, scop.history))} {call}"
            if key in seen:
                continue
            seen.add(key)
            new = judge(p, scop, call, result, rng)
            scop = new if new is not None else scop
    return result


def percentile(values: list[float], q: float) -> float:
    """The q-th percentile in milliseconds."""
    return float(np.percentile(values, q)) * 1e3 if values else 0.0


def report(result: Result) -> dict[str, Any]:
    """The figures."""
    both = result.seconds + result.refused_seconds
    return {
        "illegal": result.illegal, "legal": result.legal, "executed": result.executed, "wrong": result.wrong,
        "check_ms": {"median": percentile(both, 50), "p95": percentile(both, 95)},
        "accepted_ms": {"median": percentile(result.seconds, 50), "p95": percentile(result.seconds, 95)},
        "refused_ms": {"median": percentile(result.refused_seconds, 50), "p95": percentile(result.refused_seconds, 95)},
        "verbs": dict(sorted(result.verbs.items())),
        "slowest": [f"{s * 1e3:.0f} ms {t}" for s, t in sorted(result.slow, reverse=True)[:8]],
    }  # fmt: skip


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.legality", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="names of kernels (all where none is given)")
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = report(run(args.schedules, args.seed, args.kernels or None))
    if args.json:
        print(json.dumps(figures, indent=1))
    else:
        print(f"{figures['illegal']} illegal schedules refused, {figures['legal']} legal ones accepted, {figures['executed']} executed")
        print(f"a check takes {figures['check_ms']['median']:.1f} ms (median), {figures['check_ms']['p95']:.1f} ms (95th percentile)")
        for line in figures["wrong"]:
            print(line)
    return 2 if figures["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
