"""Chronos-Bolt: patches of one channel as tokens of a T5, all quantiles of the horizon at once.

Source: Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), and the Bolt models of
chronos-forecasting; Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*
(JMLR 2020). With the same weights (`bolt_file.py` renames them) both compute the same; here the encoder takes any
attention.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention, attention_per_layer, build_attention
from tsattn.attention.projections import LowRankProjection
from tsattn.backbones.base import Backbone, check_sizes
from tsattn.batch import Batch
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of
from tsattn.layers import BlockStack, Dropout
from tsattn.task import Output, Task

UNSCALED: Description = {"kind": "standard", "scaling": 1.0}
"""The attention of the T5 models, whose logits have no factor."""

_START, _REG = 0, 1  # places in the table of special tokens
# of `_initialise`
_PEAK = 6.0  # logit of the token that a head looks at; the others have about 0
_SMALL = 0.1  # size of branches that are added, as a share of T5's
_GAIN = 2.0  # of the head, so that small steps of its input are steps of the forecast


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
        self.num_outputs = max(1, len(output.quantiles))
        self.is_point = not output.quantiles
        width = d_model // num_heads if head_dim is None else head_dim
        d_ff = 4 * d_model if d_ff is None else d_ff
        padded = task.context_length + self._lacking(task.context_length)
        self.max_patches = (padded - patch_len) // self.stride + 1

        count = 2 if reg_token else 1
        self.special = nn.Embedding(count, d_model, _weight=_normal(count, d_model))
        inputs = {"hidden": "input", "skip": "input"}
        self.patch_mlp = ResidualMLP(2 * patch_len, d_ff, d_model, feed_forward, dropout, inputs)

        def build(described: Description, **more: Any) -> Attention:
            described = {"kind": described} if isinstance(described, str) else described
            return build_attention({"head_dim": width, **described}, d_model=d_model, num_heads=num_heads, **more)

        layers = [build(one, max_length=self.max_patches) for one in attention_per_layer(attention, num_layers)]
        for layer in layers:
            if layer.pattern.data_blocks is not None:
                raise UserError(
                    f"backbone chronos_bolt finds no blocks by {layer.pattern.data_blocks}: give numbers or lengths"
                )
        bias = DistanceBias(num_heads, num_buckets, max_distance)
        self.encoder = T5Stack(layers, [], d_ff, feed_forward, dropout, bias)
        among, across = ([build(UNSCALED) for _ in range(num_decoder_layers)] for _ in range(2))
        bias = DistanceBias(num_heads, num_buckets, max_distance, both_ways=False)
        self.decoder = T5Stack(among, across, d_ff, feed_forward, dropout, bias)
        numbers = self.num_outputs * self.num_steps
        outputs = {"output": "output", "skip": "output"}
        self.head = ResidualMLP(d_model, d_ff, numbers, feed_forward, dropout, outputs)
        if not self.special.weight.is_meta:
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
        """Forecast quantiles `(R, Q, T)` of series `(R, L)` on their scale, unsorted; Q is 1 for a point forecast.

        Values where `observed (R, L)` is False are not read; None if all are observed.
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
        observed = torch.ones_like(series, dtype=torch.bool) if observed is None else observed
        padding = (self._lacking(series.shape[-1]), 0)
        parts = F.pad(series.masked_fill(~observed, 0), padding), F.pad(observed, padding)
        values, seen = (part.unfold(-1, self.patch_len, self.stride) for part in parts)
        return values, seen

    def _lacking(self, length: int) -> int:
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
        for owner in (self.patch_mlp, self.head, self.encoder, self.decoder):
            for part in owner.modules():
                if isinstance(part, nn.Linear):
                    nn.init.normal_(part.weight, std=part.in_features**-0.5)
                    if part.bias is not None:
                        nn.init.zeros_(part.bias)
        for mlp in (self.patch_mlp, self.head):
            mlp.output.weight.mul_(_SMALL)
        for stack in (self.encoder, self.decoder):
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
        blocks: Any = self.decoder.blocks if self.reg_token else ()
        for block in blocks:
            # the decoder's token attends to that of the whole window, and copies it
            start, window = (token * token.square().mean().rsqrt() for token in self.special.weight[[_START, _REG]])
            across, projection = block.across, block.across.projection
            queries = (projection.query.weight @ start).unflatten(0, (-1, projection.width))
            keys = _PEAK / across.scale * queries / queries.square().sum(-1, keepdim=True)
            projection.key.weight.add_(torch.outer(keys.flatten(), window / window.square().sum()))
            nn.init.orthogonal_(across.value.weight)
            across.output.weight.copy_(across.value.weight.T)
        directions = self.head.skip.weight.new_empty(self.num_steps, self.head.skip.in_features)
        self.head.skip.weight.copy_(_GAIN * nn.init.orthogonal_(directions).repeat(self.num_outputs, 1))


