"""Find the compiled kernels: included in this package, else compiled at the first use and kept, else none.

Libraries that this machine compiled lie in a folder that only its owner can write to. Each file name has a digest of
the content, so a foreign or half-written library is never loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from tsattn.errors import UserError, one_of
from tsattn.ops.native.kernel_compiler import (
    COMPILE_SECONDS,
    INSTRUCTION_SETS,
    CompileError,
    Compiler,
    InstructionSet,
    KernelError,
    compile_library,
    compilers,
    sets_of_this_cpu,
    source_digest,
)
from tsattn.ops.native.kernel_problem import DropoutProblem, KernelProblem, what_is_wrong
from tsattn.saved_folders import sha256

logger = logging.getLogger("tsattn")

COMPILED = Path(__file__).with_name("compiled")

VARIABLE = "TSATTN_KERNELS"

_PROBLEM = ctypes.POINTER(KernelProblem)

# arguments and results of the functions of a library
_FUNCTIONS: dict[str, tuple[list[type], type]] = {
    "tsattn_forward": ([_PROBLEM], ctypes.c_int),
    "tsattn_backward": ([_PROBLEM], ctypes.c_int),
    "tsattn_dropout": ([ctypes.POINTER(DropoutProblem)], ctypes.c_int),
    "tsattn_work": ([_PROBLEM, ctypes.c_int], ctypes.c_double),
    "tsattn_takes_bfloat16": ([], ctypes.c_int),
    "tsattn_lanes": ([], ctypes.c_int),
    "tsattn_tile_keys": ([], ctypes.c_int),
}

_OFF = f"{VARIABLE}=off"
_NO_COMPILER = "there is no C++ compiler, and this tsattn came without compiled kernels for this CPU"


@dataclass(frozen=True)
class KernelLibrary:
    """The result of a search for the kernels.

    Args:
        library: the loaded library, or None.
        why_none: one clause, if there is no library.
        instruction_set: the set that it was compiled for.
        path: its file.
        compiler: the compiler that made it, if known.
        complaints: errors during the search.
    """

    library: ctypes.CDLL | None = None
    why_none: str | None = None
    instruction_set: InstructionSet | None = None
    path: Path | None = None
    compiler: Compiler | None = None
    complaints: tuple[KernelError, ...] = ()

    @property
    def came_along(self) -> bool:
        """Whether the library is included in this package, not compiled on this machine."""
        return self.path is not None and self.path.parent == COMPILED


_found: dict[str, KernelLibrary] = {}
_lock = threading.Lock()
_word_taken: str | None = None


def _forget_lock() -> None:
    """Replace the lock in a child process: another thread of its parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def load_kernels() -> ctypes.CDLL | None:
    """Load the compiled kernels, found at the first call and kept; None if there are none.

    `tsattn_forward` and `tsattn_backward` return 0 for success. Errors are 1 (not enough memory) and 2 (unsupported
    arguments). `tsattn_work` counts their operations. The environment variable `TSATTN_KERNELS` is `auto` by default,
    `off`, or the name of an instruction set.

    Raises:
        UserError: if `TSATTN_KERNELS` is another word, or an instruction set that this CPU lacks.
    """
    return _kept().library


def why_no_kernels() -> str | None:
    """Why `load_kernels` gives None, as a clause for messages; None if it does not. It raises the same errors."""
    return _kept().why_none


# as `torch.compiler.assume_constant_result` does, which imports the compiler: a graph cannot look for files
why_no_kernels._dynamo_marked_constant = True  # type: ignore[attr-defined]


def set_in_use() -> str:
    """The name of the instruction set of the kernels; "off" without."""
    found = _kept().instruction_set
    return "off" if found is None else found.name


@contextlib.contextmanager
def kernels_taken(word: str) -> Iterator[None]:
    """Use the kernels of one instruction set, or none for "off", whatever `TSATTN_KERNELS` says.

    Raises:
        UserError: if this machine cannot use them.
    """
    global _word_taken
    if word != "off" and (why_none := _look_up(word).why_none) is not None:
        raise UserError(f"there are no kernels for {word}: {why_none}")
    before = _word_taken
    _word_taken = word
    try:
        yield
    finally:
        _word_taken = before


def _kept() -> KernelLibrary:
    return _look_up(os.environ.get(VARIABLE, "") if _word_taken is None else _word_taken)


def _look_up(word: str) -> KernelLibrary:
    kept = _found.get(word)
    if kept is not None:
        return kept
    with _lock:
        if word not in _found:
            _found[word] = find_library(word)
            _log(_found[word])
        return _found[word]


