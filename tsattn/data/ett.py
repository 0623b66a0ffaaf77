"""Electricity transformer temperature (ETT): two years of seven channels from two stations in China.

Source: Zhou et al., *Informer* (AAAI 2021), repository zhouhaoyi/ETDataset, CC BY-ND 4.0.
"""

from __future__ import annotations

import pandas as pd

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.download import data_root, fetch
from tsattn.data.frame import read_csv
from tsattn.data.splits import Split
from tsattn.errors import UserError, one_of

__all__ = ["ETTDataModule"]

URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"

SHA256 = {
    "ETTh1": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
    "ETTm1": "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
    "ETTm2": "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd",
}

# the protocol's months have 30 days: 12 for training, 4 for validation, 4 for testing
_DAYS = (12 * 30, 16 * 30, 20 * 30)


class ETTDataModule(ForecastDataModule):
    """ETTh1 and ETTh2 (hourly), ETTm1 and ETTm2 (every 15 minutes), with the literature's split.

    Args:
        name: ``ETTh1``, ``ETTh2``, ``ETTm1`` or ``ETTm2``.
        root: the folder of the CSV files; `$TSATTN_DATA` by default, else `data`. A file that is not there is
            downloaded into it once.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.
    """

    def __init__(self, name: str = "ETTh1", root: str | None = None, **sizes: int) -> None:
        super().__init__(name, **sizes)
        if name not in SHA256:
            raise UserError(f"unknown ETT data set {name!r}; valid: {one_of(SHA256)}")
        self.root = root

    def prepare_data(self) -> None:
        """Download the file if it is not there (called on one process only)."""
        if self._input is None:
            self._fetch()

    def load_frame(self) -> pd.DataFrame:
        """The whole file."""
        return read_csv(self._fetch(), date_column=self.date_column)

    def split(self, num_rows: int) -> Split:
        """12, 4 and 4 months of 30 days; the file's last weeks belong to no part."""
        steps_per_day = 24 if self.name.startswith("ETTh") else 96
        return Split(*(days * steps_per_day for days in _DAYS))

    def _fetch(self) -> str:
        file = f"{self.name}.csv"
        return str(fetch(file, root=data_root(self.root), url=URL + file, sha256=SHA256[self.name]))
