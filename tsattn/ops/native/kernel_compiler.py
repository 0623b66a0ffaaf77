"""From the C++ sources to a library, by the compiler of this machine.

The build of a wheel reads this file by itself: it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SOURCE", "CompileError", "Compiler", "KernelError", "compile_library", "compilers", "source_digest"]

SOURCE = Path(__file__).with_name("source")

COMPILE_SECONDS = 120

# no -ffast-math: infinities stand for pairs that are not seen, and sums have the order that the code gives them
_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=fast"),
    *("-fPIC", "-shared", "-pthread", "-fvisibility-inlines-hidden"),
)


class KernelError(Exception):
    """Something stands between a user and the kernels: one clause says what.

    Args:
        clause: what.
        known: whether it has been told before, by another process.
    """

    def __init__(self, clause: str, *, known: bool = False) -> None:
        super().__init__(clause)
        self.known = known


class CompileError(KernelError):
    """The kernels could not be compiled."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Args:
        command: its program, and options that it is always given.
        version: the first line of what it says of itself.
    """

    command: tuple[str, ...]
    version: str


def compilers() -> list[Compiler]:
    """The C++ compilers of this machine: that of `CXX` alone if it is set, else of c++, g++ and clang++ those that run.

    Raises:
        CompileError: if `CXX` is set to what does not run.
    """
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        try:
            command = shlex.split(chosen)
        except ValueError as error:
            raise CompileError(f"CXX={chosen} cannot be read: {error}") from None
        found = _asked(command)
        if found is None:
            raise CompileError(f"CXX={chosen} is not a C++ compiler that runs here")
        return [found]
    programs: dict[str, str] = {}
    for path in map(shutil.which, ("c++", "g++", "clang++")):
        if path:
            programs.setdefault(os.path.realpath(path), path)  # c++ mostly is one of the others
    return [found for path in programs.values() if (found := _asked([path]))]


def _asked(command: Sequence[str]) -> Compiler | None:
    try:
        code, said = _run([*command, "--version"], seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = said.split("\n")
    return Compiler(tuple(command), lines[0].strip()) if code == 0 else None


def source_digest() -> str:
    """Tells sources, and how they are compiled, apart from all others."""
    digest = hashlib.sha256(repr(_FLAGS).encode())
    for path in sorted(SOURCE.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def compile_library(compiler: Compiler, flags: Sequence[str], target: Path) -> None:
    """Compile the kernels into a shared library.

    Args:
        compiler: what compiles them.
        flags: those of the instruction set.
        target: the file to write, in a folder that nobody else writes to.

    Raises:
        CompileError: if that fails, or takes longer than two minutes.
    """
    command = [*compiler.command, *_FLAGS, *flags, "-o", str(target), *map(str, sorted(SOURCE.glob("*.cpp")))]
    try:
        code, said = _run(command, seconds=COMPILE_SECONDS)
    except OSError as error:
        raise CompileError(f"{command[0]} does not run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise CompileError(f"{compiler.version} took longer than {COMPILE_SECONDS} s") from None
    if code or not target.is_file():
        errors = [line for line in said.splitlines() if "error: " in line] or said.splitlines()
        what = errors[0].strip() if errors else f"exit code {code}"
        raise CompileError(f"{compiler.version} does not compile them: {what}")


def _run(command: Sequence[str], *, seconds: float) -> tuple[int, str]:
    """The exit code, and what was said; the processes that a compiler starts end with it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except BaseException:  # Ctrl-C does not reach a session of its own
        for signalled in (signal.SIGTERM, signal.SIGKILL):  # at the first, compilers take away their temporary files
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signalled)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
                break
        raise
    return process.returncode, said
