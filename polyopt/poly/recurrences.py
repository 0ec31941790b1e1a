"""Linear recurrences of first order: x[j] = c·x[j - 1] + …, which vectors compute by a scan (Blelloch 1990, Prefix sums and their applications).

Takes a statement; gives the pairs of its instances where the later one reads, by one linear load alone, what the earlier one wrote. A vector loop
may hold such a pair in neighbouring lanes: the sum is then reassociated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import islpy as isl

from ..ir.expr import Access, loads, split_linear
from ..ir.scop import Scop, Statement
from .access import access_map, remember

FLOATS = ("f32", "f64")


def recurrent_loads(scop: Scop, s: Statement) -> list[Access]:
    """The loads of an element that an earlier instance wrote at a constant distance, in each of which the statement is linear."""
    return remember(s, "recurrent loads", lambda: _recurrent_loads(scop, s))


def _recurrent_loads(scop: Scop, s: Statement) -> list[Access]:
    if s.reduction is not None or not s.write.is_affine or scop.tensor(s.write.tensor).dtype.name not in FLOATS:
        return []
    out = []
    for a in _own(s):
        if a.is_affine and a != s.write and split_linear(s.expr, a) is not None:
            if all((x - y).is_const for x, y in zip(s.write.affine_indices(), a.affine_indices(), strict=True)):
                out.append(a)
    return out


def recurrent_pairs(scop: Scop, s: Statement) -> isl.Map | None:
    """From each instance to those that read what it wrote through such a load and through no other one; None where there is no such load."""
    return remember(s, "recurrence", lambda: _pairs(s, recurrent_loads(scop, s)))


def _pairs(s: Statement, through: Sequence[Access]) -> isl.Map | None:
    write = access_map(s, s.write)
    by = {a: write.apply_range(access_map(s, a).reverse()) for a in _own(s)} if through else {}
    alone = [reduce(isl.Map.subtract, (m for b, m in by.items() if b != a), by[a]) for a in through]
    return reduce(isl.Map.union, alone) if alone else None


def _own(s: Statement) -> list[Access]:
    """The reads of the tensor that a statement writes."""
    return list(dict.fromkeys(x.access for x in loads(s.expr) if x.access.tensor == s.write.tensor))


def has_recurrence(scop: Scop) -> bool:
    """Whether some statement is a linear recurrence."""
    return any(recurrent_loads(scop, s) for s in scop.statements)
