"""Rows that each machine has measured, and the facts about it, in two files that bear its name."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch

from benchmarks.measuring import describe, slug_of
from tsattn.saved_folders import write_text

_SAME = ("tsattn", "torch", "kernels", "settings")  # rows of others are measured again


@dataclass(frozen=True)
class MachineFiles:
    """``machines/NAME.csv`` and ``machines/NAME.json`` of one machine in the folder of an experiment."""

    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def here(cls, folder: Path, settings: Mapping[str, Any], device: str = "cpu") -> Self:
        """Name the files of this machine: of ``cpu`` in float32, or ``cuda`` in bfloat16.

        Args:
            folder: of the experiment.
            settings: of the measurement, as plain data: rows of other settings are not resumed.
            device: that is measured.
        """
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


def how_measured(command: str, known: list[dict[str, Any]]) -> str:
    """Describe the command, and each machine with its time, as Markdown."""
    lines = [f"`{command}`, by the clock:"]
    for about in known:
        named = ", ".join(f"{name} {about[name]}" for name in ("tsattn", "torch", "python") if about.get(name))
        lines.append(f"- {_called(about)}: {about['seconds'] / 60:.0f} minutes; {named}")
    return "\n".join(lines)


def _called(about: Mapping[str, Any]) -> str:
    if "gpu" in about:
        return f"{about['gpu']}, {about['dtype']}"
    model = f" (family {about['cpu_family']} model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{model}, one thread"
