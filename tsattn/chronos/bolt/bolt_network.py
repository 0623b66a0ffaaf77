"""Chronos-Bolt: patches of one channel as tokens of a T5, all quantiles of the horizon at once.

Source: Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), and the Bolt models of
chronos-forecasting. With the same weights (`bolt_file.py` renames them) both compute the same; here the encoder takes
any attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention, attention_per_layer, build_attention
from tsattn.attention.projections import LowRankProjection
from tsattn.backbones.base import Backbone, check_sizes
from tsattn.batch import Batch
from tsattn.chronos.bolt.t5_layers import DistanceBias, ResidualMLP, T5Block, T5Stack, TokenNetwork, WindowScale
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.task import Output, Task

__all__ = ["UNSCALED", "ChronosBolt", "continued_quantiles", "quantiles_of_paths"]

UNSCALED: Description = {"kind": "standard", "scaling": 1.0}
"""The attention of the T5 models, whose logits have no factor."""

_START, _REG = 0, 1  # places in the table of special tokens
# at the start
_PEAK = 6.0  # logit of the token that a head looks at; the others have about 0
_SMALL = 0.1  # share of their size by T5's rules that branches have which add to what is there
_GAIN = 2.0  # of the head, so that small steps of what it reads are steps of the forecast


class ChronosBolt(Backbone):
    """Patches and their masks through an MLP, an encoder and a decoder of one token, to all quantiles of all steps.

    Patches without an observed step are padding. With `reg_token` a last token of the encoder stands for the whole
    window: it sees, and is seen by, every patch, with any attention. The relative bias, windows and blocks count
    patches. In eval mode the quantiles of a step are sorted, which makes no quantile loss larger (Chernozhukov et al.,
    *Quantile and Probability Curves Without Crossing*, Econometrica 2010).

    Args:
        task: the sizes to build for. Contexts may be shorter.
        output: the quantiles to forecast; none for a point forecast.
        patch_len: steps of a patch; the context is padded to whole patches at the front.
        stride: steps from one patch to the next; `patch_len` by default. If it does not divide `patch_len`, the
            context is padded to whole strides, so that the last patch ends at the last step; chronos-forecasting
            leaves the last steps out there.
        d_model: D, the width of the tokens.
        num_layers: blocks of the encoder.
        num_decoder_layers: blocks of the decoder.
        num_heads: H, heads of each attention.
        head_dim: components of a head; D / H by default.
        d_ff: hidden width of the networks on each token; 4 D by default.
        feed_forward: the function of their hidden layers: ``relu``, ``gelu``, ``gelu_tanh`` or ``silu``; or gated,
            ``gated-relu``.
        attention: of the encoder: a kind of attention, its description, or a list of these, one a layer.
        reg_token: whether there is a token for the whole window.
        num_buckets: of the relative bias.
        max_distance: patches from which on the relative bias is the same.
        arcsinh: whether to squeeze the standardised values by the arcsinh.
        dropout: probability of dropping a number of a token or branch in training.
    """

    token: ClassVar[str] = "patch"
    emits_quantiles: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        patch_len: int = 16,
        stride: int | None = None,
        d_model: int = 64,
        num_layers: int = 2,
        num_decoder_layers: int = 1,
        num_heads: int = 4,
        head_dim: int | None = None,
        d_ff: int | None = None,
        feed_forward: str = "relu",
        attention: Description | Sequence[Description] = UNSCALED,
        reg_token: bool = True,
        num_buckets: int = 32,
        max_distance: int = 128,
        arcsinh: bool = False,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, dropout=dropout)
        check_sizes(num_decoder_layers=num_decoder_layers, patch_len=patch_len, head_dim=head_dim, dropout=0.0)
        self.patch_len = patch_len
        self.stride = patch_len if stride is None else stride
        if not 1 <= self.stride <= patch_len:
            raise UserError(
                f"stride must be from 1 to patch_len {patch_len}, so that no step is left out, not {stride}"
            )
        if head_dim is None and d_model % num_heads:
            raise UserError(f"num_heads {num_heads} must divide d_model {d_model}, or give head_dim")
        self.arcsinh = arcsinh
        self.reg_token = reg_token
        self.num_steps = task.prediction_length
        self.num_outputs = output.num
        self.is_point = not output.quantiles
        width = d_model // num_heads if head_dim is None else head_dim
        d_ff = 4 * d_model if d_ff is None else d_ff
        padded = task.context_length + self._lacking(task.context_length)
        self.max_patches = (padded - patch_len) // self.stride + 1

        self.special = nn.Embedding(2 if reg_token else 1, d_model)
        inputs = {"hidden": "input", "skip": "input"}
        self.patch_mlp = ResidualMLP(2 * patch_len, d_ff, d_model, feed_forward, dropout, inputs)
        build = partial(build_attention, d_model=d_model, num_heads=num_heads)
        layers = [
            build(_with_width(one, width), max_length=self.max_patches)
            for one in attention_per_layer(attention, num_layers)
        ]
        for layer in layers:
            if layer.pattern.data_blocks is not None:
                raise UserError(
                    f"backbone chronos_bolt finds no blocks by {layer.pattern.data_blocks}: give numbers or lengths"
                )
        bias = DistanceBias(num_heads, num_buckets, max_distance)
        self.encoder = T5Stack(layers, [], d_ff, feed_forward, dropout, bias)
        plain = _with_width(UNSCALED, width)
        among, across = ([build(plain) for _ in range(num_decoder_layers)] for _ in range(2))
        bias = DistanceBias(num_heads, num_buckets, max_distance, both_ways=False)
        self.decoder = T5Stack(among, across, d_ff, feed_forward, dropout, bias)
        numbers = self.num_outputs * self.num_steps
        outputs = {"output": "output", "skip": "output"}
        self.head = ResidualMLP(d_model, d_ff, numbers, feed_forward, dropout, outputs)
        self._initialise()

    @override
    def forward(self, batch: Batch) -> Tensor:
        C = batch.past.shape[-1]
        context = rearrange(batch.past, "B L C -> (B C) L")
        observed = None if batch.past_observed is None else rearrange(batch.past_observed, "B L C -> (B C) L")
        forecast = rearrange(self.quantiles_of(context, observed), "(B C) Q T -> B T C Q", C=C)
        forecast = forecast.to(torch.promote_types(batch.past.dtype, torch.float32))
        if self.is_point:
            return forecast[..., 0]
        return forecast if self.training else forecast.sort(-1).values

    def quantiles_of(self, context: Tensor, observed: Tensor | None = None) -> Tensor:
        """The quantiles `(R, Q, T)` of series `(R, L)` on their scale, unsorted; Q is 1 for a point forecast.

        Args:
            context: one series a row; values at missing steps are not read.
            observed: `(R, L)` bool; None if all is observed.
        """
        scale = WindowScale(context, observed, arcsinh=self.arcsinh)
        patches, seen = self._patches(scale.normalised().to(self.special.weight.dtype), observed)
        tokens = self.patch_mlp(torch.cat([patches, seen.to(patches.dtype)], -1))
        R, N = tokens.shape[:2]
        mask = None if observed is None else seen.any(-1)
        # a shorter context lies at the end, where the attention's windows and blocks have their last patches
        positions = torch.arange(self.max_patches - N, self.max_patches, device=tokens.device)
        global_tokens = None
        if self.reg_token:
            tokens = torch.cat([tokens, self.special.weight[_REG].expand(R, 1, -1).to(tokens.dtype)], 1)
            mask = None if mask is None else F.pad(mask, (0, 1), value=True)
            positions = torch.cat([positions, positions[-1:]])
            global_tokens = torch.arange(N + 1, device=tokens.device) == N
        encoded = self.encoder(tokens, attention_mask=mask, positions=positions, global_tokens=global_tokens)
        start = self.special.weight[_START].expand(R, 1, -1).to(tokens.dtype)
        decoded = self.decoder(start, context=encoded, context_mask=mask)
        return scale.restore(self.head(decoded[:, 0]).unflatten(-1, (self.num_outputs, self.num_steps)))

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        """The one token of the decoder is ``forecast``, that of the whole window ``window``."""
        if count == 1:
            return ["forecast"]
        patches = count - 1 if self.reg_token else count
        return [*(self.stride * place for place in range(1 - patches, 1)), *(["window"] if self.reg_token else [])]

    def _patches(self, series: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
        """`(R, N, patch_len)` values, 0 where missing, and whether they were observed."""
        lacking = self._lacking(series.shape[-1])
        observed = torch.ones_like(series, dtype=torch.bool) if observed is None else observed
        series = F.pad(series.masked_fill(~observed, 0), (lacking, 0))
        observed = F.pad(observed, (lacking, 0))
        return series.unfold(-1, self.patch_len, self.stride), observed.unfold(-1, self.patch_len, self.stride)

    def _lacking(self, length: int) -> int:
        """Steps of padding, so that a patch ends at the last step."""
        if self.patch_len % self.stride == 0:
            return -length % self.patch_len
        return max(self.patch_len - length, (self.patch_len - length) % self.stride)

    @torch.no_grad()
    def _initialise(self) -> None:
        """Start near a forecast: from T5's own start, thousands of steps yield little more than the window's mean.

        Each head of the encoder looks at one distance, the decoder's token takes over that of the whole window, all
        quantiles of a step read one direction of it, and all other branches add little.
        """
        nn.init.normal_(self.special.weight)
        for mlp in (self.patch_mlp, self.head):
            for linear in (mlp.hidden, mlp.output, mlp.skip):
                nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
                nn.init.zeros_(linear.bias)
            mlp.output.weight.mul_(_SMALL)
        for stack in (self.encoder, self.decoder):
            for part in stack.modules():
                if isinstance(part, nn.Linear):
                    nn.init.normal_(part.weight, std=part.in_features**-0.5)
            for branch in stack.modules():
                if isinstance(branch, Attention):
                    branch.output.weight.mul_(_SMALL)
                    if isinstance(branch.projection, LowRankProjection):
                        unit = math.sqrt(branch.projection.width) * branch.scale
                        branch.projection.query.weight.mul_((_SMALL if stack is self.encoder else 1) / unit)
                elif isinstance(branch, TokenNetwork):
                    branch.output.weight.mul_(_SMALL)
        self.encoder.relative_bias.look_at_distances_(_PEAK)
        self.decoder.relative_bias.weight.zero_()
        for part in self.decoder.modules() if self.reg_token else ():
            if isinstance(part, T5Block) and part.across is not None:
                self._take_over_window(part.across)
        directions = self.head.skip.weight.new_empty(self.num_steps, self.head.skip.in_features)
        self.head.skip.weight.copy_(_GAIN * nn.init.orthogonal_(directions).repeat(self.num_outputs, 1))

    def _take_over_window(self, across: Attention) -> None:
        """Let the decoder's token attend to the token of the whole window, and copy it."""
        projection = across.projection
        assert isinstance(projection, LowRankProjection)
        start, window = (token * token.square().mean().rsqrt() for token in self.special.weight[[_START, _REG]])
        queries = (projection.query.weight @ start).unflatten(0, (-1, projection.width))
        keys = _PEAK / across.scale * queries / queries.square().sum(-1, keepdim=True)
        projection.key.weight.add_(torch.outer(keys.flatten(), window / window.square().sum()))
        nn.init.orthogonal_(across.value.weight)
        across.output.weight.copy_(across.value.weight.T)


