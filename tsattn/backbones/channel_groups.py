"""Groups of channels, as the blocks of an attention whose tokens are channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tsattn.constants import ModuleWithConstants
from tsattn.errors import UserError, number_of, one_of

__all__ = ["ChannelGroups"]

WHOLE = "all"  # a level in which all channels are one group


class ChannelGroups(ModuleWithConstants):
    """Blocks of the multi-level pattern: channels of one group share a level.

    Args:
        groups: the levels, coarse to fine. Each is a list with the group of every channel, in their order
            (``[0, 0, 1]``); a mapping from the name of each group to the names of its channels
            (``{load: [HUFL, HULL], oil: [OT]}``); or ``all``, one group.
        channels: names of the C channels.
        num_further: tokens after those of the channels, which lie in every group.

    Attributes:
        num_levels: how many levels there are.

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
        # the blocks of further tokens decide nothing, as these share every level
        ids = [[[*level, *[0] * num_further]] for level in levels]
        self.register_constant("ids", ids, torch.long, cast=False)
        is_further = [False] * len(channels) + [True] * num_further
        self.register_constant("further", is_further, torch.bool, cast=False)

    def blocks(self, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Blocks `(levels, 1, N)` of all tokens, and which of these lie in every block, `(N,)` bool or None."""
        self.fill_constants(device)
        return self.ids, self.further if self.num_further else None


def _numbers(level: object, channels: Sequence[str], where: str) -> list[int]:
    """The number of the group of each channel."""
    if level == WHOLE:
        return [0] * len(channels)
    if isinstance(level, Mapping):
        return _by_name(level, channels, where)
    if isinstance(level, str) or not isinstance(level, Sequence):
        raise UserError(
            f"{where} must be a list with a group for each channel, a mapping from groups to names of channels, or "
            f"{WHOLE}, not {level!r}"
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
    found = {member: number for number, members in enumerate(level.values()) for member in members}
    return [found[channel] for channel in channels]
