"""Frames in, frames out: series as the task knows them, forecasts, rolling origins, and windows to score."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tsattn.data import Panel, scaled_series
from tsattn.data.matching import match_task, with_future
from tsattn.errors import UserError, quiet
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.frames import FrameKind, future_frame, in_scenario, scenarios_of
from tsattn.forecaster.options import ForecasterOptions
from tsattn.predictors.fitted import FittedPredictor, beyond_training, forecast_batches, with_levels

if TYPE_CHECKING:
    from tsattn.forecaster.scores import UnseenWindows

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class FrameModel:
    """Options of a Forecaster, its fitted predictor, and the series of the fit; None for a missing part."""

    options: ForecasterOptions
    fitted: FittedPredictor | None
    series: FittedSeries | None

    @property
    def needed_fit(self) -> FittedPredictor:
        """Fitted predictor; a `UserError` before `fit`."""
        if self.fitted is None:
            raise UserError("the forecaster is not fitted yet: call fit(frame), or tsattn.load(folder)")
        return self.fitted

    def panel_of(self, frame: Any, source: str, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """Read a frame as a panel for the predictor that forecasts it; None stands for the fitted series."""
        reader = self.options.data.reader
        if self.fitted is None and not self.options.predictor.needs_fit:
            if frame is None:
                name, given = self.options.predictor.name, "history" if source == "the history" else "a frame"
                raise UserError(f"{name} needs no fit, but it needs series to forecast: give {given}")
            panel = reader.read(frame, source, future=future)
            return panel, self.options.built_for(panel)
        fitted, task = self.needed_fit, self.needed_fit.predictor.task
        if frame is not None:
            reader = reader.for_task(task).unweighted()
            if self.series is not None:  # their own zone, even if it has no name
                reader = replace(reader, zone_of=self.series.panel.time)
            panel = reader.read(frame, source, future=future)
            source = str(frame) if isinstance(frame, str | Path) else source
            return match_task(panel, task, source, tells_zone=self.series is None), fitted
        if self.series is None:
            raise UserError("this model was saved without its series: pass a frame")
        if future is None:
            return self.series.panel, fitted
        last = self.series.panel.last_rows(fitted.predictor.context_length, fitted.predictor.seasons)
        return with_future(last, future, reader), fitted

    def kind_of(self, frame: Any, panel: Panel) -> FrameKind:
        """Return the kind of frame in which forecasts of a frame are returned."""
        return FrameKind.of(frame, panel) if frame is not None or self.series is None else self.series.kind

    def forecasts(self, frame: Any, horizon: int, future: Any, level: Any) -> tuple[FrameKind, Iterator[pd.DataFrame]]:
        """Return forecasts, computed when they are read, and the kind of frame to return them in."""
        made = list[Iterator[pd.DataFrame]]()
        for name, one in scenarios_of(future).items():
            is_known = frame is None or bool(made)  # the frame is the same each time
            with quiet(is_known):
                panel, fitted = self.panel_of(frame, "the frame", one)
                frames = self._frames(panel, horizon, fitted, level)
            made.append(frames if name is None else in_scenario(frames, name))
        if (warning := beyond_training(fitted.predictor, horizon)) is not None:
            warnings.warn(warning, stacklevel=3)
        return self.kind_of(frame, panel), itertools.chain.from_iterable(made)

    def _frames(self, panel: Panel, horizon: int, fitted: FittedPredictor, level: Any) -> Iterator[pd.DataFrame]:
        """Return a frame for each batch of series, computed when it is read; the panel is checked at once."""
        panel = match_task(panel, fitted.predictor.task, "the frame")
        fitted, size = self._with_levels(fitted, panel, level), self.options.batches[0]
        predictor = fitted.predictor
        series = scaled_series(panel, fitted.scaler)
        forecasts = forecast_batches(fitted, panel, series, horizon, *self.options.batches)
        return (
            future_frame([forecast], predictor.task, predictor.output, panel, first)
            for forecast, first in zip(forecasts, range(0, len(panel), size), strict=True)
        )

    def _with_levels(self, fitted: FittedPredictor, panel: Panel, level: Any) -> FittedPredictor:
        if level is not None and fitted.conformal is None and self.options.given["calibrate"]:
            raise UserError("intervals of any level need a calibrated model: call fit(frame) first")
        return with_levels(fitted, panel.ids, level)

    def unseen(self, frame: Any, step: int, level: Any = None) -> UnseenWindows:
        """Return the windows of a frame that may be scored."""
        from tsattn.forecaster.scores import UnseenWindows

        panel, fitted = self.panel_of(frame, "the frame")
        if self.fitted is not None and (self.series is None or not self.series.is_complete):
            warnings.warn(
                "this model does not know which rows it was trained on: rows of the frame may be among them",
                stacklevel=3,
            )
        unseen = UnseenWindows.of(fitted, self.options.batches, panel, self.series, step)
        return replace(unseen, fitted=self._with_levels(fitted, unseen.panel, level))

    def rolling_forecasts(self, frame: Any, windows: int, step: int | None, refit: bool, level: Any) -> Any:
        """Forecast from rolling origins by models that are trained for it; see `Forecaster.cross_validate`."""
        from tsattn.forecaster.fitting import fitted_aside

        T, options = self.options.data.prediction_length, self.options
        step = T if step is None else step
        panel = options.data.reader.read(frame, "the frame")
        ends = panel.lengths[:, None] - T - step * np.arange(windows - 1, -1, -1)  # (S, windows)
        if (ends[:, 0] < 1).all():
            raise UserError(
                f"no series is long enough for {windows} windows: the longest has {panel.lengths.max()} rows, but "
                f"{T + step * (windows - 1) + 1} are needed"
            )
        calibrates = bool(options.given["calibrate"])
        parts, fitted = [], None
        for window in range(windows):
            numbers = np.flatnonzero(ends[:, window] >= 1)
            if len(numbers) < len(panel):
                counts = window + 1, windows, len(numbers), len(panel)
                logger.warning("window %d of %d has %d of %d series: the others are too short", *counts)
            whole = panel.take(numbers)
            # missing covariates after an origin are imputed, as in training windows: these rows are in the past
            seen = replace(whole.until(ends[numbers, window]), fills_ahead=True)
            with quiet(window > 0):  # the first has the shortest series
                if fitted is None or refit or not options.predictor.needs_fit:
                    fitted = fitted_aside(options, seen, calibrates=calibrates, refit=refit)
                made = pd.concat([*self._frames(seen, T, fitted, level)], ignore_index=True)
            rows = (whole.starts[:-1] + seen.lengths)[:, None] + np.arange(T)
            truth = whole.values[rows].transpose(0, 2, 1)  # (S, C, T), as forecasts are laid out
            made.insert(2, "cutoff", seen.time[seen.starts[1:] - 1].repeat(T * len(whole.channels)))
            parts.append(made.assign(y=truth.ravel()))
        return FrameKind.of(frame, panel).give(pd.concat(parts, ignore_index=True))
