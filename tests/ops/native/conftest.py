"""What the tests of the native kernels share: a library, and a compiler that only copies it and counts."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tsattn.ops.native.kernel_compiler import CompileError, compilers
from tsattn.ops.native.library import KernelLibrary, find_library


def no_compiler() -> bool:
    try:
        return not compilers()
    except CompileError:
        return True


needs_compiler = pytest.mark.skipif(
    no_compiler(), reason="no C++ compiler that runs, so compiling the native kernels is not tested"
)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests hold whatever the environment says of the kernels."""
    monkeypatch.delenv("TSATTN_KERNELS", raising=False)


@pytest.fixture(scope="session")
def found() -> KernelLibrary:
    kernels = find_library("auto")
    if kernels.library is None:
        pytest.skip(f"no native kernels: {kernels.why_none}")
    return kernels


@dataclass(frozen=True)
class CopyingCompiler:
    """Stands for a compiler, for tests of what happens around one."""

    path: Path
    log: Path

    def runs(self) -> int:
        return self.log.read_text().count("\n") if self.log.exists() else 0


@pytest.fixture
def copying(tmp_path: Path, found: KernelLibrary, monkeypatch: pytest.MonkeyPatch) -> CopyingCompiler:
    """`CXX`, which takes a third of a second and gives the library that there is; the cache is empty."""
    assert found.path is not None
    made = CopyingCompiler(tmp_path / "copying", tmp_path / "log")
    made.path.write_text(f"""#!{sys.executable}
import shutil, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    print("copying 1.0")
else:
    with open({str(made.log)!r}, "a") as log:
        print(*words, file=log)
    time.sleep(0.3)
    shutil.copyfile({str(found.path)!r}, words[words.index("-o") + 1])
""")
    made.path.chmod(0o700)
    monkeypatch.setenv("CXX", str(made.path))
    empty_cache(tmp_path, monkeypatch)
    return made


def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tsattn" / "kernels"


def without_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_programs").mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(tmp_path / "no_programs"))
    monkeypatch.delenv("CXX", raising=False)


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **changes}
