"""Draw the wide picture of README, `hero.png`: `python docs/images/hero.py` trains a model for it, in about 15 s."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from draw import HEAD, components, draw_matrix, write_png
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsattn import CO2DataModule, Forecaster
from tsattn.figures.style import ACCENT, INK

HERE = Path(__file__).parent
RANKS = {  # of the score of a pair of time steps, in a model of width 16 with heads of 8
    "standard": ("all pairs equally", components("standard")),
    "swa": ("neighbours only", components("swa")),
    "mlr": ("coarse far, fine near", components("mlr")),
    "btt": ("all pairs, full rank", 2 * components("btt")),  # the rank of its scores is the width, not that of a head
}
SETTINGS = {"font.size": 12, "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK}


def draw_patterns(row: list[Axes]) -> None:
    """The rank with which each attention scores pairs of time steps."""
    for axes, (name, (about, ranks)) in zip(row, RANKS.items(), strict=True):
        draw_matrix(axes, ranks, "", 2.4 * HEAD)
        axes.set_title(name, size=14, weight="bold", pad=5)
        axes.set_xlabel(about, labelpad=5)


def draw_forecast(axes: Axes, frame: pd.DataFrame) -> None:
    """A year of CO2 that the model has not seen, with its 80 % interval."""
    forecaster = Forecaster("patchtst", attention="mlr", prediction_length=52, max_steps=200)
    forecast = forecaster.fit(frame.loc[:"2000"]).predict()
    past, actual = frame.loc["1998":"2000", "co2"], frame.loc["2001", "co2"]
    start, low, median, high = past.index[-1:], *(forecast[name].to_numpy() for name in ("0.1", "0.5", "0.9"))
    time = start.append(pd.DatetimeIndex(forecast["date"]))
    low, median, high = (np.append(past.iloc[-1], values) for values in (low, median, high))
    axes.plot(past, color=INK, lw=1.6, label="observed")
    axes.plot(actual, ".", color=INK, ms=4, label="actual values")
    axes.plot(time, median, color=ACCENT, lw=2.2, label="forecast")
    axes.fill_between(time, low, high, color=ACCENT, alpha=0.25, lw=0, label="80 % interval")
    axes.set_title("CO2 (ppm), 52 weeks ahead", size=14, weight="bold", loc="left")
    axes.legend(frameon=False, loc="upper left", ncols=2, borderaxespad=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(mpl.dates.YearLocator())
    axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%Y"))
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
    axes.margins(x=0.01)


def main() -> None:
    """Train, and write the picture."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(8, 5), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
        grid = figure.add_gridspec(2, len(RANKS), height_ratios=(1, 1.2))
        draw_patterns([figure.add_subplot(grid[0, column]) for column in range(len(RANKS))])
        draw_forecast(figure.add_subplot(grid[1, :]), CO2DataModule().load_frame())
        write_png(figure, HERE / "hero.png", dpi=200)


if __name__ == "__main__":
    main()
