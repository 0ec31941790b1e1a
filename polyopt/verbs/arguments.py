"""Arguments of verbs: whole numbers within what isl and a loop variable can hold, affine text, tile sizes against the loops that they cut.

Takes what a user wrote; gives values, or raises ScheduleError with one line that names the verb, the argument and what is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import islpy as isl

from ..errors import ScheduleError
from ..ir.affine import Affine, affine, var
from ..ir.scop import Scop
from ..isl_ext import OperationBudget, maps_of, max_operations
from .tree import Chain, members_above

LARGEST = 2**31 - 1  # a loop variable's own type
MOST_COPIES = 1024  # iterations that are written out or run as lanes; with more the text takes longer to compile than it can gain
BUDGET = 200_000  # isl operations that are spent on the extent of a loop, a help for error messages


def check_count(verb: str, what: str, value: object, least: int | None = 1, most: int = LARGEST) -> int:
    """A whole number of at least `least` (any where None) and at most `most`, by default what a loop variable can hold."""
    allowed = f"a whole number of at least {least}" if least is not None else "a whole number"
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise ScheduleError(f"{verb}: {what} is {value!r}; it must be {allowed}")
    if abs(value) > most:
        raise ScheduleError(f"{verb}: {what} is {value}; it must be {allowed} and at most {most}")
    return value


def read_affine(verb: str, what: str, text: object) -> Affine:
    """An affine expression from text with + - * // % and whole numbers, such as "i + 2*t"; affine values and numbers pass."""
    if isinstance(text, Affine):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        return affine(check_count(verb, what, text, None))
    if not isinstance(text, str):
        raise ScheduleError(f'{verb}: {what} is {text!r}; write an affine expression of loops, such as "i + 2*t"')
    try:
        return _affine(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise ScheduleError(f'{verb}: {what} is {text!r}, which is not affine; write sums of loops times whole numbers, such as "i + 2*t"') from None


def _affine(node: ast.expr) -> Affine:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool) and abs(node.value) <= LARGEST:
        return affine(node.value)
    if isinstance(node, ast.Name):
        return var(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        x = _affine(node.operand)
        return -x if isinstance(node.op, ast.USub) else x
    if isinstance(node, ast.BinOp):
        x, y = _affine(node.left), _affine(node.right)
        if isinstance(node.op, ast.Add):
            return x + y
        if isinstance(node.op, ast.Sub):
            return x - y
        if isinstance(node.op, ast.Mult) and (x.is_const or y.is_const):
            return x * y.const if y.is_const else y * x.const
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and y.is_const and y.const > 0:
            return x // y.const if isinstance(node.op, ast.FloorDiv) else x % y.const
    raise ValueError("not affine")


def loop_extent(scop: Scop, chain: Chain, loop: str) -> int | None:
    """How many dates a loop runs over at most, for given loops around it; None where that depends on a parameter or is not found cheaply."""
    own = isl.UnionMap.from_union_pw_aff(chain.member(loop).upa).intersect_domain(scop.domain().intersect_params(scop.context))
    around = [m.upa for m in members_above(scop, chain, chain.index(loop))]
    try:
        with max_operations(BUDGET):
            whole = _width(own.range())
            blocks = [isl.UnionMap.from_union_pw_aff(u) for u in around if _is_block(u)]
            widths = [whole, *(_width_of_runs(b.reverse().apply_range(own)) for b in blocks)]
    except OperationBudget:
        return None
    return min((w for w in widths if w is not None), default=None)


def _is_block(upa: isl.UnionPwAff) -> bool:
    """Whether a date has a floor in it: a loop over blocks."""
    parts = upa.get_pw_aff_list()
    pieces = (piece for i in range(parts.n_pw_aff()) for _, piece in parts.get_at(i).get_pieces())
    return any(piece.dim(isl.dim_type.div) > 0 for piece in pieces)


def _width(dates: isl.UnionSet) -> int | None:
    sets = dates.get_set_list()
    low, high = [], []
    for i in range(sets.n_set()):
        s = sets.get_at(i)
        if s.is_empty():
            continue
        low.append(s.dim_min_val(0))
        high.append(s.dim_max_val(0))
    if not low or not all(v.is_int() for v in (*low, *high)):
        return None
    return max(int(v.to_python()) for v in high) - min(int(v.to_python()) for v in low) + 1


def is_determined(scop: Scop, chain: Chain, loop: str, by: str) -> bool:
    """Whether a loop has one date only for each date of another, and more than one in all: a loop over blocks of that other loop."""
    domain = scop.domain().intersect_params(scop.context)
    a, b = (isl.UnionMap.from_union_pw_aff(chain.member(n).upa).intersect_domain(domain) for n in (loop, by))
    try:
        with max_operations(BUDGET):
            return _width(a.range()) != 1 and _width_of_runs(b.reverse().apply_range(a)) == 1
    except OperationBudget:
        return False


def _width_of_runs(runs: isl.UnionMap) -> int | None:
    """The most dates, from first to last, that belong to one date of another loop."""
    far = [m.reverse().apply_range(n).deltas().dim_max_val(0) for m in maps_of(runs) for n in maps_of(runs)]
    return max(int(v.to_python()) for v in far) + 1 if far and all(v.is_int() for v in far) else None


def check_sizes(scop: Scop, verb: str, chain: Chain, sizes: Sequence[tuple[str, int]], what: str = "tile size") -> None:
    """Refuse a block that is larger than the loop that it cuts."""
    for loop, size in sizes:
        extent = loop_extent(scop, chain, loop)
        if extent is not None and size > max(extent, 1):
            raise ScheduleError(f"{verb}: the {what} of {loop} is {size}, but the loop runs over {extent} dates; give 1 to {max(extent, 1)}")