def _log(found: KernelLibrary) -> None:
    """Log a line if kernels are missing; as a warning if something is broken and was not logged before."""
    if found.complaints:
        level = logging.INFO if all(one.known for one in found.complaints) else logging.WARNING
        result = "the plain paths are taken" if found.library is None else f"the kernels in use are {found.path}"
        logger.log(level, "native kernels: %s; %s", _listed(found.complaints), result)
    elif found.why_none and found.why_none != _OFF:
        logger.info("no native kernels: %s", found.why_none)


def _listed(complaints: Sequence[KernelError]) -> str:
    return "; ".join(dict.fromkeys(map(str, complaints)))


def chosen_sets(word: str) -> list[InstructionSet]:
    """The instruction sets that `word`, a value of `TSATTN_KERNELS` other than "off", allows, best first."""
    here = sets_of_this_cpu()
    if word in ("", "auto"):
        return [one for one in here if one.automatic]
    if word not in INSTRUCTION_SETS:
        raise UserError(f"{VARIABLE} must be one of {one_of(['auto', 'off', *INSTRUCTION_SETS])}, not {word!r}")
    if INSTRUCTION_SETS[word] not in here:
        names = one_of(one.name for one in here)
        raise UserError(f"{VARIABLE}={word}: not on this CPU, or ATEN_CPU_CAPABILITY excludes it; valid: {names}")
    return [INSTRUCTION_SETS[word]]


def find_library(word: str = "auto") -> KernelLibrary:
    """Look for the kernels in this package, then among the kernels compiled here; else compile them.

    Raises:
        UserError: for a word that is no valid `TSATTN_KERNELS`.
    """
    if word == "off":
        return KernelLibrary(why_none=_OFF)
    sets = chosen_sets(word)
    if os.name != "posix":
        return KernelLibrary(why_none="they are made for Linux and macOS only")
    if not sets:
        names = one_of(one.name for one in INSTRUCTION_SETS.values() if one.automatic)
        return KernelLibrary(why_none=f"this CPU has none of {names}, or ATEN_CPU_CAPABILITY excludes them")
    complaints: list[KernelError] = []
    for one in sets:
        path = COMPILED / f"{one.name}.so"
        if path.is_file() and (library := _opened(path, complaints)):
            return KernelLibrary(library, None, one, path, None, tuple(complaints))
    try:
        for one, path, compiler in _compiled_here(sets, complaints):
            if library := _opened(path, complaints):
                return KernelLibrary(library, None, one, path, compiler, tuple(complaints))
    except KernelError as error:
        complaints.append(error)
    except OSError as error:
        complaints.append(KernelError(f"there is no folder for temporary files: {error}"))
    return KernelLibrary(why_none=str(complaints[0]) if complaints else _NO_COMPILER, complaints=tuple(complaints))


def build_library(word: str = "auto") -> KernelLibrary:
    """Compile the kernels again, for the best instruction set that compiles, and keep them; "off" is as "auto".

    Raises:
        UserError: if that fails, with the reason.
    """
    sets = chosen_sets("auto" if word == "off" else word)
    reasons: list[KernelError] = [] if sets else [KernelError("this CPU has none of the instruction sets")]
    try:
        cache = LibraryCache(cache_folder())
        for one, path, compiler in _from_cache(cache, sets, compilers(), reasons, again=True):
            if library := _opened(path, reasons):
                return KernelLibrary(library, None, one, path, compiler)
    except KernelError as error:
        reasons.append(error)
    raise UserError(f"the kernels cannot be built: {_listed(reasons) or 'there is no C++ compiler'}")


def _compiled_here(
    sets: list[InstructionSet], complaints: list[KernelError]
) -> Iterator[tuple[InstructionSet, Path, Compiler | None]]:
    """The files of libraries compiled on this machine, best first; each is compiled when its turn comes."""
    found = compilers()
    try:
        cache = LibraryCache(cache_folder())
        if not found:
            for one in sets:
                if path := cache.find(one, None):
                    yield one, path, None
        yield from _from_cache(cache, sets, found, complaints)
    except CacheError as error:
        if not found:
            advice = "and there is no C++ compiler: mend its permissions, or install a compiler"
            raise CacheError(f"{error}, {advice}") from None
        advice = "and each process compiles its own; XDG_CACHE_HOME can name another folder"
        complaints.append(CacheError(f"{error}, {advice}"))
        # the folder exists until its library is loaded
        with tempfile.TemporaryDirectory(prefix="tsattn-") as folder:
            yield from _from_cache(LibraryCache(Path(folder) / "tsattn" / "kernels"), sets, found, complaints)


def _from_cache(
    cache: LibraryCache,
    sets: list[InstructionSet],
    found: list[Compiler],
    complaints: list[KernelError],
    *,
    again: bool = False,
) -> Iterator[tuple[InstructionSet, Path, Compiler]]:
    for one, compiler in ((one, compiler) for one in sets for compiler in found):
        try:
            yield one, cache.build(one, compiler, again=again), compiler
        except CompileError as error:
            complaints.append(error)


