"""Draw residuals, actual values minus forecasts: in time, as a distribution, with themselves, and errors by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tsattn.data import Panel, season_length
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.measure import ScoredBatch
from tsattn.figures.style import ACCENT, HOUSE, INK, OTHERS

_COLORS = (ACCENT, *OTHERS)
_LINES, _POINTS, _MOST_LAGS = 6, 400, 200  # series that are followed in time, points of a quantile plot
_POOLED = 200_000  # residuals, at most, whose distribution is drawn
_TAIL = 0.002  # the share of residuals on each side that the histogram may leave out
_CERTAIN = 1.96  # standard deviations on each side that hold 95 % of a normal distribution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Residuals:
    """Residuals at one step of the horizon."""

    ahead: int  # the step, from 1
    lines: Mapping[str, tuple[NDArray[Any], Array]]  # by series or channel: rising time, residuals, NaN if unobserved
    pooled: Array  # observed residuals of all series, evenly thinned if they are many
    is_scaled: bool  # on the scale that is trained on, as with several series; else in original units
    season_length: int


class ResidualRecorder:
    """Gathers residuals as the ``watch`` of `measure`: of series, or of a wide panel's channels, `ahead` from 1."""

    def __init__(self, panel: Panel, ids: Sequence[Any] | None = None, ahead: int = 1) -> None:
        known = panel.channels if panel.is_wide else panel.ids
        if unknown := [name for name in ids or () if name not in known]:
            raise UserError(f"there is no series {shown(unknown[0])}; valid are {one_of(map(shown, known[:12]))}")
        numbers = [*range(len(known))] if ids is None else [known.index(name) for name in ids]
        self.series = [0] if panel.is_wide else numbers
        self.channels = numbers if panel.is_wide else [*range(len(panel.channels))]
        self._panel, self._ahead = panel, ahead
        self._is_scaled = len(self.series) * len(self.channels) > 1
        self._parts: list[pd.DataFrame] = []

    def __call__(self, batch: ScoredBatch) -> None:
        """Take the residuals of a batch."""
        step, T = self._ahead - 1, batch.point.shape[1]
        if not 0 <= step < T:
            raise UserError(f"ahead must be from 1 to {T}, a step of the horizon, not {self._ahead}")
        residuals = (batch.target[:, step] - batch.point[:, step]).double()  # (B, C)
        if not self._is_scaled:
            residuals = residuals * batch.units[1][:, 0]
        if batch.observed is not None:
            residuals = residuals.masked_fill(~batch.observed[:, step], torch.nan)
        time = batch.time[:, batch.time.shape[1] - T + step].cpu().numpy()
        part = pd.DataFrame(residuals.cpu().numpy()[:, self.channels], index=pd.Index(time, name="time"))
        part.insert(0, "series", batch.series.cpu().numpy())
        self._parts.append(part[part["series"].isin(self.series)])

    def finish(self) -> Residuals:
        """Return the residuals of all batches."""
        panel, lines, frame = self._panel, {}, pd.concat(self._parts)
        values = frame.drop(columns="series").to_numpy()
        places = [(number, place) for number in self.series[:_LINES] for place in range(len(self.channels))]
        for number, place in places[:_LINES]:
            names = [shown(panel.ids[number])] * (len(panel.channels) == 1 or len(self.series) > 1)
            names += [panel.channels[self.channels[place]]] * (len(panel.channels) > 1)
            line = frame.loc[frame["series"] == number, place].sort_index(kind="stable")
            stamps = line.index.to_numpy().astype("int64" if is_steps(panel.frequency) else "M8[s]")
            lines[", ".join(names)] = stamps, line.to_numpy()
        pooled = values[~np.isnan(values)]
        thinned = pooled[:: 1 + len(pooled) // _POOLED]
        return Residuals(self._ahead, lines, thinned, self._is_scaled, season_length(panel.frequency))


def plot_residuals(residuals: Residuals, errors: Mapping[str, ArrayLike], title: str) -> Figure:
    """Draw residuals over time, their histogram and quantiles next to a normal distribution, autocorrelation, errors.

    The grey band holds 95 % of the autocorrelations of uncorrelated residuals. Residuals more than a step ahead
    overlap, so even the best forecast correlates them.

    Args:
        residuals: of one forecaster.
        errors: mean absolute error at each step of the horizon, `(T,)`, by forecaster, first the one of `residuals`.
        title: of the figure.

    Raises:
        UserError: if no residual was observed.
    """
    if not len(residuals.pooled):
        raise UserError("there is no observed residual to draw")
    unit = "scaled" if residuals.is_scaled else "original units"
    with matplotlib.rc_context(HOUSE):
        figure = Figure(figsize=(7.2, 8))
        axes = figure.subplot_mosaic([["time", "time"], ["histogram", "quantiles"], ["lags", "steps"]])
        for color, (name, (time, values)) in zip(_COLORS, residuals.lines.items(), strict=False):
            axes["time"].plot(time, values, color=color, lw=0.7, alpha=0.8, label=name)
        axes["time"].axhline(0, color="0.6", lw=0.8)
        steps = "a step" if residuals.ahead == 1 else f"{residuals.ahead} steps"
        axes["time"].set(title=f"residuals {steps} ahead: observed less forecast", ylabel=unit)
        _draw_distribution(axes["histogram"], axes["quantiles"], residuals.pooled, unit)
        _draw_lags(axes["lags"], residuals)
        _draw_errors(axes["steps"], {name: np.asarray(values, float) for name, values in errors.items()})
        for ax in axes.values():
            ax.tick_params(labelsize=9)  # the number of ticks is found at drawing, outside of this context
        if len(residuals.lines) > 1:
            figure.legend(*axes["time"].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def autocorrelation(values: Array, lags: int) -> Array:
    """Correlate values with the values 1 to `lags` places before, `(lags,)`; missing values count as the mean."""
    centred = np.nan_to_num(values - np.nanmean(values))
    total = float((centred**2).sum())
    products = [float(centred[lag:] @ centred[:-lag]) for lag in range(1, lags + 1)]
    return np.array(products) / total if total else np.full(lags, np.nan)


def _draw_distribution(histogram: Axes, quantiles: Axes, pooled: Array, unit: str) -> None:
    low, high = np.quantile(pooled, [_TAIL, 1 - _TAIL])
    margin = 0.05 * (high - low) or 0.5
    bins = int(np.clip(2 * len(pooled) ** (1 / 3), 8, 60))
    histogram.hist(pooled, bins=bins, range=(low - margin, high + margin), density=True, color="0.8")
    mean, spread = float(pooled.mean()), float(pooled.std())
    if spread > 0:
        grid = np.linspace(low - margin, high + margin, 200)
        histogram.plot(grid, [NormalDist(mean, spread).pdf(x) for x in grid], color=INK, lw=1, label="normal")
    histogram.axvline(mean, color=ACCENT, lw=1.2, label=f"mean {mean:.3g}")
    histogram.set(title="histogram", xlabel=unit, yticks=[])
    histogram.legend()
    ordered = np.sort(pooled)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(_POINTS, len(ordered))).round().astype(int))
    normal = np.array([NormalDist().inv_cdf((place + 0.5) / len(ordered)) for place in places])
    quantiles.plot(normal, ordered[places], ".", color=ACCENT, ms=3)
    ends = np.array([normal.min(), normal.max()])
    quantiles.plot(ends, mean + spread * ends, color=INK, lw=1)
    quantiles.set(title="quantiles and a normal distribution", xlabel="standard deviations", ylabel=unit)


