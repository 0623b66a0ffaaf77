"""Sample paths: futures that could come, whose steps hang together as those of the past did.

Shape letters: B windows, T horizon, C channels, N paths.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import Panel, WindowDataset, scaled_series
from tsattn.data.batch_order import spread
from tsattn.errors import UserError, number_of
from tsattn.experiments import Result
from tsattn.forecaster.frames import future_frame
from tsattn.predictors.any_horizon import AnyHorizon
from tsattn.predictors.base import Predictor
from tsattn.predictors.calibrated import Calibrated, with_levels
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.long_horizons import future_batches, moved_on, window_from
from tsattn.predictors.marginals import check_marginals, marginals_of
from tsattn.predictors.network import NetworkPredictor
from tsattn.predictors.step_copula import StepCopula
from tsattn.scaler import Units
from tsattn.task import Output
from tsattn.training import Execution

__all__ = ["copula_of_result", "sample_frame"]

logger = logging.getLogger("tsattn")

_SAMPLE = "sample"
_MOST_WINDOWS = 1000  # by which the steps are known to hang together


def copula_of_result(result: Result, execution: Execution, batch_size: int) -> StepCopula | None:
    """How the steps hang together in the validation windows of a fit, which chose its weights but did not train them.

    Args:
        result: of the fit.
        execution: where to compute.
        batch_size: windows at once.

    Returns:
        None where there is no window for validation, or for a predictor that draws its paths itself.
    """
    predictor = result.fitted.predictor
    if _draws(predictor):
        return None
    check_marginals(predictor)
    if "val" not in result.data.parts:
        return None
    return _copula(
        predictor, result.data.windows("val", predictor.context_length, predictor.seasons), execution, batch_size
    )


def _copula_of_panel(fitted: FittedPredictor, panel: Panel, execution: Execution, batch_size: int) -> StepCopula:
    """The same of the windows within the rows of a panel, whether the predictor was trained on them or not.

    Args:
        fitted: a predictor and its scaler.
        panel: the series, as the predictor needs them.
        execution: where to compute.
        batch_size: windows at once.

    Raises:
        UserError: for series that are all too short for one window.
    """
    predictor = fitted.predictor
    task = predictor.task
    assert task is not None
    L, T = predictor.context_length, task.prediction_length
    origins = [range(max(1, min(L, rows - T)), max(1, rows - T + 1)) for rows in panel.lengths.tolist()]
    windows = WindowDataset(scaled_series(panel, fitted.scaler), origins, L, T, predictor.seasons)
    if not len(windows):
        raise UserError(
            f"how the steps of a path hang together is found in windows of the past, and no series has {T + 1} rows: "
            "give longer ones, or sample with the forecaster that was fitted"
        )
    logger.warning("how steps hang together is found in the rows given, which may have been trained on")
    return _copula(predictor, windows, execution, batch_size)


def sample_frame(
    fitted: FittedPredictor,
    copula: StepCopula | None,
    panel: Panel,
    horizon: int,
    paths: int,
    seed: int,
    execution: Execution,
    batch_size: int,
) -> pd.DataFrame:
    """Paths as a frame: ids, time stamps, ``sample`` from 0 and ``y``, sorted by series, path and time.

    Quantiles that were calibrated are drawn from as they are forecast; of a distribution, and of a predictor that draws
    its own paths, what was forecast before that is drawn from, which is logged.

    Args:
        fitted: a predictor and its scaler.
        copula: of its steps; None finds it in the windows of the panel.
        panel: the series, as the predictor needs them.
        horizon: steps of a path. Beyond those that the predictor was trained for, each path is its own context.
        paths: N, for each series.
        seed: of the draws; those of a series depend on its id alone, not on what others are there, unless the predictor
            draws its paths itself.
        execution: where to compute.
        batch_size: windows at once.

    Raises:
        UserError: for a predictor of points, a future covariate that does not reach over the horizon, a path that is
            not finite, a panel without windows, or ids or time stamps in a column ``sample``.
    """
    if _SAMPLE in (panel.id_name, panel.time_name):
        raise UserError(f"column {_SAMPLE} of the series would be that of the paths, too: rename it")
    if not _draws(fitted.predictor):
        check_marginals(fitted.predictor)
        copula = _copula_of_panel(fitted, panel, execution, batch_size) if copula is None else copula
        _warn_of_few(copula)
    calibrated = _calibrated(fitted, panel)
    frames = _frames(calibrated, copula, panel, horizon, paths, seed, execution, batch_size)
    return pd.concat([*frames], ignore_index=True)


def _frames(
    fitted: FittedPredictor,
    copula: StepCopula | None,
    panel: Panel,
    horizon: int,
    paths: int,
    seed: int,
    execution: Execution,
    batch_size: int,
) -> Iterator[pd.DataFrame]:
    predictor = fitted.predictor
    task = predictor.task
    assert task is not None
    series = scaled_series(panel, fitted.scaler)
    at_once = batch_size if horizon <= task.prediction_length else max(1, batch_size // paths)
    first = 0
    for batch in future_batches(predictor, fitted.scaler, panel, horizon, at_once, series):
        generators = [
            np.random.default_rng([seed, _number_of(panel.ids[first + place])]) for place in range(len(batch))
        ]
        if copula is None:
            drawn = _own_paths(predictor, batch, horizon, paths, seed, execution)
        else:
            drawn = _paths(predictor, copula, batch, horizon, paths, generators, execution)
        yield _frame(drawn, series.units, batch, predictor, panel, first)
        first += len(batch)


def _number_of(series: Any) -> int:
    """A number of a series by its id, the same wherever it is forecast."""
    return int.from_bytes(hashlib.sha256(str(series).encode()).digest()[:8], "little")


def _frame(drawn: Tensor, units: Units, batch: Batch, predictor: Predictor, panel: Panel, first: int) -> pd.DataFrame:
    """Paths `(B, T, C, N)` on the scale of the batch as rows."""
    task = predictor.task
    assert task is not None
    values = units.restore(drawn, batch.series_id)
    if predictor.forecasts_counts:  # a scaled float is off a little, and between quantiles there is no whole number
        values = values.round().clamp(min=0).add_(0.0)  # no minus zero
    frame = future_frame([values.mean(-1)], task, Output(), panel, first).drop(columns="predictions")
    T, N = values.shape[1], values.shape[-1]
    series = len(frame) // T  # or channels
    rows = np.tile(np.arange(len(frame)).reshape(series, 1, T), (1, N, 1)).ravel()
    numbers = np.tile(np.arange(N).repeat(T), series)
    by_row = values.permute(0, 2, 3, 1)  # (B, C, N, T)
    return frame.take(rows).assign(**{_SAMPLE: numbers}, y=by_row.numpy().ravel()).reset_index(drop=True)


def _warn_of_few(copula: StepCopula) -> None:
    """Say where too few windows tell how the steps of a path hang together."""
    if copula.windows is None or copula.windows >= copula.needed_windows or len(copula.correlation) == 1:
        return
    logger.warning(
        "how the %d steps of a path hang together is found in %s, and takes %d or more: the steps are drawn as nearly "
        "independent, so that totals over the horizon may vary too little; keep more rows for validation, or give "
        "longer series to a model that came without them",
        *(len(copula.correlation), number_of(copula.windows, "window"), copula.needed_windows),
    )


def _calibrated(fitted: FittedPredictor, panel: Panel) -> FittedPredictor:
    """What paths are drawn from, of a predictor that may have been calibrated."""
    if fitted.conformal is None:
        return fitted
    if _draws(fitted.predictor) or _has_family(fitted.predictor):
        logger.warning("paths are drawn from the forecast as it was before it was calibrated")
        return fitted
    return with_levels(fitted, panel.ids)


def _has_family(predictor: Predictor) -> bool:
    """Whether a predictor forecasts a distribution."""
    return isinstance(predictor, NetworkPredictor) and predictor.family is not None


def _draws(predictor: Predictor) -> bool:
    """Whether a predictor draws its paths itself."""
    return isinstance(predictor, AnyHorizon) and predictor.draws_paths


def _own_paths(predictor: Predictor, batch: Batch, horizon: int, paths: int, seed: int, execution: Execution) -> Tensor:
    """The paths that a predictor draws itself, `(B, horizon, C, N)` on the scale of the batch."""
    assert isinstance(predictor, AnyHorizon)
    return predictor.on(execution, lambda there: predictor.paths_to(there, horizon, paths, seed))(batch)


def _paths(
    predictor: Predictor,
    copula: StepCopula,
    batch: Batch,
    horizon: int,
    paths: int,
    generators: list[np.random.Generator],
    execution: Execution,
) -> Tensor:
    """Paths `(B, horizon, C, N)` on the scale of the batch."""
    assert predictor.task is not None
    L, T, C = predictor.context_length, predictor.task.prediction_length, batch.past.shape[-1]
    uncalibrated = predictor.predictor if isinstance(predictor, Calibrated) else predictor
    if isinstance(uncalibrated, AnyHorizon):
        assert isinstance(predictor, AnyHorizon)
        made = predictor.on(execution, lambda there: predictor.forecast_to(there, horizon))(batch)
        return marginals_of(predictor, made, batch).quantiles(copula.levels(generators, horizon, C, paths))
    steps = min(horizon, T)
    made = _made(predictor, window_from(batch, 0, L + T), execution)
    pieces = [marginals_of(predictor, made, batch).quantiles(copula.levels(generators, T, C, paths))[:, :steps]]
    windows = batch
    for start in range(T, horizon, T):
        # a window for each path of each series, in this order
        last = pieces[-1].permute(0, 3, 1, 2).flatten(0, 1).to(batch.past.dtype)
        windows = moved_on(windows.repeated(paths) if start == T else windows, last, L)
        made = _made(predictor, window_from(windows, start, L + T), execution)
        levels = copula.levels(generators, T, C, paths).permute(0, 3, 1, 2).flatten(0, 1)[..., None]
        piece = marginals_of(predictor, made, windows).quantiles(levels)[..., 0]
        pieces.append(piece.reshape(-1, paths, *piece.shape[1:]).permute(0, 2, 3, 1))
    return torch.cat(pieces, 1)[:, :horizon]


def _made(predictor: Predictor, batch: Batch, execution: Execution) -> Tensor:
    """The parameters of a distribution, or quantiles, on the host."""
    if isinstance(predictor, NetworkPredictor) and predictor.family is not None:
        return predictor.on(execution, predictor.parameters_of)(batch)
    return predictor.on(execution)(batch)


def _copula(predictor: Predictor, windows: WindowDataset, execution: Execution, batch_size: int) -> StepCopula:
    generator = torch.Generator().manual_seed(0)
    numbers, scores = np.asarray(spread(len(windows), _MOST_WINDOWS)), []
    for start in range(0, len(numbers), batch_size):
        batch = windows.__getitems__(numbers[start : start + batch_size])
        assert batch.target is not None
        made = _made(predictor, replace(batch, target=None, target_observed=None), execution)
        uniform = torch.rand(batch.target.shape, generator=generator, dtype=torch.float64)
        found = marginals_of(predictor, made, batch).scores(batch.target, uniform)
        if batch.target_observed is not None:
            found = found.where(batch.target_observed, torch.nan)
        scores.append(found.transpose(1, 2).flatten(0, 1))
    return StepCopula.of(torch.cat(scores).numpy())
