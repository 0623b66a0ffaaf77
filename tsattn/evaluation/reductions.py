"""Compute scores from totals of errors; the name of a score says how it is averaged.

A score such as `mse_scaled` is pooled: the sum of errors over all observed targets of all channels, divided by their
number. With the suffix `BY_CHANNEL` it is the mean of the scores of the channels, as in fev. There, a channel of large
numbers does not hide the others. ``_scaled`` is the scale of training, ``_original`` the units of the data.
Percentages and ratios have no scale.

Undefined values are never hidden by averaging. A denominator of zero makes a score NaN. A channel without observed
targets makes all scores by channel NaN. sMAPE leaves out targets that are zero and forecast as zero. MASE leaves out
targets whose seasonal error, from the rows before the part, is zero or unknown. As in fev, they are counted, in
``smape_left_out`` and ``mase_left_out``.

Sources: Hyndman & Koehler, *Another look at measures of forecast accuracy* (2006). Gneiting & Ranjan, *Comparing
Density Forecasts Using Threshold- and Quantile-Weighted Scoring Rules* (2011). The tests compare with fev 0.10 (Shchur
et al., 2025).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tsattn.batch import EXACT
from tsattn.evaluation.window_errors import central_intervals, completed, total_names, window_errors
from tsattn.task import check_quantiles

BY_CHANNEL = "_by_channel"
_LEFT_OUT = "_left_out"

SCORES = {
    "windows": "windows that were scored",
    "mse_scaled": "mean squared error, on the scale that is trained on",
    "mae_scaled": "mean absolute error, on the scale that is trained on",
    "rmse_scaled": "root of the mean squared error, on the scale that is trained on",
    "mse_original": "mean squared error in original units",
    "mae_original": "mean absolute error in original units",
    "rmse_original": "root of the mean squared error in original units",
    "wape": "weighted absolute percentage error: absolute errors over absolute targets, in original units",
    "smape": "symmetric mean absolute percentage error, 2 |y - f| / (|y| + |f|), from 0 to 2, in original units",
    "smape_left_out": "observed targets without sMAPE: zero, and forecast as zero",
    "mase": "mean absolute scaled error: absolute errors over the seasonal error of the rows before the part that "
    "is scored",
    "mase_left_out": "observed targets without MASE: that seasonal error is zero or unknown",
    "crps_scaled": "continuous ranked probability score, on the scale that is trained on: the mean over the levels of "
    "twice the pinball loss, which fev calls MQL",
    "crps_original": "continuous ranked probability score in original units",
    "wql": "weighted quantile loss: the CRPS over the mean absolute target, in original units",
    "below_0.1": "share of observed targets at or below the forecast of the level 0.1, which should be 0.1; so for "
    "each level",
    "coverage_80": "share of observed targets inside the central interval of 80 %, which should be 0.8; so for each "
    "pair of levels that leave out as much below as above",
}
"""Meanings of the scores. All except ``windows`` and ``..._left_out`` also exist by channel, see `BY_CHANNEL`."""

_SHORT = {
    **{"windows": "windows", "mse": "MSE", "mae": "MAE", "mase": "MASE", "crps": "CRPS"},
    **{"rmse": "RMSE", "smape": "sMAPE", "wape": "WAPE", "wql": "WQL"},
    **{"mase_left_out": "MASE left out", "smape_left_out": "sMAPE left out"},
}

_POINT = {
    "mse_scaled": ("squared_scaled", "count"),
    "mae_scaled": ("absolute_scaled", "count"),
    "rmse_scaled": ("squared_scaled", "count"),
    "mse_original": ("squared_original", "count"),
    "mae_original": ("absolute_original", "count"),
    "rmse_original": ("squared_original", "count"),
    "mase": ("mase_sum", "mase_count"),
    "smape": ("smape_sum", "smape_count"),
    "wape": ("absolute_original", "absolute_target_original"),
}
_QUANTILE = {  # numerator (a prefix: the mean over the levels) and denominator
    "wql": ("pinball_original", "absolute_target_original"),
    "crps_scaled": ("pinball_scaled", "count"),
    "crps_original": ("pinball_original", "count"),
}


def is_count(name: str) -> bool:
    """Whether a score is a number of windows or targets."""
    return name == "windows" or name.endswith(_LEFT_OUT)


def is_score(name: str) -> bool:
    """Whether this is the name of a score, at any level, or a short name."""
    plain = name.removesuffix(BY_CHANNEL)
    is_of_level = re.fullmatch(r"(below_|coverage_|cover )\d+(\.\d+)?", plain) is not None
    return is_of_level or plain in SCORES or name in _SHORT.values()


def short_name(score: str) -> str:
    """The name of a score in tables: ``MSE`` for ``mse_original`` and ``mse_scaled``, ``cover 80`` for a coverage."""
    name = re.sub("_(original|scaled)$", "", score.removesuffix(BY_CHANNEL))
    return _SHORT.get(name, name.replace("coverage_", "cover "))


def group_scores(totals: Tensor, levels: Sequence[float] = ()) -> dict[str, NDArray[np.float64]]:
    """Compute all scores `(...)` of totals `(..., C, M)` by name, first the pooled scores, then the scores by channel.

    See `SCORES` and `total_names`; without levels, totals are of a point forecast.
    """
    columns = totals.cpu().double().numpy()
    of = {name: columns[..., place] for place, name in enumerate(total_names(levels))}
    ratios = {name: (of[above], of[below]) for name, (above, below) in _POINT.items()}
    if levels:
        for name, (above, below) in _QUANTILE.items():
            ratios[name] = np.mean([of[f"{above}_{level}"] for level in levels], axis=0), of[below]
        ratios |= {f"below_{level}": (of[f"below_{level}"], of["count"]) for level in levels}
        intervals = [f"{percent:g}" for percent, _, _ in central_intervals(levels)]
        ratios |= {f"coverage_{percent}": (of[f"inside_{percent}"], of["count"]) for percent in intervals}
    pooled = {
        name: _mean_ratio(name, *(part.sum(-1, keepdims=True) for part in parts)) for name, parts in ratios.items()
    }
    by_channel = {f"{name}{BY_CHANNEL}": _mean_ratio(name, *parts) for name, parts in ratios.items()}
    left_out = {f"{name}{_LEFT_OUT}": (of["count"] - of[f"{name}_count"]).sum(-1).round() for name in ("smape", "mase")}
    return {"windows": of["windows"].max(-1, initial=0).round(), **pooled, **left_out, **by_channel}


def _mean_ratio(name: str, above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of ratios over the last axis, NaN if a denominator is zero."""
    ratio = above / np.where(below != 0, below, np.nan)
    mean: NDArray[np.float64] = (np.sqrt(ratio) if name.startswith("rmse") else ratio).mean(-1)
    return mean


