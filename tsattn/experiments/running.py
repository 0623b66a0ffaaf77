"""The one way from an experiment to its result, whoever asks for it."""

from __future__ import annotations

import contextlib
import logging
import math
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
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments.calibrating import CalibratedRun
from tsattn.experiments.experiment import OF_DATA, Experiment
from tsattn.experiments.fingerprint import fingerprint
from tsattn.experiments.measuring import calibrated_on, extent, measured, tables_beside_baselines
from tsattn.experiments.members import earlier_fits
from tsattn.experiments.recording import Recording
from tsattn.experiments.result import Result
from tsattn.experiments.run_folder import RunFolder
from tsattn.experiments.schema import user_errors
from tsattn.experiments.warm_start import WarmStart
from tsattn.figures import plot_test_forecasts
from tsattn.figures.plain_names import forecast_title, model_words
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.fitted import FittedPredictor, calibrate_checkpoint, save_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.saved_folders import write_whole
from tsattn.scaler import Scaler
from tsattn.training import Execution, TrainerOptions, Training
from tsattn.training.callbacks import Progress
from tsattn.training.execution import is_first_process, own_random_state
from tsattn.training.train import chosen_lengths
from tsattn.training.trainer_options import check_one_device

__all__ = ["Hooks", "fit_experiment", "run"]

logger = logging.getLogger("tsattn")

FolderOf: TypeAlias = Callable[[ForecastDataModule, Predictor], RunFolder]


@dataclass(frozen=True)
class Hooks:
    """What a caller of `run` takes part in.

    Attributes:
        callbacks: Lightning's, for networks that are trained.
        loggers: Lightning's, or their names, beside those of the Trainer.
        start: whose weights the training of a network starts from; None starts anew.
        built: called with predictor and data once both are there, before anything is fitted.
        bar: shows the progress of a training.
        say: takes lines about what is done.
        command: that asked for the run, as the folder keeps it.
        checkpoint: that a training goes on from.
        fitted: gives the folder of a finished run of an experiment, whose fit is then taken for that of a member of an
            ensemble; None where there is none, and the member is fitted.
        beside: whether the test measures the baselines, too, and draws a few forecasts.
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
        folder: for everything that is needed to go on, test again or forecast; it must not exist yet. It may be found
            by a function of data and predictor. None writes no files.
        overrides: values by their dotted paths that take the place of the experiment's: ``{"attention": "swa",
            "trainer.max_steps": 100}``.
        data: the DataModule that the experiment describes, where it is there already, set up or not.
        test: whether to read the test part, if there is one.
        refit: whether to fit once more, to all rows, at the length that validation chose; forecasts come from that.
        hooks: what the caller takes part in.

    Raises:
        UserError: for a description that is not valid, data that cannot be used, or a training that fails, saying why.
        KeyboardInterrupt: if it is interrupted, saying how to go on.
    """
    if isinstance(experiment, str | Path):
        experiment = Experiment.read(experiment, overrides)
    else:
        known = experiment if isinstance(experiment, Experiment) else Experiment.of(experiment)
        experiment = known.with_values(overrides)
    where = RunFolder(folder) if isinstance(folder, str | Path) else folder
    return fit_experiment(experiment, where, data=data, test=test, refit=refit, hooks=hooks or Hooks())


