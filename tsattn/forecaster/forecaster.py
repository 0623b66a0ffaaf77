"""Fit, predict, cross-validate, evaluate, plot, save: forecasting with frames."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tsattn.checks import (
    check_accelerator,
    folder_path,
    has_accelerator,
    levels,
    positive_number,
    whole_number,
)
from tsattn.data import Panel, PanelDataModule
from tsattn.data.quiet import quiet
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError
from tsattn.evaluation.seasonal import seasonal_errors
from tsattn.experiments import Experiment, Hooks, Result, run
from tsattn.figures import plot_forecast
from tsattn.forecaster import model_folder
from tsattn.forecaster.descriptions_given import described
from tsattn.forecaster.frames import beside_truth, future_frame
from tsattn.forecaster.from_runs import is_run, read_run, run_arguments
from tsattn.forecaster.reading import FrameReader, after_history, with_future
from tsattn.forecaster.scores import score_panel
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.long_horizons import beyond_training, forecast_batches
from tsattn.scaler import Scaler
from tsattn.task import Output, Task
from tsattn.training import Execution, TrainerOptions
from tsattn.training.progress import StepsBar

__all__ = ["Forecaster", "forecaster_of", "load"]

logger = logging.getLogger("tsattn")

_QUANTILES = (0.1, 0.5, 0.9)
_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_SIZES = ("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows")
_MODEL = (
    *("learning_rate", "weight_decay", "warmup_steps", "loss", "mup", "activation_checkpointing", "compile_mode"),
    "selection",
)


class Forecaster:
    """Forecasts the series of a frame: `tsattn.run` on what is in memory, as the command line does it on files.

    A frame is long (a row a series and time stamp: ``unique_id, ds, y``, ``item_id, timestamp, target``, or columns
    named here) or wide (a row a time stamp, a column a series), of pandas, polars or pyarrow. A pandas Series is a wide
    frame of one column, and the path of a CSV or Parquet file is taken wherever a frame is. Missing values and gaps in
    time are masked: they are neither scored nor learnt from. Series may have different lengths. They are sorted by
    their ids, so that the order of rows decides nothing, and forecasts come back in that order, with the columns of ids
    and time stamps called as in the frame that they start from: ``unique_id`` for the columns of a wide frame, ``ds``
    for an index without a name.

    Time is time stamps, dates, periods (read as their first time stamps), text, or whole numbers that count steps (an
    index of them, too, beside columns of numbers).

    What is done to a frame beyond that (rows sorted, columns not used, short series) is logged to the logger
    ``tsattn``, once for each frame that is given. Frames that come after `fit` may have another time zone than what was
    fitted: they are converted to that one. Their ids may be text where those of `fit` were numbers, as files have it.

    Args:
        backbone: what forecasts: kind of predictor, or its description ``{kind: patchtst, d_model: 128, ...}``. That
            is a network, ``ridge``, ``seasonal_naive``, ``persistence`` or an ``ensemble``.
        attention: kind of attention, its description, or a list of these, one a layer; None keeps the backbone's.
        context_length: past steps that the model sees, L.
        prediction_length: steps that it is trained to forecast, T.
        quantiles: levels to forecast, rising, with 0.5 among them; none, or None, for a point forecast. ``auto`` is
            0.1, 0.5 and 0.9 where the predictor forecasts quantiles, else none.
        id_column: column of series ids of a long frame; found by itself if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the column or columns to forecast; found by itself if named ``y`` or ``target`` in a long frame, all
            columns without another role in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency of the data, or 1, 2, ... where time counts steps; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing, where time stamps are missing.
        date_format: how dates in text are written, such as ``%d/%m/%y``; None: ISO 8601, or the one format that fits
            all of them.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        scaling: ``series``, each series by its own mean and standard deviation; ``global``, all by one.
        train_fraction: share of the rows of each series for training, and so on for the other five: a split as
            `FrameDataModule` has it. By default the last tenth of each series is for validation, and nothing for
            testing.
        val_fraction: see `FrameDataModule`.
        val_rows: see `FrameDataModule`.
        test_rows: see `FrameDataModule`; rows for testing are never trained on.
        val_from: see `FrameDataModule`.
        test_from: see `FrameDataModule`.
        learning_rate: peak learning rate of AdamW.
        weight_decay: and the next: see `ForecastingModule`.
        warmup_steps: see `ForecastingModule`.
        loss: see `ForecastingModule`.
        mup: see `ForecastingModule`.
        activation_checkpointing: see `ForecastingModule`.
        compile_mode: see `ForecastingModule`.
        selection: the validation error by which the weights are chosen; by default that of what is trained.
        max_steps: optimizer steps. By default about 20 epochs, but 400 steps at least and 1000 at most, and fewer where
            the validation error no longer falls.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a batch of forecasts: what bounds the memory of `predict`.
        val_windows: validation windows that are scored each time, to choose the best weights: ``all``, a number of
            them, or ``auto``, as many as take less than a quarter of the time of training. Fewer than all are spread
            over all series and their time, the same ones each time.
        seed: of weights, order and dropout.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        progress: whether training shows a bar.
        trainer: other arguments of Lightning's Trainer, as the command line has them after ``--trainer.``.

    Attributes:
        experiment: what `fit` runs, complete.
        fitted: the predictor and its scaler; None before `fit`.
        result: of the last `fit`; None before, and for a model that was loaded.
        history: the series that were fitted (their ends alone, once saved and loaded); None before `fit`, and for the
            model of a run.
        seasonal_error: `(S, C)` of these series, what MASE divides by; None where there is no history.

    Raises:
        UserError: for an argument out of its range.
    """

    def __init__(
        self,
        backbone: Description = DEFAULT_BACKBONE,
        attention: Description | Sequence[Description] | None = None,
        *,
        context_length: int = 336,
        prediction_length: int = 96,
        quantiles: Sequence[float] | Literal["auto"] | None = "auto",
        id_column: str | None = None,
        time_column: str | None = None,
        target: str | Sequence[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static: Sequence[str] = (),
        frequency: str | int | None = None,
        max_filled: float = 0.5,
        date_format: str | None = None,
        separator: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
        scaling: str = "series",
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int | None = None,
        loss: str | None = None,
        mup: bool = False,
        activation_checkpointing: bool = False,
        compile_mode: str | None = None,
        selection: str | None = None,
        max_steps: int | None = None,
        batch_size: int = 32,
        eval_batch_size: int = 256,
        val_windows: int | Literal["auto", "all"] = "auto",
        seed: int = 1,
        accelerator: str = "auto",
        progress: bool = False,
        trainer: Mapping[str, Any] | None = None,
    ) -> None:
        self.arguments: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        given = self.arguments
        self.reader = FrameReader.of(given)
        given |= self.reader.columns  # plain data, as all that is saved
        for name in ("context_length", "prediction_length", "batch_size", "eval_batch_size"):
            given[name] = whole_number(name, given[name])
        if max_steps is not None:
            given["max_steps"] = whole_number("max_steps", max_steps)
        given["seed"] = whole_number("seed", seed, least=0, most=2**32 - 1)
        given["learning_rate"] = positive_number("learning_rate", learning_rate)
        check_accelerator(accelerator)
        self.predictor = build_predictor(described(backbone, attention))
        if quantiles == "auto":
            quantiles = _QUANTILES if self.predictor.emits_quantiles else ()
        given["quantiles"] = levels(quantiles)
        given["trainer"] = dict(trainer or {})
        self.experiment = self._experiment()
        self.fitted: FittedPredictor | None = None
        self.result: Result | None = None
        self.history: Panel | None = None
        self.seasonal_error: NDArray[np.float64] | None = None
        # a mistake shows before any data is read
        self.experiment.made()

    def __repr__(self) -> str:
        description = self.predictor.description
        attention = description.get("attention", [])
        layers = attention if isinstance(attention, list) else [attention]
        kinds = "/".join(dict.fromkeys(layer["kind"] for layer in layers))
        quantiles = self.arguments["quantiles"]
        fitted = "not fitted" if self.fitted is None else "fitted"
        if self.history is not None:
            fitted += f" on {len(self.history.channels if self.history.is_wide else self.history.ids)} series"
        parts = (
            description["kind"],
            *([f"attention {kinds}"] if kinds else []),
            f"{self.arguments['context_length']} -> {self.arguments['prediction_length']} steps",
            f"quantiles {' '.join(map(str, quantiles))}" if quantiles else "point forecast",
            fitted,
        )
        return f"Forecaster({', '.join(parts)})"

    @property
    def task(self) -> Task:
        """What the predictor was fitted for.

        Raises:
            UserError: before `fit`.
        """
        task = self._known().predictor.task
        assert task is not None
        return task

    @property
    def scaler(self) -> Scaler:
        """How the series that were fitted are scaled.

        Raises:
            UserError: before `fit`.
        """
        return self._known().scaler

    def fit(self, frame: Any, *, folder: str | Path | None = None, refit: bool = False) -> Forecaster:
        """Fit to all series of a frame; the rows for validation choose the best weights.

        Args:
            frame: the series.
            folder: of the run, for everything that is needed to go on or test again; it must not exist yet. None writes
                no files.
            refit: whether to fit once more, to all rows of the frame, at the length that validation chose.

        Returns:
            the forecaster itself.

        Raises:
            UserError: for a frame that cannot be used, naming the series and row, or series that are all too short.
        """
        panel = self.reader.read(frame, "the frame")
        where = None if folder is None else folder_path(folder)
        self.result = self._run(panel, where, refit)
        self.fitted = self.result.refitted or self.result.fitted
        self.history = panel
        self.seasonal_error = seasonal_errors(panel, panel.lengths, self.task.season_length)
        return self

    def predict(self, frame: Any = None, *, horizon: int | None = None, future: Any = None) -> pd.DataFrame:
        """Forecast what comes after the end of each series.

        A horizon longer than `prediction_length` is rolled forward: the forecast is fed back as context, with a
        warning; a shorter one is cut.

        The forecast starts behind the last row of each series, be its target missing or not. With future covariates it
        starts behind the last row that has a target: the rows behind that are the future of the covariates.

        Args:
            frame: the history to forecast from; by default the series that were fitted. Series may be new ones.
            horizon: steps to forecast; `prediction_length` by default.
            future: ids, time stamps and future covariates behind the end of each series, if the frame has not got them
                in rows behind the last target. Series that are not in the frame are left out, which is logged.

        Returns:
            a row a series and step, sorted by ids: ids and time stamps (columns named as in the frame; ``unique_id``
            for the columns of a wide one, which stay in their order, ``ds`` for time stamps without a name),
            ``predictions`` in original units, and a column for each quantile, named after its level.

        Raises:
            UserError: for a frame that cannot be used, or future covariates that are not given or stop early.
        """
        return pd.concat([*self._predicted(frame, horizon, future)], ignore_index=True)

    def predict_batches(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None
    ) -> Iterator[pd.DataFrame]:
        """The same as `predict`, `eval_batch_size` series at a time, where not even the forecasts fit into memory."""
        return self._predicted(frame, horizon, future)

    def _predicted(self, frame: Any, horizon: int | None, future: Any) -> Iterator[pd.DataFrame]:
        T: int = self.arguments["prediction_length"]
        steps = T if horizon is None else whole_number("horizon", horizon)
        with quiet(frame is None):
            panel, fitted = self._series(future) if frame is None else self._read(frame, "the frame", future)
            frames = self._frames(panel, steps, fitted)
        assert fitted.predictor.task is not None
        if (warning := beyond_training(fitted.predictor.task, steps)) is not None:
            warnings.warn(warning, stacklevel=3)
        return frames

    def cross_validate(
        self, frame: Any, windows: int = 5, *, step: int | None = None, refit: bool = False
    ) -> pd.DataFrame:
        """Forecasts from rolling origins beside what came: no model sees a row of a series behind its cutoff.

        The last cutoff of each series is `prediction_length` rows before its end. The forecaster itself is left as it
        is: the models are trained here. A series that is too short for the first cutoff is new to a model that is not
        trained anew.

        Args:
            frame: the series.
            windows: origins of each series.
            step: rows between origins; `prediction_length` by default.
            refit: train anew at each origin, on all rows before it; by default one model is trained on the rows before
                the first origin and forecasts from all.

        Returns:
            the columns of `predict`, and ``cutoff`` (the last time stamp that was seen) and ``y`` (what came, NaN where
            it is missing).

        Raises:
            UserError: if no series is long enough.
        """
        T = self.arguments["prediction_length"]
        windows = whole_number("windows", windows)
        step = T if step is None else whole_number("step", step)
        panel = self.reader.read(frame, "the frame")
        ends = panel.lengths[:, None] - T - step * np.arange(windows - 1, -1, -1)  # (S, windows)
        if (ends[:, 0] < 1).all():
            raise UserError(
                f"no series is long enough for {windows} windows: the longest has {panel.lengths.max()} rows, but "
                f"{T + step * (windows - 1) + 1} are needed"
            )
        parts, fitted = [], None
        for window in range(windows):
            numbers = np.flatnonzero(ends[:, window] >= 1)
            if len(numbers) < len(panel):
                counts = window + 1, windows, len(numbers), len(panel)
                logger.warning("window %d of %d has %d of %d series: the others are too short", *counts)
            whole = panel.take(numbers)
            seen = whole.until(ends[numbers, window])
            with quiet(window > 0):  # the first has the shortest series
                if fitted is None or refit:
                    fitted = self._fitted_to(seen)
                frames = self._frames(seen, T, fitted)
            parts.append(beside_truth(frames, whole, seen))
        return pd.concat(parts, ignore_index=True)

    def evaluate(self, frame: Any, *, step: int = 1) -> pd.DataFrame:
        """All metrics on a frame, beside the seasonal naive forecast and persistence on the same windows.

        Rows that the model was trained on are context, never scored: of a series that was fitted, only horizons behind
        its last fitted row count, and a frame that goes on where that ended needs no history of its own. The first
        `context_length` rows of other series are context. The model of a run does not know which rows it was trained
        on, so that rows of the frame may be among them: it warns of that.

        WQL and CRPS of the two that forecast points are those of a forecast whose quantiles are all that point: for
        levels that lie evenly around the median their WAPE and MAE. Their coverage is NaN.

        Args:
            frame: the series.
            step: rows between the windows; 1 scores every window.

        Returns:
            a row a forecaster, see `tsattn.forecaster.scores.score_panel`.

        Raises:
            UserError: if there is nothing to score.
        """
        step = whole_number("step", step)
        panel, model = self._read(frame, "the frame")
        task = model.predictor.task
        assert task is not None
        if self.fitted is not None and self.history is None:
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=2,
            )
        history = None if self.history is None or self.seasonal_error is None else self.history
        panel, trained, numbers = after_history(panel, history, self._trained_rows(), model, self.reader)
        fitted = {} if self.seasonal_error is None else dict(zip(numbers, self.seasonal_error, strict=True))
        L, T = task.context_length, task.prediction_length
        origins = []
        for rows, known in zip(panel.lengths.tolist(), trained.tolist(), strict=True):
            first = known if known else max(1, min(L, rows - T))
            origins.append(range(first, max(first, rows - T + 1), step))
        lacking = sum(not rows for rows in origins)
        if lacking == len(origins):
            raise UserError(
                f"there is nothing to score: no series has {T} rows (prediction_length) behind those that were fitted"
            )
        if lacking:
            logger.warning("%d of %d series have no window to score", lacking, len(origins))
        scale = seasonal_errors(panel, np.array([rows.start for rows in origins]), task.season_length)
        scale = np.array([fitted.get(name, own) for name, own in zip(panel.ids, scale, strict=True)])
        return score_panel(model, panel, origins, scale, self.arguments["eval_batch_size"], self._execution)

    def plot(self, forecast: pd.DataFrame, ids: Any = None, *, history: Any = None) -> Figure:
        """Forecasts with their intervals, behind the end of what was observed before.

        Args:
            forecast: what `predict` gave, or `cross_validate`: then one forecast from each cutoff is drawn.
            ids: the series to draw (of a wide frame, its columns), or a single one; by default the first six.
            history: the frame that was forecast from, by default the series that were fitted; of rows over the horizon,
                what came is drawn, too.

        Raises:
            UserError: for an id without a forecast or a history, or a frame that is no forecast.
        """
        with quiet():
            panel, fitted = self._series() if history is None else self._read(history, "the history")
        task, output = fitted.predictor.task, fitted.predictor.output
        assert task is not None
        assert output is not None
        return plot_forecast(forecast, panel, task, output, ids)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors) and everything else that is needed (JSON) into a new folder.

        The end of each series comes along, so that `predict` works where the folder is loaded. The model of a run has
        none: it needs a frame there, too.

        Raises:
            UserError: if the folder exists already and may not be overwritten, or cannot be written.
        """
        path, fitted = folder_path(folder), self._known()
        history = None if self.history is None else self.history.last_rows(fitted.predictor.context_length)
        saved = model_folder.SavedModel(self.arguments, fitted, history, self.seasonal_error)
        model_folder.write(path, saved, overwrite=overwrite)

    def _experiment(self) -> Experiment:
        given = self.arguments
        options = {"max_steps": -1 if given["max_steps"] is None else given["max_steps"]}
        sizes = {name: given[name] for name in (*_SIZES, *_SPLIT)}
        model = {name: given[name] for name in _MODEL}
        return Experiment.of(
            {
                "seed_everything": given["seed"],
                "data": {"class_path": "PanelDataModule", "init_args": sizes},
                "model": {"backbone": self.predictor.description, "quantiles": list(given["quantiles"]), **model},
                "trainer": {**options, "accelerator": given["accelerator"], **given["trainer"]},
            }
        )

    def _run(self, panel: Panel, folder: Path | None = None, refit: bool = False) -> Result:
        data = self._data(panel)
        bar = StepsBar(f"val_{self.experiment.selection}") if self.arguments["progress"] else None
        return run(self.experiment, folder, data=data, test="test" in data.parts, refit=refit, hooks=Hooks(bar=bar))

    def _fitted_to(self, panel: Panel) -> FittedPredictor:
        """A predictor of these series, whatever was fitted before."""
        return self._run(panel).fitted if self.predictor.needs_fit else self._described(panel)

    def _described(self, panel: Panel) -> FittedPredictor:
        """The predictor for these series, where it needs no fit."""
        task, scaler = self._data(panel).describe()
        predictor = build_predictor(self.predictor.description)
        predictor.build(task, Output(tuple(self.arguments["quantiles"])))
        return FittedPredictor(predictor.eval(), scaler)

    def _data(self, panel: Panel) -> PanelDataModule:
        data, _ = self.experiment.made()
        assert isinstance(data, PanelDataModule)
        data.give(panel)
        return data

    def _known(self) -> FittedPredictor:
        if self.fitted is None:
            raise UserError("the forecaster is not fitted yet: call fit(frame), or load a saved one")
        return self.fitted

    def _trained_rows(self) -> NDArray[np.int64] | None:
        """How many rows of each series that was fitted were trained on, validation among them."""
        if self.history is None:
            return None
        if self.result is None or self.result.refitted is not None:
            return self.history.lengths
        return np.array([split.val_end for split in self.result.data.splits])

    def _read(self, frame: Any, source: str, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """A frame as a panel for the predictor that forecasts it."""
        if self.fitted is None and not self.predictor.needs_fit:
            panel = self.reader.read(frame, source, future)
            return panel, self._described(panel)
        fitted = self._known()
        zone_of = None if self.history is None else self.history.time
        return self.reader.read_for(self.task, frame, source, future, zone_of), fitted

    def _series(self, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """The series that were fitted, with a future of their covariates if one is given."""
        if self.fitted is None and not self.predictor.needs_fit:
            raise UserError(f"{self.predictor.name} needs no fit, but it needs series to forecast: give a frame")
        fitted = self._known()
        if self.history is None:
            raise UserError("this model came without the series that it was fitted on: give a frame")
        if future is None:
            return self.history, fitted
        last = self.history.last_rows(fitted.predictor.context_length)
        return with_future(last, future, self.task, self.reader), fitted

    def _frames(self, panel: Panel, horizon: int, fitted: FittedPredictor) -> Iterator[pd.DataFrame]:
        """Frames of forecasts, made when they are asked for; whether the panel will do is checked at once."""
        predictor, size = fitted.predictor, self.arguments["eval_batch_size"]
        forecasts = forecast_batches(predictor, fitted.scaler, panel, horizon, size, self._execution)
        task, output = predictor.task, predictor.output
        assert task is not None
        assert output is not None

        def frames() -> Iterator[pd.DataFrame]:
            first = 0
            for forecast in forecasts:
                yield future_frame([forecast], task, output, panel, first)
                first += len(forecast)

        return frames()

    @property
    def _execution(self) -> Execution:
        return Execution(TrainerOptions.of(self.experiment.made()[1], is_new=False))


def load(folder: str | Path) -> Forecaster:
    """A forecaster that `Forecaster.save` has written, on any machine.

    The run folder of a `fit` on the command line is taken too: such a model knows no series, so that `predict` and
    `evaluate` need a frame, and `evaluate` cannot tell which rows were trained on. Of one that was fitted once more to
    all rows, that is loaded. An accelerator that is not on this machine becomes ``auto``, which is logged.

    Raises:
        UserError: for a folder that is not there, is no saved model, is damaged, or is of a newer version.
    """
    path = folder_path(folder)
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "is not there"
        raise UserError(f"{path} {what}; valid is a folder that a forecaster was saved to, or that of a run")
    saved = read_run(path) if is_run(path) else model_folder.read(path)
    arguments = dict(saved.arguments)
    accelerator = arguments.get("accelerator", "auto")
    if not has_accelerator(accelerator):
        logger.warning("%s: accelerator %s is not on this machine; auto takes its place", path, accelerator)
        arguments["accelerator"] = "auto"
    try:
        forecaster = Forecaster(**arguments)
    except TypeError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    forecaster.fitted = saved.fitted
    forecaster.history = saved.history
    forecaster.seasonal_error = saved.seasonal_error
    return forecaster


def forecaster_of(result: Result) -> Forecaster:
    """A forecaster of the predictor of a run, which knows the series that it was fitted to."""
    fitted = result.refitted or result.fitted
    arguments = run_arguments(fitted, result.experiment.data.get("init_args") or {})
    forecaster = Forecaster(**arguments)
    forecaster.fitted, forecaster.result, forecaster.history = fitted, result, result.data.panel
    if forecaster.history is not None:
        season = forecaster.task.season_length
        forecaster.seasonal_error = seasonal_errors(forecaster.history, forecaster.history.lengths, season)
    return forecaster
