"""interchange: put loops of one nest into another order (*reorder* in Halide and TVM).

    for i: for j: for k: S          interchange("k", "i")          for k: for j: for i: S

The named loops take the places that they held together, in the order given. Legal iff every dependence stays positive.
"""

from __future__ import annotations

import islpy as isl

from ..errors import ScheduleError
from ..ir.scop import Scop, Step
from .checked import checked
from .tree import find_chain, with_members


def interchange_schedule(scop: Scop, loops: tuple[str, ...], of: str | None = None) -> isl.Schedule:
    """The schedule with the named loops in the given order."""
    chain = find_chain(scop, "interchange", list(loops), of)
    if len(loops) < 2:
        others = ", ".join(n for n in chain.names() if n not in loops) or "none"
        raise ScheduleError(f"interchange: name at least two loops of one nest; the loops around and inside {loops[0]} are {others}")
    places = sorted(chain.index(n) for n in loops)
    members = list(chain.members)
    for place, name in zip(places, loops):
        members[place] = chain.members[chain.index(name)]
    return with_members(scop, chain, members)


def interchange(scop: Scop, *loops: str, of: str | None = None) -> Scop:
    """Reorder loops of one nest. Raises ScheduleError for unknown loops, IllegalSchedule where a dependence would break."""
    step = Step("interchange", loops, (("of", of),) if of else ())
    return checked(scop, interchange_schedule(scop, loops, of), step)
