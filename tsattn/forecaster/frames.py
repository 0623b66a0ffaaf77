"""Forecasts as frames, with real time stamps and in original units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tsattn.data import Panel
from tsattn.errors import UserError, shown
from tsattn.predictors.fitted import FittedPredictor, forecast_batches
from tsattn.task import MEDIAN, Output, Task
from tsattn.training import Execution

__all__ = ["beside_truth", "forecast_frames", "future_frame", "output_of"]


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


def output_of(frame: pd.DataFrame, output: Output) -> Output:
    """The quantiles that a frame of a calibrated forecast has columns of; the predictor's if it has none.

    Args:
        frame: as `future_frame` makes it.
        output: of the predictor.
    """
    levels = sorted(float(name) for name in frame.columns if re.fullmatch(r"0\.\d+|\d(\.\d+)?e-\d+", str(name)))
    return Output(tuple(levels)) if MEDIAN in levels else output


def forecast_frames(
    fitted: FittedPredictor, panel: Panel, horizon: int, batch_size: int, execution: Execution
) -> Iterator[pd.DataFrame]:
    """Frames of forecasts, made when they are asked for; whether the panel will do is checked at once.

    Args:
        fitted: a predictor and its scaler.
        panel: the series, as the predictor needs them (`tsattn.data.matching.match_task`).
        horizon: steps to forecast.
        batch_size: series in a frame.
        execution: where to compute.

    Raises:
        UserError: if a future covariate does not reach over the horizon.
    """
    predictor = fitted.predictor
    forecasts = forecast_batches(predictor, fitted.scaler, panel, horizon, batch_size, execution)
    task, output = predictor.task, predictor.output

    def frames() -> Iterator[pd.DataFrame]:
        first = 0
        for forecast in forecasts:
            yield future_frame([forecast], task, output, panel, first)
            first += len(forecast)

    return frames()


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
