"""What the attention of a fitted predictor looks at before it forecasts: of a panel, or of the data of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from tsattn.batch import Batch
from tsattn.data import ForecastDataModule, FutureWindows, Panel, Series, scaled_series
from tsattn.errors import UserError, is_whole_number, number_of, one_of, shown
from tsattn.figures.plain_names import model_words
from tsattn.predictors.attention_layers import AttentionLayer
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["attention_frame", "data_window", "last_window", "window_title"]


def last_window(fitted: FittedPredictor, panel: Panel, id: Any = None, series: Series | None = None) -> Batch:
    """The window of a series whose horizon lies beyond its end, as the predictor sees it.

    Args:
        fitted: a predictor and its scaler.
        panel: the series, as its task needs them.
        id: of the series; the first by default.
        series: the same series, scaled, where they are at hand.

    Raises:
        UserError: for an id that is not there, or a future covariate that does not reach over the horizon.
    """
    task = fitted.predictor.task
    number = series_number(panel, id)
    task = replace(task, context_length=fitted.predictor.context_length)
    series = scaled_series(panel, fitted.scaler) if series is None else series
    windows = FutureWindows(panel, series, task, fitted.scaler, warns_of_short=False)
    return windows[number]


def data_window(fitted: FittedPredictor, data: ForecastDataModule, part: str, window: int) -> Batch:
    """A window of a part of the data, by its number in the order of series and time.

    Args:
        fitted: a predictor and its scaler.
        data: set up.
        part: ``val`` or ``test``.
        window: its number from 0, or from the last one, -1.

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


def series_number(panel: Panel, id: Any) -> int:
    """The place of a series, by its id or the text of that.

    Raises:
        UserError: for an id that is not there.
    """
    if id is None:
        return 0
    found = [number for number, own in enumerate(panel.ids) if own == id or str(own) == str(id)]
    if not found:
        also = ", ..." if len(panel.ids) > 20 else ""
        raise UserError(f"there is no series {shown(id)}; valid: {one_of(map(str, panel.ids[:20]))}{also}")
    return found[0]


def window_title(fitted: FittedPredictor, panel: Panel, batch: Batch, layers: list[AttentionLayer]) -> str:
    """The predictor, the series and channel, and the last step of the context of a window."""
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
    """The frames of all layers, end to end, see `AttentionLayer.frame`.

    Queries and keys of several kinds, as the time stamps of patches and the token of a whole window, become text.
    """
    frame = pd.concat([layer.frame() for layer in layers], ignore_index=True)
    for name in ("query", "key"):
        if frame[name].dtype == object:
            frame[name] = frame[name].astype(str)
    return frame
