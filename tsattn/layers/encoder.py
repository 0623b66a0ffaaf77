"""The transformer encoder: a block receives an attention, the stack calls a factory for each layer."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tsattn.attention import Attention
from tsattn.attention.caches import Cache
from tsattn.attention.patterns import Pattern, TokenOrigin
from tsattn.errors import UserError
from tsattn.layers.dropout_layer import Dropout
from tsattn.layers.token_norm import computing_anew, token_norm

__all__ = ["Encoder", "EncoderBlock"]


class EncoderBlock(nn.Module):
    """Pre-norm block: attention, then a two-layer network on each token, both added to the stream.

    Args:
        attention: the attention of this layer; its `d_model` is the width D of the stream.
        d_ff: hidden width of the two-layer network.
        dropout: probability of dropping a number of either branch in training.
        norm: of the tokens before each branch, see `tsattn.layers.token_norm`.
    """

    def __init__(self, attention: Attention, d_ff: int, dropout: float, norm: str = "layer") -> None:
        super().__init__()
        d_model = attention.d_model
        self.attention_norm = token_norm(norm, d_model)
        self.attention = attention
        self.feedforward_norm = token_norm(norm, d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.GELU(), Dropout(dropout), nn.Linear(d_ff, d_model)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        blocks: Tensor | None = None,
        global_tokens: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`.

        Args:
            x: the tokens.
            blocks: `(levels, B | 1, N)` explicit blocks, for an attention that takes some.
            global_tokens: `(N,)` bool, tokens that lie in each of these blocks.
            cache: of the attention, with the tokens before these.
        """
        mixed = self.attention(self.attention_norm(x), blocks=blocks, global_tokens=global_tokens, cache=cache)
        x = self.dropout(mixed, x)
        out: Tensor = self.dropout(self.feedforward(self.feedforward_norm(x)), x)
        return out


class Encoder(nn.Module):
    """A stack of blocks, one for each attention, and a final normalisation.

    Args:
        attentions: the attention of each layer, first layer first.
        d_ff: hidden width of the two-layer networks.
        dropout: see `EncoderBlock`.
        norm: see `EncoderBlock`; the final one is of the same kind.

    Attributes:
        recompute: keep only the input of each block for the backward pass, which computes the rest of it anew, with the
            same dropout. Source: Chen et al., *Training Deep Nets with Sublinear Memory Cost* (2016). False at first;
            no part of the architecture.
        counts: whether running averages of the tokens are kept.
        reads_values: whether an attention finds its blocks from the values of the tokens, see `TokenOrigin`.
    """

    def __init__(self, attentions: Sequence[Attention], d_ff: int, dropout: float, norm: str = "layer") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(attention, d_ff, dropout, norm) for attention in attentions)
        self.norm = token_norm(norm, attentions[0].d_model)
        self.counts = norm == "batch"
        self.recompute = False
        self.reads_values = any(attention.pattern.reads_values for attention in attentions)

    def forward(
        self,
        x: Tensor,
        origin: TokenOrigin | None = None,
        blocks: Tensor | None = None,
        global_tokens: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`.

        Args:
            x: the tokens.
            origin: what they stand for, from which each attention finds its blocks.
            blocks: `(levels, B | 1, N)` explicit blocks instead, for each attention that takes some.
            global_tokens: `(N,)` bool, tokens that lie in each of these blocks.
            caches: from `new_caches`, with the tokens before these, for decoding step by step; nothing else is given
                with them.

        Raises:
            UserError: for caches with an origin, blocks or global tokens.
        """
        if caches is not None:
            others = {"origin": origin, "blocks": blocks, "global_tokens": global_tokens}
            unfit = [name for name, value in others.items() if value is not None]
            if unfit:
                raise UserError(f"caches hold plain sequences: {', '.join(unfit)} cannot be given with them")
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache=cache)
            decoded: Tensor = self.norm(x)
            return decoded
        recompute = self.recompute and torch.is_grad_enabled()
        origin = TokenOrigin() if origin is None else origin
        found: dict[Hashable, Tensor | None] = {}
        for block in self.blocks:
            assert isinstance(block, EncoderBlock)
            pattern = block.attention.pattern
            given = blocks is not None and pattern.takes_blocks
            known = (blocks, global_tokens) if given else (_found_once(pattern, origin, found), None)
            if recompute:
                # a compiler takes no contexts of ours, so there are none where nothing is counted
                contexts: dict[str, Any] = {"context_fn": _first_and_anew} if self.counts else {}
                x = checkpoint(block, x, *known, use_reentrant=False, **contexts)
            else:
                x = block(x, *known)
        out: Tensor = self.norm(x)
        return out

    def new_caches(self, batch_size: int) -> list[Cache]:
        """Empty caches, one a layer, see `Attention.new_cache`.

        Args:
            batch_size: B.

        Raises:
            UserError: for an attention that cannot decode step by step, as one that is not causal.
        """
        return [attention.new_cache(batch_size) for attention in self.attentions]

    @property
    def attentions(self) -> list[Attention]:
        """Those of the layers, the first layer's first."""
        blocks = [block for block in self.blocks if isinstance(block, EncoderBlock)]
        return [block.attention for block in blocks]


def _found_once(pattern: Pattern, origin: TokenOrigin, found: dict[Hashable, Tensor | None]) -> Tensor | None:
    """The blocks that a pattern finds; what layers of the same choice have found already is not sought again."""
    choice = pattern.block_choice
    if choice is None:
        return pattern.blocks_of(origin)
    if choice not in found:
        found[choice] = pattern.blocks_of(origin)
    return found[choice]


def _first_and_anew() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
    """What the first pass through a block is within, and what the second."""
    return contextlib.nullcontext(), computing_anew()
