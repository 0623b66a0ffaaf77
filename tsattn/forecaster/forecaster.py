"""Fit, predict, cross-validate, evaluate, plot, save: forecasting with frames."""

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
from tsattn.data.time_numbers import no_times_of
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
from tsattn.optim import BETAS
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.marginals import has_marginals
from tsattn.predictors.step_copula import StepCopula
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import Execution, TrainerOptions

__all__ = ["Forecaster"]


class Forecaster(Forecasting, NetworkViews):
    """Forecasts the series of a frame: `tsattn.run` on what is in memory, as the command line does it on files.

    A frame is long (a row a series and time stamp: ``unique_id, ds, y``, ``item_id, timestamp, target``, or columns
    named here) or wide (a row a time stamp, a column a series), of pandas, polars or pyarrow. A pandas Series is a wide
    frame of one column, and the path of a CSV or Parquet file is taken wherever a frame is. Missing values and gaps in
    time are masked: they are neither scored nor learnt from. Series may have different lengths. They are sorted by
    their ids, so that the order of rows decides nothing, and forecasts come back in that order, with the columns of ids
    and time stamps called as in the frame that they start from: ``unique_id`` for the columns of a wide frame, ``ds``
    for an index without a name.

    Time is time stamps, dates, periods (read as their first time stamps), text, or whole numbers that count steps, also
    as an index.

    What is done to a frame beyond that (rows sorted, columns not used) is logged to the logger ``tsattn``, once for
    each frame. Frames that come after `fit` may have another time zone than what was fitted: they are converted to it.
    Their ids may be text where those of `fit` were numbers, as files have it.

    A predictor that needs no fit (``seasonal_naive``, ``persistence``) takes frames straight after construction.

    Args:
        backbone: what forecasts: kind of predictor, or its description ``{kind: patchtst, d_model: 128, ...}``; by
            default a small PatchTST that starts from the ridge.
        attention: kind of attention, its description, or a list of these, one a layer; None keeps the backbone's.
        context_length: past steps that the model sees, L; ``auto`` takes those of 24, 48, 96, 192, 336 and 512 from
            which a ridge forecasts the rows for validation best, and for a pretrained model that is used as it is as
            many as it takes.
        prediction_length: steps that it is trained to forecast, T.
        quantiles: levels to forecast, rising, with 0.5 among them; none, or None, for a point forecast. ``auto`` is
            0.1, 0.5 and 0.9 where it forecasts quantiles.
        distribution: forecast by a network whose quantiles these are: ``normal``, ``student_t``, or
            ``negative_binomial`` for counts, trained by the negative log-likelihood. None: quantiles of their own.
        id_column: of series ids of a long frame, or several columns that make them up (``["store", "item"]``); found by
            itself if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the columns to forecast; found if named ``y`` or ``target`` in a long frame, all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency of the data, as text, offset or length of time, or 1, 2, ... where time counts
            steps; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing, where time stamps are missing.
        date_format: of dates in text, such as ``%d/%m/%y``; None: ISO 8601, or the one format that fits all of them.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        comment: the character that begins the lines of CSV files that are not read, such as ``#``; empty for none.
        skip_rows: lines before the header of CSV files.
        scaling: ``series``, each series by its own mean and standard deviation; ``global``, all by one.
        transform: of the targets before they are scaled, so that no forecast is negative: ``log``, ``log1p`` (which
            takes 0, too) or ``box_cox``, whose lambda is estimated on the training rows, or ``{kind: box_cox, lambda:
            0.5}``. Quantiles come back exactly, and a point forecast that is trained by ``mse`` as about the median.
        train_fraction: share of the rows of each series for training, the first ones. By default the last tenth of each
            series is for validation, and nothing for testing; with one of these six, rows for testing come last. They
            are never trained on, and `evaluate` scores them.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing.
        val_rows: instead of shares: rows of each series for validation, those before the last `test_rows`. 0 alone
            trains on all rows.
        test_rows: rows of each series for testing, the last ones.
        val_from: instead of shares: the first time stamp for validation, as 2020-01-01.
        test_from: the first time stamp for testing.
        learning_rate: peak learning rate of AdamW.
        weight_decay: of AdamW, on matrices only.
        warmup_steps: steps over which the learning rate rises. By default a tenth of all, and at most 100.
        schedule: what it does then: ``cosine``, it falls along a cosine to zero, or ``constant``, it stays.
        betas: of AdamW: what its means of past gradients and of their squares keep of themselves at each step.
        patience: validations without a lower error, after which training ends; by default 7 where `max_steps` is not
            given, else it ends at `max_steps`.
        min_delta: how much lower a validation error must be for that.
        loss: ``mse`` (the default), ``mae``, ``huber`` or ``frequency`` of a point forecast; of quantiles ``pinball``.
        mup: whether to follow the muP learning rules, under which one learning rate serves every width.
        activation_checkpointing: whether activations are computed anew in the backward pass, to save memory.
        compile_mode: of torch.compile, which compiles a network while it is trained; None does not.
        selection: the validation error by which the best weights are chosen, ``mse``, ``mae`` or ``crps``; by default
            that of what is trained.
        max_steps: optimizer steps. By default about 20 epochs, but 400 steps at least and 1000 at most, and fewer where
            the validation error no longer falls.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a batch of forecasts: what bounds the memory of `predict`.
        val_windows: validation windows scored each time, to choose the best weights: ``all``, a number of them, spread
            over all series and their time, or ``auto``, as many as take less than a quarter of the time of training.
        seed: of weights, order and dropout.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        progress: whether training shows a bar.
        logger: where losses are logged: ``csv``, ``tensorboard``, ``wandb``, ``mlflow``, a Lightning logger, or a list
            of these. Those that are named write into the folder of the run, else where Lightning has them.
        callbacks: Lightning's, or their class paths (``{class_path: ..., init_args: {...}}``).
        checkpoints: a folder to keep checkpoints of the training in, as ``step_100.ckpt`` and so on, and ``last.ckpt``,
            which ``fit(frame, checkpoint=...)`` goes on from.
        save_top_k: how many checkpoints are kept, those of the lowest validation errors; -1 for all.
        trainer: other arguments of Lightning's Trainer by name, as the command line has them after ``--trainer.``.
        weight_column: column of weights of rows, at least 0: how much their targets count in the training. 0 leaves
            them out of it, as if they were missing; contexts and scales still have them, and no score is weighted.
        series_weights: weights of series by their ids (of a wide frame, its columns); 1 for all others.
        row_weights: stretches of time as ``(first, last, weight)``, both ends included (a date alone is the whole
            day), such as past anomalies. Weights of the same row are multiplied, and only their ratios matter.
        calibrate: whether validation windows calibrate intervals after the training (split-conformal), so that they
            hold the share of targets that they say: the quantiles of a model of such, and of any model those of
            ``predict(level=[80, 95])``. The same windows choose the best weights, which makes intervals a little too
            narrow; a share such as 0.5 keeps the last half of the rows for validation for calibration alone.

    Attributes:
        arguments: all arguments as plain data.
        experiment: what `fit` runs, complete but for a context that it chooses, which `result` has.
        predictor: what forecasts, not fitted.
        fitted: the predictor of the last `fit` and its scaler; None before.
        result: of the last `fit`; None before, and for a model that was loaded.
        copula: how the steps of its forecasts hang together, once `sample` or `save` has found it in the validation
            windows.
        series: those of the last `fit` (their ends alone, once saved and loaded); None before, and for a run's model.

    Raises:
        UserError: for an argument out of its range.
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
        """All arguments as they were given, as scikit-learn's `clone` asks for them.

        Args:
            deep: as in scikit-learn; no argument is an estimator, so that it changes nothing.
        """
        return dict(self._given)

    def set_params(self, **arguments: Any) -> Forecaster:
        """Take other arguments, and give itself back, not fitted: a model answers to those that it was fitted with.

        Raises:
            UserError: for a name or value that is not valid; then everything stays.
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
        """What the predictor was fitted for.

        Raises:
            UserError: before `fit`.
        """
        return self._now.task

    @property
    def scaler(self) -> Scaler:
        """How the series that were fitted are scaled.

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
        """Fit to all series of a frame, and give itself back; the rows for validation choose the best weights.

        Args:
            frame: the series.
            folder: of the run: its configuration, curve, checkpoints and results. It must not exist yet, and the series
                are not in it: `load` and ``predict --run FOLDER --input FILE`` forecast with it. None writes no files.
            refit: whether to fit once more, to all rows of the frame, at the length that validation chose.
            warm_start: whether a network starts from the weights that it has, and keeps the scale of its series; its
                optimizer is new, the frame has the same channels. `predict` then forecasts the series of this frame.
            rescale: whether a warm start scales the series anew.
            checkpoint: a file to go on from to `max_steps`, optimizer and all, on the same frame: of `checkpoints`, or
                of the folder of a run. The best weights are chosen among those that come after it.

        Raises:
            UserError: for a frame that cannot be used, naming the series and row, or series that are all too short.
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
        """`fit` with a warm start, of so many steps, by default at a tenth of the learning rate; gives itself back.

        The arguments of the forecaster stay as they are, and so do the `checkpoints` of its fit.

        Args:
            frame: the series, of the same channels.
            max_steps: optimizer steps; by default as `fit` has it where nobody says.
            learning_rate: peak learning rate.
            folder: as for `fit`.
            rescale: as for `fit`.

        Raises:
            UserError: as `fit`.
        """
        start = Start.of(self.fitted, None, warm_start=True, rescale=rescale, refit=False)
        return self._fit(fine_tuning(self.arguments, max_steps, learning_rate), frame, folder, start)

    def predict_dataset(
        self, dataset: Any, *, horizon: int | None = None, level: Any = None, blocks: int | None = None
    ) -> Any:
        """Forecast the series of a dataset of Ray Data on its cluster: a dataset of the columns that `predict` gives.

        All rows of a series are gathered in one block, whatever they were read from; nothing is computed yet.

        Args:
            dataset: a ``ray.data.Dataset`` of long rows, or wide ones, which are one series.
            horizon: steps to forecast; `prediction_length` by default.
            level: as for `predict`.
            blocks: of series, each in the memory of a worker at once; four for each processor by default.

        Raises:
            UserError: before `fit`, for what is no such dataset, or if Ray is not installed.
        """
        # they are made of forecasters
        from tsattn.forecaster.ray_forecasts import forecast_dataset

        if self.predictor.needs_fit:
            _ = self._now.known  # which refuses what is not fitted
        return forecast_dataset(self, dataset, horizon=horizon, level=level, blocks=blocks)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors) and everything else that is needed (JSON) into a new folder.

        The end of each series comes along, so that `predict` works where the folder is loaded. The model of a run has
        none: it needs a frame there, too. How the steps of paths hang together comes along, too: unless `sample` has
        found it before, it is found now, by forecasting the validation windows, 1000 of them at most.

        Raises:
            UserError: if the folder exists already and may not be overwritten, or cannot be written.
        """
        path, fitted = folder_path(folder), self._now.known
        predictor, series = fitted.predictor, self.series
        if series is not None:
            assert predictor.task is not None
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
