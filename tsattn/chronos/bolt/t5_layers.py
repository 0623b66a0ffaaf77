"""The parts of a Chronos-Bolt network: the scale of a window, and the layers of T5 with any attention.

Source: Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer* (JMLR 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention
from tsattn.errors import UserError, one_of
from tsattn.layers import BlockStack, Dropout

__all__ = ["DistanceBias", "ResidualMLP", "T5Block", "T5Stack", "TokenNetwork", "WindowScale", "distance_buckets"]

EPS = 1e-6  # added to the mean square

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def _activation(feed_forward: str) -> Callable[[Tensor], Tensor]:
    valid = (*_ACTIVATIONS, *(f"gated-{name}" for name in _ACTIVATIONS))
    if feed_forward not in valid:
        raise UserError(f"feed_forward must be one of {one_of(valid)}, not {feed_forward!r}")
    return _ACTIVATIONS[feed_forward.removeprefix("gated-")]


class ResidualMLP(nn.Module):
    """A network with one hidden layer plus a linear map, `(..., num_inputs)` to `(..., num_outputs)`.

    Source: Das et al., *A decoder-only foundation model for time-series forecasting* (ICML 2024). `mup_roles` are those
    of its layers, see `tsattn.layers.optim`.
    """

    def __init__(
        self, num_inputs: int, d_ff: int, num_outputs: int, feed_forward: str, dropout: float, mup_roles: dict[str, str]
    ) -> None:
        super().__init__()
        self.mup_roles = mup_roles
        self.hidden = nn.Linear(num_inputs, d_ff)
        self.output = nn.Linear(d_ff, num_outputs)
        self.skip = nn.Linear(num_inputs, num_outputs)
        self.dropout = Dropout(dropout)
        self._activation = _activation(feed_forward)

    @override
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.output(self._activation(self.hidden(x))), self.skip(x))
        return out


class TokenNetwork(nn.Module):
    """A hidden layer without biases on each token, gated by a second one (Shazeer, *GLU Variants*, 2020) or not."""

    def __init__(self, d_model: int, d_ff: int, feed_forward: str, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_model, d_ff, bias=False)
        self.gate = nn.Linear(d_model, d_ff, bias=False) if feed_forward.startswith("gated-") else None
        self.output = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)
        self._activation = _activation(feed_forward)

    @override
    def forward(self, x: Tensor) -> Tensor:
        hidden = self._activation(self.hidden(x))
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        out: Tensor = self.output(self.dropout(hidden))
        return out


class DistanceBias(nn.Module):
    """A learned bias for each head and bucket of distances; one serves all layers of a stack.

    The nearest distances have a bucket each, further ones share buckets that grow in proportion to the distance, and
    all from `max_distance` on share the last.

    Args:
        num_heads: H.
        num_buckets: of both directions together, or of the past alone.
        max_distance: in tokens.
        both_ways: whether later tokens have buckets of their own; else each counts as the token itself.
    """

    def __init__(
        self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, *, both_ways: bool = True
    ) -> None:
        super().__init__()
        of_one_way = num_buckets // 2 if both_ways else num_buckets
        if of_one_way < 2 or num_buckets % 2:
            raise UserError(f"num_buckets must be an even number from 4 on, not {num_buckets}")
        if max_distance <= of_one_way // 2:
            raise UserError(f"max_distance must be above {of_one_way // 2} with {num_buckets} buckets: {max_distance}")
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.both_ways = both_ways
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads).normal_(std=0.02))

    def forward(self, num_tokens: int) -> Tensor:
        """The bias `(1, H, N, N)` of N neighbouring tokens; `[..., i, j]`: token i looks at token j."""
        place = torch.arange(num_tokens, device=self.weight.device)
        return self.weight[self.buckets(place[None, :] - place[:, None])].permute(2, 0, 1)[None]

    @torch.no_grad()
    def look_at_distances_(self, peak: float) -> None:
        """Let head h look h + 1 tokens back, with a bias of `peak` there and 0 elsewhere."""
        heads = torch.arange(self.weight.shape[1], device=self.weight.device)
        self.weight.zero_()
        self.weight[self.buckets(-1 - heads), heads] = peak

    def buckets(self, ahead: Tensor) -> Tensor:
        """See `distance_buckets`."""
        return distance_buckets(ahead, self.num_buckets, self.max_distance, both_ways=self.both_ways)


def distance_buckets(ahead: Tensor, num_buckets: int, max_distance: int, *, both_ways: bool) -> Tensor:
    """The bucket of each number of tokens that a key lies ahead of its query, see `DistanceBias`."""
    first = torch.zeros_like(ahead)
    if both_ways:
        num_buckets //= 2
        first = (ahead > 0).long() * num_buckets
        distance = ahead.abs()
    else:
        distance = (-ahead).clamp(min=0)
    exact = num_buckets // 2
    # in float32, in which the pretrained weights were assigned to their buckets
    share = (distance.float().clamp(min=1) / exact).log() / math.log(max_distance / exact)
    far = exact + (share * (num_buckets - exact)).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))


class WindowScale:
    """The mean and standard deviation of the observed steps of each window, as the Chronos models have them.

    Unlike `InstanceNorm` nothing is added to the variance, and missing steps keep their place; their values are not
    read. With `arcsinh`, as in Chronos-2, the arcsinh of standardised values is taken.

    Attributes:
        mean: `(R, 1)`; 0 without an observed step.
        scale: `(R, 1)`; 1e-5 where all observed steps are alike, 1 without any.
    """

    def __init__(self, context: Tensor, observed: Tensor | None = None, *, arcsinh: bool = False) -> None:
        # sums of hundreds of steps: never in half precision
        context = context if context.dtype == torch.float64 else context.float()
        if observed is None:
            self.mean = context.mean(-1, keepdim=True)
            scale = (context - self.mean).square().mean(-1, keepdim=True).sqrt()
        else:
            count = observed.sum(-1, keepdim=True)
            context = context.masked_fill(~observed, 0)
            self.mean = context.sum(-1, keepdim=True) / count.clamp(min=1)
            squares = (context - self.mean).square().masked_fill(~observed, 0)
            scale = torch.where(count > 0, (squares.sum(-1, keepdim=True) / count.clamp(min=1)).sqrt(), 1.0)
        self.scale = torch.where(scale == 0, 1e-5, scale)
        self.arcsinh = arcsinh
        self._context = context

    def normalised(self) -> Tensor:
        """The context on the scale of the window, `(R, L)`; missing steps hold no value."""
        scaled = (self._context - self.mean) / self.scale
        return scaled.arcsinh() if self.arcsinh else scaled

    def restore(self, forecast: Tensor) -> Tensor:
        """Map `(R, ...)` from the scale of the window back to that of the context."""
        forecast = forecast.to(self.mean.dtype)
        forecast = forecast.sinh() if self.arcsinh else forecast
        shape = (-1, *[1] * (forecast.dim() - 1))
        return forecast * self.scale.view(shape) + self.mean.view(shape)


def without_biases(attention: Attention) -> Attention:
    """Remove the biases of an attention's linear maps, and return it."""
    for part in attention.modules():
        if isinstance(part, nn.Linear):
            part.register_parameter("bias", None)
    return attention


