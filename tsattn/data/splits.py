"""Training, validation and test rows of series, in the order of time, and the windows in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tsattn.errors import UserError

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

    def bounds(self, part: str) -> tuple[int, int]:
        """First row of ``train``, ``val`` or ``test``, and the row after its last."""
        return {
            "train": (0, self.train_end),
            "val": (self.train_end, self.val_end),
            "test": (self.val_end, self.test_end),
        }[part]

    def with_validation(self, first: float, last: float) -> Split:
        """The same with a part of the rows for validation, between two shares of them; training has what is before."""
        start, rows = self.train_end, self.val_end - self.train_end
        return replace(self, train_end=start + round(first * rows), val_end=start + round(last * rows))

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
        if end == start:
            raise UserError(
                f"the {PART_WORDS[part]} part of the data has no rows; move `val_rows` and `test_rows`, `val_from` and "
                "`test_from`, or `train_fraction` and `val_fraction`"
            )
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
                f"{context_length + prediction_length} rows, but the {PART_WORDS[part]} part has {end}; lower them to "
                f"{end} together"
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
