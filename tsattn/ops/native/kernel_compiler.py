"""Compile the C++ sources into a library: for which instruction sets, and by which compiler of this machine.

The build of a wheel reads this file alone, so it imports only the standard library. It imports torch only to ask about
this CPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("source")

COMPILE_SECONDS = 120

# no -ffast-math: infinities stand for pairs that are not seen, and sums have the order that the code gives them
_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-ffp-contract=fast"),
    *("-fPIC", "-shared", "-pthread", "-fvisibility-inlines-hidden"),
)

_X86 = ("x86_64", "amd64")
_ARM = ("aarch64", "arm64")

# torch's names of the sets that ATEN_CPU_CAPABILITY allows; each includes the sets before it
_CAPABILITIES = ("AVX2", "AVX512")


class KernelError(Exception):
    """A reason why there are no kernels, in one clause.

    Args:
        clause: the reason.
        known: whether another process has logged it before.
    """

    def __init__(self, clause: str, *, known: bool = False) -> None:
        super().__init__(clause)
        self.known = known


class CompileError(KernelError):
    """The kernels could not be compiled."""


@dataclass(frozen=True)
class InstructionSet:
    """One way of compiling the kernels.

    Args:
        name: as users write it.
        flags: compiler flags.
        machines: the architectures that have it, in small letters as `platform.machine` names them; () for any.
        features: names that Linux must list for the CPU.
        capability: the capability that torch must be allowed to use, or None.
        automatic: whether `auto` may choose it, and wheels include it.
    """

    name: str
    flags: tuple[str, ...]
    machines: tuple[str, ...]
    features: tuple[str, ...] = ()
    capability: str | None = None
    automatic: bool = True

    def on_machine(self, machine: str) -> bool:
        """Whether CPUs of this architecture may have it."""
        return not self.machines or machine.lower() in self.machines


_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")

# best first
INSTRUCTION_SETS = {
    one.name: one
    for one in (
        # multiplies in bfloat16 too
        InstructionSet("avx512_bf16", (*_AVX512_FLAGS, "-mavx512bf16"), _X86, (*_AVX512, "avx512_bf16"), "AVX512"),
        InstructionSet("avx512", _AVX512_FLAGS, _X86, _AVX512, "AVX512"),
        InstructionSet("avx2", ("-mavx2", "-mfma"), _X86, ("avx2", "fma"), "AVX2"),
        InstructionSet("neon", (), _ARM),
        # vectors as short as NEON's, on any CPU: slower than the plain paths, so never chosen automatically
        InstructionSet("portable", (), (), automatic=False),
    )
}


def sets_of_machine(machine: str | None = None) -> list[InstructionSet]:
    """The sets that go into a wheel for an architecture, by default this process's, best first."""
    machine = machine or platform.machine()
    return [one for one in INSTRUCTION_SETS.values() if one.automatic and one.on_machine(machine)]


def sets_of_this_cpu() -> list[InstructionSet]:
    """The sets that this CPU has and torch may use too, best first; the last is `portable`."""
    import torch

    # `DEFAULT` and other architectures allow none
    found = torch.backends.cpu.get_cpu_capability()
    allowed = _CAPABILITIES[: _CAPABILITIES.index(found) + 1] if found in _CAPABILITIES else ()
    listed = _listed_features()

    def has(one: InstructionSet) -> bool:
        if not one.on_machine(platform.machine()) or (one.capability and one.capability not in allowed):
            return False
        if listed is None:  # not on Linux: torch has asked the CPU itself, though not for bfloat16
            return "avx512_bf16" not in one.features
        return listed.issuperset(one.features)

    return [one for one in INSTRUCTION_SETS.values() if has(one)]


@cache
def _listed_features() -> frozenset[str] | None:
    """The features that Linux lists of an x86 CPU, or None."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return frozenset(flags[0]) if flags else None


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Args:
        command: its program, and options that it is always given.
        version: the first line of `--version`.
    """

    command: tuple[str, ...]
    version: str


def compilers() -> list[Compiler]:
    """The C++ compilers of this machine: `CXX` alone if it is set, else c++, g++ and clang++ if they run.

    Raises:
        CompileError: if `CXX` is not a compiler that runs.
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
            programs.setdefault(os.path.realpath(path), path)  # c++ mostly is g++ or clang++
    return [found for path in programs.values() if (found := _asked([path]))]


def _asked(command: Sequence[str]) -> Compiler | None:
    try:
        code, said = _run([*command, "--version"], seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Compiler(tuple(command), said.split("\n")[0].strip()) if code == 0 else None


def source_digest() -> str:
    """A digest of the sources and of the compiler flags."""
    digest = hashlib.sha256(repr(_FLAGS).encode())
    for path in sorted(SOURCE.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def compile_library(compiler: Compiler, flags: Sequence[str], target: Path) -> None:
    """Compile the kernels into a shared library.

    Args:
        compiler: of this machine.
        flags: of the instruction set.
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
    """The exit code and the output; the processes that a compiler starts end with it."""
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
    except BaseException:  # Ctrl-C does not reach a new session
        for signalled in (signal.SIGTERM, signal.SIGKILL):  # at SIGTERM, compilers remove their temporary files
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signalled)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
                break
        raise
    return process.returncode, said
