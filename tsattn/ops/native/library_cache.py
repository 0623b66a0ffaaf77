"""Libraries that were compiled on this machine, in a folder that nobody but their owner can write to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tsattn.ops.native.instruction_sets import InstructionSet
from tsattn.ops.native.kernel_compiler import (
    COMPILE_SECONDS,
    CompileError,
    Compiler,
    KernelError,
    compile_library,
    source_digest,
)

__all__ = ["CacheError", "LibraryCache", "cache_folder"]


class CacheError(KernelError):
    """A folder that libraries cannot be kept in."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tsattn/kernels`, or `~/.cache/tsattn/kernels` where that is not set, or not an absolute path.

    Raises:
        CacheError: where there is no home.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen / "tsattn" / "kernels"
    try:
        return Path.home() / ".cache" / "tsattn" / "kernels"
    except RuntimeError:
        raise CacheError("there is no home folder to keep kernels in") from None


class LibraryCache:
    """The libraries of one folder, each in a file whose name says what it was made from, and what is in it.

    A file that is not what its name says, such as one that was cut short, counts as not there.

    Args:
        folder: made with mode 0700 if it is not there.

    Raises:
        CacheError: if it cannot be made or written to, or if others can write to it, or to the two folders around it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self.folder = folder.resolve(strict=True)
            own, around = (self.folder, self.folder.parent), self.folder.parent.parent
            for place in (*own, around):
                # in folders such as /tmp only owners take away or rename
                if others_can_write(place) and not (place == around and _is_sticky(place)):
                    raise CacheError(f"others can write to {place}, so kernels are not loaded from there")
        except OSError as error:
            raise CacheError(f"{folder} cannot be made: {error.strerror or error}") from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise CacheError(f"{folder} cannot be written to")

    def find(self, one: InstructionSet, compiler: Compiler | None) -> Path | None:
        """The library that a compiler made for an instruction set from these sources; any compiler's for None.

        Raises:
            CacheError: if others can write to it.
        """
        pattern = f"{self._stem(one, compiler)}-*.so" if compiler else f"{self._stem(one, None)}-*-*.so"
        for path in sorted(self.folder.glob(pattern)):
            with contextlib.suppress(OSError):  # another process has just taken it away
                if others_can_write(path):
                    raise CacheError(f"others can write to {path}, so it is not loaded")
                if stat.S_ISREG(path.lstat().st_mode) and path.stem.split("-")[-1] == _digest(path):
                    return path
        return None

    def build(self, one: InstructionSet, compiler: Compiler, *, anew: bool = False) -> Path:
        """The library, compiled if it is not there; of several processes one compiles, and the others wait.

        Args:
            one: the instruction set.
            compiler: what compiles.
            anew: whether to compile although it is there.

        Raises:
            CompileError: if it cannot be compiled, now or when that was last tried.
            CacheError: if it cannot be kept.
        """
        stem = self._stem(one, compiler)
        note = self.folder / f"{stem}.failed"  # so that not every process tries and fails again
        with self._lock(stem):
            found = self.find(one, compiler)
            if found and not anew:
                return found
            if note.exists() and not anew:
                what = note.read_text(errors="replace").strip()
                raise CompileError(f"{what} (`tsattn kernels --build` tries again)", known=True)
            note.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(prefix="new-", dir=self.folder) as folder:  # of mode 0700
                made = Path(folder) / "library.so"
                try:
                    compile_library(compiler, one.flags, made)
                except CompileError as error:
                    note.write_text(f"{error}\n")
                    raise
                made.chmod(0o700)
                before = list(self.folder.glob(f"{stem}-*.so"))
                path = self.folder / f"{stem}-{_digest(made)}.so"
                os.replace(made, path)
            for old in before:
                if old != path:
                    old.unlink(missing_ok=True)
            return path

    def _stem(self, one: InstructionSet, compiler: Compiler | None) -> str:
        """The beginning of the names of files; without a compiler, of those of all compilers."""
        made_from = hashlib.sha256(f"{platform.machine()} {one.flags} {source_digest()}".encode()).hexdigest()[:16]
        if compiler is None:
            return f"{one.name}-{made_from}"
        return f"{one.name}-{made_from}-{hashlib.sha256(repr(compiler).encode()).hexdigest()[:16]}"

    @contextlib.contextmanager
    def _lock(self, stem: str) -> Iterator[None]:
        try:
            with FileLock(self.folder / f"{stem}.lock", timeout=2 * COMPILE_SECONDS, mode=0o600):
                yield
        except Timeout:
            raise CacheError(f"another process has been compiling into {self.folder} for too long") from None
        except (OSError, NotImplementedError) as error:
            raise CacheError(f"{self.folder} cannot be used: {error}") from None


def others_can_write(path: Path) -> bool:
    """Whether anyone but this user and the system can change what is at a path, which may be a link."""
    found = path.lstat()
    if found.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISLNK(found.st_mode):  # its mode says nothing
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)))


def _is_sticky(folder: Path) -> bool:
    found = folder.stat()
    return bool(found.st_mode & stat.S_ISVTX) and found.st_uid in (0, os.geteuid())


def _is_private(group: int) -> bool:
    """Whether a group is this user's alone, as many systems make one for each user."""
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return found.gr_gid == user.pw_gid and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
