"""The 30 kernels of PolyBench/C 4.2.1 as Python loop nests, float64 (deriche float32), with its five data-set sizes."""

from __future__ import annotations

from . import algebra, blas, datamining, medley, solvers, stencils
from .kernel import SIZES, Kernel

ALL = (*datamining.KERNELS, *blas.KERNELS, *algebra.KERNELS, *solvers.KERNELS, *medley.KERNELS, *stencils.KERNELS)
KERNELS = {k.name: k for k in ALL}

__all__ = ["KERNELS", "SIZES", "Kernel"]
