"""The instruction sets that the kernels are compiled for, and which of them this CPU has.

The build of a wheel reads this file by itself: it imports nothing but the standard library, and torch only where this
CPU is asked for.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

__all__ = ["INSTRUCTION_SETS", "InstructionSet", "sets_of_machine", "sets_of_this_cpu"]

_X86 = ("x86_64", "amd64")
_ARM = ("aarch64", "arm64")

# what torch calls the sets that ATEN_CPU_CAPABILITY leaves, each with all before it
_CAPABILITIES = ("AVX2", "AVX512")


@dataclass(frozen=True)
class InstructionSet:
    """One way of compiling the kernels.

    Args:
        name: what people call it.
        flags: what the compiler is told.
        machines: the architectures that have it, in small letters as `platform.machine` names them; () stands for any.
        features: what Linux must list of a CPU.
        capability: what torch must not have been told to leave alone, or None.
        automatic: whether it is taken without being asked for, and goes into a wheel.
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


_AVX512 = InstructionSet(
    "avx512",
    ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"),
    _X86,
    ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"),
    "AVX512",
)

# best first
INSTRUCTION_SETS = {
    one.name: one
    for one in (
        # multiplies in bfloat16 too
        replace(
            _AVX512,
            name="avx512_bf16",
            flags=(*_AVX512.flags, "-mavx512bf16"),
            features=(*_AVX512.features, "avx512_bf16"),
        ),
        _AVX512,
        InstructionSet("avx2", ("-mavx2", "-mfma"), _X86, ("avx2", "fma"), "AVX2"),
        InstructionSet("neon", (), _ARM),
        # vectors as short as those of NEON, on any CPU: slower than the plain paths where it stands for nothing better
        InstructionSet("portable", (), (), automatic=False),
    )
}


def sets_of_machine(machine: str | None = None) -> list[InstructionSet]:
    """The sets that go into a wheel for an architecture, that of this process by default, best first."""
    machine = machine or platform.machine()
    return [one for one in INSTRUCTION_SETS.values() if one.automatic and one.on_machine(machine)]


def sets_of_this_cpu() -> list[InstructionSet]:
    """The sets that this CPU has and torch may use too, best first; the last is `portable`."""
    import torch

    # of `DEFAULT` and of other architectures, none
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
    """What Linux says of an x86 CPU, or None."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return frozenset(flags[0]) if flags else None
