"""The pattern slot: which pairs of tokens are scored, with how many of the components; and the pattern of all pairs.

A pattern is one class: it computes attention (`__call__`, a plain reference included), decodes with a cache
(`new_cache`, `decode`), and says what it costs (`cost`) and which pairs it favours (`zones`).

Shape letters as in `tsattn.attention.base`; r components of a query or key, E of a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, TokenRows
from tsattn.errors import UserError
from tsattn.ops.full import IMPLS, full_attention
from tsattn.ops.masks import allowed_pairs
from tsattn.ops.softmax import finite_as, softmax_attention, wide


@dataclass(frozen=True)
class TokenOrigin:
    """The data of the tokens of a sequence, from which a pattern may find blocks.

    Attributes:
        time: `(B, S)` int64, seconds since 1970-01-01 on the clock of the data; None where there are none.
        values: `(B, S, C)`, of each token the mean of its observed steps in the context; None where no pattern reads
            them.
        counts: `(B, S, C)` int64, the number of these steps; None for one each.
    """

    time: Tensor | None = None
    values: Tensor | None = None
    counts: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """The tokens of one call.

    Attributes:
        query_positions: `(B | 1, N)` int.
        key_positions: `(B | 1, S)` int.
        mask: `(B, S)` bool, True at real keys.
        global_tokens: `(B | 1, S)` bool.
        blocks: `(levels, B | 1, S)` int.
        max_length: the length that blocks by number divide.
        counted: whether positions are counted over the real tokens, and blocks found from them.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None = None
    global_tokens: Tensor | None = None
    blocks: Tensor | None = None
    max_length: int | None = None
    counted: bool = False

    @property
    def by_default(self) -> bool:
        """Whether the caller said nothing about the tokens: no padding, positions are counted, blocks found."""
        return self.counted and self.mask is None and self.global_tokens is None


@dataclass(frozen=True)
class PatternCall:
    """How one call scores its queries and keys.

    Attributes:
        tokens: what is known about them.
        scale: factor of the logits.
        causal: a query sees no later key.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        dropout_p: probability of dropping a weight.
        impl: one of the pattern's `impls`.
    """

    tokens: Tokens
    scale: float
    causal: bool = False
    bias: Tensor | None = None
    dropout_p: float = 0.0
    impl: str = "auto"

    def scaled(self, factor: float) -> PatternCall:
        """The call with its scale multiplied."""
        return replace(self, scale=self.scale * factor)

    @property
    def allowed(self) -> Tensor | None:
        """Pairs that a query may see, bool broadcastable to `(B, H, N, S)`; None if it may see every key."""
        known = self.tokens
        return allowed_pairs(known.query_positions, known.key_positions, causal=self.causal, key_mask=known.mask)