def continued_quantiles(
    network: ChronosBolt, levels: Sequence[float], context: Tensor, observed: Tensor | None, most: int, horizon: int
) -> Tensor:
    """Forecast `(R, Q, horizon)`, unsorted, beyond the network's horizon as `ChronosBoltPipeline.predict` does.

    Each quantile forecast becomes a context for the next steps; the quantiles of all these forecasts together are the
    next forecast, so that intervals widen.

    Args:
        network: of Q quantiles at once.
        levels: the Q levels.
        context: `(R, L)` one series a row.
        observed: `(R, L)` bool; None if all is observed.
        most: steps of the longest context that the network reads.
        horizon: steps to forecast.
    """
    R, Q = len(context), len(levels)
    pieces = [network.quantiles_of(context[:, -most:], None if observed is None else observed[:, -most:])]
    if horizon > network.num_steps:
        context = context[:, None].expand(-1, Q, -1)
        observed = None if observed is None else observed[:, None].expand(-1, Q, -1)
    while sum(piece.shape[-1] for piece in pieces) < horizon:
        last = pieces[-1].to(context.dtype)
        context = torch.cat([context, last], -1)[..., -most:]
        if observed is not None:
            observed = torch.cat([observed, torch.ones_like(last, dtype=torch.bool)], -1)[..., -most:]
        seen = None if observed is None else observed.flatten(0, 1)
        paths = network.quantiles_of(context.flatten(0, 1), seen).reshape(R, Q * Q, -1)
        pieces.append(quantiles_of_paths(paths, levels))
    return torch.cat(pieces, -1)[..., :horizon]


def quantiles_of_paths(paths: Tensor, levels: Sequence[float]) -> Tensor:
    """Interpolate the quantiles `(R, Q, T)` of paths `(R, N, T)`, as `torch.quantile`, which stops at 2^24 numbers."""
    places = torch.tensor(levels, dtype=torch.float64) * (paths.shape[1] - 1)
    below, ordered = places.floor(), paths.sort(1).values
    share = (places - below).to(paths)[:, None]
    lower, upper = (ordered[:, at.long().to(paths.device)] for at in (below, places.ceil()))
    return torch.lerp(lower, upper, share)


def _with_width(description: Description, head_dim: int) -> Description:
    described = {"kind": description} if isinstance(description, str) else dict(description)
    return {"head_dim": head_dim, **described}
