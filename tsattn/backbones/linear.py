"""Linear forecasts in closed form."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tsattn.backbones.base import Backbone
from tsattn.batch import Batch
from tsattn.layers import InstanceNorm

__all__ = ["Ridge"]


class Ridge(Backbone):
    """Ridge regression from a context to its horizon: one map for all channels, each window centred by its mean.

    Args:
        batches: the training windows. A channel of a window with an unknown target is left out.
        alpha: penalty on the squared coefficients, on the scale of the batches.
    """

    weight: Tensor

    def __init__(self, batches: Iterable[Batch], alpha: float = 1000.0) -> None:
        super().__init__()
        gram: Tensor | float = 0.0
        moment: Tensor | float = 0.0
        for batch in batches:
            assert batch.target is not None
            past, level = _centred(batch)
            target = (batch.target.double() - level).transpose(1, 2)
            x, y = past.transpose(1, 2).flatten(0, 1), target.flatten(0, 1)
            if batch.target_observed is not None:
                known = batch.target_observed.transpose(1, 2).flatten(0, 1).all(-1)
                x, y = x[known], y[known]
            gram = gram + x.T @ x
            moment = moment + x.T @ y
        assert isinstance(gram, Tensor)
        assert isinstance(moment, Tensor)
        penalty = alpha * torch.eye(len(gram), dtype=gram.dtype)
        self.register_buffer("weight", torch.linalg.solve(gram + penalty, moment, left=True))

    def forward(self, batch: Batch) -> Tensor:
        """See `Backbone`."""
        past, level = _centred(batch)
        return (past.transpose(1, 2) @ self.weight).transpose(1, 2) + level


def _centred(batch: Batch) -> tuple[Tensor, Tensor]:
    """The contexts less their levels, `(B, L, C)`, and the levels, `(B, 1, C)`, in float64."""
    norm = InstanceNorm(batch.past.double(), batch.past_observed)
    return norm.past - norm.mean, norm.mean
