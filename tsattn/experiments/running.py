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
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import nn

from tsattn.backbones.task_network import check_same, load_checkpoint, read_content
from tsattn.data import ForecastDataModule, PanelDataModule
from tsattn.data.scaling import fit_scaler, with_new_series
from tsattn.errors import UserError, number_of, one_of
from tsattn.evaluation import ErrorTable
from tsattn.experiments.configs import with_values
from tsattn.experiments.experiment import OF_DATA, Experiment, user_errors
from tsattn.experiments.measuring import extent, measured, tables_beside_baselines
from tsattn.experiments.recording import Recording, Result
from tsattn.experiments.run_folder import LIMITS, RunFolder
from tsattn.ops.native.record import kernels_as_noted
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.calibrated import check_calibration, conformal_scores, highest_level
from tsattn.predictors.ensemble import Ensemble, member_name
from tsattn.predictors.fitted import FittedPredictor, load_predictor, with_levels
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, calibration_share
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process, own_random_state
from tsattn.training.trainer_options import check_one_device

logger = logging.getLogger("tsattn")

FolderOf: TypeAlias = Callable[[ForecastDataModule, Predictor], RunFolder]
_NO_LIMITS = {"max_steps": -1, "max_epochs": -1, "max_time": None}
# of a member that was fitted alone
_FACTS = ("best_step", "selected_by", "validation_error", "validation_windows", "parameters", "training")


@dataclass(frozen=True)
class WarmStart:
    """A fitted network, whose weights another training starts from; its optimizer is new.

    Raises:
        UserError: for a predictor that is no network, or of which nothing is trained.
    """

    fitted: FittedPredictor
    rescale: bool = False  # by the rows that are trained on now; else its scales stay, those of new series are added

    def __post_init__(self) -> None:
        name = self.fitted.predictor.name
        if not isinstance(self.fitted.predictor, NetworkPredictor):
            raise UserError(f"only a network starts from weights that it has, and {name} is none: fit it anew")
        if not self.fitted.predictor.is_trained:
            raise UserError(
                f"nothing of {name} is trained, so that no training goes on from it: fit it anew, or give trained "
                "(all, attention or lora)"
            )

    def set_up(self, data: ForecastDataModule) -> None:
        """Read data as the network needs them, and scale them."""
        data.task, data.scaler = self.fitted.predictor.task, self.fitted.scaler
        data.prepare_data()
        data.setup("predict")  # read and split, not scaled
        panel, _, scaler = data.contents
        if self.rescale:
            data.scaler = fit_scaler(panel, data.splits, data.scaling, data.transform)
        else:
            data.scaler = with_new_series(scaler, panel, np.array([split.train_end for split in data.splits]))
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
    """Optional hooks into a run: callbacks, loggers, progress output."""

    callbacks: Sequence[Callback] = ()  # Lightning's, for networks that are trained
    loggers: Sequence[Logger | str] = ()  # Lightning's, or their names, added to those of the Trainer
    start: WarmStart | None = None  # whose weights the training of a network starts from; None: from scratch
    # called with predictor and data once both are there, before anything is fitted
    built: Callable[[Predictor, ForecastDataModule], None] = field(default=lambda predictor, data: None)
    bar: Callback | None = None  # shows the progress of a training
    say: Callable[[str], None] = field(default=logger.info)  # takes lines about progress
    command: Sequence[str] = ()  # that asked for the run, as the folder keeps it
    checkpoint: Path | None = None  # that a training resumes
    # gives the folder of a finished run whose fit becomes that of the member of this name, see `member_experiments`
    fitted: Callable[[str], Path | None] = field(default=lambda member: None)
    beside: bool = True  # also score the baselines and draw example forecasts


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
    return _prepare(experiment, where, data, hooks or Hooks(), test=test, refit=refit).result()


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
    for name in {**(limits or {})}.keys() - {*LIMITS}:
        raise UserError(f"a run that goes on takes no other {name}; valid are {one_of(LIMITS)}, to train it longer")
    place = RunFolder(folder)
    if place.noted("started"):
        raise UserError(f"the run {place.path} began with the weights of another, which it lacks: start it again")
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
        asks = {"test": place.noted("test") is not False, "refit": refit or bool(place.noted("refit"))}
        with kernels_as_noted(place.noted("kernels")):
            return _prepare(experiment, place, None, hooks or Hooks(), goes_on=True, **asks).result()
    finally:
        place.release()


