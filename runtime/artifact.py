"""The Python-free artifact: C files, header, weights, manifest, Makefile, example and the built library in one folder.

Takes a `Program`; gives the folder, and loads one back. Equal programs give equal bytes. The folder is written as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyopt.errors import ArgumentError, OutputError
from polyopt.ir.program import Program

from .build import build_library, choose_compiler, wants_openmp
from .cache import Cache
from .compiler import SERIAL_HEADER, Compiler, Unit
from .ctext import identifier
from .example import emit_example
from .header import emit_header, prefix_of
from .load import check_kernels, check_threads, open_library, program_units
from .makefile import emit_makefile
from .manifest import build_manifest, check_manifest, ports_of
from .model import CompiledModel, ModelLibrary
from .publish import MANIFEST, publish
from .weights import used_constants, weight_chunks, weights_digest, weights_header

KERNELS = "kernels"


def write_artifact(
    program: Program,
    directory: str | os.PathLike[str],
    *,
    name: str | None = None,
    extra_files: Mapping[str, bytes] | None = None,
    cache: Cache | None = None,
    compiler: Compiler | None = None,
) -> list[Path]:
    """Build the program and write its artifact; gives the paths written.

    name: of the library and its C functions (the program's by default), made a C identifier. extra_files: bytes by relative path, listed in the
    manifest. Raises OutputError where the folder cannot be written or holds something else, CompilerError where the code cannot be built.
    """
    program = replace(program, name=program.name if name is None else name)
    program = replace(program, name=identifier(program.name))
    prefix = prefix_of(program)
    digest = weights_digest(program) if used_constants(program) else b""
    units = program_units(program, digest)
    compiler, built = choose_compiler(units, compiler)
    check_kernels(compiler, program.kernels)
    placed = [(u.name if i == 0 else f"{KERNELS}/{u.name}", u) for i, u in enumerate(units)]
    texts = _texts(program, placed)
    reserved = {*texts, MANIFEST, f"{prefix}.weights", f"lib{prefix}.so", "example"}
    extra = dict(extra_files or {})
    for path in extra:
        if path in reserved or Path(path).is_absolute() or ".." in Path(path).parts or not Path(path).parts:
            raise OutputError(f"extra file {path!r}: give a relative path that the artifact does not use itself")
    library = build_library(units, cache=cache, compiler=compiler, soname=f"lib{prefix}.so")
    openmp = wants_openmp(built)

    def fill(folder: Path) -> None:
        for path, data in {**{p: t.encode() for p, t in texts.items()}, **extra}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        if digest:
            _write_weights(program, digest, folder / f"{prefix}.weights")
        shutil.copyfile(library, folder / f"lib{prefix}.so")
        (folder / f"lib{prefix}.so").chmod(0o755)
        sums = {p.relative_to(folder).as_posix(): _sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
        files = {k.entry: f"{KERNELS}/{k.entry}.c" for k in program.kernels}
        manifest = build_manifest(program, compiler, openmp, files, digest, sums)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    return publish(Path(directory), fill)


def _texts(program: Program, placed: list[tuple[str, Unit]]) -> dict[str, str]:
    prefix = prefix_of(program)
    texts = {f"{path}.c": unit.text for path, unit in placed}
    texts[f"{prefix}.h"] = emit_header(program)
    texts["example.c"] = emit_example(program)
    openmp = wants_openmp([u for _, u in placed])
    texts["Makefile"] = emit_makefile(prefix, placed, openmp=openmp)
    if openmp:
        texts[SERIAL_HEADER[0]] = SERIAL_HEADER[1]
    return texts


def _write_weights(program: Program, digest: bytes, path: Path) -> None:
    with path.open("wb") as f:
        f.write(weights_header(digest))
        for chunk in weight_chunks(program):
            f.write(chunk)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def load_artifact(directory: str | os.PathLike[str], *, threads: int | None = None) -> CompiledModel:
    """Load an artifact's library; `threads` at most what it was compiled for."""
    check_threads(threads)
    folder = Path(directory).absolute()
    manifest = read_manifest(folder)
    path = folder / manifest["library"]
    if not path.is_file():
        raise OutputError(f"{path} is missing: run `make -C {folder}`, or compile the model again")
    library = ModelLibrary(open_library(path), manifest["prefix"])
    weights = os.fsencode(folder / manifest["weights"]["file"]) if manifest["weights"] else None
    inputs, outputs = ports_of(manifest)

    def create(error: Any, size: int) -> int | None:
        handle: int | None = library.create(weights, error, size)
        return handle

    return CompiledModel(
        manifest["name"], inputs, outputs, manifest["dims"], library, create,
        labels=[c["label"] for c in manifest["calls"]], threads=threads or manifest["threads"], path=str(path),
    )  # fmt: skip


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of an artifact's folder."""
    path = directory / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ArgumentError(f"{directory} is no polyopt artifact: it has no {MANIFEST}") from None
    except (OSError, ValueError) as e:
        raise ArgumentError(f"{path} cannot be read: {e}") from None
    try:
        return check_manifest(json.loads(text), str(path))
    except json.JSONDecodeError as e:
        raise ArgumentError(f"{path} is not JSON: {e}") from None
