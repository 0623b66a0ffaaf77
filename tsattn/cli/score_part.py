"""`tsattn validate` and `tsattn test`: scores of a fitted predictor on a part of the data."""

from __future__ import annotations

from pathlib import Path

from tsattn.cli.output import say
from tsattn.cli.words import Words, session
from tsattn.errors import UserError
from tsattn.evaluation.error_table import check_by
from tsattn.experiments.measuring import group_table, labelled, score_table, title
from tsattn.experiments.reopened import measure_again
from tsattn.figures import plot_residuals
from tsattn.figures.plain_names import model_words
from tsattn.forecaster.forecast_files import FIGURES, check_output, write_figure, write_frame

__all__ = ["run"]


def run(words: Words) -> int:
    """Measure a fitted predictor; the exit code is 0, or a `UserError` is raised."""
    part = "val" if words.command == "validate" else "test"
    options = words.options
    with session():
        experiment = words.experiment()
        by = None if options.by is None else check_by(options.by)
        if options.output is not None:
            if by is None:
                raise UserError("--output is for the scores by group: give --by, too")
            check_output(Path(options.output), options.overwrite, inputs=words.input_files(experiment))
        if options.figure is not None:
            check_output(Path(options.figure), options.overwrite, FIGURES, "--figure")
        found = measure_again(experiment, options.ckpt_path, part, by, residuals=options.figure is not None)
        name, errors = next(iter(found.tables.items()))
        head = title(found.data, int(errors.scores()["windows"]), part)
        say(score_table(head, labelled(found.tables, found.predictor), detail=options.detail))
        if found.groups is not None:
            say(f"\n{group_table(f'{name} by {by}', found.groups, name)}")
            if options.output is not None:
                write_frame(found.groups.reset_index(), Path(options.output), options.overwrite)
                say(f"{options.output}: all scores by {by}, of {name} and of the baselines")
        if found.residuals is not None:
            steps = {one: table.step_scores("mae_scaled") for one, table in found.tables.items()}
            drawn = plot_residuals(found.residuals, steps, f"Residuals of {model_words(found.predictor)}\n{head}")
            write_figure(drawn, Path(options.figure), options.overwrite)
            say(f"{options.figure}: residuals, drawn")
    return 0
