"""Errors, drawn as a tree. Takes nothing, gives the classes that everything else raises.

    PolyoptError
    ├── UserError                exit code 1: the input or the environment is at fault; one clear line
    │   ├── ModelError           an ONNX file that is broken, ill-typed or unsupported
    │   ├── NotAffine            a Python loop nest that is outside the polyhedral model (file, line, term)
    │   ├── ScheduleError        a verb with wrong arguments (names the verb, the argument, what is allowed)
    │   │   └── IllegalSchedule  a verb that would break a dependence; carries the witness in `.violation`
    │   ├── ArgumentError        wrong name, dtype or shape of an argument at run time
    │   ├── CompilerError        no C compiler, or one that fails on our text
    │   └── OutputError          a folder that cannot be written
    ├── WrongResult              exit code 2: a result differs from its reference
    └── InternalError            exit code 70: a defect of polyopt
"""

from __future__ import annotations

from typing import Any


class PolyoptError(Exception):
    """Base of all errors that polyopt raises on purpose. `exit_code` is what the command line returns."""

    exit_code = 70


class UserError(PolyoptError):
    """The input or the environment is at fault."""

    exit_code = 1


class ModelError(UserError):
    """An ONNX model that is broken, ill-typed or uses what is not supported."""


class NotAffine(UserError):
    """A loop nest outside the polyhedral model. The message starts with `file:line:` and quotes the term."""


class ScheduleError(UserError):
    """A verb was given arguments that make no sense on this schedule."""


class IllegalSchedule(ScheduleError):
    """A verb would break a dependence. `violation` is a `polyopt.ir.scop.Violation`."""

    def __init__(self, message: str, violation: Any = None) -> None:
        super().__init__(message)
        self.violation = violation


class ArgumentError(UserError):
    """An argument of a compiled function has the wrong name, dtype or shape."""


class CompilerError(UserError):
    """No C compiler was found, or it failed on emitted text."""


class OutputError(UserError):
    """An output folder or file cannot be written."""


class WrongResult(PolyoptError):
    """A result differs from its reference."""

    exit_code = 2


class InternalError(PolyoptError):
    """A defect of polyopt itself: please report it."""

    exit_code = 70
