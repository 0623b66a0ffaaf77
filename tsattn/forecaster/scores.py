"""All metrics of a forecaster on series, beside the forecasts that need no model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics import Metric

from tsattn.batch import Batch
from tsattn.data import Panel, WindowDataset, scaled_series
from tsattn.errors import UserError
from tsattn.evaluation.metrics import CRPS, MAE, MASE, MSE, RMSE, SMAPE, WAPE, WQL, Coverage, seasonal_error
from tsattn.predictors import build_predictor
from tsattn.scaler import Units
from tsattn.task import Output
from tsattn.training.module import ForecastingModule

__all__ = ["score_panel", "seasonal_errors"]

_POINT: dict[str, Callable[[int], Metric]] = {"mse": MSE, "mae": MAE, "rmse": RMSE, "wape": WAPE, "smape": SMAPE}
_QUANTILE: dict[str, Callable[[Sequence[float], int], Metric]] = {"wql": WQL, "crps": CRPS}


@torch.inference_mode()
def score_panel(
    model: ForecastingModule,
    name: str,
    panel: Panel,
    origins: Sequence[range],
    scale: NDArray[np.float64],
    batch_size: int,
    device: torch.device,
) -> pd.DataFrame:
    """The metrics of a model, of the seasonal naive forecast and of persistence, over the same windows.

    All are in original units, over all observed targets of all series, found for each channel and averaged. Beside a
    model of quantiles, a forecast of points takes its point for each quantile: its WQL is then its WAPE and its CRPS
    its MAE, where the levels lie evenly around the median.

    Args:
        model: a trained model.
        name: what its row is called.
        panel: the series, as the model needs them (`Panel.for_task`).
        origins: for each series the rows at which horizons start.
        scale: `(S, C)` what MASE divides by, see `seasonal_errors`.
        batch_size: windows in a batch.
        device: where the model computes.

    Returns:
        a row a forecaster; columns ``windows``, ``mse``, ``mae``, ``rmse``, ``mase``, ``smape``, ``wape``, and for
        quantiles ``wql``, ``crps`` and ``coverage_80`` and so on; coverage is NaN for forecasts of points.

    Raises:
        UserError: if there is no window with an observed target.
    """
    task = model.task
    assert task is not None
    assert model.scaler is not None
    history = np.array([rows.start for rows in origins])  # no scale may know what is scored
    series = scaled_series(panel, model.scaler, history)
    units = Units(series.mean, series.scale)
    divisor = torch.from_numpy(scale)
    model = model.to(device).eval()
    T, season = task.prediction_length, task.season_length
    forecasters: dict[str, tuple[Callable[[Batch], Tensor], int]] = {
        name: (lambda batch: model(batch.to(device)).cpu(), task.context_length),
    }
    for title, kind in ((f"seasonal naive ({season} steps)", "seasonal_naive"), ("persistence", "persistence")):
        naive = build_predictor(kind)
        naive.build(task, Output())
        forecasters[title] = naive, naive.context_length
    rows = {}
    for title, (forecaster, context) in forecasters.items():
        windows = WindowDataset(series, origins, context, T)
        # a generator of its own: else it draws from torch's, and so into a training in another thread
        loader = DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())
        rows[title] = _score(forecaster, loader, units, divisor, task.num_channels, model.output)
    return pd.DataFrame.from_dict(rows, orient="index")


def _score(
    forecaster: Callable[[Batch], Tensor],
    loader: DataLoader[Batch],
    units: Units,
    scale: Tensor,
    C: int,
    output: Output,
) -> dict[str, float]:
    levels = output.quantiles
    point: dict[str, Metric] = {name: metric(C) for name, metric in _POINT.items()}
    quantile: dict[str, Metric] = {name: metric(levels, C) for name, metric in _QUANTILE.items()} if levels else {}
    mase, coverage = MASE(C), Coverage(levels, C) if levels else None
    windows = observed = 0
    has_intervals = False
    for batch in loader:
        assert batch.target is not None
        assert batch.series_id is not None
        forecast, target = (units.restore(x, batch.series_id) for x in (forecaster(batch), batch.target))
        mask = batch.target_observed
        windows += len(batch)
        observed += target.numel() if mask is None else int(mask.sum())
        has_intervals = forecast.dim() == 4
        spread = forecast if has_intervals else forecast[..., None].expand(*forecast.shape, len(levels))
        for metric in quantile.values():
            metric.update(spread, target, mask)
        if coverage is not None:
            coverage.update(spread, target, mask)
        forecast = spread[..., output.median] if has_intervals else forecast
        for metric in point.values():
            metric.update(forecast, target, mask)
        mase.update(forecast, target, scale[batch.series_id], mask)
    if observed == 0:
        raise UserError("there is no observed value to score")
    shares = coverage.compute() if coverage is not None else {}
    return {
        "windows": windows,
        **{name: point[name].compute().item() for name in ("mse", "mae", "rmse")},
        "mase": mase.compute().item(),
        **{name: point[name].compute().item() for name in ("smape", "wape")},
        **{name: metric.compute().item() for name, metric in quantile.items()},
        **{
            name: share.item() if has_intervals else math.nan
            for name, share in shares.items()
            if name.startswith("coverage")
        },
    }


def seasonal_errors(panel: Panel, ends: NDArray[np.int64], season: int) -> NDArray[np.float64]:
    """The seasonal naive error of the first rows of each series.

    Args:
        panel: the series.
        ends: `(S,)` how many rows of each are looked at.
        season: steps in a season.

    Returns:
        `(S, C)` mean absolute differences of values a season apart; NaN where there is no pair of them.
    """
    errors = np.full((len(panel), len(panel.channels)), np.nan)
    for number, (start, rows) in enumerate(zip(panel.starts, ends, strict=False)):
        history = torch.from_numpy(panel.values[start : start + rows])[None]
        if rows > season:
            errors[number] = seasonal_error(history, season, ~history.isnan())[0].numpy()
    return errors


def _as_is(batch: Any) -> Any:
    return batch
