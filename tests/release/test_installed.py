"""What a release is made of: the wheel of a source distribution, installed where the repository is not to be found."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.ops.native.test_wheel import ROOT, build
from tsattn.experiments.configs import config_names


def installed(name: str) -> bool:
    """Whether a package is there; whoever looks for the module pip loses the distutils that torch compiles with."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.skipif(not installed(name), reason=f"{name} is not installed")
        for name in ("hatchling", "pip", "twine")
    ),
]

FIT = """
import sys
from pathlib import Path
import tsattn
from tsattn.cli import main
assert Path(tsattn.__file__).is_relative_to(sys.prefix), tsattn.__file__
small = ["--attention", "swa", "--model.backbone.d_model", "8", "--trainer.max_epochs", "null"]
steps = ["--trainer.max_steps", "2", "--trainer.val_check_interval", "2"]
assert main(["fit", "--config", "co2_mlr.yaml", "--run", "run", *small, *steps]) == 0
assert main(["predict", "--run", "run", "--output", "forecast.csv"]) == 0
forecaster = tsattn.Forecaster("tiny", prediction_length=4)
assert len(forecaster.predict(tsattn.CO2DataModule().load_frame())) == 4
ours = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "tsattn"]
assert all(Path(file).is_relative_to(sys.prefix) for file in ours)
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The source distribution, the wheel that is made of it, and one that is made of the repository."""
    folder = tmp_path_factory.mktemp("release")
    sdist, _ = build(ROOT, folder / "sdist", "sdist")
    shutil.unpack_archive(sdist, folder / "unpacked")
    (tree,) = (folder / "unpacked").iterdir()
    wheel, _ = build(tree, folder / "wheel", TSATTN_KERNELS="off")
    direct, _ = build(ROOT, folder / "direct", TSATTN_KERNELS="off")
    return sdist, wheel, direct


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_source_distribution_gives_the_same_wheel(release: tuple[Path, Path, Path]) -> None:
    _, wheel, direct = release
    assert wheel.name == direct.name
    assert wheel.name.endswith("-py3-none-any.whl"), "TSATTN_KERNELS=off"
    contents = [files_of(path) for path in (wheel, direct)]
    assert contents[0] == contents[1]
    names = set(contents[0])
    assert "tsattn/py.typed" in names
    assert {f"tsattn/configs/{name}" for name in config_names("*.yaml")} <= names
    assert all(name.startswith(("tsattn/", "tsattn-")) for name in names)
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone, so that what is tracked is not known")
def test_a_source_distribution_is_tested_as_a_clone_is(release: tuple[Path, Path, Path]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    with tarfile.open(release[0]) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    left_out = {name for name in tracked if name and name not in held}
    assert left_out <= {".gitignore"}
    assert held - set(tracked) == {"PKG-INFO"}


def test_the_registry_would_take_both(release: tuple[Path, Path, Path]) -> None:
    files = [str(path) for path in release[:2]]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_an_installed_wheel_is_all_that_is_needed(release: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python*/site-packages")
    # what the package needs is found here, the repository is not: files named in a folder's own .pth files are not read
    (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--ignore-installed", str(release[1])], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    away = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=elsewhere, env=away, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    paths = run(str(python), "-c", "import sys; print(*sys.path, sep='\\n')").splitlines()
    assert str(ROOT) not in paths
    assert "usage: tsattn COMMAND" in run(str(python), "-m", "tsattn", "--help")
    version = importlib.metadata.version("tsattn")
    assert run(str(folder / "bin" / "tsattn"), "--version") == f"tsattn {version}\n"
    run(str(python), "-c", FIT)
    assert (elsewhere / "run" / "forecast.png").is_file()
    assert (elsewhere / "forecast.csv").is_file()
