"""Linear maps over the time of each channel."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

__all__ = ["SeriesLinear"]


class SeriesLinear(nn.Module):
    """A linear map of the context of a channel: one map for all channels, or one for each.

    Args:
        context_length: L.
        num_outputs: numbers that it gives.
        channels: C, to have a map for each of them; None for one that they share.
    """

    mup_roles: ClassVar[dict[str, str]] = {"shared": "input", "weight": "input"}  # see tsattn.optim

    def __init__(self, context_length: int, num_outputs: int, channels: int | None = None) -> None:
        super().__init__()
        self.shared = nn.Linear(context_length, num_outputs) if channels is None else None
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if channels is not None:
            # each as nn.Linear starts it; the bias is one vector, on which weight decay does not act
            bound = 1 / math.sqrt(context_length)
            self.weight = nn.Parameter(torch.empty(channels, num_outputs, context_length).uniform_(-bound, bound))
            self.bias = nn.Parameter(torch.empty(channels * num_outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, C, L)` to `(B, C, num_outputs)`."""
        if self.weight is None or self.bias is None:
            assert self.shared is not None
            out: Tensor = self.shared(x)
            return out
        mapped = torch.einsum("bcl,col->bco", x, self.weight)
        return mapped + self.bias.view(*self.weight.shape[:2])