@dataclass(frozen=True)
class DecodingStep:
    """How new tokens attend causally to those in a cache and themselves.

    Attributes:
        new: where they stand, from `cache.new_tokens`.
        cache: of the class that the pattern's `new_cache` makes.
        scale: factor of the logits.
        dropout_p: probability of dropping a weight.
        bias: broadcastable to `(B, H, n, S)`, added to the logits of the S positions so far; -inf forbids a pair.
    """

    new: NewTokens
    cache: Any
    scale: float
    dropout_p: float = 0.0
    bias: Tensor | None = None

    def mixed(self, logits: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor:
        """Softmax of the logits `(B, H, n, S)` over the allowed pairs `(1 | B, 1, n, S)`, times v `(B, G, S, E)`.

        `allowed` is None where all pairs are; `bias` belongs to these keys.
        """
        heads, groups = logits.shape[1], v.shape[1]
        if bias is not None:
            logits = logits + finite_as(bias, logits.dtype)
            finite = ~torch.isneginf(bias)
            allowed = (finite if allowed is None else finite & allowed).expand_as(logits)
        grouped = rearrange(logits, "B (G h) n S -> B G (h n) S", G=groups)
        if allowed is not None:
            if allowed.shape[1] == heads > 1:
                allowed = rearrange(allowed, "B (G h) n S -> B G (h n) S", G=groups)
            else:
                allowed = allowed.repeat(1, 1, heads // groups, 1)
        mixed = softmax_attention(grouped, v, allowed=allowed, bias=None, dropout_p=self.dropout_p)
        return rearrange(mixed, "B G (h n) E -> B (G h) n E", h=heads // groups)

    def seen(self, keys: Tensor) -> Tensor | None:
        """`(1 | B, 1, n, S)`: which new tokens see which positions `(1, S)`; None where a single one sees all."""
        alone = self.new.even and self.new.count == 1
        return None if alone else allowed_pairs(self.new.positions, keys, causal=True)


@dataclass(frozen=True)
class PatternCost:
    """The cost of a pattern for one head's queries and keys."""

    multiply_adds: int  # multiplications, each with its addition, that form the scores of T tokens
    cached_keys: int  # key numbers held at the peak while T tokens are generated one by one
    params: int = 0  # numbers that the pattern itself learns


class Pattern(ABC):
    """Scores queries against keys and mixes the values.

    Attributes:
        impls: the valid values of `impl`.
        align: where positions are counted from, see `tsattn.ops.masks.real_positions`.
        takes_context: whether queries may attend to another sequence.
        takes_blocks: whether explicit blocks may be handed in.
        data_blocks: by what the blocks are that `blocks_of` finds in the data, in words; None if it finds none.
        reads_values: whether it finds them in the values that the tokens stand for.
        block_choice: layers whose patterns have equal choices share the blocks that one of them finds. None where each
            pattern is asked.
        needs_max_length: whether `max_length` must be known.
        is_local: whether near tokens are scored otherwise than far ones, so that their order must mean something.
        component_groups: sizes of the groups that the r components fall into, or None for one group.
    """

    impls: tuple[str, ...] = ("auto", "reference", "sdpa")
    align: str = "start"
    takes_context: bool = False
    takes_blocks: bool = False
    data_blocks: str | None = None
    reads_values: bool = False
    block_choice: Hashable | None = None
    needs_max_length: bool = False
    is_local: bool = False
    component_groups: tuple[int, ...] | None = None

    @abstractmethod
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        """Map q `(B, H | 1, N, r)`, k `(B, G | H, S, r)`, v `(B, G, S, E)` to `(B, H, N, E)`."""

    def new_cache(self, batch_size: int, max_length: int | None) -> Cache:
        """Make the cache that `decode` reads. A pattern that can decode overrides both.

        `max_length` is the number of tokens that are expected at most, where that is known.

        Raises:
            UserError: if the pattern cannot decode.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        """Attend from n new tokens to those in the cache and themselves, and add them to it.

        Maps q `(B, H | 1, n, r)`, k `(B, G', n, r)` and v `(B, G, n, E)` to `(B, H, n, E)`: the outputs of `__call__`
        for these tokens at the end of the whole sequence.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

    def blocks_of(self, origin: TokenOrigin) -> Tensor | None:
        """The blocks `(levels, B, S)` that this pattern finds from what the tokens stand for, or None.

        Raises:
            UserError: if it needs time stamps or values and there are none.
        """
        return None

    def num_params(self) -> int:
        """Parameters of the pattern itself, all heads together; what the projection learns is left out."""
        return 0

    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """Multiply-adds and cached key numbers for one head (Kuang et al., section 4).

        Args:
            width: W, components of a query or key.
            tokens: T.
            causal: whether tokens see no later ones.
            max_length: the length that blocks by number and `align="end"` refer to, at least T.

        Raises:
            UserError: if the pattern has no closed form.
        """
        raise UserError(f"the cost of {type(self).__name__} is not known: it has no method cost")

    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        """The pairs that the pattern favours, `(B | 1, N, N)` bool by name, coarse to fine; none if it favours none."""
        return {}

    def level_scores(self, q: Tensor, k: Tensor, call: PatternCall) -> Tensor | None:
        """The share of each level in the logits, `(levels, B, H, N, N)`, at least in float32; None without levels."""
        return None

    def sees_all(self, tokens: int) -> bool:
        """Whether every pair of at most so many tokens is scored with all components, once, as by `FullPattern`."""
        return False


def pair_scores(q: Tensor, k: Tensor) -> Tensor:
    """`q k^T (B, H, n, S)` of q `(B, H | 1, n, r)` and k `(B, G', S, r)`, which no head that shares it copies."""
    heads = max(q.shape[1], k.shape[1])
    grouped = rearrange(q, "B (G h) n r -> B G (h n) r", G=min(q.shape[1], k.shape[1]))
    return (wide(grouped) @ wide(k).transpose(-1, -2)).reshape(q.shape[0], heads, q.shape[2], k.shape[2])


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
    def new_cache(self, batch_size: int, max_length: int | None) -> FullCache:
        return FullCache(batch_size, max_length)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        k, v = step.cache.extend(k, v, step.new)
        allowed = step.seen(torch.arange(k.shape[2], device=k.device)[None])
        return step.mixed(pair_scores(q, k) * step.scale, v, allowed, step.bias)

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """`T^2 W`, and every key is kept."""
        return PatternCost(tokens**2 * width, tokens * width)

    @override
    def sees_all(self, tokens: int) -> bool:
        return type(self) is FullPattern


class FullCache(Cache):
    """Every key and value: `T W` key numbers a head."""

    def __init__(self, batch_size: int, max_length: int | None = None) -> None:
        self._keys, self._values = TokenRows(None, max_length), TokenRows(None, max_length)
        super().__init__(batch_size, (self._keys,), (self._values,))

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[Tensor, Tensor]:
        """Take in new tokens; keys `(B, G', length, W)` and values `(B, G, length, E)` by position, theirs included."""
        self.store(k, v, new)
        return self._keys.first(self.length), self._values.first(self.length)
