"""Experiments that are timed: what each machine has measured is kept, in two files that bear its name, and reported."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch

from benchmarks.measuring import describe, slug_of
from benchmarks.paper.claims import PaperReport, write_outcome
from benchmarks.paper.experiment import RESULTS
from tsattn.saved_folders import write_text

_SAME = ("tsattn", "torch", "kernels", "settings")  # rows of others are measured again


@dataclass(frozen=True)
class MachineFiles:
    """``machines/NAME.csv`` and ``machines/NAME.json`` of one machine in the folder of an experiment."""

    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def here(cls, folder: Path, settings: Mapping[str, Any], device: str = "cpu") -> Self:
        """Name the files of this machine, of ``cpu`` in float32 or ``cuda`` in bfloat16, by plain settings."""
        about = describe(device, torch.float32 if device == "cpu" else torch.bfloat16)
        return cls(folder, {"tsattn": importlib.metadata.version("tsattn"), **about, "settings": dict(settings)})

    def path(self, ending: str) -> Path:
        return self.folder / "machines" / f"{slug_of(dict(self.about))}.{ending}"

    def rows(self) -> pd.DataFrame:
        """Return the rows that these versions and settings measured."""
        return pd.read_csv(self.path("csv")) if self._known() else pd.DataFrame()

    def add(self, rows: pd.DataFrame, seconds: float) -> None:
        """Write rows that took so many seconds after those of the same versions and settings, instead of any others."""
        known = self._known()
        write_text(self.path("csv"), pd.concat([self.rows(), rows], ignore_index=True).to_csv(index=False))
        about = {**self.about, "seconds": round(known.get("seconds", 0) + seconds, 1)}
        write_text(self.path("json"), json.dumps(about, indent=2) + "\n")

    def remove(self) -> None:
        for ending in ("csv", "json"):
            self.path(ending).unlink(missing_ok=True)

    def _known(self) -> dict[str, Any]:
        if not (self.path("json").is_file() and self.path("csv").is_file()):
            return {}
        known: dict[str, Any] = json.loads(self.path("json").read_text())
        return known if all(known.get(name) == self.about.get(name) for name in _SAME) else {}


def all_machines(folder: Path, settings: Mapping[str, Any]) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Read the rows of all machines that measured by some settings, with ``machine``, and the facts about each."""
    parts, known = [pd.DataFrame()], []
    for file in sorted((folder / "machines").glob("*.json")):
        about = json.loads(file.read_text())
        if about["settings"] == settings:
            known.append(about)
            parts.append(pd.read_csv(file.with_suffix(".csv")).assign(machine=_called(about)))
    return pd.concat(parts, ignore_index=True), known


def timed_parser(name: str, doc: str | None, seconds: float, turns_of: str) -> argparse.ArgumentParser:
    """Make the parser of a timed experiment, with the options that `measure_and_report` takes."""
    raw, script = argparse.RawDescriptionHelpFormatter, f"python benchmarks/paper/{name}.py"
    parser = argparse.ArgumentParser(prog=script, description=doc, formatter_class=raw)
    said = f"for the turns of {turns_of}, if 5 are done"
    parser.add_argument("--seconds", type=float, default=seconds, help=said)
    parser.add_argument("--again", action="store_true", help="measure again what was measured here already")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured, and end")
    parser.add_argument("--report-only", action="store_true", help="write the report of what was measured")
    parser.add_argument("--output", type=Path, default=RESULTS / name, metavar="DIR", help="of all files")
    return parser


def measure_and_report(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    parts: tuple[str, Sequence[int]],
    measure: Callable[[int], pd.DataFrame],
    report: Callable[[pd.DataFrame], PaperReport],
    command: str,
    device: str = "cpu",
) -> int:
    """Measure what this machine has not measured yet, and report what all machines have; return the exit code.

    Args:
        options: of `timed_parser`.
        settings: of the measurement, as plain data: rows of other settings are measured again.
        parts: a column of the rows, and the numbers in it that are asked for.
        measure: makes the rows of a part.
        report: of the rows of all machines, with ``machine``.
        command: that makes them.
        device: that is measured.
    """
    column, numbers = parts
    if not options.report_only:
        files = MachineFiles.here(options.output, settings, device)
        rows = files.rows()
        done = set() if rows.empty or options.again else set(rows[column])
        if options.again and not options.dry_run:
            files.remove()
        for number in numbers:
            print(f"{column} {number}: {'measured' if number in done else 'to be measured'}", flush=True)
            if number not in done and not options.dry_run:
                began = time.monotonic()
                found = measure(number)
                files.add(found, time.monotonic() - began)
        if options.dry_run:
            return 0
    rows, known = all_machines(options.output, settings)
    if rows.empty:
        print(f"error: nothing was measured in {options.output}: run it without --report-only", file=sys.stderr)
        return 2
    lines = [f"`{command}`, by the clock:"]
    for about in known:
        named = ", ".join(f"{name} {about[name]}" for name in ("tsattn", "torch", "python") if about.get(name))
        lines.append(f"- {_called(about)}: {about['seconds'] / 60:.0f} minutes; {named}")
    seconds = sum(about["seconds"] for about in known)
    write_outcome(options.output, report(rows[rows[column].isin(numbers)]), "\n".join(lines), seconds=seconds)
    print(f"report: {options.output / 'report.md'}")
    return 0


def _called(about: Mapping[str, Any]) -> str:
    if "gpu" in about:
        return f"{about['gpu']}, {about['dtype']}"
    model = f" (family {about['cpu_family']} model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{model}, one thread"
