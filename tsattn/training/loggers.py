"""Loggers of a training: the curve of a run folder, and Lightning's by name."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.errors import UserError

if TYPE_CHECKING:  # forecasting alone needs no Lightning
    from lightning.pytorch.loggers import Logger

LOGGERS: dict[str, tuple[str | None, str]] = {
    "csv": (None, "CSVLogger"),
    "tensorboard": ("tensorboard", "TensorBoardLogger"),
    "wandb": ("wandb", "WandbLogger"),
    "mlflow": ("mlflow", "MLFlowLogger"),
}
"""By name, the package that a logger needs, and its class in Lightning."""


def check_packages(given: Iterable[Any]) -> None:
    """Refuse named loggers whose package is not installed, by a `UserError` that says what to install."""
    for name in given:
        package = LOGGERS[name][0] if isinstance(name, str) else None
        if package is not None and importlib.util.find_spec(package) is None:
            raise UserError(f"logger {name} needs a package that is not installed: pip install {package}")


def attached_loggers(
    given: Sequence[Any], run: Path | None, root: str | Path | None, steps_per_epoch: float | None = None
) -> list[Logger]:
    """Build named loggers in the run folder, else in the root; a run has its curve as CSV and for TensorBoard, too."""
    from lightning.pytorch import loggers

    made: list[Logger] = [] if run is None else [loggers.CSVLogger(run, name="", version="")]
    if run is not None and importlib.util.find_spec("tensorboard"):
        made.append(loggers.TensorBoardLogger(run, name="", version="tensorboard"))
    for curve in made:
        curve.log_metrics = partial(_count_epochs, curve.log_metrics, steps_per_epoch)  # type: ignore[method-assign]
    where = run or Path(root or Path.cwd())
    for name in dict.fromkeys(one for one in given if isinstance(one, str)):
        if run is None or name not in ("csv", "tensorboard"):  # which a run folder has anyway
            cls = getattr(loggers, LOGGERS[name][1])
            made.append(cls(save_dir=str(where / "mlruns") if name == "mlflow" else where))
    return [*made, *(one for one in given if not isinstance(one, str))]


def _count_epochs(log: Any, steps_per_epoch: float | None, metrics: dict[str, float], step: int | None = None) -> None:
    """Count epochs by steps: Lightning sees a training as one epoch and would write 0."""
    if steps_per_epoch is not None and step is not None and "epoch" in metrics:
        metrics = {**metrics, "epoch": round((step + 1) / steps_per_epoch, 2)}
    log(metrics, step)


def keep_curve(loggers: Iterable[Logger], path: Path, step: int) -> None:
    """Let the CSV logger continue the curve of a run up to a step; Lightning's would begin a new file."""
    from lightning.pytorch.loggers import CSVLogger

    if not path.exists():
        return
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        columns, rows = list(reader.fieldnames or []), list(reader)
    for logger in loggers:
        if isinstance(logger, CSVLogger) and Path(logger.log_dir) == path.parent:
            logger.experiment.metrics_keys = columns  # asking for it removes the file
            with path.open("w", newline="") as file:
                rewritten = csv.DictWriter(file, columns)
                rewritten.writeheader()
                # a kill may have cut the last row
                rewritten.writerows(row for row in rows if (row["step"] or "").isdecimal() and int(row["step"]) < step)
