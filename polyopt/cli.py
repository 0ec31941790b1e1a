"""The command line. Takes arguments; gives an exit code: 0 good, 1 the user's fault (one clear line on stderr), 2 a wrong result,
70 a defect of polyopt (one line that says what to report). No traceback unless POLYOPT_DEBUG is set. JSON goes to stdout
alone."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TextIO

import click

from . import __version__
from .commands.common import examples
from .errors import PolyoptError
from .trace import debug_level

INTERRUPTED = 130
MODULES = {"compile": "build", "run": "run", "check": "check", "bench": "bench", "inspect": "inspect", "explain": "explain"}


class Commands(click.Group):
    """The commands, each imported when it is asked for: `explain` brings isl with it, which a warm `run` need not wait for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        found: click.Command = getattr(import_module(f"polyopt.commands.{MODULES[cmd_name]}"), f"{cmd_name}_command")
        return found


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=examples("polyopt check model.onnx", "polyopt compile model.onnx -o out/"),
)
@click.version_option(__version__, prog_name="polyopt")
@click.pass_context
def commands(context: click.Context) -> None:
    """Compile ONNX models with the polyhedral model, and look at how."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""

    def run() -> int:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            done = commands.main(args=None if arguments is None else list(arguments), prog_name="polyopt", standalone_mode=False)
        sys.stdout.flush()
        return done if isinstance(done, int) else 0

    return guarded(run)


def guarded(run: Callable[[], int]) -> int:
    """The exit code of a function; an exception becomes one line on stderr and its code."""
    try:
        return run()
    except click.UsageError as error:
        return _fail(error.format_message() + (f" Try `{error.ctx.command_path} --help`." if error.ctx else ""), 1)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone: nothing more to say
        _settle_stdout()
        return 1
    except Exception as error:
        _settle_stdout()
        if debug_level():
            traceback.print_exc()
        return _explain(error)


def _settle_stdout() -> None:
    """Drop what cannot be written to stdout, or Python would try again at exit, and exit with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> int:
    if isinstance(error, PolyoptError) and error.exit_code != 70:
        return _fail(_line(error), error.exit_code)
    if isinstance(error, MemoryError):
        return _fail(f"out of memory{_steps(error)}", 1)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror}", 1)
    return _report(error)


def _report(error: BaseException) -> int:
    what = _line(error) if isinstance(error, PolyoptError) else f"{type(error).__name__}: {_line(error)}"
    return _fail(f"internal error{_steps(error)}: {what}. Please report this line with the model; POLYOPT_DEBUG=1 adds the traceback", 70)


def _steps(error: BaseException) -> str:
    """The pipeline steps that the tracer noted, the innermost first."""
    notes = [n for n in getattr(error, "__notes__", ()) if n.startswith("in step ")]
    return f" {', '.join(notes)}" if notes else ""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _fail(message: str, code: int) -> int:
    print(f"polyopt: {'wrong result: ' if code == 2 else 'error: '}{' '.join(message.split())}", file=sys.stderr)
    return code


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """A warning as one line, without the place in our code that it came from."""
    print(f"polyopt: warning: {' '.join(str(message).split())}", file=sys.stderr)


def entry() -> None:
    """What the `polyopt` script runs."""
    sys.exit(main())
