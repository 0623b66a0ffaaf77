"""A linear map of the context beside an encoder, so that the encoder learns what a linear forecast misses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from tsattn.backbones.ridge_solution import solve_ridge
from tsattn.batch import Batch
from tsattn.errors import UserError, one_of

__all__ = ["LinearPath"]


class LinearPath(nn.Module):
    """A linear map over time of the normalised context, one for all channels.

    Args:
        kind: ``none``, no map: it adds nothing; ``learned``, from random weights; ``ridge``, learned from the
            closed-form ridge of the training windows.
        context_length: L.
        prediction_length: T.
        subtract_last: whether windows are measured from their last values, see `InstanceNorm`. In a window with gaps
            between its steps, which count in its mean then, the start is nearly the ridge.

    Raises:
        UserError: for another kind.
    """

    KINDS = ("none", "learned", "ridge")
    mup_roles: ClassVar[dict[str, str]] = {"time": "input"}  # see tsattn.optim

    def __init__(self, kind: str, context_length: int, prediction_length: int, subtract_last: bool = False) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise UserError(f"linear_path must be one of {one_of(self.KINDS)}, not {kind!r}")
        self.kind = kind
        self.subtract_last = subtract_last
        self.time = None if kind == "none" else nn.Linear(context_length, prediction_length)

    def start_alone(self, *outputs: nn.Linear) -> None:
        """Let the forecast start as the linear one: the outputs that are added to it start at zero, if there is one."""
        if self.time is not None:
            for output in outputs:
                nn.init.zeros_(output.weight)
                nn.init.zeros_(output.bias)

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """Start from the ridge of the training windows, if this is what the kind says."""
        if self.kind == "ridge" and self.time is not None:
            # a map of windows less their means, and so of normalised ones too, whose scale it passes through
            weight = solve_ridge(batches)
            if self.subtract_last:  # W (x - mean) + mean as a map of x - last, whose columns so add up to 1
                weight += (1 - weight.sum(0)) / len(weight)
            self.time.weight.copy_(weight.T)
            self.time.bias.zero_()

    def forward(self, past: Tensor, forecast: Tensor) -> Tensor:
        """The forecast `(B, T, C)` plus the map of the normalised context `past (B, L, C)`."""
        if self.time is None:
            return forecast
        out: Tensor = forecast + self.time(past.transpose(1, 2)).transpose(1, 2)
        return out
