"""Forecast data frames: fit, predict, cross-validate, evaluate, plot, save."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import pandas as pd
from pandas.tseries.offsets import BaseOffset

from tsattn.data.data_options import DataOptions
from tsattn.data.stamps import no_times_of
from tsattn.descriptions import Description
from tsattn.errors import UserError, did_you_mean, folder_path, one_of, quiet, shown, whole_number
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.frame_model import FrameModel
from tsattn.forecaster.frames import FrameKind, last_window, plain_forecast
from tsattn.forecaster.options import ForecasterOptions, TrainingOptions, where_it_went
from tsattn.predictors import DEFAULT, Predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.saved_folders import write_whole
from tsattn.scaler import Scaler
from tsattn.task import MEDIAN, Output, Task

if TYPE_CHECKING:  # a first forecast needs none of these
    from matplotlib.figure import Figure

    from tsattn.experiments import Experiment, Result
    from tsattn.forecaster.sample_paths import PathSampler, StepCopula
    from tsattn.predictors.attention_layers import AttentionLayer

logger = logging.getLogger("tsattn")

_By: TypeAlias = Literal["series", "step", "origin"]


class Forecaster:
    """Forecasting model for data frames: fit it, predict, evaluate, plot and save.

    ```python
    from tsattn import CO2DataModule, Forecaster

    frame = CO2DataModule().load_frame()  # weeks in the index, one column
    forecaster = Forecaster("patchtst", attention="mlr", prediction_length=52)
    forecast = forecaster.fit(frame.loc[:"2000"]).predict()
    print(forecaster.evaluate(frame.loc["2001":]))
    forecaster.plot(forecast, history=frame)
    ```

    Give a frame of pandas, polars or pyarrow, a pandas Series, or the path of a CSV or Parquet file. A long frame has a
    row for each series and time stamp; a wide frame has a column for each channel. Time is time stamps, dates, periods,
    text, or whole numbers that count steps; it may be the index.

    Missing values and gaps are masked: neither trained on nor scored. The logger ``tsattn`` names unused columns.
    Models without training (``tiny``, ``seasonal_naive``, ``persistence``) predict without `fit`.

    Args: Model
        backbone: kind of predictor (``patchtst``), or a description: ``{kind: patchtst, d_model: 128}``. ``auto``
            is a mean of `tiny`, a ridge, seasonal naive and a small PatchTST; with `attention`, `distribution` or
            checkpoints it is this PatchTST alone.
        attention: kind of attention, a description, or a list with one of these for each layer.
        context_length: past steps that the model sees, L. ``auto`` takes the length between 24 and 512 from which a
            ridge has the lowest validation error, and the longest for a pretrained model.
        prediction_length: steps to forecast, T.

    Args: Output
        quantiles: rising levels to forecast, with 0.5; None for points. ``auto``: ``[0.1, 0.5, 0.9]`` if a model can.
        distribution: ``normal``, ``student_t``, or ``negative_binomial`` for counts, learnt by its likelihood.
        calibrate: calibrate intervals on validation windows (split-conformal), and allow ``predict(level=[80, 95])``
            for every model. A share (0.5) keeps the last part of the validation rows for calibration alone: rows that
            also choose the weights make intervals a little too narrow. A series too short for validation windows is
            calibrated by rolling origins in its last third, and a second model, fitted to the rows before.
        scaling: ``series`` standardises each series by its own mean and deviation, ``global`` all by one.
        transform: transform of the target: ``log``, ``log1p``, ``box_cox``, or ``{kind: box_cox, lambda: 0.5}``.
            Forecasts stay positive and quantiles stay exact; a point forecast by ``mse`` becomes about the median.

    Args: Data
        id_column: column, or columns, of the series id. Found if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps. Found if named ``ds``, ``timestamp`` or ``date``.
        target: columns to forecast. Found if named ``y`` or ``target`` in a long frame; all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns also known for the future.
        static: columns of categories, constant within a series.
        frequency: pandas frequency, offset or timedelta; a whole number if time counts steps. None infers it.
        val_rows: rows of each series for validation, before `test_rows`; 0 alone trains on all rows. Without both, the
            last tenth validates, and no rows are for testing.
        test_rows: last rows of each series, for testing, which are never trained on. Give both, 0 for none.
        data: all other options of `tsattn.data.DataOptions`, or a dictionary of them: splits by share or date, weights,
            text of files, batch sizes. ``eval_batch_size`` is 256 by default in a dictionary; an object keeps its own.

    Args: Training
        max_steps: optimizer steps. By default about 20 epochs, between 400 and 1000 steps, with early stopping.
        learning_rate: peak learning rate of AdamW.
        loss: ``mse``, ``mae``, ``huber`` or ``frequency`` for points, ``pinball`` for quantiles.
        seed: random seed of weights, order and dropout.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        training: all other options of `TrainingOptions`, or a dictionary of them: optimizer, early stopping, progress
            bar, loggers, callbacks, checkpoints, arguments of Lightning's Trainer.

    Attributes:
        arguments: all arguments as plain data.
        predictor: model before fitting.
        fitted: model and scaler of the last `fit`; None before.
        result: result of the last `fit`; None before, and after `load`.
        copula: dependence between steps, once `sample` or `save` needed it.
        series: series of the last `fit`, or only their ends after `load`; None before, and for the model of a run.

    Raises:
        UserError: if an argument is out of its range, or given twice.
    """

    def __init__(
        self,
        backbone: Description = DEFAULT,
        attention: Description | Sequence[Description] | None = None,
        *,
        context_length: int | Literal["auto"] = "auto",
        prediction_length: int = 96,
        quantiles: Sequence[float] | Literal["auto"] | None = "auto",
        distribution: str | None = None,
        calibrate: bool | float = False,
        scaling: str = "series",
        transform: Description | None = None,
        id_column: str | Sequence[str] | None = None,
        time_column: str | None = None,
        target: str | Sequence[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static: Sequence[str] = (),
        frequency: str | int | timedelta | BaseOffset | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        data: DataOptions | Mapping[str, Any] | None = None,
        max_steps: int | None = None,
        learning_rate: float = 1e-3,
        loss: str | None = None,
        seed: int = 1,
        accelerator: str = "auto",
        training: TrainingOptions | Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._take(ForecasterOptions.of(given).checked())

    def _take(
        self,
        options: ForecasterOptions,
        fitted: FittedPredictor | None = None,
        series: FittedSeries | None = None,
        copula: StepCopula | None = None,
    ) -> Self:
        self._options, self.arguments = options, options.arguments
        self.predictor: Predictor = options.predictor
        self.result: Result | None = None
        self.fitted, self.series, self.copula = fitted, series, copula
        return self

    @classmethod
    def of(cls, result: Result) -> Forecaster:
        """Return a forecaster with the predictor of a run and the series that it was fitted to."""
        from tsattn.forecaster.model_folder import run_arguments

        fitted = result.refitted or result.fitted
        names = inspect.signature(Forecaster).parameters
        forecaster = cls(**run_arguments(fitted, result.experiment.to_dict(), names))
        forecaster.fitted, forecaster.result = fitted, result
        forecaster.series = FittedSeries.of(result)
        return forecaster

    @property
    def experiment(self) -> Experiment:
        """Complete description of the run that `fit` makes."""
        return self._options.experiment

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all arguments as given; scikit-learn's `clone` calls this. `deep` has no effect."""
        return dict(self._options.given)

    def set_params(self, **arguments: Any) -> Self:
        """Replace arguments and return self, not fitted; nothing changes if a name or value is not valid."""
        given = self._options.given
        for name in arguments.keys() - given.keys():
            hint = where_it_went(name) or did_you_mean(name, given)
            raise UserError(f"a Forecaster has no argument {shown(repr(name))}{hint}; valid are {one_of(given)}")
        made = ForecasterOptions.of({**given, **arguments}).checked()
        if "training" not in arguments:
            made.states.extend(self._options.states)
        return self._take(made)

    def __repr__(self) -> str:
        fitted = "not fitted" if self.fitted is None else "fitted"
        if self.series is not None:
            panel = self.series.panel
            fitted += f" on {len(panel.channels if panel.is_wide else panel.ids)} series"
        defaults = {name: one.default for name, one in inspect.signature(type(self)).parameters.items()}
        return f"Forecaster({self._options.summary(defaults)}, {fitted})"

    @property
    def task(self) -> Task:
        """Task that the predictor was fitted for; a `UserError` before `fit`."""
        return self._model.needed_fit.predictor.task

    @property
    def scaler(self) -> Scaler:
        """Scaler of the fitted series; a `UserError` before `fit`."""
        return self._model.needed_fit.scaler

    def fit(
        self,
        frame: Any,
        *,
        folder: str | Path | None = None,
        refit: bool = False,
        warm_start: bool = False,
        rescale: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Forecaster:
        """Train on all series of a frame and return self. Validation rows choose the best weights.

        Args:
            frame: series to train on.
            folder: new folder for the run, without the series, to be read by `load` or ``tsattn predict --run``.
            refit: train again on all rows, for the number of steps that validation chose.
            warm_start: start from the present weights and keep the scales, with a new optimizer and equal channels.
            rescale: compute new scales in a warm start.
            checkpoint: file to resume from, of `checkpoints` or of a run folder, on an equal frame, up to `max_steps`.

        Raises:
            UserError: if the frame cannot be used (the message names series and row), or all series are too short.
        """
        return self._fit(self._options, frame, folder, checkpoint, warm_start=warm_start, rescale=rescale, refit=refit)

    def fine_tune(
        self,
        frame: Any,
        max_steps: int | None = None,
        learning_rate: float | None = None,
        *,
        folder: str | Path | None = None,
        rescale: bool = False,
    ) -> Forecaster:
        """Train the present weights further and return self. Arguments and `checkpoints` stay unchanged.

        Args:
            frame: series with equal channels.
            max_steps: optimizer steps; by default as in `fit` without `max_steps`.
            learning_rate: peak learning rate; by default a tenth of the present one.
            folder: as in `fit`.
            rescale: as in `fit`.
        """
        from tsattn.forecaster.fitting import fine_tuning

        options = fine_tuning(self._options, max_steps, learning_rate)
        return self._fit(options, frame, folder, None, warm_start=True, rescale=rescale, refit=False)

    def _fit(self, options: ForecasterOptions, frame: Any, folder: Any, checkpoint: Any, **how: bool) -> Forecaster:
        from tsattn.forecaster.fitting import Start, run_on

        start = Start.of(self.fitted, checkpoint, **how)
        where = None if folder is None else folder_path(folder)
        earlier = None if start.warm is None else self.series
        reader = options.data.reader
        if start.task is not None:
            zone_of = no_times_of(start.task) if earlier is None else earlier.panel.time
            reader = replace(reader, categorical=(*start.task.categories_by_covariate,), zone_of=zone_of)
        panel = reader.read(frame)
        self.result = run_on(options, panel, where, start, refit=how["refit"])
        self.fitted, self.copula = self.result.refitted or self.result.fitted, None
        series = replace(FittedSeries.of(self.result), kind=FrameKind.of(frame, panel))
        self.series = series if start.warm is None else series.with_earlier(earlier)
        return self

    def predict(self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None) -> Any:
        """Forecast each series from its end.

        It starts after the last row of a series; with future covariates after the last row that has a target.

        Args:
            frame: history to forecast from, also of new series; by default the fitted series.
            horizon: steps to forecast; above `prediction_length`, forecasts are fed back as context, with a warning.
            future: frame of ids, time stamps and future covariates, unless rows after the last target have them. A list
                or mapping of frames gives scenarios.
            level: intervals in percent, such as ``[80, 95]``, of a forecaster with `calibrate`. Their bounds replace
                other quantiles: columns ``0.1`` and ``0.9`` for 80.

        Returns:
            Frame of the kind given (pandas, polars, pyarrow), a row for each series and step, sorted by id. Columns are
            id and time, ``predictions`` in original units, each quantile by its level, and ``scenario``.

        Raises:
            UserError: if the frame, future covariates or levels cannot be used.
        """
        kind, frames = self._model.forecasts(frame, self._horizon(horizon), future, level)
        return kind.give(pd.concat([*frames], ignore_index=True))

    def predict_batches(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None
    ) -> Iterator[Any]:
        """Yield the frames of `predict` for ``eval_batch_size`` series at a time, to save memory."""
        kind, frames = self._model.forecasts(frame, self._horizon(horizon), future, level)
        return map(kind.give, frames)

    def sample(
        self,
        frame: Any = None,
        num_samples: int = 100,
        *,
        horizon: int | None = None,
        future: Any = None,
        seed: int = 0,
    ) -> Any:
        """Draw sample paths: possible futures of each series.

        Each step follows the quantiles of `predict`, with normal tails. Steps of a path are correlated as errors were
        in the validation windows (see `tsattn.forecaster.sample_paths`); series and channels are independent.

        Args:
            frame: as in `predict`, like `horizon`, `future` and errors. Point forecasts have no paths.
            num_samples: paths for each series.
            seed: random seed of the paths.

        Returns:
            A row for each series, path and step: id, time, ``sample`` from 0, and ``y`` in original units.
        """
        paths, seed = whole_number("num_samples", num_samples), whole_number("seed", seed, least=0)
        steps = self._horizon(horizon)
        with quiet(frame is None):
            panel, fitted = self._model.panel_of(frame, "the frame", future)
        drawn = self._sampler(fitted).frame(self._step_copula(), panel, steps, paths, seed)
        return self._model.kind_of(frame, panel).give(drawn)

    def cross_validate(
        self, frame: Any, windows: int = 5, *, step: int | None = None, refit: bool = False, level: Any = None
    ) -> Any:
        """Forecast from rolling origins in the past, next to the actual values.

        No model sees a row after its cutoff; the last cutoff is `prediction_length` rows before the end. This trains
        new models, whose validation rows are the last tenth before an origin, and leaves the forecaster unchanged.

        Args:
            frame: series to forecast.
            windows: origins of each series.
            step: rows between origins; `prediction_length` by default.
            refit: train at each origin, and again on all rows before it, as `fit` does with `refit`: two trainings per
                origin. By default one model, trained before the first origin, forecasts from all.
            level: as in `predict`.

        Returns:
            Columns of `predict`, ``cutoff`` (last time stamp seen) and ``y`` (actual value, or NaN).

        Raises:
            UserError: if no series is long enough.
        """
        windows, step = whole_number("windows", windows), None if step is None else whole_number("step", step)
        return self._model.rolling_forecasts(frame, windows, step, refit, level)

    def evaluate(
        self, frame: Any, *, step: int = 1, by: _By | None = None, level: Any = None, detail: bool = False
    ) -> pd.DataFrame:
        """Score forecasts of a frame, in original units, next to seasonal naive and persistence on the same windows.

        Only rows after the last fitted row of a series are scored; earlier ones, and the first `context_length` rows of
        a new series, are context. A frame that continues the fitted one needs no history.

        Args:
            frame: the series.
            step: rows between the windows; 1 scores every window.
            by: rows for each ``series`` (column of a wide frame), each ``step`` of the horizon, from 1, or each
                ``origin``, the last time stamp before a horizon. Together they have the error of the whole.
            level: see `predict`: the intervals whose coverage is measured.
            detail: add RMSE, sMAPE, WAPE and WQL.

        Returns:
            A row per forecaster (with `by`: and group) of means over series or channels: ``windows``, ``MSE``, ``MAE``,
            ``MASE``, and for quantiles ``CRPS`` and ``cover 80``, the share of actual values inside the 80 % interval.

        Raises:
            UserError: if there is nothing to score.
        """
        from tsattn.evaluation.error_table import check_by

        step = whole_number("step", step)
        if by is not None:
            check_by(by)
        return self._model.unseen(frame, step, level).scores(by, detail=detail)

    def plot(self, forecast: Any, ids: Any = None, *, history: Any = None) -> Figure:
        """Plot forecasts with their intervals, after the history.

        Args:
            forecast: frame of `predict`, or of `cross_validate` (one forecast for each cutoff).
            ids: series to draw, one or several; by default the first six.
            history: past values, by default the fitted series. Rows over the horizon are drawn as actual values.

        Raises:
            UserError: if an id has no forecast or history, or the frame is no forecast.
        """
        from tsattn.figures import plot_forecast

        with quiet():
            panel, fitted = self._model.panel_of(history, "the history")
        task, output, forecast = fitted.predictor.task, fitted.predictor.output, plain_forecast(forecast)
        names = [str(name) for name in forecast.columns if re.fullmatch(r"0\.\d+|\d(\.\d+)?e-\d+", str(name))]
        if fitted.conformal is not None and str(MEDIAN) in names:  # levels that were asked for
            output = Output(tuple(sorted(map(float, names))))
        return plot_forecast(forecast, panel, task, output, ids, model=fitted.predictor.title)

    def plot_residuals(self, frame: Any, ids: Any = None, *, ahead: int = 1, step: int = 1) -> Figure:
        """Plot residuals (actual minus forecast) on the rows that `evaluate` scores.

        Args:
            frame: series, as in `evaluate`.
            ids: series to use, one or several; a single one is drawn in original units. By default all, scaled.
            ahead: step of the horizon whose residuals are drawn, from 1.
            step: rows between windows.

        Raises:
            UserError: if there is nothing to score, an id is unknown, or `ahead` is beyond the horizon.
        """
        ahead, step = whole_number("ahead", ahead), whole_number("step", step)
        return self._model.unseen(frame, step).residuals(ids, ahead)

    def attention_weights(
        self, frame: Any = None, *, id: Any = None, channel: str | None = None, future: Any = None
    ) -> list[AttentionLayer]:
        """Return the attention weights of each layer, for the context that `predict` forecasts a series from.

        Args:
            frame: history, by default the fitted series. Cut it to see an earlier context.
            id: series id; the first by default.
            channel: channel, if attention sees each by itself; the first by default.
            future: future covariates, as in `predict`.

        Returns:
            Layers, of all members of an ensemble, each with arrays ``weights (H, N, S)`` and ``levels``, the meaning of
            queries and keys, and a method `frame`.

        Raises:
            UserError: if the predictor has no attention, the series or channel is unknown, or the frame cannot be used.
        """
        return self._attention(frame, id, channel, future)[0]

    def plot_attention(
        self,
        frame: Any = None,
        *,
        id: Any = None,
        channel: str | None = None,
        layers: str | Sequence[int] = "all",
        heads: str | Sequence[int] = "all",
        levels: str | Sequence[int] | None = None,
        future: Any = None,
    ) -> Figure:
        """Plot `attention_weights` as heat maps by layer and head, with the borders of windows or blocks.

        Args:
            frame: as in `attention_weights`, like `id`, `channel` and `future`.
            layers: ``all``, or numbers from 0.
            heads: ``all``, ``mean`` over the heads of a layer, or numbers from 0.
            levels: plot the contribution of levels to the scores instead: ``all``, or numbers from 1, the coarsest.
        """
        from tsattn.figures.layer_maps import plot_layers

        found, title = self._attention(frame, id, channel, future)
        return plot_layers(found, chosen=layers, heads=heads, levels=levels, title=title)

    def export(self, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> dict[str, Any]:
        """Write network and scaler into one file that forecasts without tsattn; return its inputs and outputs.

        Run it by ``torch.export.load(path).module()(context=...)`` or an ONNX runtime. Inputs are ``context (B, L, C)``
        in original units, NaN where missing, and others that ``tsattn.json`` in the file lists.

        Args:
            path: file, ``.pt2`` for PyTorch, ``.onnx`` for ONNX (extra `onnx`).
            format: ``torch`` or ``onnx``; by default by the ending.
            overwrite: replace an existing file.

        Raises:
            UserError: if the model cannot be exported, with the reason, or the file cannot be written.
        """
        from tsattn.forecaster.forecast_files import check_output
        from tsattn.predictors.exporting import FORMATS, exported, format_of

        file = folder_path(path, "file")
        form = format_of(file.suffix, format)
        fitted = self._model.needed_fit
        check_output(file, overwrite, endings=FORMATS)
        content, facts = exported(fitted, form)
        write_whole(file, lambda opened: opened.write(content), overwrite=overwrite)
        return facts

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a new folder: weights as safetensors, everything else as JSON.

        The folder includes the end of each series, so that `predict` works after `load`; the model of a run has none.
        Before a first `sample`, `save` forecasts up to 1000 validation windows to include the dependence of steps.

        Raises:
            UserError: if the folder exists and `overwrite` is false, or cannot be written.
        """
        from tsattn.forecaster.model_folder import SavedModel, write

        path, fitted = folder_path(folder), self._model.needed_fit
        predictor, series = fitted.predictor, self.series
        if series is not None:
            season = predictor.task.season_length  # of the baseline that `evaluate` scores, too
            series = series.last_rows(max(predictor.context_length, season), (*predictor.seasons, season))
        training, watching = self._options.training, ("callbacks", "logger")
        if made := [type(one).__name__ for name in watching for one in training.objects(name)]:
            logger.warning("callbacks and loggers given as objects are not saved: %s; use class_path", one_of(made))
        plain = {**self.arguments["training"], **{name: training.described(name) for name in watching}}
        saved = SavedModel({**self.arguments, "training": plain}, fitted, series, self._step_copula())
        write(path, saved, overwrite=overwrite)

    @property
    def _model(self) -> FrameModel:
        return FrameModel(self._options, self.fitted, self.series)

    def _horizon(self, horizon: int | None) -> int:
        return self._options.data.prediction_length if horizon is None else whole_number("horizon", horizon)

    def _sampler(self, fitted: FittedPredictor) -> PathSampler:
        from tsattn.forecaster.sample_paths import PathSampler

        return PathSampler(fitted, *self._options.batches)

    def _step_copula(self) -> StepCopula | None:
        """Return the dependence between steps; None if the rows of the forecast must give it."""
        if self.copula is None and self.result is not None:
            self.copula = self._sampler(self.result.fitted).copula_of(self.result)
        return self.copula

    def _attention(self, frame: Any, id: Any, channel: str | None, future: Any) -> tuple[list[AttentionLayer], str]:
        from tsattn.predictors.attention_layers import attention_layers, window_title

        with quiet(frame is None):
            panel, fitted = self._model.panel_of(frame, "the frame", future)
            batch = last_window(fitted, panel, id)
        layers = attention_layers(fitted.predictor, batch, channel)
        return layers, window_title(fitted, panel, batch, layers)


def load(folder: str | Path) -> Forecaster:
    """Load a forecaster that `Forecaster.save` has written, on any machine, or the model of a run folder.

    The model of a run, the refitted one after a refit, knows no series: `predict` and `evaluate` need a frame. An
    accelerator that is not on this machine becomes ``auto``, which is logged.

    Raises:
        UserError: for a folder that is not there, is no saved model, is damaged, or is of a newer version.
    """
    from tsattn.forecaster.model_folder import damaged, open_model

    path = folder_path(folder)
    signature = inspect.signature(Forecaster)
    saved = open_model(path, [*signature.parameters])
    try:
        given = signature.bind(**saved.arguments)
        given.apply_defaults()
        options = ForecasterOptions.of(given.arguments)  # its options of a training are for the next fit
    except UserError:
        raise
    except Exception as error:  # the folder may have been edited
        raise damaged(path, error) from error
    saved.check_agrees(options.arguments, options.predictor, path)
    return Forecaster.__new__(Forecaster)._take(options, saved.fitted, saved.series, saved.copula)
