"""Selections that keep the larger or smaller of two values, as updates by max and min:

    x[i] = x[i] if x[i] >= y else y          ->          x[i] max= y

Updates may run in any order, selections may not. The two differ where x[i] is not a number or the values are zeros of both signs, so that only
arithmetic that assumes neither (`fp="fast"`) takes one for the other.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.expr import Compare, Expr, Load, Select, loads
from ..ir.scop import Scop, Statement, Step

KEEPS = {"<": "min", "<=": "min", ">": "max", ">=": "max"}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_updates(scop: Scop) -> Scop:
    """The scop with such selections as updates; the scop itself where there are none."""
    made = tuple(_update(s) or s for s in scop.statements)
    if made == scop.statements:
        return scop
    names = tuple(a.name for a, b in zip(made, scop.statements, strict=True) if a is not b)
    return replace(scop, statements=made, dependences=None, history=(*scop.history, Step("as_updates", names)))


def _update(s: Statement) -> Statement | None:
    e = s.expr
    if s.reduction is not None or not isinstance(e, Select) or not isinstance(e.cond, Compare):
        return None
    c, own = e.cond, Load(s.write, e.dtype)
    if e.yes == own:
        op = c.op if (c.x, c.y) == (own, e.no) else MIRRORED.get(c.op) if (c.x, c.y) == (e.no, own) else None
        other: Expr = e.no
    elif e.no == own:
        op = c.op if (c.x, c.y) == (e.yes, own) else MIRRORED.get(c.op) if (c.x, c.y) == (own, e.yes) else None
        other = e.yes
    else:
        return None
    if op not in KEEPS or any(x.access == s.write for x in loads(other)):
        return None
    return replace(s, expr=other, reduction=KEEPS[op])
