"""The on-disk cache of objects and libraries. Takes a key and a builder; gives the path of a file whose checksum has been checked.

An entry is a folder named by its key that holds one file named by its own checksum: one atomic rename publishes it, and a torn or altered file
is seen and rebuilt. Builders of one key exclude each other by a file lock that the system drops when its holder dies; the lock only saves
work, correctness comes from the rename. A folder that cannot be written (read-only, full) is replaced by a temporary one, with one warning.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import filelock
import platformdirs
from blake3 import blake3

from polyopt.errors import CompilerError

DEFAULT_BYTES = 4 << 30
GRACE_S = 600.0  # a file used this recently may be between lookup and load in some process: never evicted
_STALE_S = 7200.0  # work folders older than this belong to processes that died
_warned = threading.Event()


def default_root() -> Path:
    """POLYOPT_CACHE_DIR, else the user's cache folder."""
    chosen = os.environ.get("POLYOPT_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("polyopt"))


def default_limit() -> int:
    """POLYOPT_CACHE_BYTES, else 4 GB."""
    text = os.environ.get("POLYOPT_CACHE_BYTES")
    if text is None:
        return DEFAULT_BYTES
    try:
        limit = int(float(text))
    except (ValueError, OverflowError):
        limit = -1
    if limit < 0:
        raise CompilerError(f"POLYOPT_CACHE_BYTES={text!r}: give a number of bytes")
    return limit


def key_of(*parts: str | bytes) -> str:
    """A hash over length-prefixed parts: no two lists of parts run together."""
    h = blake3()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def key_of_file(path: Path) -> str:
    """A hash over a file's content (BLAKE3: some gigabytes a second). Raises OSError for one that cannot be read."""
    return blake3().update_mmap(path).hexdigest()


@cache
def _fallback_root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="polyopt-cache-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def default_cache() -> Cache:
    """The cache that the environment names; one object for each in a process, so that its size is not taken anew at every build."""
    return _shared(default_root(), default_limit())


@cache
def _shared(root: Path, limit: int) -> Cache:
    return Cache(root, limit)


class Cache:
    """A cache folder. Every method may be called from many threads and processes at once."""

    def __init__(self, root: Path | None = None, limit: int | None = None) -> None:
        self.root = default_root() if root is None else Path(root)
        self.limit = default_limit() if limit is None else limit
        self._added = 0
        self._scanned = False
        self._mutex = threading.Lock()

    def fetch(self, key: str, suffix: str, build: Callable[[Path], Path]) -> Path:
        """The file of `key`; where there is none, `build(folder)` makes it in a private folder and returns its path."""
        found = _lookup(self.root, key, suffix)
        if found is not None:
            return found
        try:
            return self._build(self.root, key, suffix, build)
        except OSError as e:
            self._warn(e)
        try:
            return self._build(_fallback_root(), key, suffix, build)
        except OSError as e:
            raise CompilerError(f"no folder to compile in can be written ({e.strerror or e}): set POLYOPT_CACHE_DIR to one") from None

    def lookup(self, key: str, suffix: str) -> Path | None:
        """The file of `key` if there is one."""
        return _lookup(self.root, key, suffix)

    def drop(self, keys: Iterable[str]) -> None:
        """Throw away the entries of keys. Who has one loaded keeps it: the files are unlinked, not changed."""
        for key in keys:
            for root in (self.root, _fallback_root()) if _warned.is_set() else (self.root,):
                with contextlib.suppress(OSError):
                    for file in _entry(root, key).iterdir():
                        file.unlink()

    def _build(self, root: Path, key: str, suffix: str, build: Callable[[Path], Path]) -> Path:
        with _locked(root, key):
            found = _lookup(root, key, suffix)  # another process may have built it while we waited
            if found is not None:
                return found
            with work_folder(root) as folder:
                entry = _publish(root, key, suffix, build(folder))
        self._note(root, entry)
        return entry

    def _warn(self, error: OSError) -> None:
        if not _warned.is_set():
            _warned.set()
            reason = error.strerror or str(error)
            warnings.warn(
                f"the cache folder {self.root} cannot be written ({reason}): using a temporary one; POLYOPT_CACHE_DIR chooses another",
                stacklevel=4,
            )

    # ---- size limit
    def _note(self, root: Path, entry: Path) -> None:
        with self._mutex:
            with contextlib.suppress(OSError):
                self._added += entry.stat().st_size
            if self._scanned and self._added <= self.limit // 16:
                return
            self._scanned, self._added = True, 0
        with contextlib.suppress(OSError, NotImplementedError, filelock.Timeout), filelock.FileLock(root / "locks" / "evict.lock", timeout=0):
            evict(root, self.limit)


def evict(root: Path, limit: int, *, grace: float = GRACE_S) -> int:
    """Delete least recently used entries until the rest fits in `limit` bytes; gives the bytes freed. Sweeps dead work folders too."""
    now = time.time()
    with contextlib.suppress(OSError):
        for folder in (root / "work").iterdir():
            with contextlib.suppress(OSError):
                if now - folder.stat().st_mtime > _STALE_S:
                    shutil.rmtree(folder, ignore_errors=True)
    files: list[tuple[float, int, Path]] = []
    for file in (root / "entries").glob("*/*/*"):
        with contextlib.suppress(OSError):
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
    total, freed = sum(size for _, size, _ in files), 0
    for used, size, file in sorted(files, key=lambda f: f[0]):
        if total - freed <= limit or now - used < grace:
            break
        with contextlib.suppress(OSError):
            file.unlink()
            freed += size
            file.parent.rmdir()
    return freed


def _entry(root: Path, key: str) -> Path:
    return root / "entries" / key[:2] / key


def _lookup(root: Path, key: str, suffix: str) -> Path | None:
    """The entry's file if its content still has the checksum that is its name; a corrupt one is removed."""
    try:
        names = [f for f in _entry(root, key).iterdir() if f.suffix == suffix]
    except OSError:
        return None
    for file in names:
        with contextlib.suppress(OSError):
            if key_of_file(file) == file.stem:
                with contextlib.suppress(OSError):
                    os.utime(file)
                return file
            file.unlink()
    return None


def _publish(root: Path, key: str, suffix: str, built: Path) -> Path:
    folder = _entry(root, key)
    target = folder / f"{key_of_file(built)}{suffix}"
    for attempt in (0, 1):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            built.replace(target)
            break
        except FileNotFoundError:
            if attempt:  # an eviction removed the empty folder between the two calls
                raise
    return target


@contextlib.contextmanager
def work_folder(root: Path) -> Iterator[Path]:
    """A private folder on the cache's file system, removed afterwards."""
    parent = root / "work"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(root: Path, key: str) -> Iterator[None]:
    """Hold the lock of a key's bucket. Never nested, so buckets may be shared by keys. Without lock support, go on without."""
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / f"{key[:3]}.lock", timeout=1200)
    with contextlib.suppress(filelock.Timeout, NotImplementedError, OSError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
