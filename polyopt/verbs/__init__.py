"""Transformations: functions Scop → Scop, each checked against the dependences. `VERBS` maps each public name to its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir.scop import Scop
from .diamond import diamond
from .distribute import distribute
from .fuse import fuse
from .interchange import interchange
from .marks import bind, parallelize, unroll, vectorize
from .prefetch import prefetch
from .privatize import privatize
from .promote import promote
from .skew import reverse, shift, skew
from .software_pipeline import software_pipeline
from .tile import strip_mine, tile
from .unroll_jam import unroll_jam
from .wavefront import wavefront

VERBS: Mapping[str, Callable[..., Scop]] = {
    f.__name__: f
    for f in (
        tile, strip_mine, interchange, skew, reverse, shift, fuse, distribute, vectorize, unroll, unroll_jam, parallelize, privatize, bind, promote,
        prefetch, software_pipeline, wavefront, diamond,
    )
}  # fmt: skip
