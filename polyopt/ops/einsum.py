"""Einsum with a static equation: operands are contracted from left to right, each step one contraction nest.

Takes and gives what `registry.Op` says. A letter that is summed as soon as no later operand needs it keeps the cost of each step low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.affine import Affine, affine
from ..ir.graph import Node, Shape, Value
from ..ir.tensor import Tensor
from . import exprs as e
from .build import (
    NUMBERS,
    ONE,
    Ins,
    Iters,
    Named,
    Typed,
    accumulator,
    check_dtype,
    dtype_of,
    fail,
    load,
    local,
    operator,
    shape_of,
    show,
    store,
    widen,
)  # fmt: skip
from .pointwise import same_dtype
from .registry import Array, Definition, Known


@dataclass(frozen=True)
class Equation:
    """Labels of each operand and of the output; an ellipsis is spelled out in labels "0", "1", …; `sizes` of all labels."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: dict[str, Affine]


def parse(text: str, shapes: Sequence[Shape]) -> Equation:
    """The equation over operands of these shapes."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        fail(f"equation {text} has {len(terms)} operands, the node {len(shapes)}")
    dots = max((len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes) if "..." in t), default=0)
    operands, sizes = [], dict[str, Affine]()
    for t, s in zip(terms, shapes):
        n = len(s) - len(t.replace("...", ""))
        labels = _labels(t, [str(k) for k in range(dots - n, dots)])
        if len(labels) != len(s):
            fail(f"term {t} of equation {text} does not fit the shape {show(s)}")
        for label, d in zip(labels, s):
            if sizes.setdefault(label, d) == ONE:
                sizes[label] = d
            elif d not in (ONE, sizes[label]):
                fail(f"label {label} of equation {text} is {sizes[label]} and {d}")
        operands.append(labels)
    everything = [x for t in operands for x in t]
    if arrow:
        output = _labels(right, [str(k) for k in range(dots)])
    else:
        output = (*map(str, range(dots)), *sorted({x for x in everything if x.isalpha() and everything.count(x) == 1}))
    if any(x not in sizes for x in output) or len(set(output)) != len(output):
        fail(f"the output of equation {text} repeats a label or has one that no operand has")
    return Equation(tuple(operands), output, sizes)


def _labels(term: str, ellipsis: Sequence[str]) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    return (*head, *(ellipsis if dots else ()), *tail)


def _infer_einsum(node: Node, ins: Ins, known: Known) -> Sequence[Typed]:
    for v in ins:
        assert v is not None
        check_dtype(v, NUMBERS)
    equation = parse(node.attr("equation"), [shape_of(v) for v in ins])
    return [(same_dtype(ins), tuple(equation.sizes[x] for x in equation.output))]


def _name(label: str) -> str:
    """An iterator for a label; upper case and digits get names that no lower-case label has."""
    return label if label.islower() else f"b{label}" if label.isdigit() else f"{label.lower()}u"


def _define_einsum(node: Node, ins: Ins, outs: Sequence[Value], known: Known) -> Definition:
    operands: list[Named] = [v for v in ins if v is not None]
    eq = parse(node.attr("equation"), [shape_of(v) for v in operands])
    nests, locals_ = [], list[Tensor]()
    left, labels = operands[0], eq.operands[0]
    for step in range(max(1, len(operands) - 1)):
        right = operands[step + 1] if len(operands) > 1 else None
        right_labels = eq.operands[step + 1] if len(operands) > 1 else ()
        last = step + 2 >= len(operands)
        later = {x for t in eq.operands[step + 2 :] for x in t} | set(eq.output)
        keep = eq.output if last else tuple(x for x in dict.fromkeys(labels + right_labels) if x in later)
        summed = tuple(x for x in dict.fromkeys(labels + right_labels) if x not in keep)
        sizes = {x: eq.sizes[x] for x in (*keep, *summed)}
        kind = e.wide(dtype_of(outs[0]))
        target: Named = outs[0] if last else local(node, f"step{step}", kind, [sizes[x] for x in keep])
        if isinstance(target, Tensor):
            locals_.append(target)
        outer: Iters = tuple((_name(x), sizes[x]) for x in keep)
        inner: Iters = tuple((_name(x), sizes[x]) for x in summed)
        term = load(left, _index(left, labels))
        if right is not None:
            term = e.mul(term, load(right, _index(right, right_labels)))
        at = [affine(_name(x)) for x in keep]
        if not summed:
            nests.append(store(target, at, outer, term))
        else:
            acc, more, end = accumulator(node, target)
            locals_ += more
            nests += [store(acc, at, outer, 0), store(acc, at, outer + inner, term, "+"), *end]
        left, labels = target, keep
    return Definition(tuple(nests), tuple(locals_))


def _index(t: Named, labels: Sequence[str]) -> list[Affine]:
    return [affine(0) if d == ONE else affine(_name(x)) for x, d in zip(labels, shape_of(t))]


def _np_einsum(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array]:
    given = [a for a in arrays if a is not None]
    return [np.asarray(np.einsum(node.attr("equation").replace(" ", ""), *map(widen, given))).astype(given[0].dtype)]


operator("Einsum", _infer_einsum, _define_einsum, _np_einsum, arity=(1, 2**31))
