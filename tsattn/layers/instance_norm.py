"""Instance normalisation: each window is forecast on its own scale.

Source: Kim et al., *Reversible Instance Normalization* (ICLR 2022), without the affine part.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["InstanceNorm"]


class InstanceNorm:
    """The level and scale of each window and channel, found on the observed steps of its context.

    Args:
        past: `(B, L, C)`, gaps imputed.
        observed: `(B, L, C)` bool; None if all is observed.
        subtract_last: the level is the last observed step, from which a series that wanders goes on, not the mean.
        eps: added to the variance.

    Attributes:
        past: `(B, L, C)`; steps before the first observed one, of which nothing is known, are put at the mean.
        level: `(B, 1, C)`, what is subtracted: the mean of the observed steps, or the last of them; in a window without
            any the same of the imputed ones.
        scale: `(B, 1, C)`, the standard deviation about the mean; 1 in a window without an observed step.
    """

    def __init__(
        self, past: Tensor, observed: Tensor | None = None, *, subtract_last: bool = False, eps: float = 1e-5
    ) -> None:
        variance, mean = torch.var_mean(past, dim=1, correction=0, keepdim=True)
        level = past[:, -1:] if subtract_last else mean
        if observed is not None:
            count = observed.sum(1, keepdim=True)
            known = count > 0
            mean = torch.where(known, (past * observed).sum(1, keepdim=True) / count.clamp(min=1), mean)
            counted = observed.cumsum(1)
            if subtract_last:  # it is the first step by which all are counted
                level = torch.where(known, past.gather(1, counted.argmax(1, keepdim=True)), level)
            else:
                level = mean
            variance = ((past - mean) * observed).square().sum(1, keepdim=True) / count.clamp(min=1)
            variance = torch.where(known, variance, 1.0)
            past = torch.where((counted > 0) | ~known, past, mean)
        self.past = past
        self.level = level
        self.scale = (variance + eps).sqrt()

    def normalised(self) -> Tensor:
        """The context on the scale of the window, `(B, L, C)`."""
        return (self.past - self.level) / self.scale

    def restore(self, forecast: Tensor) -> Tensor:
        """From the scale of the window back to that of the data; forecast `(B, T, C)` or `(B, T, C, Q)`."""
        if forecast.dim() > self.level.dim():
            return forecast * self.scale[..., None] + self.level[..., None]
        return forecast * self.scale + self.level