def _opened(path: Path, complaints: list[KernelError]) -> ctypes.CDLL | None:
    """The library in a file, if it can be loaded and computes as it should."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (taken, given) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = taken, given
    except (OSError, AttributeError) as error:
        complaints.append(KernelError(f"{path} cannot be loaded: {error}"))
        return None
    if wrong := what_is_wrong(library):
        complaints.append(KernelError(f"{path} is not used, as {wrong}"))
        return None
    return library


class CacheError(KernelError):
    """A folder that cannot hold libraries."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tsattn/kernels`, or `~/.cache/tsattn/kernels` where that is not set, or not an absolute path.

    Raises:
        CacheError: without a home folder.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen / "tsattn" / "kernels"
    try:
        return Path.home() / ".cache" / "tsattn" / "kernels"
    except RuntimeError:
        raise CacheError("there is no home folder to keep kernels in") from None


class LibraryCache:
    """Libraries in a folder; each file name has digests of the library's source and content.

    Args:
        folder: made with mode 0700 if it is missing.

    Raises:
        CacheError: if it cannot be made or written to, or if others can write to it, or to its two parent folders.
    """

    def __init__(self, folder: Path) -> None:
        try:
            for place in (folder.parent.parent, folder.parent, folder):
                place.mkdir(mode=0o700, parents=place == folder.parent.parent, exist_ok=True)
            self.folder = folder.resolve(strict=True)
            around = self.folder.parent.parent
            for place in (self.folder, self.folder.parent, around):
                # in folders such as /tmp only owners can remove or rename
                if others_can_write(place) and not (place == around and _is_sticky(place)):
                    raise CacheError(f"others can write to {place}, so kernels are not loaded from there")
        except OSError as error:
            raise CacheError(f"{folder} cannot be made: {error.strerror or error}") from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise CacheError(f"{folder} cannot be written to")

    def find(self, one: InstructionSet, compiler: Compiler | None) -> Path | None:
        """The library that a compiler made for an instruction set from these sources; with None, of any compiler.

        Raises:
            CacheError: if others can write to it.
        """
        pattern = f"{_stem(one, compiler)}-*.so" if compiler else f"{_stem(one, None)}-*-*.so"
        for path in sorted(self.folder.glob(pattern)):
            with contextlib.suppress(OSError):  # another process has just removed it
                if others_can_write(path):
                    raise CacheError(f"others can write to {path}, so it is not loaded")
                if stat.S_ISREG(path.lstat().st_mode) and path.stem.split("-")[-1] == sha256(path)[:32]:
                    return path
        return None

    def build(self, one: InstructionSet, compiler: Compiler, *, again: bool = False) -> Path:
        """The library, compiled if it is missing; of several processes one compiles, and the others wait.

        Args:
            one: the instruction set.
            compiler: of this machine.
            again: compile even if it exists.

        Raises:
            CompileError: if it cannot be compiled, now or at the last try.
            CacheError: if it cannot be kept.
        """
        if not again and (found := self.find(one, compiler)):
            return found
        stem = _stem(one, compiler)
        note = self.folder / f"{stem}.failed"  # so that not every process tries and fails again
        with self._lock(stem):
            if not again and (found := self.find(one, compiler)):
                return found
            if note.exists() and not again:
                what = note.read_text(errors="replace").strip()
                raise CompileError(f"{what} (try again with `tsattn kernels --build`)", known=True)
            logger.info("compiling the native kernels for %s, once, into %s", one.name, self.folder)
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
                path = self.folder / f"{stem}-{sha256(made)[:32]}.so"
                os.replace(made, path)
            for old in before:
                if old != path:
                    old.unlink(missing_ok=True)
            return path

    @contextlib.contextmanager
    def _lock(self, stem: str) -> Iterator[None]:
        try:
            with FileLock(self.folder / f"{stem}.lock", timeout=2 * COMPILE_SECONDS, mode=0o600):
                yield
        except Timeout:
            raise CacheError(f"another process has been compiling into {self.folder} for too long") from None
        except (OSError, NotImplementedError) as error:
            raise CacheError(f"{self.folder} cannot be used: {error}") from None


def _stem(one: InstructionSet, compiler: Compiler | None) -> str:
    """The beginning of file names; without a compiler, the part that all compilers share."""
    made_from = hashlib.sha256(f"{platform.machine()} {one.flags} {source_digest()}".encode()).hexdigest()[:16]
    whose = "" if compiler is None else f"-{hashlib.sha256(repr(compiler).encode()).hexdigest()[:16]}"
    return f"{one.name}-{made_from}{whose}"


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
