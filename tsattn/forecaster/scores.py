"""Scores of a forecaster on rows that it was not trained on, next to forecasts that need no model."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import Panel, WindowDataset, scaled_series
from tsattn.data.frequency import is_steps
from tsattn.data.matching import appended
from tsattn.data.windows import OrderedBatches
from tsattn.errors import UserError, number_of, rounded, shown
from tsattn.evaluation import ErrorTable, measure, scores_by
from tsattn.evaluation.error_table import check_group
from tsattn.evaluation.measure import ScoredBatch, seasonal_errors
from tsattn.evaluation.reductions import BY_CHANNEL, short_name
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Output, Task
from tsattn.training.execution import Execution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger("tsattn")

_COLUMNS = ("mse_original", "mae_original", "mase", "crps_original")
_DETAILS = ("rmse_original", "smape", "wape", "wql")


class ScoreFrame(pd.DataFrame):
    """Scores, printed with three or four digits to fit 80 columns; the values themselves are not rounded."""

    @property
    def _constructor(self) -> type[ScoreFrame]:
        return ScoreFrame

    def __repr__(self) -> str:
        with pd.option_context("display.float_format", rounded):
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.float_format", rounded):
            html: str | None = super()._repr_html_()  # type: ignore[misc]  # not in the stubs
            return html


@dataclass(frozen=True)
class UnseenWindows:
    """Windows that a predictor has not seen, and the predictor, which forecasts them in batches of a size."""

    fitted: FittedPredictor
    batches: tuple[int, Execution]
    panel: Panel
    origins: list[range]  # of each series
    scale: NDArray[np.float64]  # (S, C) divides MASE

    @classmethod
    def of(
        cls, fitted: FittedPredictor, batches: tuple[int, Execution], panel: Panel, seen: FittedSeries | None, step: int
    ) -> UnseenWindows:
        """Find the windows of a panel, `step` rows apart, after the series that a predictor was fitted to, if known."""
        task, named = fitted.predictor.task, None if seen is None else seen.named_as(panel)
        first = np.zeros(len(panel), np.int64)
        if named is not None:
            panel, first = _after(panel, named, task)
        L, T = task.context_length, task.prediction_length
        origins, short = [], 0  # series whose only window has less than a whole context
        for rows, before in zip(panel.lengths.tolist(), first.tolist(), strict=True):
            start = before if before else max(1, min(L, rows - T))
            short += not before and start + T <= rows < L + T
            origins.append(range(start, max(start, rows - T + 1), step))
        lacking = sum(not rows for rows in origins)
        if lacking == len(origins):
            raise UserError(
                f"there is nothing to score: no series has {T} rows (prediction_length) after the fitted rows; "
                "hold rows out (val_rows=..., test_rows=...), or call cross_validate"
            )
        if lacking:
            logger.warning("%d of %d series have no window to score", lacking, len(origins))
        windows = number_of(sum(map(len, origins)), "window")
        says = "%s scored, one for each of %d series below %d rows: give more rows, or a smaller context_length "
        says += "(now %d) or prediction_length (now %d)"
        logger.warning(says, windows, short, L + T, L, T) if short else logger.info("%s scored", windows)
        scale = seasonal_errors(panel, np.array([rows.start for rows in origins]), task.season_length)
        if named is not None:
            number = {name: number for number, name in enumerate(panel.ids)}
            for name, error in zip(named.panel.ids, named.seasonal_error, strict=True):
                if name in number and name in named.trained_until:
                    scale[number[name]] = error
        return cls(fitted, batches, panel, origins, scale)

    def scores(self, by: str | None, *, detail: bool) -> ScoreFrame:
        """Score the predictor, the seasonal naive forecast and persistence, see `Forecaster.evaluate`."""
        if by is not None:
            check_group(by, self.panel.id_name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) if by in ("series", "origin") else None
            tables = self._measured(by_step=by == "step", folder=path)
            whole = {name: table.scores() for name, table in tables.items()} if by is None else {}
            scores = pd.DataFrame.from_dict(whole, orient="index") if by is None else scores_by(tables, by, self.panel)
        covered = [name for name in map(str, scores) if name.startswith("coverage_") and not name.endswith(BY_CHANNEL)]
        columns = (*_COLUMNS, *covered, *(_DETAILS if detail else ()))
        left_out = [f"{score}_left_out" for score in ("mase", "smape") if score in columns]
        names = ["windows", *(f"{score}{BY_CHANNEL}" for score in columns)]
        found = [name for name in names if name in scores] + [name for name in left_out if scores[name].any()]
        return ScoreFrame(scores[found].rename(columns=short_name))

    def residuals(self, ids: Any, ahead: int) -> Figure:
        """Plot residuals, and errors by step next to the baselines, see `Forecaster.plot_residuals`."""
        from tsattn.figures.residual_plots import ResidualRecorder, plot_residuals

        chosen = ids if ids is None else [ids] if np.isscalar(ids) else list(ids)
        recorder = ResidualRecorder(self.panel, chosen, ahead)
        looked_at = set(recorder.series)
        origins = [rows if number in looked_at else range(0) for number, rows in enumerate(self.origins)]
        tables = replace(self, origins=origins)._measured(by_step=True, watch=recorder)
        errors = {name: table.step_scores("mae_scaled", recorder.channels) for name, table in tables.items()}
        what = f", {shown(chosen[0])}" if chosen is not None and len(chosen) == 1 else ""
        return plot_residuals(recorder.finish(), errors, f"Residuals of {self.fitted.predictor.title}{what}")

    def _measured(
        self, *, by_step: bool, folder: Path | None = None, watch: Callable[[ScoredBatch], None] | None = None
    ) -> dict[str, ErrorTable]:
        """Measure the predictor and both baselines, by name; `folder` takes rows if they are too many for memory."""
        predictor, panel, (batch_size, execution) = self.fitted.predictor, self.panel, self.batches
        task = predictor.task
        history = np.array([rows.start for rows in self.origins])  # no scale may use rows that are scored
        series = scaled_series(panel, self.fitted.scaler, history)
        predictors = {predictor.name: predictor}
        season = f"seasonal naive ({task.season_length} steps)"
        short = sum(bool(rows) and rows[-1] < task.season_length for rows in self.origins)
        if short:
            says = "%s: %d of %d series are shorter than a season, and get their last value where that is unknown; "
            says += 'give a shorter data={"season_length": ...}'
            logger.warning(says, season, short, len(panel))
        for name, kind in ((season, "seasonal_naive"), ("persistence", "persistence")):
            predictors[name] = build_predictor(kind)
            predictors[name].build(task, Output())
        known: dict[str, Any] = {
            **{"units": series.units, "levels": predictor.output.quantiles, "seasonal_errors": self.scale},
            **{"ids": panel.ids, "channels": panel.channels, "counts_steps": is_steps(panel.frequency)},
            "by_step": by_step,
        }
        tables: dict[str, ErrorTable] = {}
        for name, one in predictors.items():
            windows = WindowDataset(series, self.origins, one.context_length, task.prediction_length, one.seasons)
            batches = map(windows.__getitems__, OrderedBatches(range(len(windows)), batch_size))
            path = None if folder is None else folder / f"{len(tables)}.parquet"
            seen = watch if one is predictor else None
            tables[name] = measure(one.on(execution), batches, path=path, watch=seen, in_units=one.in_units, **known)
        return tables


def _after(panel: Panel, series: FittedSeries, task: Task) -> tuple[Panel, NDArray[np.int64]]:
    """Return a panel with the fitted rows before it, and how many rows of each series are not to be scored."""
    number = {name: number for number, name in enumerate(panel.ids)}
    before, seen, lost = series.panel, np.zeros(len(panel), np.int64), 0
    rows = np.zeros(len(before), np.int64)  # fitted, before the panel begins
    for fitted, name in enumerate(before.ids):
        if name in number:
            first = panel.time_of(number[name])[0]
            rows[fitted] = before.time_of(fitted).searchsorted(first)
            lost += not rows[fitted] and name in series.trained_until and first > series.trained_until[name]
    if lost:
        logger.warning(
            "the saved model has no rows before those of %d of %d series, so their first %d rows are only context; "
            "give all rows since the fit",
            *(lost, len(panel), task.context_length),
        )
    numbers = np.flatnonzero(rows)
    added = {before.ids[fitted]: before.time_of(fitted)[rows[fitted] - 1] for fitted in numbers.tolist()}
    if len(numbers):
        fitted_before = before.take(numbers).until(rows[numbers])
        if before.is_mapped:
            season = task.season_length
            fitted_before = fitted_before.last_rows(max(task.context_length, season), (season,))
        panel = appended(fitted_before, panel)
    for name, place in number.items():
        for ends in (added, series.trained_until):
            if name in ends:
                seen[place] = max(seen[place], panel.time_of(place).searchsorted(ends[name], side="right"))
    return panel, seen
