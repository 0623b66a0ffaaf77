"""The compiled kernels: those that came with tsattn, else compiled when they are first asked for, else none."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tsattn.errors import UserError, one_of
from tsattn.ops.native.instruction_sets import INSTRUCTION_SETS, InstructionSet, sets_of_this_cpu
from tsattn.ops.native.kernel_compiler import CompileError, Compiler, KernelError, compilers
from tsattn.ops.native.kernel_problem import DropoutProblem, KernelProblem
from tsattn.ops.native.library_cache import CacheError, LibraryCache, cache_folder
from tsattn.ops.native.self_check import what_is_wrong

__all__ = [
    "COMPILED",
    "KernelLibrary",
    "build_library",
    "find_library",
    "kernels_taken",
    "load_kernels",
    "set_in_use",
    "why_no_kernels",
]

logger = logging.getLogger("tsattn")

COMPILED = Path(__file__).with_name("compiled")

VARIABLE = "TSATTN_KERNELS"

_PROBLEM = ctypes.POINTER(KernelProblem)

# what the functions of a library take and return
_FUNCTIONS: dict[str, tuple[list[type], type]] = {
    "tsattn_forward": ([_PROBLEM], ctypes.c_int),
    "tsattn_backward": ([_PROBLEM], ctypes.c_int),
    "tsattn_dropout": ([ctypes.POINTER(DropoutProblem)], ctypes.c_int),
    "tsattn_work": ([_PROBLEM, ctypes.c_int], ctypes.c_double),
    "tsattn_takes_bfloat16": ([], ctypes.c_int),
    "tsattn_lanes": ([], ctypes.c_int),
    "tsattn_tile_keys": ([], ctypes.c_int),
}


@dataclass(frozen=True)
class KernelLibrary:
    """What was looked for and found.

    Args:
        library: the loaded library, or None.
        why_none: one clause, where there is none.
        instruction_set: what it was compiled for.
        path: its file.
        compiler: what compiled it, where that is known.
        complaints: what went wrong on the way, and should not have.
    """

    library: ctypes.CDLL | None = None
    why_none: str | None = None
    instruction_set: InstructionSet | None = None
    path: Path | None = None
    compiler: Compiler | None = None
    complaints: tuple[KernelError, ...] = ()

    @property
    def came_along(self) -> bool:
        """Whether it is of this package, and was not compiled on this machine."""
        return self.path is not None and self.path.parent == COMPILED


_found: dict[str, KernelLibrary] = {}
_lock = threading.Lock()


def _forget_lock() -> None:
    """In a child process: another thread of its parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def load_kernels() -> ctypes.CDLL | None:
    """The compiled kernels, looked for at the first call and kept; None where there are none.

    It has `tsattn_forward` and `tsattn_backward`, which take a pointer to a `KernelProblem` and return 0, 1 where
    memory did not suffice, or 2 for what they do not take; `tsattn_work`, which counts what they compute;
    `tsattn_dropout`, which takes a pointer to a `DropoutProblem`; `tsattn_takes_bfloat16`; and `tsattn_lanes` and
    `tsattn_tile_keys`, the sizes that they compute in. The environment variable `TSATTN_KERNELS` is `auto` by default,
    `off`, or the name of an instruction set.

    Raises:
        UserError: if `TSATTN_KERNELS` is another word, or an instruction set that this CPU has not.
    """
    return _kept().library


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # a graph cannot look for files
def why_no_kernels() -> str | None:
    """One clause, for messages, on why `load_kernels` gives None; None where it does not.

    Raises:
        UserError: as `load_kernels` does.
    """
    return _kept().why_none


def set_in_use() -> str:
    """The name of the instruction set of the kernels; "off" without."""
    found = _kept().instruction_set
    return "off" if found is None else found.name


