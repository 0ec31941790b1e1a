"""Who may import whom (docs/decisions.md), checked on the syntax trees of all files, and what follows from it at run time."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx.defs
import pytest

import polyopt

ROOT = Path(__file__).resolve().parent.parent
OUTER = ("frontends", "codegen", "runtime")

ROWS = {
    "errors": -1,  # of row 0, but the others of that row may raise its classes
    "options": 0, "target": 0,
    "trace": 1, "isl_ext": 1,
    "ir": 2,
    "ops": 3, "poly": 3, "codegen": 3, "runtime": 3,
    "passes": 4, "verbs": 4, "lower": 4, "frontends": 4,
    "pipeline": 5,
    "tune": 6,
    "api": 7,
    "viz": 8, "backend": 8,
    "cli": 9, "commands": 9, "__main__": 9,
}  # fmt: skip
ONE_UNIT = {"commands": "cli", "__main__": "cli"}  # the command line: one module and its folder
IR_FOR = {
    "codegen": {"affine", "expr", "loops", "source", "program", "dtype", "tensor"},
    "runtime": {"affine", "source", "program", "dtype", "tensor"},
}
ISL_FREE = ("codegen", "runtime")
OPTIONAL = {"IPython", "matplotlib", "onnxruntime", "openvino", "pycuda", "pyopencl", "threadpoolctl"}
DYNAMIC_IMPORTS = {"polyopt", "polyopt.ir.text", "polyopt.api.compiled", "polyopt.cli"}
# lazy exports; `show` reaches polyopt.viz by name; a warm start; commands
CHECKER_MAY = {"errors"}


def _files() -> Iterator[tuple[str, Path]]:
    """Dotted module name and path of every file of the package."""
    for folder in ("polyopt", *OUTER):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [*path.relative_to(ROOT).with_suffix("").parts]
            if parts[0] != "polyopt":
                parts.insert(0, "polyopt")
            if parts[-1] == "__init__":
                parts.pop()
            yield ".".join(parts), path


FILES = dict(_files())
MODULES = sorted(FILES)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(), str(FILES[module]))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports(module: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of each import; `from x import y` gives x.y where that is a module."""
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    skip: set[ast.AST] = set()
    for node in ast.walk(_tree(module)):
        if module == "polyopt" and _is_type_checking(node):
            skip |= set(ast.walk(node))
        if node in skip:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            for a in node.names:
                full = f"{base}.{a.name}"
                yield node.lineno, full if full in FILES else base


def _unit(module: str) -> str:
    name = module.split(".")[1] if "." in module else ""
    return ONE_UNIT.get(name, name)


def _row(module: str) -> int:
    return ROWS[module.split(".")[1]]


def _wrong(module: str, target: str) -> str | None:
    """Why `module` may not import `target` (both of polyopt), or None."""
    mine, theirs = _unit(module), _unit(target)
    if mine == theirs or not theirs:
        return None
    if mine == "checker":
        return None if theirs in CHECKER_MAY else "the checker is a code path of its own"
    if theirs not in ROWS:
        return f"{theirs} has no row"
    if _row(target) >= _row(module):
        return f"row {_row(module)} may not import row {_row(target)}"
    if mine in IR_FOR and theirs == "ir":
        leaf = target.split(".")[2] if target.count(".") >= 2 else ""
        return None if leaf in IR_FOR[mine] else f"{mine} may not know ir.{leaf}"
    if mine in ISL_FREE and theirs == "isl_ext":
        return f"{mine} is free of isl"
    return None


def test_every_module_has_a_row() -> None:
    units = {m.split(".")[1] for m in MODULES if "." in m}
    assert units - set(ROWS) - {"checker"} == set()


@pytest.mark.parametrize("module", MODULES)
def test_import_direction(module: str) -> None:
    wrong = []
    for line, target in _imports(module):
        if target.split(".")[0] == "polyopt" and module != "polyopt":
            why = _wrong(module, target)
            if why:
                wrong.append(f"{FILES[module].relative_to(ROOT)}:{line}: {target}: {why}")
        elif target.split(".")[0] == "islpy" and _unit(module) in ISL_FREE:
            wrong.append(f"{FILES[module].relative_to(ROOT)}:{line}: {module} is free of isl")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_imports_stand_at_the_top(module: str) -> None:
    wrong = []
    for fn in ast.walk(_tree(module)):
        if not isinstance(fn, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(fn):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."] if not node.level else ["."]
            wrong += [f"{FILES[module].relative_to(ROOT)}:{node.lineno}: {n}" for n in names if n.split(".")[0] not in OPTIONAL]
    if module not in DYNAMIC_IMPORTS:
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                text = ast.unparse(node)
                if not any(f"'{o}" in text for o in OPTIONAL):
                    wrong.append(f"{FILES[module].relative_to(ROOT)}:{node.lineno}: {text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(_tree(module)), f"{FILES[module].relative_to(ROOT)} has no docstring"


def test_setuptools_packages_are_those_on_disk() -> None:
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    assert declared == {m for m, p in FILES.items() if p.name == "__init__.py"}


def test_no_public_name_equals_a_submodule() -> None:
    submodules = {m.name for m in pkgutil.iter_modules([str(ROOT / "polyopt")])} | set(OUTER)
    assert set(polyopt.__all__) & submodules == set()


def test_every_submodule_imports_then_every_export_resolves() -> None:
    for module in MODULES:
        if not module.endswith("__main__"):
            importlib.import_module(module)
    for name in polyopt.__all__:
        assert not isinstance(getattr(polyopt, name), type(sys)), f"polyopt.{name} is a module"
    assert set(polyopt.__all__) <= set(dir(polyopt))


def test_codegen_and_runtime_import_without_isl() -> None:
    modules = [m for m in MODULES if m.startswith(("polyopt.codegen", "polyopt.runtime"))]
    code = "import sys\nsys.modules['islpy'] = None\n" + "\n".join(f"import {m}" for m in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr


WORDS = re.compile(
    r"(?<![a-z])(conv(?:\dd|_?transpose|olution\w*)?|matmul\w*|gemm\w*|softmax\w*|\w*pool2?d?|layer_?norm\w*|batch_?norm\w*|attention|lstm|gru|relu|gelu|einsum)(?![a-z])",
    re.IGNORECASE,
)


def _strings(module: str) -> Iterator[tuple[int, str]]:
    tree = _tree(module)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.parametrize("module", [m for m in MODULES if _unit(m) in ("verbs", "poly", "lower", "codegen")])
def test_no_operator_is_known_by_name(module: str) -> None:
    operators = {s.name for s in onnx.defs.get_all_schemas_with_history()}
    found = [
        f"{FILES[module].relative_to(ROOT)}:{line}: {text!r}"
        for line, text in _strings(module)
        if text in operators or WORDS.search(text)
    ]
    assert not found, "\n".join(found)
