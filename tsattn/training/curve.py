"""The training curve of a run: who writes it, and how a run goes on with it."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

__all__ = ["count_epochs", "curve_loggers", "keep_curve"]


class _Epochs:
    """A logger that counts epochs by steps, to a hundredth: Lightning sees a training as one epoch and would write 0.

    Attributes:
        steps_per_epoch: steps in which every training window is seen once; None leaves the epochs as they come.
    """

    steps_per_epoch: float | None = None

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write a line; the steps are counted from 0."""
        if self.steps_per_epoch is not None and step is not None and "epoch" in metrics:
            metrics = {**metrics, "epoch": round((step + 1) / self.steps_per_epoch, 2)}
        super().log_metrics(metrics, step)  # type: ignore[misc]  # of the logger that this is mixed into


class _CSV(_Epochs, CSVLogger):
    """The curve as a table."""


class _TensorBoard(_Epochs, TensorBoardLogger):
    """The curve for TensorBoard."""


def curve_loggers(folder: Path) -> list[Logger]:
    """The curve as CSV, and for TensorBoard where the extra is installed."""
    loggers: list[Logger] = [_CSV(folder, name="", version="")]
    if importlib.util.find_spec("tensorboard"):
        loggers.append(_TensorBoard(folder, name="", version="tensorboard"))
    return loggers


def count_epochs(loggers: Iterable[Logger], steps_per_epoch: float) -> None:
    """Tell the loggers how many steps an epoch has."""
    for logger in loggers:
        if isinstance(logger, _Epochs):
            logger.steps_per_epoch = steps_per_epoch


def keep_curve(loggers: Iterable[Logger], path: Path, step: int) -> None:
    """Let the CSV logger go on with the curve of a run, up to a step.

    Lightning's logger begins its file anew; what it would have lost is put back, without the steps that are taken
    again.

    Args:
        loggers: those of the Trainer.
        path: the curve.
        step: the last step of the checkpoint that training goes on from.
    """
    if not path.exists():
        return
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        columns, rows = list(reader.fieldnames or []), list(reader)
    for logger in loggers:
        if isinstance(logger, CSVLogger) and Path(logger.log_dir) == path.parent:
            writer = logger.experiment  # this removes the file
            with path.open("w", newline="") as file:
                rewritten = csv.DictWriter(file, columns)
                rewritten.writeheader()
                rewritten.writerows(row for row in rows if int(row["step"]) < step)
            writer.metrics_keys = columns
