"""Pictures of what the compiler works on: domains, dependences, tiles, orders, footprints, trees, refusals, plans. Needs matplotlib.

`show(value)` picks the picture by the value's type and `view`; each picture is also a function here. Everything drawn is enumerated from the isl
objects that get compiled, at concrete parameters; nothing is sketched. Pictures are matplotlib figures with `png()`, `svg()` and `save(path)`.
`import polyopt` does not load this package: `polyopt.show` and `Schedule.show` do.

    show(scop)                                    dependences, or tiles where the schedule has tile loops
    show(scop, view="domain", params={"N": 6})    one of domain, dependences, tiles, order, footprint, tree, animation
    show(scop, violation=error.violation)         why a step was refused
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import islpy as isl

from polyopt.frontends.python_loops import ScopFunction

from ..api.compiled import Model
from ..api.models import LoadedModel
from ..api.schedules import Schedule
from ..errors import UserError
from ..ir.graph import Graph, Plan
from ..ir.loops import LoopNest
from ..ir.program import Program
from ..ir.scop import Dependences, Scop, Violation
from ..verbs.tree import read_tree
from . import figure as _figure  # first: refuses in one line where matplotlib is missing
from .arena import memory
from .arrows import dependences
from .bare import bare_scop
from .domains import domain
from .footprints import footprint
from .graphs import graph, plan
from .loops import is_tile_loop, members_around
from .mosaic import tiles
from .notebook import register, running_shell
from .paths import animation, order
from .trees import nest_tree, tree
from .violations import violation

Picture = _figure.Picture

__all__ = [
    "Picture", "animation", "dependences", "domain", "footprint", "graph", "load_ipython_extension", "memory", "nest_tree", "order",
    "plan", "show", "tiles", "tree", "violation",
]  # fmt: skip

VIEWS: Mapping[str, Callable[..., Any]] = {
    "domain": domain,
    "dependences": dependences,
    "tiles": tiles,
    "order": order,
    "footprint": footprint,
    "tree": tree,
    "animation": animation,
    "violation": violation,
}


def show(value: Any, view: str | None = None, **options: Any) -> Any:
    """The picture of a schedule, Scop, loop nest function, isl set, dependences, LoopNest, Graph, Plan, Program or model.

    `view` says which picture of a Scop (see the module); the rest are options of that picture. Raises UserError for a value that has no picture,
    for an unknown view, and for options that the picture does not take."""
    register_all(running_shell())
    scop = scop_of(value)
    if scop is not None:
        if "violation" in options:
            options["witness"] = options.pop("violation")
            view = view or "violation"
        name = view or default_view(scop, value)
        if name not in VIEWS:
            raise UserError(f"show: there is no view {name!r} of a schedule; the views are {', '.join(VIEWS)}")
        return call(VIEWS[name], scop, name, options)
    if view is not None:
        raise UserError(f"show: a view is chosen for schedules only, not for a {type(value).__name__}")
    for kind, draw, part in PICTURES:
        if isinstance(value, kind):
            return call(draw, part(value), draw.__name__, options)
    if isinstance(value, Violation):
        raise UserError("show: a violation is drawn in its program: show(schedule, violation=error.violation)")
    raise UserError(f"show: a {type(value).__name__} has no picture")


def scop_of(value: Any) -> Scop | None:
    """The Scop that a value is, holds, or is a part of; None where there is none."""
    if isinstance(value, Schedule | ScopFunction):
        return value.scop
    if isinstance(value, Scop):
        return value
    return bare_scop(value) if isinstance(value, Dependences | isl.Set | isl.UnionSet) else None


def default_view(scop: Scop, value: Any = None) -> str:
    """tiles where the schedule has tile loops; dependences where there are any; else the domain."""
    if isinstance(value, isl.Set | isl.UnionSet):
        return "domain"
    around = members_around(read_tree(scop.schedule))
    if any(is_tile_loop(m, s) for s, members in around for m in members):
        return "tiles"
    return "dependences"


def call(draw: Callable[..., Any], value: Any, name: str, options: Mapping[str, Any]) -> Any:
    """Draw with options; UserError where the picture does not take them."""
    known = signature(draw)
    try:
        known.bind(value, **options)
    except TypeError as e:
        takes = ", ".join(list(known.parameters)[1:]).replace("witness", "violation") or "no options"
        raise UserError(f"show: {e}; {name} takes {takes}") from None
    return draw(value, **options)


PICTURES: tuple[tuple[type, Callable[..., Any], Callable[[Any], Any]], ...] = (
    (LoopNest, nest_tree, lambda x: x),
    (Graph, graph, lambda x: x),
    (Plan, plan, lambda x: x),
    (LoadedModel, plan, lambda x: x.plan),
    (Program, memory, lambda x: x),
    (Model, memory, lambda x: x.program),
)


# ---- notebooks
def register_all(shell: Any) -> None:
    """Let an IPython shell draw these values when they stand at the end of a cell; nothing where there is no shell."""
    if shell is not None and getattr(shell, "display_formatter", None) is not None:
        register(shell, (Scop, Dependences, LoopNest, Graph, Plan, Program), show)
        register(shell, (Schedule, ScopFunction), show, repr)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext polyopt.viz`"""
    register_all(shell)