@dataclass(frozen=True)
class CalibratedRun:
    """The data of a run, parted between the choice of weights and the calibration of intervals."""

    fit_data: ForecastDataModule  # what is fitted to; their validation windows choose weights
    data: ForecastDataModule | None  # those whose validation windows calibrate; None where nothing is calibrated

    @classmethod
    def of(cls, data: ForecastDataModule, calibrate: bool | float, output: Output) -> Self:
        """Part data that are set up, by the option of the experiment; UserError for too few validation windows."""
        share = calibration_share(calibrate)
        if share is None:
            return cls(data, None)
        if share == 1.0:
            check_calibration(data, output)
            return cls(data, data)
        try:
            fit_data, held_out = data.with_validation(0.0, 1.0 - share), data.with_validation(1.0 - share, 1.0)
            check_calibration(held_out, output)
            fit_data.windows("val")
        except UserError as error:
            raise UserError(f"calibrate: {share:g} parts the rows for validation in two, of which {error}") from error
        return cls(fit_data, held_out)

    def calibrated(
        self, fitted: FittedPredictor, execution: Execution, say: Callable[[str], None]
    ) -> tuple[FittedPredictor, dict[str, Any]]:
        """The predictor with its scores, and facts about them; as it is where nothing is calibrated."""
        if self.data is None:
            return fitted, {}
        scores = conformal_scores(fitted.predictor, self.data, execution)
        most, least, own = int(scores.counts[0].max()), int(scores.counts[0].min()), len(scores.ids)
        said = f", {number_of(own, 'series')} by windows of its own" if own else ""
        say(f"calibrated by {number_of(most, 'validation window')}: levels up to {highest_level(least):g}{said}")
        facts = {"windows": most, "least_observed": least, "highest_level": highest_level(least)}
        return replace(fitted, conformal=scores), {"calibration": {**facts, "series_of_their_own": own}}


