"""Errors step by step of the horizon: how a forecast gets worse the further it looks ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.forecasting.metrics import EXACT
from tsattn.forecasting.style import ACCENT, OTHERS
from tsattn.forecasting.units import Units
from tsattn.task import MEDIAN, check_quantiles

__all__ = ["error_by_horizon", "plot_error_by_horizon"]


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
    if forecast.dim() == target.dim() + 1 and forecast.shape[-1] == len(levels):
        forecast = forecast[..., levels.index(MEDIAN)]
    if forecast.shape != target.shape:
        raise UserError(
            f"a forecast of shape {tuple(forecast.shape)} does not fit targets of shape {tuple(target.shape)} "
            f"and {len(levels)} quantiles"
        )
    error = forecast.to(EXACT) - target.to(EXACT)
    if units is not None:
        series = batch.series_id
        _, scale = units.of(None if series is None else series.to(units.scale.device))
        error = error * scale.to(error.device)
    seen = torch.ones_like(error) if batch.target_observed is None else batch.target_observed.to(EXACT)
    error = error.where(seen > 0, 0.0)
    return torch.stack([error.square().sum((0, 2)), error.abs().sum((0, 2)), seen.sum((0, 2))])


def plot_error_by_horizon(
    errors: Mapping[str, Tensor | ArrayLike], title: str, *, measure: str = "MAE", unit: str | None = None
) -> Figure:
    """The error of each step of the horizon, one line a model.

    Args:
        errors: `(T,)` by model, of `error_by_horizon` for instance; the first is the model that the figure is about,
            drawn thicker than what it is compared with. Horizons may differ.
        title: of the figure.
        measure: what the errors are, for the axis.
        unit: what they are measured in, for the axis; none by default.

    Raises:
        UserError: for no model, or errors that are not one number a step.
    """
    lines = {name: np.asarray(values, dtype=float) for name, values in errors.items()}
    if not lines:
        raise UserError("there are no errors to draw: give at least one model")
    for name, values in lines.items():
        if values.ndim != 1 or not len(values):
            raise UserError(f"errors of {name} must be one number for each step, not of shape {values.shape}")
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    for number, (name, values) in enumerate(lines.items()):
        color = OTHERS[(number - 1) % len(OTHERS)] if number else ACCENT
        style = "-" if number <= len(OTHERS) else "--"
        steps = np.arange(1, len(values) + 1)
        marker = "o" if len(values) == 1 else None  # a line of one point would not be seen
        ax.plot(steps, values, color=color, ls=style, lw=1.2 if number else 2.4, marker=marker, label=name)
    longest = max(map(len, lines.values()))
    ax.set_xlim(*((1, longest) if longest > 1 else (0.5, 1.5)))
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 4, 5, 10]))
    ax.set_xlabel("steps ahead", fontsize=9)
    ax.set_ylabel(measure if unit is None else f"{measure} ({unit})", fontsize=9)
    ax.grid(axis="y", color="0.9", lw=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    figure.legend(*ax.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right upper")
    ax.set_title(title, fontsize=11)
    return figure
