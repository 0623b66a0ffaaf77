"""The paper's forecaster: an encoder transformer over time tokens with a direct multi-step head.

Source: Kuang et al. (ICML 2025), section 5 (long-horizon forecasting): 2 layers, 8 heads, attention by description. The
linear path beside the encoder is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from tsattn.attention import attention_per_layer, build_attention
from tsattn.backbones.base import Backbone
from tsattn.backbones.linear import Ridge
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.layers import DirectHead, Encoder, InstanceNorm, TimeTokens
from tsattn.task import Task

__all__ = ["Transformer"]


class Transformer(Backbone):
    """Time steps as tokens, an encoder whose attention is a description, all steps of the horizon at once.

    Args:
        task: the sizes to build for.
        d_model: D, the width of the tokens.
        num_layers: encoder blocks.
        num_heads: H, heads of each attention.
        d_ff: hidden width of the token-wise networks; 2 D by default.
        attention: a kind of attention, its description, or a list of these, one a layer.
        positions: ``learned``, ``rotary`` or ``none``.
        channels: ``mixed``: a token holds all channels of its step; ``independent``: every channel is a series of
            its own, forecast with the same weights.
        linear_path: a linear map of the normalised context that is added to the forecast, so that the encoder learns
            what a linear forecast misses: ``none``; ``learned``, from random weights; or ``ridge``, learned from the
            closed-form ridge of the training windows.
        dropout: probability of dropping a number of a token or branch in training.
    """

    mup_roles: ClassVar[dict[str, str]] = {"linear": "input"}  # see tsattn.optim

    CHANNELS = ("mixed", "independent")
    LINEAR_PATHS = ("none", "learned", "ridge")

    def __init__(
        self,
        task: Task,
        *,
        d_model: int = 64,
        num_layers: int = 2,
        num_heads: int = 8,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        positions: str = "learned",
        channels: str = "mixed",
        linear_path: str = "none",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        d_ff = 2 * d_model if d_ff is None else d_ff
        sizes = {"d_model": d_model, "num_layers": num_layers, "num_heads": num_heads, "d_ff": d_ff}
        for name, size in sizes.items():
            if size < 1:
                raise UserError(f"{name} must be at least 1, not {size}")
        if not 0 <= dropout < 1:
            raise UserError(f"dropout must lie in [0, 1), not {dropout}")
        if channels not in self.CHANNELS:
            raise UserError(f"channels must be one of {', '.join(self.CHANNELS)}, not {channels!r}")
        if linear_path not in self.LINEAR_PATHS:
            raise UserError(f"linear_path must be one of {', '.join(self.LINEAR_PATHS)}, not {linear_path!r}")
        L, T = task.context_length, task.prediction_length
        self.starts_from_ridge = linear_path == "ridge"
        self.independent = channels == "independent"
        per_token = 1 if self.independent else task.num_channels
        self.tokens = TimeTokens(per_token, d_model, L, positions, dropout)
        self.encoder = Encoder(
            [
                build_attention(layer, d_model=d_model, num_heads=num_heads, max_length=L, rope=positions == "rotary")
                for layer in attention_per_layer(attention, num_layers)
            ],
            d_ff,
            dropout,
        )
        self.head = DirectHead(L, T, d_model, per_token)
        self.linear = nn.Linear(L, T) if linear_path != "none" else None
        if self.linear is not None:
            # the forecast starts as the linear one
            nn.init.zeros_(self.head.value.weight)
            nn.init.zeros_(self.head.value.bias)

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """See `Backbone`."""
        if self.linear is not None and self.starts_from_ridge:
            # a map of mean-centred windows, and so of normalised ones too, whose scale it passes through
            self.linear.weight.copy_(Ridge(batches).weight.T)
            self.linear.bias.zero_()

    def forward(self, batch: Batch) -> Tensor:
        """See `Backbone`."""
        norm = InstanceNorm(batch.past, batch.past_observed)
        past = norm.normalised()
        C = past.shape[-1]
        steps = rearrange(past, "B L C -> (B C) L 1") if self.independent else past
        forecast: Tensor = self.head(self.encoder(self.tokens(steps)))
        if self.independent:
            forecast = rearrange(forecast, "(B C) T 1 -> B T C", C=C)
        if self.linear is not None:
            forecast = forecast + self.linear(past.transpose(1, 2)).transpose(1, 2)
        return norm.restore(forecast)
