"""polyopt: a polyhedral loop-optimization compiler for deep learning. Importing it loads nothing but this file: every export is
imported from its module on first use (PEP 562), so that `import polyopt` costs nothing over Python itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.compiled import compile
    from .api.models import load
    from .api.operators import op, register_op
    from .api.schedules import auto, schedule
    from .errors import (
        ArgumentError,
        CompilerError,
        IllegalSchedule,
        InternalError,
        ModelError,
        NotAffine,
        OutputError,
        PolyoptError,
        ScheduleError,
        UserError,
        WrongResult,
    )
    from .frontends.python_loops import local, scop
    from .ir.affine import dims
    from .ir.dtype import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from .ir.text import show
    from .options import Options

__version__ = "0.1.0"

_EXPORTS = {
    "api.compiled": ("compile",),
    "api.models": ("load",),
    "api.operators": ("op", "register_op"),
    "api.schedules": ("auto", "schedule"),
    "errors": (
        "ArgumentError", "CompilerError", "IllegalSchedule", "InternalError", "ModelError", "NotAffine", "OutputError",
        "PolyoptError", "ScheduleError", "UserError", "WrongResult",
    ),
    "frontends.python_loops": ("local", "scop"),
    "ir.affine": ("dims",),
    "ir.dtype": ("bf16", "bool_", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "ir.text": ("show",),
    "options": ("Options",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "ArgumentError", "CompilerError", "IllegalSchedule", "InternalError", "ModelError", "NotAffine", "Options", "OutputError",
    "PolyoptError", "ScheduleError", "UserError", "WrongResult", "auto", "bf16", "bool_", "compile", "dims", "f16", "f32", "f64",
    "i8", "i16", "i32", "i64", "load", "local", "op", "register_op", "schedule", "scop", "show", "u8", "u16", "u32", "u64",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'polyopt' has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
