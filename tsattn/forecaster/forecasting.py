"""What a Forecaster makes of its model: forecasts, sample paths, scores, and figures of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from tsattn.checks import whole_number
from tsattn.data.quiet import quiet
from tsattn.evaluation.scores_by import check_by
from tsattn.experiments import Result
from tsattn.figures import plot_forecast
from tsattn.forecaster.cross_validation import rolling_forecasts
from tsattn.forecaster.frame_kinds import FrameKind, plain_forecast
from tsattn.forecaster.frames import output_of
from tsattn.forecaster.panel_runs import fitted_beside
from tsattn.forecaster.predicting import Predicting
from tsattn.forecaster.sample_paths import copula_of_result, sample_frame
from tsattn.forecaster.scores import residual_figure, score_panel
from tsattn.forecaster.unseen_windows import UnseenWindows
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.step_copula import StepCopula

__all__ = ["Forecasting"]


class Forecasting(ABC):
    """The methods of a Forecaster that forecast.

    Attributes:
        arguments: all of them, as plain data.
        predictor: what they describe, not fitted.
        result: of its last fit; None before.
        copula: how the steps of sample paths hang together; None as long as it was not needed.
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
            after the other, with their names or numbers (from 0) in the column ``scenario``. The frame is of the kind
            that was given: of pandas, polars or pyarrow, with periods where time was periods.

        Raises:
            UserError: for a frame that cannot be used, future covariates that are not given or stop early, or a level
                that there are too few validation windows for.
        """
        kind, frames = self._now.forecasts(frame, horizon, future, level, self.arguments["eval_batch_size"])
        return kind.give(pd.concat([*frames], ignore_index=True))

    def predict_batches(
        self, frame: Any = None, *, horizon: int | None = None, future: Any = None, level: Any = None
    ) -> Iterator[Any]:
        """The same as `predict`, `eval_batch_size` series at a time, where not even the forecasts fit into memory."""
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
        """Sample paths: futures of each series that could come, whose steps hang together as those of the past did.

        The values of each step have the quantiles of `predict` (between the levels and beyond them they go on as those
        of a normal distribution do; a distribution has all), and the steps of a path the correlation that was found
        between those of the validation windows, see `tsattn.predictors.step_copula`. A model that knows no validation
        windows, that of a run, takes the windows in the rows given, which it logs, and a model of too few windows logs
        that its steps are nearly independent. Chronos-T5 draws its own paths. Channels and series are drawn by
        themselves.

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
            panel, fitted = self._now.panel_of(frame, "the frame", future)
        where = self._now.execution(), self.arguments["eval_batch_size"]
        frames = sample_frame(fitted, self._step_copula(), panel, steps, paths, seed, *where)
        return self._now.kind_of(frame, panel).give(frames)

    def _step_copula(self) -> StepCopula | None:
        """How the steps of paths hang together; None where it must be found in what is forecast."""
        if self.copula is None and self.result is not None:
            where = self._now.execution(), self.arguments["eval_batch_size"]
            self.copula = copula_of_result(self.result, *where)
        return self.copula

    def cross_validate(
        self, frame: Any, windows: int = 5, *, step: int | None = None, refit: bool = False, level: Any = None
    ) -> Any:
        """Forecasts from rolling origins beside what came: no model sees a row of a series after its cutoff.

        The last cutoff of each series is `prediction_length` rows before its end. The forecaster itself is left as it
        is: the models are trained here, and the last tenth of the rows before an origin chooses their weights, whatever
        split was given. A series that is too short for the first cutoff is new to a model that is not trained anew.
        Future covariates that are missing after a cutoff are imputed and masked, as in a fit: these rows have come.

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
        """What forecasts a frame, and the windows of it that may be scored."""
        now = self._now
        panel, fitted = now.panel_of(frame, "the frame")
        assert fitted.predictor.task is not None
        if now.fitted is not None and (now.series is None or not now.series.is_complete):
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=3,
            )
        unseen = UnseenWindows.of(panel, now.series, fitted.predictor.task, step)
        return now.with_levels(fitted, unseen.panel, level), unseen

    def plot(self, forecast: Any, ids: Any = None, *, history: Any = None) -> Figure:
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
            panel, fitted = self._now.panel_of(history, "the history")
        task, output = fitted.predictor.task, fitted.predictor.output
        assert task is not None
        assert output is not None
        forecast = plain_forecast(forecast)
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
        return residual_figure(fitted, unseen, ids, ahead, self.arguments["eval_batch_size"], self._now.execution())
