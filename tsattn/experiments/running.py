"""Run experiments: the one way from a description to its result."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from tsattn.backbones.task_network import check_same, load_checkpoint, read_content
from tsattn.data import ForecastDataModule, PanelDataModule
from tsattn.errors import UserError, number_of, one_of, without_password
from tsattn.evaluation import ErrorTable
from tsattn.evaluation.measure import check_targets
from tsattn.experiments.experiment import OF_DATA, Experiment, fingerprint, user_errors
from tsattn.experiments.measuring import extent, measured, tables_with_baselines
from tsattn.experiments.result import Result, fitted_in
from tsattn.experiments.run_folder import LIMITS, RunFolder, versions
from tsattn.ops.native.record import kernels_as_noted, kernels_in_use
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.calibrated import calibration_parts, conformal_scores, fits_before
from tsattn.predictors.fitted import FittedPredictor, WarmStart, add_scores, fitted_again, save_predictor, with_levels
from tsattn.predictors.network import NetworkPredictor
from tsattn.saved_folders import write_checksums, write_text, write_whole
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process, own_random_state
from tsattn.training.train import all_fits, chosen_lengths
from tsattn.training.trainer_options import check_one_device

logger = logging.getLogger("tsattn")

FolderOf: TypeAlias = Callable[[ForecastDataModule, Predictor], RunFolder]
# facts of a member that was fitted alone
_FACTS = ("best_step", "selected_by", "validation_error", "validation_windows", "parameters", "training")


@dataclass
class Recording:
    """A run that writes into a folder."""

    folder: RunFolder  # a new folder may get another name when it is made
    experiment: Experiment
    hooks: Hooks
    resumes: bool  # whether the run is resumed
    notes: dict[str, Any]  # written into a new folder, for those who resume the run
    _is_open: bool = field(default=False, init=False)

    def check_data(self, data: ForecastDataModule) -> str:
        """Refuse to resume with data that differ from the run's first; note and return their fingerprint."""
        found = fingerprint(data)
        if self.resumes and self.folder.noted("fingerprint") not in (None, found):
            what = f"the data have changed since the run {self.folder.path} began"
            raise UserError(f"{what}: restore the data, or start a new run")
        self.notes = {"fingerprint": found, **self.notes}
        return found

    def open_files(self, member: str = "", device: str = "cpu", steps: int | None = None) -> RunFolder:
        """Open the folder to train a member, or the whole predictor if empty, for this number of steps if known."""
        if not self._is_open and is_first_process():
            last = self.folder.of_member(member).last
            if self.resumes:
                step = int(load_checkpoint(last)["global_step"]) if last.exists() else 0
                self._go_on(steps, step)
                after = f" after step {step}{f' of {member}' if member else ''}" if last.exists() else ""
                self.hooks.say(f"resuming {self.folder.path}{after}")
            else:
                self.folder = self.folder.create()
                self._is_open = True  # from here on this process owns the folder
                kernels = {"kernels": kernels_in_use()} if steps is not None and device == "cpu" else {}
                known = {**versions([*self.hooks.command], device), **self.notes, **kernels}
                self.folder.write_json(self.folder.versions, known)
                write_text(self.folder.config, self.experiment.to_yaml())  # last: with it the run can be resumed
                self.hooks.say(f"run folder: {self.folder.path}")
        self._is_open = True
        return self.folder.of_member(member)

    def keep_fit(self, fitted: FittedPredictor | None, seconds: float) -> None:
        """Note the seconds of a fit, and write a predictor that its training has not written."""
        self.open_files().note("fit_seconds", round(seconds, 3))
        if fitted is not None:
            save_predictor(self.folder.best, fitted, global_step=0)

    def _go_on(self, steps: int | None, step: int) -> None:
        """Reopen a finished run, or a run with new limits: its results are written again; old results are renamed."""
        run = self.folder
        is_longer = Experiment.read(run.config).trainer != self.experiment.trainer
        if is_longer and steps is not None and steps <= step:
            what = f"the run {run.path} is trained for {step:,} steps already, and --trainer.max_steps is {steps:,}"
            raise UserError(f"{what}: give a number above {step:,}")
        if is_longer or run.metrics.exists():
            write_text(run.config, self.experiment.to_yaml())
            if run.metrics.exists():
                former = (run.path / f"metrics_step_{step}{f'_{n}' * (n > 1)}.json" for n in itertools.count(1))
                run.metrics.replace(next(file for file in former if not file.exists()))
            again = {"step": step, "command": [without_password(word) for word in self.hooks.command]}
            run.note("extensions", [*(run.noted("extensions") or []), again])
        for file in (run.checksums, run.errors, run.refit, *run.path.glob("*.partial")):  # these are written again
            file.unlink(missing_ok=True)
        if self.notes["refit"]:
            run.note("refit", True)

    @contextlib.contextmanager
    def held(self, can_resume: bool) -> Iterator[None]:
        """Remove a new folder that an error leaves without checkpoint or curve; an interruption says how to resume."""
        try:
            yield
        except KeyboardInterrupt as stop:
            if self._is_open and self.folder.config.exists():
                raise KeyboardInterrupt(self._how_to_resume(can_resume)) from stop
            if self._is_open and self.folder.is_held:  # else this process no longer owns it
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        except Exception as error:
            if self._is_open and is_first_process():
                self._check_held(error)
                explains = isinstance(error, UserError) and [*self.folder.path.rglob(self.folder.curve.name)]
                if not (self.resumes or explains or self.folder.all_checkpoints()):
                    shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        finally:
            self.folder.release()

    def _how_to_resume(self, can_resume: bool) -> str:
        folder = self.folder
        if folder.is_finished:
            return f"the run is finished: its results are in {folder.metrics}"
        if not can_resume:
            return f"a run on series from Python cannot be resumed: fit again; best weights so far: {folder.best}"
        if folder.noted("started"):
            return f"a run with --start cannot be resumed: run it again with another --run, or remove {folder.path}"
        return f"resume with `tsattn fit --resume {folder.path}`"

    def _check_held(self, error: Exception | None = None) -> None:
        if not self.folder.is_held:
            path = self.folder.path
            raise UserError(f"the run folder {path} was removed during the run; start the run again") from error

    def write(self, result: Result, execution: Execution, *, draws: bool) -> None:
        """Write the results, and the metrics last: a folder with metrics is finished; `draws` adds forecasts."""
        predictor = result.fitted.predictor
        metrics = {
            "key": result.key,
            "data": predictor.task.data,
            "context_length": predictor.context_length,
            "prediction_length": predictor.task.prediction_length,
            **({"test_windows": result.errors.scores()["windows"]} if result.errors is not None else {}),
            "test": {  # JSON has no word for a score that is not defined
                name: {score: value if math.isfinite(value) else None for score, value in table.scores().items()}
                for name, table in result.tables.items()
            },
            **result.fit,
            "seed": result.experiment.seed,
        }
        if result.refitted is not None:
            save_predictor(self.folder.refit, result.refitted, global_step=result.fit.get("best_step", 0))
            lengths = chosen_lengths(result.fit)  # by member of an ensemble; empty without training
            metrics["refit"] = {"rows": "all", "steps": lengths.get("") if lengths.keys() <= {""} else lengths}
        if result.tables and draws:
            from tsattn.figures.forecasts import forecast_title, plot_test_forecasts

            task, data = predictor.task, result.data
            forecasting = with_levels(result.fitted, data.contents[0].ids).predictor
            title = forecast_title(task, task.prediction_length, predictor.title)
            windows = 2 if task.num_channels == 1 else 1
            figure = plot_test_forecasts(forecasting, data, title, forecasting.on(execution), windows)
            write_whole(self.folder.figure, partial(figure.savefig, format="png", dpi=130))
        self._check_held()
        write_checksums(self.folder.path, self.folder.all_checkpoints())
        self.folder.write_json(self.folder.metrics, metrics)


