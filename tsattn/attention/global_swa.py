"""Global and sliding-window attention: low-rank projection, a global and a sliding-window part."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.patterns import GlobalSlidingWindowPattern
from tsattn.attention.projections import LowRankProjection

__all__ = ["GlobalSlidingWindowAttention"]


class GlobalSlidingWindowAttention(Attention):
    """Softmax attention over every pair with some components and over near pairs with the rest.

    The weights are those of two softmaxes (Kuang et al., ICML 2025, who compare with it): one over every pair, of
    logits `q . k / sqrt(global_rank)` with the first components of a head, and one over the pairs with
    `|i - j| < window_size` (causal: `0 <= i - j < window_size`), of logits `q . k / sqrt(head size - global_rank)` with
    the others.

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        window_size: keys on a side, the position itself counted.
        global_rank: components of the global part, from 1 to the head size; half of them by default. All of them leave
            no window part: standard attention.
        combine: ``mean``: half the weights of each part, which sum to 1; ``sum``: the authors' form, in which they are
            added as they are and sum to 2.
        scaling: ``head``, the logits above; ``mup``, those of each part of rank r times `8 / r` instead of
            `1 / sqrt(r)`.
        **options: what every kind takes, see `Attention`.

    Raises:
        UserError: a `global_rank`, `window_size`, `combine` or `scaling` that means nothing.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        window_size: int = 32,
        global_rank: int | None = None,
        combine: str = "mean",
        scaling: str = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        head_dim = head_size(d_model, num_heads, options.get("head_dim"))
        global_rank = _half(head_dim) if global_rank is None else global_rank
        projection = LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)
        pattern = GlobalSlidingWindowPattern(head_dim, global_rank, window_size, combine=combine, scaling=scaling)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)


def _half(head_dim: int) -> int:
    """Half of the components, rounded up; to an even number where both parts of an even head can have one."""
    half = -(-head_dim // 2)
    return half + 1 if half % 2 and head_dim % 2 == 0 and head_dim > 2 else half
