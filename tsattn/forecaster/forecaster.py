"""Fit, predict, cross-validate, evaluate, plot, save: forecasting with frames."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from typing_extensions import override

from tsattn.checks import folder_path, whole_number
from tsattn.data import Panel
from tsattn.data.continued import with_future
from tsattn.data.quiet import quiet
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError
from tsattn.evaluation.scores_by import check_by
from tsattn.experiments import Result
from tsattn.figures import plot_forecast
from tsattn.forecaster import model_folder
from tsattn.forecaster.arguments import SPLIT, checked, described, experiment_of, summary
from tsattn.forecaster.cross_validation import rolling_forecasts
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.frames import forecast_frames, output_of
from tsattn.forecaster.network_views import NetworkViews
from tsattn.forecaster.panel_runs import built_for, run_on
from tsattn.forecaster.reading import FrameReader
from tsattn.forecaster.sample_paths import copula_of_result, sample_frame
from tsattn.forecaster.scenarios import in_scenario, scenarios_of
from tsattn.forecaster.scores import residual_figure, score_panel
from tsattn.forecaster.unseen_windows import UnseenWindows
from tsattn.optim import BETAS
from tsattn.predictors import build_predictor
from tsattn.predictors.calibrated import with_levels
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.long_horizons import beyond_training
from tsattn.predictors.step_copula import StepCopula
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import Execution, TrainerOptions

__all__ = ["Forecaster"]


class Forecaster(NetworkViews):
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
            which a ridge forecasts the rows for validation best.
        prediction_length: steps that it is trained to forecast, T.
        quantiles: levels to forecast, rising, with 0.5 among them; none, or None, for a point forecast. ``auto`` is
            0.1, 0.5 and 0.9 where it forecasts quantiles.
        distribution: forecast by a network whose quantiles these are: ``normal``, ``student_t``, or
            ``negative_binomial`` for counts, trained by the negative log-likelihood. None: quantiles of their own.
        id_column: of series ids of a long frame; found by itself if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the columns to forecast; found if named ``y`` or ``target`` in a long frame, all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency of the data, or 1, 2, ... where time counts steps; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing, where time stamps are missing.
        date_format: of dates in text, such as ``%d/%m/%y``; None: ISO 8601, or the one format that fits all of them.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        scaling: ``series``, each series by its own mean and standard deviation; ``global``, all by one.
        transform: of the targets before they are scaled, so that no forecast is negative: ``log``, ``log1p`` (which
            takes 0, too) or ``box_cox``, whose lambda is estimated on the training rows, or ``{kind: box_cox, lambda:
            0.5}``. Quantiles come back exactly, and a point forecast that is trained by ``mse`` as about the median.
        train_fraction: share of the rows of each series for training, the first ones. By default the last tenth of each
            series is for validation, and nothing for testing; with one of these six, rows for testing come last. They
            are never trained on, and `evaluate` scores them.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing.
        val_rows: instead of shares: rows of each series for validation, those before the last `test_rows`.
        test_rows: rows of each series for testing, the last ones.
        val_from: instead of shares: the first time stamp for validation, as 2020-01-01.
        test_from: the first time stamp for testing.
        learning_rate: peak learning rate of AdamW.
        weight_decay: of AdamW, on matrices only.
        warmup_steps: steps over which the learning rate rises. By default a tenth of all, and at most 100.
        schedule: what it does then: ``cosine``, it falls along a cosine to zero, or ``constant``, it stays.
        betas: of AdamW: what its means of past gradients and of their squares keep of themselves at each step.
        loss: ``mse`` (the default), ``mae`` or ``huber`` of a point forecast; quantiles are trained by ``pinball``.
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
        trainer: other arguments of Lightning's Trainer by name, as the command line has them after ``--trainer.``.
        weight_column: column of weights of rows, at least 0: how much their targets count in the training. 0 leaves
            them out of it, as if they were missing; contexts and scales still have them, and no score is weighted.
        series_weights: weights of series by their ids (of a wide frame, its columns); 1 for all others.
        row_weights: stretches of time as ``(first, last, weight)``, both ends included, such as past anomalies. Weights
            that say something of the same row are multiplied, and only their ratios matter.
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
        copula: how the steps of its forecasts hang together, once `sample` has found it in the validation windows.
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
        weight_column: str | None = None,
        series_weights: Mapping[Any, float] | None = None,
        row_weights: Sequence[tuple[Any, Any, float]] | None = None,
        calibrate: bool | float = False,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self.reader = FrameReader.of(given)
        self.predictor = build_predictor(described(backbone, attention))
        weights = {} if self.reader.weights is None else self.reader.weights.plain()
        self.arguments = checked({**given, **self.reader.columns, **weights}, self.predictor)
        self.experiment = experiment_of(self.arguments, self.predictor)
        self.fitted: FittedPredictor | None = None
        self.result: Result | None = None
        self.series: FittedSeries | None = None
        self.copula: StepCopula | None = None

    def __repr__(self) -> str:
        fitted = "not fitted" if self.fitted is None else "fitted"
        if self.series is not None:
            panel = self.series.panel
            fitted += f" on {len(panel.channels if panel.is_wide else panel.ids)} series"
        return f"Forecaster({summary(self.arguments, self.predictor)}, {fitted})"

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
        """Fit to all series of a frame, and give itself back; the rows for validation choose the best weights.

        Args:
            frame: the series.
            folder: of the run: its configuration, curve, checkpoints and results. It must not exist yet, and the series
                are not in it: `load` and ``predict --run FOLDER --input FILE`` forecast with it. None writes no files.
            refit: whether to fit once more, to all rows of the frame, at the length that validation chose.

        Raises:
            UserError: for a frame that cannot be used, naming the series and row, or series that are all too short.
        """
        where = None if folder is None else folder_path(folder)
        panel = self.reader.read(frame, "the frame")
        self.result = run_on(self.experiment, panel, self.arguments, where, refit=refit)
        self.fitted = self.result.refitted or self.result.fitted
        self.series, self.copula = FittedSeries.of(self.result), None
        return self

    def predict(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None
    ) -> pd.DataFrame:
        """Forecast what comes after the end of each series.

        A horizon longer than `prediction_length` is rolled forward: the forecast is fed back as context, with a
        warning; a shorter one is cut.

        The forecast starts after the last row of each series, be its target missing or not. With future covariates it
        starts after the last row that has a target: the rows after that are the future of the covariates.

        Args:
            frame: the history to forecast from; by default the series that were fitted. Series may be new ones.
            horizon: steps to forecast; `prediction_length` by default.
            future: ids, time stamps and future covariates after the end of each series, if the frame has not got them
                in rows after the last target. Series that are not in the frame are left out, which is logged. A list of
                such, or such by names, are scenarios: each is forecast as if it had been given alone.
            level: percent that intervals are to hold, such as ``[80, 95]``, of a forecaster that was made with
                `calibrate`; their bounds are columns named after their quantile levels, ``0.1`` and ``0.9`` for 80, in
                the place of other quantiles.

        Returns:
            a row a series and step, sorted by ids: ids and time stamps (columns named as in the frame; ``unique_id``
            for the columns of a wide one, which stay in their order, ``ds`` for time stamps without a name),
            ``predictions`` in original units, and a column for each quantile, named after its level. Scenarios come one
            after the other, with their names or numbers (from 0) in the column ``scenario``.

        Raises:
            UserError: for a frame that cannot be used, future covariates that are not given or stop early, or a level
                that there are too few validation windows for.
        """
        return pd.concat([*self._predicted(frame, horizon, future, level)], ignore_index=True)

    def predict_batches(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None
    ) -> Iterator[pd.DataFrame]:
        """The same as `predict`, `eval_batch_size` series at a time, where not even the forecasts fit into memory."""
        return self._predicted(frame, horizon, future, level)

    def _predicted(self, frame: Any, horizon: int | None, future: Any, level: Any) -> Iterator[pd.DataFrame]:
        T: int = self.arguments["prediction_length"]
        steps = T if horizon is None else whole_number("horizon", horizon)
        scenarios, made = scenarios_of(future), []
        for name, one in ({None: future} if scenarios is None else scenarios).items():
            with quiet(frame is None or bool(made)):  # the frame is the same each time
                panel, fitted = self._series(one) if frame is None else self._read(frame, "the frame", one)
                frames = self._frames(panel, steps, fitted, level)
            made.append(frames if scenarios is None else in_scenario(frames, name))
        if (warning := beyond_training(fitted.predictor, steps)) is not None:
            warnings.warn(warning, stacklevel=3)
        return itertools.chain.from_iterable(made)

    def sample(
        self,
        frame: Any = None,
        num_samples: int = 100,
        *,
        horizon: int | None = None,
        future: Any = None,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Sample paths: futures of each series that could come, whose steps hang together as those of the past did.

        The values of each step have the quantiles of `predict` (between the levels and beyond them they go on as those
        of a normal distribution do; a distribution has all), and the steps of a path the correlation that was found
        between those of the validation windows, see `tsattn.predictors.step_copula`. A model that knows no validation
        windows takes the windows in the rows given, which it logs. Chronos-T5 draws its own paths. Channels and series
        are drawn by themselves.

        Args:
            frame: as for `predict`.
            num_samples: paths for each series.
            horizon: as for `predict`; beyond `prediction_length` each path goes on from itself.
            future: as for `predict`.
            seed: of the draws.

        Returns:
            a row a series, path and step: ids, time stamps, ``sample`` from 0, and ``y`` in original units.

        Raises:
            UserError: as for `predict`; for a model of points, or rows that say nothing of how steps hang together.
        """
        paths, seed = whole_number("num_samples", num_samples), whole_number("seed", seed, least=0)
        steps = self.arguments["prediction_length"] if horizon is None else whole_number("horizon", horizon)
        with quiet(frame is None):
            panel, fitted = self._series(future) if frame is None else self._read(frame, "the frame", future)
        where = self._execution, self.arguments["eval_batch_size"]
        if self.copula is None and self.result is not None:
            self.copula = copula_of_result(self.result, *where)
        return sample_frame(fitted, self.copula, panel, steps, paths, seed, *where)

    def cross_validate(
        self, frame: Any, windows: int = 5, *, step: int | None = None, refit: bool = False, level: Any = None
    ) -> pd.DataFrame:
        """Forecasts from rolling origins beside what came: no model sees a row of a series after its cutoff.

        The last cutoff of each series is `prediction_length` rows before its end. The forecaster itself is left as it
        is: the models are trained here, and the last tenth of the rows before an origin chooses their weights, whatever
        split was given. A series that is too short for the first cutoff is new to a model that is not trained anew.

        Args:
            frame: the series.
            windows: origins of each series.
            step: rows between origins; `prediction_length` by default.
            refit: train anew at each origin, on all rows before it; by default one model is trained on the rows before
                the first origin and forecasts from all.
            level: see `predict`.

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
        refit = refit or not self.predictor.needs_fit
        return rolling_forecasts(
            panel,
            T,
            windows,
            step,
            self._fitted_to,
            lambda seen, fitted: self._frames(seen, T, fitted, level),
            refit=refit,
        )

    def evaluate(
        self,
        frame: Any,
        *,
        step: int = 1,
        by: Literal["series", "step", "origin"] | None = None,
        level: Any = None,
    ) -> pd.DataFrame:
        """All metrics on a frame, beside the seasonal naive forecast and persistence on the same windows.

        Rows that the model was trained on are context, never scored: of a series that was fitted, only horizons after
        its last fitted row count, and a frame that goes on where that ended needs no history of its own. The first
        `context_length` rows of other series are context. The model of a run does not know which rows it was trained
        on, so that rows of the frame may be among them: it warns of that.

        WQL and CRPS of the two that forecast points are those of a forecast whose quantiles are all that point: for
        levels that lie evenly around the median their WAPE and MAE. Their coverage is NaN.

        Args:
            frame: the series.
            step: rows between the windows; 1 scores every window.
            by: what else has a row of its own: each ``series`` (of a wide frame, each of its columns), each ``step`` of
                the horizon, from 1, or each ``origin``, the last time stamp before a horizon. Their errors add up to
                those of the whole.
            level: see `predict`: the intervals whose coverage is measured.

        Returns:
            a row a forecaster, see `tsattn.forecaster.scores.score_panel`. With `by` a row a forecaster and group:
            ``scores.loc["patchtst"]`` is the frame of one forecaster.

        Raises:
            UserError: if there is nothing to score.
        """
        step = whole_number("step", step)
        if by is not None:
            check_by(by)
        fitted, unseen = self._unseen(frame, step, level)
        return score_panel(fitted, unseen, self.arguments["eval_batch_size"], self._execution, by)

    def _unseen(self, frame: Any, step: int, level: Any = None) -> tuple[FittedPredictor, UnseenWindows]:
        """What forecasts a frame, and the windows of it that may be scored."""
        panel, fitted = self._read(frame, "the frame")
        assert fitted.predictor.task is not None
        if self.fitted is not None and self.series is None:
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=3,
            )
        unseen = UnseenWindows.of(panel, self.series, fitted.predictor.task, step)
        return with_levels(fitted, unseen.panel.ids, level), unseen

    def plot(self, forecast: pd.DataFrame, ids: Any = None, *, history: Any = None) -> Figure:
        """Forecasts with their intervals, after the end of what was observed before.

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
        if fitted.conformal is not None:
            output = output_of(forecast, output)
        return plot_forecast(forecast, panel, task, output, ids)

    def plot_residuals(self, frame: Any, ids: Any = None, *, ahead: int = 1, step: int = 1) -> Figure:
        """What came less what was forecast, on the rows that `evaluate` scores.

        Over time, as a histogram and quantiles beside a normal distribution, their autocorrelation, and the error by
        step beside seasonal naive and persistence.

        Args:
            frame: the series, as for `evaluate`.
            ids: the series to look at (of a wide frame, its columns), or a single one; by default all together, scaled,
                of which the first six are drawn over time. A single one is drawn in original units.
            ahead: the step of the horizon whose residuals are drawn, from 1.
            step: rows between the windows.

        Raises:
            UserError: if there is nothing to score, for an id that is not there, or a step beyond the horizon.
        """
        ahead, step = whole_number("ahead", ahead), whole_number("step", step)
        fitted, unseen = self._unseen(frame, step)
        return residual_figure(fitted, unseen, ids, ahead, self.arguments["eval_batch_size"], self._execution)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write weights (safetensors) and everything else that is needed (JSON) into a new folder.

        The end of each series comes along, so that `predict` works where the folder is loaded. The model of a run has
        none: it needs a frame there, too.

        Raises:
            UserError: if the folder exists already and may not be overwritten, or cannot be written.
        """
        path, fitted = folder_path(folder), self._known()
        series = None if self.series is None else self.series.last_rows(fitted.predictor.context_length)
        model_folder.write(
            path, model_folder.SavedModel(self.arguments, fitted, series, self.copula), overwrite=overwrite
        )

    def _fitted_to(self, panel: Panel) -> FittedPredictor:
        """A predictor of these series, none of which are for testing, whatever was fitted before."""
        arguments = {**self.arguments, **dict.fromkeys(SPLIT), "progress": False}
        experiment = experiment_of(arguments, self.predictor)
        return run_on(experiment, panel, arguments).fitted if self.predictor.needs_fit else built_for(experiment, panel)

    @override
    def _known(self) -> FittedPredictor:
        if self.fitted is None:
            raise UserError("the forecaster is not fitted yet: call fit(frame), or load a saved one")
        return self.fitted

    @override
    def _read(self, frame: Any, source: str, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """A frame as a panel for the predictor that forecasts it."""
        if self.fitted is None and not self.predictor.needs_fit:
            panel = self.reader.read(frame, source, future)
            return panel, built_for(self.experiment, panel)
        fitted = self._known()
        zone_of = None if self.series is None else self.series.panel.time
        return self.reader.read_for(self.task, frame, source, future, zone_of), fitted

    @override
    def _series(self, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """The series that were fitted, with a future of their covariates if one is given."""
        if self.fitted is None and not self.predictor.needs_fit:
            raise UserError(f"{self.predictor.name} needs no fit, but it needs series to forecast: give a frame")
        fitted = self._known()
        if self.series is None:
            raise UserError("this model came without the series that it was fitted on: give a frame")
        if future is None:
            return self.series.panel, fitted
        last = self.series.panel.last_rows(fitted.predictor.context_length)
        return with_future(last, future, self.reader.text), fitted

    def _frames(self, panel: Panel, horizon: int, fitted: FittedPredictor, level: Any) -> Iterator[pd.DataFrame]:
        return forecast_frames(
            with_levels(fitted, panel.ids, level), panel, horizon, self.arguments["eval_batch_size"], self._execution
        )

    @cached_property
    def _execution(self) -> Execution:
        return Execution(TrainerOptions.of(self.experiment.made()[1], is_new=False))
