"""Windows that the attention of a fitted predictor looks at: the end of a series, or one of the data of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from tsattn.batch import Batch
from tsattn.data import ForecastDataModule, FutureWindows, Panel, Series, scaled_series
from tsattn.errors import UserError, is_whole_number, number_of, one_of, shown
from tsattn.predictors.attention_layers import AttentionLayer
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["attention_frame", "data_window", "last_window", "window_title"]


def last_window(fitted: FittedPredictor, panel: Panel, id: Any = None, series: Series | None = None) -> Batch:
    """Return the window of a series (by default the first) whose horizon lies beyond its end.

    Args:
        fitted: predictor and scaler.
        panel: series as its task needs them.
        id: id of the series, or its text.
        series: the same series, scaled, if they are at hand.

    Raises:
        UserError: for an unknown id, or a future covariate that does not reach over the horizon.
    """
    found = [number for number, own in enumerate(panel.ids) if id is None or own == id or str(own) == str(id)]
    if not found:
        also = ", ..." if len(panel.ids) > 20 else ""
        raise UserError(f"there is no series {shown(id)}; valid: {one_of(map(str, panel.ids[:20]))}{also}")
    task = replace(fitted.predictor.task, context_length=fitted.predictor.context_length)
    series = scaled_series(panel, fitted.scaler) if series is None else series
    return FutureWindows(panel, series, task, fitted.scaler, warns_of_short=False)[found[0]]


def data_window(fitted: FittedPredictor, data: ForecastDataModule, part: str, window: int) -> Batch:
    """Return a window of the ``val`` or ``test`` part of data, by its number from 0, or from -1 for the last.

    Raises:
        UserError: for a window that is not there.
    """
    windows = data.windows(part, fitted.predictor.context_length)
    count = len(windows)
    if not is_whole_number(window) or not -count <= window < count:
        raise UserError(
            f"window must be from 0 to {count - 1}, or from -{count} for the first to -1 for the last, of "
            f"the {number_of(count, 'window')} of the {part} part, not {window}"
        )
    return windows[window % count]


def window_title(fitted: FittedPredictor, panel: Panel, batch: Batch, layers: list[AttentionLayer]) -> str:
    """Return the predictor, the series and channel, and the last step of the context of a window."""
    from tsattn.figures.plain_names import model_words

    task = fitted.predictor.task
    assert batch.time is not None
    names = [] if panel.is_wide or batch.series_id is None else [str(panel.ids[int(batch.series_id[0])])]
    channels = dict.fromkeys(layer.channel for layer in layers if layer.channel is not None)
    names += [*channels] if task.num_channels > 1 else []
    now = int(batch.time[0, batch.past.shape[1] - 1])
    stamp = pd.Timestamp(now, unit="s")
    until = now if task.counts_steps else stamp.date() if stamp == stamp.normalize() else f"{stamp:%Y-%m-%d %H:%M}"
    return ", ".join([model_words(fitted.predictor), *names, f"context up to {until}"])


def attention_frame(layers: list[AttentionLayer]) -> pd.DataFrame:
    """Return the frames of all layers, end to end; queries and keys of several kinds become text."""
    frame = pd.concat([layer.frame() for layer in layers], ignore_index=True)
    mixed = [name for name in ("query", "key") if frame[name].dtype == object]
    return frame.astype(dict.fromkeys(mixed, str))
