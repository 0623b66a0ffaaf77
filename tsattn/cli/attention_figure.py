"""`tsattn attention`: what the attention of a trained model looks at, as a figure or a table."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from tsattn.batch import Batch
from tsattn.cli.words import Words, say, session
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError, is_whole_number, number_of
from tsattn.experiments import RunFolder
from tsattn.experiments.reopened import reopened
from tsattn.figures.layer_maps import plot_layers
from tsattn.figures.plain_names import window_title
from tsattn.forecaster.forecast_files import FIGURES, WRITERS, check_output, write_figure, write_frame
from tsattn.forecaster.frames import last_window
from tsattn.predictors.attention_layers import AttentionLayer, attention_layers
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["run"]

_STAGES = {"test": "test", "val": "validate"}


def run(words: Words) -> int:
    """Draw or write the attention in one window; the exit code is 0, or a `UserError` is raised."""
    options = words.options
    with session():
        experiment = words.experiment()
        default = RunFolder(options.run).path / "attention.png" if options.run else "attention.png"
        output = Path(options.output or default)
        check_output(output, options.overwrite, endings=(*FIGURES, *WRITERS), inputs=words.input_files(experiment))
        chosen = {name: _numbers(name, getattr(options, name)) for name in ("layer", "head", "level")}
        if options.part not in _STAGES:
            raise UserError(f"--part must be test or val, not {options.part}")
        if options.window is not None and (options.input or options.series):
            raise UserError("--window names a window of the data of the run: leave --input and --series out, or it")
        stage = "predict" if options.window is None else _STAGES[options.part]
        fitted, data, _ = reopened(experiment, options.ckpt_path, stage, input=options.input)
        assert data.panel is not None
        if options.window is None:
            batch = last_window(fitted, data.panel, options.series, data.series)
        else:
            batch = _data_window(fitted, data, options.part, options.window)
        layers = attention_layers(fitted.predictor, batch, options.channel)
        title = window_title(fitted, data.panel, batch, layers)
        if output.suffix in WRITERS:
            if chosen != {"layer": "all", "head": "all", "level": None}:
                raise UserError("a table has all layers, heads and levels: leave --layer, --head and --level out")
            write_frame(_attention_frame(layers), output, options.overwrite)
        else:
            picked = {"chosen": chosen["layer"], "heads": chosen["head"], "levels": chosen["level"]}
            drawn = plot_layers(layers, **picked, title=title)  # type: ignore[arg-type]
            write_figure(drawn, output, options.overwrite)
        say(f"{output}: attention of {number_of(len(layers), 'layer')}, {title}")
    return 0


def _data_window(fitted: FittedPredictor, data: ForecastDataModule, part: str, window: int) -> Batch:
    """Return a window of the ``val`` or ``test`` part of data, by its number from 0, or from -1 for the last."""
    windows = data.windows(part, fitted.predictor.context_length)
    count = len(windows)
    if not is_whole_number(window) or not -count <= window < count:
        raise UserError(
            f"window must be from 0 to {count - 1}, or from -{count} for the first to -1 for the last, of "
            f"the {number_of(count, 'window')} of the {part} part, not {window}"
        )
    return windows[window % count]


def _attention_frame(layers: list[AttentionLayer]) -> pd.DataFrame:
    """Return the frames of all layers, end to end; queries and keys of several kinds become text."""
    frame = pd.concat([layer.frame() for layer in layers], ignore_index=True)
    mixed = [name for name in ("query", "key") if frame[name].dtype == object]
    return frame.astype(dict.fromkeys(mixed, str))


def _numbers(name: str, given: str | None) -> str | list[int] | None:
    """A word such as ``all`` as it is, and ``0,2`` as numbers."""
    if given is None or given.isalpha():
        return given
    if not re.fullmatch(r"\d+(,\d+)*", given.replace(" ", "").strip("[]")):
        raise UserError(f"--{name} must be all, or numbers as 0,2, not {given}")
    return [int(number) for number in given.strip("[]").split(",")]
