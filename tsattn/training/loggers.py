"""Loggers of a training: the curve of a run folder, and Lightning's by name."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from tsattn.errors import UserError

__all__ = ["LOGGERS", "attached_loggers", "check_packages", "keep_curve"]

# by name: the package, and what makes the logger for a folder
LOGGERS: dict[str, tuple[str | None, Callable[[Path], Logger]]] = {
    "csv": (None, lambda folder: CSVLogger(folder)),
    "tensorboard": ("tensorboard", lambda folder: TensorBoardLogger(folder)),
    "wandb": ("wandb", lambda folder: WandbLogger(save_dir=folder)),
    "mlflow": ("mlflow", lambda folder: MLFlowLogger(save_dir=str(folder / "mlruns"))),
}
_OF_A_RUN = ("csv", "tensorboard")  # a run folder has these curves anyway


class _Epochs:
    """Mixin that counts epochs by steps: Lightning sees a training as one epoch and would write 0."""

    steps_per_epoch: float | None = None

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        if self.steps_per_epoch is not None and step is not None and "epoch" in metrics:
            metrics = {**metrics, "epoch": round((step + 1) / self.steps_per_epoch, 2)}
        super().log_metrics(metrics, step)  # type: ignore[misc]  # of the logger that this is mixed into


class _CSV(_Epochs, CSVLogger):
    pass


class _TensorBoard(_Epochs, TensorBoardLogger):
    pass


def check_packages(given: Iterable[Any]) -> None:
    """Refuse named loggers whose package is not installed.

    Raises:
        UserError: saying what to install.
    """
    for name in given:
        package = LOGGERS[name][0] if isinstance(name, str) else None
        if package is not None and importlib.util.find_spec(package) is None:
            raise UserError(f"logger {name} needs a package that is not installed: pip install {package}")


def attached_loggers(
    given: Iterable[Any], run: Path | None, root: str | Path | None, steps_per_epoch: float | None = None
) -> list[Logger]:
    """Build loggers of names and loggers.

    The folder of a run gets its curve as CSV, and for TensorBoard where that is installed. Without a run, loggers
    without a folder write into the root, by default the current folder.
    """
    named = [one for one in given if isinstance(one, str) and (run is None or one not in _OF_A_RUN)]
    where = run if run is not None else Path(root or Path.cwd())
    curves: list[Any] = [] if run is None else [_CSV(run, name="", version="")]
    if run is not None and importlib.util.find_spec("tensorboard"):
        curves.append(_TensorBoard(run, name="", version="tensorboard"))
    for curve in curves:
        curve.steps_per_epoch = steps_per_epoch
    made = [LOGGERS[name][1](where) for name in dict.fromkeys(named)]
    return [*curves, *made, *(one for one in given if not isinstance(one, str))]


def keep_curve(loggers: Iterable[Logger], path: Path, step: int) -> None:
    """Let the CSV logger continue the curve of a run up to a step; Lightning's would begin a new file."""
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
