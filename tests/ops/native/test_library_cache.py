"""Libraries that are kept: compiled once, found again, and never loaded from where others can write."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.native.conftest import CopyingCompiler, empty_cache, environment
from tsattn.ops.native import library
from tsattn.ops.native.kernel_compiler import INSTRUCTION_SETS, compilers, sets_of_this_cpu
from tsattn.ops.native.library import (
    CacheError,
    LibraryCache,
    build_library,
    cache_folder,
    find_library,
    load_kernels,
    why_no_kernels,
)

ONE = INSTRUCTION_SETS["portable"]


def test_the_folder_is_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_cache(tmp_path, monkeypatch) == cache_folder()
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / ".cache" / "tsattn" / "kernels"


def test_what_was_compiled_is_found_again(copying: CopyingCompiler) -> None:
    cache, (compiler,) = LibraryCache(cache_folder()), compilers()
    assert cache.find(ONE, compiler) is None
    path = cache.build(ONE, compiler)
    assert cache.find(ONE, compiler) == cache.find(ONE, None) == cache.build(ONE, compiler) == path
    assert copying.runs() == 1
    assert cache.find(INSTRUCTION_SETS["neon"], compiler) is None
    assert [file.suffix for file in sorted(cache.folder.iterdir())] == [".so", ".lock"]
    for place in (path, cache.folder, cache.folder.parent):
        assert place.stat().st_mode & 0o077 == 0


def test_two_processes_compile_once(copying: CopyingCompiler) -> None:
    code = "from tsattn.ops.native.library import find_library; print(find_library('auto').path)"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[0] for process in processes}
    assert len(said) == 1
    assert said.pop().startswith(str(cache_folder()))
    assert copying.runs() == 1


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "cut short"])
def test_a_file_that_is_not_what_it_was_is_compiled_anew(content: bytes | None, copying: CopyingCompiler) -> None:
    path = find_library("auto").path
    assert path is not None
    content = path.read_bytes()[:5000] if content is None else content
    path.unlink()  # this process has loaded it
    path.write_bytes(content)
    path.chmod(0o700)
    again = find_library("auto")
    assert again.library is not None
    assert copying.runs() == 2
    assert again.complaints == ()
    assert [file for file in path.parent.iterdir() if file.suffix == ".so"] == [again.path]


def test_a_failure_is_kept_until_compiling_anew_is_asked_for(
    copying: CopyingCompiler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = copying.path.read_text()
    copying.path.write_text(working.replace("    time.sleep(0.3)", "    sys.exit('error: not today')"))
    told = []
    for _ in range(2):
        monkeypatch.setattr(library, "_found", {})
        caplog.clear()
        with caplog.at_level(logging.INFO, "tsattn"):
            assert load_kernels() is None
        told.append((caplog.records[-1].levelno, caplog.records[-1].getMessage()))
    runs = copying.runs()
    assert runs == sum(one.automatic for one in sets_of_this_cpu())  # each set once, by one process
    (first, message), (second, _) = told
    assert (first, second) == (logging.WARNING, logging.INFO)
    assert message == "native kernels: copying 1.0 does not compile them: error: not today; the plain paths are taken"
    assert (why_no_kernels() or "").endswith("error: not today (`tsattn kernels --build` tries again)")
    copying.path.write_text(working)
    assert build_library().library is not None
    assert find_library().library is not None
    assert copying.runs() == runs + 1


def test_a_file_that_others_can_write_to_is_refused(copying: CopyingCompiler) -> None:
    cache, (compiler,) = LibraryCache(cache_folder()), compilers()
    path = cache.build(ONE, compiler)
    path.chmod(0o666)
    with pytest.raises(CacheError, match=f"others can write to {path}"):
        cache.find(ONE, compiler)
    found = find_library("portable")
    assert found.library is not None  # compiled for this process alone
    assert "others can write" in str(found.complaints[0])
    assert found.path is not None
    assert not found.path.exists()


def test_a_folder_that_others_can_write_to_is_refused(
    copying: CopyingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    LibraryCache(cache_folder())

    def refused() -> None:
        with pytest.raises(CacheError, match="others can write to "):
            LibraryCache(cache_folder())

    for folder in (cache_folder(), *cache_folder().parents[:2]):
        folder.chmod(0o777)
        refused()
        folder.chmod(0o755)
        LibraryCache(cache_folder())
    cache_folder().parents[1].chmod(0o1777)  # as /tmp, in which a folder is its owner's
    LibraryCache(cache_folder())
    cache_folder().parent.chmod(0o1777)
    refused()
    cache_folder().parent.chmod(0o755)
    cache_folder().chmod(0o770)
    for is_private in (False, True):  # a group counts unless it is the user's own
        monkeypatch.setattr(library, "_is_private", lambda group, is_private=is_private: is_private)
        LibraryCache(cache_folder()) if is_private else refused()
    if os.geteuid() == 0:  # who alone gives files away
        os.chown(cache_folder(), 12345, 0)
        refused()


def test_a_link_is_not_followed_and_another_compiler_compiles_its_own(copying: CopyingCompiler, tmp_path: Path) -> None:
    cache, (compiler,) = LibraryCache(cache_folder()), compilers()
    path = cache.build(ONE, compiler)
    copying.path.write_text(copying.path.read_text().replace("copying 1.0", "copying 1.1"))
    (newer,) = compilers()
    assert newer.version == "copying 1.1"
    assert cache.find(ONE, newer) is None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.find(ONE, compiler) is None
