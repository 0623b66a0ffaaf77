"""The one way from an experiment to its result, whoever asks for it: prepare, fit, evaluate, record."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from tsattn.backbones.task_network import check_same, load_checkpoint, read_content
from tsattn.data import ForecastDataModule, PanelDataModule
from tsattn.errors import UserError, one_of
from tsattn.evaluation import ErrorTable
from tsattn.experiments.calibrating import CalibratedRun
from tsattn.experiments.experiment import OF_DATA, Experiment
from tsattn.experiments.measuring import calibrated_on, extent, measured, tables_beside_baselines
from tsattn.experiments.members import earlier_fits
from tsattn.experiments.recording import Recording, Unrecorded
from tsattn.experiments.result import Result
from tsattn.experiments.run_folder import LIMITS, RunFolder
from tsattn.experiments.schema import user_errors
from tsattn.experiments.warm_start import WarmStart
from tsattn.ops.native.record import kernels_as_noted
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.scaler import Scaler
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process, own_random_state
from tsattn.training.trainer_options import check_one_device

__all__ = ["Hooks", "resume", "run"]

logger = logging.getLogger("tsattn")

FolderOf: TypeAlias = Callable[[ForecastDataModule, Predictor], RunFolder]
_NO_LIMITS = {"max_steps": -1, "max_epochs": -1, "max_time": None}


@dataclass(frozen=True)
class Hooks:
    """Optional hooks into a run: callbacks, loggers, progress output.

    Attributes:
        callbacks: Lightning's, for networks that are trained.
        loggers: Lightning's, or their names, added to those of the Trainer.
        start: whose weights the training of a network starts from; None starts from scratch.
        built: called with predictor and data once both are there, before anything is fitted.
        bar: shows the progress of a training.
        say: takes lines about progress.
        command: that asked for the run, as the folder keeps it.
        checkpoint: that a training resumes.
        fitted: gives the folder of a finished run of an experiment, whose fit then becomes that of a member of an
            ensemble; None where there is none, and the member is fitted.
        beside: also score the baselines and draw example forecasts.
    """

    callbacks: Sequence[Callback] = ()
    loggers: Sequence[Logger | str] = ()
    start: WarmStart | None = None
    built: Callable[[Predictor, ForecastDataModule], None] = field(default=lambda predictor, data: None)
    bar: Callback | None = None
    say: Callable[[str], None] = field(default=logger.info)
    command: Sequence[str] = ()
    checkpoint: Path | None = None
    fitted: Callable[[Experiment], Path | None] = field(default=lambda experiment: None)
    beside: bool = True


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    folder: str | Path | FolderOf | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: ForecastDataModule | None = None,
    test: bool = True,
    refit: bool = False,
    hooks: Hooks | None = None,
) -> Result:
    """Train and test the predictor of an experiment, and score the baselines on the same windows.

    Args:
        experiment: an `Experiment`, plain data, or the name of a YAML file.
        folder: for everything that is needed to resume, test again or forecast; it must not exist yet. A function of
            data and predictor may give it. None writes no files.
        overrides: values by their dotted paths that replace the experiment's: ``{"attention": "swa",
            "trainer.max_steps": 100}``.
        data: the DataModule that the experiment describes, if it is there already, set up or not.
        test: whether to read the test part, if there is one.
        refit: whether to refit on all rows, at the length that validation chose, and forecast with that.
        hooks: see `Hooks`.

    Raises:
        UserError: for a description that is not valid, data that cannot be used, or a training that fails, saying why.
        KeyboardInterrupt: if it is interrupted, saying how to resume.
    """
    if isinstance(experiment, str | Path):
        experiment = Experiment.read(experiment, overrides)
    else:
        known = experiment if isinstance(experiment, Experiment) else Experiment.of(experiment)
        experiment = known.with_values(overrides)
    where = RunFolder(folder) if isinstance(folder, str | Path) else folder
    return _run(experiment, where, data, goes_on=False, test=test, refit=refit, hooks=hooks or Hooks())


def resume(
    folder: str | Path, limits: Mapping[str, Any] | None = None, *, refit: bool = False, hooks: Hooks | None = None
) -> Result:
    """Resume a run from its last checkpoint, to the result of an unbroken run.

    Args:
        folder: of the run.
        limits: ``max_steps``, ``max_epochs`` or ``max_time`` of the Trainer in place of all those that the run had, to
            train it longer; the results so far are kept under another name.
        refit: see `tsattn.run`; a finished run is refitted, too. One that was to be refitted is in any case.
        hooks: see `Hooks`.

    Raises:
        UserError: for a folder that cannot be resumed, or limits that it is beyond already.
    """
    for name in limits or {}:
        if name not in LIMITS:
            raise UserError(f"a run that goes on takes no other {name}; valid are {one_of(LIMITS)}, to train it longer")
    place = RunFolder(folder)
    if place.noted("started"):
        raise UserError(
            f"the run {place.path} began with the weights of another, which it does not keep: start it again"
        )
    is_new_refit = refit and not place.refit.exists()
    place.check_resumable(longer=bool(limits) or is_new_refit)
    if is_first_process():
        place.hold()
    try:
        before = Experiment.read(place.config)
        predictor = build_predictor(before.model["backbone"])
        if limits and not predictor.is_trained:
            raise UserError(f"{predictor.name} is fitted at once, so it cannot be trained longer")
        asked = {f"trainer.{name}": value for name, value in {**_NO_LIMITS, **limits}.items()} if limits else {}
        experiment = before.with_values(asked)
        differs = any(experiment.trainer[name] != before.trainer[name] for name in LIMITS)
        if is_first_process():  # it may have come to its end while its lock was waited for
            place.check_resumable(longer=differs or is_new_refit)
        refit = refit or bool(place.noted("refit"))
        test = place.noted("test") is not False
        with kernels_as_noted(place.noted("kernels")):
            return _run(experiment, place, None, goes_on=True, test=test, refit=refit, hooks=hooks or Hooks())
    finally:
        place.release()


@dataclass(frozen=True)
class _Prepared:
    """A run before anything is read or computed.

    Attributes:
        experiment: in the precision that is trained in.
        options: of the Trainer.
        for_refit: the options, with callbacks that were not used yet.
        data: not set up yet, unless the caller has done so.
        predictor: not built yet.
        seed: drawn where none is named, so that members of an ensemble differ in theirs.
        recording: the files.
        hooks: with the checkpoint that is resumed.
        goes_on: whether a run is resumed.
    """

    experiment: Experiment
    options: TrainerOptions
    for_refit: TrainerOptions
    data: ForecastDataModule
    predictor: Predictor
    seed: int
    recording: Unrecorded
    hooks: Hooks
    goes_on: bool

    @property
    def is_toy(self) -> bool:
        return bool(self.options.arguments["fast_dev_run"])

    @property
    def writes_checkpoints(self) -> bool:
        """Whether the training writes the weights that validation chose."""
        return _is_network(self.predictor) and "val" in self.data.parts


@dataclass(frozen=True)
class _Fit:
    """What was fitted, and how."""

    fitted: FittedPredictor
    facts: Mapping[str, Any]
    key: str
    seconds: float
    training: Training
    parts: CalibratedRun


def _run(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    data: ForecastDataModule | None,
    *,
    goes_on: bool,
    test: bool,
    refit: bool,
    hooks: Hooks,
) -> Result:
    """`run` of an experiment that is read; `goes_on` resumes the run in the folder."""
    prepared = _prepare(experiment, folder, data, goes_on=goes_on, test=test, refit=refit, hooks=hooks)
    can_resume = not isinstance(prepared.data, PanelDataModule)
    with user_errors(), prepared.recording.held(can_resume):
        fit = _fit(prepared)
        if not is_first_process() or prepared.is_toy:
            return Result(prepared.experiment, fit.key, fit.fitted, prepared.data, fit.facts)
        return _record(prepared, fit, _evaluate(prepared, fit, test), refit)


def _prepare(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    data: ForecastDataModule | None,
    *,
    goes_on: bool,
    test: bool,
    refit: bool,
    hooks: Hooks,
) -> _Prepared:
    """Make the objects of a run, and refuse what cannot be."""
    with user_errors():
        made, trainer = experiment.made()
    options = TrainerOptions.of(trainer, is_new=not goes_on)
    if not goes_on:
        experiment = experiment.with_precision(options.arguments["precision"])
    given = made if data is None else _checked_data(data, made)
    if refit:
        check_one_device(options.arguments, "a refit runs on one device")
    _check_files(options.arguments, folder is not None)
    predictor = build_predictor(experiment.model["backbone"])
    if hooks.checkpoint is not None and not goes_on and not _is_network(predictor):
        raise UserError(f"a checkpoint to go on from is that of one trained network, and {predictor.name} is none")
    where = folder(given, predictor) if callable(folder) else folder
    if where is not None and not goes_on and is_first_process():
        where.check_new()
    if where is not None and goes_on and where.last.exists():
        hooks = replace(hooks, checkpoint=where.last)
    recording = Unrecorded()
    if where is not None and not options.arguments["fast_dev_run"]:
        notes = {"test": False} if not test else {}
        notes |= {"refit": True} if refit else {}
        notes |= {"started": True} if hooks.start is not None else {}
        recording = Recording(where, experiment, [*hooks.command], hooks.say, goes_on, notes)
    seed = random.SystemRandom().getrandbits(32) if experiment.seed is None else experiment.seed
    return _Prepared(experiment, options, options.fresh(), given, predictor, seed, recording, hooks, goes_on)


def _fit(run: _Prepared) -> _Fit:
    """Read the data, and fit the predictor to them."""
    data, predictor, experiment, hooks = run.data, run.predictor, run.experiment, run.hooks
    scaler = _set_up(data, experiment, predictor, hooks)
    assert data.task is not None
    predictor.build(data.task, experiment.output, empty=True)
    hooks.built(predictor, data)
    run.recording.check_data(data)
    parts = CalibratedRun.of(data, experiment.model["calibrate"], experiment.output)
    training = _training(run)
    say_data = partial(_say_data, data, predictor, hooks.say)
    if _is_network(predictor):  # its fit checks first, with the Trainer that trains
        training = replace(training, say=_after(say_data, hooks.say))
    else:
        predictor.check_fit(parts.fit_data, training)
        say_data()
    if not predictor.is_trained:
        hooks.say(predictor.summary)
    with own_random_state(run.seed):
        started = time.perf_counter()
        facts = {**predictor.fit(parts.fit_data, training), "parameters": predictor.num_parameters}
        seconds = time.perf_counter() - started
    fitted = FittedPredictor(predictor.eval(), scaler)
    key = experiment.key_with(data)
    if hooks.start is not None:
        key = hooks.start.key_after(key)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows in one process would wait for the others
    return _Fit(fitted, facts, key, seconds, training, parts)


def _evaluate(run: _Prepared, fit: _Fit, test: bool) -> Result:
    """Keep what was fitted, validate and calibrate it, and test it beside the baselines."""
    run.recording.keep_fit(None if run.writes_checkpoints else fit.fitted, fit.seconds)
    execution = Execution(run.options)
    facts = dict(fit.facts)
    if "validation_error" not in facts and "val" in fit.parts.fit_data.parts:
        metric = run.experiment.selection
        scores = measured(run.predictor, fit.parts.fit_data, "val", execution).scores()
        facts |= {"validation_error": scores[metric], "selected_by": metric, "validation_windows": scores["windows"]}
    fitted, known = fit.parts.calibrated(fit.fitted, execution, run.hooks.say)
    run.recording.calibrate(fitted)
    tables: dict[str, ErrorTable] = {}
    if test and "test" in run.data.parts:
        predictor, path = calibrated_on(fitted, run.data), run.recording.errors
        if run.hooks.beside:
            tables = tables_beside_baselines(predictor, run.data, "test", execution, path)
        else:
            tables = {predictor.name: measured(predictor, run.data, "test", execution, path)}
    return Result(run.experiment, fit.key, fitted, run.data, {**facts, **known}, tables, run.recording.path)


def _record(run: _Prepared, fit: _Fit, result: Result, refit: bool) -> Result:
    """Write the result, and that of a refit."""
    execution, draws = Execution(run.options), run.hooks.beside
    run.recording.write(result, execution, draws=draws)  # no failure of a refit loses the test
    if refit:
        result = replace(result, refitted=_refitted(run, fit, result))
        run.recording.write(result, execution, draws=False)
    return result


def _refitted(run: _Prepared, fit: _Fit, result: Result) -> FittedPredictor:
    """Fit a predictor of the same description to all rows, at the length that validation chose."""
    conformal = result.fitted.conformal
    data = run.data.with_all_rows(rescale=conformal is None)  # intervals are on the scale of the first fit
    assert data.task is not None
    assert data.scaler is not None
    again = build_predictor(run.experiment.model["backbone"])
    again.build(data.task, run.experiment.output, empty=True)
    unwatched = replace(
        fit.training,
        trainer=run.for_refit.without_files(),
        open_files=None,
        checkpoint=None,
        resumes=False,
        callbacks=(),
        loggers=(),
        fitted=lambda member, predictor: None,  # those were not fitted to these rows
    )
    unwatched.say("refitting on all rows")
    with own_random_state(run.seed):
        again.fit(data, unwatched.at_length(result.fit))
    return FittedPredictor(again.eval(), data.scaler, conformal)


def _is_network(predictor: Predictor) -> bool:
    return isinstance(predictor, NetworkPredictor) and predictor.is_trained


def _check_files(trainer: Mapping[str, Any], has_folder: bool) -> None:
    """Refuse to write checkpoints where there is no folder, and none where there is one."""
    if trainer["enable_checkpointing"] is True and not has_folder:
        raise UserError("--trainer.enable_checkpointing needs a folder for the run: name one")
    if trainer["enable_checkpointing"] is False and has_folder:
        raise UserError(
            "--trainer.enable_checkpointing cannot be false: the folder of a run has its checkpoints; leave the folder "
            "out, in Python, to write none"
        )


def _checked_data(data: ForecastDataModule, made: ForecastDataModule) -> ForecastDataModule:
    """Refuse data that are not those that an experiment describes."""
    for name in (*OF_DATA, *made.in_key):
        one, other = getattr(data, name, None), getattr(made, name)
        if one != other:
            raise UserError(f"the data that are given have {name} {one}, and the experiment says {other}")
    return data


def _set_up(data: ForecastDataModule, experiment: Experiment, predictor: Predictor, hooks: Hooks) -> Scaler:
    """Read the data; of a checkpoint or the weights that a training starts from, task and scaler are obeyed."""
    if hooks.start is not None:
        check_same(hooks.start.description, hooks.start.output, predictor.description, experiment.output)
        hooks.start.set_up(data)
    else:
        if hooks.checkpoint is not None:
            content = read_content(load_checkpoint(hooks.checkpoint))
            check_same(content.predictor, content.output, predictor.description, experiment.output)
            data.task, data.scaler = content.task, content.scaler
        data.prepare_data()
        data.setup("fit")
    assert data.scaler is not None
    return data.scaler


def _training(run: _Prepared) -> Training:
    hooks, shows = run.hooks, run.options.arguments["enable_progress_bar"]
    bar = hooks.bar if shows is None else (hooks.bar or Progress()) if shows else None
    return Training(
        trainer=run.options,
        options={name: value for name, value in run.experiment.model.items() if name != "backbone"},
        seed=run.seed,
        open_files=run.recording.open_files,
        resumes=run.goes_on,
        checkpoint=hooks.checkpoint,
        callbacks=hooks.callbacks,
        loggers=hooks.loggers,
        start=None if hooks.start is None else hooks.start.state,
        bar=bar,
        say=hooks.say,
        fitted=earlier_fits(run.experiment, run.data, hooks.fitted, hooks.say),
    )


def _after(before: Callable[[], None], say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that says lines, and does something before the first."""
    left = [before]

    def said(line: str) -> None:
        while left:
            left.pop()()
        say(line)

    return said


def _say_data(data: ForecastDataModule, predictor: Predictor, say: Callable[[str], None]) -> None:
    task = predictor.task
    own = "" if predictor.context_length == task.context_length else f" (that of {predictor.name})"
    say(
        f"{task.data}: {extent(data)}, context {predictor.context_length}{own}, "
        f"horizon {task.prediction_length}, {len(data.windows('train'))} training windows"
    )
