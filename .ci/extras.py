"""Install each extra beside the core in an environment of its own, and import what it brings.

    python .ci/extras.py [EXTRA ...]

The core is installed once; the environment of an extra looks into that one and holds what it adds. Takes minutes and
gigabytes, in `.venv-extras`. `benchmarks/results/extras.json` gets the last try of each; a failed import is a failure.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
import venv
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-extras"
LOG = ROOT / "benchmarks" / "results" / "extras.json"

IMPORT = """
import importlib, json, re, sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
import tsattn
assert "site-packages" in tsattn.__file__, tsattn.__file__
for name in tsattn.__all__:
    getattr(tsattn, name)
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
extra, modules = sys.argv[1], {}
for module, owners in packages_distributions().items():
    for owner in owners:
        modules.setdefault(plain(owner), set()).add(module)
done = []
for one in map(Requirement, requires("tsattn")):
    if one.marker is None or not one.marker.evaluate({"extra": extra}) or one.marker.evaluate({"extra": ""}):
        continue
    # of several modules the one that is called as the package is, if there is one; stubs have none
    own = modules.get(plain(one.name), ())
    found = sorted(name for name in own if name.isidentifier() and not name.startswith("_"))
    same = [name for name in found if plain(name) == plain(one.name)]
    for name in same or found:
        importlib.import_module(name)
        done.append(name)
print(json.dumps(sorted(done)))
"""


def main(words: list[str]) -> int:
    """Try the extras named, or all; 1 if one cannot be installed or imported."""
    path, named = wheel(), words
    about: dict[str, Any] = {
        "command": "python .ci/extras.py",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "extras": json.loads(LOG.read_text())["extras"] if named and LOG.exists() else {},
    }
    core = PLACE / "core"
    if not (core / "installed").exists():  # one that an interrupted try has left will do
        install(environment("core"), str(path))
        (core / "installed").touch()
    about["core"] = {"mb": megabytes(core), "packages": packages(core)}
    failed = False
    for extra in named or extras_of(path):
        folder = environment(f"with_{extra}", beside=core)
        try:
            seconds = install(folder, f"{path}[{extra}]")
            python = str(folder / "bin" / "python")
            run([python, "-m", "pip", "check"])
            imported = json.loads(run([python, "-P", "-c", IMPORT, extra]).splitlines()[-1])
            found = {
                "seconds": round(seconds),
                "mb": megabytes(folder),
                "packages": packages(folder),
                "imports": imported,
            }
        except subprocess.CalledProcessError as error:
            failed = True
            found = {"failed": (error.stderr or error.stdout).strip().splitlines()[-1]}
        about["extras"][extra] = found
        print(f"{extra}: {found}", flush=True)
        shutil.rmtree(folder)
        LOG.write_text(json.dumps(about, indent=2) + "\n")
    if not named:
        shutil.rmtree(PLACE)
    return int(failed)


def wheel() -> Path:
    """Build the wheel to install."""
    folder = PLACE / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("tsattn-*.whl")
    return path


def extras_of(wheel: Path) -> list[str]:
    """The names of the extras of a wheel, in its own order."""
    with ZipFile(wheel) as file:
        (folder,) = {name.split("/")[0] for name in file.namelist() if ".dist-info/" in name}
        return PathDistribution(ZipPath(file, f"{folder}/")).metadata.get_all("Provides-Extra") or []


def environment(name: str, beside: Path | None = None) -> Path:
    """A new environment, which finds what is installed in another one, too."""
    folder = PLACE / name
    venv.create(folder, clear=True, with_pip=True, symlinks=True)
    if beside is not None:
        (site_packages(folder) / "beside.pth").write_text(f"{site_packages(beside)}\n")
    return folder


def install(folder: Path, what: str) -> float:
    """Install by the constraints; the seconds that it took."""
    start = time.monotonic()
    constraints = ["--constraint", str(ROOT / "requirements" / "constraints.txt")]
    run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *constraints, what])
    return time.monotonic() - start


def run(command: list[str]) -> str:
    """What a command prints, run where the repository is not on Python's path."""
    return subprocess.run(command, cwd=PLACE, check=True, capture_output=True, text=True).stdout


def site_packages(folder: Path) -> Path:
    """Where an environment has its packages."""
    (found,) = (folder / "lib").glob("python*/site-packages")
    return found


def megabytes(folder: Path) -> int:
    """Of what is installed, pip itself left out."""
    files = (file for file in site_packages(folder).rglob("*") if file.is_file() and not file.is_symlink())
    own = (file for file in files if file.relative_to(site_packages(folder)).parts[0].split("-")[0] != "pip")
    return round(sum(file.stat().st_size for file in own) / 1e6)


def packages(folder: Path) -> int:
    """How many there are, pip left out."""
    return len([one for one in site_packages(folder).glob("*.dist-info") if not one.name.startswith("pip-")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
