"""`python -m polyopt` is the `polyopt` command."""

from .cli import entry

entry()
