"""The public data sets that are read from a CSV file, one by its name, as its card says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.data.public.card_file import card_reader, channels_frame, mask_sentinels, named_as, read_card_file
from tsattn.data.public.cards import CARDS, Card, card_of
from tsattn.data.public.download import data_root, fetch
from tsattn.data.sources import Source
from tsattn.data.split_rule import EttMonths, in_zone, iso_date
from tsattn.errors import UserError, one_of
from tsattn.task import Task

__all__ = ["CardSource", "PublicDataModule"]


class PublicDataModule(ForecastDataModule):
    """A public data set with the literature's split, rows in file order and all values as they are.

    `tsattn datasets list` names the data sets, `datasets info NAME` shows the card of one.

    Args:
        name: ``ETTh1``, ``ETTh2``, ``ETTm1``, ``ETTm2``, ``weather``, ``exchange_rate``, ``national_illness``,
            ``electricity``, ``traffic``, ``solar`` or ``vic_electricity``.
        root: the folder of the CSV files; `$TSATTN_DATA` by default, else `data`. A file that is not there is
            downloaded into it once.
        clean: whether numbers that stand for missing values are masked, so that none is scored. Not the benchmark's
            protocol, so the data set is then called ``NAME_clean``.
        channels_as_series: whether each channel is a series of its own, with one channel ``y``, for a model of many
            series.
        until: a date; rows from it on are left out, as if they had not come yet, and the rest is split. So what was
            found in the usual test part is looked at in other windows. Not the benchmark's protocol either: the data
            set is then called ``NAME_until_DATE``.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.

    Raises:
        UserError: for an unknown name, where there is nothing to clean, or what is no date.
    """

    def __init__(
        self,
        name: str = "ETTh1",
        root: str | None = None,
        clean: bool = False,
        channels_as_series: bool = False,
        until: str | None = None,
        **sizes: Any,
    ) -> None:
        self.card = card_of(name, files_only=True)
        if clean and not self.card.sentinels:
            valid = one_of(card.name for card in CARDS.values() if card.sentinels)
            raise UserError(
                f"clean masks the numbers that stand for missing values, but {name} has none; valid: {valid}"
            )
        if until is not None and isinstance(self.card.rule, EttMonths):
            raise UserError(f"the parts of {name} are months from its beginning, so that until leaves out none of them")
        self.root = root
        self.clean = clean
        self.channels_as_series = channels_as_series
        self.until = until
        self._file = CardSource(
            self.card, root, clean, channels_as_series, until=None if until is None else iso_date(until)
        )
        name = f"{name}_clean" if clean else name
        name = name if until is None else f"{name}_until_{until}"
        super().__init__(name, self._file, self.card.rule, **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The whole file, a column a channel.

        Raises:
            UserError: if it is not the one that the card describes.
        """
        return channels_frame(self._file.wide())


@dataclass(frozen=True)
class CardSource(Source):
    """The file of a public data set, or another one like it.

    Attributes:
        card: what the file is.
        root: the folder of the file, see `PublicDataModule`.
        clean: whether numbers that stand for missing values are masked.
        channels_as_series: whether each channel is a series of its own.
        path: another file with the same columns: its time stamps must be regular, as no card excuses them.
        frequency: that its time stamps must have; None infers it.
        until: rows of the public file from this time stamp on are left out.
    """

    card: Card
    root: str | None = None
    clean: bool = False
    channels_as_series: bool = False
    path: Path | None = None
    frequency: str | None = None
    until: pd.Timestamp | None = None

    @override
    def prepare(self) -> None:
        self._fetch()

    @override
    def at(self, path: Path) -> Source:
        return replace(self, path=path)

    @override
    def for_task(self, task: Task) -> Source:
        return replace(self, frequency=task.frequency)

    @override
    def load(self) -> Panel:
        """The whole file as one series, or each of its channels as one."""
        panel = self.wide()
        return panel.channels_as_series() if self.channels_as_series else panel

    def wide(self) -> Panel:
        """The whole file as one series.

        Raises:
            UserError: if it is not the one that the card describes.
        """
        card = self.card
        if self.path is not None:
            reader = replace(card_reader(card, allow_missing=self.clean), frequency=self.frequency)
            panel = named_as(card, reader.read(self.path))
        else:
            path = self._fetch()
            panel = read_card_file(card, path)
            rows, channels = panel.values.shape
            if (rows, channels) != (card.rows, card.columns):
                raise UserError(
                    f"{path} has {rows} rows x {channels} channels, but {card.name} has {card.rows} x "
                    f"{card.columns}; remove it to download it again, or read your own data with CSVDataModule"
                )
            if self.until is not None:
                end = int(panel.time.searchsorted(in_zone(self.until, getattr(panel.time, "tz", None), "until")))
                if not 0 < end < rows:
                    raise UserError(
                        f"until must lie within {card.name}, which has rows from {panel.time[0]} to {panel.time[-1]}, "
                        f"not at {self.until}"
                    )
                panel = panel.until(np.array([end]))
        return mask_sentinels(panel, card) if self.clean else panel

    def _fetch(self) -> Path:
        return fetch(self.card, data_root(self.root))
