"""The paper's forecaster: an encoder transformer over time tokens with a direct multi-step head.

Source: Kuang et al., ICML 2025, section 5 (long-horizon forecasting). As there, the default has 2 layers and 8 heads.
Any attention can be chosen. The linear path added to the encoder is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.attention import attention_per_layer, build_attention
from tsattn.attention.patterns import TokenOrigin
from tsattn.backbones.base import Backbone, check_sizes
from tsattn.backbones.linear_path import LinearPath, Solve
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.layers import Covariates, DirectHead, Encoder, InstanceNorm, TokenEmbedding, output_fan
from tsattn.task import Output, Task


class Transformer(Backbone):
    """An encoder over time steps as tokens, with any attention; it forecasts all steps of the horizon at once.

    Args:
        task: the sizes to build for.
        output: the form of the forecast: a point forecast, quantiles or a distribution.
        d_model: D, the width of the tokens.
        num_layers: encoder blocks.
        num_heads: H, heads of each attention.
        d_ff: hidden width of the token-wise networks; 2 D by default.
        attention: a kind of attention, its description, or a list of these, one per layer.
        positions: ``learned``, ``rotary`` or ``none``.
        channels: ``mixed``: a token holds all channels of its step. ``independent``: each channel is a separate series;
            all channels share the weights.
        linear_path: a linear forecast that is added, see `LinearPath`.
        calendar: also use the time of day, day of the week and time of year of each step, see `CalendarFeatures`.
        dropout: probability of dropping a number of a token or branch in training.
        norm: normalisation of the tokens, ``layer`` or ``batch``, see `tsattn.layers.encoder.token_norm`.
        subtract_last: measure a window from its last value instead of its mean, see `InstanceNorm`.
    """

    CHANNELS = ("mixed", "independent")
    token: ClassVar[str] = "step"
    emits_quantiles: ClassVar[bool] = True
    emits_distributions: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        d_model: int = 64,
        num_layers: int = 2,
        num_heads: int = 8,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        positions: str = "learned",
        channels: str = "mixed",
        linear_path: str = "none",
        calendar: bool = False,
        dropout: float = 0.1,
        norm: str = "layer",
        subtract_last: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, dropout=dropout)
        if channels not in self.CHANNELS:
            raise UserError(f"channels must be one of {', '.join(self.CHANNELS)}, not {channels!r}")
        L, T = task.context_length, task.prediction_length
        self.independent = channels == "independent"
        per_token = 1 if self.independent else task.num_channels
        self.tokens = TokenEmbedding(per_token, d_model, L, positions, dropout)
        self.encoder = Encoder(
            [
                build_attention(layer, d_model=d_model, num_heads=num_heads, max_length=L, rope=positions == "rotary")
                for layer in attention_per_layer(attention, num_layers)
            ],
            2 * d_model if d_ff is None else d_ff,
            dropout,
            norm,
        )
        self.fan = output_fan(output)
        num_outputs = per_token * self.fan.num_outputs
        self.head = DirectHead(L, T, d_model, num_outputs)
        self.subtract_last = subtract_last
        self.linear_path = LinearPath(linear_path, task)
        self.linear_path.start_alone(self.head.value)
        # built last, so that a seed draws equal other parameters with and without covariates
        self.covariates = Covariates(task, calendar, d_model, num_outputs, dropout)

    @override
    def warm_start(self, solve: Solve) -> None:
        self.linear_path.warm_start(solve)

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        return [*range(1 - count, 1)]

    def _values(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Values and counts of a `TokenOrigin`: with all channels of a step, or each channel as a separate series."""
        values, counts = batch.past, batch.past_observed
        if not self.encoder.reads_values:
            return None, None
        if self.independent:
            values = rearrange(values, "B L C -> (B C) L 1")
            counts = None if counts is None else rearrange(counts, "B L C -> (B C) L 1")
        return values, None if counts is None else counts.long()

    @override
    def forward(self, batch: Batch) -> Tensor:
        norm = InstanceNorm(batch.past, batch.past_observed, subtract_last=self.subtract_last)
        past = norm.normalised()
        C = past.shape[-1]
        steps = rearrange(past, "B L C -> (B C) L 1") if self.independent else past
        time = None if batch.time is None else batch.time[:, : past.shape[1]]
        if time is not None and self.independent:
            time = time.repeat_interleave(C, dim=0)
        tokens = self.tokens(steps, self.covariates.embed(batch))
        tokens = self.encoder(tokens, TokenOrigin(time, *self._values(batch)))
        raw = self.covariates.add_effect(batch, tokens, self.head(tokens))
        shape = "(B C) T Q -> B T C Q" if self.independent else "B T (C Q) -> B T C Q"
        raw = rearrange(raw, shape, C=C)
        median = self.linear_path(batch, norm, raw[..., 0])
        forecast: Tensor = self.fan(median, raw[..., 1:], norm, batch)
        return forecast
