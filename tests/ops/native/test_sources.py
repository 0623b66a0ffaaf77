"""The C++ of the kernels by itself: under sanitizers, for another architecture, and beside the fields of Python."""

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert re.fullmatch(rf"{lanes} lanes, \d{{3}} cases, 0 failed\n", done.stdout), done.stdout
    assert done.returncode == 0


# of the widest vectors all is asked; of others what differs with the width: what their loads and stores touch
ASKED = ["address,undefined", *["address"] * (len(WIDE_AND_NARROW) - 1)]
SANITIZED = [("-O0", "-g1", f"-fsanitize={asked}", "-fno-sanitize-recover=all") for asked in ASKED]
# a name, the compiler (None: any), what runs the program, the flags, and the instruction set
BUILDS: list[tuple[str, str | None, str | None, tuple[str, ...], InstructionSet]] = [
    *(
        (f"nothing outside is touched, {one.name}", None, "", flags, one)
        for flags, one in zip(SANITIZED, WIDE_AND_NARROW, strict=True)
    ),
    ("threads do not meet", None, "", ("-O1", "-g1", "-fsanitize=thread"), SETS[0]),
    ("neon", ARM[0] or "", ARM[1], ("-O2", "-static"), INSTRUCTION_SETS["neon"]),
    ("clang", shutil.which("clang++") or "", "", ("-O3", "-ffp-contract=fast"), SETS[0]),
]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "runner", "flags", "one"), [build[1:] for build in BUILDS], ids=[b[0] for b in BUILDS]
)
def test_each_build_computes_the_same(
    compiler: str | None, runner: str | None, flags: tuple[str, ...], one: InstructionSet, tmp_path: Path
) -> None:
    if compiler == "" or runner is None:
        pytest.skip("there is no such compiler here, or nothing that runs its programs")
    command = [*compilers()[0].command] if compiler is None else [compiler]
    if "-fsanitize=thread" in flags:
        probe = tmp_path / "probe.cpp"
        probe.write_text("int main() {}\n")
        if subprocess.run([str(built(command, probe, tmp_path / "probe", "-fsanitize=thread"))]).returncode:
            pytest.skip("the thread sanitizer does not run here")  # of some kernels, whose addresses it does not know
    for driver in DRIVERS:
        program = built(command, driver, tmp_path / "driver", *flags, *one.flags)
        lanes = {"avx512_bf16": 16, "avx512": 16, "avx2": 8}.get(one.name, 4)
        check([*([runner] if runner else []), str(program)], lanes)


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
