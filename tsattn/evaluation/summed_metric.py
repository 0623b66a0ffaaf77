"""Sums that keep their precision, whatever happens to the model around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from tsattn.constants import EXACT

__all__ = ["SummedMetric"]


class SummedMetric(Metric):
    """A metric made of sums, which keep their precision when the model around them is cast to another."""

    full_state_update = False

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)

    def add_sum(self, name: str, *shape: int) -> None:
        """Add a float64 state of this shape, which starts at zero."""
        self.add_state(name, torch.zeros(shape, dtype=EXACT), dist_reduce_fx="sum")
