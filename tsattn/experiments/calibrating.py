"""The calibration of a run: its windows, and what is noted of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from tsattn.checks import calibration_share
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError, number_of
from tsattn.predictors.calibrated import check_calibration, conformal_scores, highest_level
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Output
from tsattn.training import Execution

__all__ = ["CalibratedRun"]


@dataclass(frozen=True)
class CalibratedRun:
    """The data of a run, parted between the choice of weights and the calibration of intervals.

    Attributes:
        fit_data: what is fitted to; their validation windows choose weights.
        data: those whose validation windows calibrate; None where nothing is calibrated.
    """

    fit_data: ForecastDataModule
    data: ForecastDataModule | None

    @classmethod
    def of(cls, data: ForecastDataModule, calibrate: bool | float, output: Output) -> Self:
        """Part data that are set up, by the option of the experiment and the output of the model.

        Raises:
            UserError: for too few validation windows, before anything is fitted.
        """
        share = calibration_share(calibrate)
        if share is None:
            return cls(data, None)
        if share == 1.0:
            check_calibration(data, output)
            return cls(data, data)
        try:
            parts = data.with_validation(0.0, 1.0 - share), data.with_validation(1.0 - share, 1.0)
            check_calibration(parts[1], output)
            parts[0].windows("val")
        except UserError as error:
            raise UserError(f"calibrate: {share:g} parts the rows for validation in two, of which {error}") from error
        return cls(*parts)

    def calibrated(
        self, fitted: FittedPredictor, execution: Execution, say: Callable[[str], None]
    ) -> tuple[FittedPredictor, dict[str, Any]]:
        """The predictor with its scores, and facts about them; as it is where nothing is calibrated."""
        if self.data is None:
            return fitted, {}
        scores = conformal_scores(fitted.predictor, self.data, execution)
        counts = scores.counts
        least, highest = int(counts[0].min()), highest_level(int(counts[0].min()))
        own = f", {number_of(len(scores.ids), 'series')} by windows of its own" if len(scores.ids) else ""
        say(f"calibrated by {number_of(int(counts[0].max()), 'validation window')}: levels up to {highest:g}{own}")
        known = {"windows": int(counts[0].max()), "least_observed": least, "highest_level": highest}
        return replace(fitted, conformal=scores), {"calibration": {**known, "series_of_their_own": len(scores.ids)}}
