"""Patterns that score near pairs, alone or together with a part that scores every pair; and their caches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, TokenRows
from tsattn.attention.patterns.pattern import DecodingStep, FullPattern, Pattern, PatternCall, PatternCost, pair_scores
from tsattn.errors import UserError, is_whole_number, whole_number
from tsattn.ops.full import IMPLS as FULL_IMPLS
from tsattn.ops.masks import allowed_pairs, window_pairs
from tsattn.ops.sliding_window import IMPLS, sliding_window_attention


class SlidingWindowPattern(Pattern):
    """Pairs at most `window_size - 1` steps apart, with all components.

    Args:
        window_size: keys on each side, the token itself included (the paper's w plus one).
    """

    impls = IMPLS
    is_local = True

    def __init__(self, window_size: int) -> None:
        self.window_size = whole_number("window_size", window_size)

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        tokens = call.tokens
        return sliding_window_attention(
            q,
            k,
            v,
            window_size=self.window_size,
            positions=None if tokens.by_default else tokens.key_positions,
            causal=call.causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=call.bias,
            scale=call.scale,
            dropout_p=call.dropout_p,
            impl=call.impl,
        )

    @override
    def new_cache(self, batch_size: int, max_length: int | None) -> WindowCache:
        return WindowCache(batch_size, self.window_size, max_length)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        k, v, keys, sees_all = step.cache.extend(k, v, step.new)
        allowed, at = None, step.new.positions
        if not sees_all:
            near = window_pairs(at, keys, self.window_size)
            allowed = near & (keys[:, None, :] <= at[:, :, None])[:, None]
        return step.mixed(pair_scores(q, k) * step.scale, v, allowed, _bias_at(step.bias, keys))

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """`T (2 w - 1) W`, or `T w W` if causal, but at most the cost of all pairs; w keys are cached."""
        window = self.window_size
        keys = min(tokens, window if causal else 2 * window - 1)
        return PatternCost(tokens * keys * width, min(tokens, window) * width)

    @override
    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        queries, keys, special = call.tokens.query_positions, call.tokens.key_positions, call.tokens.global_tokens
        near = window_pairs(queries, keys, self.window_size, global_queries=special, global_keys=special)
        earlier = allowed_pairs(queries, keys, causal=call.causal)
        return {f"window of {self.window_size}": (near if earlier is None else near & earlier)[:, 0]}

    @override
    def sees_all(self, tokens: int) -> bool:
        return self.window_size >= tokens


class GlobalSlidingWindowPattern(Pattern):
    """Two parts with a softmax each: the first components score every pair, the rest score near pairs.

    Combining the outputs of the two parts combines their probabilities (Kuang et al., ICML 2025). A part with r of the
    W components scales its logits by `scale sqrt(W / r)`, which is `1 / sqrt(r)` under a low-rank projection. A bias is
    added to the logits of both parts. A part in which a query sees no key adds zeros.

    Args:
        width: W, components of a query or key.
        global_rank: components of the global part; with all W of them there is no window part.
        window_size: keys on each side, the token itself included (the paper's w plus one).
        combine: ``mean`` of the two parts, whose weights sum to 1, or ``sum`` (the authors' form), whose weights sum
            to 2.
        scaling: ``head``, as above; ``mup``: `8 sqrt(W) / r` times the scale, `8 / r` under a low-rank projection.

    Raises:
        UserError: for an invalid `global_rank`, `window_size`, `combine` or `scaling`, or queries whose width is not
            W.
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

    @property
    def parts(self) -> list[tuple[int, Pattern]]:
        """The components and the pattern of each part."""
        parts: list[tuple[int, Pattern]] = [(self.global_rank, self.global_part), (self.window_rank, self.window_part)]
        return parts if self.window_rank else parts[:1]

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        if q.shape[-1] != self.width:
            raise UserError(f"queries must have {self.width} components, not {q.shape[-1]}")
        at, outputs = 0, []
        for rank, pattern in self.parts:
            part = slice(at, at + rank)
            outputs.append(pattern(q[..., part], k[..., part], v, call.scaled(self._factor(rank))))
            at += rank
        return self._combined(outputs)

    @override
    def new_cache(self, batch_size: int, max_length: int | None) -> SplitCache:
        """A cache for each part; both store the values of the window."""
        return SplitCache([(rank, part.new_cache(batch_size, max_length)) for rank, part in self.parts])

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        cache, outputs = step.cache, []
        for (rank, pattern), *parts in zip(self.parts, cache.split(q), cache.split(k), cache.parts, strict=True):
            queries, keys, part = parts
            own = replace(step, cache=part, scale=step.scale * self._factor(rank))
            outputs.append(pattern.decode(queries, keys, v, own))
        return self._combined(outputs)

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """The sum of the costs of the two parts, each with its components."""
        parts = [part.cost(rank, tokens, causal=causal, max_length=max_length) for rank, part in self.parts]
        return PatternCost(sum(part.multiply_adds for part in parts), sum(part.cached_keys for part in parts))

    @override
    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        return self.window_part.zones(call) if self.window_rank else {}

    @override
    def sees_all(self, tokens: int) -> bool:
        return not self.window_rank and self.scaling == "head"

    def _combined(self, outputs: Sequence[Tensor]) -> Tensor:
        if len(outputs) == 1:
            return outputs[0]
        both = outputs[0] + outputs[1]
        return both / 2 if self.combine == "mean" else both

    def _factor(self, rank: int) -> float:
        """The factor of the call's scale for a part with `rank` of the W components."""
        return 8 * math.sqrt(self.width) / rank if self.scaling == "mup" else math.sqrt(self.width / rank)


class WindowCache(Cache):
    """The last `window_size` keys and values, in a ring: `min(T, w) W` key numbers a head."""

    def __init__(self, batch_size: int, window_size: int, max_length: int | None = None) -> None:
        self.window_size = window_size
        self._keys, self._values = (TokenRows(window_size, max_length) for _ in range(2))
        super().__init__(batch_size, (self._keys,), (self._values,))

    @property
    @override
    def kind(self) -> str:
        return f"WindowCache of {self.window_size}"

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[Tensor, Tensor, Tensor, bool]:
        """Add tokens. Return keys, values and positions in the ring's order, and whether a single token sees all."""
        later = max(new.after)
        if new.count == 1:
            self.store(k, v, new)
            keys, positions = self._keys.held(new.after, later)
            return keys, self._values.first(keys.shape[2]), positions, new.even
        # read before writing: the last new tokens overwrite keys that the first new tokens see
        seen = new.without_padding(k), new.without_padding(v), new.key_positions
        if max(new.before):
            keys, positions = self._keys.held(new.before, later)
            positions, at = (t.expand(max(len(positions), len(seen[2])), -1) for t in (positions, seen[2]))
            seen = (
                torch.cat([keys, seen[0]], 2),
                torch.cat([self._values.first(keys.shape[2]), seen[1]], 2),
                torch.cat([positions, at], 1),
            )
        self.store(k, v, new)
        return *seen, False


class SplitCache(Cache):
    """A cache for each part of the components; `parts` gives the number of components and the cache of each."""

    def __init__(self, parts: Sequence[tuple[int, Cache]]) -> None:
        self.widths = [width for width, _ in parts]
        self.parts = [part for _, part in parts]
        keys = [rows for part in self.parts for rows in part.key_rows]
        values = [rows for part in self.parts for rows in part.value_rows]
        super().__init__(self.parts[0].batch_size, keys, values)

    @property
    @override
    def lengths(self) -> tuple[int, ...]:
        return self.parts[0].lengths

    @override
    def advance(self, lengths: tuple[int, ...]) -> None:
        for part in self.parts:
            part.advance(lengths)

    @property
    @override
    def kind(self) -> str:
        parts = zip(self.widths, self.parts, strict=True)
        return "SplitCache of " + ", ".join(f"{width} components in a {part.kind}" for width, part in parts)

    @override
    def split(self, components: Tensor) -> Sequence[Tensor]:
        return torch.split(components, self.widths, -1)


def _bias_at(bias: Tensor | None, keys: Tensor) -> Tensor | None:
    """The columns of a bias (a number or `(.. n, length | 1)`) that belong to keys at positions `(1 | B, S)`."""
    if bias is None or not bias.dim() or bias.shape[-1] == 1:
        return bias
    keys = keys.clamp(0, bias.shape[-1] - 1)  # unused rows have later positions, which no token sees
    if len(keys) == 1:
        return bias[..., keys[0]]
    bias = bias.expand(len(keys), *([1] * (3 - bias.dim())), *bias.shape[-3 if bias.dim() > 2 else -2 :])
    return bias.gather(-1, keys[:, None, None, :].expand(*bias.shape[:-1], -1))
