"""Sliding-window attention (SWA): low-rank projection, sliding-window pattern."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.patterns import SlidingWindowPattern
from tsattn.attention.projections import LowRankProjection

__all__ = ["SlidingWindowAttention"]


class SlidingWindowAttention(Attention):
    """Softmax attention over the pairs with `|i - j| < window_size` (causal: `0 <= i - j < window_size`).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        window_size: keys on a side, the position itself counted.
        scaling: factor of the logits: ``head``, `1 / sqrt(r)`; ``mup``, `8 / r`, as the authors train under muP; or a
            number.
        **options: what every kind takes, see `Attention`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        window_size: int = 32,
        scaling: str | float = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        head_dim = head_size(d_model, num_heads, options.get("head_dim"))
        projection = LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)
        pattern = SlidingWindowPattern(window_size)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, scaling=scaling, **options)
