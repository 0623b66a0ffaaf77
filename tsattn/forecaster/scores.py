"""All scores of a forecaster on series, beside the forecasts that need no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from tsattn.backbones import Persistence, SeasonalNaive
from tsattn.batch import Batch
from tsattn.data import Panel, WindowDataset, scaled_series
from tsattn.evaluation.measure import measure
from tsattn.evaluation.reductions import BY_CHANNEL
from tsattn.evaluation.units import Units
from tsattn.training.module import ForecastingModule

__all__ = ["score_panel"]


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
    """The scores of a model, of the seasonal naive forecast and of persistence, over the same windows.

    All are in original units, over all observed targets of all series, found for each channel and averaged (see
    `tsattn.evaluation.reductions`). Beside a
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
        a row a forecaster; columns ``windows``, and with the suffix ``_by_channel`` ``mse_original``,
        ``mae_original``, ``rmse_original``, ``mase``, ``smape``, ``wape``, and for quantiles ``wql``, ``crps_original``
        and ``coverage_80`` and so on; coverage is NaN for forecasts of points.

    Raises:
        UserError: if there is no window with an observed target.
    """
    task = model.task
    assert task is not None
    history = np.array([rows.start for rows in origins])  # no scale may know what is scored
    series = scaled_series(panel, task, history)
    units = Units(series.mean, series.scale)
    model = model.to(device).eval()
    T, season = task.prediction_length, task.season_length
    forecasters: dict[str, tuple[Callable[[Batch], Tensor], int]] = {
        name: (lambda batch: model(batch.to(device)), task.context_length),
        f"seasonal naive ({season} steps)": (SeasonalNaive(T, season), season),
        "persistence": (Persistence(T), 1),
    }
    rows = {}
    for title, (forecaster, context) in forecasters.items():
        windows = WindowDataset(series, origins, context, T)
        # a generator of its own: else it draws from torch's, and so into a training in another thread
        loader = DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())
        table = measure(
            forecaster,
            loader,
            units=units,
            levels=task.quantiles,
            ids=panel.ids,
            channels=panel.channels,
            seasonal_errors=scale,
        )
        rows[title] = {name: score for name, score in table.scores().items() if _is_shown(name)}
    return pd.DataFrame.from_dict(rows, orient="index")


def _is_shown(name: str) -> bool:
    """Whether a score is found by channel, in original units or none; of quantiles, one that sums all of them up."""
    return name == "windows" or (name.endswith(BY_CHANNEL) and "_scaled" not in name and not name.startswith("below_"))


def _as_is(batch: Any) -> Any:
    return batch
