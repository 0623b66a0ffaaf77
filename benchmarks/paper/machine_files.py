"""What each machine has measured: its rows, and what a reader must know of it, in two files that bear its name."""

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

__all__ = ["MachineFiles", "all_machines", "how_measured"]

_VERSIONS = ("tsattn", "torch", "kernels")  # with others what was measured is measured anew


@dataclass(frozen=True)
class MachineFiles:
    """``machines/NAME.csv`` and ``machines/NAME.json`` of one machine in the folder of an experiment.

    Attributes:
        folder: of the experiment.
        about: what is known of the machine and the programs on it, with how it measures, ``settings``.
    """

    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def here(cls, folder: Path, settings: Mapping[str, Any], device: str = "cpu") -> Self:
        """Those of this machine.

        Args:
            folder: of the experiment.
            settings: of what is measured, as plain data: what was measured by others is no part of it.
            device: that is measured, ``cpu`` in float32 or ``cuda`` in bfloat16.
        """
        about = describe(device, torch.float32 if device == "cpu" else torch.bfloat16)
        return cls(folder, {"tsattn": importlib.metadata.version("tsattn"), **about, "settings": dict(settings)})

    def path(self, ending: str) -> Path:
        """Of one of the files."""
        return self.folder / "machines" / f"{slug_of(dict(self.about))}.{ending}"

    def rows(self) -> pd.DataFrame:
        """What was measured by these versions and settings; empty where nothing was."""
        return pd.read_csv(self.path("csv")) if self._known() else pd.DataFrame()

    def add(self, rows: pd.DataFrame, seconds: float) -> None:
        """Write rows after those of these versions and settings, in the place of any others.

        Args:
            rows: that were measured.
            seconds: that it took.
        """
        known = self._known()
        before = [self.rows()] if known else []
        write_text(self.path("csv"), pd.concat([*before, rows], ignore_index=True).to_csv(index=False))
        about = {**self.about, "seconds": round(known.get("seconds", 0) + seconds, 1)}
        write_text(self.path("json"), json.dumps(about, indent=2) + "\n")

    def remove(self) -> None:
        """Forget what was measured."""
        for ending in ("csv", "json"):
            self.path(ending).unlink(missing_ok=True)

    def _known(self) -> dict[str, Any]:
        """What the JSON file says, if it is of these versions and settings."""
        if not (self.path("json").is_file() and self.path("csv").is_file()):
            return {}
        known: dict[str, Any] = json.loads(self.path("json").read_text())
        same = (known.get(name) == self.about.get(name) for name in (*_VERSIONS, "settings"))
        return known if all(same) else {}


def all_machines(folder: Path, settings: Mapping[str, Any]) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """The rows of all machines that measured by some settings, with ``machine``, and what is known of each.

    Args:
        folder: of the experiment.
        settings: see `MachineFiles.here`.
    """
    parts, known = [], []
    for file in sorted((folder / "machines").glob("*.json")):
        about = json.loads(file.read_text())
        if about["settings"] != settings:
            continue
        known.append(about)
        parts.append(pd.read_csv(file.with_suffix(".csv")).assign(machine=_called(about)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(), known


def how_measured(command: str, known: list[dict[str, Any]]) -> str:
    """How it was made, on what and how long it took, as Markdown.

    Args:
        command: that does all of it.
        known: from `all_machines`.
    """
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
