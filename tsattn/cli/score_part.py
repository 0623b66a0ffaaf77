"""`tsattn validate` and `tsattn test`: what a fitted predictor is worth on a part of the data."""

from __future__ import annotations

from collections.abc import Sequence

from tsattn.cli.output import say
from tsattn.cli.parsing import parse_command
from tsattn.cli.session import session
from tsattn.experiments.measuring import title
from tsattn.experiments.reopened import measure_again
from tsattn.experiments.score_table import score_table

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
        data, tables = measure_again(experiment, options.ckpt_path, part)
        windows = int(next(iter(tables.values())).scores()["windows"])
        say(score_table(title(data, windows, part), tables))
    return 0
