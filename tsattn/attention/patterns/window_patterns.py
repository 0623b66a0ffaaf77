"""Near pairs of tokens: alone, or combined with a part that scores every pair."""

from __future__ import annotations

import math

from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, SplitCache, WindowCache, own_cache
from tsattn.attention.patterns.decoding import bias_at, mix, pair_scores
from tsattn.attention.patterns.full_pattern import FullPattern
from tsattn.attention.patterns.pattern import Pattern, Tokens
from tsattn.errors import UserError, is_whole_number, whole_number
from tsattn.ops.full import IMPLS as FULL_IMPLS
from tsattn.ops.masks import window_pairs
from tsattn.ops.sliding_window import IMPLS, sliding_window_attention

__all__ = ["GlobalSlidingWindowPattern", "SlidingWindowPattern"]


class SlidingWindowPattern(Pattern):
    """Pairs at most `window_size - 1` steps apart, with all components.

    Args:
        window_size: keys on a side, the position itself counted (the paper's w plus one).
    """

    impls = IMPLS
    is_local = True

    def __init__(self, window_size: int) -> None:
        self.window_size = whole_number("window_size", window_size)

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
        return sliding_window_attention(
            q,
            k,
            v,
            window_size=self.window_size,
            positions=None if tokens.by_default else tokens.key_positions,
            causal=causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=bias,
            scale=scale,
            dropout_p=dropout_p,
            impl=impl,
        )

    @override
    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> WindowCache:
        return WindowCache(batch_size, self.window_size, max_length, rewind)

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
        k, v, keys, sees_all = own_cache(cache, WindowCache).extend(k, v, new)
        allowed = None
        if not sees_all:
            near = window_pairs(new.positions, keys, self.window_size)
            allowed = near & (keys[:, None, :] <= new.positions[:, :, None])[:, None]
        bias = bias_at(bias, keys)
        return mix(pair_scores(q, k) * scale, v, allowed=allowed, dropout_p=dropout_p, bias=bias)


class GlobalSlidingWindowPattern(Pattern):
    """Every pair with the first components, near pairs with the rest, each part with a softmax of its own.

    The outputs of the two parts are combined, which is to combine their probabilities (Kuang et al., ICML 2025). A part
    of r of the W components has logits scaled by `scale sqrt(W / r)`: by `1 / sqrt(r)`, its own rank, under a low-rank
    projection. A bias is added to the logits of both parts, and a part in which a query sees no key adds zeros.

    Args:
        width: W, components of a query or key.
        global_rank: components of the global part; all W of them leave no window part.
        window_size: keys on a side, the position itself counted (the paper's w plus one).
        combine: ``mean`` of the two parts, whose weights sum to 1, or ``sum`` (the authors' form), whose weights sum
            to 2.
        scaling: ``head``, as above; ``mup``: `8 sqrt(W) / r` times the scale, `8 / r` under a low-rank projection.

    Raises:
        UserError: a `global_rank`, `window_size`, `combine` or `scaling` that means nothing, or queries of another
            width.
    """

    impls = FULL_IMPLS
    COMBINATIONS = ("mean", "sum")
    SCALINGS = ("head", "mup")

    def __init__(
        self, width: int, global_rank: int, window_size: int, *, combine: str = "mean", scaling: str = "head"
    ) -> None:
        if scaling not in self.SCALINGS:
            raise UserError(f"scaling must be one of {', '.join(self.SCALINGS)}, not {scaling!r}")
        if not is_whole_number(global_rank) or not 1 <= global_rank <= width:
            raise UserError(f"global_rank must be from 1 to {width}, the components of a head, not {global_rank}")
        if combine not in self.COMBINATIONS:
            raise UserError(f"combine must be one of {', '.join(self.COMBINATIONS)}, not {combine!r}")
        self.width = width
        self.global_rank = global_rank
        self.window_rank = width - global_rank
        self.combine = combine
        self.scaling = scaling
        self.global_part = FullPattern()
        self.window_part = SlidingWindowPattern(window_size)
        self.takes_context = not self.window_rank
        self.is_local = bool(self.window_rank)
        self.component_groups = (global_rank, self.window_rank)

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
        if q.shape[-1] != self.width:
            raise UserError(f"queries must have {self.width} components, not {q.shape[-1]}")

        def part(pattern: Pattern, components: slice, rank: int) -> Tensor:
            return pattern(
                q[..., components],
                k[..., components],
                v,
                tokens=tokens,
                causal=causal,
                bias=bias,
                scale=scale * self._factor(rank),
                dropout_p=dropout_p,
                impl=impl,
            )

        everywhere = part(self.global_part, slice(None, self.global_rank), self.global_rank)
        if not self.window_rank:
            return everywhere
        both = everywhere + part(self.window_part, slice(self.global_rank, None), self.window_rank)
        return both / 2 if self.combine == "mean" else both

    @override
    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> SplitCache:
        """The values of the window are kept by both parts."""
        everywhere = self.global_part.new_cache(batch_size, max_length, rewind)
        parts: list[tuple[int, Cache]] = [(self.global_rank, everywhere)]
        if self.window_rank:
            parts.append((self.window_rank, self.window_part.new_cache(batch_size, max_length, rewind)))
        return SplitCache(parts)

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
        cache = own_cache(cache, SplitCache)
        patterns = (self.global_part, self.window_part)
        parts = zip(patterns, cache.parts, cache.split(q), cache.split(k), strict=False)
        outputs = [
            pattern.decode(
                q,
                k,
                v,
                new=new,
                cache=part,
                scale=scale * self._factor(q.shape[-1]),
                dropout_p=dropout_p,
                bias=bias,
            )
            for pattern, part, q, k in parts
        ]
        if len(outputs) == 1:
            return outputs[0]
        both = outputs[0] + outputs[1]
        return both / 2 if self.combine == "mean" else both

    def _factor(self, rank: int) -> float:
        """What the scale of all components is multiplied by for a part of `rank` of them."""
        return 8 * math.sqrt(self.width) / rank if self.scaling == "mup" else math.sqrt(self.width / rank)
