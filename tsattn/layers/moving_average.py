"""The trend of a series: a moving average of its steps."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["moving_average"]


def moving_average(series: Tensor, size: int) -> Tensor:
    """The mean of the `size` steps around each step, an odd number; beyond the ends the first and last step repeat.

    In time that does not grow with `size`: differences of running sums, of the series less its first step, so that sums
    do not grow with its level.

    Args:
        series: `(..., L)`.
        size: steps that are averaged.

    Returns:
        `(..., L)`.
    """
    half = size // 2
    exact = series.to(torch.promote_types(series.dtype, torch.float32))
    first = exact[..., :1]
    rows = (exact - first).reshape(-1, 1, series.shape[-1])
    sums = F.pad(rows, (half + 1, half), mode="replicate")[:, 0].cumsum(-1)
    mean = (sums[:, size:] - sums[:, :-size]) / size
    return (mean.view(series.shape) + first).to(series.dtype)
