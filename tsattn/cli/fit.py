"""`tsattn fit`: parse words, run the experiment, print its result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsattn.cli.words import Words, say, session
from tsattn.errors import UserError
from tsattn.experiments import Hooks, Result, RunFolder, resume, run
from tsattn.experiments.measuring import score_table, title, verdict
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import WarmStart, load_predictor
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process
from tsattn.training.train import all_fits


def _say(line: str) -> None:
    if is_first_process():
        say(line)


def fit(words: Words) -> None:
    """Fit and test; raise `UserError` for a mistake."""
    with session():
        result = _result(words)
        if result.tables:
            try:
                _say_result(result, detail=words.options.detail)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(f"the run is finished: its results are in {result.folder}") from stop


def _result(words: Words) -> Result:
    options = words.options
    hooks = Hooks(bar=Progress(None if sys.stdout.isatty() else _say), say=_say, command=words.typed)
    if options.resume is not None:
        return resume(options.resume, words.limits, refit=options.refit, hooks=hooks)
    experiment = words.experiment()
    if not (predictor := build_predictor(experiment.model["backbone"])).is_trained:
        words.check_trained(predictor.name)
    if options.ckpt_path is not None:
        hooks = replace(hooks, checkpoint=Path(options.ckpt_path))
    if options.start is not None:
        if other := next((name for name in ("refit", "ckpt_path") if getattr(options, name)), None):
            raise UserError(f"give --start or --{other}, not both: each sets the first weights of the training")
        weights = RunFolder(options.start).forecasting_checkpoint()
        fitted = load_predictor(weights, experiment.model["backbone"], experiment.output)
        hooks = replace(hooks, start=WarmStart(fitted))
    folder = options.run or (lambda data, predictor: RunFolder.dated("runs", data.name, predictor.name))
    return run(experiment, folder, refit=options.refit, hooks=hooks)


def _say_result(result: Result, *, detail: bool) -> None:
    if trained := [_trained(one) for one in all_fits(result.fit) if "training" in one]:
        _say("\n" + "\n".join(trained))
    if result.refitted is not None:
        _say("refitted on all rows: `predict` uses this model, `test` the model that is tested below")
    predictor = result.fitted.predictor
    windows = int(result.tables[predictor.name].scores()["windows"])
    _say(f"\n{score_table(title(result.data, windows), result.tables, predictor.label, detail=detail)}")
    seen = predictor.context_length if predictor.context_length == predictor.task.context_length else None
    if sentences := verdict(result.tables, seen):
        _say("\n" + "\n".join(sentences))
    if result.folder is not None:
        _say(f"results: {result.folder}")


def _trained(facts: Mapping[str, Any]) -> str:
    training = facts["training"]
    rate = "" if (speed := training["windows_per_second"]) is None else f", {speed:,.0f} windows a second"
    member = f"{facts['member']}: " if "member" in facts else ""
    return f"{member}trained in {training['seconds']:.0f} s{rate}; best checkpoint: step {facts['best_step']}"
