"""`tsattn validate`, `test`, `predict` and `attention`: scores, forecasts and views of a trained model."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.cli.words import Words, say, session
from tsattn.errors import UserError, number_of, quiet
from tsattn.evaluation import scores_by
from tsattn.evaluation.error_table import check_by, check_group
from tsattn.experiments import RunFolder
from tsattn.experiments.measuring import extent, group_table, score_table, tables_with_baselines, title
from tsattn.experiments.result import reopened
from tsattn.figures.forecasts import are_dates, plot_forecast
from tsattn.figures.layer_maps import plot_layers
from tsattn.figures.residual_plots import ResidualRecorder, plot_residuals
from tsattn.forecaster.forecast_files import FIGURES, WRITERS, check_output, write_figure, write_frame
from tsattn.forecaster.frames import future_frame, in_scenario, last_window
from tsattn.predictors.attention_layers import attention_layers, window_title
from tsattn.predictors.fitted import beyond_training, forecast_batches, with_levels

_MOST = 6  # most series in a figure


def validate(words: Words) -> None:
    """Score a trained model on the validation set, or on the test set if the command is `test`."""
    options, by, part = words.options, words.options.by, "val" if words.command == "validate" else "test"
    with session(), tempfile.TemporaryDirectory() as temporary:
        experiment = words.experiment()
        if by is not None:
            check_by(by)
        if options.output is not None:
            if by is None:
                raise UserError("--output writes scores by group: add --by series, --by step or --by origin")
            check_output(Path(options.output), options.overwrite, inputs=words.input_files(experiment))
        if options.figure is not None:
            check_output(Path(options.figure), options.overwrite, FIGURES, "--figure")
        fitted, data, execution = reopened(experiment, options.ckpt_path, words.command)
        panel = data.contents[0]
        if by is not None:
            check_group(by, panel.id_name)
        recorder = None if options.figure is None else ResidualRecorder(panel)
        of_rows: dict[str, Any] = {"by_step": recorder is not None or by == "step", "watch": recorder}
        of_rows["folder"] = Path(temporary) if by in ("series", "origin") else None  # on disk: too many rows for memory
        tables = tables_with_baselines(with_levels(fitted, panel.ids).predictor, data, part, execution, **of_rows)
        name, errors = next(iter(tables.items()))
        head = title(data, int(errors.scores()["windows"]), part)
        say(score_table(head, tables, fitted.predictor.label, detail=options.detail))
        if by is not None:
            groups = scores_by(tables, by, panel)
            say(f"\n{group_table(f'{name} by {by}', groups, name)}")
            if options.output is not None:
                write_frame(groups.reset_index(), Path(options.output), options.overwrite)
                say(f"{options.output}: all scores by {by}, of {name} and of the baselines")
        if recorder is not None:
            steps = {one: table.step_scores("mae_scaled") for one, table in tables.items()}
            drawn = plot_residuals(recorder.finish(), steps, f"Residuals of {fitted.predictor.title}\n{head}")
            write_figure(drawn, Path(options.figure), options.overwrite)
            say(f"{options.figure}: plot of the residuals")


test = validate


def predict(words: Words) -> None:
    """Forecast beyond the end of the data; raise `UserError` for a mistake."""
    options, futures = words.options, words.options.future or [None]
    with session():
        experiment = words.experiment()
        output = Path(options.output or (RunFolder(options.run).forecast if options.run else "forecast.csv"))
        check_output(output, options.overwrite, inputs=[*words.input_files(experiment), *(options.future or [])])
        figure = output.with_name(f"{output.stem}_plot.png") if options.figure is True else options.figure
        if figure:
            check_output(Path(figure), options.overwrite, endings=FIGURES, option="--figure")
        if options.run and Path(options.ckpt_path) == RunFolder(options.run).refit:
            say(f"forecasting with {options.ckpt_path}, refitted on all rows")
        frames: list[pd.DataFrame] = []
        for number, future in enumerate(futures):
            with quiet(number > 0):  # warn about the series only once
                fitted, data, execution = reopened(
                    experiment, options.ckpt_path, "predict", input=options.input, future=future
                )
                panel, horizon = data.contents[0], options.horizon or fitted.predictor.task.prediction_length
                if (warning := beyond_training(fitted.predictor, horizon)) is not None:
                    logging.getLogger("tsattn").warning(warning)
                fitted = with_levels(fitted, panel.ids, options.level)
                batches = forecast_batches(fitted, panel, data.series, horizon, data.eval_batch_size, execution)
                predictor = fitted.predictor
                frame = future_frame(batches, predictor.task, predictor.output, panel)
            frames += in_scenario([frame], number) if len(futures) > 1 else [frame]
        frame = pd.concat(frames, ignore_index=True)
        write_frame(frame, output, options.overwrite)
        steps, stamps = number_of(horizon, "step"), frame.iloc[:, 1]
        # dates suffice if all stamps are midnights
        first, last = (one.date() if are_dates(stamps) else one for one in (stamps.min(), stamps.max()))
        of_scenarios = f", {number_of(len(frames), 'scenario')}" if len(frames) > 1 else ""
        say(f"{output}: {steps} of {extent(data)}, {first} to {last}{of_scenarios}, in original units")
        if figure:
            series = frame.iloc[:, 0].nunique()
            drawing = plot_forecast(frame, panel, predictor.task, predictor.output, most=_MOST, model=predictor.title)
            write_figure(drawing, Path(figure), options.overwrite)
            drawn = number_of(series, "channel" if panel.is_wide else "series")
            say(f"{figure}: plot of {drawn if series <= _MOST else f'the first {_MOST} of {drawn}'}")


def attention(words: Words) -> None:
    """Draw or write the attention in one window; raise `UserError` for a mistake."""
    options, part, window = words.options, words.options.part, words.options.window
    with session():
        experiment = words.experiment()
        output = Path(options.output or Path(options.run or ".", "attention.png"))
        check_output(output, options.overwrite, endings=(*FIGURES, *WRITERS), inputs=words.input_files(experiment))
        if window is not None and (options.input or options.series):
            raise UserError("--window selects a window of the run's data: leave out --input and --series, or --window")
        is_table = output.suffix in WRITERS
        if is_table and (options.layer, options.head, options.level) != ("all", "all", None):
            raise UserError("a table has all layers, heads and levels: leave --layer, --head and --level out")
        stage = "predict" if window is None else "validate" if part == "val" else "test"
        fitted, data, _ = reopened(experiment, options.ckpt_path, stage, input=options.input)
        panel = data.contents[0]
        if window is None:
            batch = last_window(fitted, panel, options.series, data.series)
        else:
            windows = data.windows(part, **fitted.predictor.cut)
            if not -(count := len(windows)) <= window < count:
                valid = f"from 0 to {count - 1}, or from -{count} for the first to -1 for the last"
                there = f"of the {number_of(count, 'window')} of the {part} part"
                raise UserError(f"window must be {valid}, {there}, not {window}")
            batch = windows[window % count]
        layers = attention_layers(fitted.predictor, batch, options.channel)
        head_line = window_title(fitted, panel, batch, layers)
        if is_table:
            frame = pd.concat([layer.frame() for layer in layers], ignore_index=True)
            # a column with several types of queries or keys becomes text
            mixed = [name for name in ("query", "key") if frame[name].dtype == object]
            write_frame(frame.astype(dict.fromkeys(mixed, str)), output, options.overwrite)
        else:
            drawn = plot_layers(layers, chosen=options.layer, heads=options.head, levels=options.level, title=head_line)
            write_figure(drawn, output, options.overwrite)
        say(f"{output}: attention of {number_of(len(layers), 'layer')}, {head_line}")
