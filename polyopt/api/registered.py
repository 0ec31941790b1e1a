"""The custom operators that this process has registered: what a model means then depends on more than its file."""

from __future__ import annotations

REGISTERED: set[tuple[str, str]] = set()  # (domain, name)
