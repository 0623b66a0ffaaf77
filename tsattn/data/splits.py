"""Cutting a frame into training, validation and test rows, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass

from tsattn.errors import UserError

__all__ = ["Split"]

_WORDS = {"train": "training", "val": "validation", "test": "test"}


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

    def origins(self, part: str, context_length: int, prediction_length: int) -> range:
        """The rows at which a window's horizon may start in ``train``, ``val`` or ``test``: every one, none left out.

        Raises:
            UserError: if the part is too short for one window.
        """
        start, end = {
            "train": (0, self.train_end),
            "val": (self.train_end, self.val_end),
            "test": (self.val_end, self.test_end),
        }[part]
        if prediction_length > end - start:
            raise UserError(
                f"prediction_length {prediction_length} is longer than the {_WORDS[part]} part of the data, "
                f"{end - start} rows; valid: 1 to {end - start}"
            )
        if part != "train" and context_length > start:
            raise UserError(
                f"context_length {context_length} is longer than the {start} rows before the {_WORDS[part]} part; "
                f"valid: 1 to {start}"
            )
        first = max(start, context_length)
        if first + prediction_length > end:
            raise UserError(
                f"context_length {context_length} and prediction_length {prediction_length} need "
                f"{context_length + prediction_length} rows, but the {_WORDS[part]} part has {end}"
            )
        return range(first, end - prediction_length + 1)
