"""Draw forecasts next to their history. Figures are returned, never shown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DayLocator
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import Panel
from tsattn.data.columns import TIME_COLUMNS
from tsattn.data.frequency import is_steps, one_time
from tsattn.data.stamps import in_zone_of
from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.window_errors import central_intervals
from tsattn.figures.plain_names import axis_name, forecast_title
from tsattn.figures.style import ACCENT, INK
from tsattn.predictors.base import Predictor
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule

_CHANNELS, _HISTORY = 3, 60  # the last channels of a test window; steps of a season before the shortest forecast
# of ticks at the start of a year, month, day and so on, and of what all have in common: a lone tick counts as a second
_DATES = {"zero_formats": ["", "%Y", "%b", *["%b-%d"] * 3], "offset_formats": ["", *["%Y"] * 5]}
_WIDTH, _HEIGHT = 6.4, 2.0  # inches, of a figure and of a panel: its words are legible on a phone
_SHADES = 0.15, 0.3  # opacity of the widest interval and of the narrowest


@torch.no_grad()
def plot_test_forecasts(
    predictor: Predictor,
    data: ForecastDataModule,
    title: str,
    forecast: Callable[[Batch], Tensor] | None = None,
    num_windows: int = 3,
) -> Figure:
    """Draw forecasts of test windows, the last and others evenly before it, a panel for each window and channel.

    The data are set up; `forecast`, if given, takes a batch in place of the fitted predictor.
    """
    task, output, L = predictor.task, predictor.output, predictor.context_length
    windows = data.windows("test", L, predictor.seasons)
    numbers = sorted(set(np.linspace(len(windows) - 1, 0, min(num_windows, len(windows)), dtype=int).tolist()))
    batch, names = windows.__getitems__(numbers), [""] * len(numbers)
    panel: Any = data.panel  # of data that are set up, whose windows have time
    if not panel.is_wide and batch.series_id is not None:
        names = [f"{shown(panel.ids[number])}, " for number in batch.series_id]
    scaled = ((forecast or predictor.eval())(batch), batch.past, batch.known_target)
    predicted, past, target = (data.series.units.restore(part, batch.series_id).numpy() for part in scaled)
    if batch.past_observed is not None and batch.target_observed is not None:
        past[~batch.past_observed.numpy()] = np.nan
        target[~batch.target_observed.numpy()] = np.nan
    observed, stamps = np.concatenate([past, target], axis=1), np.asarray(batch.time)
    if not is_steps(task.frequency):
        stamps = stamps.astype("M8[s]").astype("M8[ns]")
        step = np.diff(pd.date_range("2000", periods=2, freq=task.frequency).to_numpy()).astype("m8[ns]")
        if step < np.timedelta64(1, "s"):  # the time of a window begins with a whole second
            stamps = stamps[:, :1] + np.arange(stamps.shape[1]) * step
    dates, first = are_dates(stamps.ravel()), max(0, L - 2 * task.prediction_length)
    channels = range(task.num_channels)[-_CHANNELS:]
    figure, axes = _panels(len(numbers) * len(channels))
    for window, row in enumerate(axes.reshape(len(numbers), -1)):
        moment = stamps[window, L]
        written = "%Y-%m-%d" if dates else "%Y-%m-%d %H:%M"
        at = f"step {moment}" if isinstance(moment, np.integer) else f"{pd.Timestamp(moment):{written}}"
        row[0].set_title(f"{names[window]}forecast from {at}", fontsize=10, loc="left")
        for ax, channel in zip(row, channels, strict=True):
            ax.plot(stamps[window, first:], observed[window, first:, channel], color=INK, lw=1.2, label="observed")
            last = stamps[window, L - 1 : L], past[window, -1, channel]
            _draw_forecast(ax, stamps[window, L:], np.atleast_2d(predicted[window, :, channel].T), output, last)
            _tidy(ax, task, axis_name(task, task.channels[channel]), dates)
    _finish(figure, title, [*axes[0].lines[:2], *axes[0].collections])
    return figure


def plot_forecast(
    forecast: pd.DataFrame, history: Panel, task: Task, output: Output, ids: Any = None, most: int = 6, model: str = ""
) -> Figure:
    """Draw forecasts after their history, a panel for each series, in original units.

    Args:
        forecast: a frame as `future_frame` makes it; with a column ``cutoff``, one forecast from each of these; with
            a column ``scenario``, a line for each of these, without intervals.
        history: the series that were forecast; with rows over the horizon, these are drawn too.
        task: of the forecast.
        output: its form.
        ids: the series to draw (of a wide table, its columns), or a single one; the first `most` by default.
        most: series that are drawn by default.
        model: named in the title, see `tsattn.figures.plain_names.model_words`.

    Raises:
        UserError: for an id without a forecast or a history, or a frame that is no forecast.
    """
    levels, id_name = [str(level) for level in output.quantiles], history.id_name
    # of another frame than the history, time may be called otherwise
    times = (name for name in TIME_COLUMNS if name in forecast.columns)
    time_name = history.time_name if history.time_name in forecast.columns else next(times, history.time_name)
    if lacking := [name for name in (id_name, time_name, "predictions", *levels) if name not in forecast.columns]:
        raise UserError(f"the frame is no forecast of this model: it has no column {lacking[0]}")
    if not len(forecast):
        raise UserError("the forecast has no rows")
    stamps = in_zone_of(history.time, one_time(pd.Index(forecast[time_name])), "the forecast", "the history")
    forecast = forecast.assign(**{time_name: stamps})
    chosen = _chosen_ids(forecast[id_name].drop_duplicates().tolist(), history, ids, most)
    targets = task.channels if "target_name" in forecast.columns else (None,)
    rows = [(name, target) for name in chosen for target in targets]
    (figure, axes), horizon = _panels(len(rows)), 0
    apart = next((column for column in ("cutoff", "scenario") if column in forecast.columns), None)
    for ax, (name, target) in zip(axes, rows, strict=True):
        part = forecast[forecast[id_name] == name]
        part = part if target is None else part[part["target_name"] == target]
        number = 0 if history.is_wide else history.ids.index(name)
        channel = history.channels.index(name if history.is_wide else target or history.channels[0])
        stamps = one_time(pd.Index(part[time_name]))
        time: Any = history.time_of(number)
        first, end = time.searchsorted(stamps.min()), time.searchsorted(stamps.max(), side="right")
        named = [("", part)] if apart is None else [*part.groupby(apart, sort=apart == "cutoff")]
        longest = max(len(piece) for _, piece in named)
        horizon = max(horizon, longest)
        # two horizons before it, and a season where that does not make the forecast tiny
        before = max(2 * longest, 24, min(task.season_length, max(4 * longest, _HISTORY)))
        past = slice(max(0, int(first) - before), int(end))
        values = history.values[history.starts[number] : history.starts[number + 1], channel]
        ax.plot(time[past], values[past], color=INK, lw=1.2, label="observed")
        for place, (label, piece) in enumerate(named):  # one for each origin of a cross-validation, or scenario
            stamps = one_time(pd.Index(piece[time_name]))
            after = int(time.searchsorted(stamps.min()))
            begins = time[after] if after < len(time) else history.future_time(number, 1)[0]
            last = (time[after - 1 : after], values[after - 1]) if after and begins == stamps.min() else None
            if apart == "scenario":
                _draw_forecast(ax, stamps, [piece["predictions"]], Output(), last, shown(label), f"C{place}")
            else:
                _draw_forecast(ax, stamps, [piece[level] for level in levels or ["predictions"]], output, last)
        # a long name takes several lines, or it would reach into the axes above and below
        whole = axis_name(task, shown(name) if target is None else f"{shown(name)}, {target}")
        _tidy(ax, task, textwrap.fill(whole, 24), are_dates(time))
    shades = axes[0].collections[: len(central_intervals(output.quantiles))]
    lines = [line for line in axes[0].lines if not str(line.get_label()).startswith("_")]
    handles = [*(lines if "scenario" in forecast.columns else lines[:2]), *shades]
    _finish(figure, forecast_title(task, horizon, model), handles)
    return figure


def _chosen_ids(known: list[Any], history: Panel, ids: Any, most: int) -> list[Any]:
    chosen = known[:most] if ids is None else [ids] if np.isscalar(ids) else list(ids)
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        what = f"no forecast of {shown(unknown[0])}" if unknown else "no id to draw"
        raise UserError(f"there is {what}; valid are {one_of(map(shown, known[:12]))}")
    past_ids = history.channels if history.is_wide else history.ids
    if without := [shown(name) for name in chosen if name not in past_ids]:
        raise UserError(f"the history has no series {without[0]}; give the frame that was forecast from as history")
    return chosen


def _panels(count: int) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=(_WIDTH, 1.0 + _HEIGHT * max(1.2, count)), layout="constrained")
    return figure, figure.subplots(count, 1, squeeze=False)[:, 0]


def _draw_forecast(
    ax: Axes, stamps: Any, levels: Any, output: Output, last: Any, label: str = "forecast", color: str = ACCENT
) -> None:
    """Draw the median and a band for each central interval, from the last observed step (time, value) or None."""
    values, time = [np.asarray(level) for level in levels], np.asarray(stamps)
    if last is not None:
        values, time = [np.append(last[1], level) for level in values], np.append(np.asarray(last[0]), time)
    bands = central_intervals(output.quantiles)
    ax.plot(time, values[output.median or 0], color=color, lw=1.8, label=label)
    shades = [sum(_SHADES) / 2] if len(bands) == 1 else np.linspace(*_SHADES, len(bands))
    for (percent, low, high), alpha in zip(bands, shades, strict=True):
        style = {"color": color, "alpha": alpha, "lw": 0, "label": f"{percent:g} % interval"}
        ax.fill_between(time, values[low], values[high], **style)
    if last is not None:
        ax.axvline(time[0], color="0.7", lw=0.8, ls=":")


def _finish(figure: Figure, title: str, handles: Sequence[Any]) -> None:
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    columns = 3 if len(handles) > 4 else 4
    figure.legend(handles=handles, frameon=False, fontsize=10, loc="outside lower left", ncols=columns)


def are_dates(stamps: Any) -> bool:
    """Whether all time stamps are midnights, so that a time of day says nothing; numbers of steps are not."""
    stamps = pd.Index(stamps)
    return isinstance(stamps, pd.DatetimeIndex) and bool((stamps == stamps.normalize()).all())


def _tidy(ax: Axes, task: Task, name: str, dates: bool) -> None:
    """Bare axes with few ticks; where time stamps are dates, none within a day and no label with a time of day."""
    ax.set_ylabel(name, fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=10)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    if is_steps(task.frequency):
        return
    first, last = ax.get_xlim()  # in days
    # 7 is the least that matplotlib finds steps for at any length; it warns of fewer
    locator = DayLocator() if dates and last - first < 3 else AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, **(_DATES if dates else {})))  # type: ignore[no-untyped-call]
    ax.xaxis.get_offset_text().set_fontsize(10)
