"""The result of a run, and the files that keep it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.backbones.task_network import load_checkpoint
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments.experiment import Experiment, fingerprint
from tsattn.experiments.measuring import calibrated_on
from tsattn.experiments.run_folder import RunFolder, versions
from tsattn.ops.native.record import kernels_in_use
from tsattn.predictors.fitted import FittedPredictor, calibrate_checkpoint, save_predictor
from tsattn.saved_folders import write_text, write_whole
from tsattn.training import Execution
from tsattn.training.execution import is_first_process
from tsattn.training.train import chosen_lengths

__all__ = ["Recording", "Result"]


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
        before = self.folder.noted("fingerprint") if self.goes_on else None
        if before is not None and before != found:
            raise UserError(
                f"the data are not those that the run {self.folder.path} was begun with: give it the same ones again, "
                "or start a new run"
            )
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
        if self._is_open:
            return
        if is_first_process() and self.goes_on:
            self._go_on(steps, step)
            self.say(f"going on with {self.folder.path}{after}")
        elif is_first_process():
            self.folder = self.folder.create()
            self._is_open = True  # from here on the folder is that of this process
            known = {**versions(self.command, device), **self.notes, **more}
            self.folder.write_json(self.folder.versions, known)
            write_text(self.folder.config, self.experiment.to_yaml())  # last: with it the run can be resumed
            self.say(f"run folder: {self.folder.path}")
        self._is_open = True

    def _go_on(self, steps: int | None, step: int) -> None:
        """Make a finished run, or one with another end now, one whose results are to come."""
        run = self.folder
        is_longer = Experiment.read(run.config).trainer != self.experiment.trainer
        if is_longer and steps is not None and steps <= step:
            raise UserError(
                f"the run {run.path} is trained for {step:,} steps already, and {steps:,} are asked for in "
                "all: --trainer.max_steps must be above that"
            )
        if is_longer or run.metrics.exists():
            run.extend(self.experiment.to_yaml(), step, self.command)
        run.begin()
        if self.notes.get("refit"):
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
                self.folder.remove()
                raise
            raise KeyboardInterrupt(self._how_to_resume(can_resume)) from stop
        except Exception as error:
            if self._is_open and is_first_process():
                if not self.folder.is_held:
                    raise self._removed() from error
                explains = isinstance(error, UserError) and self.folder.has_curve
                if not (self.goes_on or explains or self.folder.all_checkpoints()):
                    self.folder.remove()
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

    def _removed(self) -> UserError:
        return UserError(f"the run folder {self.folder.path} was removed while the run went on; start the run again")

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
            "test": {name: _finite(table.scores()) for name, table in result.tables.items()},
            **result.fit,
            "seed": result.experiment.seed,
        }
        if result.refitted is not None:
            save_predictor(self.folder.refit, result.refitted, global_step=result.fit.get("best_step", 0))
            lengths = chosen_lengths(result.fit)  # by member of an ensemble; nothing of what is not trained
            metrics["refit"] = {"rows": "all", "steps": lengths.get("") if lengths.keys() <= {""} else lengths}
        if result.tables and draws:
            self._draw(result, execution)
        if not self.folder.is_held:
            raise self._removed()
        self.folder.seal()
        self.folder.write_json(self.folder.metrics, metrics)

    def _draw(self, result: Result, execution: Execution) -> None:
        from tsattn.figures import plot_test_forecasts
        from tsattn.figures.plain_names import forecast_title, model_words

        predictor, task = calibrated_on(result.fitted, result.data), result.fitted.predictor.task
        title = forecast_title(task, task.prediction_length, model_words(result.fitted.predictor))
        windows = 2 if task.num_channels == 1 else 1
        figure = plot_test_forecasts(predictor, result.data, title, predictor.on(execution), windows)
        write_whole(self.folder.figure, partial(figure.savefig, format="png", dpi=130))


def _finite(scores: Mapping[str, float]) -> dict[str, float | None]:
    """None where a score is not defined: JSON has no word for that."""
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}
