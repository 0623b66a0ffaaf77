"""`tsattn predict`: forecasts beyond the end of the data, into a table and a figure."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

import pandas as pd

from tsattn.checks import whole_number
from tsattn.cli.words import Words, say, session
from tsattn.data import ForecastDataModule, Panel
from tsattn.data.quiet import quiet
from tsattn.errors import number_of
from tsattn.experiments import Experiment, RunFolder
from tsattn.experiments.measuring import extent
from tsattn.experiments.reopened import reopened
from tsattn.figures.forecasts import are_dates, plot_forecast
from tsattn.figures.plain_names import model_words
from tsattn.forecaster.forecast_files import FIGURES, check_output, write_figure, write_frame
from tsattn.forecaster.frames import future_frame, in_scenario
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import beyond_training, forecast_batches, with_levels

__all__ = ["run"]

_MOST = 6  # series in a figure


def run(words: Words) -> int:
    """Forecast; the exit code is 0, or a `UserError` is raised."""
    options = words.options
    with session():
        experiment = words.experiment()
        output = Path(options.output or (RunFolder(options.run).forecast if options.run else "forecast.csv"))
        check_output(output, options.overwrite, inputs=[*words.input_files(experiment), *(options.future or [])])
        figure = output.with_name(f"{output.stem}_plot.png") if options.figure is True else options.figure
        if figure:
            check_output(Path(figure), options.overwrite, endings=FIGURES, option="--figure")
        asked = None if options.horizon is None else whole_number("--horizon", options.horizon)
        if options.run and Path(options.ckpt_path) == RunFolder(options.run).refit:
            say(f"forecasting with {options.ckpt_path}, refitted on all rows")
        frames: list[pd.DataFrame] = []
        for number, future in enumerate(options.future or [None]):
            with quiet(number > 0):  # the series are the same each time
                frame, data, predictor = _forecast(experiment, options, future, asked)
            frames += in_scenario([frame], number) if len(options.future or []) > 1 else [frame]
        frame = pd.concat(frames, ignore_index=True)
        write_frame(frame, output, options.overwrite)
        steps = f"{number_of(asked or data.prediction_length, 'step')} of {extent(data)}, {_span(frame.iloc[:, 1])}"
        of_scenarios = f", {number_of(len(frames), 'scenario')}" if len(frames) > 1 else ""
        say(f"{output}: {steps}{of_scenarios}, in original units")
        if figure:
            assert data.panel is not None
            say(draw(frame, data.panel, predictor, Path(figure), options.overwrite))
    return 0


def _forecast(
    experiment: Experiment, options: Namespace, future: str | None, asked: int | None
) -> tuple[pd.DataFrame, ForecastDataModule, Predictor]:
    """The forecast of one future, the data that it goes on from, and what forecast it."""
    fitted, data, execution = reopened(experiment, options.ckpt_path, "predict", input=options.input, future=future)
    assert data.panel is not None
    predictor = with_levels(fitted, data.panel.ids, options.level).predictor
    horizon = asked or predictor.task.prediction_length
    if (warning := beyond_training(fitted.predictor, horizon)) is not None:
        logging.getLogger("tsattn").warning(warning)
    sizes = horizon, data.eval_batch_size
    forecasts = forecast_batches(predictor, fitted.scaler, data.panel, *sizes, execution, data.series)
    return future_frame(forecasts, predictor.task, predictor.output, data.panel), data, predictor


def draw(frame: pd.DataFrame, panel: Panel, predictor: Predictor, path: Path, overwrite: bool) -> str:
    """Draw the first series of a forecast after their history, and say what was drawn and where."""
    drawing = plot_forecast(frame, panel, predictor.task, predictor.output, most=_MOST, model=model_words(predictor))
    write_figure(drawing, path, overwrite)
    series, what = frame.iloc[:, 0].nunique(), "channel" if panel.is_wide else "series"
    drawn = number_of(series, what) if series <= _MOST else f"the first {_MOST} of {number_of(series, what)}"
    return f"{path}: {drawn}, drawn"


def _span(stamps: pd.Series[pd.Timestamp]) -> str:
    """``FIRST to LAST``; without times of day where all are midnights."""
    first, last = (str(stamp.date() if are_dates(stamps) else stamp) for stamp in (stamps.min(), stamps.max()))
    return f"{first} to {last}"
