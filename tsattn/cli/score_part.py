"""`tsattn validate` and `tsattn test`: what a fitted predictor is worth on a part of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jsonargparse import Namespace

from tsattn.cli.drawing import FIGURES
from tsattn.cli.output import say
from tsattn.cli.parsing import input_files, parse_command
from tsattn.cli.session import session
from tsattn.errors import UserError
from tsattn.evaluation.error_table import check_by
from tsattn.experiments.measuring import labelled, title
from tsattn.experiments.reopened import measure_again
from tsattn.experiments.score_table import group_table, score_table
from tsattn.figures import plot_residuals
from tsattn.figures.plain_names import model_words
from tsattn.forecaster.forecast_files import check_output, write_figure, write_frame

__all__ = ["measure_part"]

_PARTS = {"validate": "val", "test": "test"}


def measure_part(command: str, words: Sequence[str]) -> int:
    """Measure a fitted predictor; the exit code is 0, or a `UserError` is raised.

    Args:
        command: ``validate`` or ``test``.
        words: after it, prepared by `tsattn.cli.words.prepare`.
    """
    part = _PARTS[command]
    with session():
        experiment, options = parse_command(command, words)
        by, output = _checked(options, input_files(experiment, options))
        figure = None if options.figure is None else Path(options.figure)
        if figure is not None:
            check_output(figure, options.overwrite, FIGURES, "--figure")
        found = measure_again(experiment, options.ckpt_path, part, by, residuals=figure is not None)
        name, errors = next(iter(found.tables.items()))
        head = title(found.data, int(errors.scores()["windows"]), part)
        say(score_table(head, labelled(found.tables, found.predictor), detail=options.detail))
        if found.groups is not None:
            say(f"\n{group_table(f'{name} by {by}', found.groups, name)}")
            if output is not None:
                write_frame(found.groups.reset_index(), output, options.overwrite)
                say(f"{output}: all scores by {by}, of {name} and of the baselines")
        if figure is not None:
            assert found.residuals is not None
            steps = {one: table.step_scores("mae_scaled") for one, table in found.tables.items()}
            drawn = plot_residuals(found.residuals, steps, f"Residuals of {model_words(found.predictor)}\n{head}")
            write_figure(drawn, figure, options.overwrite)
            say(f"{figure}: residuals, drawn")
    return 0


def _checked(options: Namespace, inputs: Iterable[str | None]) -> tuple[str | None, Path | None]:
    """What scores are given by, and the file for them."""
    by = None if options.by is None else check_by(options.by)
    if options.output is None:
        return by, None
    if by is None:
        raise UserError("--output is for the scores by group: give --by, too")
    output = Path(options.output)
    check_output(output, options.overwrite, inputs=inputs)
    return by, output
