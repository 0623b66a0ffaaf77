"""What every predictor is: something that forecasts a batch of windows, after it was fitted or without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.task import Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training.train import Training

__all__ = ["Fitted", "Predictor"]

Fitted = dict[str, Any]
"""What is known of a fit, as plain data: ``best_step``, ``validation`` errors by name, ``seconds`` and so on."""


class Predictor(nn.Module, ABC):
    """Forecasts windows. The one protocol of networks, closed forms, averages, and what is trained elsewhere.

    A predictor is made of plain data (its description), learns the sizes of a task by `build`, and is fitted to data by
    `fit`. Its `state_dict` is all that a fit leaves: built for the same task, it forecasts the same with that state.

    Attributes:
        needs_fit: whether it must be fitted before it forecasts; False for those that know all after `build`.
        emits_quantiles: whether it can forecast quantiles; if not, it forecasts points and is asked for no quantiles.
        uses_covariates: whether it uses covariates and static columns, where a task has some; if not, it leaves them
            unread.
        task: what it was built for; None before.
        output: the quantiles that it was built for.
    """

    needs_fit: ClassVar[bool] = True
    emits_quantiles: ClassVar[bool] = False
    uses_covariates: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.task: Task | None = None

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Its kind and all arguments, as plain data."""

    @property
    def name(self) -> str:
        """What tables and run folders call it."""
        return str(self.description["kind"])

    @property
    def context_length(self) -> int:
        """L, the past steps that `forward` takes; of windows with more of them it is given the last."""
        assert self.task is not None, "build(task) comes first"
        return self.task.context_length
