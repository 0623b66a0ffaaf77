"""Having the kernels, in each way and in none; libraries that are kept, found again, and trusted or not."""

import logging
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ops.native.conftest import CopyingCompiler, empty_cache, environment, needs_compiler, without_compiler
from tsattn.errors import UserError
from tsattn.ops.native import kernel_compiler, library
from tsattn.ops.native.kernel_compiler import INSTRUCTION_SETS, compilers, sets_of_this_cpu
from tsattn.ops.native.kernel_problem import what_is_wrong
from tsattn.ops.native.library import (
    CacheError,
    KernelLibrary,
    LibraryCache,
    build_library,
    cache_folder,
    find_library,
    load_kernels,
    why_no_kernels,
)

HERE = [one.name for one in sets_of_this_cpu()]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been looked for, and nothing came along."""
    monkeypatch.setattr(library, "_found", {})
    monkeypatch.setattr(library, "COMPILED", Path("/nowhere"))


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compiler optimise nothing: the kernels of all other tests are as they are shipped."""
    flags = tuple("-O0" if flag == "-O3" else flag for flag in kernel_compiler._FLAGS)
    monkeypatch.setattr(kernel_compiler, "_FLAGS", flags)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", HERE[:1])  # test_wheel compiles the others
def test_they_are_compiled_at_first_use(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = empty_cache(tmp_path, monkeypatch)
    hurry(monkeypatch)
    monkeypatch.setenv("TSATTN_KERNELS", name)
    kernels = load_kernels()
    assert kernels is not None, why_no_kernels()
    assert why_no_kernels() is None
    assert kernels.tsattn_lanes() == {"avx512_bf16": 16, "avx512": 16, "avx2": 8}.get(name, 4)
    assert kernels.tsattn_tile_keys() > 0
    assert [path.name.split("-")[0] for path in folder.glob("*.so")] == [name]


def test_those_that_came_along_are_taken_first(
    found: KernelLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found.path is not None
    assert found.instruction_set is not None
    path = tmp_path / f"{found.instruction_set.name}.so"
    shutil.copyfile(found.path, path)
    monkeypatch.setattr(library, "COMPILED", tmp_path)
    without_compiler(tmp_path, monkeypatch)
    folder = empty_cache(tmp_path, monkeypatch)
    again = find_library()
    assert again.library is not None
    assert again.came_along
    assert (again.path, again.why_none, again.complaints) == (path, None, ())
    assert not folder.exists()


def test_one_that_came_along_and_cannot_be_loaded_is_told(
    copying: CopyingCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "COMPILED", tmp_path)
    path = tmp_path / f"{HERE[0]}.so"
    path.write_bytes(b"garbage")
    found = find_library()
    assert found.library is not None
    assert not found.came_along
    assert f"{path} cannot be loaded" in str(found.complaints[0])


def test_where_the_best_set_does_not_compile_the_next_is_taken(
    copying: CopyingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [INSTRUCTION_SETS["avx512"], INSTRUCTION_SETS["portable"]]
    monkeypatch.setattr(library, "chosen_sets", lambda word: sets)
    refusing = "    if '-mavx512bw' in words: sys.exit('error: unrecognized option -mavx512bw')\n"
    text = copying.path.read_text()
    copying.path.write_text(text.replace("    time.sleep", refusing + "    time.sleep"))
    found = find_library()
    assert found.instruction_set == sets[1]
    assert tuple(map(str, found.complaints)) == (
        "copying 1.0 does not compile them: error: unrecognized option -mavx512bw",
    )


@needs_compiler
@pytest.mark.slow
def test_kernels_that_compute_wrong_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # a compiler that takes one step of the sources for another
    source = tmp_path / "source"
    shutil.copytree(Path(library.__file__).with_name("source"), source)
    lanes = (source / "lanes.h").read_text()
    changed = lanes.replace("0.6931469671f", "0.6831469671f")
    assert changed != lanes
    (source / "lanes.h").write_text(changed)
    monkeypatch.setattr("tsattn.ops.native.kernel_compiler.SOURCE", source)
    monkeypatch.setenv("CXX", compilers()[0].command[0])
    monkeypatch.setenv("TSATTN_KERNELS", "portable")
    hurry(monkeypatch)
    empty_cache(tmp_path, monkeypatch)
    assert load_kernels() is None
    reason = why_no_kernels()
    assert reason is not None
    assert reason.endswith(".so is not used, as its outputs are wrong")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_the_check_sees_what_is_not_computed(found: KernelLibrary) -> None:
    @dataclass
    class Idle:
        wrong: str

        def __getattr__(self, name: str) -> object:
            return (lambda problem: 0) if name == f"tsattn_{self.wrong}" else getattr(found.library, name)

    for wrong in ("forward", "backward", "dropout"):
        assert what_is_wrong(Idle(wrong)) is not None  # type: ignore[arg-type]
    assert found.library is not None
    assert what_is_wrong(found.library) is None


def test_where_no_cache_can_be_made_a_process_compiles_its_own(
    copying: CopyingCompiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kernels = load_kernels()
    assert kernels is not None
    assert not what_is_wrong(kernels)
    assert not list(tmp_path.glob("tsattn-*")), "the folder goes when the library is loaded"
    (record,) = caplog.records
    assert "cannot be made" in record.getMessage()
    assert "XDG_CACHE_HOME can name another folder" in record.getMessage()


def test_threads_get_one_library(copying: CopyingCompiler) -> None:
    kernels: list[object] = []
    threads = [threading.Thread(target=lambda: kernels.append(load_kernels())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 4
    assert len(set(map(id, kernels))) == 1
    assert kernels[0] is not None
    assert copying.runs() == 1


FORKED = """
import os, threading, time
from tsattn.ops.native import library

def find(word):
    started.set()
    time.sleep({pause})
    return library.KernelLibrary(why_none="of the parent")

started, find_library = threading.Event(), library.find_library
library.find_library = find
thread = threading.Thread(target=library.load_kernels)
thread.start()
started.wait()
child = os.fork()  # while another thread of the parent looks for them
if not child:
    library.find_library = find_library
    os._exit(0 if library.load_kernels() else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os._exit(code)
"""


def test_a_child_that_was_forked_meanwhile_looks_for_itself(copying: CopyingCompiler) -> None:
    code = FORKED.format(pause=3600)
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


def test_the_word_is_read_at_each_call_and_another_is_refused(
    copying: CopyingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = load_kernels()
    assert kernels is not None
    monkeypatch.setenv("TSATTN_KERNELS", "off")
    with monkeypatch.context() as patch:
        patch.setattr(library, "sets_of_this_cpu", lambda: pytest.fail("looked for"))
        assert load_kernels() is None
        assert why_no_kernels() == "TSATTN_KERNELS=off"
    monkeypatch.delenv("TSATTN_KERNELS")
    assert load_kernels() is kernels
    monkeypatch.setattr(library, "sets_of_this_cpu", lambda: [INSTRUCTION_SETS["avx2"], INSTRUCTION_SETS["portable"]])
    for word, said in (
        ("avx1", "must be one of auto, off, avx512_bf16, avx512, avx2, neon, portable, not 'avx1'"),
        ("avx512", "TSATTN_KERNELS=avx512: not on this CPU, .*; valid: avx2, portable$"),
    ):
        monkeypatch.setenv("TSATTN_KERNELS", word)
        with pytest.raises(UserError, match=said):
            load_kernels()


@pytest.mark.parametrize(
    ("why", "level", "reason"),
    [
        ("no compiler", logging.INFO, "there is no C++ compiler, and this tsattn came without compiled kernels"),
        ("wrong CXX", logging.WARNING, "CXX=nothing-of-that-name is not a C++ compiler that runs here"),
        ("no set", logging.INFO, "this CPU has none of avx512_bf16, avx512, avx2, neon, or ATEN_CPU_CAPABILITY"),
    ],
)
def test_where_there_are_none_it_is_said_once(
    why: str, level: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_compiler(tmp_path, monkeypatch)
    empty_cache(tmp_path, monkeypatch)
    if why == "wrong CXX":
        monkeypatch.setenv("CXX", "nothing-of-that-name")
    if why == "no set":
        monkeypatch.setattr(library, "sets_of_this_cpu", lambda: [INSTRUCTION_SETS["portable"]])
    with caplog.at_level(logging.INFO, "tsattn"):
        for _ in range(3):
            assert load_kernels() is None
            assert str(why_no_kernels()).startswith(reason)
    (record,) = caplog.records
    assert record.levelno == level
    assert f"native kernels: {reason}" in record.getMessage()


@pytest.mark.parametrize("spoilt", ["nothing", "folder", "file"])
def test_without_its_compiler_a_library_is_loaded_if_it_is_trusted(
    spoilt: str, copying: CopyingCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = find_library().path
    again = build_library()  # compiles though it is there
    assert copying.runs() == 2
    assert again.path == path
    assert path is not None
    assert path.parent == cache_folder()
    place = path.parent if spoilt == "folder" else path
    if spoilt != "nothing":
        place.chmod(0o777)
    without_compiler(tmp_path, monkeypatch)
    found = find_library()
    if spoilt == "nothing":
        assert found.library is not None
        assert (found.path, found.compiler) == (path, None)
    else:
        assert found.library is None
        assert str(found.why_none).startswith(f"others can write to {place}, so ")


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
    assert (why_no_kernels() or "").endswith("error: not today (try again with `tsattn kernels --build`)")
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
