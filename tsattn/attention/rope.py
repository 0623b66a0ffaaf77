"""Rotary position embedding on interleaved pairs of components.

Source: Su et al., *RoFormer* (2021). Interleaved pairs, never half-split ones: a half-split pair would straddle the
levels of multi-level attention, and a score of a prefix of the components would depend on absolute positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor

from tsattn.constants import ModuleWithConstants
from tsattn.errors import UserError, one_of

__all__ = ["RotaryEmbedding"]


class RotaryEmbedding(ModuleWithConstants):
    """Rotates the pairs (0, 1), (2, 3), ... of a query or key by angles proportional to its position.

    Args:
        width: W, components of a query or key.
        groups: sizes of groups of components (the ranks of multi-level attention). By default every group gets
            frequencies spread over the whole range, so that far pairs, which see only the first group, get slow and
            fast ones.
        frequencies: which pairs get which frequencies: ``spread``, as described for `groups`; ``fast_first``, falling
            from the first pair to the last, so that far pairs under multi-level attention see fast rotations;
            ``slow_first``, rising, so that they see slow ones.
        base: the slowest rotation turns once in about `2 pi base` steps.

    Raises:
        UserError: a group of an odd size, or other `frequencies`.
    """

    FREQUENCIES = ("spread", "fast_first", "slow_first")

    order: Tensor

    def __init__(
        self,
        width: int,
        *,
        groups: Sequence[int] | None = None,
        frequencies: str = "spread",
        base: float = 10_000.0,
    ) -> None:
        super().__init__()
        check_frequencies(frequencies)
        groups = [width] if groups is None else list(groups)
        if any(group % 2 for group in groups):
            raise UserError(f"rotary positions turn pairs of components: ranks must be even, not {groups}")
        order = [*range(width // 2)]
        if frequencies == "spread":
            # a pair's place within its group, as a fraction, decides its place among all pairs
            places = [(pair + 0.5) / (group // 2) for group in groups for pair in range(group // 2)]
            by_place = sorted(order, key=lambda pair: places[pair])
            order = sorted(order, key=lambda pair: by_place[pair])
        elif frequencies == "slow_first":
            order.reverse()
        self.base = base
        # whole numbers, which a cast of the model to low precision does not round
        self.register_constant("order", order, torch.long, cast=False)

    @property
    def frequencies(self) -> Tensor:
        """`(W / 2,)` radians a position by which each pair is turned, in float64 where the device has it."""
        exact = torch.float32 if self.order.device.type == "mps" else torch.float64
        frequencies: Tensor = self.base ** -(self.order.to(exact) / len(self.order))
        return frequencies

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate `x (B, H, N, W)` at `positions (B | 1, N)`."""
        self.fill_constants(x.device)
        frequencies = self.frequencies
        angles = positions[:, None, :, None].to(frequencies.dtype) * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = rearrange(x, "B H N (pair two) -> two B H N pair", two=2)
        rotated = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return rotated.flatten(-2)


def check_frequencies(frequencies: str) -> None:
    """Refuse any other name than those of `RotaryEmbedding.FREQUENCIES`."""
    if frequencies not in RotaryEmbedding.FREQUENCIES:
        raise UserError(f"rope_frequencies must be one of {one_of(RotaryEmbedding.FREQUENCIES)}, not {frequencies!r}")
