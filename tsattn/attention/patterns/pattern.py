"""Base class of patterns: which pairs are scored, with how many components; and the pattern of all pairs.

A pattern is one class. It computes attention (`__call__`, a plain reference included) and decodes with a cache
(`new_cache`, `decode`). It also gives its cost (`cost`) and the pairs that it favours (`zones`).

Shape letters as in `tsattn.attention.base`; a query or key has r components, a value has E.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
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
        time: `(B, S)` int64, seconds since 1970-01-01 on the clock of the data; None without time stamps.
        values: `(B, S, C)`, for each token the mean of its observed steps in the context; None if no pattern reads
            values.
        counts: `(B, S, C)` int64, the number of these observed steps; None if every token has one step.
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
        counted: whether positions count the real tokens and blocks come from positions.
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
        """Whether the caller gave no padding, positions, blocks or global tokens."""
        return self.counted and self.mask is None and self.global_tokens is None


@dataclass(frozen=True)
class PatternCall:
    """Settings of one call: how it scores its queries and keys.

    Attributes:
        tokens: positions, mask and blocks of the tokens.
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
        """A copy of the call with its scale multiplied by `factor`."""
        return replace(self, scale=self.scale * factor)

    @property
    def allowed(self) -> Tensor | None:
        """Pairs that a query may see, bool broadcastable to `(B, H, N, S)`; None if it may see every key."""
        known = self.tokens
        return allowed_pairs(known.query_positions, known.key_positions, causal=self.causal, key_mask=known.mask)


@dataclass(frozen=True)
class DecodingStep:
    """Settings of one step: new tokens attend causally to cached tokens and to themselves.

    Attributes:
        new: positions of the new tokens, from `cache.new_tokens`.
        cache: the cache of earlier tokens, from the pattern's `new_cache`.
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

        `allowed` is None if all pairs are allowed; `bias` has a column for each of the S keys.
        """
        if bias is not None:
            logits = logits + finite_as(bias, logits.dtype)
            finite = ~torch.isneginf(bias)
            allowed = (finite if allowed is None else finite & allowed).expand_as(logits)
        (B, heads, n, S), groups = logits.shape, v.shape[1]
        rows = heads // groups * n
        if allowed is not None:
            if allowed.shape[1] == heads > 1:
                allowed = allowed.reshape(len(allowed), groups, rows, S)
            else:
                allowed = allowed.repeat(1, 1, heads // groups, 1)
        grouped = logits.reshape(B, groups, rows, S)
        mixed = softmax_attention(grouped, v, allowed=allowed, bias=None, dropout_p=self.dropout_p)
        return mixed.reshape(B, heads, n, v.shape[-1])

    def seen(self, keys: Tensor) -> Tensor | None:
        """`(1 | B, 1, n, S)`: which new tokens see which positions `(1, S)`; None for a single token that sees all."""
        alone = self.new.even and self.new.count == 1
        return None if alone else allowed_pairs(self.new.positions, keys, causal=True)


@dataclass(frozen=True)
class PatternCost:
    """The cost of a pattern for one head's queries and keys."""

    multiply_adds: int  # multiplications, each with its addition, that form the scores of T tokens
    cached_keys: int  # most key numbers that are cached at a time while T tokens are generated one by one
    params: int = 0  # learned numbers of the pattern


class Pattern(ABC):
    """Scores queries against keys and mixes the values.

    Attributes:
        impls: the valid values of `impl`.
        align: where positions are counted from, see `tsattn.ops.masks.real_positions`.
        takes_context: whether queries may attend to another sequence.
        takes_blocks: whether explicit blocks may be handed in.
        data_blocks: the source of blocks that `blocks_of` finds in the data, in words; None if it finds no blocks.
        reads_values: whether `blocks_of` needs the values of the tokens.
        block_choice: layers with equal choices share the blocks that one of their patterns finds. None if each pattern
            finds its blocks.
        needs_max_length: whether `max_length` must be known.
        is_local: whether near tokens are scored differently from far tokens, so that their order must have a meaning.
        component_groups: sizes of the groups of the r components, or None for one group.
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
        """Make the cache that `decode` reads. A pattern that can decode overrides both methods.

        `max_length` is the largest number of tokens, or None if it is unknown.

        Raises:
            UserError: if the pattern cannot decode.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        """Attend from n new tokens to the cached tokens and to themselves, and add them to the cache.

        Maps q `(B, H | 1, n, r)`, k `(B, G', n, r)` and v `(B, G, n, E)` to `(B, H, n, E)`. The result equals the last
        n outputs of `__call__` on the whole sequence.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

    def blocks_of(self, origin: TokenOrigin) -> Tensor | None:
        """The blocks `(levels, B, S)` that this pattern finds in the data of the tokens, or None.

        Raises:
            UserError: if the pattern needs time stamps or values and `origin` has none.
        """
        return None

    def num_params(self) -> int:
        """Number of parameters of the pattern, all heads together, without the projection."""
        return 0

    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """Multiply-adds and cached key numbers for one head (Kuang et al., section 4).

        Args:
            width: W, components of a query or key.
            tokens: T.
            causal: whether each token sees only itself and earlier tokens.
            max_length: the length that blocks by number and `align="end"` refer to, at least T.

        Raises:
            UserError: if the pattern has no closed form.
        """
        raise UserError(f"the cost of {type(self).__name__} is not known: it has no method cost")

    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        """The pairs that the pattern favours, `(B | 1, N, N)` bool by name, coarse to fine; may be empty."""
        return {}

    def level_scores(self, q: Tensor, k: Tensor, call: PatternCall) -> Tensor | None:
        """The share of each level in the logits, `(levels, B, H, N, N)`, at least in float32; None without levels."""
        return None

    def sees_all(self, tokens: int) -> bool:
        """Whether the pattern scores every pair of the positions 0 to `tokens - 1` as `FullPattern` does."""
        return False


def pair_scores(q: Tensor, k: Tensor) -> Tensor:
    """`q k^T (B, H, n, S)` of q `(B, H | 1, n, r)` and k `(B, G', S, r)`; heads that share a key do not copy it."""
    B, heads, n, r = q.shape
    groups = min(heads, k.shape[1])
    scores = wide(q.reshape(B, groups, heads // groups * n, r)) @ wide(k).mT
    return scores.reshape(B, max(heads, k.shape[1]), n, k.shape[2])


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
        """Add new tokens. Return all keys `(B, G', length, W)` and values `(B, G, length, E)`, by position."""
        self.store(k, v, new)
        return self._keys.first(self.length), self._values.first(self.length)
