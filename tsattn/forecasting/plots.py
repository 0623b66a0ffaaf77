"""Figures of forecasts. They are returned, never shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.forecasting.metrics import central_intervals
from tsattn.forecasting.module import ForecastingModule
from tsattn.task import MEDIAN

__all__ = ["plot_test_forecasts"]

_TRUTH, _FORECAST = "#30343b", "#d1495b"
_SHADES = 0.15, 0.3  # opacity of the widest interval and of the narrowest


@torch.no_grad()
def plot_test_forecasts(
    model: ForecastingModule, data: ForecastDataModule, title: str, num_windows: int = 3, num_channels: int = 3
) -> Figure:
    """Truth and forecast for a few test windows (columns, evenly spread in time) and channels (rows), original units.

    Quantiles are drawn as the median with a band for each central interval, the wider the lighter.

    Args:
        model: a trained model.
        data: its data, set up.
        title: of the figure.
        num_windows: columns at most.
        num_channels: rows at most, the last channels of the data (the target of ETT comes last).
    """
    assert model.task is not None
    task, windows = model.task, data.windows("test")
    numbers = sorted(set(np.linspace(0, len(windows) - 1, min(num_windows, len(windows)), dtype=int).tolist()))
    batch = windows.__getitems__(numbers)
    scaled = (model.to("cpu", torch.float32).eval()(batch), batch.past, _target(batch))
    forecast, past, target = (model.original_units(values.double()).numpy() for values in scaled)
    intervals = central_intervals(task.quantiles)
    shades = np.linspace(*_SHADES, len(intervals))
    median = forecast[..., task.quantiles.index(MEDIAN)] if task.quantiles else forecast
    if batch.past_observed is not None and batch.target_observed is not None:
        past[~batch.past_observed.numpy()] = np.nan
        target[~batch.target_observed.numpy()] = np.nan
    assert batch.time is not None
    stamps = pd.to_datetime(batch.time.numpy().ravel(), unit="s").to_numpy().reshape(batch.time.shape)
    shown = min(task.context_length, 2 * task.prediction_length)
    channels = list(range(task.num_channels))[-num_channels:]
    drawn = "median" if task.quantiles else "forecast"
    figure = Figure(figsize=(4.2 * len(numbers), 0.9 + 2.1 * len(channels)), layout="constrained")
    axes = figure.subplots(len(channels), len(numbers), squeeze=False, sharex="col")
    for row, channel in enumerate(channels):
        for column in range(len(numbers)):
            ax: Axes = axes[row, column]
            L = task.context_length
            ax.plot(stamps[column, L - shown : L], past[column, -shown:, channel], color=_TRUTH, lw=1.1)
            ax.plot(stamps[column, L:], target[column, :, channel], color=_TRUTH, lw=1.1, alpha=0.55, label="truth")
            ax.plot(stamps[column, L:], median[column, :, channel], color=_FORECAST, lw=1.5, label=drawn)
            for (percent, low, high), alpha in zip(intervals, shades, strict=True):
                bounds = forecast[column, :, channel, low], forecast[column, :, channel, high]
                label = f"{percent:g} % interval"
                ax.fill_between(stamps[column, L:], *bounds, color=_FORECAST, alpha=alpha, lw=0, label=label)
            ax.axvline(stamps[column, L], color="0.7", lw=0.8, ls=":")
            ax.spines[["top", "right"]].set_visible(False)
            locator = AutoDateLocator(minticks=3, maxticks=5)  # type: ignore[no-untyped-call]
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
            ax.tick_params(labelsize=8)
            if column == 0:
                ax.set_ylabel(task.channels[channel])
            if row == 0:
                start = pd.Timestamp(stamps[column, L])
                ax.set_title(f"forecast from {start:%Y-%m-%d %H:%M}", fontsize=9)
    handles = [*axes[0, 0].lines[1:3], *axes[0, 0].collections]
    figure.legend(handles=handles, frameon=False, fontsize=9, loc="outside upper right", ncols=len(handles))
    figure.suptitle(title, fontsize=11)
    return figure


def _target(batch: Batch) -> torch.Tensor:
    assert batch.target is not None
    return batch.target
