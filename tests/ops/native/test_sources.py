"""The C++ of the kernels by itself: under sanitizers, for another architecture, and beside the fields of Python."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ops.native.conftest import needs_compiler
from tsattn.ops.native.kernel_compiler import INSTRUCTION_SETS, SOURCE, InstructionSet, compilers, sets_of_this_cpu
from tsattn.ops.native.kernel_problem import DropoutProblem, KernelProblem

DRIVER = Path(__file__).with_name("driver.cpp")
DRIVERS = [DRIVER, Path(__file__).with_name("dropout_driver.cpp")]
ARM = [shutil.which(name) for name in ("aarch64-linux-gnu-g++", "qemu-aarch64")]
SETS = sets_of_this_cpu()
# sets that differ in the width of their vectors; bfloat16 is an addition to the widest
WIDE_AND_NARROW = [one for one in SETS if one.name in ("avx512_bf16", "avx2", "neon")] or SETS[:1]


def built(command: list[str], source: Path, target: Path, *flags: str) -> Path:
    """A program, or the test is skipped as the compiler lacks something, such as the library of a sanitizer."""
    words = [*command, "-std=c++17", "-g", "-fno-math-errno", "-pthread", f"-I{SOURCE}", *flags]
    done = subprocess.run([*words, str(source), "-o", str(target)], capture_output=True, text=True)
    if done.returncode and ("cannot find" in done.stderr or "unsupported option" in done.stderr):
        pytest.skip(f"this compiler cannot build it: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return target


def check(command: list[str], lanes: int) -> None:
    """The driver finds no difference, and nothing is reported."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert re.fullmatch(rf"{lanes} lanes, \d{{3}} cases, 0 failed\n", done.stdout), done.stdout
    assert done.returncode == 0


def lanes_of(name: str) -> int:
    return {"avx512_bf16": 16, "avx512": 16, "avx2": 8}.get(name, 4)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("one", WIDE_AND_NARROW, ids=lambda one: one.name)
def test_nothing_is_read_or_written_outside_what_is_there(one: InstructionSet, tmp_path: Path) -> None:
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *one.flags)
    for driver in DRIVERS:
        program = built([*compilers()[0].command], driver, tmp_path / "driver", *flags)
        check([str(program)], lanes_of(one.name))


@needs_compiler
@pytest.mark.slow
def test_the_sanitizer_sees_what_is_too_small(tmp_path: Path) -> None:
    text = DRIVER.read_text()
    changed = text.replace("grad_k(B, G, S, R, c.tokens_first, NONE)", "grad_k(B, G, S - 1, R, c.tokens_first, NONE)")
    assert changed != text
    (tmp_path / "driver.cpp").write_text(changed)
    command = [*compilers()[0].command]
    program = built(command, tmp_path / "driver.cpp", tmp_path / "driver", "-O0", "-fsanitize=address")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert "heap-buffer-overflow" in done.stderr
    assert done.returncode


@needs_compiler
@pytest.mark.slow
def test_threads_do_not_meet(tmp_path: Path) -> None:
    flags = ("-O1", "-fsanitize=thread", *SETS[0].flags)
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() {}\n")
    empty = subprocess.run([str(built([*compilers()[0].command], probe, tmp_path / "probe", "-fsanitize=thread"))])
    if empty.returncode:  # of some kernels, whose addresses it does not know
        pytest.skip("the thread sanitizer does not run here")
    for driver in DRIVERS:
        program = built([*compilers()[0].command], driver, tmp_path / "driver", *flags)
        check([str(program)], lanes_of(SETS[0].name))


@pytest.mark.slow
@pytest.mark.skipif(None in ARM, reason="no aarch64-linux-gnu-g++ and qemu-aarch64, so NEON is not tested")
def test_neon_computes_the_same(tmp_path: Path) -> None:
    compiler, emulator = map(str, ARM)
    flags = ("-O2", "-static", *INSTRUCTION_SETS["neon"].flags)
    for driver in DRIVERS:
        check([emulator, str(built([compiler], driver, tmp_path / "driver", *flags))], 4)


@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++")
def test_clang_compiles_the_same(tmp_path: Path) -> None:
    flags = ("-O3", "-ffp-contract=fast", *SETS[0].flags)
    for driver in DRIVERS:
        check([str(built(["clang++"], driver, tmp_path / "driver", *flags))], lanes_of(SETS[0].name))


@needs_compiler
@pytest.mark.parametrize(("record", "struct"), [(KernelProblem, "TsattnProblem"), (DropoutProblem, "TsattnDropout")])
def test_the_fields_of_python_are_those_of_the_header(
    record: type[ctypes.Structure], struct: str, tmp_path: Path
) -> None:
    names = [name for name, *_ in record._fields_]
    lines = "".join(f'  std::printf("%zu ", offsetof({struct}, {name}));\n' for name in names)
    (tmp_path / "fields.cpp").write_text(
        f'#include <cstddef>\n#include <cstdio>\n#include "problem.h"\n'
        f'int main() {{\n{lines}  std::printf("%zu", sizeof({struct}));\n}}\n'
    )
    program = built([*compilers()[0].command], tmp_path / "fields.cpp", tmp_path / "fields")
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    wanted = [getattr(record, name).offset for name in names]
    assert [int(number) for number in said.split()] == [*wanted, ctypes.sizeof(record)]