def continued_quantiles(
    network: ChronosBolt, levels: Sequence[float], context: Tensor, observed: Tensor | None, most: int, horizon: int
) -> Tensor:
    """Forecast `(R, Q, horizon)`, unsorted, beyond the network's horizon as `ChronosBoltPipeline.predict` does.

    Each quantile forecast becomes a context `(R, L)` for the next steps, of which the network reads `most`; the
    quantiles of all these forecasts together are the next forecast, so that intervals widen. `observed (R, L)` is None
    if all is observed.
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


def _normal(*shape: int, std: float = 1.0) -> Tensor:
    """Draw weights; on ``meta``, where `normal_` would import PyTorch's compiler, there is nothing to draw."""
    weight = torch.empty(*shape)
    return weight if weight.is_meta else weight.normal_(std=std)


EPS = 1e-6  # added to the mean square

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def _activation(feed_forward: str) -> Callable[[Tensor], Tensor]:
    valid = [f"{gate}{name}" for gate in ("", "gated-") for name in _ACTIVATIONS]
    if feed_forward not in valid:
        raise UserError(f"feed_forward must be one of {one_of(valid)}, not {feed_forward!r}")
    return _ACTIVATIONS[feed_forward.removeprefix("gated-")]


class ResidualMLP(nn.Module):
    """A network with one hidden layer plus a linear map (Das et al., *A decoder-only foundation model*, ICML 2024)."""

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
    """A learned bias for each head and bucket of distances in tokens; one serves all layers of a stack.

    The nearest distances have a bucket each, further ones share buckets that grow in proportion to the distance, and
    all from `max_distance` on share the last. `both_ways`, later tokens have half of the buckets; else each counts as
    the token itself.
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
        self.weight = nn.Parameter(_normal(num_buckets, num_heads, std=0.02))

    @classmethod
    def of(cls, original: Any) -> DistanceBias:
        """Copy the relative bias of a `T5Attention` of transformers."""
        sizes = original.relative_attention_num_buckets, original.relative_attention_max_distance
        with torch.device("meta"):  # so that nothing is drawn
            bias = cls(original.n_heads, *sizes, both_ways=not original.is_decoder)
        bias.weight = copy.deepcopy(original.relative_attention_bias.weight)
        return bias

    def forward(self, num_tokens: int) -> Tensor:
        """The bias `(1, H, N, N)` of N neighbouring tokens; `[..., i, j]`: token i looks at token j."""
        place = torch.arange(num_tokens, device=self.weight.device)
        return self.weight[self.buckets(place[None, :] - place[:, None])].permute(2, 0, 1)[None]

    def of_many(self, queries: int, keys: int, seen: int) -> Tensor:
        """`(1, H, N, S)`: of the last `queries` tokens, before which `seen` came, looking at the first `keys`."""
        # of each distance once, from the last query's first key to the first query's last: rows are stretches of these
        ahead = torch.arange(1 - seen - queries, keys - seen, device=self.weight.device)
        line: Tensor = self.weight[self.buckets(ahead)].T
        return line.unfold(1, keys, 1).flip(1)[None]

    @torch.no_grad()
    def look_at_distances_(self, peak: float) -> None:
        """Let head h look h + 1 tokens back, with a bias of `peak` there and 0 elsewhere."""
        heads = torch.arange(self.weight.shape[1], device=self.weight.device)
        self.weight.zero_()
        self.weight[self.buckets(-1 - heads), heads] = peak

    def buckets(self, ahead: Tensor) -> Tensor:
        """Find the bucket of each number of tokens that a key lies ahead of its query."""
        number, first, distance = self.num_buckets, torch.zeros_like(ahead), (-ahead).clamp(min=0)
        if self.both_ways:
            number //= 2
            first, distance = (ahead > 0).long() * number, ahead.abs()
        exact = number // 2
        # in float32, in which the pretrained weights were assigned to their buckets
        share = (distance.float().clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        far = exact + (share * (number - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=number - 1))


class WindowScale:
    """The mean and standard deviation `(R, 1)` of the observed steps of each window, as the Chronos models have them.

    Unlike `InstanceNorm` nothing is added to the variance, and missing steps keep their place; their values are not
    read. The deviation is 1e-5 where all observed steps are alike, 1 without any. With `arcsinh`, as in Chronos-2, the
    arcsinh of standardised values is taken.
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
        """Map `(B, N, D)` to `(B, N, D)`; a decoder takes the tokens `(B, S, D)` of the encoder, masked by `(B, S)`.

        `tokens` are `attention_mask`, `positions` and `global_tokens`, see `tsattn.attention.Attention`.
        """
        tokens["bias"] = self.relative_bias(x.shape[1])
        x = self.dropout(x)
        for block in self.blocks:
            x = self.run(block, x, tokens, context, context_mask)  # type: ignore[arg-type]
        out: Tensor = self.dropout(self.norm(x))
        return out