class T5Block(nn.Module):
    """Attention, in a decoder also attention to the encoder's tokens (`across`), and a network: each added."""

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
        self, x: Tensor, tokens: dict[str, Tensor | None], context: Tensor | None, context_mask: Tensor | None
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`; `tokens` are arguments of the attention among them."""
        x = self.dropout(self.attention(self.attention_norm(x), **tokens), x)
        if self.across is not None and self.across_norm is not None:
            x = self.dropout(self.across(self.across_norm(x), context, attention_mask=context_mask), x)
        out: Tensor = self.dropout(self.network(self.network_norm(x)), x)
        return out


class T5Stack(BlockStack):
    """A block for each attention, with a relative bias of the logits that all share, and a final normalisation.

    In a decoder, `across` are as many attentions to the tokens of the encoder; in an encoder there are none.
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
        cross: Sequence[Attention | None] = across or [None] * len(attentions)
        pairs = zip(attentions, cross, strict=True)
        self.blocks = nn.ModuleList(T5Block(among, other, d_ff, feed_forward, dropout) for among, other in pairs)
        self.relative_bias = relative_bias
        self.norm = nn.RMSNorm(attentions[0].d_model, eps=EPS)
        self.dropout = Dropout(dropout)

    @override
    def forward(
        self, x: Tensor, *, context: Tensor | None = None, context_mask: Tensor | None = None, **tokens: Tensor | None
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`.

        Args:
            x: the tokens.
            context: `(B, S, D)` the tokens of the encoder, for a decoder.
            context_mask: `(B, S)` bool, which of these are real.
            **tokens: `attention_mask`, `positions` and `global_tokens` of `x`, see `tsattn.attention.Attention`.
        """
        tokens["bias"] = self.relative_bias(x.shape[1])
        x = self.dropout(x)
        for block in self.blocks:
            x = self.run(block, x, tokens, context, context_mask)  # type: ignore[arg-type]
        out: Tensor = self.dropout(self.norm(x))
        return out
