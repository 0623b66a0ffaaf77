"""`tsattn fit`: words to an experiment, to its result, to lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsattn.cli.output import say
from tsattn.cli.parsing import parse_command
from tsattn.cli.run_words import check_trained_options
from tsattn.cli.session import session
from tsattn.errors import UserError
from tsattn.experiments import LIMITS, Experiment, Hooks, Result, RunFolder, resume, run
from tsattn.experiments.measuring import labelled, title
from tsattn.experiments.score_table import score_table, verdict
from tsattn.experiments.warm_start import WarmStart
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import load_predictor
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process
from tsattn.training.train import all_fits

__all__ = ["fit"]


def _say(line: str) -> None:
    if is_first_process():
        say(line)


def fit(words: Sequence[str], typed: Sequence[str]) -> int:
    """Fit and test; the exit code is 0, or a `UserError` is raised.

    Args:
        words: after ``fit``, prepared by `tsattn.cli.words.prepare`.
        typed: the words as they were typed, ``fit`` among them.
    """
    with session():
        experiment, options = parse_command("fit", words)
        hooks = Hooks(
            bar=Progress(None if sys.stdout.isatty() else _say),
            say=_say,
            command=["tsattn", *typed],
            checkpoint=None if options.ckpt_path is None else Path(options.ckpt_path),
            start=_start(experiment, options),
        )
        predictor = build_predictor(experiment.model["backbone"])
        if not predictor.is_trained and not options.resume:
            check_trained_options(words, predictor.name)
        is_longer = any(word.startswith("--trainer.") for word in typed)
        result = _result(experiment, options, hooks, is_longer)
        if result.tables:
            try:
                _say_result(result, detail=options.detail)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(f"the run is finished: its results are in {result.folder}") from stop
    return 0


def _result(experiment: Experiment, options: Namespace, hooks: Hooks, is_longer: bool) -> Result:
    if options.resume:
        limits = {name: experiment.trainer[name] for name in LIMITS} if is_longer else None
        return resume(options.resume, limits, refit=options.refit, hooks=hooks)
    folder = options.run or (lambda data, predictor: RunFolder.dated("runs", data.name, predictor.name))
    return run(experiment, folder, refit=options.refit, hooks=hooks)


def _start(experiment: Experiment, options: Namespace) -> WarmStart | None:
    """The model of the run that ``--start`` names."""
    if options.start is None:
        return None
    for name in ("refit", "ckpt_path"):
        if getattr(options, name):
            raise UserError(f"of --start and --{name} give one: a refit starts from nothing, a checkpoint has weights")
    checkpoint = RunFolder(options.start).forecasting_checkpoint()
    return WarmStart(load_predictor(checkpoint, experiment.model["backbone"], experiment.output))


def _say_result(result: Result, *, detail: bool) -> None:
    trained = [_trained(fit) for fit in all_fits(result.fit) if "training" in fit]
    if trained:
        _say("\n" + "\n".join(trained))
    if result.refitted is not None:
        _say("refitted on all rows: `predict` uses this model, `test` the one tested below")
    assert result.errors is not None
    predictor = result.fitted.predictor
    tables = labelled(result.tables, predictor)
    _say(f"\n{score_table(title(result.data, int(result.errors.scores()['windows'])), tables, detail=detail)}")
    seen = predictor.context_length if predictor.context_length == predictor.task.context_length else None
    if sentences := verdict(tables, seen):
        _say("\n" + "\n".join(sentences))
    if result.folder is not None:
        _say(f"results: {result.folder}")


def _trained(fit: Mapping[str, Any]) -> str:
    """What a training, of the whole or of a member, came to."""
    training = fit["training"]
    speed = training["windows_per_second"]
    rate = "" if speed is None else f", {speed:,.0f} windows a second"
    member = f"{fit['member']}: " if "member" in fit else ""
    return f"{member}trained in {training['seconds']:.0f} s{rate}; best checkpoint: step {fit['best_step']}"
