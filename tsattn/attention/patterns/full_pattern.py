"""Every pair of tokens, and the cache of every key."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, TokenRows
from tsattn.attention.patterns.pattern import DecodingStep, Pattern, PatternCall, PatternCost, pair_scores
from tsattn.ops.full import IMPLS, full_attention

__all__ = ["FullCache", "FullPattern"]


class FullPattern(Pattern):
    """Every pair, with all components: ordinary softmax attention."""

    impls: tuple[str, ...] = IMPLS
    takes_context = True

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        tokens = call.tokens
        return full_attention(
            q,
            k,
            v,
            causal=call.causal,
            query_positions=None if tokens.by_default else tokens.query_positions,
            key_positions=None if tokens.by_default else tokens.key_positions,
            key_mask=tokens.mask,
            bias=call.bias,
            scale=call.scale,
            dropout_p=call.dropout_p,
            impl=call.impl,
        )

    @override
    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> FullCache:
        return FullCache(batch_size, max_length, rewind)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        assert isinstance(step.cache, FullCache)
        k, v = step.cache.extend(k, v, step.new)
        allowed = step.seen(torch.arange(k.shape[2], device=k.device)[None])
        return step.mixed(pair_scores(q, k) * step.scale, v, allowed, step.bias)

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int, rewind: int = 0) -> PatternCost:
        """`T^2 W`, and every key is kept."""
        return PatternCost(tokens**2 * width, tokens * width)

    @override
    def sees_all(self, tokens: int) -> bool:
        return type(self) is FullPattern


class FullCache(Cache):
    """Every key and value: `T W` key numbers a head. Any number of tokens can be taken back.

    Args:
        batch_size: B.
        max_length: while there are no more tokens than this, storage is not doubled past it; more may come.
        rewind: see `Cache`.
    """

    def __init__(self, batch_size: int, max_length: int | None = None, rewind: int = 0) -> None:
        self._keys, self._values = TokenRows(None, max_length), TokenRows(None, max_length)
        super().__init__(batch_size, rewind, (self._keys,), (self._values,))

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[Tensor, Tensor]:
        """Take in new tokens; keys `(B, G', length, W)` and values `(B, G, length, E)` by position, theirs included."""
        self.store(k, v, new)
        return self._keys.first(self.length), self._values.first(self.length)

    @override
    def _earliest(self) -> Sequence[int]:
        return (0,) * self.batch_size
