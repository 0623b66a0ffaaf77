"""What forecasts any horizon in a way of its own, instead of having its forecasts fed back as context."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.predictors.base import Predictor

__all__ = ["AnyHorizon"]


class AnyHorizon(Predictor):
    """A predictor whose horizon is not bound to the task that it is built for."""

    @property
    @abstractmethod
    def steps_at_once(self) -> int:
        """The longest horizon that it forecasts without going on from its own forecasts."""

    @abstractmethod
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        """The forecast of `horizon` steps, as `forward` gives that of T steps."""

    @property
    def draws_paths(self) -> bool:
        """Whether it forecasts by paths that it draws itself."""
        return False

    def paths_to(self, batch: Batch, horizon: int, count: int, seed: int) -> Tensor:
        """Paths `(B, horizon, C, count)` on the scale of the batch, of one that draws some."""
        raise NotImplementedError(f"{type(self).__name__} draws no paths")

    @override
    def forward(self, batch: Batch) -> Tensor:
        assert self.task is not None, "build(task, output) comes first"
        return self.forecast_to(batch, self.task.prediction_length)
