"""The loss of a quantile, which is trained and measured by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["quantile_loss"]


def quantile_loss(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Twice the pinball loss of every quantile, so that it is the absolute error at the median.

    This is the loss of the weighted quantile loss of GluonTS and fev: for a level q,
    ``2 q (y - f)`` if the target y lies above the forecast f, ``2 (1 - q) (f - y)`` if it lies below.

    Args:
        forecast: `(..., Q)`.
        target: `(...)`.
        levels: Q levels in (0, 1).

    Returns:
        `(..., Q)`, in the units of the target.
    """
    # half precision would round 0.999 to 1
    level = _levels(tuple(levels), torch.promote_types(forecast.dtype, torch.float32), forecast.device)
    error = target[..., None] - forecast
    return 2 * torch.maximum(level * error, (level - 1) * error)


@lru_cache(maxsize=64)
def _levels(levels: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The levels on a device, sent there once: a copy in each step would hold the host up."""
    with torch.inference_mode(False):  # what validation asks for first, training uses too
        return torch.tensor(levels, dtype=dtype).to(device)