def _draw_lags(ax: Axes, residuals: Residuals) -> None:
    series = [values for _, values in residuals.lines.values()]
    fewest = max(map(len, series))
    lags = min(max(24, 2 * residuals.season_length), _MOST_LAGS, fewest // 4)
    ax.set(title="autocorrelation", xlabel="lag (windows)")
    ax.axhline(0, color="0.6", lw=0.8)
    if lags < 1:
        return
    for color, values in zip(_COLORS, series, strict=False):
        known = int((~np.isnan(values)).sum())
        if known > lags:
            fewest = min(fewest, known)
            found, places = autocorrelation(values, lags), np.arange(1, lags + 1)
            if len(series) == 1 and lags <= 60:
                ax.vlines(places, 0, found, color=color, lw=1.4)
            else:
                ax.plot(places, found, color=color, lw=1.1)
    bound = _CERTAIN / np.sqrt(fewest)
    ax.axhspan(-bound, bound, color="0.92", zorder=0)
    ax.set_xlim(0, lags + 1)


def _draw_errors(ax: Axes, lines: Mapping[str, Array]) -> None:
    for number, (name, values) in enumerate(lines.items()):
        color = OTHERS[(number - 1) % len(OTHERS)] if number else ACCENT
        style: Any = {"ls": "-" if number <= len(OTHERS) else "--", "lw": 1.2 if number else 2.4, "label": name}
        # a line of one point would not be seen
        ax.plot(np.arange(1, len(values) + 1), values, color=color, marker="o" if len(values) == 1 else None, **style)
    longest = max(map(len, lines.values()))
    ax.set(title="error by step", xlabel="steps ahead", ylabel="MAE (scaled)", axisbelow=True)
    ax.set(xlim=(1, longest) if longest > 1 else (0.5, 1.5), ylim=(0, None))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 5, 10]))
    ax.grid(axis="y", color="0.9", lw=0.7)
    ax.legend()
