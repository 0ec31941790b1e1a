"""Put a finished set of files into a folder: all or nothing.

Takes a folder and a function that fills a private one beside it; gives the paths written. A new folder appears by one rename. In an old artifact
files are exchanged one by one, manifest last, and put back if one exchange fails; files of the user in it are left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from polyopt.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"


def publish(directory: Path, fill: Callable[[Path], None]) -> list[Path]:
    """Fill a private folder, then move its files to `directory`. Raises OutputError where that cannot be written; nothing is left then."""
    directory = directory.absolute()
    made = [p for p in [*reversed(directory.parents)] if not p.exists()]
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _alone(directory.parent), _private(directory, (old := _old_files(directory)) is not None) as folder:
            fill(folder)
            files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
            if old is None:
                folder.rename(directory)
            else:
                _exchange(folder, directory, files, old)
    except BaseException as e:
        for parent in reversed(made):
            with contextlib.suppress(OSError):
                parent.rmdir()
        if isinstance(e, OSError):
            raise OutputError(f"the folder {directory} cannot be written: {e.strerror or e}") from None
        raise
    return [directory / f for f in files]


def _old_files(directory: Path) -> list[Path] | None:
    """The files of the artifact that lies there; none for an empty folder; None where there is no folder yet."""
    try:
        if not directory.exists():
            if directory.is_symlink():
                raise OutputError(f"{directory} is a link to nothing: choose another folder")
            return None
        if not directory.is_dir():
            raise OutputError(f"{directory} is a file, expected a folder: choose another path")
        present = any(directory.iterdir())
        if not present:
            return []
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or "polyopt" not in manifest or not isinstance(manifest.get("files"), dict):
            raise ValueError
        return [Path(f) for f in (*manifest["files"], MANIFEST) if _is_inside(f)]
    except (FileNotFoundError, ValueError):
        raise OutputError(f"the folder {directory} is not empty and holds no polyopt artifact: choose another, or empty it") from None
    except OSError as e:
        raise OutputError(f"the folder {directory} cannot be read: {e.strerror or e}") from None


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Let one process at a time publish into a folder; no file is left. Without locks on that file system, or on Windows, all may."""
    if fcntl is None:
        yield
        return
    lock = os.open(parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _private(directory: Path, inside: bool) -> Iterator[Path]:
    """A private folder on the file system of `directory`: in it where it exists (it may be a mount point), else beside it."""
    parent = directory if inside else directory.parent
    folder = parent / f".{directory.name}.{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exchange(folder: Path, directory: Path, files: list[Path], old: list[Path]) -> None:
    backup = folder / ".old"
    moves: list[tuple[Path, Path]] = []  # what was moved from where to where, to be undone in reverse

    def move(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        moves.append((source, target))

    try:
        for name in sorted({*files, *old}, key=lambda f: (f != Path(MANIFEST), str(f))):
            if (directory / name).exists():
                move(directory / name, backup / name)
        for name in sorted(files, key=lambda f: (f == Path(MANIFEST), str(f))):
            move(folder / name, directory / name)
    except BaseException:
        for source, target in reversed(moves):
            target.rename(source)
        raise
    for name in old:
        with contextlib.suppress(OSError):  # folders that are empty now
            if name.parent != Path():
                (directory / name.parent).rmdir()