def fit_experiment(
    experiment: Experiment,
    folder: FolderOf | RunFolder | None,
    *,
    data: ForecastDataModule | None = None,
    goes_on: bool = False,
    test: bool = True,
    refit: bool = False,
    hooks: Hooks,
) -> Result:
    """`run` of an experiment that is read; the arguments are those of `run`.

    Args:
        goes_on: whether the folder is that of a run that goes on.
    """
    with user_errors():
        made, trainer = experiment.made()
    options = TrainerOptions.of(trainer, is_new=not goes_on)
    if not goes_on:
        experiment = experiment.with_precision(options.arguments["precision"])
    if data is None:
        data = made
    else:
        _check_described(data, made)
    if refit:
        check_one_device(options.arguments, "a refit runs on one device")
    _check_files(options.arguments, folder is not None)
    for_refit = options.fresh()  # callbacks have a state once they were used
    # one that nobody names is drawn, so that members of an ensemble differ in theirs
    seed = random.SystemRandom().getrandbits(32) if experiment.seed is None else experiment.seed
    predictor = build_predictor(experiment.model["backbone"])
    is_network = isinstance(predictor, NetworkPredictor) and predictor.is_trained
    if hooks.checkpoint is not None and not goes_on and not is_network:
        raise UserError(f"a checkpoint to go on from is that of one trained network, and {predictor.name} is none")
    where = folder(data, predictor) if callable(folder) else folder
    if where is not None and not goes_on and is_first_process():
        where.check_new()
    is_toy = bool(options.arguments["fast_dev_run"])
    recording = None
    if where is not None and not is_toy:
        noted: dict[str, bool] = {"refits": refit, "tests": test, "starts": hooks.start is not None}
        recording = Recording(where, experiment, [*hooks.command], goes_on=goes_on, **noted)
    checkpoint = hooks.checkpoint
    if goes_on and where is not None and where.last.exists():
        checkpoint = where.last
    can_resume = not isinstance(data, PanelDataModule)
    with user_errors(), contextlib.nullcontext() if recording is None else recording.held(can_resume):
        scaler = _set_up(data, experiment, predictor, checkpoint, hooks.start)
        assert data.task is not None
        predictor.build(data.task, experiment.output, empty=True)
        hooks.built(predictor, data)
        training = _training(experiment, options, recording, replace(hooks, checkpoint=checkpoint), goes_on, seed, data)
        if recording is not None:
            recording.check_data(fingerprint(data))
        parts = CalibratedRun.of(data, experiment.model["calibrate"], experiment.output)
        say_data = partial(_say_data, data, predictor, hooks.say)
        if is_network:  # its fit checks first, with the Trainer that trains
            training = replace(training, say=_after(say_data, hooks.say))
        else:
            predictor.check_fit(parts.fit_data, training)
            say_data()
        if not predictor.is_trained:
            hooks.say(predictor.summary)
        with own_random_state(seed):
            started = time.perf_counter()
            facts = {**predictor.fit(parts.fit_data, training), "parameters": predictor.num_parameters}
            seconds = time.perf_counter() - started
        fitted = FittedPredictor(predictor.eval(), scaler)
        key = experiment.key_with(data)
        if hooks.start is not None:
            key = hooks.start.key_after(key)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # what follows in one process would wait for the others
        if not is_first_process() or is_toy:
            return Result(experiment, key, fitted, data, facts)
        if recording is not None:
            _open(recording, "cpu", None, hooks.say)
            recording.folder.note("fit_seconds", round(seconds, 3))
            # else the training of a network has written it
            if not is_network or "val" not in data.parts:
                save_predictor(recording.folder.best, fitted, global_step=0)
        execution = Execution(options)
        facts = {**facts, **_validated(predictor, parts.fit_data, execution, facts, experiment.selection)}
        fitted, known = parts.calibrated(fitted, execution, hooks.say)
        facts = {**facts, **known}
        if recording is not None and fitted.conformal is not None:
            calibrate_checkpoint(recording.folder.best, fitted.conformal)
        predictor = calibrated_on(fitted, data)
        is_tested = test and "test" in data.parts
        tables = _tested(predictor, data, recording, execution, hooks.beside) if is_tested else {}
        folder_path = None if recording is None else recording.folder.path
        result = Result(experiment, key, fitted, data, facts, tables, folder_path)
        if refit:
            if recording is not None:
                _write(result, recording, execution, hooks.beside)  # no failure of what follows loses the test
            # what intervals are widened by is on the scale of the first fit
            rescale = fitted.conformal is None
            whole = _refitted(experiment, data, replace(training, trainer=for_refit), facts, rescale)
            whole = replace(whole, conformal=fitted.conformal)
            result = replace(result, refitted=whole)
        if recording is not None:
            _write(result, recording, execution, hooks.beside)
        return result


