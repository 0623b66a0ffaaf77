"""Patterns without scores of the tokens: every allowed key alike, or each token alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, WindowCache, own_cache
from tsattn.attention.patterns.full_pattern import FullPattern
from tsattn.attention.patterns.pattern import Pattern, Tokens
from tsattn.ops.full import full_attention_reference
from tsattn.ops.masks import allowed_pairs
from tsattn.ops.unscored import UNSCORED_IMPLS, is_direct, mean_over_keys, mean_over_pairs, own_values, with_heads

__all__ = ["IdentityPattern", "UniformPattern"]


class UniformPattern(FullPattern):
    """Every pair with the same weight: a query gets the mean of the values of its allowed keys.

    A bias is added to logits of zero. It goes with queries and keys of no component.
    """

    impls = UNSCORED_IMPLS

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
        heads, num_queries = q.shape[1], q.shape[2]
        direct = is_direct(impl, bias=bias is not None, dropout=dropout_p > 0)
        if direct and not causal:
            return mean_over_keys(v, heads, num_queries, key_mask=tokens.mask)
        if direct and tokens.by_default:
            return mean_over_keys(v, heads, num_queries, causal=True)
        allowed = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=causal, key_mask=tokens.mask)
        if direct and allowed is not None:
            return mean_over_pairs(v, heads, allowed)
        return full_attention_reference(q, k, v, allowed=allowed, bias=bias, scale=scale, dropout_p=dropout_p)


class IdentityPattern(Pattern):
    """Each token with itself alone, and so its own value; a global token with every token, all alike.

    It goes with queries and keys of no component.
    """

    impls = UNSCORED_IMPLS

    def pairs(self, tokens: Tokens, causal: bool) -> Tensor:
        """Which keys a token mixes, `(B | 1, 1, N, N)` bool."""
        allowed = torch.eye(tokens.key_positions.shape[1], dtype=torch.bool, device=tokens.key_positions.device)[None]
        if tokens.global_tokens is not None:
            allowed = allowed | tokens.global_tokens[:, :, None] | tokens.global_tokens[:, None, :]
        earlier = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=causal, key_mask=tokens.mask)
        return allowed[:, None] if earlier is None else allowed[:, None] & earlier

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
        direct = is_direct(impl, bias=bias is not None, dropout=dropout_p > 0)
        if direct and tokens.global_tokens is None:
            return own_values(v, q.shape[1], tokens.mask)
        allowed = self.pairs(tokens, causal)
        if direct:
            return mean_over_pairs(v, q.shape[1], allowed)
        return full_attention_reference(q, k, v, allowed=allowed, bias=bias, scale=scale, dropout_p=dropout_p)

    @override
    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> WindowCache:
        return WindowCache(batch_size, 1, max_length, rewind)

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
        """A new token sees no other; the cache counts them."""
        own_cache(cache, WindowCache).store(k, v, new)
        mixed = with_heads(v, q.shape[1])
        if dropout_p:
            mixed = mixed * F.dropout(mixed.new_ones(*mixed.shape[:3], 1), dropout_p)
        if bias is None:
            return mixed
        own = new.positions.clamp(min=0)[:, None, :, None].expand(*mixed.shape[:3], 1)
        return mixed.masked_fill(torch.isneginf(bias.expand(*mixed.shape[:3], max(new.after)).gather(-1, own)), 0.0)
