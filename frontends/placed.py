"""Statements with their domains, and the cells that they touch. Shared by the builder of the Scop and the proofs about it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import islpy as isl

from polyopt.ir.affine import Affine
from polyopt.ir.expr import Access, Load
from polyopt.ir.scop import Statement
from polyopt.ir.tensor import Tensor
from polyopt.isl_ext import PARAM, SET, dim_names, read_map, sample_set

from .pysource import PySource


@dataclass(frozen=True)
class Placed:
    """A statement with its domain and the syntax node it comes from. `kept` is the read of the old value that a guard adds."""

    statement: Statement
    node: ast.stmt
    kept: Load | None = None


@dataclass(frozen=True)
class Frame:
    src: PySource
    params: tuple[str, ...]
    context: isl.Set
    tensors: Mapping[str, Tensor]

    @property
    def head(self) -> str:
        """The parameters in isl's syntax, to stand before a set, map or function (nothing where there are none)."""
        return f"[{', '.join(self.params)}] -> " if self.params else ""


def access_map(b: Frame, s: Statement, a: Access) -> isl.Map:
    """The instances to the cells they touch; an indirect index touches the whole dim."""
    outs = [f"o{k}" for k in range(len(a.indices))]
    terms = []
    for o, x, size in zip(outs, a.indices, b.tensors[a.tensor].shape):
        terms.append(f"{o} = {x}" if isinstance(x, Affine) else f"0 <= {o} < {size}")
    where = " and ".join(terms) or "true"
    return read_map(f"{b.head}{{ {s.name}[{', '.join(s.iters)}] -> {a.tensor}[{', '.join(outs)}] : {where} }}").intersect_domain(s.domain)


def smallest(b: Frame, bad: isl.Set) -> dict[str, int]:
    """The point of a set with the least parameters (in order), then the least iterators."""
    n = bad.dim(PARAM)
    flat = bad.move_dims(SET, 0, PARAM, 0, n)
    with suppress(isl.Error):  # unbounded below: any point will do
        flat = flat.lexmin()
    found = sample_set(flat)
    assert found is not None
    names = [*dim_names(bad, PARAM), *dim_names(bad)]
    return dict(zip(names, found[0]))
