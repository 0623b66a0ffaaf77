"""What a run folder holds, read for a report; of a run that goes on still, what is there so far."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.checks import folder_path
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.evaluation.intervals import central_intervals
from tsattn.experiments import Experiment, RunFolder
from tsattn.experiments.configs import read_config

__all__ = ["ReportedRun", "is_run_folder", "read_runs"]

_ERRORS = ("count", "squared_scaled", "absolute_scaled", "absolute_original", "seasonal_error")


@dataclass(frozen=True)
class ReportedRun:
    """A run.

    Attributes:
        name: alone among those of a report: the end of its path.
        folder: of the run.
        config: what its YAML says.
        metrics: what it came to; empty for a run that is not finished.
        versions: versions, hardware, command, and what was noted.
        colour: the number of the colour that it has in all figures.
    """

    name: str
    folder: RunFolder
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    versions: Mapping[str, Any]
    colour: int

    @property
    def data(self) -> str:
        """The name of the data set; empty for a run that is not finished."""
        return str(self.metrics.get("data", ""))

    @property
    def horizon(self) -> int | None:
        """T; None for a run that is not finished."""
        return self.metrics.get("prediction_length")

    @property
    def scores(self) -> Mapping[str, Mapping[str, float | None]]:
        """The test scores by predictor, its own first, then those of the baselines."""
        return self.metrics.get("test") or {}

    @property
    def predictor(self) -> str:
        """What forecasts, as its scores name it."""
        return next(iter(self.scores), "") or _kind(self.config)

    @property
    def num_bands(self) -> int:
        """How many central intervals it forecasts."""
        quantiles = (self.config.get("model") or {}).get("quantiles") or ()
        return len(central_intervals(quantiles)) if isinstance(quantiles, list) else 0

    @cached_property
    def experiment(self) -> Experiment:
        """What was run.

        Raises:
            UserError: for a configuration that is no longer valid.
        """
        return Experiment.read(self.folder.config)

    @cached_property
    def errors(self) -> pd.DataFrame | None:
        """The test errors: a row a window and channel, in the order of the windows; None where there are none.

        Raises:
            UserError: for a file that is damaged.
        """
        if not self.folder.errors.exists():
            return None
        return ErrorTable.read(self.folder.errors).frame(["unique_id", "origin", "channel", *_ERRORS])

    @cached_property
    def curves(self) -> Mapping[str, pd.DataFrame]:
        """Training curves: by the name of the member of an ensemble, empty for the whole."""
        files = {"": self.folder.curve}
        files |= {
            path.parent.name: path for path in sorted(self.folder.path.glob(f"members/*/{self.folder.curve.name}"))
        }
        return {name: pd.read_csv(path) for name, path in files.items() if path.exists() and path.stat().st_size}

    @property
    def test_set(self) -> tuple[Any, ...]:
        """What runs share whose test windows are the same ones; that of a run without errors is its own."""
        errors, fingerprint = self.errors, self.versions.get("fingerprint")
        if errors is None or fingerprint is None:
            return (self.name,)
        return fingerprint, self.horizon, len(errors), str(errors["origin"].iloc[0]), str(errors["origin"].iloc[-1])


def is_run_folder(path: str | Path) -> bool:
    """Whether this is the folder of a run, finished or not."""
    run = RunFolder(folder_path(path))
    return run.config.is_file() and (run.versions.is_file() or run.checkpoints.is_dir())


def read_runs(folders: Sequence[str | Path]) -> list[ReportedRun]:
    """The runs in these folders, each once.

    Raises:
        UserError: for a folder whose files are damaged.
    """
    paths = list(dict.fromkeys(folder_path(folder).resolve() for folder in folders))
    return [_read(path, name, number) for number, (path, name) in enumerate(zip(paths, _names(paths), strict=True), 1)]


def _read(path: Path, name: str, number: int) -> ReportedRun:
    run = RunFolder(path)
    return ReportedRun(name, run, read_config(run.config), _json(run.metrics), _json(run.versions), number)


def _json(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"{file} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is damaged: it holds no facts by their names")
    return content


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart; a date and time alone says nothing."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        is_said = length > 1 or not any(re.match(r"\d{4}-\d\d-\d\d", name) for name in names)
        if len(set(names)) == len(names) and is_said:
            return names
    return [str(path) for path in paths]


def _kind(config: Mapping[str, Any]) -> str:
    backbone = (config.get("model") or {}).get("backbone")
    return str(backbone.get("kind", "") if isinstance(backbone, Mapping) else backbone or "")
