"""Least squares and ridge regression on a prompt, in closed form."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from benchmarks.paper.prompts import dimensions_of, pairs_of
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.predictors import Predictor
from tsattn.task import Output, Task
from tsattn.training import Training


class PromptRidge(Predictor):
    """Forecasts each value of a prompt by the ridge regression on the pairs before it; float64.

    Without a penalty `alpha` on the squared coefficients, that is least squares, of which the shortest is taken.
    """

    needs_fit = False

    def __init__(self, *, alpha: float = 0.0) -> None:
        super().__init__(alpha=alpha)
        if not 0 <= alpha < math.inf:
            raise UserError(f"alpha must be a number of at least 0, not {alpha}")
        self.alpha = alpha

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        dimensions_of(task)
        super().build(task, output, empty=empty)

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        return {}

    @override
    def forward(self, batch: Batch) -> Tensor:
        x, y = (part.double() for part in pairs_of(batch, dimensions_of(self.task)))
        ones = ((x[:, i] * self._coefficients(x[:, :i], y[:, :i])).sum(-1) for i in range(1, x.shape[1]))
        return torch.stack([x.new_zeros(len(x)), *ones], dim=1)[..., None]

    def _coefficients(self, x: Tensor, y: Tensor) -> Tensor:
        """`(B, d)` of points `(B, i, d)` and values `(B, i)`."""
        i, d = x.shape[1:]
        turned = x.transpose(1, 2)
        few = i < d
        # whichever of the two systems is the smaller one, which without a penalty has a solution
        gram = x @ turned if few else turned @ x
        gram = gram + self.alpha * torch.eye(min(i, d), dtype=x.dtype, device=x.device)
        right = y[..., None] if few else turned @ y[..., None]
        solved = torch.linalg.solve(gram, right)
        return (turned @ solved if few else solved)[..., 0]
