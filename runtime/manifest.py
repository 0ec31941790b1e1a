"""The artifact's manifest: a JSON object that says what lies in the folder and how the library is called.

Takes a `Program` and facts of the build; gives a dict that is the same for the same build, and reads ports and dims back from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from polyopt.errors import OutputError
from polyopt.ir.affine import Affine, FloorDiv, affine
from polyopt.ir.dtype import BY_NUMPY
from polyopt.ir.program import Port, Program
from polyopt.ir.source import Source

from .compiler import BASE_FLAGS, Compiler
from .ctext import cpu_features
from .header import prefix_of
from .weights import constant_bytes, layout_constants, used_constants

FORMAT = 1


def polyopt_version() -> str:
    """The installed version of polyopt."""
    try:
        return version("polyopt")
    except PackageNotFoundError:
        return "unknown"


# ---- affine expressions as JSON: an int, a dim's name, or terms
def encode_affine(e: Affine) -> Any:
    """An affine expression as JSON."""
    if e.is_const:
        return e.const
    if e.const == 0 and len(e.terms) == 1 and e.terms[0][1] == 1 and isinstance(e.terms[0][0], str):
        return e.terms[0][0]
    terms = [[a if isinstance(a, str) else {"floor": encode_affine(a.num), "by": a.den}, k] for a, k in e.terms]
    return {"text": str(e), "terms": terms, "const": e.const}


def decode_affine(value: Any) -> Affine:
    """The affine expression of `encode_affine`."""
    if isinstance(value, (int, str)):
        return affine(value)
    out = Affine((), int(value["const"]))
    for atom, k in value["terms"]:
        term = affine(atom) if isinstance(atom, str) else Affine(((FloorDiv(decode_affine(atom["floor"]), int(atom["by"])), 1),))
        out = out + term * int(k)
    return out


def encode_port(port: Port) -> dict[str, Any]:
    """An input or output as JSON."""
    return {"name": port.name, "dtype": port.dtype.numpy, "shape": [encode_affine(d) for d in port.shape]}


def decode_port(value: Mapping[str, Any]) -> Port:
    """The port of `encode_port`."""
    return Port(value["name"], BY_NUMPY[value["dtype"]], tuple(decode_affine(d) for d in value["shape"]))


# ---- writing
def build_manifest(
    program: Program, compiler: Compiler, openmp: bool, kernel_files: Mapping[str, str], digest: bytes, files: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest. `kernel_files`: path of each entry's C file; `files`: sha256 of every other file by path."""
    features: set[str] = set()
    for k in program.kernels:
        features |= cpu_features(k.isa, k.flags)
    return {
        "polyopt": polyopt_version(),
        "format": FORMAT,
        "name": program.name,
        "prefix": prefix_of(program),
        "library": f"lib{prefix_of(program)}.so",
        "compiler": {"version": compiler.version, "machine": compiler.machine},
        "flags": list(BASE_FLAGS),
        "openmp": openmp,
        "threads": program.threads,
        "isa": sorted({k.isa for k in program.kernels}),
        "cpu": sorted(features),
        "dims": list(program.dims),
        "inputs": [encode_port(p) for p in program.inputs],
        "outputs": [encode_port(p) for p in program.outputs],
        "kernels": [_kernel(k, kernel_files[k.entry]) for k in program.kernels],
        "calls": [_call(program, i) for i in range(len(program.calls))],
        "memory": {
            "arena_bytes": program.arena_bytes,
            "scratch_bytes": program.scratch_bytes,
            "buffers": [
                {
                    "name": b.name,
                    "elements": [encode_affine(e) for e in b.elements],
                    "itemsize": b.itemsize,
                    "offset": b.offset,
                    "slot": b.slot,
                    "zero": b.zero,
                }
                for b in program.buffers
            ],
        },
        "weights": _weights(program, digest),
        "files": dict(sorted(files.items())),
    }


def _kernel(kernel: Source, file: str) -> dict[str, Any]:
    return {
        "entry": kernel.entry,
        "file": file,
        "isa": kernel.isa,
        "flags": list(kernel.flags),
        "tensors": [{"name": t.name, "dtype": t.dtype.numpy, "role": t.role, "shape": [encode_affine(d) for d in t.shape]} for t in kernel.tensors],
        "params": list(kernel.params),
        "scratch_bytes": kernel.scratch_bytes,
    }


def _call(program: Program, i: int) -> dict[str, Any]:
    call = program.calls[i]
    return {
        "entry": call.entry,
        "label": call.label or call.entry,
        "args": [[a.kind, a.name] for a in call.args],
        "params": [encode_affine(p) for p in call.params],
    }


def _weights(program: Program, digest: bytes) -> dict[str, Any] | None:
    offsets, total = layout_constants(program)
    if not offsets:
        return None
    return {
        "file": f"{prefix_of(program)}.weights",
        "bytes": total,
        "sha256": digest.hex(),
        "constants": [
            {
                "name": name,
                "dtype": program.constants[name].dtype.name,
                "shape": list(program.constants[name].shape),
                "offset": offsets[name],
                "bytes": program.constants[name].nbytes,
                "sha256": hashlib.sha256(constant_bytes(program.constants[name])).hexdigest(),
            }
            for name in used_constants(program)
        ],
    }


# ---- reading
def check_manifest(manifest: Any, where: str) -> dict[str, Any]:
    """Refuse what is no manifest of this version's format."""
    if not isinstance(manifest, dict) or "polyopt" not in manifest or "prefix" not in manifest:
        raise OutputError(f"{where} is not the manifest of a polyopt artifact")
    if manifest.get("format") != FORMAT:
        raise OutputError(f"{where} has format {manifest.get('format')}, and this polyopt reads format {FORMAT}: compile the model again")
    return manifest


def ports_of(manifest: Mapping[str, Any]) -> tuple[Sequence[Port], Sequence[Port]]:
    """Inputs and outputs."""
    return [decode_port(p) for p in manifest["inputs"]], [decode_port(p) for p in manifest["outputs"]]
