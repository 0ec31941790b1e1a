"""What `explain` says of a model's kernels. Takes a plan and options; gives for each name the schedule, the proof and the text of the
kernel as the pipeline makes them. Needs no C compiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ..ir.graph import Plan
from ..lower.kernel import Kernel, lower_group
from ..options import Options
from ..pipeline import Compiled, compile_kernel, new_trace, target_of
from ..poly.certify import certify
from .schedules import schedule


class Reports(Mapping[str, str]):
    """The reports by the name of the kernel, each made when asked for; kernels that are equal up to names share one."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self._plan, self._options = plan, options
        self._done: dict[object, str] = {}

    @cached_property
    def _kernels(self) -> dict[str, tuple[int, Kernel]]:
        """Number and text-giving kernel of each name; what writes only empty tensors has none."""
        kernels = ((g.name, lower_group(self._plan, g)) for g in self._plan.groups)
        first: dict[object, tuple[int, Kernel]] = {}
        return {name: first.setdefault(k.key, (len(first), k)) for name, k in kernels if k.nests}

    def __getitem__(self, name: str) -> str:
        number, kernel = self._kernels[name]
        if kernel.key not in self._done:
            trace = new_trace()
            trace.label = name
            compiled = compile_kernel(kernel, self._options, target_of(self._options), trace, None, f"k{number}")
            trace.finish()
            self._done[kernel.key] = report(compiled)
        return self._done[kernel.key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


def report(c: Compiled) -> str:
    """The report of one kernel."""
    claims = "\n".join(f"  {'holds' if x.ok else 'FAILS'}: {x.text}" for x in certify(c.scop, c.nest).claims)
    return f"({c.source.isa})\n{schedule(c.scop).explain()}\nproof:\n{claims}\ncode:\n{c.source.text}"
