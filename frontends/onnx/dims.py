"""Symbolic dims: names from a model become parameters with valid names, and are specialised by the user.

Takes the shapes that the inputs declare and the values given by the user; gives affine shapes. A dim without a name is called
`<input>_d<axis>`. A name is valid when C, isl and Python take it as an identifier.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import ValueInfoProto

from polyopt.errors import ModelError, UserError
from polyopt.ir.affine import Affine, affine
from polyopt.options import LARGEST_DIM

_C_WORDS = """alignas alignof auto bool break case char const constexpr continue default do double else enum extern false float
for goto if inline int long nullptr register restrict return short signed sizeof static struct switch thread_local true typedef
typeof union unsigned void volatile while half main asm"""
_ISL_WORDS = "exists and or not implies mod floord floor ceil ceild min max rat infty infinity nan"
RESERVED = frozenset(_C_WORDS.split()) | frozenset(_ISL_WORDS.split()) | frozenset(keyword.kwlist)
_UNKNOWN = re.compile(r"^(|\?+|-1|none|unknown|dynamic|any|\*)$", re.IGNORECASE)


def valid_name(raw: str, taken: Mapping[str, str] | frozenset[str] = frozenset()) -> str:
    """An identifier made of `raw` that is not reserved and not in `taken`."""
    text = re.sub(r"[^0-9A-Za-z_]+", "_", raw).strip("_") or "dim"
    if text[0].isdigit() or text.lower() in RESERVED or text in RESERVED:
        text = f"dim_{text}"
    out, k = text, 2
    while out in taken:
        out, k = f"{text}_{k}", k + 1
    return out


@dataclass
class DimNames:
    """The named dims of one model. `given` are the user's values, by either the model's name or ours."""

    given: Mapping[str, int]
    names: dict[str, str] = field(default_factory=dict)  # ours -> the model's
    used: set[str] = field(default_factory=set)

    def shape(self, value: ValueInfoProto) -> tuple[Affine, ...]:
        """The affine shape of an input."""
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise ModelError(f"input {value.name!r} declares no shape: its rank must be known (export it with a shape)")
        return tuple(self._dim(value.name, axis, d) for axis, d in enumerate(tensor.shape.dim))

    def _dim(self, owner: str, axis: int, dim: object) -> Affine:
        kind = dim.WhichOneof("value")  # type: ignore[attr-defined]
        if kind == "dim_value":
            size = int(dim.dim_value)  # type: ignore[attr-defined]
            if size < -1:
                raise ModelError(f"input {owner!r}: dim {axis} is {size}, a shape has no negative dims")
            if size == 0:
                raise ModelError(f"input {owner!r}: dim {axis} is 0, so that the input holds nothing to compute with")
            if size > 0:
                return affine(size)
        raw = str(dim.dim_param) if kind == "dim_param" else ""  # type: ignore[attr-defined]
        if _UNKNOWN.match(raw.strip()):  # some exporters write -1 or ? for a dim that they do not name
            raw = f"{valid_name(owner)}_d{axis}"
        return self._named(raw)

    def _named(self, raw: str) -> Affine:
        ours = next((o for o, r in self.names.items() if r == raw), None)
        if ours is None:
            ours = valid_name(raw, self.names)
            self.names[ours] = raw
        for key in (ours, raw):
            if key in self.given:
                self.used.add(key)
                return affine(self.given[key])
        return affine(ours)

    def check(self) -> None:
        """UserError where the user gave a dim that no input has."""
        unknown = sorted(set(self.given) - self.used)
        if unknown:
            known = ", ".join(sorted(self.names)) or "none: all its shapes are fixed"
            raise UserError(f"dim {', '.join(map(repr, unknown))} is not a dim of this model (its dims: {known})")


def check_dim_values(dims: Mapping[str, int]) -> None:
    """UserError where a given value is not a positive whole number."""
    for name, value in dims.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_DIM:
            raise UserError(f"dim {name}={value!r}: a dim must be a whole number of at least 1 and at most {LARGEST_DIM}")
