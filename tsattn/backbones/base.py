"""What every backbone is: a module from a batch to a forecast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import Tensor, nn

from tsattn.batch import Batch

__all__ = ["Backbone"]


class Backbone(nn.Module, ABC):
    """Maps a `Batch` to a forecast `(B, T, C)` on the scale of the batch, using what it can of the batch."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The forecast of each window, `(B, T, C)`."""

    def warm_start(self, batches: Iterable[Batch]) -> None:
        """Start from what closed form can find on the training windows; called once, before the first step."""
