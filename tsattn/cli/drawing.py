"""The figure of `predict`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tsattn.data import Panel
from tsattn.errors import number_of
from tsattn.figures.forecasts import are_dates, plot_forecast
from tsattn.figures.plain_names import model_words
from tsattn.forecaster.forecast_files import FIGURES, check_output, write_figure
from tsattn.predictors.base import Predictor

__all__ = ["FIGURES", "draw", "figure_path", "span"]


_MOST = 6  # series in a figure


def figure_path(asked: str | bool, output: Path, overwrite: bool) -> Path | None:
    """Where to draw; None for nowhere.

    Args:
        asked: a file; true for one beside the output, ``NAME_plot.png``, false for none.
        output: of the forecast.
        overwrite: whether a file that is there may be replaced.

    Raises:
        UserError: if it cannot be written there.
    """
    if asked is False:
        return None
    path = output.with_name(f"{output.stem}_plot.png") if asked is True else Path(asked)
    check_output(path, overwrite, endings=FIGURES, option="--figure")
    return path


def draw(frame: pd.DataFrame, panel: Panel, predictor: Predictor, path: Path, overwrite: bool) -> str:
    """Draw the first series of a forecast after their history, and say what was drawn and where.

    Args:
        frame: from `future_frame`.
        panel: the series that were forecast from.
        predictor: whose forecast it is.
        path: of the figure.
        overwrite: whether a file that is there may be replaced.

    Raises:
        UserError: if it cannot be written.
    """
    drawing = plot_forecast(frame, panel, predictor.task, predictor.output, most=_MOST, model=model_words(predictor))
    write_figure(drawing, path, overwrite)
    series, what = frame.iloc[:, 0].nunique(), "channel" if panel.is_wide else "series"
    drawn = number_of(series, what) if series <= _MOST else f"the first {_MOST} of {number_of(series, what)}"
    return f"{path}: {drawn}, drawn"


def span(stamps: pd.Series[pd.Timestamp]) -> str:
    """``FIRST to LAST``; without times of day where all are midnights."""
    first, last = (str(stamp.date() if are_dates(stamps) else stamp) for stamp in (stamps.min(), stamps.max()))
    return f"{first} to {last}"
