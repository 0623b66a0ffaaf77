"""The linear path of an encoder: a linear forecast, to which its tokens add.

Shape letters: B windows, L context length, T prediction length, C channels, F columns of the season's waves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from tsattn.backbones.linear_maps import LinearMaps
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.layers import InstanceNorm
from tsattn.task import Task

Solve = Callable[[int], tuple[Tensor, Tensor, Tensor]]
"""From L to the ridge of the training windows: weight, waves and period of `LinearMaps`."""


class LinearPath(LinearMaps):
    """A linear forecast from the context.

    Args:
        kind: ``none``: nothing. ``learned``: a map over time of the normalised context, which all channels share.
            ``ridge``: the ridge of the training windows, with a map for each channel, which stays as it is; and a
            learned map, which starts at zero.
        task: sizes and columns of the windows.

    Raises:
        UserError: for an unknown kind.
    """

    KINDS = ("none", "learned", "ridge")
    mup_roles: ClassVar[dict[str, str]] = {"time": "input"}  # see tsattn.layers.optim

    def __init__(self, kind: str, task: Task) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise UserError(f"linear_path must be one of {one_of(self.KINDS)}, not {kind!r}")
        L, T = task.context_length, task.prediction_length
        self.kind = kind
        self.time = None if kind == "none" else nn.Linear(L, T)
        if kind == "ridge":  # until it is solved for, the last value is forecast
            self.register_buffer("weight", torch.zeros(1, L, T))
            self.register_buffer("waves", torch.zeros(1, 0, T))
            self.register_buffer("period", torch.zeros((), dtype=torch.int64))

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
            weight, waves, period = solve(self.time.in_features)
            # maps of fewer steps leave the first ones out
            weight = nn.functional.pad(weight, (0, 0, self.time.in_features - weight.shape[1], 0))
            self.weight, self.waves, self.period = weight.to(self.weight), waves.to(self.waves), period.to(self.period)
            nn.init.zeros_(self.time.weight)
            nn.init.zeros_(self.time.bias)

    def forward(self, batch: Batch, norm: InstanceNorm, forecast: Tensor) -> Tensor:
        """Add the path to a forecast `(B, T, C)` on the scale of the window."""
        if self.time is None:
            return forecast
        forecast = forecast + self.time(norm.normalised().transpose(1, 2)).transpose(1, 2)
        if self.kind == "ridge":
            forecast = forecast + (self.moves(batch) + (batch.past[:, -1:] - norm.level)) / norm.scale
        return forecast
