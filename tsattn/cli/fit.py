"""`tsattn fit`: words to an experiment, to its result, to lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn import experiments
from tsattn.cli.words import Words, say, session
from tsattn.errors import UserError
from tsattn.experiments import Hooks, Result, RunFolder, resume
from tsattn.experiments.measuring import labelled, score_table, title, verdict
from tsattn.experiments.running import WarmStart
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import load_predictor
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process
from tsattn.training.train import all_fits


def _say(line: str) -> None:
    if is_first_process():
        say(line)


def fit(words: Words) -> None:
    """Fit and test; a `UserError` says what is wrong."""
    with session():
        result = _result(words)
        if result.tables:
            try:
                _say_result(result, detail=words.options.detail)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(f"the run is finished: its results are in {result.folder}") from stop


def _result(words: Words) -> Result:
    options, bar, command = words.options, Progress(None if sys.stdout.isatty() else _say), words.typed
    if options.resume is not None:
        hooks = Hooks(bar=bar, say=_say, command=command)
        return resume(options.resume, words.limits, refit=options.refit, hooks=hooks)
    experiment = words.experiment()
    predictor = build_predictor(experiment.model["backbone"])
    if not predictor.is_trained:
        words.check_trained(predictor.name)
    checkpoint = None if options.ckpt_path is None else Path(options.ckpt_path)
    start: WarmStart | None = None
    if options.start is not None:
        if other := next((name for name in ("refit", "ckpt_path") if getattr(options, name)), None):
            raise UserError(f"of --start and --{other} give one: a refit starts from nothing, a checkpoint has weights")
        weights = RunFolder(options.start).forecasting_checkpoint()
        start = WarmStart(load_predictor(weights, experiment.model["backbone"], experiment.output))
    hooks = Hooks(bar=bar, say=_say, command=command, checkpoint=checkpoint, start=start)
    folder = options.run or (lambda data, predictor: RunFolder.dated("runs", data.name, predictor.name))
    return experiments.run(experiment, folder, refit=options.refit, hooks=hooks)


def _say_result(result: Result, *, detail: bool) -> None:
    if trained := [_trained(one) for one in all_fits(result.fit) if "training" in one]:
        _say("\n" + "\n".join(trained))
    if result.refitted is not None:
        _say("refitted on all rows: `predict` uses this model, `test` the one tested below")
    predictor = result.fitted.predictor
    windows = int(result.tables[predictor.name].scores()["windows"])
    tables = labelled(result.tables, predictor)
    _say(f"\n{score_table(title(result.data, windows), tables, detail=detail)}")
    seen = predictor.context_length if predictor.context_length == predictor.task.context_length else None
    if sentences := verdict(tables, seen):
        _say("\n" + "\n".join(sentences))
    if result.folder is not None:
        _say(f"results: {result.folder}")


def _trained(facts: Mapping[str, Any]) -> str:
    training = facts["training"]
    speed = training["windows_per_second"]
    rate = "" if speed is None else f", {speed:,.0f} windows a second"
    member = f"{facts['member']}: " if "member" in facts else ""
    return f"{member}trained in {training['seconds']:.0f} s{rate}; best checkpoint: step {facts['best_step']}"
