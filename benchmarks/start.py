"""How long a new user waits: the size of an installation, and seconds to import, to help, to the first forecast.

    python benchmarks/start.py [--environment DIR] [--repeats 3] [--output benchmarks/results]

Builds a wheel and installs it with its dependencies, and no more, into a new environment (minutes), or measures one
that has it already (`--environment`). Each command is run in an empty folder; the median is reported, in seconds on the
clock and of the processor. Writes `start.json`, with how busy the machine was.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from measuring import about, new_parser, parse, write_record

ROOT = Path(__file__).parents[1]
FORECAST = """
from tsattn import CO2DataModule, Forecaster
frame = CO2DataModule().load_frame()
forecast = Forecaster("tiny", prediction_length=24).predict(frame)
assert len(forecast) == 24 and forecast["predictions"].notna().all()
"""
TRAINED = """
from tsattn import CO2DataModule, Forecaster
frame = CO2DataModule().load_frame()
forecaster = Forecaster("patchtst", attention="mlr", context_length=208, prediction_length=52, max_steps=200)
forecast = forecaster.fit(frame).predict()
assert len(forecast) == 52 and forecast["predictions"].notna().all()
"""
IMPORT, AT_MOST = "python -c 'import tsattn'", 1.0  # seconds of the processor
COMMANDS = {
    IMPORT: ["-c", "import tsattn"],
    "python -c 'import tsattn; tsattn.Forecaster'": ["-c", "import tsattn; tsattn.Forecaster"],
    "tsattn --help": ["-m", "tsattn", "--help"],
    "tsattn fit --help": ["-m", "tsattn", "fit", "--help"],
    "a first forecast, with the embedded model": ["-c", FORECAST],
    "a first forecast, trained": ["-c", TRAINED],
    "tsattn fit --config co2_mlr.yaml": ["-m", "tsattn", "fit", "--config", "co2_mlr.yaml"],
}


def main(words: list[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--environment", type=Path, metavar="DIR", help="one with this package and its dependencies")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each command (default: 3)")
    options = parse(parser, words)
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        environment = options.environment or installed(Path(place) / "environment")
        (packages,) = (environment / "lib").glob("python*/site-packages")
        size, python = sizes(packages), environment / "bin" / "python"
        timings = {name: timed(python, command, options.repeats) for name, command in COMMANDS.items()}
    record = {**about("lightning", "numpy", "pandas"), "load_before": round(busy, 1), "installed_mb": size}
    write_record(options.output / "start.json", {**record, "repeats": options.repeats, "seconds": timings})
    for name, found in timings.items():
        print(f"{name:<50} {found['clock']:>7.2f} s, {found['processor']:.2f} s of the processor")
    print(f"installed: {size['all']} MB, of which torch {size['torch']} MB")
    is_late = timings[IMPORT]["processor"] > AT_MOST
    print(f"{IMPORT} takes longer than {AT_MOST:g} s of the processor\n" * is_late, end="")
    return int(is_late)


def installed(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    wheels, build = folder / "wheels", [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", wheels], cwd=ROOT, check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    constraints = ["--constraint", ROOT / "requirements" / "constraints.txt"]
    subprocess.run([*pip, *constraints, *wheels.iterdir()], cwd=folder, check=True)
    return folder


def timed(python: Path, command: list[str], repeats: int) -> dict[str, float]:
    """Return medians of a command in an empty folder, after a first run that leaves compiled files."""
    taken: dict[str, list[float]] = {"clock": [], "processor": []}
    ours = ("PYTHONPATH", "TSATTN_DATA", "PYTHONDONTWRITEBYTECODE")  # the last would compile a checkout each time
    away = {name: value for name, value in os.environ.items() if name not in ours}
    for _ in range(repeats + 1):
        with tempfile.TemporaryDirectory() as place:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([python, *command], cwd=place, env=away, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken["clock"].append(time.perf_counter() - start)
        taken["processor"].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {of: round(statistics.median(seconds[1:]), 2) for of, seconds in taken.items()}


def sizes(packages: Path) -> dict[str, int]:
    """Return megabytes of the largest packages, compiled files included, without pip, which every environment has."""
    found: dict[str, int] = {}
    for file in packages.rglob("*"):
        name = file.relative_to(packages).parts[0].split("-")[0].removesuffix(".libs")
        if file.is_file() and name != "pip":
            found[name] = found.get(name, 0) + file.stat().st_size
    shown = dict.fromkeys(["tsattn", *sorted(found, key=lambda name: -found[name])[:8]])
    return {"all": round(sum(found.values()) / 1e6), **{name: round(found[name] / 1e6) for name in shown}}


if __name__ == "__main__":
    sys.exit(main())
