"""iTransformer: the whole context of each channel is one token, and attention mixes channels.

Source: Liu et al., *iTransformer: Inverted Transformers Are Effective for Time Series Forecasting* (ICLR 2024). The
encoder differs: it normalises before each branch instead of after it, and takes any attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.attention import Attention, attention_per_layer, build_attention, complete_attention
from tsattn.backbones.base import Backbone, check_sizes
from tsattn.backbones.linear_path import LinearPath, Solve
from tsattn.batch import Batch, ModuleWithConstants
from tsattn.descriptions import Description
from tsattn.errors import UserError, number_of, one_of
from tsattn.layers import CovariateTokens, Encoder, FlattenHead, InstanceNorm, TokenEmbedding, output_fan
from tsattn.task import Output, Task


class ITransformer(Backbone):
    """An encoder over channels as tokens, with any attention; it forecasts all steps of the horizon at once.

    The channels have no order: without `fixed_mixing` and `groups`, reordering the channels only reorders the
    forecasts.

    Args:
        task: the sizes to build for; it needs two channels or more.
        output: the form of the forecast: a point forecast, quantiles or a distribution.
        d_model: D, the width of the tokens.
        num_layers: encoder blocks.
        num_heads: H, heads of each attention.
        d_ff: hidden width of the token-wise networks; 2 D by default.
        attention: a kind of attention, its description, or a list of these, one per layer. The tokens are channels,
            then covariates and calendar features. They have no order, so kinds that favour near tokens are refused,
            except `mlr` with groups of channels as its blocks.
        groups: for `mlr`: groups of channels for each of its ranks, coarse to fine, see `ChannelGroups`. Tokens of
            covariates are in every group.
        linear_path: a linear forecast that is added, see `LinearPath`.
        calendar: also use the time of day, day of the week and time of year of each step, see `CalendarFeatures`.
        dropout: probability of dropping a number of a token or branch in training.
        norm: normalisation of the tokens, ``layer`` or ``batch``, see `tsattn.layers.encoder.token_norm`.
        subtract_last: measure a window from its last value instead of its mean, see `InstanceNorm`.

    Raises:
        UserError: for a single channel, an attention that favours near tokens, or groups that fit neither the channels
            nor the attention.
    """

    token: ClassVar[str] = "channel"
    emits_quantiles: ClassVar[bool] = True
    emits_distributions: ClassVar[bool] = True
    uses_covariates: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        output: Output,
        *,
        d_model: int = 128,
        num_layers: int = 2,
        num_heads: int = 8,
        d_ff: int | None = None,
        attention: Description | Sequence[Description] = "standard",
        groups: Sequence[Any] | None = None,
        linear_path: str = "none",
        calendar: bool = False,
        dropout: float = 0.1,
        norm: str = "layer",
        subtract_last: bool = False,
    ) -> None:
        super().__init__()
        L, T, C = task.context_length, task.prediction_length, task.num_channels
        if C < 2:
            raise UserError(
                "backbone itransformer attends to channels, and the data has only one: give patchtst or "
                "transformer, which attend to steps"
            )
        check_sizes(d_model=d_model, num_layers=num_layers, num_heads=num_heads, d_ff=d_ff, dropout=dropout)
        num_further = CovariateTokens.count(task, calendar)
        N = C + num_further
        self.groups = None if groups is None else ChannelGroups(groups, task.channels, num_further)
        self.tokens = TokenEmbedding(L, d_model, C, "none", dropout)
        attentions = [
            _checked(build_attention(layer, d_model=d_model, num_heads=num_heads, max_length=N), layer, self.groups)
            for layer in attention_per_layer(attention, num_layers)
        ]
        if self.groups is not None and not any(layer.pattern.takes_blocks for layer in attentions):
            raise UserError("groups need attention mlr, and no layer has it: leave groups out, or give attention mlr")
        self.encoder = Encoder(attentions, 2 * d_model if d_ff is None else d_ff, dropout, norm)
        self.fan = output_fan(output)
        self.head = FlattenHead(1, T, d_model, self.fan.num_outputs)
        self.subtract_last = subtract_last
        self.linear_path = LinearPath(linear_path, task)
        self.linear_path.start_alone(self.head.flat)
        # built last, so that a seed draws equal other parameters with and without covariates
        self.covariates = CovariateTokens(task, calendar, d_model, self.fan.num_outputs, dropout)

    @override
    def warm_start(self, solve: Solve) -> None:
        self.linear_path.warm_start(solve)

    @override
    def token_ends(self, count: int) -> list[int | str] | None:
        return [*self.covariates.task.channels, *self.covariates.names]

    @override
    def forward(self, batch: Batch) -> Tensor:
        norm = InstanceNorm(batch.past, batch.past_observed, subtract_last=self.subtract_last)
        past = norm.normalised()
        C = past.shape[-1]
        tokens = self.tokens(past.transpose(1, 2), self.covariates.add_categories(batch))
        tokens = self.covariates.append(tokens, batch)
        blocks, global_tokens = (None, None) if self.groups is None else self.groups.blocks(past.device)
        tokens = self.encoder(tokens, blocks=blocks, global_tokens=global_tokens)
        tokens = rearrange(tokens[:, :C], "B C D -> (B C) 1 D")
        raw = self.covariates.add_effect(batch, tokens, self.head(tokens))
        raw = rearrange(raw, "(B C) T Q -> B T C Q", C=C)
        median = self.linear_path(batch, norm, raw[..., 0])
        forecast: Tensor = self.fan(median, raw[..., 1:], norm, batch)
        return forecast


def _checked(attention: Attention, description: Description, groups: ChannelGroups | None) -> Attention:
    """Check that the attention of a layer does not depend on an order of channels, and return it."""
    pattern = attention.pattern
    if not pattern.is_local:
        return attention
    complete = complete_attention(description)
    kind = complete["kind"]
    if groups is None or not pattern.takes_blocks:
        raise UserError(
            f"attention {kind} needs an order of tokens, and the channels of itransformer have none: give "
            "standard, btt, bilinear_mlr or mlbtc, or mlr with groups of channels, the argument "
            "groups"
        )
    if complete.get("blocks") is not None:
        raise UserError(f"attention {kind} takes its blocks from groups here: leave blocks out")
    levels = len(pattern.component_groups or ())
    if levels != groups.num_levels:
        raise UserError(
            f"groups have {number_of(groups.num_levels, 'level')}, but attention {kind} has "
            f"{number_of(levels, 'rank')}: give one level for each rank"
        )
    return attention


_WHOLE = "all"  # a level in which all channels are one group


class ChannelGroups(ModuleWithConstants):
    """Blocks of the multi-level pattern: channels of one group share a level.

    Args:
        groups: the levels, coarse to fine. A list has the group of every channel, in the order of the channels
            (``[0, 0, 1]``). A mapping gives the names of the channels of each group
            (``{load: [HUFL, HULL], oil: [OT]}``). ``all`` makes one group.
        channels: names of the C channels.
        num_further: number of tokens after the channels, which lie in every group.

    Attributes:
        num_levels: number of levels.

    Raises:
        UserError: for levels that do not put every channel into one group.
    """

    ids: Tensor
    further: Tensor

    def __init__(self, groups: Sequence[Any], channels: Sequence[str], num_further: int) -> None:
        super().__init__()
        if isinstance(groups, str) or not isinstance(groups, Sequence) or not groups:
            raise UserError(f"groups must be a list of levels, coarse to fine, not {groups!r}")
        levels = [_numbers(level, channels, f"level {place} of groups") for place, level in enumerate(groups, start=1)]
        self.num_levels = len(levels)
        self.num_further = num_further
        # any block will do for the further tokens, as these share every level
        ids = [[[*level, *[0] * num_further]] for level in levels]
        self.register_constant("ids", ids, torch.long, cast=False)
        is_further = [False] * len(channels) + [True] * num_further
        self.register_constant("further", is_further, torch.bool, cast=False)

    def blocks(self, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Blocks `(levels, 1, N)` of all tokens, and which tokens lie in every block, `(N,)` bool or None."""
        self.fill_constants(device)
        return self.ids, self.further if self.num_further else None


