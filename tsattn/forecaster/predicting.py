"""What a Forecaster forecasts with: the predictor of its last fit or one that needs none, and what it starts from."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.checks import whole_number
from tsattn.data import Panel
from tsattn.data.continued import with_future
from tsattn.data.matching import match_task, warn_of_unknown_zone
from tsattn.data.quiet import quiet
from tsattn.data.reader import TableReader
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.frame_kinds import FrameKind
from tsattn.forecaster.frames import forecast_frames
from tsattn.forecaster.panel_runs import built_for
from tsattn.forecaster.scenarios import in_scenario, scenarios_of
from tsattn.predictors import Predictor
from tsattn.predictors.calibrated import with_levels
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.long_horizons import beyond_training
from tsattn.task import Task
from tsattn.training import Execution

__all__ = ["Predicting"]


@dataclass(frozen=True)
class Predicting:
    """A Forecaster as it forecasts now.

    Attributes:
        reader: of its frames.
        experiment: that it fits.
        predictor: not fitted.
        fitted: the predictor of its last fit; None before.
        series: those of its last fit, if they are known.
        execution: gives where to compute.
    """

    reader: TableReader
    experiment: Experiment
    predictor: Predictor
    fitted: FittedPredictor | None
    series: FittedSeries | None
    execution: Callable[[], Execution]

    @property
    def known(self) -> FittedPredictor:
        """The predictor of the last fit.

        Raises:
            UserError: before a fit.
        """
        if self.fitted is None:
            raise UserError("the forecaster is not fitted yet: call fit(frame), or load a saved one")
        return self.fitted

    def panel_of(self, frame: Any, source: str, future: Any = None) -> tuple[Panel, FittedPredictor]:
        """A frame as a panel for the predictor that forecasts it.

        Args:
            frame: the series; None for those of the last fit, from their ends if a future is given.
            source: what the frame is, for messages.
            future: of the covariates.

        Raises:
            UserError: for a frame that cannot be used, or none where none is known.
        """
        needs_fit = self.fitted is not None or self.predictor.needs_fit
        if frame is not None and not needs_fit:
            panel = self.reader.read(frame, source, future=future)
            return panel, built_for(self.experiment, panel)
        if not needs_fit:
            given = "history" if source == "the history" else "a frame"
            raise UserError(f"{self.predictor.name} needs no fit, but it needs series to forecast: give {given}")
        fitted, task = self.known, self.task
        if frame is not None:
            reader = self.reader.for_task(task).unweighted()
            if self.series is not None:  # of all zones the very one, also where no name leads back to it
                reader = replace(reader, zone_of=self.series.panel.time)
            panel = reader.read(frame, source, future=future)
            source = str(frame) if isinstance(frame, str | Path) else source
            if self.series is None:
                warn_of_unknown_zone(panel, task, source)
            return match_task(panel, task, source), fitted
        if self.series is None:
            raise UserError("this model came without the series that it was fitted on: give a frame")
        if future is None:
            return self.series.panel, fitted
        last = self.series.panel.last_rows(fitted.predictor.context_length, fitted.predictor.seasons)
        return with_future(last, future, self.reader.text), fitted

    @property
    def task(self) -> Task:
        """What the predictor was fitted for.

        Raises:
            UserError: before a fit.
        """
        task = self.known.predictor.task
        assert task is not None
        return task

    def forecasts(
        self, frame: Any, horizon: int | None, future: Any, level: Any, batch_size: int
    ) -> tuple[FrameKind, Iterator[pd.DataFrame]]:
        """Frames of forecasts after the end of each series, made when they are asked for, and the kind to give them in.

        Args:
            frame: as for `panel_of`.
            horizon: steps to forecast; by default those that the predictor is trained for.
            future: as for `panel_of`, or scenarios of it, see `scenarios_of`.
            level: percent of intervals, see `with_levels`.
            batch_size: series in a frame.

        Raises:
            UserError: as `panel_of`, and for a future that stops early.
        """
        T: int = self.experiment.data["init_args"]["prediction_length"]
        steps = T if horizon is None else whole_number("horizon", horizon)
        scenarios, made = scenarios_of(future), list[Iterator[pd.DataFrame]]()
        for name, one in ({None: future} if scenarios is None else scenarios).items():
            is_known = frame is None or bool(made)  # the frame is the same each time
            with quiet() if is_known else contextlib.nullcontext():
                panel, fitted = self.panel_of(frame, "the frame", one)
                frames = self.frames(panel, steps, fitted, level, batch_size)
            made.append(frames if scenarios is None else in_scenario(frames, name))
        if (warning := beyond_training(fitted.predictor, steps)) is not None:
            warnings.warn(warning, stacklevel=3)
        return self.kind_of(frame, panel), itertools.chain.from_iterable(made)

    def kind_of(self, frame: Any, panel: Panel) -> FrameKind:
        """The kind of frame to give forecasts of a frame in; None stands for the series of the last fit."""
        return FrameKind.of(frame, panel) if frame is not None or self.series is None else self.series.kind

    def frames(
        self, panel: Panel, horizon: int, fitted: FittedPredictor, level: Any, batch_size: int
    ) -> Iterator[pd.DataFrame]:
        """The same of a panel, see `forecast_frames`."""
        assert fitted.predictor.task is not None
        panel = match_task(panel, fitted.predictor.task, "the frame")
        fitted = self.with_levels(fitted, panel, level)
        return forecast_frames(fitted, panel, horizon, batch_size, self.execution())

    def with_levels(self, fitted: FittedPredictor, panel: Panel, level: Any) -> FittedPredictor:
        """A fitted predictor with its quantiles calibrated, see `tsattn.predictors.calibrated.with_levels`.

        Raises:
            UserError: as that, and before the fit that calibrates.
        """
        if level is not None and fitted.conformal is None and self.experiment.model["calibrate"]:
            raise UserError("intervals of any level are calibrated by a fit: call fit(frame) first")
        return with_levels(fitted, panel.ids, level)
