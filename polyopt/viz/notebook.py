"""Values show themselves in a notebook: `%load_ext polyopt.viz`, or the first picture drawn, tells IPython how.

Takes an IPython shell; registers for each type its picture (PNG) and its text. A value whose picture fails for the user's reasons, such as a
domain that is too large, shows its text alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import UserError
from ..ir.text import to_text


def register(shell: Any, types: tuple[type, ...], draw: Callable[[Any], Any], text: Callable[[Any], str] = to_text) -> None:
    """Register pictures and texts of some types with an IPython shell."""
    formatters = shell.display_formatter.formatters

    def png(value: Any) -> bytes | None:
        try:
            return bytes(draw(value).png())
        except UserError:
            return None

    def plain(value: Any, printer: Any, cycle: bool) -> None:
        printer.text(text(value))

    for kind in types:
        formatters["image/png"].for_type(kind, png)
        formatters["text/plain"].for_type(kind, plain)


def running_shell() -> Any:
    """The IPython shell that runs this code, or None."""
    found = sys.modules.get("IPython")
    return found.get_ipython() if found is not None else None