def _numbers(level: object, channels: Sequence[str], where: str) -> list[int]:
    """The number of the group of each channel."""
    if level == _WHOLE:
        return [0] * len(channels)
    if isinstance(level, Mapping):
        return _by_name(level, channels, where)
    if isinstance(level, str) or not isinstance(level, Sequence):
        raise UserError(
            f"{where} must be a list with a group for each channel, a mapping from groups to names of channels, or "
            f"{_WHOLE}, not {level!r}"
        )
    if len(level) != len(channels):
        raise UserError(f"{where} lists {number_of(len(level), 'group')} for {number_of(len(channels), 'channel')}")
    for group in level:
        if not isinstance(group, int | str) or isinstance(group, bool):
            raise UserError(f"{where} must hold whole numbers or names of groups, not {group!r}")
    order = [*dict.fromkeys(level)]
    return [order.index(group) for group in level]


def _by_name(level: Mapping[Any, Any], channels: Sequence[str], where: str) -> list[int]:
    for name, members in level.items():
        if isinstance(members, str) or not isinstance(members, Sequence):
            raise UserError(f"{where} must give a list of channels for group {name}, not {members!r}")
    named = Counter(member for members in level.values() for member in members)
    for name, times in named.items():
        if name not in channels:
            raise UserError(f"{where} names a channel {name!r} that the data lacks; valid: {one_of(channels)}")
        if times > 1:
            raise UserError(f"{where} puts channel {name} into {times} groups")
    missing = [channel for channel in channels if channel not in named]
    if missing:
        raise UserError(f"{where} has no group for {one_of(missing)}")
    numbers = {member: number for number, members in enumerate(level.values()) for member in members}
    return [numbers[channel] for channel in channels]
