"""Linear maps from a context to its horizon, shared by all channels: the ridge, and the linear path of an encoder.

Shape letters: B windows, L context length, T prediction length, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.errors import UserError, one_of
from tsattn.layers import InstanceNorm

ALPHA = 1000.0


def solve_ridge(batches: Iterable[Batch], alpha: float = ALPHA) -> Tensor:
    """Fit the ridge regression `(L, T)`, float64; `alpha` weighs squared coefficients; windows are centred by means."""
    return solve_normal_equations(*normal_equations(batches), alpha)


def normal_equations(batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """`X' X (L, L)` and `X' Y (L, T)` of all windows, float64; see `regression_rows`."""
    gram: Tensor | float = 0.0
    moment: Tensor | float = 0.0
    for batch in batches:
        x, y = regression_rows(batch)
        gram = gram + x.T @ x
        moment = moment + x.T @ y
    assert isinstance(gram, Tensor), "there is no training window"
    assert isinstance(moment, Tensor)
    return gram, moment


def solve_normal_equations(gram: Tensor, moment: Tensor, alpha: float) -> Tensor:
    """The ridge solution `(L, T)`: it minimises squared errors plus `alpha` times squared coefficients."""
    penalty = alpha * torch.eye(len(gram), dtype=gram.dtype)
    weight: Tensor = torch.linalg.solve(gram + penalty, moment, left=True)
    return weight


def regression_rows(batch: Batch) -> tuple[Tensor, Tensor]:
    """Centred contexts `(n, L)` and horizons `(n, T)`: a row for each window and channel with all targets known."""
    past, level = _centred(batch)
    target = (batch.known_target.double() - level).transpose(1, 2)
    x, y = past.transpose(1, 2).flatten(0, 1), target.flatten(0, 1)
    if batch.target_observed is not None:
        known = batch.target_observed.transpose(1, 2).flatten(0, 1).all(-1)
        x, y = x[known], y[known]
    if batch.target_weight is not None:
        weight = batch.target_weight.double().transpose(1, 2).flatten(0, 1)
        weight = weight if batch.target_observed is None else weight[known]
        counts = (weight > 0).all(-1)
        root = weight[counts].mean(-1, keepdim=True).sqrt()
        x, y = x[counts] * root, y[counts] * root
    return x, y


def apply_ridge(weight: Tensor, batch: Batch) -> Tensor:
    """The forecast `(B, T, C)`, float64.

    Args:
        weight: `(L, T)`, from `solve_ridge`.
        batch: B windows with L steps of context.
    """
    past, level = _centred(batch)
    return (past.transpose(1, 2) @ weight).transpose(1, 2) + level


def _centred(batch: Batch) -> tuple[Tensor, Tensor]:
    """The contexts minus their levels, `(B, L, C)`, and the levels, `(B, 1, C)`, in float64."""
    norm = InstanceNorm(batch.past.double(), batch.past_observed)
    return norm.past - norm.level, norm.level


class LinearPath(nn.Module):
    """A linear map over time of the normalised context, shared by all channels.

    Args:
        kind: ``none``: no map. ``learned``: a map that starts from random weights. ``ridge``: a map that starts from
            the closed-form ridge of the training windows.
        context_length: L.
        prediction_length: T.
        subtract_last: whether windows are measured from their last values, see `InstanceNorm`. Then the start only
            approximates the ridge in windows with missing steps, because these count in the mean.

    Raises:
        UserError: for an unknown kind.
    """

    KINDS = ("none", "learned", "ridge")
    mup_roles: ClassVar[dict[str, str]] = {"time": "input"}  # see tsattn.layers.optim

    def __init__(self, kind: str, context_length: int, prediction_length: int, subtract_last: bool = False) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise UserError(f"linear_path must be one of {one_of(self.KINDS)}, not {kind!r}")
        self.kind = kind
        self.subtract_last = subtract_last
        self.time = None if kind == "none" else nn.Linear(context_length, prediction_length)

    def start_alone(self, *outputs: nn.Linear) -> None:
        """If there is a map, set the `outputs` that are added to it to zero: training starts from the map alone."""
        if self.time is not None:
            for output in outputs:
                nn.init.zeros_(output.weight)
                nn.init.zeros_(output.bias)

    @torch.no_grad()
    def warm_start(self, batches: Iterable[Batch]) -> None:
        """Start from the ridge of the training windows if `kind` is ``ridge``."""
        if self.kind == "ridge" and self.time is not None:
            # the ridge maps windows minus their means; being linear, it also fits windows divided by their scale
            weight = solve_ridge(batches)
            if self.subtract_last:  # W (x - mean) + mean, as a map of x - last: its columns must sum to 1
                weight += (1 - weight.sum(0)) / len(weight)
            self.time.weight.copy_(weight.T)
            self.time.bias.zero_()

    def forward(self, past: Tensor, forecast: Tensor) -> Tensor:
        """The forecast `(B, T, C)` plus the map of the normalised context `past (B, L, C)`."""
        if self.time is None:
            return forecast
        out: Tensor = forecast + self.time(past.transpose(1, 2)).transpose(1, 2)
        return out
