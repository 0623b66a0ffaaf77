"""PatchTST: each channel is a separate series, patches of steps are tokens, and the head is flat.

Source: Nie et al., *A Time Series is Worth 64 Words* (ICLR 2023). The encoder differs: it normalises before each branch
instead of after it, by default token by token (theirs is ``norm: batch``), and takes any attention.
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
from tsattn.layers import Covariates, Encoder, FlattenHead, InstanceNorm, Patches, TokenEmbedding, output_fan
from tsattn.task import Output, Task


class PatchTST(Backbone):
    """An encoder over patches of one channel, with any attention; it forecasts all steps of the horizon at once.

    Args:
        task: the sizes to build for.
        output: the form of the forecast: a point forecast, quantiles or a distribution.
        patch_len: steps of a patch; by default 16, or the context length if it is shorter.
        stride: steps from one patch to the next; half a patch by default, `patch_len` for plain patches.
        d_model: D, the width of the tokens.
        num_layers: encoder blocks.
        num_heads: H, heads of each attention.
        d_ff: hidden width of the token-wise networks; 2 D by default.
        attention: a kind of attention, its description, or a list of these, one per layer. Its tokens are patches.
        positions: ``learned``, ``rotary`` or ``none``.
        linear_path: a linear forecast that is added, see `LinearPath`.
        calendar: also use the time of day, day of the week and time of year of each step, see `CalendarFeatures`.
        dropout: probability of dropping a number of a token or branch in training.
        norm: normalisation of the tokens, ``layer`` or ``batch``, see `tsattn.layers.encoder.token_norm`.
        patch_mask: share of patches whose values are hidden in training, see `TokenEmbedding`; 0 hides none.
        pad_end: add a patch at the end; its steps beyond the context repeat the last step, see `Patches`.
        subtract_last: measure a window from its last value instead of its mean, see `InstanceNorm`.
    """

    token: ClassVar[str] = "patch"
    emits_quantiles: ClassVar[bool] = True
    emits_distributions: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        patch_len: int | None = None,
        stride: int | None = None,
        d_model: int = 64,
        num_layers: int = 2,
        num_heads: int = 8,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        positions: str = "learned",
        linear_path: str = "none",
        calendar: bool = False,
        dropout: float = 0.1,
        norm: str = "layer",
        patch_mask: float = 0.0,
        pad_end: bool = False,
        subtract_last: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, dropout=dropout)
        L, T = task.context_length, task.prediction_length
        patch_len = min(16, L) if patch_len is None else patch_len
        stride = max(1, patch_len // 2) if stride is None else stride
        self.patches = Patches(L, patch_len, stride, pad_end=pad_end)
        N = self.patches.count
        self.tokens = TokenEmbedding(patch_len, d_model, N, positions, dropout, patch_mask)
        self.encoder = Encoder(
            [
                build_attention(layer, d_model=d_model, num_heads=num_heads, max_length=N, rope=positions == "rotary")
                for layer in attention_per_layer(attention, num_layers)
            ],
            2 * d_model if d_ff is None else d_ff,
            dropout,
            norm,
        )
        self.fan = output_fan(output)
        self.head = FlattenHead(N, T, d_model, self.fan.num_outputs)
        self.subtract_last = subtract_last
        self.linear_path = LinearPath(linear_path, task)
        self.linear_path.start_alone(self.head.flat)
        # built last, so that a seed draws equal other parameters with and without covariates
        self.covariates = Covariates(task, calendar, d_model, self.fan.num_outputs, dropout, self.patches)

    @override
    def warm_start(self, solve: Solve) -> None:
        self.linear_path.warm_start(solve)

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        if self.patches.end_padding:
            return [*(self.patches.stride * place for place in range(2 - count, 1)), "repeated end"]
        return [self.patches.stride * place for place in range(1 - count, 1)]

    def _values(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Values and counts of a `TokenOrigin`, `(B C, N, 1)` each; None if no attention reads them."""
        if not self.encoder.reads_values:
            return None, None
        observed = None if batch.past_observed is None else rearrange(batch.past_observed, "B L C -> (B C) L")
        values, counts = self.patches.means(rearrange(batch.past, "B L C -> (B C) L"), observed)
        return values[..., None], counts[..., None]

    @override
    def forward(self, batch: Batch) -> Tensor:
        norm = InstanceNorm(batch.past, batch.past_observed, subtract_last=self.subtract_last)
        past = norm.normalised()
        patches = self.patches(rearrange(past, "B L C -> (B C) L"))
        tokens = self.tokens(patches, self.covariates.embed(batch))
        L, C = past.shape[1:]
        # a patch belongs to the block of its last step
        time = None if batch.time is None else self.patches.ends(batch.time[:, :L]).repeat_interleave(C, dim=0)
        tokens = self.encoder(tokens, TokenOrigin(time, *self._values(batch)))
        raw = self.covariates.add_effect(batch, tokens, self.head(tokens))
        raw = rearrange(raw, "(B C) T Q -> B T C Q", C=C)
        median = self.linear_path(batch, norm, raw[..., 0])
        forecast: Tensor = self.fan(median, raw[..., 1:], norm, batch)
        return forecast