def scores_of(totals: Tensor, levels: Sequence[float]) -> dict[str, float]:
    """Compute all scores of totals `(C, M)` by name, see `group_scores`."""
    scores = group_scores(totals, levels)
    return {name: round(float(score)) if is_count(name) else float(score) for name, score in scores.items()}


class ErrorTotals(nn.Module):
    """Sums of errors of each channel, updated batch by batch, for Q quantile levels or point forecasts."""

    def __init__(self, num_channels: int, levels: Sequence[float] = ()) -> None:
        super().__init__()
        self.levels = check_quantiles(levels)
        # not a buffer: training on several devices would overwrite it by the first device's buffer
        self.sums = torch.zeros(num_channels, len(total_names(self.levels)), dtype=EXACT)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        # move sums with the model, but do not cast them to its precision
        self.sums = self.sums.to(fn(self.sums).device)
        return super()._apply(fn, recurse)  # type: ignore[no-any-return,no-untyped-call]

    def update(
        self,
        forecast: Tensor,
        target: Tensor,
        observed: Tensor | None,
        units: tuple[Tensor, Tensor],
        seasonal_errors: Tensor | None = None,
    ) -> None:
        """Add a batch of windows, with the arguments of `window_errors`.

        ``seasonal_errors`` are the `(B, C)` divisors of MASE in original units, NaN if unknown; None if all are
        unknown.
        """
        errors = completed(window_errors(forecast, target, observed, units, self.levels), seasonal_errors)
        self.sums = self.sums + errors.sum(0)

    def reset(self) -> None:
        """Forget all windows."""
        self.sums = torch.zeros_like(self.sums)

    def compute(self) -> Tensor:
        """Return the totals `(C, M)`, float64, of all processes, in the order of `total_names`."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.sums
        total = self.sums.clone()
        torch.distributed.all_reduce(total)
        return total

    def scores(self) -> dict[str, float]:
        """Compute all scores by name, of all processes."""
        return scores_of(self.compute(), self.levels)
