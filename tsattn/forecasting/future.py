"""A forecast beyond the end of the data, as a frame with real time stamps and original units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from tsattn.data import future_index
from tsattn.errors import UserError
from tsattn.task import MEDIAN, Task

__all__ = ["WRITERS", "future_frame", "write_frame"]

WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


def future_frame(forecast: Tensor, task: Task, last: pd.Timestamp) -> pd.DataFrame:
    """One row for each channel and step: ``unique_id``, ``ds``, ``predictions``, and one column for each quantile.

    A column of a quantile is named after its level, ``0.1``; ``predictions`` is then the median.

    Args:
        forecast: `(T, C)` in original units; `(T, C, Q)` where the task has Q quantiles.
        task: what was forecast.
        last: the last time stamp of the data.
    """
    stamps = future_index(last, task.frequency, task.prediction_length)
    values = forecast.double().cpu()
    quantiles = {str(level): values[..., number] for number, level in enumerate(task.quantiles)}
    point = quantiles[str(MEDIAN)] if quantiles else values
    return pd.DataFrame(
        {
            "unique_id": np.repeat(list(task.channels), len(stamps)),
            "ds": np.tile(stamps, task.num_channels),
            **{name: part.T.numpy().ravel() for name, part in {"predictions": point, **quantiles}.items()},
        }
    )


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse a path that cannot be written to, before any work is done."""
    if path.suffix not in WRITERS:
        raise UserError(f"{path} must end in {' or '.join(WRITERS)}")
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; name another file with --output, or add --overwrite")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} of {path.name} is not there")


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write to `.csv` or `.parquet`, all or nothing."""
    partial = path.with_name(path.name + ".partial")
    try:
        WRITERS[path.suffix](frame, partial)
        partial.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
