"""A forecast beyond the end of the data, as a frame with real time stamps and original units."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from tsattn.data import Panel
from tsattn.errors import UserError, shown
from tsattn.task import MEDIAN, Output, Task

__all__ = ["WRITERS", "beside_truth", "check_output", "future_frame", "write_figure", "write_frame"]

WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


def future_frame(forecasts: Iterable[Tensor], task: Task, output: Output, panel: Panel, first: int = 0) -> pd.DataFrame:
    """Forecasts beyond the end of each series: a row for each series (or channel) and step.

    Series are sorted by their ids, channels stay in the order of the data.

    The columns are those of ids and time stamps as the data name them, ``predictions``, and one for each quantile,
    named after its level, ``0.1``; ``predictions`` is then the median. The channels of a wide table are series of their
    own here, in the column ``unique_id``; time stamps that are an index without a name are called ``ds``. Where the
    series of a long table have several channels, these are named in the column ``target_name``.

    Args:
        forecasts: batches in original units, each `(B, T, C)`; `(B, T, C, Q)` where the output has Q quantiles.
        task: what was forecast.
        output: in what form.
        panel: the series.
        first: the number of the first series that there is a forecast for.

    Raises:
        UserError: for a forecast that is not finite, naming the series.
    """
    values = torch.cat([*forecasts]).double().cpu().transpose(1, 2)  # (S, C, T) or (S, C, T, Q)
    S, C, T = values.shape[:3]
    _check_finite(values, task, panel, first)
    rows = np.tile(np.arange(S * T).reshape(S, 1, T), (1, C, 1)).ravel()
    time = panel.future_times(np.arange(first, first + S), T).take(rows)
    if panel.is_wide:
        frame = pd.DataFrame({panel.id_name: np.repeat(list(task.channels), T), panel.time_name: time})
    else:
        ids = pd.Index([*panel.ids[first : first + S]], tupleize_cols=False).repeat(C * T)
        frame = pd.DataFrame({panel.id_name: ids, panel.time_name: time})
        if C > 1:
            frame["target_name"] = np.tile(np.repeat(list(task.channels), T), S)
    quantiles = {str(level): values[..., number] for number, level in enumerate(output.quantiles)}
    point = quantiles[str(MEDIAN)] if quantiles else values
    return frame.assign(**{name: part.numpy().ravel() for name, part in {"predictions": point, **quantiles}.items()})


def check_output(
    path: Path, overwrite: bool, endings: Collection[str] = tuple(WRITERS), option: str = "--output"
) -> None:
    """Refuse a path that cannot be written to, before any work is done.

    Args:
        path: of the file.
        overwrite: whether one that is there may be replaced.
        endings: that it may have.
        option: that names it.

    Raises:
        UserError: saying why not.
    """
    if path.suffix not in endings:
        raise UserError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file")
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; name another file with {option}, or add --overwrite")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} of {path.name} is not there")
    with _all_or_nothing(path) as partial:  # what may be written is known to the system alone
        partial.touch()
        partial.unlink()


def _check_finite(values: Tensor, task: Task, panel: Panel, first: int) -> None:
    """Refuse forecasts `(S, C, ...)` that are no numbers."""
    is_good = values.isfinite().flatten(2).all(-1)
    if bool(is_good.all()):
        return
    number, channel = (~is_good).nonzero()[0].tolist()
    name = task.channels[channel] if panel.is_wide else panel.ids[first + number]
    raise UserError(
        f"the forecast of series {shown(name)} is not finite: its last {task.context_length} rows hold values far "
        "outside of those that were trained on, or the model is damaged"
    )


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write to `.csv` or `.parquet`, all or nothing.

    Raises:
        UserError: if it cannot be written.
    """
    with _all_or_nothing(path) as partial:
        WRITERS[path.suffix](frame, partial)
        partial.replace(path)


def write_figure(figure: Figure, path: Path) -> None:
    """Write in the format that the ending of the path names, all or nothing.

    Raises:
        UserError: if it cannot be written.
    """
    with _all_or_nothing(path) as partial:
        figure.savefig(partial, dpi=130, format=path.suffix[1:])
        partial.replace(path)


@contextlib.contextmanager
def _all_or_nothing(path: Path) -> Iterator[Path]:
    """A path beside this one to write to, which is not left behind."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
    except (OSError, ValueError, TypeError) as error:  # ids of several types fit into no Parquet column
        with contextlib.suppress(OSError):  # of a read-only disk, where it is not
            partial.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be written: {reason}") from error


def beside_truth(frames: Iterable[pd.DataFrame], whole: Panel, seen: Panel) -> pd.DataFrame:
    """Forecasts from the end of the rows that were seen, the cutoffs, and what came.

    Args:
        frames: of `future_frame`, of all series.
        whole: the series.
        seen: the rows of them that were seen.
    """
    frame = pd.concat([*frames], ignore_index=True)
    steps = len(frame) // len(whole)  # of one series, all its channels
    T = steps // len(whole.channels)
    rows = (whole.starts[:-1] + seen.lengths)[:, None] + np.arange(T)
    truth = whole.values[rows].transpose(0, 2, 1)  # (S, C, T), as forecasts are laid out
    frame.insert(2, "cutoff", seen.time[seen.starts[1:] - 1].repeat(steps))
    return frame.assign(y=truth.ravel())
