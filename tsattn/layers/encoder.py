"""The transformer encoder: a stack of blocks, each with the attention that it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from tsattn.attention import Attention
from tsattn.attention.caches import Cache
from tsattn.attention.patterns import TokenOrigin
from tsattn.errors import UserError, one_of
from tsattn.layers.tokens import Dropout

TOKEN_NORMS = ("layer", "batch")
"""``layer`` normalises each token by the mean and variance of its D numbers. ``batch`` normalises each of D features by
its mean and variance over all tokens of a batch, or in eval mode by their running averages, as in PatchTST (Nie et al.,
2023)."""

_COUNTED = ContextVar("_COUNTED", default=False)
"""Whether the running averages already include the current tokens."""


def token_norm(kind: str, d_model: int) -> nn.Module:
    """Build a normalisation of `(..., D)`.

    Args:
        kind: one of `TOKEN_NORMS`.
        d_model: D.

    Raises:
        UserError: for an unknown kind.
    """
    if kind not in TOKEN_NORMS:
        raise UserError(f"norm must be one of {one_of(TOKEN_NORMS)}, not {kind!r}")
    return nn.LayerNorm(d_model) if kind == "layer" else TokenBatchNorm(d_model)


@contextlib.contextmanager
def _second_pass() -> Iterator[None]:
    token = _COUNTED.set(True)
    try:
        yield
    finally:
        _COUNTED.reset(token)


class TokenBatchNorm(nn.Module):
    """`torch.nn.BatchNorm1d` over all tokens, `(..., D)`.

    In a training on several devices, each device normalises by its tokens, unless ``trainer.sync_batchnorm`` is true.

    Args:
        d_model: D.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    @override
    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        out: Tensor = self._without_counting(tokens) if self.training and _COUNTED.get() else self.norm(tokens)
        return out.view_as(x)

    def _without_counting(self, tokens: Tensor) -> Tensor:
        norm = self.norm
        # copies of the averages, so that the second pass saves the same tensors for backward as the first pass
        averages = norm.get_buffer("running_mean").clone(), norm.get_buffer("running_var").clone()
        return F.batch_norm(tokens, *averages, norm.weight, norm.bias, training=True, eps=norm.eps)


class BlockStack(nn.Module):
    """Blocks whose activations the backward pass can recompute to save memory.

    Attributes:
        recompute: keep only the input of each block; the backward pass recomputes the rest, with the same dropout.
            Source: Chen et al., *Training Deep Nets with Sublinear Memory Cost* (2016). False by default; not a part
            of the architecture.
        counts: whether the blocks keep running averages of the tokens.
    """

    def __init__(self, *, counts: bool = False) -> None:
        super().__init__()
        self.recompute = False
        self.counts = counts

    def run(self, block: nn.Module, x: Tensor, *known: Tensor | None) -> Tensor:
        """Apply a block to the tokens `x` and the arguments `known`, as `recompute` says."""
        if self.recompute and torch.is_grad_enabled():
            # torch.compile does not support custom contexts, so use them only if running averages exist
            passes = {"context_fn": lambda: (contextlib.nullcontext(), _second_pass())}
            contexts: dict[str, Any] = passes if self.counts else {}
            out: Tensor = checkpoint(block, x, *known, use_reentrant=False, **contexts)
        else:
            out = block(x, *known)
        return out


class EncoderBlock(nn.Module):
    """Pre-norm block: attention, then a two-layer network on each token; each output is added to its input.

    Args:
        attention: the attention of this layer; its `d_model` is the width D of the tokens.
        d_ff: hidden width of the two-layer network.
        dropout: probability of dropping a number of either branch in training.
        norm: normalisation of the tokens before each branch, see `tsattn.layers.encoder.token_norm`.
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
            blocks: `(levels, B | 1, N)` explicit blocks, for an attention that takes blocks.
            global_tokens: `(N,)` bool, tokens that lie in all blocks.
            cache: the attention's cache of earlier tokens.
        """
        mixed = self.attention(self.attention_norm(x), blocks=blocks, global_tokens=global_tokens, cache=cache)
        x = self.dropout(mixed, x)
        out: Tensor = self.dropout(self.feedforward(self.feedforward_norm(x)), x)
        return out


class Encoder(BlockStack):
    """A stack of blocks, one for each attention, and a final normalisation.

    Args:
        attentions: the attention of each layer, first layer first.
        d_ff: hidden width of the two-layer networks.
        dropout: see `EncoderBlock`.
        norm: see `EncoderBlock`; the final normalisation has the same kind.

    Attributes:
        reads_values: whether an attention finds its blocks from the values of the tokens, see `TokenOrigin`.
    """

    def __init__(self, attentions: Sequence[Attention], d_ff: int, dropout: float, norm: str = "layer") -> None:
        super().__init__(counts=norm == "batch")
        self.blocks = nn.ModuleList(EncoderBlock(attention, d_ff, dropout, norm) for attention in attentions)
        self.norm = token_norm(norm, attentions[0].d_model)
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
            origin: the data of the tokens, from which each attention finds its blocks.
            blocks: instead, `(levels, B | 1, N)` explicit blocks, for each attention that takes blocks.
            global_tokens: `(N,)` bool, tokens that lie in all `blocks`; without blocks they have no effect.
            caches: caches of earlier tokens from `new_caches`, for decoding step by step; they exclude the other
                arguments.

        Raises:
            UserError: for caches with an origin, blocks or global tokens.
        """
        if caches is not None:
            others = {"origin": origin, "blocks": blocks, "global_tokens": global_tokens}
            unfit = [name for name, value in others.items() if value is not None]
            if unfit:
                raise UserError(f"leave out {', '.join(unfit)}: these do not work with caches")
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache=cache)
            decoded: Tensor = self.norm(x)
            return decoded
        origin = TokenOrigin() if origin is None else origin
        found: dict[Hashable, Tensor | None] = {}
        for block, attention in zip(self.blocks, self.attentions, strict=True):
            pattern = attention.pattern
            if blocks is not None and pattern.takes_blocks:
                x = self.run(block, x, blocks, global_tokens)
                continue
            choice = pattern.block_choice  # layers with equal choices share blocks; with None they do not
            if choice is None or choice not in found:
                found[choice] = pattern.blocks_of(origin)
            x = self.run(block, x, found[choice], None)
        out: Tensor = self.norm(x)
        return out

    def new_caches(self, batch_size: int) -> list[Cache]:
        """Make an empty cache for each layer, see `Attention.new_cache`.

        Args:
            batch_size: B.

        Raises:
            UserError: for an attention that cannot decode step by step, for example because it is not causal.
        """
        return [attention.new_cache(batch_size) for attention in self.attentions]

    @property
    def attentions(self) -> list[Attention]:
        """The attentions of the layers, in order."""
        blocks = [block for block in self.blocks if isinstance(block, EncoderBlock)]
        return [block.attention for block in blocks]