@dataclass(frozen=True)
class _PreparedRun:
    """A run before anything is read or computed, as `_prepare` makes it."""

    experiment: Experiment  # in the precision that is trained in
    options: TrainerOptions  # whose callbacks are copied for each training
    data: ForecastDataModule  # not set up, unless the caller has done so
    predictor: Predictor  # not built
    seed: int  # drawn where none is named, so that members of an ensemble differ in theirs
    recording: Recording | None
    hooks: Hooks  # with the checkpoint that is resumed
    goes_on: bool
    test: bool
    refit: bool

    def result(self) -> Result:
        """Fit, evaluate, record."""
        can_resume = not isinstance(self.data, PanelDataModule)
        held = contextlib.nullcontext() if self.recording is None else self.recording.held(can_resume)
        with user_errors(), held:
            result, training, parts = self._fit()
            if not is_first_process() or self.options.arguments["fast_dev_run"]:
                return result
            return self._record(self._evaluate(result, parts), training)

    def _fit(self) -> tuple[Result, Training, CalibratedRun]:
        """Read the data, and fit the predictor to them."""
        data, predictor, experiment = self.data, self.predictor, self.experiment
        self._set_up()
        _, task, scaler = data.contents
        predictor.build(task, experiment.output, empty=True)
        self.hooks.built(predictor, data)
        if self.recording is not None:
            self.recording.check_data(data)
        parts = CalibratedRun.of(data, experiment.model["calibrate"], experiment.output)
        own = "" if predictor.context_length == task.context_length else f" (that of {predictor.name})"
        sizes = f"context {predictor.context_length}{own}, horizon {task.prediction_length}"
        first = [f"{task.data}: {extent(data)}, {sizes}, {len(data.windows('train'))} training windows"]

        def say(line: str) -> None:
            while first:
                self.hooks.say(first.pop())
            self.hooks.say(line)

        training = self._training(say)
        if not _is_network(predictor):  # whose fit checks first, with the Trainer that trains
            predictor.check_fit(parts.fit_data, training)
            self.hooks.say(first.pop())
        if not predictor.is_trained:
            self.hooks.say(predictor.summary)
        with own_random_state(self.seed):
            started = time.perf_counter()
            facts = {**predictor.fit(parts.fit_data, training), "parameters": predictor.num_parameters}
            seconds = time.perf_counter() - started
        fitted, key = FittedPredictor(predictor.eval(), scaler), experiment.key_with(data)
        if self.hooks.start is not None:
            key = self.hooks.start.key_after(key)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # what follows in one process would wait for the others
        if self.recording is not None and is_first_process():
            # the training of a network writes the weights that validation chose
            self.recording.keep_fit(None if _is_network(predictor) and "val" in data.parts else fitted, seconds)
        return Result(experiment, key, fitted, data, facts), training, parts

    def _set_up(self) -> None:
        """Read the data; of a checkpoint or the weights that a training starts from, task and scaler are obeyed."""
        data, hooks, asked = self.data, self.hooks, (self.predictor.description, self.experiment.output)
        if hooks.start is not None:
            before = hooks.start.fitted.predictor
            check_same(before.description, before.output, *asked)
            hooks.start.set_up(data)
            return
        if hooks.checkpoint is not None:
            content = read_content(load_checkpoint(hooks.checkpoint))
            check_same(content.predictor, content.output, *asked)
            data.task, data.scaler = content.task, content.scaler
        data.prepare_data()
        data.setup("fit")

    def _training(self, say: Callable[[str], None]) -> Training:
        hooks, shows = self.hooks, self.options.arguments["enable_progress_bar"]
        return Training(
            trainer=self.options.fresh(),
            options={name: value for name, value in self.experiment.model.items() if name != "backbone"},
            seed=self.seed,
            open_files=None if self.recording is None else self.recording.open_files,
            resumes=self.goes_on,
            checkpoint=hooks.checkpoint,
            callbacks=hooks.callbacks,
            loggers=hooks.loggers,
            start=None if hooks.start is None else hooks.start.fitted.predictor.state_dict(),
            bar=hooks.bar if shows is None else (hooks.bar or Progress()) if shows else None,
            say=say,
            fitted=partial(_earlier_fit, hooks, self.data),
        )

    def _evaluate(self, result: Result, parts: CalibratedRun) -> Result:
        """Validate what was fitted, calibrate it, and test it beside the baselines."""
        execution, facts, recording = Execution(self.options), dict(result.fit), self.recording
        if "validation_error" not in facts and "val" in parts.fit_data.parts:
            metric = self.experiment.selection
            scores = measured(self.predictor, parts.fit_data, "val", execution).scores()
            named = {"selected_by": metric, "validation_windows": scores["windows"]}
            facts |= {"validation_error": scores[metric], **named}
        fitted, known = parts.calibrated(result.fitted, execution, self.hooks.say)
        if recording is not None:
            recording.calibrate(fitted)
        tables: dict[str, ErrorTable] = {}
        if self.test and "test" in self.data.parts:
            predictor = with_levels(fitted, self.data.contents[0].ids).predictor
            given: Any = (predictor, self.data, "test", execution)
            given += (None if recording is None else recording.folder.errors,)
            tables = tables_beside_baselines(*given) if self.hooks.beside else {predictor.name: measured(*given)}
        folder = None if recording is None else recording.folder.path
        return replace(result, fitted=fitted, fit={**facts, **known}, tables=tables, folder=folder)

    def _record(self, result: Result, training: Training) -> Result:
        """Write the result, before a refit, no failure of which loses the test, and after it."""
        execution = Execution(self.options)
        if self.recording is not None:
            self.recording.write(result, execution, draws=self.hooks.beside)
        if self.refit:
            result = replace(result, refitted=_refitted(self, training, result))
            if self.recording is not None:
                self.recording.write(result, execution, draws=False)
        return result


def _prepare(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    data: ForecastDataModule | None,
    hooks: Hooks,
    *,
    test: bool,
    refit: bool,
    goes_on: bool = False,
) -> _PreparedRun:
    """Make the objects of a run, and refuse what cannot be."""
    with user_errors():
        made, trainer = experiment.made()
    options = TrainerOptions.of(trainer, is_new=not goes_on)
    if not goes_on:  # the precision that is chosen now is that of a resumed run, too
        experiment = replace(experiment, trainer={**experiment.trainer, "precision": options.arguments["precision"]})
    data = made if data is None else data
    for name in (*OF_DATA, *made.in_key):
        one, other = getattr(data, name, None), getattr(made, name)
        if one != other:
            raise UserError(f"the data that are given have {name} {one}, and the experiment says {other}")
    predictor = build_predictor(experiment.model["backbone"])
    _check_options(options, predictor, hooks, writes=folder is not None, goes_on=goes_on, refit=refit)
    where, recording = folder(data, predictor) if callable(folder) else folder, None
    if where is not None:
        if not goes_on and is_first_process():
            where.check_new()
        if goes_on and where.last.exists():
            hooks = replace(hooks, checkpoint=where.last)
        if not options.arguments["fast_dev_run"]:
            notes = {"test": test, "refit": refit, "started": hooks.start is not None}
            recording = Recording(where, experiment, [*hooks.command], hooks.say, goes_on, notes)
    seed = random.SystemRandom().getrandbits(32) if experiment.seed is None else experiment.seed
    return _PreparedRun(experiment, options, data, predictor, seed, recording, hooks, goes_on, test, refit)


