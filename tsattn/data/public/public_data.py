"""The public data sets that are read from a CSV file, one by its name, as its card says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.public.card_file import mask_sentinels, read_card_file
from tsattn.data.public.cards import CARDS, card_of
from tsattn.data.public.download import data_root, fetch
from tsattn.data.public.wide_csv import read_csv
from tsattn.data.splits import Split
from tsattn.errors import UserError, one_of

__all__ = ["PublicDataModule"]


class PublicDataModule(ForecastDataModule):
    """A public data set with the literature's split, rows in file order and all values as they are.

    `python -m tsattn datasets list` names the data sets, `datasets info NAME` shows the card of one.

    Args:
        name: ``ETTh1``, ``ETTh2``, ``ETTm1``, ``ETTm2``, ``weather``, ``exchange_rate``, ``national_illness``,
            ``electricity``, ``traffic``, ``solar`` or ``vic_electricity``.
        root: the folder of the CSV files; `$TSATTN_DATA` by default, else `data`. A file that is not there is
            downloaded into it once.
        clean: whether numbers that stand for missing values are masked, so that none is scored. Not the benchmark's
            protocol, so the data set is then called ``NAME_clean``.
        channels_as_series: whether each channel is a series of its own, with one channel ``y``, for a model of many
            series.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.

    Raises:
        UserError: for an unknown name, or where there is nothing to clean.
    """

    def __init__(
        self,
        name: str = "ETTh1",
        root: str | None = None,
        clean: bool = False,
        channels_as_series: bool = False,
        **sizes: Any,
    ) -> None:
        self.card = card_of(name, files_only=True)
        if clean and not self.card.sentinels:
            valid = one_of(card.name for card in CARDS.values() if card.sentinels)
            raise UserError(
                f"clean masks the numbers that stand for missing values, but {name} has none; valid: {valid}"
            )
        super().__init__(f"{name}_clean" if clean else name, **sizes)
        self.root = root
        self.clean = clean
        self.channels_as_series = channels_as_series

    @override
    def prepare_data(self) -> None:
        """Download the file if it is not there (called on one process only)."""
        if self._input is None:
            self._fetch()

    @override
    def load_panel(self) -> Panel:
        """The whole file as one series, or each of its channels as one."""
        return self._panel(self.load_frame(), self.name)

    def load_frame(self) -> pd.DataFrame:
        """The whole file.

        Raises:
            UserError: if it is not the one that the card describes.
        """
        path = self._fetch()
        frame = read_card_file(self.card, path)
        if frame.shape != (self.card.rows, self.card.columns):
            rows, columns = frame.shape
            raise UserError(
                f"{path} has {rows} rows x {columns} channels, but {self.card.name} has {self.card.rows} x "
                f"{self.card.columns}; remove it to download it again, or read your own data with CSVDataModule"
            )
        return mask_sentinels(frame, self.card) if self.clean else frame

    @override
    def load_input(self, path: Path) -> Panel:
        """A file to forecast from: its time stamps must be regular, as no card excuses them."""
        date_column, columns = self.card.date_column or "date", self.card.channels
        frame = read_csv(path, date_column=date_column, allow_missing=self.clean, columns=columns)
        frame = frame.rename(columns=self.card.renamed)
        return self._panel(mask_sentinels(frame, self.card) if self.clean else frame, str(path))

    @override
    def split(self, time: Times) -> Split:
        return self.card.split(len(time))

    def _panel(self, frame: pd.DataFrame, source: str) -> Panel:
        panel = self.wide_panel(frame, source)
        return panel.channels_as_series() if self.channels_as_series else panel

    def _fetch(self) -> Path:
        return fetch(self.card, data_root(self.root))