@dataclass(frozen=True)
class Hooks:
    """Optional hooks into a run: callbacks, loggers, progress output."""

    callbacks: Sequence[Callback] = ()  # Lightning's, for networks that are trained
    loggers: Sequence[Logger | str] = ()  # Lightning's, or their names, in addition to the Trainer's
    start: WarmStart | None = None  # whose weights the training of a network starts from; None: from scratch
    # called with predictor and data once both are there, before anything is fitted
    built: Callable[[Predictor, ForecastDataModule], None] = field(default=lambda predictor, data: None)
    bar: Callback | None = None  # shows the progress of a training
    say: Callable[[str], None] = field(default=logger.info)  # takes lines about progress
    command: Sequence[str] = ()  # the command that asked for the run, which the folder keeps
    checkpoint: Path | None = None  # the checkpoint that a training resumes
    # gives the folder of a finished run, whose fit the member of this name takes; see `member_experiments`
    member_folder: Callable[[str], Path | None] = field(default=lambda member: None)
    with_baselines: bool = True  # also score the baselines and draw example forecasts


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
        data: the DataModule that the experiment describes, if it exists already, set up or not.
        test: whether to read the test set, if there is one.
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
        limits: ``max_steps``, ``max_epochs`` or ``max_time`` of the Trainer, to train the run longer. They replace all
            limits that it had; the results so far are kept under another name.
        refit: see `tsattn.run`; a finished run is refitted, too. A run that asked for a refit gets it in any case.
        hooks: see `Hooks`.

    Raises:
        UserError: for a folder that cannot be resumed, or limits that it has reached already.
    """
    for name in {**(limits or {})}.keys() - {*LIMITS}:
        raise UserError(f"a resumed run keeps its {name}; valid are {one_of(LIMITS)}, to train it longer")
    place = RunFolder(folder)
    if place.noted("started"):
        raise UserError(f"the run {place.path} began with --start, so it cannot be resumed: run it again")
    is_new_refit = refit and not place.refit.exists()
    place.check_resumable(longer=bool(limits) or is_new_refit)
    if is_first_process():
        place.hold()
    try:
        before = Experiment.read(place.config)
        predictor = build_predictor(before.model["backbone"])
        if limits and not predictor.is_trained:
            raise UserError(f"{predictor.name} is not trained in steps, so it cannot be trained longer")
        asked = {f"trainer.{name}": value for name, value in {**LIMITS, **limits}.items()} if limits else {}
        experiment = before.with_values(asked)
        differs = any(experiment.trainer[name] != before.trainer[name] for name in LIMITS)
        if is_first_process():  # it may have finished while this process waited for its lock
            place.check_resumable(longer=differs or is_new_refit)
        asks = {"test": place.noted("test") is not False, "refit": refit or bool(place.noted("refit"))}
        with kernels_as_noted(place.noted("kernels")):
            return _prepare(experiment, place, None, hooks or Hooks(), resumes=True, **asks).result()
    finally:
        place.release()


@dataclass(frozen=True)
class _PreparedRun:
    """A run before anything is read or computed, as `_prepare` makes it."""

    experiment: Experiment  # in the precision that is trained in
    options: TrainerOptions  # whose callbacks are copied for each training
    data: ForecastDataModule  # not set up, unless the caller has done so
    predictor: Predictor  # not built
    seed: int  # drawn if none is named, so that members of an ensemble get different ones
    recording: Recording | None
    hooks: Hooks  # with the checkpoint that is resumed
    resumes: bool
    test: bool
    refit: bool

    def result(self) -> Result:
        """Fit, evaluate, record."""
        can_resume = not isinstance(self.data, PanelDataModule)
        held = contextlib.nullcontext() if self.recording is None else self.recording.held(can_resume)
        with user_errors(), held:
            result, training, fit_data, held_out = self._fit()
            if not is_first_process() or self.options.arguments["fast_dev_run"]:
                return result
            result, execution = self._evaluate(result, training, fit_data, held_out), Execution(self.options)
            if self.recording is not None:
                self.recording.write(result, execution, draws=self.hooks.with_baselines)
            if self.refit:  # a failed refit must not lose the test
                result = replace(result, refitted=_refitted(self, training, result))
                if self.recording is not None:
                    self.recording.write(result, execution, draws=False)
            return result

    def _fit(self) -> tuple[Result, Training, ForecastDataModule, ForecastDataModule | None]:
        """Read the data and fit the predictor; also return the data of the fit, and the data that calibrate."""
        data, predictor, experiment, start = self.data, self.predictor, self.experiment, self.hooks.start
        asked = (predictor.description, experiment.output)
        # task and scaler come from the weights that a training starts from, or from its checkpoint
        if start is not None:
            check_same(start.fitted.predictor.description, start.fitted.predictor.output, *asked)
            start.set_up(data)
        elif self.hooks.checkpoint is not None:
            content = read_content(load_checkpoint(self.hooks.checkpoint))
            check_same(content.predictor, content.output, *asked)
            data.prepare("fit", content.task, content.scaler)
        else:
            data.prepare("fit")
        if self.test and "test" in data.parts:
            check_targets(data.contents[0], data.splits, "test")
        _, task, scaler = data.contents
        predictor.build(task, experiment.output, empty=True)
        self.hooks.built(predictor, data)
        data_fingerprint = None if self.recording is None else self.recording.check_data(data)
        fit_data, held_out = calibration_parts(data, experiment.model["calibrate"], experiment.output)
        if held_out is not None and predictor.needs_fit and fits_before(held_out, fit_data):
            check_one_device(self.options.arguments, "short series are calibrated by a second model, on one device")
        own = "" if predictor.context_length == task.context_length else f" (that of {predictor.name})"
        sizes = f"context {predictor.context_length}{own}, horizon {task.prediction_length}"
        first = [f"{task.data}: {extent(data)}, {sizes}, {len(data.windows('train'))} training windows"]

        def say(line: str) -> None:
            while first:
                self.hooks.say(first.pop())
            self.hooks.say(line)

        training = self._training(say)
        if not _is_network(predictor):  # a network's fit checks first, with its Trainer
            predictor.check_fit(fit_data, training)
            self.hooks.say(first.pop())
        if not predictor.is_trained:
            self.hooks.say(predictor.summary)
        with own_random_state(self.seed):
            started = time.perf_counter()
            facts = {**predictor.fit(fit_data, training), "parameters": predictor.num_parameters}
            here = [fit.get("training", {}) for fit in all_fits(facts) if "earlier_fit_seconds" not in fit]
            seconds = time.perf_counter() - started + math.fsum(one.get("earlier_seconds", 0.0) for one in here)
        fitted, key = FittedPredictor(predictor.eval(), scaler), experiment.key_with(data, data_fingerprint)
        if start is not None:
            key = start.key_after(key)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # later steps in one process would wait for the others
        if self.recording is not None and is_first_process():
            # the training of a network writes the weights that validation chose
            self.recording.keep_fit(None if _is_network(predictor) and "val" in data.parts else fitted, seconds)
        return Result(experiment, key, fitted, data, facts), training, fit_data, held_out

    def _training(self, say: Callable[[str], None]) -> Training:
        hooks, shows = self.hooks, self.options.arguments["enable_progress_bar"]
        return Training(
            trainer=self.options.fresh(),
            options=self.experiment.training_options,
            seed=self.seed,
            open_files=None if self.recording is None else self.recording.open_files,
            resumes=self.resumes,
            checkpoint=hooks.checkpoint,
            callbacks=hooks.callbacks,
            loggers=hooks.loggers,
            start=None if hooks.start is None else hooks.start.fitted.predictor.state_dict(),
            bar=hooks.bar if shows is None else (hooks.bar or Progress()) if shows else None,
            say=say,
            load_earlier_fit=self._earlier_fit,
        )

    def _earlier_fit(self, member: str, predictor: Any) -> dict[str, Any] | None:
        """Take the fit of a member from the folder of a finished run, if it exists; see `Training.load_earlier_fit`."""
        if (path := self.hooks.member_folder(member)) is None:
            return None
        folder = RunFolder(path)
        before = fitted_in(folder, folder.best)
        check_same(before.predictor.description, before.predictor.output, predictor.description, predictor.output)
        task = before.predictor.task
        is_same = predictor.task == task or predictor.task.agrees_with(task)
        if not is_same or repr(before.scaler) != repr(self.data.scaler):
            raise UserError(f"the run {path} was fitted to other data, so it cannot be {member} of the ensemble")
        predictor.load_state_dict(before.predictor.state_dict(), assign=True)
        self.hooks.say(f"{member}: {before.predictor.name}, loaded from {path}")
        known = {name: fact for name, fact in json.loads(folder.metrics.read_text()).items() if name in _FACTS}
        return {"member": member, **known, "earlier_fit_seconds": folder.fit_seconds}

    def _evaluate(
        self, result: Result, training: Training, fit_data: ForecastDataModule, held_out: ForecastDataModule | None
    ) -> Result:
        """Validate the fitted predictor, calibrate it, and test it together with the baselines."""
        execution, facts, recording = Execution(self.options), dict(result.fit), self.recording
        fitted, folder = result.fitted, None if recording is None else recording.folder
        if "validation_error" not in facts and "val" in fit_data.parts:
            metric = self.experiment.selection
            scores = measured(self.predictor, fit_data, "val", execution).scores()
            named = {"selected_by": metric, "validation_windows": scores["windows"]}
            facts |= {"validation_error": scores[metric], **named}
        if held_out is not None:
            predictor, rolls = fitted.predictor, fits_before(held_out, fit_data)
            if rolls and predictor.needs_fit:  # the second fit knows nothing of the windows that score it
                before = held_out.with_splits(lambda split: split, ("train",))
                second = replace(training.unwatched(self.options).at_length(result.fit), start=None)
                predictor = fitted_again(predictor, before, second)
            scores_kept = conformal_scores(predictor, held_out, execution)
            known = facts["calibration"] = scores_kept.facts
            own = known["series_of_their_own"]
            said = f", {number_of(own, 'series')} by their own windows" if own else ""
            windows = number_of(known["windows"], "rolling origin" if rolls else "validation window")
            self.hooks.say(f"calibrated by {windows}: levels up to {known['highest_level']:g}{said}")
            fitted = replace(fitted, conformal=scores_kept)
            if recording is not None:
                add_scores(recording.folder.best, scores_kept)
        tables: dict[str, ErrorTable] = {}
        if self.test and "test" in self.data.parts:
            predictor = with_levels(fitted, self.data.contents[0].ids).predictor
            given: Any = (predictor, self.data, "test", execution, folder and folder.errors)
            tables = tables_with_baselines(*given) if self.hooks.with_baselines else {predictor.name: measured(*given)}
        return replace(result, fitted=fitted, fit=facts, tables=tables, folder=None if folder is None else folder.path)


def _prepare(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    data: ForecastDataModule | None,
    hooks: Hooks,
    *,
    test: bool,
    refit: bool,
    resumes: bool = False,
) -> _PreparedRun:
    """Make the objects of a run; refuse options that do not fit together."""
    made, options = experiment.data_module(), TrainerOptions.of(experiment.trainer_arguments(), is_new=not resumes)
    if not resumes:  # a resumed run has the precision that is chosen now
        experiment = replace(experiment, trainer={**experiment.trainer, "precision": options.arguments["precision"]})
    data = made if data is None else data
    for name in (*OF_DATA, *made.in_key):
        one, other = getattr(data, name, None), getattr(made, name)
        if one != other:
            raise UserError(f"the given data have {name} {one}, but the experiment has {other}; both must agree")
    predictor = build_predictor(experiment.model["backbone"])
    writes = folder is not None
    if refit:
        check_one_device(options.arguments, "a refit runs on one device")
    if options.arguments["enable_checkpointing"] is (not writes):
        why = "cannot be false: a run folder needs checkpoints; in Python, leave out folder to write none"
        why = why if writes else "needs a run folder: give folder=DIR"
        raise UserError(f"--trainer.enable_checkpointing {why}")
    if hooks.checkpoint is not None and not resumes and not _is_network(predictor):
        raise UserError(f"only a single trained network can resume from a checkpoint, not {predictor.name}")
    where, recording = folder(data, predictor) if callable(folder) else folder, None
    if where is not None:
        if not resumes and is_first_process():
            where.check_new()
        if resumes and where.last.exists():
            hooks = replace(hooks, checkpoint=where.last)
        if not options.arguments["fast_dev_run"]:
            notes = {"test": test, "refit": refit, "started": hooks.start is not None}
            recording = Recording(where, experiment, hooks, resumes, notes)
    seed = random.SystemRandom().getrandbits(32) if experiment.seed is None else experiment.seed
    return _PreparedRun(experiment, options, data, predictor, seed, recording, hooks, resumes, test, refit)


def _is_network(predictor: Predictor) -> bool:
    return isinstance(predictor, NetworkPredictor) and predictor.is_trained


def _refitted(run: _PreparedRun, training: Training, result: Result) -> FittedPredictor:
    """Fit a predictor of the same description to all rows, at the length that validation chose."""
    conformal = result.fitted.conformal
    data = run.data.with_all_rows(rescale=conformal is None)  # intervals are on the scale of the first fit
    run.hooks.say("refitting on all rows")
    again = fitted_again(result.fitted.predictor, data, training.unwatched(run.options).at_length(result.fit))
    return FittedPredictor(again, data.contents[2], conformal)
