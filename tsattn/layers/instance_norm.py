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
        eps: added to the variance.

    Attributes:
        past: `(B, L, C)`; steps before the first observed one, of which nothing is known, are put at the level.
        mean: `(B, 1, C)`, the level: the mean of the observed steps, of the imputed ones in a window without any.
        scale: `(B, 1, C)`, the standard deviation; 1 in a window without an observed step.
    """

    def __init__(self, past: Tensor, observed: Tensor | None = None, eps: float = 1e-5) -> None:
        variance, mean = torch.var_mean(past, dim=1, correction=0, keepdim=True)
        if observed is not None:
            count = observed.sum(1, keepdim=True)
            known = count > 0
            mean = torch.where(known, (past * observed).sum(1, keepdim=True) / count.clamp(min=1), mean)
            variance = ((past - mean) * observed).square().sum(1, keepdim=True) / count.clamp(min=1)
            variance = torch.where(known, variance, 1.0)
            seen = observed.cumsum(1) > 0
            past = torch.where(seen | ~known, past, mean)
        self.past = past
        self.mean = mean
        self.scale = (variance + eps).sqrt()

    def normalised(self) -> Tensor:
        """The context on the scale of the window, `(B, L, C)`."""
        return (self.past - self.mean) / self.scale

    def restore(self, forecast: Tensor) -> Tensor:
        """From the scale of the window back to that of the data; forecast `(B, T, C)` or `(B, T, C, Q)`."""
        if forecast.dim() > self.mean.dim():
            return forecast * self.scale[..., None] + self.mean[..., None]
        return forecast * self.scale + self.mean
