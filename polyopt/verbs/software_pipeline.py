"""software_pipeline: a loop's body in stages that belong to different iterations, so that one iteration's loads run beside another's arithmetic.

    for i: { L(i); S(i) }          software_pipeline("i", stages=[["L"], ["S"]])          L(0); for i: { L(i+1); S(i) }; S(last)

Formally the statements of stage k are delayed by k iterations, i becomes i + k; the first and the last iterations are split off (prologue and
epilogue), so that the loop has no guards. Legal iff every dependence stays lexicographically positive: a buffer that is filled for the next iteration
needs a second copy, privatize(buffer, at=loop, copies=2). (Lam 1988, Software pipelining.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import IllegalSchedule, ScheduleError
from ..ir.expr import Const, Load
from ..ir.scop import Scop, Step
from ..poly.deps import PRIVATE_SCOPES
from .checked import check_context, checked
from .skew import shifted_members
from .tree import Chain, Seq, check_statements, find_chain, statements_below, with_members

VERB = "software_pipeline"


def software_pipeline(scop: Scop, loop: str, *, stages: Sequence[Sequence[str]] | None = None, of: str | None = None) -> Scop:
    """Delay the statements of stage k by k iterations of a loop. `stages` lists the statements of each stage; where None, the statements at the
    body's start that only copy are stage 0 and the others stage 1.

    Raises ScheduleError for stages that are no partition of the body, IllegalSchedule where a dependence would break.
    """
    check_context(scop)
    chain = find_chain(scop, VERB, [loop], of)
    if chain.names()[-1] != loop or not isinstance(chain.below, Seq):
        raise ScheduleError(f"{VERB}: the body of {loop} is one nest, which has no stages; name a loop with several statements or nests right below")
    if chain.members[-1].mark:
        raise ScheduleError(f"{VERB}: the loop {loop} is marked {chain.members[-1].mark}; its iterations have no order to be pipelined in")
    given = [list(s) for s in stages] if stages is not None else copies_first(scop, chain, loop)
    stage = check_stages(scop, chain, loop, given)
    shown = () if stages is None else (("stages", tuple(map(tuple, given))),)
    step = Step(VERB, (loop,), (*shown, *((("of", of),) if of else ())))
    members = shifted_members(scop, chain, loop, {s: k for s, k in stage.items() if k})
    try:
        out = checked(scop, with_members(scop, chain, members), step)
    except IllegalSchedule as e:
        cell = e.violation.cell if e.violation is not None else None
        if cell is None or scop.tensor(cell[0]).role != "local" or e.violation.kind not in ("anti", "output"):
            raise
        hint = f'privatize("{cell[0]}", at="{loop}", copies={len(given)}) first'
        violation = replace(e.violation, repair=hint if scop.tensor(cell[0]).scope in (*PRIVATE_SCOPES, "heap") else None)
        raise IllegalSchedule(str(violation), violation) from None
    apart = (*out.meta.get("separate", ()), (loop, tuple(sorted(chain.statements))))
    return replace(out, meta={**out.meta, "separate": apart})


def copies_first(scop: Scop, chain: Chain, loop: str) -> list[list[str]]:
    """The parts at the start of the body that only move data, and the others."""
    assert isinstance(chain.below, Seq)
    first: list[str] = []
    for p in chain.below.parts:
        names = statements_below(p)
        if not all(scop.statement(n).reduction is None and isinstance(scop.statement(n).expr, Load | Const) for n in names):
            break
        first += names
    rest = [n for n in chain.statements if n not in first]
    if not first or not rest:
        raise ScheduleError(
            f"{VERB}: the body of {loop} does not start with statements that only copy; give stages=[[…], […]], or promote what is to be loaded ahead"
        )
    return [first, rest]


def check_stages(scop: Scop, chain: Chain, loop: str, stages: Sequence[Sequence[str]]) -> dict[str, int]:
    """The stage of each statement. Raises ScheduleError where they are no partition of the body, or cut through a nest."""
    assert isinstance(chain.below, Seq)
    body = ", ".join(chain.statements)
    if len(stages) < 2 or not all(stages):
        raise ScheduleError(f"{VERB}: stages has {len(stages)} parts; give at least two non-empty lists of the statements in {loop}: {body}")
    stage: dict[str, int] = {}
    for k, names in enumerate(stages):
        check_statements(scop, VERB, names)
        for n in names:
            if n not in chain.statements:
                raise ScheduleError(f"{VERB}: {n} does not stand below the loop {loop}; the statements there are {body}")
            if n in stage:
                raise ScheduleError(f"{VERB}: {n} is in two stages")
            stage[n] = k
    missing = [n for n in chain.statements if n not in stage]
    if missing:
        raise ScheduleError(f"{VERB}: no stage has {', '.join(missing)}; each statement below {loop} is in one of them")
    for p in chain.below.parts:
        names = statements_below(p)
        if len({stage[n] for n in names}) > 1:
            raise ScheduleError(f"{VERB}: {', '.join(names)} share a nest in {loop}, but not a stage; distribute the nest first")
    return stage
