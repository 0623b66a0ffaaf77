"""The linear path of an encoder: a linear forecast, to which its tokens add.

Shape letters: L context length, T prediction length, C channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from tsattn.errors import UserError, one_of
from tsattn.layers import InstanceNorm
from tsattn.task import Task

Solve = Callable[[int], Tensor]
"""From L to the maps `(C or 1, L or fewer, T)` of the ridge of the training windows, without the season's waves."""
_MOST_NUMBERS = 2**24


class LinearPath(nn.Module):
    """A linear forecast from the context.

    Args:
        kind: ``none``: nothing. ``learned``: a map over time of the normalised context, which all channels share.
            ``ridge``: the same of the context minus its last value, trained from the mean of the ridge's maps on.
            A fixed map for each channel adds the distance of the ridge's from that mean, if all have at most 16
            million numbers.
        task: sizes and columns of the windows.

    Raises:
        UserError: for an unknown kind.
    """

    KINDS = ("none", "learned", "ridge")
    mup_roles: ClassVar[dict[str, str]] = {"time": "input"}  # see tsattn.layers.optim
    distances: Tensor | None  # of the channels' maps from their mean, (C, L, T)

    def __init__(self, kind: str, task: Task) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise UserError(f"linear_path must be one of {one_of(self.KINDS)}, not {kind!r}")
        L, T, C = task.context_length, task.prediction_length, task.num_channels
        self.kind = kind
        self.time = None if kind == "none" else nn.Linear(L, T)
        is_large = kind != "ridge" or C == 1 or C * L * T > _MOST_NUMBERS
        self.register_buffer("distances", None if is_large else torch.zeros(C, L, T))

    def start_alone(self, *outputs: nn.Linear) -> None:
        """If there is a path, set the `outputs` that are added to it to zero: training starts from the path alone."""
        if self.time is not None:
            for output in outputs:
                nn.init.zeros_(output.weight)
                nn.init.zeros_(output.bias)

    @torch.no_grad()
    def warm_start(self, solve: Solve) -> None:
        """Take over the ridge of the training windows if `kind` is ``ridge``."""
        if self.kind == "ridge" and self.time is not None:
            maps = solve(self.time.in_features)
            # shorter maps leave the first steps out
            maps = nn.functional.pad(maps, (0, 0, self.time.in_features - maps.shape[1], 0))
            mean = maps.mean(0)
            self.time.weight.copy_(mean.T)
            nn.init.zeros_(self.time.bias)
            if self.distances is not None:
                self.distances.copy_(maps - mean)

    def forward(self, norm: InstanceNorm, forecast: Tensor) -> Tensor:
        """Add the path to a forecast `(B, T, C)` on the scale of the window."""
        if self.time is None:
            return forecast
        past = norm.normalised().transpose(1, 2)
        if self.kind == "ridge":
            last = past[..., -1:]
            past, forecast = past - last, forecast + last.transpose(1, 2)
            if self.distances is not None:
                forecast = forecast + torch.einsum("bcl,clt->btc", past, self.distances)
        added: Tensor = self.time(past)
        return forecast + added.transpose(1, 2)
