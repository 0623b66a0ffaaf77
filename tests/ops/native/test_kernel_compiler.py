"""Finding a compiler, and what is said when it does not compile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.ops.native.conftest import needs_compiler, without_compiler
from tests.processes import wait_for
from tsattn.ops.native import kernel_compiler
from tsattn.ops.native.kernel_compiler import CompileError, Compiler, compile_library, compilers, source_digest


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
    monkeypatch.setattr(kernel_compiler, "COMPILE_SECONDS", 5)
    path = program(tmp_path / "slow", f"/bin/sleep 3600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(CompileError, match=r"took longer than 5 s"):
        compile_library(Compiler((str(path),), "slow 1"), (), tmp_path / "library.so")
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not runs(child), lambda: "the process that the compiler started goes on")


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().split(") ")[1][0] != "Z"  # ended, and not yet waited for
    except (OSError, IndexError):
        return False


def test_other_sources_have_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest()
    shutil.copytree(kernel_compiler.SOURCE, tmp_path / "source")
    monkeypatch.setattr(kernel_compiler, "SOURCE", tmp_path / "source")
    assert source_digest() == before
    with (tmp_path / "source" / "lanes.h").open("a") as file:
        file.write("\n")
    assert source_digest() != before
