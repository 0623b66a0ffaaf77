"""Ridge regression in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.backbones.ridge_solution import ALPHA, apply_ridge, solve_ridge
from tsattn.batch import Batch
from tsattn.errors import UserError, whole_number
from tsattn.predictors.base import Predictor
from tsattn.predictors.contexts import last_context
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["Ridge"]


class Ridge(Predictor):
    """One linear map from context to horizon for all channels, each window centred by its mean; float64.

    It uses no covariates, and leaves them unread.

    Args:
        alpha: penalty on the squared coefficients, on the scale of the data.
        context_length: L; that of the task by default.

    Raises:
        UserError: for a penalty that is not above 0, or a context of no step.
    """

    weight: Tensor

    def __init__(self, *, alpha: float = ALPHA, context_length: int | None = None) -> None:
        super().__init__(alpha=alpha, context_length=context_length)
        if not 0 < alpha < math.inf:
            raise UserError(f"alpha must be a number above 0, not {alpha}")
        self.alpha = alpha
        self._own_length = None if context_length is None else whole_number("context_length", context_length)

    @property
    @override
    def context_length(self) -> int:
        return super().context_length if self._own_length is None else self._own_length

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        shape = self.context_length, task.prediction_length
        # not a number before it is fitted: a forecast of it cannot be taken for one
        weight = torch.full(shape, math.nan, dtype=torch.float64, device="meta" if empty else None)
        self.register_buffer("weight", weight)

    @override
    def fit(self, data: ForecastDataModule, training: Training | None = None) -> dict[str, Any]:
        """Solve for the training windows; ``every`` says that each k-th of very many was taken, 1 that all were."""
        L = self.context_length
        every = data.thinning("train", L)
        weight = solve_ridge(data.eval_dataloader("train", L, every), self.alpha)
        self.weight = weight if self.weight.is_meta else weight.to(self.weight.device)
        return {"every": every}

    @override
    def forward(self, batch: Batch) -> Tensor:
        return apply_ridge(self.weight, last_context(batch, self.context_length))

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Ridge:
        # a precision that is right for the networks beside it in an ensemble is not for a solution of equations
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)  # type: ignore[no-untyped-call]
        return self
