"""Fits of a Forecaster: from scratch, from its own weights, or resumed from a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tsattn.backbones.task_network import load_checkpoint, read_content
from tsattn.data import Panel, PanelDataModule
from tsattn.data.data_options import SPLIT
from tsattn.errors import UserError, folder_path, one_of, shown
from tsattn.experiments import Experiment, Hooks, Result, run
from tsattn.forecaster.options import ForecasterOptions
from tsattn.predictors.calibrated import calibration_parts
from tsattn.predictors.fitted import FittedPredictor, WarmStart
from tsattn.ridge.closed_form import best_context, part_starts
from tsattn.task import Task
from tsattn.training.callbacks import BestCheckpoint, Progress
from tsattn.training.loggers import check_packages

CONTEXTS = (24, 48, 96, 192, 336, 512)
"""Context lengths that are tried. A ridge takes seconds; a network that starts from it gains where the ridge does."""

_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
_MOST = 4  # contexts that fit into the training rows of a usual series: fewer tell too little about a long context
_TUNED = 0.1  # share of the learning rate of a first training


@dataclass(frozen=True)
class Start:
    """Start of a fit: from scratch, from the weights of a network, or from a checkpoint, and its task."""

    warm: WarmStart | None = None
    checkpoint: Path | None = None
    task: Task | None = None

    @classmethod
    def of(
        cls, fitted: FittedPredictor | None, checkpoint: Any, *, warm_start: bool, rescale: bool, refit: bool
    ) -> Start:
        """Read the arguments of `Forecaster.fit`; `fitted` is the predictor of the last fit."""
        if rescale and not warm_start:
            raise UserError("rescale needs a warm start: give fit(..., warm_start=True, rescale=True)")
        if checkpoint is not None:
            if warm_start:
                raise UserError("give warm_start or checkpoint, not both: each sets the first weights of the training")
            path = folder_path(checkpoint)
            return cls(checkpoint=path, task=read_content(load_checkpoint(path)).task)
        if not warm_start:
            return cls()
        if fitted is None:
            raise UserError("a warm start needs a fitted model: call fit(frame) first, or tsattn.load(folder)")
        if refit:
            raise UserError("give warm_start or refit, not both: a refit trains from scratch")
        return cls(warm=WarmStart(fitted, rescale), task=fitted.predictor.task)


def run_on(
    options: ForecasterOptions,
    panel: Panel,
    folder: Path | None = None,
    start: Start | None = None,
    *,
    refit: bool = False,
    copies: bool = False,
) -> Result:
    """Run the experiment of a Forecaster, and test it if it has test rows; `copies` trains without its loggers."""
    start, experiment = start or Start(), options.experiment
    if start.task is not None:
        known, given = start.task.channels, panel.channels
        both = {"lacks": [one for one in known if one not in given], "adds": [one for one in given if one not in known]}
        if differs := " and ".join(f"{what} {one_of(map(shown, names))}" for what, names in both.items() if names):
            keeps = f"further training needs the same channels, {one_of(map(shown, known))}"
            raise UserError(f"the frame {differs}: {keeps}")
        experiment = experiment.with_values({"data.context_length": start.task.context_length})
    elif options.chooses_context:
        experiment = _with_chosen_context(experiment, panel, padded=options.predictor.reads_short)
    data = _data(experiment, panel)
    hooks = _hooks(options, experiment, start, folder, copies=copies)
    return run(experiment, folder, data=data, test="test" in data.parts, refit=refit, hooks=hooks)


def fitted_aside(
    options: ForecasterOptions, panel: Panel, *, calibrates: bool = False, refit: bool = False
) -> FittedPredictor:
    """Return a predictor fitted to these series, without test rows; `calibrates` fits even if no fit is needed."""
    training = replace(options.training, progress=False, checkpoints=None, save_top_k=1)
    no_split: dict[str, Any] = dict.fromkeys(SPLIT)
    aside = replace(options, data=replace(options.data, **no_split), training=training)
    if options.predictor.needs_fit or calibrates:
        result = run_on(aside, panel, copies=True, refit=refit)
        return result.refitted or result.fitted
    return aside.built_for(panel)


def fine_tuning(options: ForecasterOptions, max_steps: int | None, learning_rate: float | None) -> ForecasterOptions:
    """Return the options of a further training, by default at a tenth of the rate; checkpoints of the fit stay."""
    rate = _TUNED * options.training.learning_rate if learning_rate is None else learning_rate
    kept: dict[str, Any] = {} if options.training.checkpoints is None else {"checkpoints": None, "save_top_k": 1}
    return replace(options, training=replace(options.training, max_steps=max_steps, learning_rate=rate, **kept))


def _data(experiment: Experiment, panel: Panel) -> PanelDataModule:
    data = experiment.data_module()
    assert isinstance(data, PanelDataModule)
    data.give(panel)
    return data


def _with_chosen_context(experiment: Experiment, panel: Panel, *, padded: bool) -> Experiment:
    """Return the experiment with the context whose ridge has the lowest error on validation windows."""
    T, tested = (experiment.data["init_args"][name] or 0 for name in ("prediction_length", "test_rows"))
    few = (int(panel.lengths.max()) - tested) // 2 - T  # for a short series: it leaves rows to validate
    length = max(1, min(CONTEXTS[0], few)) if padded else CONTEXTS[0]
    shortest = experiment.with_values({"data.context_length": length})
    data = _data(shortest, panel)
    data.setup("fit")
    ends = [split.train_end for split in data.splits]
    rows, longest = median(ends), max(ends) - data.prediction_length
    possible = [length for length in CONTEXTS if length <= min([rows / _MOST, longest, *part_starts(data)])]
    if len(possible) < 2 or "val" not in data.parts:
        return shortest
    fit_data, _ = calibration_parts(data, shortest.model["calibrate"], shortest.output)
    return experiment.with_values({"data.context_length": best_context(fit_data, possible, _PENALTIES)})


def _hooks(
    options: ForecasterOptions, experiment: Experiment, start: Start, folder: Path | None, *, copies: bool
) -> Hooks:
    training, metric = options.training, f"val_{experiment.selection}"
    callbacks, loggers = training.objects("callbacks"), training.objects("logger")
    callbacks = copy.deepcopy(callbacks) if copies else callbacks
    if options.states:
        for one, state in zip(callbacks, options.states, strict=True):
            vars(one).clear()
            vars(one).update(_copied(state))
    else:
        options.states.extend(_copied(vars(one)) for one in callbacks)
    bar = Progress() if training.progress else None
    if copies:
        return Hooks(callbacks=callbacks, bar=bar)
    check_packages(loggers)
    if training.checkpoints is not None:
        path = Path(training.checkpoints)
        resumes = start.checkpoint is not None and start.checkpoint.resolve().parent == path.resolve()
        if path.is_dir() and any(path.glob("*.ckpt")) and not resumes:
            raise UserError(f"{path} has checkpoints already: name another folder, or resume with checkpoint=FILE")
        callbacks = [*callbacks, BestCheckpoint(path, metric, training.save_top_k)]
    elif training.save_top_k != 1:
        if folder is None:
            folders = "training={'checkpoints': ...}, or fit(..., folder=)"
            raise UserError(f"save_top_k needs a folder for the checkpoints: give {folders}")
        path = folder / "checkpoints"
        callbacks = [*callbacks, BestCheckpoint(path, metric, training.save_top_k, keeps_last=False)]
    return Hooks(callbacks=callbacks, loggers=loggers, bar=bar, checkpoint=start.checkpoint, start=start.warm)


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Copy attributes with their containers; files and locks, which no copy can be made of, are shared."""
    return {name: one.copy() if isinstance(one, dict | list | set) else one for name, one in state.items()}
