"""Rotary positions of a converted Chronos-2 layer."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn

__all__ = ["PairRotation", "distance_shares"]


def distance_shares(tokens: int, device: torch.device) -> Tensor:
    """`(tokens,)`: the share of pairs of so many tokens that are 0, 1, .. apart, to either side."""
    shares = (tokens - torch.arange(tokens, dtype=torch.float64, device=device)) / tokens**2
    shares[1:] *= 2
    return shares


class PairRotation(nn.Module):
    """Rotates interleaved pairs of components, each at the frequency that it had in the original.

    The original rotates component p together with component p + r/2. Which pair of a head stands where is a choice of
    the conversion, and part of the weights.

    Args:
        order: `(H, r/2)` int, of each pair of each head its number in the original, from fast to slow.
        base: the original's base.
    """

    order: Tensor

    def __init__(self, order: Tensor, base: float) -> None:
        super().__init__()
        self.base = base
        self.register_buffer("order", order.long())

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate `x (B, H, N, r)` at `positions (1, N)`.

        Angles are counted from the first token and computed in float32, as the original's, whose rounding at long
        contexts is then met: only differences of positions count.
        """
        pairs = self.order.shape[-1]
        turns = torch.arange(pairs, device=x.device).float() * 2 / (2 * pairs)
        frequencies = 1.0 / (self.base**turns)
        angles = (positions - positions[:, :1]).float()[:, None, :, None] * frequencies[self.order][:, None]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = rearrange(x, "B H N (pair two) -> two B H N pair", two=2)
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
