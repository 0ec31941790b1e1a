"""Histories as values: steps to JSON and back, and a history applied to another scop.

Takes the `Step`s of a scop; gives plain JSON values, or another scop to which the same verbs were applied, each checked anew. Raises ScheduleError
for text that is no history, for a step that is no verb, and for a step that does not fit the other scop, with its place in the history.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import IllegalSchedule, ScheduleError
from ..ir.scop import Scop, Step
from . import VERBS

FORMAT = "polyopt schedule"
VERSION = 1


def step_to_json(step: Step) -> dict[str, Any]:
    """A step as JSON values: tuples become lists."""
    return {"verb": step.verb, "args": [_plain(step, x) for x in step.args], "kwargs": {k: _plain(step, v) for k, v in step.kwargs}}


def _plain(step: Step, x: Any) -> Any:
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, Mapping):
        return {str(k): _plain(step, v) for k, v in x.items()}
    if isinstance(x, Sequence):
        return [_plain(step, v) for v in x]
    return str(x)  # an affine expression, which verbs read from text too


def step_from_json(value: Any) -> Step:
    """The step of JSON values."""
    if not isinstance(value, Mapping) or not isinstance(value.get("verb"), str):
        raise ScheduleError(f"a schedule's step is {json.dumps(value)[:80]}; it must be an object with verb, args and kwargs")
    args, kwargs = value.get("args", []), value.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise ScheduleError(f"a schedule's step {value['verb']}: args must be a list and kwargs an object")
    return Step(value["verb"], tuple(_frozen(x) for x in args), tuple((str(k), _frozen(v)) for k, v in kwargs.items()))


def _frozen(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_frozen(v) for v in x)
    return {k: _frozen(v) for k, v in x.items()} if isinstance(x, Mapping) else x


def history_to_json(name: str, steps: Sequence[Step]) -> str:
    """A history as text."""
    value = {"format": FORMAT, "version": VERSION, "kernel": name, "steps": [step_to_json(s) for s in steps]}
    return json.dumps(value, indent=1) + "\n"


def history_from_json(text: str) -> tuple[Step, ...]:
    """The history of a text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ScheduleError(f"this is no schedule: {e}") from None
    if not isinstance(value, Mapping) or value.get("format") != FORMAT or not isinstance(value.get("steps"), list):
        raise ScheduleError(f'this is no schedule: it must be an object with "format": "{FORMAT}" and a list of steps')
    if value.get("version") != VERSION:
        raise ScheduleError(f"this schedule has version {value.get('version')!r}; version {VERSION} can be read")
    return tuple(step_from_json(x) for x in value["steps"])


def replay(scop: Scop, steps: Sequence[Step]) -> Scop:
    """The scop after the steps, each checked against its own dependences. Raises ScheduleError or IllegalSchedule with the step's place."""
    for k, step in enumerate(steps, 1):
        where = f"step {k} of {len(steps)}"
        verb = VERBS.get(step.verb)
        if verb is None:
            raise ScheduleError(f"{where}, {step}, is no verb that can be replayed; a recipe's schedule is chosen anew for another kernel")
        try:
            check_arguments(step.verb, verb, (scop, *step.args), dict(step.kwargs))
            scop = verb(scop, *step.args, **dict(step.kwargs))
        except IllegalSchedule as e:
            raise IllegalSchedule(f"{where}: {e}", e.violation) from None
        except ScheduleError as e:
            raise ScheduleError(f"{where}: {e}") from None
    return scop


def check_arguments(name: str, verb: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that does not fit the verb's signature; the first parameter is the Scop, which the user does not write."""
    signature = inspect.signature(verb)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        rest = [p.replace(annotation=inspect.Parameter.empty) for p in list(signature.parameters.values())[1:]]
        raise ScheduleError(f"{name}: {e}; write {name}{inspect.Signature(rest)}") from None