@contextlib.contextmanager
def kernels_taken(word: str) -> Iterator[None]:
    """Within it, the kernels of one instruction set are in use, or none for "off", whatever `TSATTN_KERNELS` says.

    Raises:
        UserError: if they cannot be had here.
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


_word_taken: str | None = None


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
    """One line, where the kernels are missed; louder where something is broken, and that is new."""
    if found.complaints:
        level = logging.INFO if all(one.known for one in found.complaints) else logging.WARNING
        result = "the plain paths are taken" if found.library is None else f"the kernels in use are {found.path}"
        logger.log(level, "native kernels: %s; %s", _told(found.complaints), result)
    elif found.why_none and found.why_none != _OFF:
        logger.info("no native kernels: %s", found.why_none)


def _told(complaints: Sequence[KernelError]) -> str:
    """All of them, each once."""
    return "; ".join(dict.fromkeys(map(str, complaints)))


_OFF = f"{VARIABLE}=off"
_NO_COMPILER = "there is no C++ compiler, and this tsattn came without compiled kernels for this CPU"


def chosen_sets(word: str) -> list[InstructionSet]:
    """The instruction sets that may be used, best first.

    Args:
        word: "auto" or "" for those that this CPU has, or the name of one.

    Raises:
        UserError: for another word, and for a set that this CPU has not.
    """
    here = sets_of_this_cpu()
    if word in ("", "auto"):
        return [one for one in here if one.automatic]
    if word not in INSTRUCTION_SETS:
        raise UserError(f"{VARIABLE} must be one of {one_of(['auto', 'off', *INSTRUCTION_SETS])}, not {word!r}")
    if INSTRUCTION_SETS[word] not in here:
        names = one_of(one.name for one in here)
        raise UserError(f"{VARIABLE}={word}: this CPU has not got it, or torch was told to leave it; valid: {names}")
    return [INSTRUCTION_SETS[word]]


def find_library(word: str = "auto") -> KernelLibrary:
    """Look for the kernels: in this package, then among those compiled here, and else compile them.

    Args:
        word: as `TSATTN_KERNELS`.

    Raises:
        UserError: for a word that is not valid.
    """
    if word == "off":
        return KernelLibrary(why_none=_OFF)
    sets = chosen_sets(word)
    if os.name != "posix":
        return KernelLibrary(why_none="they are made for Linux and macOS only")
    if not sets:
        names = one_of(one.name for one in INSTRUCTION_SETS.values() if one.automatic)
        return KernelLibrary(why_none=f"this CPU has none of {names}, or torch was told to leave them")
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
    """Compile the kernels anew, for the best instruction set that compiles, into the folder of those compiled here.

    Args:
        word: as `TSATTN_KERNELS`; "off" is as "auto".

    Raises:
        UserError: if that fails, with the reason.
    """
    sets = chosen_sets("auto" if word == "off" else word)
    reasons = [] if sets else [KernelError("this CPU has none of the instruction sets")]
    try:
        cache = LibraryCache(cache_folder())
        found = compilers()
        for one, compiler in ((one, compiler) for one in sets for compiler in found):
            try:
                path = cache.build(one, compiler, anew=True)
            except CompileError as error:
                reasons.append(error)
                continue
            if library := _opened(path, reasons):
                return KernelLibrary(library, None, one, path, compiler)
    except KernelError as error:
        reasons.append(error)
    raise UserError(f"the kernels cannot be built: {_told(reasons) or 'there is no C++ compiler'}")


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
        # the folder lasts until what is in it is loaded
        with tempfile.TemporaryDirectory(prefix="tsattn-") as folder:
            yield from _from_cache(LibraryCache(Path(folder) / "tsattn" / "kernels"), sets, found, complaints)


def _from_cache(
    cache: LibraryCache, sets: list[InstructionSet], found: list[Compiler], complaints: list[KernelError]
) -> Iterator[tuple[InstructionSet, Path, Compiler | None]]:
    for one, compiler in ((one, compiler) for one in sets for compiler in found):
        path = cache.find(one, compiler)
        if path is None:
            logger.info("compiling the native kernels for %s, once, into %s", one.name, cache.folder)
            try:
                path = cache.build(one, compiler)
            except CompileError as error:
                complaints.append(error)
                continue
        yield one, path, compiler


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
