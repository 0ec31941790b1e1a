"""Whether a file is an object or a shared object at all. Takes a path that a compiler wrote; gives what is wrong with it, or nothing.

Only what tells a whole file from rubbish is read: the magic number, and for ELF that the sections lie inside the file. What it holds is
the linker's and the loader's business.
"""

from __future__ import annotations

from pathlib import Path

_MAGICS = (
    b"\x7fELF",
    *(b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"),  # Mach-O
    *(b"MZ", b"\x64\x86", b"\x64\xaa", b"\x4c\x01"),  # PE and COFF
    *(b"BC\xc0\xde", b"\xde\xc0\x17\x0b"),  # LLVM's bitcode
)


def defect_of(path: Path) -> str:
    """What shows that a file is no whole object or library; empty for one that may be."""
    size = path.stat().st_size
    with path.open("rb") as f:
        head = f.read(64)
    if not head.startswith(_MAGICS):
        return "is no object file" if head else "is empty"
    if head.startswith(b"\x7fELF") and _end_of_sections(head) > size:
        return "is cut off"
    return ""


def _end_of_sections(head: bytes) -> int:
    """Where the section table of an ELF file ends."""
    if len(head) < 64:
        return 64
    order = "big" if head[5] == 2 else "little"
    at, first, width = (60, 40, 8) if head[4] == 2 else (48, 32, 4)
    start = int.from_bytes(head[first : first + width], order)  # type: ignore[arg-type]
    entry, count = (int.from_bytes(head[p : p + 2], order) for p in (at - 2, at))  # type: ignore[arg-type]
    return start + entry * count
