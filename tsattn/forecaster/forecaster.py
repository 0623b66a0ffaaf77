"""Fit, predict, cross-validate, evaluate, plot, save: forecasting with frames."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tsattn.backbones import complete_backbone
from tsattn.checks import folder_path, has_accelerator, levels, positive_number, share, whole_number
from tsattn.data import Panel, PanelDataModule, panel_from_frame
from tsattn.data.columns import column_name, column_names, match_ids
from tsattn.data.datamodule import check_sizes, check_val_windows
from tsattn.data.grid import normalise_frequency
from tsattn.data.quiet import quiet
from tsattn.data.tables import opened
from tsattn.data.text_format import TextFormat
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError
from tsattn.figures.forecasts import plot_forecast
from tsattn.forecaster import model_folder
from tsattn.forecaster.frames import future_frame
from tsattn.forecaster.model_folder import describe
from tsattn.forecaster.scores import score_panel, seasonal_errors
from tsattn.task import Task
from tsattn.training.fitting import TrainingOptions, fit_to_panel
from tsattn.training.module import ForecastingModule
from tsattn.training.random_state import own_random_state
from tsattn.training.rolling import beyond_training, forecast_batches

__all__ = ["Forecaster", "load"]

logger = logging.getLogger("tsattn")


class Forecaster:
    """Forecasts the series of a frame; the same models and code as the command line.

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
        backbone: kind of backbone, or its description ``{kind: patchtst, d_model: 128, ...}``.
        attention: kind of attention, its description, or a list of these, one a layer; None keeps the backbone's.
        context_length: past steps that the model sees, L.
        prediction_length: steps that it is trained to forecast, T.
        quantiles: levels to forecast, rising, with 0.5 among them; none, or None, for a point forecast.
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
        learning_rate: peak learning rate of AdamW.
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

    Attributes:
        model: the trained model; None before `fit`.
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
        quantiles: Sequence[float] | None = (0.1, 0.5, 0.9),
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
        learning_rate: float = 1e-3,
        max_steps: int | None = None,
        batch_size: int = 32,
        eval_batch_size: int = 256,
        val_windows: int | Literal["auto", "all"] = "auto",
        seed: int = 1,
        accelerator: str = "auto",
        progress: bool = False,
    ) -> None:
        self.arguments: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        self.columns: dict[str, Any] = {
            "id_column": column_name(id_column, "id_column"),
            "time_column": column_name(time_column, "time_column"),
            "target": None if target is None else column_names(target, "target"),
            "past_covariates": column_names(past_covariates, "past_covariates"),
            "future_covariates": column_names(future_covariates, "future_covariates"),
            "static": column_names(static, "static"),
        }
        # plain data, as all that is saved
        self.arguments |= self.columns
        for name in ("context_length", "prediction_length", "batch_size", "eval_batch_size"):
            self.arguments[name] = whole_number(name, self.arguments[name])
        if max_steps is not None:
            self.arguments["max_steps"] = whole_number("max_steps", max_steps)
        self.arguments["seed"] = whole_number("seed", seed, least=0, most=2**63 - 1)
        self.arguments["learning_rate"] = positive_number("learning_rate", learning_rate)
        self.arguments["quantiles"] = levels(quantiles)
        if frequency is not None:
            normalise_frequency(frequency)
        self.arguments["max_filled"] = share("max_filled", max_filled)
        self.text = TextFormat(separator, decimal, encoding, date_format)
        self.description = describe(backbone, attention)
        names = ("max_steps", "batch_size", "seed", "accelerator", "progress")
        self.options = TrainingOptions(**{name: self.arguments[name] for name in names})
        self.model: ForecastingModule | None = None
        self.history: Panel | None = None
        self.seasonal_error: NDArray[np.float64] | None = None
        # a mistake shows before any data is read
        check_sizes(scaling)
        check_val_windows(val_windows)
        self._new_model()

    def __repr__(self) -> str:
        description = complete_backbone(self.description)
        attention = description.get("attention", [])
        layers = attention if isinstance(attention, list) else [attention]
        kinds = "/".join(dict.fromkeys(layer["kind"] for layer in layers))
        quantiles = self.arguments["quantiles"]
        fitted = "not fitted" if self.model is None else "fitted"
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
        """What the model was trained for.

        Raises:
            UserError: before `fit`.
        """
        if self.model is None or self.model.task is None:
            raise UserError("the forecaster is not fitted yet: call fit(frame), or load a saved one")
        return self.model.task

    def fit(self, frame: Any) -> Forecaster:
        """Train on all series of a frame; the last tenth of each chooses the best weights.

        Returns:
            the forecaster itself.

        Raises:
            UserError: for a frame that cannot be used, naming the series and row, or series that are all too short.
        """
        panel = self._read(frame, "the frame")
        self.model = self._trained(panel)
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
        task = self.task
        steps = task.prediction_length if horizon is None else whole_number("horizon", horizon)
        with quiet(frame is None):
            panel = self._history(future) if frame is None else self._read(frame, "the frame", future, task)
            frames = self._frames(panel, steps)
        if (told := beyond_training(task, steps)) is not None:
            warnings.warn(told, stacklevel=3)
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
        panel = self._read(frame, "the frame")
        ends = panel.lengths[:, None] - T - step * np.arange(windows - 1, -1, -1)  # (S, windows)
        if (ends[:, 0] < 1).all():
            raise UserError(
                f"no series is long enough for {windows} windows: the longest has {panel.lengths.max()} rows, but "
                f"{T + step * (windows - 1) + 1} are needed"
            )
        parts, model = [], None
        for window in range(windows):
            numbers = np.flatnonzero(ends[:, window] >= 1)
            if len(numbers) < len(panel):
                counts = window + 1, windows, len(numbers), len(panel)
                logger.warning("window %d of %d has %d of %d series: the others are too short", *counts)
            whole = panel.take(numbers)
            seen = whole.until(ends[numbers, window])
            with quiet(window > 0):  # the first has the shortest series
                if model is None or refit:
                    model = self._trained(seen)
                frames = self._frames(seen, T, model)
            parts.append(_beside_truth(frames, whole, seen))
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
        task = self.task
        step = whole_number("step", step)
        panel = self._read(frame, "the frame", task=task)
        if self.history is None:
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=2,
            )
        panel, trained, fitted = self._behind_history(panel)
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
        assert self.model is not None
        name = self.model.name
        scale = seasonal_errors(panel, np.array([rows.start for rows in origins]), task.season_length)
        scale = np.array([fitted.get(name, own) for name, own in zip(panel.ids, scale, strict=True)])
        return score_panel(self.model, name, panel, origins, scale, self.arguments["eval_batch_size"], self._device)

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
            panel = self._history() if history is None else self._read(history, "the history", task=self.task)
        return plot_forecast(forecast, panel, self.task, ids)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors) and everything else that is needed (JSON) into a new folder.

        The end of each series comes along, so that `predict` works where the folder is loaded. The model of a run has
        none: it needs a frame there, too.

        Raises:
            UserError: if the folder exists already and may not be overwritten, or cannot be written.
        """
        path, task = folder_path(folder), self.task
        assert self.model is not None
        history = None if self.history is None else self.history.last_rows(task.context_length)
        saved = model_folder.SavedModel(self.arguments, self.model, history, self.seasonal_error)
        model_folder.write(path, saved, overwrite=overwrite)

    def _frames(self, panel: Panel, horizon: int, model: ForecastingModule | None = None) -> Iterator[pd.DataFrame]:
        """Frames of forecasts, made when they are asked for; whether the panel will do is checked at once."""
        model = self.model if model is None else model
        assert model is not None
        assert model.task is not None
        forecasts = forecast_batches(model, panel, horizon, self.arguments["eval_batch_size"], self._device)

        def frames(task: Task) -> Iterator[pd.DataFrame]:
            first = 0
            for forecast in forecasts:
                yield future_frame([forecast], task, panel, first)
                first += len(forecast)

        return frames(model.task)

    def _trained(self, panel: Panel) -> ForecastingModule:
        data = self._data(panel)
        with own_random_state(self.options.seed):  # of the weights
            model = self._new_model()
            fit_to_panel(model, data, self.options)
        return model

    def _new_model(self) -> ForecastingModule:
        return ForecastingModule(
            self.description,
            learning_rate=self.arguments["learning_rate"],
            quantiles=self.arguments["quantiles"],
        )

    def _data(self, panel: Panel) -> PanelDataModule:
        names = ("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows")
        return PanelDataModule(panel, **{name: self.arguments[name] for name in names})

    def _read(self, frame: Any, source: str, future: Any = None, task: Task | None = None) -> Panel:
        """A frame as a panel; as the model needs it, with its task."""
        named = self.columns["id_column"], self.columns["time_column"]
        table, source, row_of = opened(frame, source, *named, self.text)
        options: dict[str, Any] = {**self.columns, "source": source, "row_of": row_of, "future": future}
        options |= {"text": self.text, "max_filled": self.arguments["max_filled"]}
        if task is None:
            return panel_from_frame(table, **options, frequency=self.arguments["frequency"])
        if set(task.channels) <= set(map(str, table.columns)):
            options["target"] = task.channels  # of other columns none is a target
        zone_of = None if self.history is None else self.history.time
        return panel_from_frame(table, **options, frequency=task.frequency, zone_of=zone_of).for_task(task, source)

    def _history(self, future: Any = None) -> Panel:
        """The series that were fitted, with a future of their covariates if one is given."""
        task = self.task
        if self.history is None:
            raise UserError("this model came without the series that it was fitted on: give a frame")
        if future is None:
            return self.history
        return self._reread(self.history.last_rows(task.context_length), future=future)

    def _reread(self, panel: Panel, *frames: pd.DataFrame, future: Any = None) -> Panel:
        """A panel with rows or a future added to its table."""
        with quiet():
            return panel_from_frame(
                pd.concat([*frames, panel.to_frame()], ignore_index=True),
                id_column=None if panel.is_wide else panel.id_name,
                time_column=panel.time_name,
                target=panel.channels,
                past_covariates=panel.past_names,
                future_covariates=panel.future_names,
                static=panel.static_names,
                frequency=panel.frequency,
                max_filled=1.0,  # what comes much later is still of the same series
                text=self.text,  # of the future
                source="the series",
                future=future,
            ).for_task(self.task, "the series")

    def _behind_history(self, panel: Panel) -> tuple[Panel, NDArray[np.int64], dict[Any, NDArray[np.float64]]]:
        """Series with the fitted rows before them, how many rows of each were fitted, and their seasonal errors."""
        trained = np.zeros(len(panel), np.int64)
        if self.history is None or self.seasonal_error is None:
            return panel, trained, {}
        # named as the series are
        given = {fitted: name for name, fitted in match_ids(panel.ids, self.history.ids).items()}
        ids = tuple(given.get(name, name) for name in self.history.ids)
        history = replace(self.history, ids=ids, id_name=panel.id_name, time_name=panel.time_name)
        last = dict(zip(history.ids, history.time[history.starts[1:] - 1], strict=True))
        first = dict(zip(panel.ids, panel.time[panel.starts[:-1]], strict=True))
        frame = history.to_frame()
        owners = pd.Series(panel.ids * len(frame)) if panel.is_wide else frame[panel.id_name]
        before = frame[(frame[panel.time_name] < owners.map(first)).to_numpy()]
        if len(before):
            panel = self._reread(panel, before)
        for number, name in enumerate(panel.ids):
            if name in last:
                trained[number] = panel.time_of(number).searchsorted(last[name], side="right")
        return panel, trained, dict(zip(history.ids, self.seasonal_error, strict=True))

    @property
    def _device(self) -> torch.device:
        wanted = self.options.accelerator
        for name, is_there in (("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)):
            if wanted in ("auto", "gpu", name) and is_there():
                return torch.device(name)
        return torch.device("cpu")


def load(folder: str | Path) -> Forecaster:
    """A forecaster that `Forecaster.save` has written, on any machine.

    The run folder of a `fit` on the command line is taken too: such a model knows no series, so that `predict` and
    `evaluate` need a frame, and `evaluate` cannot tell which rows were trained on. An accelerator that is not on this
    machine becomes ``auto``, which is logged.

    Raises:
        UserError: for a folder that is not there, is no saved model, is damaged, or is of a newer version.
    """
    path = folder_path(folder)
    saved = model_folder.read(path)
    arguments = dict(saved.arguments)
    accelerator = arguments.get("accelerator", "auto")
    if not has_accelerator(accelerator):
        logger.warning("%s: accelerator %s is not on this machine; auto takes its place", path, accelerator)
        arguments["accelerator"] = "auto"
    try:
        forecaster = Forecaster(**arguments)
    except TypeError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    forecaster.model = saved.model
    forecaster.history = saved.history
    forecaster.seasonal_error = saved.seasonal_error
    return forecaster


def _beside_truth(frames: Iterator[pd.DataFrame], whole: Panel, seen: Panel) -> pd.DataFrame:
    """Forecasts from the end of the rows that were seen, the cutoffs, and what came."""
    frame = pd.concat([*frames], ignore_index=True)
    steps = len(frame) // len(whole)  # of one series, all its channels
    T = steps // len(whole.channels)
    rows = (whole.starts[:-1] + seen.lengths)[:, None] + np.arange(T)
    truth = whole.values[rows].transpose(0, 2, 1)  # (S, C, T), as forecasts are laid out
    frame.insert(2, "cutoff", seen.time[seen.starts[1:] - 1].repeat(steps))
    return frame.assign(y=truth.ravel())
