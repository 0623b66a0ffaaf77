"""`tsattn validate` and `tsattn test`: scores of a fitted predictor on a part of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tsattn.cli.words import Words, say, session
from tsattn.errors import UserError
from tsattn.evaluation import scores_by
from tsattn.evaluation.error_table import check_by, check_group
from tsattn.experiments.measuring import (
    calibrated_on,
    group_table,
    labelled,
    score_table,
    tables_beside_baselines,
    title,
)
from tsattn.experiments.reopened import reopened
from tsattn.figures.plain_names import model_words
from tsattn.figures.residual_plots import ResidualRecorder, plot_residuals
from tsattn.forecaster.forecast_files import FIGURES, check_output, write_figure, write_frame

__all__ = ["run"]


def run(words: Words) -> int:
    """Measure a fitted predictor; the exit code is 0, or a `UserError` is raised."""
    part = "val" if words.command == "validate" else "test"
    options, by = words.options, words.options.by
    with session(), tempfile.TemporaryDirectory() as temporary:
        experiment = words.experiment()
        if by is not None:
            check_by(by)
        if options.output is not None:
            if by is None:
                raise UserError("--output is for the scores by group: give --by, too")
            check_output(Path(options.output), options.overwrite, inputs=words.input_files(experiment))
        if options.figure is not None:
            check_output(Path(options.figure), options.overwrite, FIGURES, "--figure")
        fitted, data, execution = reopened(experiment, options.ckpt_path, "validate" if part == "val" else "test")
        assert data.panel is not None
        if by is not None:
            check_group(by, data.panel.id_name)
        recorder = None if options.figure is None else ResidualRecorder(data.panel)
        tables = tables_beside_baselines(
            calibrated_on(fitted, data),
            data,
            part,
            execution,
            folder=Path(temporary) if by in ("series", "origin") else None,  # for rows that are too many for memory
            by_step=recorder is not None or by == "step",
            watch=recorder,
        )
        name, errors = next(iter(tables.items()))
        head = title(data, int(errors.scores()["windows"]), part)
        say(score_table(head, labelled(tables, fitted.predictor), detail=options.detail))
        if by is not None:
            groups = scores_by(tables, by, data.panel)
            say(f"\n{group_table(f'{name} by {by}', groups, name)}")
            if options.output is not None:
                write_frame(groups.reset_index(), Path(options.output), options.overwrite)
                say(f"{options.output}: all scores by {by}, of {name} and of the baselines")
        if recorder is not None:
            steps = {one: table.step_scores("mae_scaled") for one, table in tables.items()}
            drawn = plot_residuals(recorder.finish(), steps, f"Residuals of {model_words(fitted.predictor)}\n{head}")
            write_figure(drawn, Path(options.figure), options.overwrite)
            say(f"{options.figure}: residuals, drawn")
    return 0
