"""What tests need beyond Python packages, by marker. A test whose tool is missing is skipped, and says which; with CI=true it
fails instead, so that nothing goes untested unseen. Tests that need a GPU are deselected where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from polyopt.errors import CompilerError
from polyopt.runtime.compiler import find_compiler


def _programs(*names: str) -> str | None:
    missing = [n for n in names if shutil.which(n) is None]
    return None if not missing else f"{', '.join(missing)} not found"


def _any_program(*names: str) -> str | None:
    return None if any(shutil.which(n) for n in names) else f"none of {', '.join(names)} found"


def _cc() -> str | None:
    try:
        find_compiler()
    except CompilerError as error:
        return str(error)
    return None


def _qemu() -> str | None:
    return _any_program("qemu-aarch64", "qemu-aarch64-static") or _any_program("aarch64-linux-gnu-gcc")


def _opencl() -> str | None:
    if find_spec("pyopencl") is None:
        return "the Python package pyopencl is not installed"
    import pyopencl

    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as error:
        return f"no OpenCL platform ({error})"
    return None if platforms else "no OpenCL platform (install PoCL)"


def _gpu() -> str | None:
    return None if Path("/dev/nvidiactl").exists() and shutil.which("nvidia-smi") else "no NVIDIA GPU"


NEEDS: dict[str, Callable[[], str | None]] = {
    "cc": _cc,
    "qemu": _qemu,
    "opencl": _opencl,
    "oclgrind": lambda: _programs("oclgrind"),
    "nvcc": lambda: _programs("nvcc", "ptxas"),
    "valgrind": lambda: _programs("valgrind", "gcc"),
    "emulator": lambda: _any_program("clang++", "g++", "c++"),
    "browser": lambda: _any_program("chromium", "chromium-browser", "google-chrome"),
    "gpu": _gpu,
}


@cache
def missing(marker: str) -> str | None:
    """Why tests of this marker cannot run here, or None where they can."""
    return NEEDS[marker]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU the gpu tests are out, also in CI."""
    gpu = [item for item in items if item.get_closest_marker("gpu") is not None]
    if gpu and missing("gpu"):
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if item.get_closest_marker("gpu") is None]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, a test whose tool is missing."""
    for marker in NEEDS:
        if item.get_closest_marker(marker) is None:
            continue
        why = missing(marker)
        if why is not None and os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"CI must have what tests marked {marker!r} need: {why}", pytrace=False)
        if why is not None:
            pytest.skip(f"{marker}: {why}")


@pytest.fixture(scope="session", autouse=True)
def _private_cache() -> None:
    """Compiled code goes to a cache of the checkout (`make clean` removes it), unless the caller names one."""
    os.environ.setdefault("POLYOPT_CACHE_DIR", str(Path(__file__).resolve().parent.parent / "build" / "test-cache"))
