"""The pattern slot: which pairs of tokens are scored, and with how many of the components.

Shape letters as in `tsattn.attention.base`; r components of a query or key, E of a value.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tsattn.errors import UserError
from tsattn.ops.full import full_attention
from tsattn.ops.masks import allowed_pairs, level_block_ids
from tsattn.ops.multilevel import IMPLS as MULTILEVEL_IMPLS
from tsattn.ops.multilevel import multilevel_attention
from tsattn.ops.sliding_window import IMPLS as WINDOW_IMPLS
from tsattn.ops.sliding_window import sliding_window_attention
from tsattn.ops.tiling import Layout, find_layouts

__all__ = ["FullPattern", "MultiLevelPattern", "Pattern", "SlidingWindowPattern", "Tokens"]


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
        by_default: whether nothing was said of the tokens: one row without padding, positions counted, blocks found.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None = None
    global_tokens: Tensor | None = None
    blocks: Tensor | None = None
    max_length: int | None = None
    by_default: bool = False


class Pattern(ABC):
    """Scores queries against keys and mixes the values.

    Attributes:
        impls: the valid values of `impl`.
        align: where positions are counted from, see `tsattn.ops.masks.real_positions`.
        takes_context: whether queries may attend to another sequence.
        takes_blocks: whether explicit blocks may be handed in.
        needs_max_length: whether `max_length` must be known.
        component_groups: sizes of the groups that the r components fall into, or None for one group.
    """

    impls: ClassVar[tuple[str, ...]] = ("auto", "reference", "sdpa")
    align: str = "start"
    takes_context: bool = False
    takes_blocks: bool = False
    needs_max_length: bool = False
    component_groups: tuple[int, ...] | None = None

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


class FullPattern(Pattern):
    """Every pair, with all components: ordinary softmax attention."""

    takes_context = True

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
        """See `Pattern`."""
        allowed = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=causal, key_mask=tokens.mask)
        return full_attention(q, k, v, allowed=allowed, bias=bias, scale=scale, dropout_p=dropout_p, impl=impl)


class SlidingWindowPattern(Pattern):
    """Pairs at most `window_size - 1` steps apart, with all components.

    Args:
        window_size: keys on a side, the position itself counted (the paper's w plus one).
    """

    impls = WINDOW_IMPLS

    def __init__(self, window_size: int) -> None:
        if window_size < 1:
            raise UserError(f"window_size must be at least 1 (the position itself), not {window_size}")
        self.window_size = window_size

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
        """See `Pattern`."""
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


class MultiLevelPattern(Pattern):
    """Every pair, with the components of the levels in which the two tokens share a block.

    Args:
        ranks: components of each level, coarse to fine.
        numbers: blocks that `max_length` is cut into at each level, each dividing the next.
        lengths: steps in a block at each level instead, each divided by the next.
        align: ``end`` (encoders: the last token closes the last block) or ``start`` (decoding).
    """

    impls = MULTILEVEL_IMPLS
    takes_blocks = True

    def __init__(
        self,
        ranks: Sequence[int],
        *,
        numbers: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        align: str = "end",
    ) -> None:
        if align not in ("start", "end"):
            raise UserError(f"align must be start or end, not {align!r}")
        sizes, what = (numbers, "numbers") if numbers is not None else (lengths, "lengths")
        if sizes is None or len(sizes) != len(ranks):
            raise UserError(f"blocks must have one entry for each of the {len(ranks)} ranks, not {sizes}")
        if any(size < 1 for size in sizes):
            raise UserError(f"block {what} must be at least 1, not {list(sizes)}")
        for coarse, fine in itertools.pairwise(sizes):
            whole, part = (fine, coarse) if numbers is not None else (coarse, fine)
            if whole % part:
                raise UserError(f"block {what} must nest: {part} does not divide {whole} in {list(sizes)}")
        self.ranks = tuple(ranks)
        self.numbers = None if numbers is None else tuple(numbers)
        self.lengths = None if lengths is None else tuple(lengths)
        self.align = align
        self.needs_max_length = numbers is not None or align == "end"
        self.component_groups = self.ranks
        self._layouts: dict[int, list[Layout] | str] = {}

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
        """See `Pattern`."""
        blocks, layouts = tokens.blocks, None
        if blocks is None:
            blocks = level_block_ids(
                tokens.key_positions, numbers=self.numbers, lengths=self.lengths, max_length=tokens.max_length
            )
        elif blocks.shape[0] != len(self.ranks):
            raise UserError(f"blocks must have {len(self.ranks)} levels, not {blocks.shape[0]}")
        if tokens.by_default:
            # the same for every call of this length
            T = q.shape[2]
            if T not in self._layouts:
                self._layouts[T] = find_layouts(blocks, tokens.key_positions)
            layouts = self._layouts[T]
        return multilevel_attention(
            q,
            k,
            v,
            ranks=self.ranks,
            blocks=blocks,
            positions=tokens.key_positions,
            causal=causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=bias,
            scale=scale,
            dropout_p=dropout_p,
            impl=impl,
            layouts=layouts,
        )
