"""The cache: torn entries, many processes, killed processes, folders that cannot be written, eviction."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import GEMM, static_program, static_reference

from polyopt.errors import CompilerError
from polyopt.runtime import cache as cache_module
from polyopt.runtime.build import build_library
from polyopt.runtime.cache import Cache, default_limit, evict, key_of
from polyopt.runtime.compiler import Unit, find_compiler
from polyopt.runtime.load import load_kernel, load_program, program_units

TESTS = Path(__file__).resolve().parent
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from runtime_samples import static_program, static_reference
from polyopt.runtime.load import load_program
x = np.arange(16, dtype=np.float32).reshape(2, 8)
got, want = load_program(static_program()).run({"x": x}), static_reference(x)
assert all(np.array_equal(got[k], want[k]) for k in want), got
print("right")
"""


def put(folder: Path, content: bytes) -> Path:
    file = folder / "made"
    file.write_bytes(content)
    return file


def files(root: Path, suffix: str = "") -> list[Path]:
    return sorted(f for f in (root / "entries").rglob(f"*{suffix}") if f.is_file())


def counting_compiler(path: Path, delay: float = 0.0) -> tuple[str, Path]:
    """A wrapper of the host's compiler that logs every call with -c, after `delay` seconds."""
    log = path / "calls.log"
    wrapper = path / "cc-wrapper"
    command = " ".join(f"'{c}'" for c in find_compiler().command)
    wrapper.write_text(f'#!/bin/sh\ncase " $* " in *" -c "*) echo c >> \'{log}\'; sleep {delay};; esac\nexec {command} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper), log


def worker(env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(TESTS)], env={**os.environ, **env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_fetch_builds_once_and_keys_do_not_run_together(tmp_path: Path) -> None:
    assert key_of("ab", "c") != key_of("a", "bc") and key_of("a") == key_of(b"a")
    cache, built = Cache(tmp_path), []

    def build(folder: Path) -> Path:
        built.append(folder)
        return put(folder, b"one")

    first = cache.fetch(key_of("k"), ".o", build)
    assert first.read_bytes() == b"one" and cache.fetch(key_of("k"), ".o", build) == first and len(built) == 1
    assert not built[0].exists()
    first.write_bytes(b"torn")
    assert cache.lookup(key_of("k"), ".o") is None
    assert cache.fetch(key_of("k"), ".o", build).read_bytes() == b"one" and len(built) == 2


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> Path:
        put(folder, b"half")
        raise CompilerError("no")

    with pytest.raises(CompilerError):
        Cache(tmp_path).fetch(key_of("k"), ".o", build)
    assert not files(tmp_path) and not list((tmp_path / "work").iterdir())


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    cache_module._warned.clear()
    with pytest.warns(UserWarning, match="cannot be written.*POLYOPT_CACHE_DIR") as warned:
        for i in range(3):
            got = Cache(tmp_path / "file" / "below").fetch(key_of(f"unwritable{i}"), ".o", lambda folder: put(folder, b"x"))
            assert got.read_bytes() == b"x"
    assert len(warned) == 1

    publish, full = cache_module._publish, tmp_path / "full"

    def no_space(root: Path, key: str, suffix: str, built: Path) -> Path:
        if root == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return publish(root, key, suffix, built)

    monkeypatch.setattr(cache_module, "_publish", no_space)
    cache_module._warned.clear()
    with pytest.warns(UserWarning, match="No space left"):
        assert Cache(full).fetch(key_of("full"), ".o", lambda folder: put(folder, b"y")).read_bytes() == b"y"
    assert not files(full)


@pytest.mark.cc
def test_read_only_cache_still_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit("k", "int k(void) { return 1; }\n")
    path = build_library([unit], cache=Cache(tmp_path))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert build_library([unit], cache=Cache(tmp_path)) == path


def test_eviction_is_by_last_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path, limit=10**9)
    made = [cache.fetch(key_of(f"e{i}"), ".o", lambda folder, i=i: put(folder, bytes([i]) * 1000)) for i in range(5)]
    for i, file in enumerate(made):
        os.utime(file, (time.time() - 5000 + i,) * 2)
    cache.lookup(key_of("e0"), ".o")  # used again
    assert evict(tmp_path, 2500) == 3000
    assert [f.exists() for f in made] == [True, False, False, False, True]
    assert evict(tmp_path, 0) == 1000 and made[0].exists()  # what was just used is in use
    assert evict(tmp_path, 0, grace=0) == 1000 and not files(tmp_path)
    dead = tmp_path / "work" / "1-dead"
    dead.mkdir()
    os.utime(dead, (0, 0))
    evict(tmp_path, 0)
    assert not dead.exists()

    old = Cache(tmp_path, limit=2000)
    for i in range(4):
        file = old.fetch(key_of(f"f{i}"), ".o", lambda folder, i=i: put(folder, bytes([i]) * 1000))
        os.utime(file, (1000 + i,) * 2)
    assert sum(f.stat().st_size for f in files(tmp_path)) <= 3000
    monkeypatch.setenv("POLYOPT_CACHE_BYTES", "1e6")
    assert default_limit() == 10**6
    monkeypatch.setenv("POLYOPT_CACHE_BYTES", "many")
    with pytest.raises(CompilerError, match="POLYOPT_CACHE_BYTES='many'"):
        default_limit()


@pytest.mark.cc
def test_corrupt_objects_and_libraries_are_rebuilt(tmp_path: Path) -> None:
    x = np.ones((2, 8), np.float32)
    load_program(static_program(), cache=Cache(tmp_path))
    for file in files(tmp_path):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        broken = file.with_suffix(".new")  # a new file: the old one is loaded in this process
        broken.write_bytes(bytes(data[: len(data) // 2 + 1]))
        broken.replace(file)
    before = {f.name for f in files(tmp_path)}
    got = load_program(static_program(), cache=Cache(tmp_path)).run({"x": x})
    np.testing.assert_array_equal(got["z"], static_reference(x)["z"])
    assert {f.name for f in files(tmp_path)} == before  # the same bytes again


@pytest.mark.cc
def test_a_changed_kernel_compiles_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, log = counting_compiler(tmp_path)
    monkeypatch.setenv("POLYOPT_CC", wrapper)
    cache = Cache(tmp_path / "cache")
    load_program(static_program(), cache=cache)
    units = len(program_units(static_program()))
    assert len(log.read_text().split()) == units
    load_program(static_program(), cache=cache)
    assert len(log.read_text().split()) == units
    load_program(static_program(scale="a * b + 1"), cache=cache)
    assert len(log.read_text().split()) == units + 1
    load_kernel(GEMM, cache=cache)
    assert len(log.read_text().split()) == units + 3


@pytest.mark.cc
def test_eight_processes_share_one_cache(tmp_path: Path) -> None:
    wrapper, log = counting_compiler(tmp_path, 0.1)
    env = {"POLYOPT_CC": wrapper, "POLYOPT_CACHE_DIR": str(tmp_path / "cache")}
    workers = [worker(env) for _ in range(8)]
    for w in workers:
        out, err = w.communicate(timeout=120)
        assert out.strip() == "right", err
    units = len(program_units(static_program()))
    assert units <= len(log.read_text().split()) <= units + 2
    assert len(files(tmp_path / "cache")) == units + 1


@pytest.mark.cc
def test_killed_processes_leave_a_cache_that_works(tmp_path: Path) -> None:
    wrapper, log = counting_compiler(tmp_path, 0.4)
    root = tmp_path / "cache"
    env = {"POLYOPT_CC": wrapper, "POLYOPT_CACHE_DIR": str(root)}
    for seen in (1, 3):
        w = worker(env)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not log.exists() or len(log.read_text().split()) < seen):
            time.sleep(0.02)
        w.send_signal(signal.SIGKILL)
        w.communicate()
        for file in files(root):  # what is published is whole
            assert cache_module._digest(file) == file.stem
    w = worker(env)
    out, err = w.communicate(timeout=120)
    assert out.strip() == "right", err
    shutil.rmtree(root)
