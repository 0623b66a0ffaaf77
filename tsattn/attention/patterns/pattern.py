"""What every pattern is: it scores queries against keys and mixes the values.

Shape letters as in `tsattn.attention.base`; r components of a query or key, E of a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from tsattn.attention.caches import Cache, NewTokens
from tsattn.errors import UserError

__all__ = ["Pattern", "TokenOrigin", "Tokens"]


@dataclass(frozen=True)
class TokenOrigin:
    """What the tokens of a sequence stand for, from which a pattern may find blocks.

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
    """What is known about the tokens of one call.

    Attributes:
        query_positions: `(B | 1, N)` int.
        key_positions: `(B | 1, S)` int.
        mask: `(B, S)` bool, True at real keys.
        global_tokens: `(B | 1, S)` bool.
        blocks: `(levels, B | 1, S)` int.
        max_length: the length that blocks by number divide.
        by_default: whether the caller gave nothing about the tokens: no padding, positions are counted, blocks found.
        counted: whether positions are counted over the real tokens, and blocks found from them.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None = None
    global_tokens: Tensor | None = None
    blocks: Tensor | None = None
    max_length: int | None = None
    by_default: bool = False
    counted: bool = False


class Pattern(ABC):
    """Scores queries against keys and mixes the values.

    Attributes:
        impls: the valid values of `impl`.
        align: where positions are counted from, see `tsattn.ops.masks.real_positions`.
        takes_context: whether queries may attend to another sequence.
        takes_blocks: whether explicit blocks may be handed in.
        data_blocks: by what the blocks are that `blocks_of` finds in the data, in words; None if it finds none.
        reads_values: whether it finds them in the values that the tokens stand for.
        block_choice: what decides, with the data, the blocks that it finds: layers whose patterns have the same choice
            find them once. None where each pattern is asked.
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

    def blocks_of(self, origin: TokenOrigin) -> Tensor | None:
        """The blocks `(levels, B, S)` that this pattern finds from what the tokens stand for, or None.

        Raises:
            UserError: if it needs time stamps or values and there are none.
        """
        return None

    def num_params(self) -> int:
        """Parameters of the pattern itself, all heads together; what the projection learns is left out."""
        return 0

    @abstractmethod
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
        """Map q `(B, H | 1, N, r)`, k `(B, G | H, S, r)`, v `(B, G, S, E)` to `(B, H, N, E)`."""

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> Cache:
        """What `decode` keeps of the tokens before. A pattern that is to decode overrides both.

        Args:
            batch_size: B.
            max_length: tokens that are expected at most, where that is known.
            rewind: tokens that `Cache.crop` can take back at any time.

        Raises:
            UserError: if the pattern cannot decode.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

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
        """Attend causally from n new tokens to those in the cache and themselves, and add them to it.

        Args:
            q: `(B, H | 1, n, r)` queries of the new tokens.
            k: `(B, G', n, r)` their keys.
            v: `(B, G, n, E)` their values.
            new: where they stand: what `cache.new_tokens` made.
            cache: what `new_cache` made.
            scale: factor of the logits.
            dropout_p: probability of dropping a weight.
            bias: broadcastable to `(B, H, n, S)`, added to the logits of the S positions so far; -inf forbids a pair.

        Returns:
            `(B, H, n, E)`, what `__call__` gives for these tokens at the end of the whole sequence.

        Raises:
            UserError: if the pattern cannot decode, or the cache is another's.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")
