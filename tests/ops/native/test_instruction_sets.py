"""Which of the instruction sets a CPU is taken to have."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.ops.native.conftest import environment
from tsattn.ops.native import kernel_compiler
from tsattn.ops.native.kernel_compiler import INSTRUCTION_SETS, sets_of_machine, sets_of_this_cpu

AVX512 = {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}

BF16 = AVX512 | {"avx512_bf16"}

CASES = {
    "bfloat16": ("x86_64", "AVX512", BF16, ["avx512_bf16", "avx512", "avx2"]),
    "bfloat16 masked off": ("x86_64", "AVX2", BF16, ["avx2"]),
    "AVX-512 without a list of Linux": ("x86_64", "AVX512", None, ["avx512", "avx2"]),
    "avx512": ("x86_64", "AVX512", AVX512, ["avx512", "avx2"]),
    "AVX-512 masked off": ("x86_64", "AVX2", AVX512, ["avx2"]),
    "all masked off": ("x86_64", "DEFAULT", AVX512, []),
    "avx2": ("AMD64", "AVX2", {"avx2", "fma"}, ["avx2"]),
    "no byte and word instructions": ("x86_64", "AVX512", AVX512 - {"avx512bw"}, ["avx2"]),
    "asked of torch, which the CPU has not": ("x86_64", "AVX512", {"avx2", "fma"}, ["avx2"]),
    "no list of Linux": ("x86_64", "AVX2", None, ["avx2"]),
    "arm": ("aarch64", "DEFAULT", None, ["neon"]),
    "apple": ("arm64", "DEFAULT", None, ["neon"]),
    "arm with longer vectors": ("aarch64", "SVE256", None, ["neon"]),
    "another": ("ppc64le", "VSX", None, []),
}


def test_the_best_of_a_cpu_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for case, (machine, capability, features, names) in CASES.items():
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr(kernel_compiler, "_listed_features", lambda features=features: features)
        assert [one.name for one in sets_of_this_cpu()] == [*names, "portable"], case


def test_a_wheel_has_every_set_of_its_architecture() -> None:
    assert [one.name for one in sets_of_machine("x86_64")] == ["avx512_bf16", "avx512", "avx2"]
    assert [one.name for one in sets_of_machine("aarch64")] == ["neon"]
    assert sets_of_machine("riscv64") == []


def test_what_torch_is_told_to_leave_is_left() -> None:
    if INSTRUCTION_SETS["avx2"] not in sets_of_this_cpu():
        pytest.skip("this CPU has no AVX2")
    code = "from tsattn.ops.native.library import chosen_sets; print(chosen_sets('auto')[0].name)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(ATEN_CPU_CAPABILITY="avx2"), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "avx2"), done.stderr
