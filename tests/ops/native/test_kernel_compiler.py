"""Finding a compiler, what is said when it does not compile, and the instruction sets that a CPU is taken to have."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.ops.native.conftest import needs_compiler, without_compiler
from tests.processes import runs, wait_for
from tsattn.ops.native import kernel_compiler
from tsattn.ops.native.kernel_compiler import (
    CompileError,
    Compiler,
    compile_library,
    compilers,
    sets_of_machine,
    sets_of_this_cpu,
    source_digest,
)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def test_cxx_is_taken_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "mine", 'echo "mine 1, given $1"; echo more')
    monkeypatch.setenv("CXX", f"{path} -m64")
    assert compilers() == [Compiler((str(path), "-m64"), "mine 1, given -m64")]


def test_a_cxx_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("nothing-of-that-name", "false", "'"):
        monkeypatch.setenv("CXX", wrong)
        with pytest.raises(CompileError, match=f"CXX={wrong} "):
            compilers()


def test_compilers_are_found_by_name_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(tmp_path, monkeypatch)
    assert compilers() == []
    folder = tmp_path / "no_programs"
    real = program(tmp_path / "clang-99", "echo clang")
    (folder / "c++").symlink_to(real)
    (folder / "clang++").symlink_to(real)
    program(folder / "g++", "echo gnu")
    assert [one.command for one in compilers()] == [(str(folder / "c++"),), (str(folder / "g++"),)]


@needs_compiler
def test_an_error_of_the_compiler_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_compiler, "SOURCE", tmp_path)
    (tmp_path / "attention.cpp").write_text("int f() { return nonsense; }\n")
    compiler = compilers()[0]
    with pytest.raises(CompileError, match=r"does not compile them: .*error: .*nonsense") as raised:
        compile_library(compiler, (), tmp_path / "library.so")
    assert "\n" not in str(raised.value)
    assert compiler.version in str(raised.value)


def test_a_compiler_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_compiler, "COMPILE_SECONDS", 2)
    path = program(tmp_path / "slow", f"/bin/sleep 3600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(CompileError, match=r"took longer than 2 s"):
        compile_library(Compiler((str(path),), "slow 1"), (), tmp_path / "library.so")
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not runs(child), lambda: "the process that the compiler started goes on")


def test_other_sources_have_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest()
    shutil.copytree(kernel_compiler.SOURCE, tmp_path / "source")
    monkeypatch.setattr(kernel_compiler, "SOURCE", tmp_path / "source")
    assert source_digest() == before
    with (tmp_path / "source" / "lanes.h").open("a") as file:
        file.write("\n")
    assert source_digest() != before


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
