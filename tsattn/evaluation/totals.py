"""Errors of all windows, added up for each channel: what every score is a ratio of.

Shape letters: B windows, T horizon, C channels, Q quantile levels, N rows, K sums of a window, M sums of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.constants import EXACT
from tsattn.evaluation.reductions import is_count, reduce_totals
from tsattn.evaluation.summed_metric import SummedMetric
from tsattn.evaluation.window_errors import sum_names, window_errors
from tsattn.task import check_quantiles

__all__ = ["ErrorTotals", "completed", "group_scores", "scores_of", "total_names", "totals_of_rows"]


def total_names(levels: Sequence[float]) -> tuple[str, ...]:
    """The M names of the totals: ``windows``, those of `sum_names`, ``mase_sum`` and ``mase_count``.

    ``mase_sum`` adds up absolute errors over the seasonal error of the rows before the part, and ``mase_count``
    the observed targets for which that is known and above 0.
    """
    return ("windows", *sum_names(levels), "mase_sum", "mase_count")


class ErrorTotals(SummedMetric):
    """Sums of errors for each channel, added up batch by batch, over all processes where Lightning has several.

    `compute` gives them as ``(C, M)``, in the order of `total_names`, and `scores` what they amount to. The totals of
    two sets of windows are added by `merge_state`.

    Args:
        num_channels: C.
        levels: Q quantile levels, none for a point forecast.

    Raises:
        UserError: for invalid quantile levels.
    """

    sums: Tensor

    def __init__(self, num_channels: int, levels: Sequence[float] = ()) -> None:
        super().__init__(compute_with_cache=False)  # what was merged would not change it
        self.levels = check_quantiles(levels)
        self.add_sum("sums", num_channels, len(total_names(self.levels)))

    def update(
        self,
        forecast: Tensor,
        target: Tensor,
        observed: Tensor | None,
        units: tuple[Tensor, Tensor],
        seasonal_errors: Tensor | None = None,
    ) -> None:
        """Add a batch of windows, see `window_errors`.

        Args:
            forecast: `(B, T, C)` on the scaled axis; with quantiles `(B, T, C, Q)`.
            target: `(B, T, C)` on the scaled axis.
            observed: `(B, T, C)` bool; None if all is observed.
            units: mean and scale of the windows, see `Units.of`.
            seasonal_errors: `(B, C)` in original units, what MASE divides by, NaN where it is unknown; None for all.
        """
        errors = window_errors(forecast, target, observed, units, self.levels)
        self.sums += completed(errors.sums, seasonal_errors).sum(0)

    def compute(self) -> Tensor:
        """The totals `(C, M)`, float64, of all processes."""
        return self.sums

    def scores(self) -> dict[str, float]:
        """All scores by name, of all processes; see `tsattn.evaluation.reductions`."""
        return scores_of(self.compute(), self.levels)


def totals_of_rows(num_channels: int, channel: Tensor, sums: Tensor, seasonal_errors: Tensor) -> Tensor:
    """The totals `(C, M)` of single windows and channels, in any order, on the host.

    Args:
        num_channels: C; for totals by group, times the number of groups.
        channel: `(N,)` int64 number of the channel of each row; for totals by group, plus C times that of the group.
        sums: `(N, K)`, see `sum_names`.
        seasonal_errors: `(N,)`, as in `ErrorTotals.update`.
    """
    added = completed(sums, seasonal_errors)
    return added.new_zeros(num_channels, added.shape[1]).index_add_(0, channel, added)


def scores_of(totals: Tensor, levels: Sequence[float]) -> dict[str, float]:
    """All scores by name of totals `(C, M)`, see `tsattn.evaluation.reductions`."""
    return {
        name: round(float(score)) if is_count(name) else float(score)
        for name, score in group_scores(totals, levels).items()
    }


def group_scores(totals: Tensor, levels: Sequence[float]) -> dict[str, NDArray[np.float64]]:
    """The same of groups of rows: each score `(...)` of totals `(..., C, M)`."""
    columns = totals.cpu().double().numpy()
    return reduce_totals({name: columns[..., place] for place, name in enumerate(total_names(levels))}, levels)


def completed(sums: Tensor, seasonal_errors: Tensor | None) -> Tensor:
    """The M sums of a total of sums `(..., K)` of single windows and channels."""
    names = sum_names(())  # those of levels come later
    count, absolute = (sums[..., names.index(name)] for name in ("count", "absolute_original"))
    divisor = torch.full_like(count, torch.nan) if seasonal_errors is None else seasonal_errors.to(EXACT)
    is_known = divisor > 0
    relative = (absolute / divisor).where(is_known, 0.0)
    parts = [torch.ones_like(count), *sums.unbind(-1), relative, count.where(is_known, 0.0)]
    return torch.stack(parts, -1)
