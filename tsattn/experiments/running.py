"""The one way from an experiment to its result, whoever asks for it: prepare, fit, evaluate, record."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import nn

from tsattn.backbones.task_network import check_same, load_checkpoint, read_content
from tsattn.checks import calibration_share
from tsattn.data import ForecastDataModule, PanelDataModule
from tsattn.data.scaling import fit_scaler, with_new_series
from tsattn.errors import UserError, number_of, one_of
from tsattn.evaluation import ErrorTable
from tsattn.experiments.configs import with_values
from tsattn.experiments.experiment import OF_DATA, Experiment, user_errors
from tsattn.experiments.measuring import calibrated_on, extent, measured, tables_beside_baselines
from tsattn.experiments.recording import Recording, Result
from tsattn.experiments.run_folder import LIMITS, RunFolder
from tsattn.ops.native.record import kernels_as_noted
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.calibrated import check_calibration, conformal_scores, highest_level
from tsattn.predictors.ensemble import Ensemble, member_name
from tsattn.predictors.fitted import FittedPredictor, load_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.scaler import Scaler
from tsattn.task import Output
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process, own_random_state
from tsattn.training.trainer_options import check_one_device

__all__ = ["CalibratedRun", "Hooks", "WarmStart", "member_experiments", "resume", "run"]

logger = logging.getLogger("tsattn")

FolderOf: TypeAlias = Callable[[ForecastDataModule, Predictor], RunFolder]
_NO_LIMITS = {"max_steps": -1, "max_epochs": -1, "max_time": None}
# of a member that was fitted alone
_FACTS = ("best_step", "selected_by", "validation_error", "validation_windows", "parameters", "training")


@dataclass(frozen=True)
class WarmStart:
    """A fitted network, whose weights another training starts from; its optimizer is new.

    Attributes:
        fitted: the network and its scaler.
        rescale: whether to scale series and covariates by the rows that are trained on now; else the scales of the
            network stay, and those of new series are added.

    Raises:
        UserError: for a predictor that is no network, or of which nothing is trained.
    """

    fitted: FittedPredictor
    rescale: bool = False

    def __post_init__(self) -> None:
        predictor = self.fitted.predictor
        if not isinstance(predictor, NetworkPredictor):
            raise UserError(
                f"only a network starts from weights that it has, and {predictor.name} is none: fit it anew"
            )
        if not predictor.is_trained:
            raise UserError(
                f"nothing of {predictor.name} is trained, so that no training goes on from it: fit it anew, or give "
                "trained (all, attention or lora)"
            )

    def set_up(self, data: ForecastDataModule) -> None:
        """Read data as the network needs them, and scale them."""
        data.task, data.scaler = self.fitted.predictor.task, self.fitted.scaler
        data.prepare_data()
        data.setup("predict")  # read and split, not scaled
        assert data.panel is not None
        if self.rescale:
            data.scaler = fit_scaler(data.panel, data.splits, data.scaling, data.transform)
        else:
            trained = np.array([split.train_end for split in data.splits])
            data.scaler = with_new_series(self.fitted.scaler, data.panel, trained)
        data.setup("fit")

    def key_after(self, key: str) -> str:
        """The key of a result that started so, given that of one that did not."""
        found = hashlib.sha256(f"{key} {self.rescale} {self.fitted.scaler.to_dict()}".encode())
        for name, weight in sorted(self.fitted.predictor.state_dict().items()):
            found.update(name.encode())
            found.update(weight.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


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
    return _run(_prepare(experiment, where, data, hooks or Hooks(), goes_on=False, test=test, refit=refit))


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
        refit, test = refit or bool(place.noted("refit")), place.noted("test") is not False
        with kernels_as_noted(place.noted("kernels")):
            return _run(_prepare(experiment, place, None, hooks or Hooks(), goes_on=True, test=test, refit=refit))
    finally:
        place.release()


@dataclass(frozen=True)
class _Prepared:
    """A run before anything is read or computed."""

    experiment: Experiment  # in the precision that is trained in
    options: TrainerOptions
    for_refit: TrainerOptions  # with callbacks that were not used yet
    data: ForecastDataModule  # not set up, unless the caller has done so
    predictor: Predictor  # not built
    seed: int  # drawn where none is named, so that members of an ensemble differ in theirs
    recording: Recording | None
    hooks: Hooks  # with the checkpoint that is resumed
    goes_on: bool
    test: bool
    refit: bool


def _run(run: _Prepared) -> Result:
    """Fit, evaluate, record."""
    can_resume = not isinstance(run.data, PanelDataModule)
    held: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if run.recording is not None:
        held = run.recording.held(can_resume)
    with user_errors(), held:
        result, training, parts = _fit(run)
        if not is_first_process() or run.options.arguments["fast_dev_run"]:
            return result
        result = _evaluate(run, result, parts)
        execution = Execution(run.options)
        if run.recording is not None:  # before a refit, no failure of which loses the test
            run.recording.write(result, execution, draws=run.hooks.beside)
        if run.refit:
            result = replace(result, refitted=_refitted(run, training, result))
            if run.recording is not None:
                run.recording.write(result, execution, draws=False)
        return result


def _prepare(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    data: ForecastDataModule | None,
    hooks: Hooks,
    *,
    goes_on: bool,
    test: bool,
    refit: bool,
) -> _Prepared:
    """Make the objects of a run, and refuse what cannot be."""
    with user_errors():
        made, trainer = experiment.made()
    options = TrainerOptions.of(trainer, is_new=not goes_on)
    if not goes_on:
        experiment = experiment.with_precision(options.arguments["precision"])
    for name in (*OF_DATA, *made.in_key) if data is not None else ():
        one, other = getattr(data, name, None), getattr(made, name)
        if one != other:
            raise UserError(f"the data that are given have {name} {one}, and the experiment says {other}")
    data = made if data is None else data
    if refit:
        check_one_device(options.arguments, "a refit runs on one device")
    if options.arguments["enable_checkpointing"] is True and folder is None:
        raise UserError("--trainer.enable_checkpointing needs a folder for the run: name one")
    if options.arguments["enable_checkpointing"] is False and folder is not None:
        raise UserError(
            "--trainer.enable_checkpointing cannot be false: the folder of a run has its checkpoints; leave the folder "
            "out, in Python, to write none"
        )
    predictor = build_predictor(experiment.model["backbone"])
    if hooks.checkpoint is not None and not goes_on and not _is_network(predictor):
        raise UserError(f"a checkpoint to go on from is that of one trained network, and {predictor.name} is none")
    where = folder(data, predictor) if callable(folder) else folder
    if where is not None and not goes_on and is_first_process():
        where.check_new()
    if where is not None and goes_on and where.last.exists():
        hooks = replace(hooks, checkpoint=where.last)
    recording = None
    if where is not None and not options.arguments["fast_dev_run"]:
        notes = {"test": not test, "refit": refit, "started": hooks.start is not None}
        known = {name: name != "test" for name, is_noted in notes.items() if is_noted}
        recording = Recording(where, experiment, [*hooks.command], hooks.say, goes_on, known)
    seed = random.SystemRandom().getrandbits(32) if experiment.seed is None else experiment.seed
    objects = options, options.fresh(), data, predictor, seed, recording, hooks
    return _Prepared(experiment, *objects, goes_on, test, refit)


def _fit(run: _Prepared) -> tuple[Result, Training, CalibratedRun]:
    """Read the data, and fit the predictor to them."""
    data, predictor, experiment, hooks = run.data, run.predictor, run.experiment, run.hooks
    scaler = _set_up(run)
    assert data.task is not None
    predictor.build(data.task, experiment.output, empty=True)
    hooks.built(predictor, data)
    if run.recording is not None:
        run.recording.check_data(data)
    parts, training = CalibratedRun.of(data, experiment.model["calibrate"], experiment.output), _training(run)
    own = "" if predictor.context_length == data.task.context_length else f" (that of {predictor.name})"
    lines = [
        f"{data.task.data}: {extent(data)}, context {predictor.context_length}{own}, "
        f"horizon {data.task.prediction_length}, {len(data.windows('train'))} training windows"
    ]

    def say(line: str) -> None:
        while lines:
            hooks.say(lines.pop())
        hooks.say(line)

    if _is_network(predictor):  # its fit checks first, with the Trainer that trains
        training = replace(training, say=say)
    else:
        predictor.check_fit(parts.fit_data, training)
        hooks.say(lines.pop())
    if not predictor.is_trained:
        hooks.say(predictor.summary)
    with own_random_state(run.seed):
        started = time.perf_counter()
        facts = {**predictor.fit(parts.fit_data, training), "parameters": predictor.num_parameters}
        seconds = time.perf_counter() - started
    fitted, key = FittedPredictor(predictor.eval(), scaler), experiment.key_with(data)
    if hooks.start is not None:
        key = hooks.start.key_after(key)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # what follows in one process would wait for the others
    if run.recording is not None and is_first_process():
        # the training of a network writes the weights that validation chose
        run.recording.keep_fit(None if _is_network(predictor) and "val" in data.parts else fitted, seconds)
    return Result(experiment, key, fitted, data, facts), training, parts


def _evaluate(run: _Prepared, result: Result, parts: CalibratedRun) -> Result:
    """Validate what was fitted, calibrate it, and test it beside the baselines."""
    execution, facts, recording = Execution(run.options), dict(result.fit), run.recording
    if "validation_error" not in facts and "val" in parts.fit_data.parts:
        metric = run.experiment.selection
        scores = measured(run.predictor, parts.fit_data, "val", execution).scores()
        facts |= {"validation_error": scores[metric], "selected_by": metric, "validation_windows": scores["windows"]}
    fitted, known = parts.calibrated(result.fitted, execution, run.hooks.say)
    if recording is not None:
        recording.calibrate(fitted)
    tables: dict[str, ErrorTable] = {}
    if run.test and "test" in run.data.parts:
        predictor, path = calibrated_on(fitted, run.data), None if recording is None else recording.folder.errors
        if run.hooks.beside:
            tables = tables_beside_baselines(predictor, run.data, "test", execution, path)
        else:
            tables = {predictor.name: measured(predictor, run.data, "test", execution, path)}
    folder = None if recording is None else recording.folder.path
    return replace(result, fitted=fitted, fit={**facts, **known}, tables=tables, folder=folder)


def _refitted(run: _Prepared, training: Training, result: Result) -> FittedPredictor:
    """Fit a predictor of the same description to all rows, at the length that validation chose."""
    conformal = result.fitted.conformal
    data = run.data.with_all_rows(rescale=conformal is None)  # intervals are on the scale of the first fit
    assert data.task is not None
    assert data.scaler is not None
    again = build_predictor(run.experiment.model["backbone"])
    again.build(data.task, run.experiment.output, empty=True)
    unwatched = replace(
        training,
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


def _set_up(run: _Prepared) -> Scaler:
    """Read the data; of a checkpoint or the weights that a training starts from, task and scaler are obeyed."""
    data, hooks, asked = run.data, run.hooks, (run.predictor.description, run.experiment.output)
    if hooks.start is not None:
        before = hooks.start.fitted.predictor
        check_same(before.description, before.output, *asked)
        hooks.start.set_up(data)
    else:
        if hooks.checkpoint is not None:
            content = read_content(load_checkpoint(hooks.checkpoint))
            check_same(content.predictor, content.output, *asked)
            data.task, data.scaler = content.task, content.scaler
        data.prepare_data()
        data.setup("fit")
    assert data.scaler is not None
    return data.scaler


def _training(run: _Prepared) -> Training:
    hooks, shows = run.hooks, run.options.arguments["enable_progress_bar"]
    return Training(
        trainer=run.options,
        options={name: value for name, value in run.experiment.model.items() if name != "backbone"},
        seed=run.seed,
        open_files=None if run.recording is None else run.recording.open_files,
        resumes=run.goes_on,
        checkpoint=hooks.checkpoint,
        callbacks=hooks.callbacks,
        loggers=hooks.loggers,
        start=None if hooks.start is None else hooks.start.fitted.predictor.state_dict(),
        bar=hooks.bar if shows is None else (hooks.bar or Progress()) if shows else None,
        say=hooks.say,
        fitted=_earlier_fits(run),
    )


@dataclass(frozen=True)
class CalibratedRun:
    """The data of a run, parted between the choice of weights and the calibration of intervals.

    Attributes:
        fit_data: what is fitted to; their validation windows choose weights.
        data: those whose validation windows calibrate; None where nothing is calibrated.
    """

    fit_data: ForecastDataModule
    data: ForecastDataModule | None

    @classmethod
    def of(cls, data: ForecastDataModule, calibrate: bool | float, output: Output) -> Self:
        """Part data that are set up, by the option of the experiment and the output of the model.

        Raises:
            UserError: for too few validation windows, before anything is fitted.
        """
        share = calibration_share(calibrate)
        if share is None:
            return cls(data, None)
        if share == 1.0:
            check_calibration(data, output)
            return cls(data, data)
        try:
            parts = data.with_validation(0.0, 1.0 - share), data.with_validation(1.0 - share, 1.0)
            check_calibration(parts[1], output)
            parts[0].windows("val")
        except UserError as error:
            raise UserError(f"calibrate: {share:g} parts the rows for validation in two, of which {error}") from error
        return cls(*parts)

    def calibrated(
        self, fitted: FittedPredictor, execution: Execution, say: Callable[[str], None]
    ) -> tuple[FittedPredictor, dict[str, Any]]:
        """The predictor with its scores, and facts about them; as it is where nothing is calibrated."""
        if self.data is None:
            return fitted, {}
        scores = conformal_scores(fitted.predictor, self.data, execution)
        most, least = int(scores.counts[0].max()), int(scores.counts[0].min())
        highest = highest_level(least)
        own = f", {number_of(len(scores.ids), 'series')} by windows of its own" if len(scores.ids) else ""
        say(f"calibrated by {number_of(most, 'validation window')}: levels up to {highest:g}{own}")
        known = {"windows": most, "least_observed": least, "highest_level": highest}
        return replace(fitted, conformal=scores), {"calibration": {**known, "series_of_their_own": len(scores.ids)}}


def member_experiments(
    experiment: Experiment, parse: Callable[[Mapping[str, Any]], Experiment] = Experiment.of
) -> dict[str, Experiment]:
    """Return the experiments that fit the members of an ensemble alone, bit for bit as in it, by their names.

    There is none of what is not trained, which costs little, none where no seed is given, and none of a single
    predictor.

    Args:
        experiment: of the ensemble.
        parse: completes a description.
    """
    ensemble = build_predictor(experiment.model["backbone"])
    if not isinstance(ensemble, Ensemble) or experiment.seed is None:
        return {}
    found: dict[str, Experiment] = {}
    for number, member in enumerate(ensemble.described):
        if not member.is_trained:
            continue
        options = dict(member.options)
        values: dict[str, Any] = {"model.backbone": member.predictor}
        if experiment.model["calibrate"] is True:  # which changes no weight
            values["model.calibrate"] = False
        if "context_length" in options:
            values["data.init_args.context_length"] = options.pop("context_length")
        if "max_steps" in options:
            values |= {"trainer.max_epochs": None, "trainer.max_time": None}
            values["trainer.max_steps"] = options.pop("max_steps")
        values |= {f"model.{name}": value for name, value in options.items()}
        seeds = range(experiment.seed, experiment.seed + ensemble.seeds)
        alone = parse(with_values(experiment.to_dict(), {**values, "seed_everything": seeds[-1]}))  # the largest
        found |= {member_name(number, place): replace(alone, seed=seed) for place, seed in enumerate(seeds)}
    return found


def _earlier_fits(run: _Prepared) -> Callable[[str, nn.Module], dict[str, Any] | None]:
    """What `Training.fitted` asks: takes the fit of a member from the folder of a finished run, if there is one."""
    known: dict[str, Experiment] = {}

    def fitted(member: str, predictor: nn.Module) -> dict[str, Any] | None:
        if not known:
            known.update(member_experiments(run.experiment))
        path = run.hooks.fitted(known[member]) if member in known else None
        if path is None:
            return None
        assert isinstance(predictor, Predictor)
        folder = RunFolder(path)
        folder.check_trained()
        before = load_predictor(folder.best, known[member].model["backbone"], known[member].output)
        task = before.predictor.task
        is_same = predictor.task == task or predictor.task.agrees_with(task)
        if not is_same or repr(before.scaler) != repr(run.data.scaler):
            raise UserError(f"the run {path} was fitted to other data, so that the ensemble cannot take it as {member}")
        predictor.load_state_dict(before.predictor.state_dict(), assign=True)
        facts = json.loads(folder.metrics.read_text())
        run.hooks.say(f"{member}: {before.predictor.name}, as it was fitted in {path}")
        known_facts = {name: facts[name] for name in _FACTS if name in facts}
        return {"member": member, **known_facts, "earlier_fit_seconds": folder.fit_seconds}

    return fitted
