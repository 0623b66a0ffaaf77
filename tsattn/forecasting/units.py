"""From the scale of a batch back to original units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tsattn.forecasting.metrics import EXACT

__all__ = ["Units"]


class Units(nn.Module):
    """Mean and scale of every series, kept precise when the model around them is cast to another precision.

    Args:
        mean: `(S, C)` of each series and channel; `(1, C)` serves all series.
        scale: `(S, C)`; ``original = scaled * scale + mean``.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Any, scale: Any) -> None:
        super().__init__()
        for name, table in (("mean", mean), ("scale", scale)):
            self.register_buffer(name, torch.as_tensor(table, dtype=EXACT), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        moved: nn.Module = super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return moved

    def of(self, series_id: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and scale of the windows of these series `(B,)`: two `(B, 1, C)`, or `(1, 1, C)` if all share one."""
        if len(self.mean) == 1 or series_id is None:
            return self.mean[:1, None], self.scale[:1, None]
        return self.mean[series_id, None], self.scale[series_id, None]

    def restore(self, scaled: Tensor, series_id: Tensor | None = None) -> Tensor:
        """Values or forecasts `(B, T, C)` or `(B, T, C, Q)` of the scale of the batch, in original units (float64)."""
        mean, scale = self.of(series_id)
        if scaled.dim() == 4:
            mean, scale = mean[..., None], scale[..., None]
        return scaled.to(EXACT) * scale + mean
