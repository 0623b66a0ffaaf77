"""Errors step by step of the horizon: how a forecast gets worse the further it looks ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.constants import EXACT
from tsattn.errors import UserError
from tsattn.evaluation.window_errors import point_forecast
from tsattn.scaler import Units
from tsattn.task import check_quantiles

__all__ = ["error_by_horizon"]


@torch.no_grad()
def error_by_horizon(
    forecaster: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    quantiles: Sequence[float] = (),
    units: Units | None = None,
) -> dict[str, Tensor]:
    """Squared and absolute error of each step of the horizon, over all windows and channels.

    They are sums in float64 over counts of observed targets, so that the mean of the steps, weighted by `count`, is the
    error of the whole horizon.

    Args:
        forecaster: from a batch to `(B, T, C)`, or `(B, T, C, Q)` of quantiles, whose median is measured. A module is
            run in eval mode, on its own device.
        batches: all windows with targets, for example ``data.eval_dataloader("val")``.
        quantiles: the Q levels where the forecaster gives them.
        units: of the data, to measure in original units instead of the scale of the batches.

    Returns:
        ``mse``, ``mae`` and ``count``, each `(T,)` on the CPU; the errors of a step that no window observes are NaN.

    Raises:
        UserError: for quantiles that do not fit the forecast, windows without targets, or no windows.
    """
    levels = check_quantiles(quantiles)
    sums: Tensor | None = None
    device, was_training = None, []
    if isinstance(forecaster, nn.Module):
        device = next((parameter.device for parameter in forecaster.parameters()), None)
        was_training = [module for module in forecaster.modules() if module.training]
        forecaster.eval()
    try:
        for batch in batches:
            added = _sums(forecaster, batch if device is None else batch.to(device), levels, units)
            sums = added if sums is None else sums + added
    finally:
        for module in was_training:
            module.training = True
    if sums is None:
        raise UserError("there are no windows to measure: batches is empty")
    squared, absolute, count = sums.cpu()
    return {"mse": squared / count, "mae": absolute / count, "count": count.long()}


def _sums(
    forecaster: Callable[[Batch], Tensor], batch: Batch, levels: tuple[float, ...], units: Units | None
) -> Tensor:
    """Squared errors, absolute errors and their number for each step, `(3, T)`."""
    if batch.target is None:
        raise UserError("windows beyond the end of the data have no target to measure against")
    forecast, target = forecaster(batch), batch.target
    if units is not None:
        forecast, target = (units.standardised(part, batch.series_id) for part in (forecast, target))
    error = point_forecast(forecast, target, levels).to(EXACT) - target.to(EXACT)
    if units is not None:
        _, scale = units.of(batch.series_id)
        error = error * scale.to(error.device)
    seen = torch.ones_like(error) if batch.target_observed is None else batch.target_observed.to(EXACT)
    error = error.where(seen > 0, 0.0)
    return torch.stack([error.square().sum((0, 2)), error.abs().sum((0, 2)), seen.sum((0, 2))])