def _check_options(
    options: TrainerOptions, predictor: Predictor, hooks: Hooks, *, writes: bool, goes_on: bool, refit: bool
) -> None:
    if refit:
        check_one_device(options.arguments, "a refit runs on one device")
    if options.arguments["enable_checkpointing"] is (not writes):
        why = "cannot be false: the folder of a run has its checkpoints; leave the folder out, in Python, to write none"
        why = why if writes else "needs a folder for the run: name one"
        raise UserError(f"--trainer.enable_checkpointing {why}")
    if hooks.checkpoint is not None and not goes_on and not _is_network(predictor):
        raise UserError(f"a checkpoint to go on from is that of one trained network, and {predictor.name} is none")


def _is_network(predictor: Predictor) -> bool:
    return isinstance(predictor, NetworkPredictor) and predictor.is_trained


def _refitted(run: _PreparedRun, training: Training, result: Result) -> FittedPredictor:
    """Fit a predictor of the same description to all rows, at the length that validation chose."""
    conformal = result.fitted.conformal
    data = run.data.with_all_rows(rescale=conformal is None)  # intervals are on the scale of the first fit
    _, task, scaler = data.contents
    again = build_predictor(run.experiment.model["backbone"])
    again.build(task, run.experiment.output, empty=True)
    # without the fits of members before, which were not to these rows
    shown: dict[str, Any] = {"start": training.start, "bar": training.bar, "say": run.hooks.say}
    unwatched = Training(run.options.without_files(), training.options, training.seed, **shown)
    run.hooks.say("refitting on all rows")
    with own_random_state(run.seed):
        again.fit(data, unwatched.at_length(result.fit))
    return FittedPredictor(again.eval(), scaler, conformal)


def member_experiments(
    experiment: Experiment, parse: Callable[[Mapping[str, Any]], Experiment] = Experiment.of
) -> dict[str, Experiment]:
    """Return the experiments that fit the trained members of an ensemble alone, bit for bit as in it, by their names.

    There is none where no seed is given; `parse` completes a description.
    """
    ensemble, found = build_predictor(experiment.model["backbone"]), dict[str, Experiment]()
    if not isinstance(ensemble, Ensemble) or experiment.seed is None:
        return found
    seeds = range(experiment.seed, experiment.seed + ensemble.seeds)
    others = {"context_length": "data.context_length", "max_steps": "trainer.max_steps"}
    for number, member in ((number, one) for number, one in enumerate(ensemble.described) if one.is_trained):
        values = {others.get(name, f"model.{name}"): value for name, value in member.options.items()}
        values |= {"model.backbone": member.predictor, "seed_everything": seeds[-1]}  # the largest
        if experiment.model["calibrate"] is True:  # which changes no weight
            values["model.calibrate"] = False
        if "max_steps" in member.options:
            values |= {"trainer.max_epochs": None, "trainer.max_time": None}
        alone = parse(with_values(experiment.to_dict(), values))
        found |= {member_name(number, place): replace(alone, seed=seed) for place, seed in enumerate(seeds)}
    return found


def _earlier_fit(hooks: Hooks, data: ForecastDataModule, member: str, predictor: nn.Module) -> dict[str, Any] | None:
    """Take the fit of a member from the folder of a finished run, if there is one; see `Training.fitted`."""
    if (path := hooks.fitted(member)) is None:
        return None
    assert isinstance(predictor, Predictor)
    folder = RunFolder(path)
    folder.check_trained()
    before = load_predictor(folder.best, predictor.description, predictor.output)
    task = before.predictor.task
    is_same = predictor.task == task or predictor.task.agrees_with(task)
    if not is_same or repr(before.scaler) != repr(data.scaler):
        raise UserError(f"the run {path} was fitted to other data, so that the ensemble cannot take it as {member}")
    predictor.load_state_dict(before.predictor.state_dict(), assign=True)
    hooks.say(f"{member}: {before.predictor.name}, as it was fitted in {path}")
    known = {name: fact for name, fact in json.loads(folder.metrics.read_text()).items() if name in _FACTS}
    return {"member": member, **known, "earlier_fit_seconds": folder.fit_seconds}
