"""Draw forecasts next to their history. Figures are returned, never shown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tsattn.data.frequency import one_time
from tsattn.data.public.cards import CARDS
from tsattn.data.stamps import in_zone_of
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.evaluation.window_errors import central_intervals
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
_STEPS = {
    **{"s": "second", "min": "minute", "h": "hour", "D": "day", "B": "business day", "W": "week"},
    **{"ME": "month", "MS": "month", "QE": "quarter", "QS": "quarter", "YE": "year", "YS": "year"},
}


class _Piece(NamedTuple):
    """A forecast, of one series and channel from one origin."""

    time: Any
    levels: list[Any]  # (T,) of each quantile, or the points
    output: Output
    label: str = "forecast"
    color: str = ACCENT


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
    (panel, task, _), T = data.contents, predictor.task.prediction_length
    windows = data.windows("test", **predictor.cut)
    numbers = sorted({*np.linspace(len(windows) - 1, 0, min(num_windows, len(windows)), dtype=int).tolist()})
    batch, ends = windows.__getitems__(numbers), np.cumsum([*map(len, windows.origins)])
    predicted = data.series.units.restore((forecast or predictor.eval())(batch), batch.series_id).numpy()
    channels = range(task.num_channels)[-_CHANNELS:]
    figure, axes = _panels(len(numbers) * len(channels))
    for row, window, made in zip(axes.reshape(len(numbers), -1), numbers, predicted, strict=True):
        series = int(ends.searchsorted(window, side="right"))
        origin = windows.origins[series][window - ends[series]]
        time: Any = panel.time_of(series)[origin : origin + T]
        at = f"step {time[0]}" if task.counts_steps else f"{time[0]:%Y-%m-%d %H:%M}"
        name = "" if panel.is_wide else f"{shown(panel.ids[series])}, "
        at = at.removesuffix(" 00:00" * are_dates(panel.time))
        row[0].set_title(f"{name}forecast from {at}", fontsize=10, loc="left")
        for ax, channel in zip(row, channels, strict=True):
            piece = _Piece(time, [*np.atleast_2d(made[:, channel].T)], predictor.output)
            _draw_panel(ax, task, panel, series, channel, [piece], task.channels[channel])
    _finish(figure, title, axes[0])
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
        model: named in the title, see `tsattn.predictors.Predictor.title`.

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
    known = forecast[id_name].drop_duplicates().tolist()
    chosen = known[:most] if ids is None else [ids] if np.isscalar(ids) else list(ids)
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        what = f"no forecast of {shown(unknown[0])}" if unknown else "no id in ids"
        raise UserError(f"there is {what}; valid are {one_of(map(shown, known[:12]))}")
    there = history.channels if history.is_wide else history.ids
    if without := [shown(name) for name in chosen if name not in there]:
        raise UserError(f"the history has no series {without[0]}; give the frame before the forecast as history")
    targets = task.channels if "target_name" in forecast.columns else (None,)
    rows = [(name, target) for name in chosen for target in targets]
    (figure, axes), horizon = _panels(len(rows)), 0
    apart = next((column for column in ("cutoff", "scenario") if column in forecast.columns), None)
    for ax, (name, target) in zip(axes, rows, strict=True):
        part = forecast[forecast[id_name] == name]
        part = part if target is None else part[part["target_name"] == target]
        number = 0 if history.is_wide else history.ids.index(name)
        channel = history.channels.index(name if history.is_wide else target or history.channels[0])
        pieces: list[_Piece] = []
        for label, piece in [("", part)] if apart is None else part.groupby(apart, sort=apart == "cutoff"):
            time = one_time(pd.Index(piece[time_name]))
            if apart == "scenario":
                pieces.append(_Piece(time, [piece["predictions"]], Output(), shown(label), f"C{len(pieces)}"))
            else:
                pieces.append(_Piece(time, [piece[level] for level in levels or ["predictions"]], output))
        horizon = max(horizon, *(len(piece.time) for piece in pieces))
        whole = shown(name) if target is None else f"{shown(name)}, {target}"
        _draw_panel(ax, task, history, number, channel, pieces, whole)
    _finish(figure, forecast_title(task, horizon, model), axes[0])
    return figure


def forecast_title(task: Task, horizon: int, model: str = "") -> str:
    """Name the data, if they have a name, the horizon and the model: ``CO2, 52 weeks ahead: PatchTST``."""
    number, base = re.match(r"(\d*)([A-Za-z]*)", task.frequency).groups()  # type: ignore[union-attr]
    step = _STEPS.get(base, "step")
    far = number_of(horizon, step if number in ("", "1") else "step")
    of_each = f" of {number} {step}s" if far.partition(" ")[2].rstrip("s") != step else ""
    data = "" if task.data == "panel" else f"{CARDS[task.data].label if task.data in CARDS else task.data}, "
    return f"{data}{far}{of_each} ahead" + (f": {model}" if model else "")


def axis_name(task: Task, name: str) -> str:
    """Name a series on an axis, with its unit if it is known."""
    card = CARDS.get(task.data)
    return name if card is None or card.unit is None else f"{card.label if name == card.name else name} ({card.unit})"


def _panels(count: int) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=(_WIDTH, 1.0 + _HEIGHT * max(1.2, count)), layout="constrained")
    return figure, figure.subplots(count, 1, squeeze=False)[:, 0]


def _draw_panel(
    ax: Axes, task: Task, panel: Panel, number: int, channel: int, pieces: Sequence[_Piece], name: str
) -> None:
    rows = slice(*panel.starts[number : number + 2])
    time, observed = panel.time[rows], panel.values[rows, channel]
    origins = [int(time.searchsorted(piece.time.min())) for piece in pieces]
    end = max(int(time.searchsorted(piece.time.max(), side="right")) for piece in pieces)
    longest = max(len(piece.time) for piece in pieces)
    # two horizons before it, and a season if that does not make the forecast tiny
    before = max(2 * longest, 24, min(task.season_length, max(4 * longest, _HISTORY)))
    past = slice(max(0, min(origins) - before), end)
    ax.plot(time[past], observed[past], color=INK, lw=1.2, label="observed")
    for origin, piece in zip(origins, pieces, strict=True):
        stamps, levels = np.asarray(piece.time), piece.levels
        begins = time[origin] if origin < len(time) else panel.future_time(number, 1)[0]
        if is_joined := bool(origin and begins == piece.time.min()):
            levels = [np.append(observed[origin - 1], level) for level in levels]
            stamps = np.append(np.asarray(time[origin - 1 : origin]), stamps)
        bands = central_intervals(piece.output.quantiles)
        ax.plot(stamps, levels[piece.output.median or 0], color=piece.color, lw=1.8, label=piece.label)
        shades = [sum(_SHADES) / 2] if len(bands) == 1 else np.linspace(*_SHADES, len(bands))
        for (percent, low, high), alpha in zip(bands, shades, strict=True):
            style = {"color": piece.color, "alpha": alpha, "lw": 0, "label": f"{percent:g} % interval"}
            ax.fill_between(stamps, levels[low], levels[high], **style)
        if is_joined:
            ax.axvline(stamps[0], color="0.7", lw=0.8, ls=":")
    # a long name takes several lines, or it would reach into the axes above and below
    ax.set_ylabel(textwrap.fill(axis_name(task, name), 24), fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=10)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    if task.counts_steps:
        return
    dates, (first, last) = are_dates(time), ax.get_xlim()  # in days
    # no tick within a day where all stamps are dates; 7 is the least that matplotlib finds steps for at any length
    locator = DayLocator() if dates and last - first < 3 else AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, **(_DATES if dates else {})))  # type: ignore[no-untyped-call]
    ax.xaxis.get_offset_text().set_fontsize(10)


def _finish(figure: Figure, title: str, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))  # several forecasts have one label
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    columns = 3 if len(named) > 4 else 4
    figure.legend(named.values(), named, frameon=False, fontsize=10, loc="outside lower left", ncols=columns)


def are_dates(stamps: Any) -> bool:
    """Whether all time stamps are midnights, so that a time of day says nothing; numbers of steps are not."""
    stamps = pd.Index(stamps)
    return isinstance(stamps, pd.DatetimeIndex) and bool((stamps == stamps.normalize()).all())
