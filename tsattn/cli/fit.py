"""`tsattn fit`: words to an experiment, to its result, to lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from tsattn.cli.output import say
from tsattn.cli.parsing import parse_command
from tsattn.cli.session import session
from tsattn.experiments import LIMITS, Experiment, Hooks, Result, RunFolder, resume, run
from tsattn.experiments.measuring import title
from tsattn.experiments.score_table import score_table
from tsattn.training.processes import first_process_only
from tsattn.training.progress import LossBar

__all__ = ["fit"]

_say = first_process_only(say)


def fit(words: Sequence[str], typed: Sequence[str]) -> int:
    """Fit and test; the exit code is 0, or a `UserError` is raised.

    Args:
        words: after ``fit``, prepared by `tsattn.cli.words.prepare`.
        typed: the words as they were typed, ``fit`` among them.
    """
    with session():
        experiment, options = parse_command("fit", words)
        shows_bar = sys.stdout.isatty() and experiment.trainer["enable_progress_bar"] is not False
        hooks = Hooks(
            bar=LossBar() if shows_bar else None,
            say=_say,
            command=["python", "-m", "tsattn", *typed],
            checkpoint=None if options.ckpt_path is None else Path(options.ckpt_path),
        )
        is_longer = any(word.startswith("--trainer.") for word in typed)
        result = _result(experiment, options, hooks, is_longer)
        if result.tables:
            _say_result(result)
    return 0


def _result(experiment: Experiment, options: Namespace, hooks: Hooks, is_longer: bool) -> Result:
    if options.resume:
        limits = {name: experiment.trainer[name] for name in LIMITS} if is_longer else None
        return resume(options.resume, limits, refit=options.refit, hooks=hooks)
    folder = options.run or (lambda data, predictor: RunFolder.dated("runs", data.name, predictor.name))
    return run(experiment, folder, refit=options.refit, hooks=hooks)


def _say_result(result: Result) -> None:
    training = result.fit.get("training")
    if training is not None:
        speed = training["windows_per_second"]
        rate = "" if speed is None else f", {speed:,.0f} windows a second"
        _say(f"\ntrained in {training['seconds']:.0f} s{rate}; best checkpoint: step {result.fit['best_step']}")
    assert result.errors is not None
    _say(f"\n{score_table(title(result.data, int(result.errors.scores()['windows'])), result.tables)}")
    if result.folder is not None:
        _say(f"results: {result.folder}")
