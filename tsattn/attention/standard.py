"""Standard attention: low-rank projection, full pattern."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import LowRankProjection

__all__ = ["StandardAttention"]


class StandardAttention(Attention):
    """Softmax attention with `q = x W_Q`, `k = x W_K` over every pair (Kuang et al., equation 1).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        scaling: factor of the logits: ``head``, `1 / sqrt(r)`; ``mup``, `8 / r`, as the authors train under muP; or a
            number.
        **options: what every kind takes, see `Attention`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, scaling: str | float = "head", **options: Unpack[AttentionOptions]
    ) -> None:
        head_dim = head_size(d_model, num_heads, options.get("head_dim"))
        projection = LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scaling, **options)
