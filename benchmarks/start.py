"""What a new user waits for: the size of an installation, and seconds to import, to help, to the first forecast.

    python benchmarks/start.py [--environment DIR] [--repeats 3] [--output benchmarks/results]

Builds a wheel and installs it with what it needs, and no more, into a new environment (minutes), or
measures one that has it already (`--environment`). Each command is run anew in an empty folder; the median is reported,
as seconds on the clock and of the processor. Writes `start.json` with the machine and how busy it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

FORECAST = """
from tsattn import CO2DataModule, Forecaster
frame = CO2DataModule().load_frame()
forecast = Forecaster("chronos-tiny", prediction_length=24).predict(frame)
assert len(forecast) == 24 and forecast["predictions"].notna().all()
"""
TRAINED = """
from tsattn import CO2DataModule, Forecaster
frame = CO2DataModule().load_frame()
forecaster = Forecaster("patchtst", attention="mlr", context_length=208, prediction_length=52, max_steps=200)
forecast = forecaster.fit(frame).predict()
assert len(forecast) == 52 and forecast["predictions"].notna().all()
"""
COMMANDS = {
    "python -c 'import tsattn'": ["-c", "import tsattn"],
    "python -c 'import tsattn; tsattn.Forecaster'": ["-c", "import tsattn; tsattn.Forecaster"],
    "tsattn --help": ["-m", "tsattn", "--help"],
    "tsattn fit --help": ["-m", "tsattn", "fit", "--help"],
    "a first forecast, with the embedded model": ["-c", FORECAST],
    "a first forecast, trained": ["-c", TRAINED],
    "tsattn fit --config co2_mlr.yaml": ["-m", "tsattn", "fit", "--config", "co2_mlr.yaml"],
}
AT_MOST = {"python -c 'import tsattn'": 1.0}  # seconds on a quiet machine


def main(words: list[str] | None = None) -> int:
    """Measure and write; 1 if something takes longer than it may and the machine was quiet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, metavar="DIR", help="one with this package and what it needs alone")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each command (default: 3)")
    parser.add_argument("--only", metavar="WORDS", help="commands with these words in them alone")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results", metavar="DIR")
    options = parser.parse_args(words)
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        environment = options.environment or installed(Path(place) / "environment")
        (packages,) = (environment / "lib").glob("python*/site-packages")
        size = sizes(packages)
        timings = {
            name: timed(environment / "bin" / "python", command, options.repeats)
            for name, command in COMMANDS.items()
            if (options.only or "") in name
        }
        versions = {name: version(packages, name) for name in ("tsattn", "torch", "lightning", "numpy", "pandas")}
    machine = {"cpu": cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
    about: dict[str, Any] = {
        "command": "python benchmarks/start.py",
        "machine": {**machine, "python": platform.python_version(), "load_before": round(busy, 1)},
        "load_after": round(os.getloadavg()[0], 1),
        "versions": versions,
        "installed_mb": size,
        "repeats": options.repeats,
        "seconds": timings,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "start.json").write_text(json.dumps(about, indent=2) + "\n")
    for name, found in timings.items():
        print(f"{name:<50} {found['clock']:>7.2f} s, {found['processor']:.2f} s of the processor")
    print(f"installed: {size['all']} MB, of which torch {size['torch']} MB")
    late = [name for name, most in AT_MOST.items() if name in timings and timings[name]["processor"] > most]
    for name in late:
        print(f"{name} takes longer than {AT_MOST[name]:g} s of the processor")
    return int(bool(late))


def installed(folder: Path) -> Path:
    """A new environment with the wheel of this package and what it needs."""
    venv.create(folder, with_pip=True)
    wheels = folder / "wheels"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels], cwd=ROOT, check=True
    )
    (wheel,) = wheels.iterdir()
    constraints = ["--quiet", "--constraint", ROOT / "requirements" / "constraints.txt"]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", *constraints, wheel], cwd=folder, check=True)
    return folder


def timed(python: Path, command: list[str], repeats: int) -> dict[str, float]:
    """Medians of a command in a folder that is empty each time, after a first run that leaves compiled files."""
    clock, processor = [], []
    for number in range(repeats + 1):
        with tempfile.TemporaryDirectory() as place:
            away = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TSATTN_DATA")}
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([python, *command], cwd=place, env=away, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if number:
            clock.append(time.perf_counter() - start)
            processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"clock": round(statistics.median(clock), 2), "processor": round(statistics.median(processor), 2)}


def sizes(packages: Path) -> dict[str, int]:
    """Megabytes by package, the largest alone, with what Python compiles; without pip, which every environment has."""
    found: dict[str, int] = {}
    for file in packages.rglob("*"):
        name = file.relative_to(packages).parts[0].split("-")[0].removesuffix(".libs")
        if file.is_file() and name != "pip":
            found[name] = found.get(name, 0) + file.stat().st_size
    largest = sorted(found, key=lambda name: -found[name])[:8]
    return {"all": round(sum(found.values()) / 1e6)} | {
        name: round(found[name] / 1e6) for name in dict.fromkeys(["tsattn", *largest])
    }


def version(packages: Path, name: str) -> str:
    """That of an installed package."""
    (folder,) = packages.glob(f"{name}-*.dist-info")
    return folder.name.removesuffix(".dist-info").partition("-")[2]


def cpu() -> str:
    """The name of this machine's processor."""
    file = Path("/proc/cpuinfo")
    for line in file.read_text().splitlines() if file.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
