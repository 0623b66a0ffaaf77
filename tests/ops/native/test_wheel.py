"""What is in a wheel, with a compiler and without; hatchling builds it, as it does for pip."""

import copy
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.ops.native.conftest import environment, needs_compiler
from tsattn.ops.native.kernel_compiler import compilers, sets_of_machine, sets_of_this_cpu

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed"),
]

SETS = sets_of_machine()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in ("tsattn", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "published.toml", folder / "benchmarks")
    (folder / ".ci").mkdir()
    for name in ("pyproject.toml", ".ci/hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(tree: Path, folder: Path, target: str = "wheel", **changes: str) -> tuple[Path, str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, **changes}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    (path,) = folder.iterdir()
    return path, done.stdout


def compiled(wheel: Path) -> list[str]:
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so"))


def hasty_compiler(path: Path) -> str:
    """A compiler that optimises nothing, and vectorises for this CPU alone: what is compiled is tested elsewhere."""
    own = f'case "$*" in *"{" ".join(sets_of_this_cpu()[0].flags)}"*) own=1 ;; *) own= ;; esac'
    words = 'case "$word" in -O3) word=-O0 ;; -m*) [ "$own" ] || continue ;; esac'
    changed = f'{own}\nfor word; do shift; {words}; set -- "$@" "$word"; done'
    path.write_text(f'#!/bin/sh\n{changed}\nexec {compilers()[0].command[0]} "$@"\n')
    path.chmod(0o755)
    return str(path)


def no_programs(folder: Path) -> str:
    folder.mkdir()
    return str(folder)


@needs_compiler
@pytest.mark.skipif(not SETS, reason="no instruction set of this architecture")
def test_a_wheel_brings_the_kernels_of_its_platform(tree: Path, tmp_path: Path) -> None:
    wheel, said = build(tree, tmp_path / "dist", CXX=hasty_compiler(tmp_path / "c++"))
    if sys.platform == "linux":
        assert wheel.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_')}.whl")
    assert not wheel.name.endswith("-any.whl")
    assert compiled(wheel) == sorted(f"tsattn/ops/native/compiled/{one.name}.so" for one in SETS)
    assert all(f"kernels for {one.name}, by " in said for one in SETS)
    # installed where there is no compiler, and nothing can be kept
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    assert (installed / "tsattn/ops/native/source/attention.cpp").is_file()
    code = """
from tsattn.ops.native.library import find_library, load_kernels
found = find_library()
print(load_kernels() is not None, found.came_along, found.instruction_set.name, found.path)
"""
    away = environment(PYTHONPATH=str(installed), PATH=no_programs(tmp_path / "none"), XDG_CACHE_HOME="/proc/nowhere")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=away, capture_output=True, text=True)
    best = sets_of_this_cpu()[0].name
    path = installed / "tsattn/ops/native/compiled" / f"{best}.so"
    assert done.stdout.split() == ["True", "True", best, str(path)], done.stderr


@pytest.mark.parametrize("has_compiler", [False, True])
def test_without_a_compiler_that_works_a_wheel_is_for_any_platform(
    has_compiler: bool, tree: Path, tmp_path: Path
) -> None:
    failing = tmp_path / "failing"
    failing.write_text('#!/bin/sh\n[ "$1" = --version ] && echo failing 1.0 && exit\necho error: no; exit 1\n')
    failing.chmod(0o700)
    changes = {"CXX": str(failing)} if has_compiler else {"PATH": no_programs(tmp_path / "none"), "CXX": ""}
    wheel, said = build(tree, tmp_path / "dist", **changes)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert compiled(wheel) == []
    reason = "failing 1.0 does not compile them: error: no" if has_compiler else "as there is no C++ compiler"
    assert reason in said
    there = set(zipfile.ZipFile(wheel).namelist())
    assert {"tsattn/ops/native/source/attention.cpp", "tsattn/pretrained/weights/tiny.safetensors"} <= there


def test_an_editable_install_compiles_when_they_are_used(tmp_path: Path) -> None:
    hook = runpy.run_path(str(ROOT / ".ci" / "hatch_build.py"))["KernelBuildHook"]
    before: dict[str, object] = {"force_include": {}, "pure_python": True}
    given = copy.deepcopy(before)
    hook(str(ROOT), {}, None, None, str(tmp_path), "wheel").initialize("editable", given)
    assert given == before
