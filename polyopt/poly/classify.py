"""What kind of computation a statement is, from its access relations alone.

Takes statements; gives `Contraction`, `RowReduction` or answers about strides and injectivity. Never looks at names: renaming tensors,
permuting loops or swapping operands gives the same answer up to the renaming. (Contraction as in the tensor literature: a reduction of
a product whose iterators split by where they occur.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ..ir.affine import Affine, FloorDiv
from ..ir.expr import Access, Binary, Cast, Const, Expr, IndexValue, Load, Unary, loads, walk
from ..ir.scop import Scop, Statement
from ..ir.tensor import Tensor
from .access import access_map


@dataclass(frozen=True)
class Contraction:
    """write += a_factor × b_factor × rest, with the iterators of the statement split into four groups, each in the statement's order.

    m: in the write and in a only. n: in the write and in b only. k: not in the write. batch: in the write, a and b.
    `a`, `b` are the main loads of the factors. The unit-stride iterator of the write, where it is in m or n, is in n.
    """

    statement: str
    write: Access
    a: Load
    b: Load
    a_factor: Expr
    b_factor: Expr
    rest: tuple[Expr, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    batch: tuple[str, ...]

    def swapped(self) -> Contraction:
        """The same contraction with the operands, and so m and n, exchanged."""
        return Contraction(self.statement, self.write, self.b, self.a, self.b_factor, self.a_factor, self.rest, self.n, self.m, self.k, self.batch)


@dataclass(frozen=True)
class RowReduction:
    """write op= expr: `rows` are the iterators of the write, `reduced` the others. `sliding`: an index mixes both (overlapping windows)."""

    statement: str
    op: str
    rows: tuple[str, ...]
    reduced: tuple[str, ...]
    load: Load | None
    sliding: bool


# ---- iterators
def access_iters(access: Access, iters: tuple[str, ...]) -> frozenset[str]:
    """The iterators that an access depends on, those inside floors and indirect indices included."""
    names: set[str] = set()
    for x in access.indices:
        names |= x.names() if isinstance(x, Affine) else expr_iters(x, iters)
    return frozenset(names) & frozenset(iters)


def expr_iters(e: Expr, iters: tuple[str, ...]) -> frozenset[str]:
    """The iterators that an expression depends on, through loads and index values."""
    names: set[str] = set()
    for x in walk(e):
        if isinstance(x, Load):
            names |= access_iters(x.access, iters)
        elif isinstance(x, IndexValue):
            names |= x.index.names()
    return frozenset(names) & frozenset(iters)


# ---- contraction
def _factors(e: Expr) -> Iterator[Expr]:
    """The factors of a product; a sign is a factor, and a conversion of a product is taken apart where it only widens."""
    if isinstance(e, Binary) and e.op == "*":
        yield from _factors(e.x)
        yield from _factors(e.y)
    elif isinstance(e, Unary) and e.op == "-":
        yield Const(-1, e.dtype)
        yield from _factors(e.x)
    elif isinstance(e, Cast) and isinstance(e.x, Binary) and e.x.op == "*" and e.dtype.is_float and e.x.dtype.is_float:
        yield from _factors(e.x)
    else:
        yield e


def _main_load(e: Expr, iters: tuple[str, ...]) -> Load | None:
    """The load of a factor that covers the iterators of all its other loads (a zero point, a scale); None where there is none."""
    found = sorted(loads(e), key=lambda x: -len(access_iters(x.access, iters)))
    if not found or not found[0].access.is_affine:
        return None
    main = access_iters(found[0].access, iters)
    return found[0] if expr_iters(e, iters) <= main else None


def classify_contraction(stmt: Statement) -> Contraction | None:
    """The contraction that an update statement is, or None."""
    if stmt.reduction != "+" or not stmt.write.is_affine:
        return None
    operands: list[Expr] = []
    rest: list[Expr] = []
    for f in _factors(stmt.expr):
        (operands if expr_iters(f, stmt.iters) else rest).append(f)
    if len(operands) != 2:
        return None
    a, b = (_main_load(f, stmt.iters) for f in operands)
    if a is None or b is None:
        return None
    written = access_iters(stmt.write, stmt.iters)
    in_a, in_b = (access_iters(x.access, stmt.iters) for x in (a, b))
    groups: dict[str, list[str]] = {"m": [], "n": [], "k": [], "batch": []}
    for it in stmt.iters:
        if it not in written:
            groups["k"].append(it)
        elif (it in in_a) == (it in in_b):
            if it not in in_a and not _is_single(stmt, it):
                return None  # the result is repeated along this iterator
            groups["batch"].append(it)
        else:
            groups["m" if it in in_a else "n"].append(it)
    k = [it for it in groups["k"] if not _is_single(stmt, it)]
    if not k:
        return None
    m, n, batch = tuple(groups["m"]), tuple(groups["n"]), tuple(groups["batch"])
    out = Contraction(stmt.name, stmt.write, a, b, operands[0], operands[1], tuple(rest), m, n, tuple(groups["k"]), batch)
    return out.swapped() if _should_swap(out) else out


def _is_single(stmt: Statement, it: str) -> bool:
    """Whether an iterator has one value only (for given values of the others and the parameters)."""
    i = stmt.iters.index(it)
    low, high = stmt.domain.dim_min_val(i), stmt.domain.dim_max_val(i)
    return bool(low.is_int() and high.is_int() and low.eq(high))


def _should_swap(c: Contraction) -> bool:
    """Whether the write is contiguous along m; where it says nothing, whether a alone is contiguous along its own iterators."""
    for it in _last_iters(c.write):
        if it in c.n:
            return False
        if it in c.m:
            return True
    a_unit, b_unit = (any(it in own for it in _last_iters(x.access)) for x, own in ((c.a, c.m), (c.b, c.n)))
    if a_unit != b_unit:
        return a_unit
    return bool(c.m) and not c.n


def _last_iters(access: Access) -> tuple[str, ...]:
    """The iterators that move an access by one along its innermost varying dim."""
    for x in reversed(access.indices):
        if isinstance(x, Affine) and not x.is_const:
            return tuple(sorted(n for n in x.names() if abs(x.coefficient(n)) == 1))
    return ()


# ---- other kinds
def classify_row_reduction(stmt: Statement) -> RowReduction | None:
    """The reduction of rows that an update statement is, or None (a contraction is none)."""
    if stmt.reduction is None or not stmt.write.is_affine or classify_contraction(stmt) is not None:
        return None
    written = access_iters(stmt.write, stmt.iters)
    rows, reduced = tuple(i for i in stmt.iters if i in written), tuple(i for i in stmt.iters if i not in written)
    if not reduced:
        return None
    found = sorted(stmt.loads(), key=lambda x: -len(access_iters(x.access, stmt.iters)))
    indices = [x for load in found for x in load.access.indices if isinstance(x, Affine)]
    sliding = any(x.names() & set(rows) and x.names() & set(reduced) for x in indices)
    return RowReduction(stmt.name, stmt.reduction, rows, reduced, found[0] if found else None, sliding)


def is_pointwise(stmt: Statement) -> bool:
    """Whether each instance writes an element of its own, from elements of other tensors or that very element."""
    if stmt.reduction is not None or not stmt.write.is_affine:
        return False
    if any(r.tensor == stmt.write.tensor and r != stmt.write for r in stmt.reads()):
        return False
    return bool(access_map(stmt, stmt.write).is_injective())


def is_data_movement(stmt: Statement) -> bool:
    """Whether the statement only copies: a pointwise statement whose expression is a load or a constant."""
    return isinstance(stmt.expr, Load | Const) and is_pointwise(stmt)


# ---- strides
def access_stride(access: Access, tensor: Tensor, it: str) -> int | None:
    """By how many elements an access moves when an iterator grows by one, away from the steps of floors; None where it is no constant.

    `d1 % 16` moves by one and `d1 // 16` does not move: both hold for runs of `contiguous_run` values.
    """
    total, stride = 0, 1
    known = True
    for x, size in zip(reversed(access.indices), reversed(tensor.shape), strict=True):
        if not isinstance(x, Affine):
            return None
        c = x.coefficient(it)
        if c and not known:
            return None
        total += c * stride
        if size.is_const:
            stride *= size.const
        else:
            known = False
    return total


def contiguous_run(access: Access, it: str) -> int | None:
    """How many values of an iterator keep the floors of an access still, when started at a multiple; None: no floor depends on it."""
    run = 0
    for x in access.indices:
        if isinstance(x, Affine):
            for den in _dividers(x, it):
                run = gcd(run, den)
    return run or None


def _dividers(x: Affine, it: str) -> Iterator[int]:
    for atom, _ in x.terms:
        if isinstance(atom, FloorDiv) and it in atom.num.names():
            c = abs(atom.num.coefficient(it))
            if c:
                whole = gcd(atom.den, atom.num.const, *(k for a, k in atom.num.terms if a != it))
                yield whole // c if whole % c == 0 else 1
            yield from (d * atom.den for d in _dividers(atom.num, it))


def unit_stride_iter(stmt: Statement, access: Access, tensor: Tensor) -> str | None:
    """The iterator that moves an access by one element (innermost in the statement's order where there are several), or None."""
    for it in reversed(stmt.iters):
        if access_stride(access, tensor, it) == 1 and contiguous_run(access, it) != 1 and not _is_single(stmt, it):
            return it
    return None


def unit_stride_iters(scop: Scop, stmt: Statement) -> dict[str, int]:
    """For each iterator, to how many of the statement's accesses it gives unit stride."""
    out = dict.fromkeys(stmt.iters, 0)
    for access in dict.fromkeys((stmt.write, *stmt.reads())):
        it = unit_stride_iter(stmt, access, scop.tensor(access.tensor))
        if it is not None:
            out[it] += 1
    return out
