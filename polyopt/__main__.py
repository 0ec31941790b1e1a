"""`python -m polyopt`, and the `polyopt` script: the command line, where an interrupt is no traceback even while modules are being loaded."""

import sys

try:
    from .cli import entry
except KeyboardInterrupt:
    print("polyopt: error: interrupted", file=sys.stderr)
    raise SystemExit(130) from None

if __name__ == "__main__":
    entry()
