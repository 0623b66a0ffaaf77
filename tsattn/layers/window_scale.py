"""The scale of a window as the Chronos models have it.

Source: Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), and the package chronos-forecasting,
whose Bolt models standardise, and whose Chronos-2 takes the arcsinh after that.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["WindowScale"]


class WindowScale:
    """Mean and standard deviation of the observed steps of each window.

    Unlike `InstanceNorm` nothing is added to the variance, and steps that are missing stay where they are.

    Args:
        context: `(R, L)` one series a row; what stands at missing steps is not read.
        observed: `(R, L)` bool; None if all is observed.
        arcsinh: whether the standardised values are squeezed by the arcsinh.

    Attributes:
        mean: `(R, 1)`; 0 without an observed step.
        scale: `(R, 1)`; 1e-5 where all observed steps are alike, 1 without any.
    """

    def __init__(self, context: Tensor, observed: Tensor | None = None, *, arcsinh: bool = False) -> None:
        # sums of hundreds of steps: never in half precision
        context = context if context.dtype == torch.float64 else context.float()
        if observed is None:
            self.mean = context.mean(-1, keepdim=True)
            scale = (context - self.mean).square().mean(-1, keepdim=True).sqrt()
        else:
            count = observed.sum(-1, keepdim=True)
            context = context.masked_fill(~observed, 0)
            self.mean = context.sum(-1, keepdim=True) / count.clamp(min=1)
            squares = (context - self.mean).square().masked_fill(~observed, 0)
            scale = torch.where(count > 0, (squares.sum(-1, keepdim=True) / count.clamp(min=1)).sqrt(), 1.0)
        self.scale = torch.where(scale == 0, 1e-5, scale)
        self.arcsinh = arcsinh
        self._context = context

    def normalised(self) -> Tensor:
        """The context on the scale of the window, `(R, L)`; what stands at missing steps means nothing."""
        scaled = (self._context - self.mean) / self.scale
        return scaled.arcsinh() if self.arcsinh else scaled

    def restore(self, forecast: Tensor) -> Tensor:
        """From the scale of the window back to that of the context: `(R, ...)`."""
        forecast = forecast.to(self.mean.dtype)
        forecast = forecast.sinh() if self.arcsinh else forecast
        shape = (-1, *[1] * (forecast.dim() - 1))
        return forecast * self.scale.view(shape) + self.mean.view(shape)
