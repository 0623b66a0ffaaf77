"""The result of a run, the files that keep it, and a finished run opened again."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.backbones.task_network import load_checkpoint
from tsattn.batch import ACCELERATORS, has_accelerator
from tsattn.data import ForecastDataModule, FrameDataModule
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, without_password
from tsattn.evaluation import ErrorTable
from tsattn.experiments.configs import read_config
from tsattn.experiments.experiment import Experiment, fingerprint, user_errors
from tsattn.experiments.run_folder import RunFolder, versions
from tsattn.ops.native.record import kernels_in_use
from tsattn.predictors.fitted import FittedPredictor, calibrate_checkpoint, load_predictor, save_predictor, with_levels
from tsattn.saved_folders import write_checksums, write_text, write_whole
from tsattn.training import Execution, TrainerOptions
from tsattn.training.execution import is_first_process
from tsattn.training.train import chosen_lengths

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class Result:
    """Result of a run.

    Attributes:
        experiment: what was run.
        key: tells results apart, see `Experiment.key`.
        fitted: the predictor and its scaler; of a network, the weights of the lowest validation error.
        data: the DataModule that it was fitted to, set up.
        fit: facts of the fit as plain data: ``validation_error``, ``selected_by`` (its name), ``parameters``, and of a
            network ``best_step`` and ``training``.
        tables: for the test part, by the name of the predictor and of each baseline, its table of errors; empty for a
            run that was not tested.
        folder: of the run; None for one that was not written.
        refitted: fitted once more to all rows; None where that was not asked for.
    """

    experiment: Experiment
    key: str
    fitted: FittedPredictor
    data: ForecastDataModule
    fit: Mapping[str, Any]
    tables: Mapping[str, ErrorTable] = field(default_factory=dict)
    folder: Path | None = None
    refitted: FittedPredictor | None = None

    @property
    def errors(self) -> ErrorTable | None:
        """The test errors of the predictor, a row for each series, origin and channel; None if it was not tested."""
        return self.tables.get(self.fitted.predictor.name)

    @property
    def scores(self) -> pd.DataFrame:
        """The test scores: a row for the predictor and each baseline, a column for each score."""
        return pd.DataFrame.from_dict({name: table.scores() for name, table in self.tables.items()}, orient="index")

    def __repr__(self) -> str:
        scores = self.scores[["mse_scaled", "mae_scaled"]] if self.tables else "not tested"
        return f"Result of {self.fitted.predictor.name} in {self.folder}:\n{scores}"


@dataclass
class Recording:
    """A run that writes into a folder."""

    folder: RunFolder  # a new one may get another name once it is made
    experiment: Experiment
    command: list[str]
    say: Callable[[str], None]
    goes_on: bool  # whether the folder is that of a resumed run
    notes: dict[str, Any]  # that a new folder gets, for those who resume the run
    _is_open: bool = field(default=False, init=False)

    def check_data(self, data: ForecastDataModule) -> None:
        """Refuse to resume with other data than the run was begun with; note those of a new one."""
        found = fingerprint(data)
        if self.goes_on and self.folder.noted("fingerprint") not in (None, found):
            what = f"the data are not those that the run {self.folder.path} was begun with"
            raise UserError(f"{what}: give it the same ones again, or start a new run")
        self.notes = {"fingerprint": found, **self.notes}

    def open_files(self, member: str, device: str, steps: int | None) -> RunFolder:
        """Open the folder for the training of a member, or of the whole (empty), and return its part.

        Steps are those of the whole training, None where they are not known.
        """
        last = self.folder.of_member(member).last
        step = int(load_checkpoint(last)["global_step"]) if self.goes_on and last.exists() else 0
        kernels = {"kernels": kernels_in_use()} if steps is not None and device == "cpu" else {}
        self._open(device, kernels, steps, step, f" after step {step}{f' of {member}' if member else ''}")
        return self.folder.of_member(member)

    def keep_fit(self, fitted: FittedPredictor | None, seconds: float) -> None:
        """Note the seconds of a fit, and write a predictor that its training has not written."""
        self._open("cpu", {}, None, 0, "")
        self.folder.note("fit_seconds", round(seconds, 3))
        if fitted is not None:
            save_predictor(self.folder.best, fitted, global_step=0)

    def _open(self, device: str, more: Mapping[str, Any], steps: int | None, step: int, after: str) -> None:
        """Make the folder unless it is there, or resume the run in it."""
        if not self._is_open and is_first_process():
            if self.goes_on:
                self._go_on(steps, step)
            else:
                self.folder = self.folder.create()
                self._is_open = True  # from here on the folder is that of this process
                known = {**versions(self.command, device), **self.notes, **more}
                self.folder.write_json(self.folder.versions, known)
                write_text(self.folder.config, self.experiment.to_yaml())  # last: with it the run can be resumed
            path = self.folder.path
            self.say(f"going on with {path}{after}" if self.goes_on else f"run folder: {path}")
        self._is_open = True

    def _go_on(self, steps: int | None, step: int) -> None:
        """Make a finished run, or one with another end now, one whose results are to come; former ones keep a name."""
        run = self.folder
        is_longer = Experiment.read(run.config).trainer != self.experiment.trainer
        if is_longer and steps is not None and steps <= step:
            what = f"the run {run.path} is trained for {step:,} steps already, and {steps:,} are asked for in all"
            raise UserError(f"{what}: --trainer.max_steps must be above that")
        if is_longer or run.metrics.exists():
            write_text(run.config, self.experiment.to_yaml())
            if run.metrics.exists():
                ends = itertools.chain([""], map("_{}".format, itertools.count(2)))
                former = (run.path / f"metrics_step_{step}{end}.json" for end in ends)
                run.metrics.replace(next(file for file in former if not file.exists()))
            again = {"step": step, "command": [without_password(word) for word in self.command]}
            run.note("extensions", [*(run.noted("extensions") or []), again])
        for file in (run.checksums, run.errors, run.refit, *run.path.glob("*.partial")):  # are written again
            file.unlink(missing_ok=True)
        if self.notes["refit"]:
            run.note("refit", True)

    @contextlib.contextmanager
    def held(self, can_resume: bool) -> Iterator[None]:
        """Remove a new folder again where an error leaves neither a checkpoint nor a curve that explains it.

        An interruption says how to resume: the command line can where the data are in files.
        """
        try:
            yield
        except KeyboardInterrupt as stop:
            if not self._is_open:
                raise
            if not self.folder.config.exists():
                self._remove()
                raise
            raise KeyboardInterrupt(self._how_to_resume(can_resume)) from stop
        except Exception as error:
            if self._is_open and is_first_process():
                self._check_held(error)
                explains = isinstance(error, UserError) and [*self.folder.path.rglob(self.folder.curve.name)]
                if not (self.goes_on or explains or self.folder.all_checkpoints()):
                    self._remove()
            raise
        finally:
            self.folder.release()

    def _how_to_resume(self, can_resume: bool) -> str:
        folder = self.folder
        if folder.is_finished:
            return f"the run is finished: its results are in {folder.metrics}"
        if not can_resume:
            return f"its series were given in Python: fit them again; the best weights so far are in {folder.best}"
        if folder.noted("started"):
            return f"a run with --start cannot be resumed: run it again with another --run, or remove {folder.path}"
        return f"go on with `tsattn fit --resume {folder.path}`"

    def _check_held(self, error: Exception | None = None) -> None:
        if not self.folder.is_held:
            path = self.folder.path
            raise UserError(f"the run folder {path} was removed while the run went on; start the run again") from error

    def _remove(self) -> None:
        if self.folder.is_held:  # else it is no longer that of this process
            shutil.rmtree(self.folder.path, ignore_errors=True)

    def calibrate(self, fitted: FittedPredictor) -> None:
        """Keep the scores that calibrate a predictor, if it has any."""
        if fitted.conformal is not None:
            calibrate_checkpoint(self.folder.best, fitted.conformal)

    def write(self, result: Result, execution: Execution, *, draws: bool) -> None:
        """Write the results, the metrics last of all: a folder with them is finished; `draws` adds forecasts."""
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
            lengths = chosen_lengths(result.fit)  # by member of an ensemble; nothing of what is not trained
            metrics["refit"] = {"rows": "all", "steps": lengths.get("") if lengths.keys() <= {""} else lengths}
        if result.tables and draws:
            self._draw(result, execution)
        self._check_held()
        write_checksums(self.folder.path, self.folder.all_checkpoints())
        self.folder.write_json(self.folder.metrics, metrics)

    def _draw(self, result: Result, execution: Execution) -> None:
        from tsattn.figures import plot_test_forecasts
        from tsattn.figures.plain_names import forecast_title, model_words

        task, data = result.fitted.predictor.task, result.data
        predictor = with_levels(result.fitted, data.contents[0].ids).predictor
        title = forecast_title(task, task.prediction_length, model_words(result.fitted.predictor))
        windows = 2 if task.num_channels == 1 else 1
        figure = plot_test_forecasts(predictor, data, title, predictor.on(execution), windows)
        write_whole(self.folder.figure, partial(figure.savefig, format="png", dpi=130))


@user_errors()
def reopened(
    experiment: Experiment, checkpoint: str | Path, stage: str, *, input: str | None = None, future: str | None = None
) -> tuple[FittedPredictor, ForecastDataModule, Execution]:
    """Open a finished run: its fitted predictor, the data of its experiment, set up for it, and where to compute.

    The data are set up for a stage, ``validate``, ``test`` or ``predict``; they are those of the experiment, or of the
    file `input`, with future covariates from the file `future`.
    """
    data, trainer = experiment.made()
    accelerator = trainer["accelerator"]
    if isinstance(accelerator, str) and accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("accelerator %s is not on this machine; auto takes its place", accelerator)
        accelerator = "auto"
    # one device of this machine, wherever the training was
    here = {**trainer, "accelerator": accelerator, "strategy": "auto", "devices": 1, "num_nodes": 1}
    execution = Execution(TrainerOptions.of(here, is_new=False))
    fitted = load_predictor(checkpoint, experiment.model["backbone"], experiment.output)
    data.task, data.scaler = fitted.predictor.task, fitted.scaler
    if input is not None:
        data.forecast_from(input)
    if future is not None:
        if not isinstance(data, FrameDataModule):
            raise UserError(f"{type(data).__name__} has no covariates, so that a future of them means nothing to it")
        data.future = Path(future)
    data.prepare_data()
    data.setup(stage)
    return fitted, data, execution


def fitted_in(run: RunFolder, checkpoint: str | Path | None = None) -> FittedPredictor:
    """Load the predictor in the folder of a run, from a checkpoint or, by default, the one that forecasts."""
    if not run.config.exists():
        raise UserError(f"{run.path} is not the folder of a run: it has no {run.config.name}")
    model = read_config(run.config).get("model", {})
    return load_predictor(checkpoint or run.forecasting_checkpoint(), model.get("backbone", DEFAULT_BACKBONE))