def _check_files(trainer: Mapping[str, Any], has_folder: bool) -> None:
    """Refuse to write checkpoints where there is no folder, and none where there is one.

    Raises:
        UserError: saying what would do it.
    """
    if trainer["enable_checkpointing"] is True and not has_folder:
        raise UserError("--trainer.enable_checkpointing needs a folder for the run: name one")
    if trainer["enable_checkpointing"] is False and has_folder:
        raise UserError(
            "--trainer.enable_checkpointing cannot be false: the folder of a run has its checkpoints; leave the folder "
            "out, in Python, to write none"
        )


def _check_described(data: ForecastDataModule, made: ForecastDataModule) -> None:
    """Refuse data that are not those that an experiment describes."""
    for name in (*OF_DATA, *made.in_key):
        one, other = getattr(data, name, None), getattr(made, name)
        if one != other:
            raise UserError(f"the data that are given have {name} {one}, and the experiment says {other}")


def _set_up(
    data: ForecastDataModule,
    experiment: Experiment,
    predictor: Predictor,
    checkpoint: Path | None,
    start: WarmStart | None,
) -> Scaler:
    """Read the data; of a checkpoint or the weights that a training starts from, task and scaler are obeyed."""
    if start is not None:
        check_same(start.description, start.output, predictor.description, experiment.output)
        start.set_up(data)
    else:
        if checkpoint is not None:
            content = read_content(load_checkpoint(checkpoint))
            check_same(content.predictor, content.output, predictor.description, experiment.output)
            data.task, data.scaler = content.task, content.scaler
        data.prepare_data()
        data.setup("fit")
    assert data.scaler is not None
    return data.scaler


def _tested(
    predictor: Predictor, data: ForecastDataModule, recording: Recording | None, execution: Execution, beside: bool
) -> dict[str, ErrorTable]:
    """The errors on the test part, by predictor: its own, and those of the baselines if they are asked for."""
    path = None if recording is None else recording.folder.errors
    if beside:
        return tables_beside_baselines(predictor, data, "test", execution, path)
    return {predictor.name: measured(predictor, data, "test", execution, path)}


def _training(
    experiment: Experiment,
    options: TrainerOptions,
    recording: Recording | None,
    hooks: Hooks,
    goes_on: bool,
    seed: int,
    data: ForecastDataModule,
) -> Training:
    model = {name: value for name, value in experiment.model.items() if name != "backbone"}

    def open_files(member: str, device: str, steps: int | None) -> RunFolder:
        assert recording is not None
        _open(recording, device, steps, hooks.say, member)
        return recording.part(member)

    return Training(
        trainer=options,
        options=model,
        seed=seed,
        open_files=None if recording is None else open_files,
        resumes=goes_on,
        checkpoint=hooks.checkpoint,
        callbacks=hooks.callbacks,
        loggers=hooks.loggers,
        start=None if hooks.start is None else hooks.start.state,
        bar=_bar(hooks, options),
        say=hooks.say,
        fitted=earlier_fits(experiment, data, hooks.fitted, hooks.say),
    )


def _bar(hooks: Hooks, options: TrainerOptions) -> Callback | None:
    """The bar of a training, which the Trainer's own argument may ask for or refuse."""
    shows = options.arguments["enable_progress_bar"]
    if shows is None:
        return hooks.bar
    return (hooks.bar or Progress()) if shows else None


def _open(
    recording: Recording, device: str, steps: int | None, say: Callable[[str], None], member: str | None = None
) -> None:
    """Open the folder for the training of a member, of the whole (empty), or for what is fitted without (None)."""
    if recording.open(device, steps, member or ""):
        after = "" if member is None else f" after step {recording.step(member)}{f' of {member}' if member else ''}"
        path = recording.folder.path
        say(f"going on with {path}{after}" if recording.goes_on else f"run folder: {path}")


