"""Validation on several rolling origins inside the rows before the test part."""

from __future__ import annotations

from dataclasses import dataclass

from tsattn.data import ForecastDataModule
from tsattn.data.splits import Recut, Split

__all__ = ["Fold", "hold_out"]


@dataclass(frozen=True)
class Fold:
    """One of several blocks of rows before the test part: it is validated on, all rows before it are trained on.

    The blocks lie side by side and end where the test part starts. Each is as long as the data's own validation part,
    or shorter, so that together they take at most half of the rows before the test part.

    Attributes:
        number: from 0, the oldest.
        count: how many there are.
    """

    number: int
    count: int

    def split(self, whole: Split) -> Split:
        """The split of this fold: no row is left for testing."""
        length = min(whole.val_end - whole.train_end, whole.val_end // (2 * self.count))
        start = whole.val_end - (self.count - self.number) * length
        return Split(start, start + length, start + length)


def hold_out(data: ForecastDataModule, fold: Fold) -> ForecastDataModule:
    """The data split as a fold says, not set up: the rows of the test part are in no part of them.

    Scaling is fitted on the fold's training rows, as on any.

    Raises:
        UserError: from `setup`, if a block is too short for a window.
    """
    return data.recut(Recut(data.rule, fold.split), ("train", "val"))
