"""Your own data: a wide CSV file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frame import read_csv
from tsattn.data.splits import Split

__all__ = ["CSVDataModule"]


class CSVDataModule(ForecastDataModule):
    """A CSV file with a column of regular time stamps and a column of numbers for each channel.

    The data set is named after the file.

    Args:
        path: the file.
        date_column: its column of time stamps.
        allow_missing: whether cells may be empty; they are then masked, never dropped.
        train_fraction: share of the rows for training, the first ones.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.
    """

    def __init__(
        self,
        path: str,
        date_column: str = "date",
        allow_missing: bool = False,
        train_fraction: float = 0.7,
        val_fraction: float = 0.1,
        **sizes: int,
    ) -> None:
        super().__init__(Path(path).stem, **sizes)
        self.path = Path(path)
        self.date_column = date_column
        self.allow_missing = allow_missing
        self.train_fraction = train_fraction
        self.val_fraction = val_fraction

    def load_frame(self) -> pd.DataFrame:
        """The whole file."""
        return read_csv(self.path, date_column=self.date_column, allow_missing=self.allow_missing)

    def split(self, num_rows: int) -> Split:
        """By the fractions given."""
        return Split.by_fraction(num_rows, self.train_fraction, self.val_fraction)
