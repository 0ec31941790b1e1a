"""The source of a decorated Python function. Takes a function (or text); gives its syntax tree, the file and line of every node, and
what its free names mean.

Assumes that the source file can be read, as `inspect` does. Names are looked up statically: a name that the function itself binds
(an argument, a loop variable, a local) means nothing here; others are searched in the closure, in the frame that ran the decorator,
in the globals and in the builtins.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from polyopt.errors import NotAffine
from polyopt.ir.affine import Affine

MISSING = object()
"""What `PySource.resolve` gives for a name that is bound nowhere or that the function binds itself."""


@dataclass(frozen=True)
class PySource:
    """One function: its syntax tree (line numbers are those of the file), the names visible to it, and the sizes of the dims that are bound."""

    name: str
    tree: ast.FunctionDef
    filename: str
    names: Mapping[str, Any]
    bound: frozenset[str]
    doc: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def bind(self, sizes: Mapping[str, int]) -> PySource:
        """The source with dims and size arguments bound to numbers. A bound argument is dropped."""
        tree = copy.copy(self.tree)
        tree.args = copy.copy(self.tree.args)
        tree.args.args = [a for a in self.tree.args.args if a.arg not in sizes]
        tree.args.posonlyargs = [a for a in self.tree.args.posonlyargs if a.arg not in sizes]
        dropped: dict[str, Any] = {a.arg: sizes[a.arg] for a in [*self.tree.args.posonlyargs, *self.tree.args.args] if a.arg in sizes}
        names = ChainMap(dropped, self.names)  # type: ignore[arg-type]
        return replace(self, tree=tree, names=names, bound=self.bound - set(dropped), sizes={**self.sizes, **sizes})

    def at_sizes(self, value: Any) -> Any:
        """A dim, or a size made of dims, with the bound dims replaced: a number where all are bound. Other values as they are."""
        if not isinstance(value, Affine) or not value.names() & set(self.sizes):
            return value
        size = value.substitute(self.sizes)
        return size.const if size.is_const else size

    def where(self, node: ast.AST) -> str:
        """`file:line` of a node."""
        return f"{self.filename}:{getattr(node, 'lineno', self.tree.lineno)}"

    def refuse(self, node: ast.AST, message: str) -> NotAffine:
        """The error to raise about a node."""
        return NotAffine(f"{self.where(node)}: {message}")

    def resolve(self, node: ast.expr) -> Any:
        """The Python object that a name or a chain of attributes means, or `MISSING`. A dim that is bound is its number."""
        return self.at_sizes(self.look_up(node))

    def look_up(self, node: ast.expr) -> Any:
        """As `resolve`, but every dim is symbolic."""
        if isinstance(node, ast.Name):
            return MISSING if node.id in self.bound else self.names.get(node.id, MISSING)
        if isinstance(node, ast.Attribute):
            base = self.look_up(node.value)
            return MISSING if base is MISSING else getattr(base, node.attr, MISSING)
        return MISSING


def quote(node: ast.AST) -> str:
    """The text of a node, for messages."""
    return f"`{ast.unparse(node)}`"


def bound_names(tree: ast.FunctionDef) -> frozenset[str]:
    """The names that a function binds: arguments, loop variables, assigned names."""
    args = tree.args
    names = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
    names.update(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset(names)


def source_of(fn: Any, frame_locals: Mapping[str, Any] | None = None) -> PySource:
    """The source of a Python function; `frame_locals` are the names where it is defined (for annotations that are kept as text)."""
    if not isinstance(fn, FunctionType):
        raise NotAffine(f"@scop: decorate a plain Python function, not {type(fn).__name__} {getattr(fn, '__name__', fn)!r}")
    code = fn.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}"
    if fn.__name__ == "<lambda>":
        raise NotAffine(f"{where}: a lambda has no loops: write a function with `def`")
    try:
        lines, first = inspect.getsourcelines(fn)
        module = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        raise NotAffine(
            f"{where}: the source of {fn.__name__!r} is not available (typed at a prompt, or run by exec): "
            "put it in a file, or give the text to scop_from_source()"
        ) from None
    ast.increment_lineno(module, max(first, 1) - 1)
    tree = module.body[0] if module.body else None
    if not isinstance(tree, ast.FunctionDef):
        raise NotAffine(f"{where}: {fn.__name__!r} must be a plain `def` function")
    cells: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # bound later than the decorator runs
            continue
    names = ChainMap(cells, fn.__globals__, dict(frame_locals or {}), vars(builtins))
    return PySource(fn.__name__, tree, code.co_filename, names, bound_names(tree), fn.__doc__)


def source_of_text(text: str, names: Mapping[str, Any], filename: str = "<text>") -> PySource:
    """The one function that a text defines; `names` are its globals."""
    try:
        module = ast.parse(textwrap.dedent(text))
    except SyntaxError as e:
        raise NotAffine(f"{filename}:{e.lineno or 1}: this is not Python: {e.msg}") from None
    found = [n for n in module.body if isinstance(n, ast.FunctionDef)]
    if len(found) != 1:
        raise NotAffine(f"{filename}:1: the text must define one function with `def`, it defines {len(found)}")
    tree = found[0]
    return PySource(tree.name, tree, filename, ChainMap(dict(names), vars(builtins)), bound_names(tree), ast.get_docstring(tree))
