"""Finding compilers, and what a user sees when one is missing, refuses, crashes or hangs."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import GEMM, pointwise

from polyopt.errors import CompilerError
from polyopt.runtime import build, compiler
from polyopt.runtime.cache import Cache
from polyopt.runtime.compiler import BASE_FLAGS, Compiler, Unit, accepts_flags, find_compiler
from polyopt.runtime.load import load_kernel


def fake(path: Path, body: str) -> str:
    """A shell script that answers like a compiler, then does `body`."""
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo fake 1; exit;; *-dumpmachine*) echo x86_64-fake; exit;; esac\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def one_line(error: pytest.ExceptionInfo[CompilerError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("POLYOPT_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError) as e:
        find_compiler()
    assert "pip install ziglang" in one_line(e) and "gcc" in one_line(e)


def test_order_of_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("POLYOPT_CC", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    for name in ("cc", "gcc", "clang-17", "clang-19", "clang"):
        fake(tmp_path / name, "exit 0")
        monkeypatch.setattr(compiler, "has_openmp", lambda c: c.command[0].endswith("gcc"))
        compiler._find.cache_clear()
        assert Path(find_compiler().command[0]).name == name
    compiler._find.cache_clear()
    assert Path(find_compiler(openmp=True).command[0]).name == "gcc"
    compiler._find.cache_clear()


def test_chosen_compiler_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for value in ("no-such-compiler", "'", str(tmp_path)):
        monkeypatch.setenv("POLYOPT_CC", value)
        with pytest.raises(CompilerError) as e:
            find_compiler()
        assert "POLYOPT_CC" in one_line(e)
    silent = fake(tmp_path / "silent", "exit 0")
    Path(silent).write_text("#!/bin/sh\nexit 3\n")
    monkeypatch.setenv("POLYOPT_CC", silent)
    with pytest.raises(CompilerError, match="does not answer"):
        find_compiler()
    monkeypatch.setenv("POLYOPT_CC", fake(tmp_path / "my cc", "exit 0").replace(" ", "\\ ") + " -m64")
    assert find_compiler().command == (str(tmp_path / "my cc"), "-m64")


def test_crash_hang_and_nonsense(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    unit = Unit("k", "int k;\n")
    monkeypatch.setenv("POLYOPT_CC", fake(tmp_path / "crash", "kill -SEGV $$"))
    with pytest.raises(CompilerError) as e:
        build.build_library([unit], cache=cache)
    assert "crashed with SIGSEGV" in one_line(e) and "command:" in one_line(e)
    monkeypatch.setenv("POLYOPT_CC", fake(tmp_path / "mute", "exit 7"))
    with pytest.raises(CompilerError, match="exit code 7 and said nothing"):
        build.build_library([unit], cache=cache)
    monkeypatch.setenv("POLYOPT_CC", fake(tmp_path / "idle", "exit 0"))
    with pytest.raises(CompilerError, match=r"exit code 0 and made no k\.o"):
        build.build_library([unit], cache=cache)
    noise = fake(tmp_path / "noise", "exit 0")
    Path(noise).write_text("#!/bin/sh\nprintf '\\272\\377'\n")
    monkeypatch.setenv("POLYOPT_CC", noise)
    assert find_compiler().version == "\ufffd\ufffd"
    monkeypatch.setenv("POLYOPT_CC", fake(tmp_path / "hang", "sleep 60 & wait"))
    monkeypatch.setenv("POLYOPT_CC_TIMEOUT", "0.3")
    start = time.monotonic()
    with pytest.raises(CompilerError, match=r"within 0.3 s and was stopped \(POLYOPT_CC_TIMEOUT"):
        build.build_library([unit], cache=cache)
    assert time.monotonic() - start < 20
    monkeypatch.setenv("POLYOPT_CC_TIMEOUT", "soon")
    with pytest.raises(CompilerError, match="POLYOPT_CC_TIMEOUT='soon'"):
        build.build_library([unit], cache=cache)
    assert not list((tmp_path / "cache" / "work").iterdir())


def test_the_first_use_of_zig_is_announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cold = tmp_path / "home" / ".cache" / "zig" / "o" / "1"
    zig = Compiler((fake(tmp_path / "zig", "touch lib.so"), "cc"), "1", "x86_64-linux")
    for name in ("ZIG_GLOBAL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def said() -> str:
        monkeypatch.setattr(compiler, "_told", threading.Event())
        for _ in range(2):
            compiler.link_objects(zig, [], tmp_path / "lib.so")
        return capsys.readouterr().err

    assert said().count("zig cc") == 1
    cold.mkdir(parents=True)
    (cold / "libcompiler_rt.a").touch()
    assert said() == ""
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert said().count("zig cc") == 1


@pytest.mark.cc
def test_first_error_and_kept_text(tmp_path: Path) -> None:
    bad = pointwise("broken", "a * undeclared")
    with pytest.raises(CompilerError) as e:
        load_kernel(bad, cache=Cache(tmp_path / "cache"))
    text = one_line(e)
    assert "undeclared" in text and "-ffp-contract=off" in text
    kept = Path(text.rsplit("the text is in ", 1)[1])
    assert kept.read_text() == bad.text
    assert "undeclared" in kept.with_suffix(".log").read_text()
    with pytest.raises(CompilerError, match="unused"):  # a warning is an error
        build.build_library([Unit("warn", "int f(void) { int x = 1; return 0; }\n")], cache=Cache(tmp_path / "cache"))


@pytest.mark.cc
def test_isa_of_another_machine_is_refused(tmp_path: Path) -> None:
    cc = find_compiler()
    other = "neon" if cc.machine.startswith("x86_64") else "avx2"
    with pytest.raises(CompilerError, match=f"isa {other} is for .*POLYOPT_CC to a cross compiler"):
        load_kernel(pointwise("k", "a", isa=other), cache=Cache(tmp_path))
    assert not accepts_flags(cc, ("-mno-such-isa",))
    assert accepts_flags(cc, ())


@pytest.mark.cc
def test_device_text_is_refused(tmp_path: Path) -> None:
    cuda = GEMM.__class__(**{**GEMM.__dict__, "dialect": "cuda"})
    with pytest.raises(CompilerError, match="dialect is cuda"):
        load_kernel(cuda, cache=Cache(tmp_path))


@pytest.mark.cc
def test_without_openmp_the_code_is_serial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "has_openmp", lambda c: False)
    build._warned.clear()
    with pytest.warns(UserWarning, match="no OpenMP"):
        f = load_kernel(
            pointwise("par", "a + b * (1 + omp_get_thread_num())", flags=("-fopenmp",), pragma="#pragma omp parallel for"), cache=Cache(tmp_path)
        )
    x, w, y = np.arange(8, dtype=np.float32), np.ones(4, np.float32), np.zeros(8, np.float32)
    f(x, w, y)
    np.testing.assert_array_equal(y, x + 1)


def test_flags_keep_the_meaning_of_floats() -> None:
    assert "-ffp-contract=off" in BASE_FLAGS and "-Werror" in BASE_FLAGS and not any("fast-math" in f for f in BASE_FLAGS)
    assert Compiler(("python", "-m", "ziglang", "cc"), "v", "m").is_zig and not Compiler(("/usr/bin/cc",), "v", "m").is_zig
