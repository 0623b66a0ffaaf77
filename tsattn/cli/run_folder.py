"""The folder of a run: everything needed to read its result, test it again, or forecast with it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from tsattn.errors import UserError
from tsattn.passwords import without_password

__all__ = ["RunFolder", "versions"]

_PACKAGES = ("tsattn", "torch", "lightning", "numpy", "pandas", "scikit-learn", "torchmetrics", "jsonargparse")


class RunFolder:
    """Names of the files in a run folder.

    Args:
        path: the folder.

    Attributes:
        config: complete configuration, YAML that `fit --config` takes.
        metrics: errors of model and baselines, and how they came about, JSON.
        versions: versions, hardware and command, JSON.
        curve: training and validation losses, CSV.
        figure: a few test windows, truth and forecast, PNG.
        forecast: where `predict` writes by default, CSV.
        checkpoints: folder of the checkpoints.
        best: the checkpoint with the lowest validation error.
        last: the last checkpoint.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.json"
        self.versions = self.path / "versions.json"
        self.curve = self.path / "metrics.csv"
        self.figure = self.path / "forecast.png"
        self.forecast = self.path / "forecast.csv"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.last = self.checkpoints / "last.ckpt"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint in it yet."""
        return self.best.exists() or self.last.exists()

    @classmethod
    def dated(cls, root: str | Path, data: str, name: str) -> RunFolder:
        """A new folder `root/data/name/time`; two runs of one second are told apart by a number."""
        stem = Path(root) / data / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        path, number = stem, 1
        while path.exists():
            number += 1
            path = stem.with_name(f"{stem.name}_{number}")
        return cls(path)

    def create(self) -> None:
        """Make the folder.

        Raises:
            UserError: if it exists already, or cannot be made.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=False)
        except FileExistsError as error:
            raise UserError(
                f"the run folder {self.path} exists already; nothing is overwritten, name another"
            ) from error
        except OSError as error:
            raise UserError(f"the run folder {self.path} cannot be made: {error.strerror}") from error

    def check_new(self) -> None:
        """Refuse a folder that exists."""
        if self.path.exists():
            raise UserError(f"the run folder {self.path} exists already; nothing is overwritten, name another")

    @contextlib.contextmanager
    def removed_if_it_fails(self, is_empty: Callable[[Exception], bool] = lambda error: True) -> Iterator[None]:
        """Remove the folder again where an error ends what is done inside, unless it holds what is worth keeping.

        Args:
            is_empty: says of an error whether the folder holds nothing worth keeping.
        """
        try:
            yield
        except Exception as error:
            if is_empty(error):
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def check_resumable(self, longer: bool = False) -> None:
        """Refuse a folder that no `fit` has begun, or whose `fit` came to its end unless it is to be trained longer."""
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} is not there; valid is a folder that `fit` has begun")
        if not self.config.exists():
            raise UserError(f"{self.path} is not the folder of a run: it has no {self.config.name}")
        if self.metrics.exists() and not longer:
            raise UserError(
                f"the run {self.path} is finished: its results are in {self.metrics}; --trainer.max_steps (or "
                "max_epochs, or max_time) beside --resume trains it longer"
            )

    def extend(self, config: str, step: int, command: list[str]) -> None:
        """Make a run one that is to be trained longer, whose results are to come; the former ones keep a name.

        Args:
            config: its configuration, with the new limits.
            step: the step that it goes on behind.
            command: that asked for it.
        """
        partial = self.config.with_name(self.config.name + ".partial")
        partial.write_text(config)
        partial.replace(self.config)
        if self.metrics.exists():
            self.metrics.replace(self.path / f"metrics_step_{step}.json")
        known = json.loads(self.versions.read_text()) if self.versions.exists() else {}
        again = {"step": step, "command": [without_password(word) for word in command]}
        self.write_json(self.versions, {**known, "extensions": [*known.get("extensions", []), again]})

    def check_trained(self) -> None:
        """Refuse a folder without the best checkpoint of a `fit`."""
        if not self.path.is_dir():
            raise UserError(f"the run folder {self.path} is not there; valid is a folder that `fit` has written")
        for file in (self.config, self.best):
            if not file.exists():
                raise UserError(
                    f"{self.path} is not the folder of a trained model: it has no {file.relative_to(self.path)}"
                )

    def write_json(self, file: Path, content: dict[str, Any]) -> None:
        """Write plain data, all or nothing."""
        partial = file.with_name(file.name + ".partial")
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
        partial.replace(file)


def versions(command: list[str], device: str) -> dict[str, Any]:
    """What a result depends on beside config and data: the command, versions and hardware."""
    import torch

    return {
        "command": [without_password(word) for word in command],
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "threads": torch.get_num_threads(),
    }
