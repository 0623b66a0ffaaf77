"""What is left of the data once a forecast is taken off: in time, as a distribution, with itself, and by step."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from tsattn.errors import UserError
from tsattn.figures.residuals import Residuals
from tsattn.figures.horizon_errors import draw_errors
from tsattn.figures.style import ACCENT, INK, OTHERS

__all__ = ["autocorrelation", "plot_residuals"]

_COLORS = (ACCENT, *OTHERS)
_POINTS = 400  # of a quantile plot
_MOST_LAGS = 200
_TAIL = 0.002  # the share of residuals on each side that the histogram may leave out
_CERTAIN = 1.96  # standard deviations on each side that hold 95 % of a normal distribution


def plot_residuals(residuals: Residuals, errors: Mapping[str, ArrayLike], title: str) -> Figure:
    """Residuals over time, their histogram and quantiles beside a normal distribution, autocorrelation, error by step.

    Autocorrelations within the grey band are those that residuals without any would have, 95 in 100 of them. Residuals
    further ahead than a step overlap, and so are correlated even of the best forecast.

    Args:
        residuals: of one forecaster.
        errors: the mean absolute error at each step of the horizon, `(T,)`, by forecaster, that of `residuals` first.
        title: of the figure.

    Raises:
        UserError: if no residual was observed.
    """
    if not len(residuals.pooled):
        raise UserError("there is no observed residual to draw")
    unit = "scaled" if residuals.is_scaled else "original units"
    figure = Figure(figsize=(7.2, 8), layout="constrained")
    axes = figure.subplot_mosaic([["time", "time"], ["histogram", "quantiles"], ["lags", "steps"]])
    _draw_time(axes["time"], residuals, unit)
    _draw_histogram(axes["histogram"], residuals.pooled, unit)
    _draw_quantiles(axes["quantiles"], residuals.pooled, unit)
    _draw_lags(axes["lags"], residuals)
    draw_errors(axes["steps"], {name: np.asarray(values, float) for name, values in errors.items()})
    axes["steps"].set_ylabel("MAE (scaled)")
    axes["steps"].set_title("error by step", fontsize=10)
    axes["steps"].legend(frameon=False, fontsize=9)
    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    if len(residuals.lines) > 1:
        names = axes["time"].get_legend_handles_labels()
        figure.legend(*names, frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def autocorrelation(values: NDArray[np.float64], lags: int) -> NDArray[np.float64]:
    """The correlation of values with those 1 to `lags` places before, by the sums over all of them, `(lags,)`.

    Missing values count as the mean, so that they add nothing.
    """
    centred = np.nan_to_num(values - np.nanmean(values))
    total = float((centred**2).sum())
    products = [float(centred[lag:] @ centred[:-lag]) for lag in range(1, lags + 1)]
    return np.array(products) / total if total else np.full(lags, np.nan)


def _draw_time(ax: Axes, residuals: Residuals, unit: str) -> None:
    for color, (name, (time, values)) in zip(_COLORS, residuals.lines.items(), strict=False):
        stamps: Any = time.astype("M8[ns]") if time.dtype.kind == "M" else time
        ax.plot(stamps, values, color=color, lw=0.7, alpha=0.8, label=name)
        if time.dtype.kind == "M":
            locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
            ax.xaxis.get_offset_text().set_fontsize(8)
    ax.axhline(0, color="0.6", lw=0.8)
    steps = "a step" if residuals.ahead == 1 else f"{residuals.ahead} steps"
    ax.set_title(f"residuals {steps} ahead: observed less forecast", fontsize=10)
    ax.set_ylabel(unit, fontsize=10)


def _draw_histogram(ax: Axes, pooled: NDArray[np.float64], unit: str) -> None:
    low, high = np.quantile(pooled, [_TAIL, 1 - _TAIL])
    margin = 0.05 * (high - low) or 0.5
    bins = int(np.clip(2 * len(pooled) ** (1 / 3), 8, 60))
    ax.hist(pooled, bins=bins, range=(low - margin, high + margin), density=True, color="0.8")
    mean, spread = float(pooled.mean()), float(pooled.std())
    if spread > 0:
        grid = np.linspace(low - margin, high + margin, 200)
        ax.plot(grid, [NormalDist(mean, spread).pdf(x) for x in grid], color=INK, lw=1, label="normal")
    ax.axvline(mean, color=ACCENT, lw=1.2, label=f"mean {mean:.3g}")
    ax.set_title("histogram", fontsize=10)
    ax.set_xlabel(unit, fontsize=10)
    ax.set_yticks([])
    ax.legend(frameon=False, fontsize=9)


def _draw_quantiles(ax: Axes, pooled: NDArray[np.float64], unit: str) -> None:
    ordered = np.sort(pooled)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(_POINTS, len(ordered))).round().astype(int))
    normal = np.array([NormalDist().inv_cdf((place + 0.5) / len(ordered)) for place in places])
    ax.plot(normal, ordered[places], ".", color=ACCENT, ms=3)
    ends = np.array([normal.min(), normal.max()])
    ax.plot(ends, pooled.mean() + pooled.std() * ends, color=INK, lw=1)
    ax.set_title("quantiles and a normal distribution", fontsize=10)
    ax.set_xlabel("standard deviations", fontsize=10)
    ax.set_ylabel(unit, fontsize=10)


def _draw_lags(ax: Axes, residuals: Residuals) -> None:
    longest = max(len(values) for _, values in residuals.lines.values())
    lags = min(max(24, 2 * residuals.season_length), _MOST_LAGS, longest // 4)
    ax.set_title("autocorrelation", fontsize=10)
    ax.set_xlabel("lag (windows)", fontsize=10)
    ax.axhline(0, color="0.6", lw=0.8)
    if lags < 1:
        return
    fewest = longest
    for color, (_, values) in zip(_COLORS, residuals.lines.values(), strict=False):
        known = int((~np.isnan(values)).sum())
        if known > lags:
            fewest = min(fewest, known)
            found = autocorrelation(values, lags)
            one = len(residuals.lines) == 1
            if one and lags <= 60:
                ax.vlines(np.arange(1, lags + 1), 0, found, color=color, lw=1.4)
            else:
                ax.plot(np.arange(1, lags + 1), found, color=color, lw=1.1)
    bound = _CERTAIN / np.sqrt(fewest)
    ax.axhspan(-bound, bound, color="0.92", zorder=0)
    ax.set_xlim(0, lags + 1)
