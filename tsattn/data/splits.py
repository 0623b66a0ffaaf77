"""Cutting series into training, validation and test rows, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsattn.errors import UserError

if TYPE_CHECKING:  # the cards of the data sets, which are split by this, are read without pandas
    import pandas as pd

__all__ = ["PART_WORDS", "Split", "all_origins"]

PART_WORDS = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Split:
    """Row numbers at which the parts end: train `[0, train_end)`, val `[train_end, val_end)`, test up to `test_end`.

    Windows of a part have their whole horizon inside it; their context may reach back into the part before.
    """

    train_end: int
    val_end: int
    test_end: int

    @classmethod
    def by_fraction(cls, num_rows: int, train: float, val: float) -> Split:
        """The first `train` share of the rows, the next `val` share, and all the rest for testing."""
        if not (train > 0 and val > 0 and train + val < 1):
            raise UserError(
                f"split must be shares of train and val above 0 that sum to less than 1, not {train}, {val}"
            )
        train_end = int(num_rows * train)
        return cls(train_end, train_end + int(num_rows * val), num_rows)

    @classmethod
    def by_benchmark(cls, num_rows: int) -> Split:
        """70 / 10 / 20 percent as the literature on long-horizon forecasting rounds (Wu et al., Autoformer).

        Training and test take `int(0.7 n)` and `int(0.2 n)` rows, validation all those between. `by_fraction` rounds
        validation instead and gives the rest to testing, which differs by a row or two.
        """
        return cls(int(num_rows * 0.7), num_rows - int(num_rows * 0.2), num_rows)

    @classmethod
    def by_count(cls, num_rows: int, val: int, test: int) -> Split:
        """The last `test` rows for testing, the `val` rows before them for validation, the rest for training.

        A series that is shorter than both gives up training first, then validation.
        """
        val_end = max(0, num_rows - test)
        return cls(max(0, val_end - val), val_end, num_rows)

    @classmethod
    def by_date(cls, time: pd.DatetimeIndex, val: pd.Timestamp, test: pd.Timestamp) -> Split:
        """Validation from the time stamp `val` on, testing from `test` on, each included; before them is training."""
        if not val < test:
            raise UserError(f"the validation part must start before the test part, not at {val} and {test}")
        return cls(int(time.searchsorted(val)), int(time.searchsorted(test)), len(time))

    def bounds(self, part: str) -> tuple[int, int]:
        """First row of ``train``, ``val`` or ``test``, and the row after its last."""
        return {
            "train": (0, self.train_end),
            "val": (self.train_end, self.val_end),
            "test": (self.val_end, self.test_end),
        }[part]

    def fits(self, part: str, context_length: int, prediction_length: int) -> bool:
        """Whether the part is long enough for a window with a whole context."""
        start, end = self.bounds(part)
        if part == "train":
            return context_length + prediction_length <= end
        return prediction_length <= end - start and context_length <= start

    def room(self, part: str, prediction_length: int) -> tuple[int, int, int]:
        """What ranks series by how long a window they hold: rows for the horizon, before the part, and in all."""
        start, end = self.bounds(part)
        return min(end - start, prediction_length), start, end

    def origins(self, part: str, context_length: int, prediction_length: int) -> range:
        """The rows at which a window's horizon may start in ``train``, ``val`` or ``test``: every one, none left out.

        Raises:
            UserError: if the part is too short for one window.
        """
        start, end = self.bounds(part)
        if prediction_length > end - start:
            raise UserError(
                f"prediction_length {prediction_length} is longer than the {PART_WORDS[part]} part of the data, "
                f"{end - start} rows; valid: 1 to {end - start}"
            )
        if part != "train" and context_length > start:
            raise UserError(
                f"context_length {context_length} is longer than the {start} rows before the {PART_WORDS[part]} part; "
                f"valid: 1 to {start}"
            )
        first = max(start, context_length)
        if first + prediction_length > end:
            raise UserError(
                f"context_length {context_length} and prediction_length {prediction_length} need "
                f"{context_length + prediction_length} rows, but the {PART_WORDS[part]} part has {end}"
            )
        return range(first, end - prediction_length + 1)

    def short_origins(self, part: str, context_length: int, prediction_length: int) -> range:
        """The same for a series that may be too short for a whole context: its windows are padded at the front.

        A training part that is too short for one whole window gives one, whose context is all that comes before the
        last `prediction_length` rows. No window is without a row of context; the range may be empty.
        """
        start, end = self.bounds(part)
        last = end - prediction_length
        first = min(context_length, last) if part == "train" else start
        return range(max(1, first), max(1, last + 1))


def all_origins(splits: Sequence[Split], part: str, context_length: int, prediction_length: int) -> list[range]:
    """The origins of a part for many series, among which at least one must be long enough for a whole window.

    Raises:
        UserError: if none is; of several series, the longest is spoken of.
    """
    if len(splits) == 1:
        return [splits[0].origins(part, context_length, prediction_length)]
    if not any(split.fits(part, context_length, prediction_length) for split in splits):
        longest = max(splits, key=lambda split: split.room(part, prediction_length))
        try:
            longest.origins(part, context_length, prediction_length)
        except UserError as error:
            raise UserError(f"no series is long enough, not even the longest: {error}") from error
    return [split.short_origins(part, context_length, prediction_length) for split in splits]
