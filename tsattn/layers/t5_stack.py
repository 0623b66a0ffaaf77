"""Encoder and decoder as T5 has them, with any attention in the encoder.

Source: Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer* (JMLR 2020):
normalisation before each branch by the root mean square alone, no biases, and one relative bias of the logits for all
layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from tsattn.attention import Attention
from tsattn.layers.distance_bias import DistanceBias
from tsattn.layers.dropout_layer import Dropout
from tsattn.layers.residual_mlp import TokenNetwork

__all__ = ["T5Block", "T5Stack", "without_biases"]

EPS = 1e-6  # added to the mean square


def without_biases(attention: Attention) -> Attention:
    """The attention itself, its linear maps (of queries, keys, values and the output) left without biases."""
    for part in attention.modules():
        if isinstance(part, nn.Linear):
            part.register_parameter("bias", None)
    return attention


class T5Block(nn.Module):
    """Attention, in a decoder then attention to the encoder's tokens, then a network on each token: each added.

    Args:
        attention: of the tokens among themselves.
        across: of the tokens to those of the encoder; None in an encoder.
        d_ff: hidden width of the network.
        feed_forward: see `TokenNetwork`.
        dropout: probability of dropping a number of a branch in training.
    """

    def __init__(
        self, attention: Attention, across: Attention | None, d_ff: int, feed_forward: str, dropout: float
    ) -> None:
        super().__init__()
        D = attention.d_model
        self.attention_norm = nn.RMSNorm(D, eps=EPS)
        self.attention = without_biases(attention)
        self.across_norm = None if across is None else nn.RMSNorm(D, eps=EPS)
        self.across = None if across is None else without_biases(across)
        self.network_norm = nn.RMSNorm(D, eps=EPS)
        self.network = TokenNetwork(D, d_ff, feed_forward, dropout)
        self.dropout = Dropout(dropout)

    @override
    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        global_tokens: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`; see `T5Stack`, with the bias `(1, H, N, N)` of the logits."""
        tokens = {"attention_mask": mask, "bias": bias, "positions": positions, "global_tokens": global_tokens}
        x = self.dropout(self.attention(self.attention_norm(x), **tokens), x)
        if self.across is not None and self.across_norm is not None:
            x = self.dropout(self.across(self.across_norm(x), context, attention_mask=context_mask), x)
        out: Tensor = self.dropout(self.network(self.network_norm(x)), x)
        return out


class T5Stack(nn.Module):
    """A stack of blocks, one for each attention, with a relative bias that all share, and a final normalisation.

    Args:
        attentions: of the tokens among themselves, first layer first.
        across: of the tokens to those of the encoder, as many; none in an encoder.
        d_ff: hidden width of the networks.
        feed_forward: see `TokenNetwork`.
        dropout: probability of dropping a number of the tokens at either end, or of a branch, in training.
        relative_bias: of the logits.

    Attributes:
        recompute: as that of `Encoder`.
    """

    def __init__(
        self,
        attentions: Sequence[Attention],
        across: Sequence[Attention],
        d_ff: int,
        feed_forward: str,
        dropout: float,
        relative_bias: DistanceBias,
    ) -> None:
        super().__init__()
        beside: Sequence[Attention | None] = across or [None] * len(attentions)
        pairs = zip(attentions, beside, strict=True)
        self.blocks = nn.ModuleList(T5Block(own, other, d_ff, feed_forward, dropout) for own, other in pairs)
        self.relative_bias = relative_bias
        self.norm = nn.RMSNorm(attentions[0].d_model, eps=EPS)
        self.dropout = Dropout(dropout)
        self.recompute = False

    @override
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        global_tokens: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`.

        Args:
            x: the tokens.
            mask: `(B, N)` bool, True at real tokens.
            positions: `(N,)` whole numbers, which windows and blocks come from.
            global_tokens: `(N,)` bool, tokens inside every window and block.
            context: `(B, S, D)` the tokens of the encoder, for a decoder.
            context_mask: `(B, S)` bool, which of these are real.
        """
        recompute = self.recompute and torch.is_grad_enabled()
        known = (self.relative_bias(x.shape[1]), mask, positions, global_tokens, context, context_mask)
        x = self.dropout(x)
        for block in self.blocks:
            x = checkpoint(block, x, *known, use_reentrant=False) if recompute else block(x, *known)
        out: Tensor = self.dropout(self.norm(x))
        return out