def _after(before: Callable[[], None], say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that says lines, and does something before the first."""
    left = [before]

    def said(line: str) -> None:
        while left:
            left.pop()()
        say(line)

    return said


def _say_data(data: ForecastDataModule, predictor: Predictor, say: Callable[[str], None]) -> None:
    task = data.task
    assert task is not None
    own = "" if predictor.context_length == task.context_length else f" (that of {predictor.name})"
    say(
        f"{task.data}: {extent(data)}, context {predictor.context_length}{own}, "
        f"horizon {task.prediction_length}, {len(data.windows('train'))} training windows"
    )


def _validated(
    predictor: Predictor, data: ForecastDataModule, execution: Execution, facts: Mapping[str, Any], metric: str
) -> dict[str, Any]:
    """The validation error of a predictor that was fitted without one."""
    if "validation_error" in facts or "val" not in data.parts:
        return {}
    scores = measured(predictor, data, "val", execution).scores()
    return {"validation_error": scores[metric], "selected_by": metric, "validation_windows": scores["windows"]}


def _refitted(
    experiment: Experiment, data: ForecastDataModule, training: Training, facts: Mapping[str, Any], rescale: bool
) -> FittedPredictor:
    """A predictor of the same description, fitted to all rows at the length that validation chose."""
    whole = data.with_all_rows(rescale=rescale)
    assert whole.task is not None
    assert whole.scaler is not None
    again = build_predictor(experiment.model["backbone"])
    again.build(whole.task, experiment.output, empty=True)
    quiet: dict[str, Any] = {"callbacks": (), "loggers": (), "trainer": training.trainer.without_files()}
    unwatched = replace(training, open_files=None, checkpoint=None, resumes=False, **quiet)
    unwatched = replace(unwatched, fitted=lambda member, predictor: None)  # those were not fitted to these rows
    training.say("refitting on all rows")
    with own_random_state(training.seed):
        again.fit(whole, unwatched.at_length(facts))
    return FittedPredictor(again.eval(), whole.scaler)


def _write(result: Result, recording: Recording, execution: Execution, draws: bool) -> None:
    """The results of a run, into its folder, with a picture of some forecasts or without."""
    folder, data = recording.folder, result.data
    assert data.task is not None
    if result.refitted is not None:
        save_predictor(folder.refit, result.refitted, global_step=result.fit.get("best_step", 0))
    task = data.task
    metrics = {
        "key": result.key,
        "data": task.data,
        "context_length": result.fitted.predictor.context_length,
        "prediction_length": task.prediction_length,
        **({"test_windows": result.errors.scores()["windows"]} if result.errors is not None else {}),
        "test": {name: _finite(table.scores()) for name, table in result.tables.items()},
        **result.fit,
        "seed": result.experiment.seed,
        **({"refit": {"rows": "all", "steps": _refit_steps(result.fit)}} if result.refitted is not None else {}),
    }
    if result.tables and draws:
        title = forecast_title(task, task.prediction_length, model_words(result.fitted.predictor))
        predictor = calibrated_on(result.fitted, data)
        windows = 2 if task.num_channels == 1 else 1
        figure = plot_test_forecasts(predictor, data, title, predictor.on(execution), windows)
        write_whole(folder.figure, partial(figure.savefig, format="png", dpi=130))
    recording.write(metrics)


def _refit_steps(fit: Mapping[str, Any]) -> int | dict[str, int] | None:
    """The length that validation chose, of an ensemble by member; None where nothing was trained."""
    lengths = chosen_lengths(fit)
    return lengths.get("") if lengths.keys() <= {""} else lengths


def _finite(scores: Mapping[str, float]) -> dict[str, float | None]:
    """None where a score is not defined: JSON has no word for that."""
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}
