"""Forecasts, sample paths, scores and figures of a Forecaster."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from tsattn.checks import whole_number
from tsattn.data.quiet import quiet
from tsattn.evaluation.error_table import check_by
from tsattn.experiments import Result
from tsattn.figures import plot_forecast
from tsattn.figures.plain_names import model_words
from tsattn.forecaster.cross_validation import rolling_forecasts
from tsattn.forecaster.frame_kinds import FrameKind, plain_forecast
from tsattn.forecaster.frames import output_of
from tsattn.forecaster.panel_runs import fitted_beside
from tsattn.forecaster.predicting import Predicting
from tsattn.forecaster.sample_paths import StepCopula, copula_of_result, sample_frame
from tsattn.forecaster.scores import residual_figure, score_panel
from tsattn.forecaster.unseen_windows import UnseenWindows
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["Forecasting"]


class Forecasting(ABC):
    """Methods of a Forecaster that forecast.

    Attributes:
        arguments: all arguments as plain data.
        predictor: model before fitting.
        result: result of the last fit; None before.
        copula: dependence between the steps of sample paths; None until needed.
    """

    arguments: dict[str, Any]
    predictor: Predictor
    result: Result | None
    copula: StepCopula | None

    @property
    @abstractmethod
    def _now(self) -> Predicting:
        """The model, and what it starts from."""

    def predict(self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None) -> Any:
        """Forecast each series from its end.

        The forecast starts after the last row of a series, even if its target is missing. With future covariates it
        starts after the last row that has a target.

        Args:
            frame: history to forecast from, also of new series; by default the fitted series.
            horizon: steps to forecast; `prediction_length` by default. A longer one feeds forecasts back as context,
                with a warning.
            future: frame of ids, time stamps and future covariates, unless rows after the last target have them. Series
                that are not in `frame` are ignored and logged. A list or mapping of frames gives scenarios.
            level: intervals in percent, such as ``[80, 95]``, of a forecaster with `calibrate`. Their bounds replace
                other quantiles: columns ``0.1`` and ``0.9`` for 80.

        Returns:
            Frame of the kind given (pandas, polars, pyarrow) with a row for each series and step, sorted by id. Columns
            are id and time as in the frame, ``predictions`` in original units, and each quantile, named by its level. A
            wide frame gives ``unique_id`` in the order of its columns; time without a name is ``ds``. Scenarios follow
            each other, named in the column ``scenario``.

        Raises:
            UserError: if the frame cannot be used, future covariates are missing or stop early, or there are too few
                validation windows for a level.
        """
        kind, frames = self._now.forecasts(frame, horizon, future, level, self.arguments["eval_batch_size"])
        return kind.give(pd.concat([*frames], ignore_index=True))

    def predict_batches(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None
    ) -> Iterator[Any]:
        """Yield the frames of `predict` for `eval_batch_size` series at a time, to save memory."""
        kind, frames = self._now.forecasts(frame, horizon, future, level, self.arguments["eval_batch_size"])
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
        in the validation windows (see `tsattn.forecaster.sample_paths`). The model of a run has no validation windows:
        it takes windows of the given rows and logs that. Too few windows are
        logged. Chronos-T5 draws its own paths. Series and channels are independent of each other.

        Args:
            frame: as in `predict`.
            num_samples: paths for each series.
            horizon: as in `predict`; a longer one continues each path from itself.
            future: as in `predict`.
            seed: random seed of the paths.

        Returns:
            A row for each series, path and step: id, time, ``sample`` from 0, and ``y`` in original units.

        Raises:
            UserError: as in `predict`; also for a point forecast, or rows without a single window.
        """
        paths, seed = whole_number("num_samples", num_samples), whole_number("seed", seed, least=0)
        steps = self.arguments["prediction_length"] if horizon is None else whole_number("horizon", horizon)
        with quiet(frame is None):
            panel, fitted = self._now.panel_of(frame, "the frame", future)
        where = self._now.execution(), self.arguments["eval_batch_size"]
        frames = sample_frame(fitted, self._step_copula(), panel, steps, paths, seed, *where)
        return self._now.kind_of(frame, panel).give(frames)

    def _step_copula(self) -> StepCopula | None:
        """Dependence between steps; None if the forecast's own rows must give it."""
        if self.copula is None and self.result is not None:
            where = self._now.execution(), self.arguments["eval_batch_size"]
            self.copula = copula_of_result(self.result, *where)
        return self.copula

    def cross_validate(
        self, frame: Any, windows: int = 5, *, step: int | None = None, refit: bool = False, level: Any = None
    ) -> Any:
        """Forecast from rolling origins in the past, next to the actual values.

        No model sees a row after its cutoff; the last cutoff is `prediction_length` rows before the end. This trains
        new models and leaves the forecaster unchanged. The last tenth of the rows before an origin is for validation,
        whatever the split. A series too short for the first cutoff is new to a model without `refit`. Future covariates
        missing after a cutoff are imputed and masked.

        Args:
            frame: series to forecast.
            windows: origins of each series.
            step: rows between origins; `prediction_length` by default.
            refit: train at each origin, on all rows before it. By default one model, trained on the rows before the
                first origin, forecasts from all.
            level: as in `predict`.

        Returns:
            Columns of `predict`, ``cutoff`` (last time stamp seen) and ``y`` (actual value, or NaN).

        Raises:
            UserError: if no series is long enough.
        """
        T, batch_size = self.arguments["prediction_length"], self.arguments["eval_batch_size"]
        windows = whole_number("windows", windows)
        step = T if step is None else whole_number("step", step)
        panel, now = self._now.reader.read(frame, "the frame"), self._now
        calibrates = level is not None and bool(self.arguments["calibrate"])
        forecasts = rolling_forecasts(
            *(panel, T, windows, step),
            lambda seen: fitted_beside(self.arguments, self.predictor, seen, calibrates=calibrates),
            lambda seen, fitted: now.frames(seen, T, fitted, level, batch_size),
            refit=refit or not self.predictor.needs_fit,
        )
        return FrameKind.of(frame, panel).give(forecasts)

    def evaluate(
        self,
        frame: Any,
        *,
        step: int = 1,
        by: Literal["series", "step", "origin"] | None = None,
        level: Any = None,
        detail: bool = False,
    ) -> pd.DataFrame:
        """Score forecasts of a frame, in original units, next to seasonal naive and persistence on the same windows.

        Only rows after the last fitted row of a series are scored; earlier ones are context. A frame that continues the
        fitted one needs no history. Of a new series, the first `context_length` rows are context. The model of a run
        does not know its training rows, so it warns that the frame may contain some.

        The two baselines forecast points: all their quantiles equal that point, and their coverage is NaN. For levels
        that are even around the median, their WQL is WAPE and their CRPS is MAE.

        Args:
            frame: the series.
            step: rows between the windows; 1 scores every window.
            by: rows for each ``series`` (column of a wide frame), each ``step`` of the horizon, from 1, or each
                ``origin``, the last time stamp before a horizon. Together they have the error of the whole.
            level: see `predict`: the intervals whose coverage is measured.
            detail: add RMSE, sMAPE, WAPE and WQL.

        Returns:
            a row a forecaster, with the columns ``windows``, ``MSE``, ``MAE``, ``MASE`` and, of a model with quantiles,
            ``CRPS`` and ``cover 80`` (the share of actual values inside the 80 % interval; one column an interval).
            Scores are means over series or channels, printed with three or four digits. ``MASE left out`` counts
            targets without MASE, if there are any. With `by` a row a forecaster and group: ``scores.loc["patchtst"]``
            is the frame of one forecaster.

        Raises:
            UserError: if there is nothing to score.
        """
        step = whole_number("step", step)
        if by is not None:
            check_by(by)
        fitted, unseen = self._unseen(frame, step, level)
        batch_size, execution = self.arguments["eval_batch_size"], self._now.execution()
        return score_panel(fitted, unseen, batch_size, execution, by, detail=detail)

    def _unseen(self, frame: Any, step: int, level: Any = None) -> tuple[FittedPredictor, UnseenWindows]:
        """Model for a frame, and the windows that may be scored."""
        now = self._now
        panel, fitted = now.panel_of(frame, "the frame")
        if now.fitted is not None and (now.series is None or not now.series.is_complete):
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=3,
            )
        unseen = UnseenWindows.of(panel, now.series, fitted.predictor.task, step)
        return now.with_levels(fitted, unseen.panel, level), unseen

    def plot(self, forecast: Any, ids: Any = None, *, history: Any = None) -> Figure:
        """Plot forecasts with their intervals, after the history.

        Args:
            forecast: frame of `predict`, or of `cross_validate` (one forecast for each cutoff).
            ids: series to draw, one or several; by default the first six.
            history: frame of past values, by default the fitted series. Its rows over the horizon are drawn as actual
                values.

        Raises:
            UserError: if an id has no forecast or history, or the frame is no forecast.
        """
        with quiet():
            panel, fitted = self._now.panel_of(history, "the history")
        task, output = fitted.predictor.task, fitted.predictor.output
        forecast = plain_forecast(forecast)
        if fitted.conformal is not None:
            output = output_of(forecast, output)
        return plot_forecast(forecast, panel, task, output, ids, model=model_words(fitted.predictor))

    def plot_residuals(self, frame: Any, ids: Any = None, *, ahead: int = 1, step: int = 1) -> Figure:
        """Plot residuals (actual minus forecast) on the rows that `evaluate` scores.

        Five panels: residuals over time, histogram, normal quantiles, autocorrelation, and the error by step compared
        with seasonal naive and persistence.

        Args:
            frame: series, as in `evaluate`.
            ids: series to use, one or several. By default all, scaled, with the first six over time. A single series is
                drawn in original units.
            ahead: step of the horizon whose residuals are drawn, from 1.
            step: rows between windows.

        Raises:
            UserError: if there is nothing to score, an id is unknown, or `ahead` is beyond the horizon.
        """
        ahead, step = whole_number("ahead", ahead), whole_number("step", step)
        fitted, unseen = self._unseen(frame, step)
        return residual_figure(fitted, unseen, ids, ahead, self.arguments["eval_batch_size"], self._now.execution())
