"""The training curve of a run that goes on."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger

__all__ = ["keep_curve"]


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
