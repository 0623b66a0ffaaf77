"""Instance normalisation: each window is forecast on its own scale.

Source: Kim et al., *Reversible Instance Normalization* (ICLR 2022), without the affine part.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["InstanceNorm"]


class InstanceNorm:
    """The level and scale of each window and channel, `(B, 1, C)`, found on the observed steps of its context.

    Args:
        past: `(B, L, C)`.
        observed: `(B, L, C)` bool; None if all is observed.
        eps: added to the variance. A window without an observed step keeps level 0 and scale 1.
    """

    def __init__(self, past: Tensor, observed: Tensor | None = None, eps: float = 1e-5) -> None:
        if observed is None:
            variance, mean = torch.var_mean(past, dim=1, correction=0, keepdim=True)
        else:
            count = observed.sum(1, keepdim=True)
            mean = (past * observed).sum(1, keepdim=True) / count.clamp(min=1)
            variance = ((past - mean) * observed).square().sum(1, keepdim=True) / count.clamp(min=1)
            variance = torch.where(count > 0, variance, 1.0)
        self.mean = mean
        self.scale = (variance + eps).sqrt()

    def normalise(self, x: Tensor) -> Tensor:
        """From the scale of the data to that of the window; x `(B, any, C)`."""
        return (x - self.mean) / self.scale

    def restore(self, x: Tensor) -> Tensor:
        """From the scale of the window back to that of the data; x `(B, any, C)`."""
        return x * self.scale + self.mean
