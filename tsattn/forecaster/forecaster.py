"""Forecast data frames: fit, predict, cross-validate, evaluate, plot, save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pandas.tseries.offsets import BaseOffset

from tsattn.checks import folder_path
from tsattn.data.reader import TableReader
from tsattn.data.stamps import no_times_of
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.experiments import Result
from tsattn.forecaster import model_folder
from tsattn.forecaster.arguments import (
    AUTO,
    checked,
    described,
    differing,
    experiment_of,
    saved_arguments,
    summary,
    with_arguments,
)
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.fitting import Start, fine_tuning
from tsattn.forecaster.forecasting import Forecasting
from tsattn.forecaster.frame_kinds import FrameKind
from tsattn.forecaster.network_views import NetworkViews
from tsattn.forecaster.panel_runs import run_on
from tsattn.forecaster.predicting import Predicting
from tsattn.forecaster.sample_paths import StepCopula, has_marginals
from tsattn.layers.optim import BETAS
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import Execution, TrainerOptions

__all__ = ["Forecaster"]


class Forecaster(Forecasting, NetworkViews):
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
    row for each series and time stamp. A wide frame has a row for each time stamp and a column for each series.

    Time is time stamps, dates, periods, text, or whole numbers that count steps; it may be the index. Series may differ
    in length. Missing values and gaps are masked: neither trained on nor scored. After `fit`, frames may use another
    time zone, or text for ids that were numbers. The logger ``tsattn`` names unused columns and rows that were sorted.

    Models without training (``chronos-tiny``, ``seasonal_naive``, ``persistence``) predict without `fit`.

    Args: Model
        backbone: kind of predictor (``patchtst``), or a description: ``{kind: patchtst, d_model: 128}``. The default is
            a small PatchTST that starts from a ridge regression.
        attention: kind of attention, a description, or a list with one of these for each layer.
        context_length: past steps that the model sees, L. ``auto`` takes the length between 24 and 512 from which a
            ridge has the lowest validation error, and the longest for a pretrained model.
        prediction_length: steps to forecast, T.

    Args: Output
        quantiles: levels to forecast, rising, with 0.5 among them. ``auto`` is ``[0.1, 0.5, 0.9]`` for models that can.
            None or an empty list gives a point forecast.
        distribution: ``normal``, ``student_t``, or ``negative_binomial`` for counts. The network then learns its
            parameters by the negative log-likelihood.
        calibrate: calibrate intervals on validation windows (split-conformal), so that they cover the stated share. It
            allows ``predict(level=[80, 95])`` for every model. Validation also chooses the weights, so intervals are
            a little too narrow; a share (0.5) keeps the last part of the validation rows for calibration alone.
        scaling: ``series`` standardises each series by its own mean and deviation, ``global`` all by one.
        transform: of the target: ``log``, ``log1p``, ``box_cox``, or ``{kind: box_cox, lambda: 0.5}``. Forecasts stay
            positive and quantiles stay exact; a point forecast by ``mse`` becomes about the median.

    Args: Columns and files
        id_column: column, or columns, of the series id. Found if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps. Found if named ``ds``, ``timestamp`` or ``date``.
        target: columns to forecast. Found if named ``y`` or ``target`` in a long frame; all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns also known for the future.
        static: columns of categories, constant within a series.
        frequency: pandas frequency, offset or timedelta; a whole number if time counts steps. None infers it.
        max_filled: largest share of missing time stamps in a series.
        date_format: format of dates in text (``%d/%m/%y``). None takes ISO 8601, or the one format that fits all.
        separator: character between cells of a CSV file.
        decimal: decimal character of a CSV file.
        encoding: encoding of a CSV file.
        comment: first character of lines to skip in a CSV file.
        skip_rows: lines before the header of a CSV file.

    Args: Split and weights
        train_fraction: share of each series for training, its first rows. By default the last tenth is for validation,
            and no rows are for testing. With an argument of this group, test rows come last and are never trained on.
        val_fraction: share for validation, the next rows. The rest is for testing.
        val_rows: instead of shares, rows for validation, before the last `test_rows`. 0 alone trains on all rows.
        test_rows: last rows of each series, for testing.
        val_from: instead of shares, first time stamp for validation.
        test_from: first time stamp for testing.
        weight_column: column of row weights in the training loss, at least 0. Weight 0 hides a target from training;
            contexts, scales and scores still see it.
        series_weights: weights by series id, or by column of a wide frame. Other series have weight 1.
        row_weights: periods as ``(first, last, weight)``, both ends included; past anomalies, for example. Weights of a
            row multiply.

    Args: Training
        max_steps: optimizer steps. By default about 20 epochs, between 400 and 1000 steps, with early stopping.
        learning_rate: peak learning rate of AdamW.
        weight_decay: weight decay of AdamW (matrices only).
        warmup_steps: steps over which the learning rate rises. By default a tenth of all, at most 100.
        schedule: learning rate after that: ``cosine`` falls to zero, ``constant`` stays.
        betas: decay rates of AdamW's running means.
        patience: validations without improvement before training stops. By default 7, or none if you set `max_steps`.
        min_delta: smallest decrease of the validation error that counts.
        loss: ``mse``, ``mae``, ``huber`` or ``frequency`` for points, ``pinball`` for quantiles.
        selection: validation error that chooses the weights: ``mse``, ``mae`` or ``crps``. By default as the loss.
        mup: follow the muP rules, so that one learning rate serves every width.
        batch_size: windows in a training batch.
        val_windows: validation windows scored each time: a number, ``all``, or ``auto`` (less than a quarter of the
            training time).
        seed: random seed of weights, order and dropout.

    Args: Hardware, logs and checkpoints
        eval_batch_size: windows in a batch of forecasts; lower it to save memory.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        activation_checkpointing: compute activations twice to save memory.
        compile_mode: mode of torch.compile in training; None does not compile.
        progress: show a progress bar.
        logger: ``csv``, ``tensorboard``, ``wandb``, ``mlflow``, a Lightning logger, or a list of these.
        callbacks: Lightning callbacks, or descriptions: ``{class_path: ..., init_args: {...}}``.
        checkpoints: folder for ``step_100.ckpt``, ... and ``last.ckpt``. Resume by ``fit(frame, checkpoint=...)``.
        save_top_k: number of best checkpoints to keep; -1 keeps all.
        trainer: other arguments of Lightning's Trainer, by name.

    Attributes:
        arguments: all arguments as plain data.
        experiment: complete description of the run that `fit` makes.
        predictor: model before fitting.
        fitted: model and scaler of the last `fit`; None before.
        result: result of the last `fit`; None before, and after `load`.
        copula: dependence between steps, once `sample` or `save` needed it.
        series: series of the last `fit`, or only their ends after `load`; None before, and for the model of a run.

    Raises:
        UserError: if an argument is out of its range.
    """

    def __init__(
        self,
        backbone: Description = DEFAULT_BACKBONE,
        attention: Description | Sequence[Description] | None = None,
        *,
        context_length: int | Literal["auto"] = "auto",
        prediction_length: int = 96,
        quantiles: Sequence[float] | Literal["auto"] | None = "auto",
        distribution: str | None = None,
        id_column: str | Sequence[str] | None = None,
        time_column: str | None = None,
        target: str | Sequence[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static: Sequence[str] = (),
        frequency: str | int | timedelta | BaseOffset | None = None,
        max_filled: float = 0.5,
        date_format: str | None = None,
        separator: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
        comment: str = "",
        skip_rows: int = 0,
        scaling: str = "series",
        transform: Description | None = None,
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int | None = None,
        schedule: str = "cosine",
        betas: Sequence[float] = BETAS,
        patience: int | None = None,
        min_delta: float = 0.0,
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
        logger: Any = None,
        callbacks: Any = None,
        checkpoints: str | Path | None = None,
        save_top_k: int = 1,
        trainer: Mapping[str, Any] | None = None,
        weight_column: str | None = None,
        series_weights: Mapping[Any, float] | None = None,
        row_weights: Sequence[tuple[Any, Any, float]] | None = None,
        calibrate: bool | float = False,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._given = given
        self.reader = TableReader.of(given)
        self.predictor = build_predictor(described(backbone, attention))
        read = {"frequency": self.reader.frequency, **self.reader.plain(), **self.reader.plain_weights()}
        self.arguments = checked({**given, **read}, self.predictor)
        if self.arguments["context_length"] != AUTO:
            self.predictor = self.predictor.with_context(self.arguments["context_length"])
        self.experiment = experiment_of(self.arguments, self.predictor)
        self.fitted: FittedPredictor | None = None
        self.result: Result | None = None
        self.series: FittedSeries | None = None
        self.copula: StepCopula | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all arguments as given; scikit-learn's `clone` calls this.

        Args:
            deep: no effect, as no argument is an estimator.
        """
        return dict(self._given)

    def set_params(self, **arguments: Any) -> Forecaster:
        """Replace arguments and return self, not fitted.

        Raises:
            UserError: if a name or value is not valid; nothing changes then.
        """
        self.__dict__ = vars(type(self)(**with_arguments(self._given, arguments)))
        return self

    def __repr__(self) -> str:
        fitted = "not fitted" if self.fitted is None else "fitted"
        if self.series is not None:
            panel = self.series.panel
            fitted += f" on {len(panel.channels if panel.is_wide else panel.ids)} series"
        return f"Forecaster({summary(self.arguments, self.predictor)}{differing(type(self), self._given)}, {fitted})"

    @property
    def task(self) -> Task:
        """Task that the predictor was fitted for.

        Raises:
            UserError: before `fit`.
        """
        return self._now.task

    @property
    def scaler(self) -> Scaler:
        """Scaler of the fitted series.

        Raises:
            UserError: before `fit`.
        """
        return self._now.known.scaler

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
            folder: new folder for the run: configuration, training curve, checkpoints and results. Read it by `load` or
                ``tsattn predict --run FOLDER --input FILE``; it does not hold the series. None writes no files.
            refit: train again on all rows, for the number of steps that validation chose.
            warm_start: start from the present weights and keep the scales, with a new optimizer. The frame needs equal
                channels; `predict` then forecasts its series.
            rescale: compute new scales in a warm start.
            checkpoint: file to resume from, of `checkpoints` or of a run folder, on an equal frame, up to `max_steps`.
                Only later weights can be the best.

        Raises:
            UserError: if the frame cannot be used (the message names series and row), or all series are too short.
        """
        start = Start.of(self.fitted, checkpoint, warm_start=warm_start, rescale=rescale, refit=refit)
        return self._fit(self.arguments, frame, folder, start, refit)

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

        Raises:
            UserError: as in `fit`.
        """
        start = Start.of(self.fitted, None, warm_start=True, rescale=rescale, refit=False)
        return self._fit(fine_tuning(self.arguments, max_steps, learning_rate), frame, folder, start)

    def predict_dataset(
        self, dataset: Any, *, horizon: int | None = None, level: Any = None, blocks: int | None = None
    ) -> Any:
        """Forecast a Ray dataset on its cluster; return a lazy dataset with the columns of `predict`.

        Args:
            dataset: ``ray.data.Dataset`` of long rows, or of wide rows, which are one series. Ray gathers the rows of
                each series in one block.
            horizon: steps to forecast; `prediction_length` by default.
            level: as in `predict`.
            blocks: number of blocks of series, each in the memory of one worker; four per processor by default.

        Raises:
            UserError: before `fit`, if the dataset has another type, or without Ray.
        """
        # they are made of forecasters
        from tsattn.forecaster.ray_forecasts import forecast_dataset

        if self.predictor.needs_fit:
            _ = self._now.known  # which refuses what is not fitted
        return forecast_dataset(self, dataset, horizon=horizon, level=level, blocks=blocks)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a new folder: weights as safetensors, everything else as JSON.

        The folder includes the end of each series, so that `predict` works after `load`. The model of a run has no
        series: it always needs a frame. If `sample` was not called yet, `save` forecasts up to 1000 validation windows
        to include the dependence between steps.

        Raises:
            UserError: if the folder exists and `overwrite` is false, or cannot be written.
        """
        path, fitted = folder_path(folder), self._now.known
        predictor, series = fitted.predictor, self.series
        if series is not None:
            season = predictor.task.season_length  # of the baseline that `evaluate` scores, too
            series = series.last_rows(max(predictor.context_length, season), (*predictor.seasons, season))
        arguments = saved_arguments(self.arguments)
        copula = self._step_copula() if has_marginals(predictor) else None
        saved = model_folder.SavedModel(arguments, fitted, series, copula)
        model_folder.write(path, saved, overwrite=overwrite)

    def _fit(
        self, arguments: dict[str, Any], frame: Any, folder: str | Path | None, start: Start, refit: bool = False
    ) -> Forecaster:
        where = None if folder is None else folder_path(folder)
        earlier = None if start.warm is None else self.series
        reader = self.reader
        if start.task is not None:
            zone_of = no_times_of(start.task) if earlier is None else earlier.panel.time
            reader = replace(reader, categorical=(*start.task.categories_by_covariate,), zone_of=zone_of)
        panel = reader.read(frame)
        experiment = experiment_of(arguments, self.predictor)
        self.result = run_on(experiment, panel, arguments, where, start, refit=refit)
        self.fitted, self.copula = self.result.refitted or self.result.fitted, None
        series = replace(FittedSeries.of(self.result), kind=FrameKind.of(frame, panel))
        self.series = series if start.warm is None else series.with_earlier(earlier)
        return self

    @property
    def _now(self) -> Predicting:
        parts = self.reader, self.experiment, self.predictor, self.fitted, self.series
        return Predicting(*parts, lambda: self._execution)

    @cached_property
    def _execution(self) -> Execution:
        return Execution(TrainerOptions.of(self.experiment.made()[1], is_new=False))
