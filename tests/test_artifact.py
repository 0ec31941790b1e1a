"""The artifact: built again by make with each compiler, run without Python, equal bytes, all or nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from runtime_samples import N, pointwise, shape, static_program, static_reference, symbolic_program, symbolic_reference, tensor

from polyopt.errors import ArgumentError, CompilerError, OutputError, UserError
from polyopt.ir.affine import Affine, affine, var
from polyopt.ir.dtype import ALL, BY_NUMPY, DType
from polyopt.ir.program import Arg, KernelCall, Port, Program
from polyopt.ir.source import Source
from polyopt.runtime import artifact, publish
from polyopt.runtime.artifact import load_artifact, write_artifact
from polyopt.runtime.cache import Cache
from polyopt.runtime.example import example_inputs
from polyopt.runtime.manifest import decode_affine, encode_affine
from polyopt.target import cpu_flags

cc = pytest.mark.cc
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make not found")


def tree(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def run(*command: Any, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def shown(stdout: str) -> dict[str, tuple[tuple[int, ...], float, list[float]]]:
    """What example.c printed: shape, sum, values by output."""
    out = {}
    for name, sizes, total, values in re.findall(r"^(\S+) \w+ \((.*)\)\n  sum (.*)\n  values(.*)$", stdout, re.M):
        out[name] = (tuple(int(s) for s in sizes.split(",") if s.strip()), float(total), [float(v) for v in values.split()])
    return out


def check_shown(stdout: str, want: Mapping[str, np.ndarray[Any, Any]]) -> None:
    got = shown(stdout)
    assert list(got) == list(want)
    for name, (sizes, total, values) in got.items():
        assert sizes == want[name].shape
        np.testing.assert_allclose(total, want[name].sum(dtype=np.float64), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(values, want[name].ravel()[:8].astype(float), rtol=1e-5, atol=1e-7)


def copy_program(dtypes: list[DType]) -> Program:
    kernels, calls = [], []
    for d in dtypes:
        text = f"#include <stdint.h>\nvoid copy_{d.name}(const {d.ctype} *restrict x, {d.ctype} *restrict y, int64_t N) {{\n"
        text += "  for (int64_t i = 0; i < N; i++) y[i] = x[i];\n}\n"
        kernels.append(Source(text, f"copy_{d.name}", (tensor("x", (N,), "input", d), tensor("y", (N,), "output", d)), params=("N",)))
        calls.append(KernelCall(f"copy_{d.name}", (Arg("input", f"x_{d.name}"), Arg("output", f"y_{d.name}")), (affine("N"),)))
    return Program(
        "dtypes", tuple(Port(f"x_{d.name}", d, shape(N)) for d in dtypes), tuple(Port(f"y_{d.name}", d, shape(N)) for d in dtypes), ("N",),
        tuple(kernels), tuple(calls), (), 0, {},
    )  # fmt: skip


def test_affine_as_json() -> None:
    n, m = var("N"), var("M")
    for e in (affine(3), n, 2 * n - m + 7, (n + 3) // 4 + 2 * ((m - n // 2) // 5), Affine((), 0)):
        assert decode_affine(json.loads(json.dumps(encode_affine(e)))) == e


@cc
def test_files_and_manifest(tmp_path: Path) -> None:
    p = static_program()
    written = write_artifact(p, tmp_path / "new" / "out", extra_files={"certificate.json": b"{}", "doc/note.txt": b"hello"})
    folder = tmp_path / "new" / "out"
    names = {f.relative_to(folder).as_posix() for f in written}
    assert names == set(tree(folder)) == {
        "tiny_model.c", "tiny_model.h", "tiny_model.weights", "libtiny_model.so", "manifest.json", "Makefile", "example.c",
        "kernels/scale.c", "kernels/shift.c", "kernels/row_sum.c", "certificate.json", "doc/note.txt",
    }  # fmt: skip
    assert [x.name for x in folder.parent.iterdir()] == ["out"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"] == {k: v for k, v in tree(folder).items() if k != "manifest.json"}
    weights = (folder / "tiny_model.weights").read_bytes()
    assert len(weights) == manifest["weights"]["bytes"] and hashlib.sha256(weights[64:]).hexdigest() == manifest["weights"]["sha256"]
    assert [c["name"] for c in manifest["weights"]["constants"]] == ["w0", "w1"]
    for c in manifest["weights"]["constants"]:
        data = weights[c["offset"] : c["offset"] + c["bytes"]]
        assert c["offset"] % 64 == 0 and hashlib.sha256(data).hexdigest() == c["sha256"]
        np.testing.assert_array_equal(np.frombuffer(data, c["dtype"]).reshape(c["shape"]), p.constants[c["name"]])
    assert (folder.stat().st_mode & 0o777) == (tmp_path.stat().st_mode & 0o777 | 0o055) or os.name != "posix"
    x = np.random.default_rng(0).random((2, 8), np.float32)
    got, want = load_artifact(folder).run({"x": x}), static_reference(x)
    for k in want:
        np.testing.assert_allclose(got[k], want[k], rtol=1e-6)


@cc
def test_equal_bytes_wherever_it_is_built(tmp_path: Path) -> None:
    write_artifact(symbolic_program(), tmp_path / "a", cache=Cache(tmp_path / "cache1"))
    write_artifact(symbolic_program(), tmp_path / "b" / "c", cache=Cache(tmp_path / "deeper" / "cache2"))
    write_artifact(symbolic_program(), tmp_path / "b" / "c", cache=Cache(tmp_path / "deeper" / "cache2"))
    assert tree(tmp_path / "a") == tree(tmp_path / "b" / "c")


@cc
@needs_make
@pytest.mark.parametrize("command", ["gcc", "clang-19"])
def test_make_and_example(command: str, tmp_path: Path) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"{command} not found")
    program = symbolic_program("sym model", flags=("-mavx2",) if "avx2" in cpu_flags() else ())
    write_artifact(program, tmp_path / "o")
    folder = (tmp_path / "o").rename(tmp_path / "moved away")
    done = run("make", "-C", folder, "clean", "all", f"CC={command}")
    assert "warning" not in done.stdout + done.stderr
    x = example_inputs(program.inputs, {"M": 7, "N": 9})["x"]
    check_shown(run(folder / "example", "--dim", "M=7", "--dim", "N=9").stdout, {"z": symbolic_reference(x)})
    np.testing.assert_allclose(load_artifact(folder)(x), symbolic_reference(x), rtol=1e-5)  # the library that make built
    mine = np.random.default_rng(0).random((2, 8), np.float32)
    mine.tofile(tmp_path / "x.bin")
    done = run(folder / "example", "--dim", "M=2", "--dim", "N=2", "--repeat", "2", tmp_path / "x.bin")
    check_shown(done.stdout, {"z": symbolic_reference(mine)})
    assert "best of 2" in done.stderr
    assert "expected 48 bytes" in run(folder / "example", "--dim", "M=3", tmp_path / "x.bin", code=1).stderr
    assert "no such dim" in run(folder / "example", "--dim", "Q=3", code=1).stderr
    assert "NAME=SIZE" in run(folder / "example", "--dim", "N=x", code=1).stderr
    (folder / "sym_model.weights").rename(tmp_path / "w")
    assert "cannot read the weights" in run(folder / "example", code=1).stderr
    needed = run("ldd", folder / "libsym_model.so").stdout if shutil.which("ldd") else ""
    assert not set(re.findall(r"(lib\w+)\.so", needed)) - {"libm", "libc", "libsym_model"}


@cc
@needs_make
def test_openmp_artifact(tmp_path: Path) -> None:
    program = symbolic_program("par", flags=("-fopenmp",), pragma="#pragma omp parallel for", threads=2)
    write_artifact(program, tmp_path / "o")
    x = example_inputs(program.inputs, {"M": 7, "N": 9})["x"]
    want = {"z": symbolic_reference(x)}
    for serial in ([], ["OPENMP="]):
        run("make", "-C", tmp_path / "o", "clean", "all", "CC=gcc" if shutil.which("gcc") else "CC=cc", *serial)
        check_shown(run(tmp_path / "o" / "example", "--dim", "M=7", "--dim", "N=9", "--threads", "2").stdout, want)


@cc
@needs_make
def test_every_dtype_in_the_example(tmp_path: Path) -> None:
    dtypes = [d for d in ALL if d.name != "f16"] + [BY_NUMPY["float16"]]
    program = copy_program(dtypes)
    write_artifact(program, tmp_path / "o")
    run("make", "-C", tmp_path / "o", "example")
    feeds = example_inputs(program.inputs, {"N": 3000})
    stdout = run(tmp_path / "o" / "example", "--dim", "N=3000").stdout
    check_shown(stdout, {f"y_{d.name}": feeds[f"x_{d.name}"].astype(np.float64) for d in dtypes})
    got = load_artifact(tmp_path / "o").run(feeds)
    for d in dtypes:
        np.testing.assert_array_equal(got[f"y_{d.name}"], feeds[f"x_{d.name}"])
    # values outside what the generator makes: special halves and bfloat16s through files
    special = np.array([0.0, -0.0, 6e-8, -6.1e-5, 65504, np.inf, -np.inf, 1 / 3], np.float16)
    brain = np.array([0.0, 1e-40, 3e38, -1, np.inf, 0.1, 2, 3], ml_dtypes.bfloat16)
    special.tofile(tmp_path / "h.bin")
    brain.tofile(tmp_path / "b.bin")
    files = [tmp_path / "h.bin" if d.name == "f16" else tmp_path / "b.bin" if d.name == "bf16" else "-" for d in dtypes]
    got = shown(run(tmp_path / "o" / "example", "--dim", "N=8", *files).stdout)
    np.testing.assert_allclose(got["y_f16"][2], special.astype(float), rtol=1e-8)
    np.testing.assert_allclose(got["y_bf16"][2], brain.astype(float), rtol=1e-8)


@cc
def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    p = static_program()
    write_artifact(p, tmp_path / "a")
    other = Program(**{**p.__dict__, "constants": {**p.constants, "w0": p.constants["w0"] + 1}})
    write_artifact(other, tmp_path / "b")
    shutil.copy(tmp_path / "b" / "tiny_model.weights", tmp_path / "a")
    with pytest.raises(UserError, match="not those of this library: their digest differs"):
        load_artifact(tmp_path / "a")
    (tmp_path / "a" / "tiny_model.weights").write_bytes(b"short")
    with pytest.raises(UserError, match="not those of this library: expected"):
        load_artifact(tmp_path / "a")
    (tmp_path / "a" / "tiny_model.weights").unlink()
    with pytest.raises(UserError, match="cannot read the weights"):
        load_artifact(tmp_path / "a")


@cc
def test_what_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is no polyopt artifact"):
        load_artifact(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArgumentError, match="is not JSON"):
        load_artifact(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="not the manifest"):
        load_artifact(tmp_path)
    write_artifact(static_program(), tmp_path / "o")
    with pytest.raises(ArgumentError, match="threads=0"):
        load_artifact(tmp_path / "o", threads=0)
    (tmp_path / "o" / "libtiny_model.so").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(CompilerError, match="cannot be loaded"):
        load_artifact(tmp_path / "o")
    (tmp_path / "o" / "libtiny_model.so").unlink()
    with pytest.raises(OutputError, match="run `make -C"):
        load_artifact(tmp_path / "o")


@cc
def test_replaces_its_own_files_only(tmp_path: Path) -> None:
    out = tmp_path / "o"
    out.mkdir()
    write_artifact(static_program(), out, extra_files={"doc/note.txt": b"old"})  # an empty folder is taken
    (out / "mine.txt").write_text("mine")
    write_artifact(symbolic_program(), out)
    assert (out / "mine.txt").read_text() == "mine"
    assert "libtiny_model.so" not in tree(out) and "libsym.so" in tree(out) and not (out / "doc").exists()
    assert not [f for f in out.iterdir() if f.name.startswith(".")]
    x = np.ones((2, 8), np.float32)
    write_artifact(symbolic_program("m"), out)
    first = load_artifact(out)(x)
    p = symbolic_program("m")
    write_artifact(Program(**{**p.__dict__, "kernels": (pointwise_rows(p), p.kernels[1])}), out)
    second = load_artifact(out)(x)  # the new library, although one of this path is loaded
    np.testing.assert_allclose(second, first + 8, rtol=1e-6)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="is not empty and holds no polyopt artifact"):
        write_artifact(static_program(), tmp_path / "foreign")
    with pytest.raises(OutputError, match="is a file, expected a folder"):
        write_artifact(static_program(), tmp_path / "foreign" / "thesis.tex")
    assert list(tree(tmp_path / "foreign")) == ["thesis.tex"]


def pointwise_rows(p: Program) -> Source:
    kernel = p.kernels[0]
    return Source(**{**kernel.__dict__, "text": kernel.text.replace("+ v[j % 4]", "+ v[j % 4] + 1.0f")})


@cc
def test_a_failure_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep" / "o"
    write_weights, write_text = artifact._write_weights, Path.write_text

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifact, "_write_weights", full)
    with pytest.raises(OutputError, match=f"{out} cannot be written: No space left"):
        write_artifact(static_program(), out)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(artifact, "_write_weights", write_weights)
    write_artifact(static_program(), out)
    before = tree(out)

    def no_manifest(self: Path, *args: Any, **kwargs: Any) -> int:
        if self.name == "manifest.json":
            full()
        return write_text(self, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", no_manifest)
    with pytest.raises(OutputError):
        write_artifact(symbolic_program(), out)
    monkeypatch.setattr(Path, "write_text", write_text)
    rename, count = Path.rename, [0]

    def failing(self: Path, target: Path) -> Path:  # in the middle of the exchange
        count[0] += 1
        if count[0] == 14:
            full()
        return rename(self, target)

    monkeypatch.setattr(publish.Path, "rename", failing)
    with pytest.raises(OutputError):
        write_artifact(symbolic_program(), out)
    assert tree(out) == before and [f.name for f in out.parent.iterdir()] == ["o"]
    monkeypatch.setattr(publish.Path, "rename", rename)
    with pytest.raises(OutputError, match="cannot be"):
        write_artifact(static_program(), tmp_path / "deep" / "o" / "Makefile" / "below")
    for path in ("../x", "/x", "tiny_model.c", "manifest.json", ""):
        with pytest.raises(OutputError, match="extra file"):
            write_artifact(static_program(), out, extra_files={path: b""})
    broken = Program(**{**static_program().__dict__, "kernels": (pointwise("scale", "nothing"), *static_program().kernels[1:])})
    with pytest.raises(CompilerError):
        write_artifact(broken, out)
    assert tree(out) == before


def test_many_write_one_folder_at_once(tmp_path: Path) -> None:
    """Each puts its whole set of files there, one after the other."""

    def write(k: int) -> None:
        def fill(folder: Path) -> None:
            files = {f"f{i}": str(k) for i in range(20)}
            for name, text in files.items():
                (folder / name).write_text(text)
            (folder / publish.MANIFEST).write_text(json.dumps({"polyopt": "0", "files": files}))

        publish.publish(tmp_path / "deep" / "o", fill)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    files = sorted((tmp_path / "deep" / "o").iterdir())
    assert len(files) == 21 and len({f.read_text() for f in files if f.name != publish.MANIFEST}) == 1
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["o"]


@cc
def test_names(tmp_path: Path) -> None:
    write_artifact(static_program(), tmp_path / "o", name="9 net/é")
    assert (tmp_path / "o" / "libm_9_net__.so").exists()
    assert load_artifact(tmp_path / "o").name == "m_9_net__"
    for name in ("m", "C", "gomp", "stdc++", "math", "omp"):  # names of libraries and headers of the system
        made = {p.name for p in write_artifact(static_program(), tmp_path / "s", name=name)}
        prefix = f"m_{name.replace('+', '_')}"
        assert {f"lib{prefix}.so", f"{prefix}.h"} <= made, made
        assert load_artifact(tmp_path / "s").name == name.replace("+", "_")
    clash = static_program("row")  # a kernel that is called row_run
    kernel = clash.kernels[0]
    renamed = Source(**{**kernel.__dict__, "entry": "row_run", "text": kernel.text.replace("scale", "row_run")})
    calls = tuple(KernelCall("row_run" if c.entry == "scale" else c.entry, c.args, c.params) for c in clash.calls)
    write_artifact(Program(**{**clash.__dict__, "kernels": (renamed, *clash.kernels[1:]), "calls": calls}), tmp_path / "p")
    x = np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(load_artifact(tmp_path / "p")(x)[1], static_reference(x)["y"])


@cc
@needs_make
@pytest.mark.parametrize("name", ["example", "Makefile", "c"])  # names of the artifact's own files, and of a library that every program links
def test_make_of_a_model_that_is_called_like_something_else(name: str, tmp_path: Path) -> None:
    p = static_program()
    write_artifact(p, tmp_path / "o", name=name)
    run("make", "-C", tmp_path / "o")
    done = run(tmp_path / "o" / "example")
    check_shown(done.stdout, static_reference(example_inputs(p.inputs, {})["x"]))


@pytest.mark.qemu
@needs_make
def test_builds_and_runs_on_aarch64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    x = example_inputs(symbolic_program().inputs, {"M": 7, "N": 9})["x"]
    p = symbolic_program()
    neon = Program(**{**p.__dict__, "kernels": tuple(Source(**{**k.__dict__, "isa": "neon"}) for k in p.kernels)})
    monkeypatch.setenv("POLYOPT_CC", "aarch64-linux-gnu-gcc")
    write_artifact(neon, tmp_path / "o")
    if os.uname().machine != "aarch64":
        with pytest.raises(CompilerError, match="code for another machine"):
            load_artifact(tmp_path / "o")
    run("make", "-C", tmp_path / "o", "example", "CC=aarch64-linux-gnu-gcc")  # with the library that was cross-compiled
    done = run(qemu, "-L", "/usr/aarch64-linux-gnu", tmp_path / "o" / "example", "--dim", "M=7", "--dim", "N=9")
    check_shown(done.stdout, {"z": symbolic_reference(x)})
