"""Every pair of tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, FullCache, NewTokens, own_cache
from tsattn.attention.patterns.decoding import mix, pair_scores, seen_by
from tsattn.attention.patterns.pattern import Pattern, Tokens
from tsattn.ops.full import IMPLS, full_attention

__all__ = ["FullPattern"]


class FullPattern(Pattern):
    """Every pair, with all components: ordinary softmax attention."""

    impls: tuple[str, ...] = IMPLS
    takes_context = True

    @override
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        return full_attention(
            q,
            k,
            v,
            causal=causal,
            query_positions=None if tokens.by_default else tokens.query_positions,
            key_positions=None if tokens.by_default else tokens.key_positions,
            key_mask=tokens.mask,
            bias=bias,
            scale=scale,
            dropout_p=dropout_p,
            impl=impl,
        )

    @override
    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> FullCache:
        return FullCache(batch_size, max_length, rewind)

    @override
    def decode(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        new: NewTokens,
        cache: Cache,
        scale: float,
        dropout_p: float,
        bias: Tensor | None = None,
    ) -> Tensor:
        k, v = own_cache(cache, FullCache).extend(k, v, new)
        allowed = seen_by(new, torch.arange(k.shape[2], device=k.device)[None])
        return mix(pair_scores(q, k) * scale, v, allowed=allowed, dropout_p=dropout_p, bias=bias)
