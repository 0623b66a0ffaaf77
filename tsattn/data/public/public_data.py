"""DataModules of the public data sets, read as their cards say, and the differences of a file from its card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule, FrameSource, Source
from tsattn.data.panel import Panel
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.data.reader import TableReader
from tsattn.data.splits import in_zone, iso_date
from tsattn.data.stamps import time_stamps
from tsattn.data.tables import read_cells, rows_of
from tsattn.errors import UserError, one_of
from tsattn.saved_folders import sha256
from tsattn.task import Task


class CO2DataModule(ForecastDataModule):
    """Weekly atmospheric CO2; missing weeks are masked, never dropped. The split in time is ``70 / 10 / 20`` percent.

    Source: Keeling and Whorf, Scripps CO2 program, 1958-2001, as shipped inside statsmodels (public domain): 2284
    weeks in parts per million at Mauna Loa, 59 of them missing. It needs no download.

    Args:
        context_length: past weeks that a model sees, L.
        prediction_length: weeks that it forecasts, T.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    def __init__(self, context_length: int = 208, prediction_length: int = 52, **sizes: Any) -> None:
        sizes |= {"context_length": context_length, "prediction_length": prediction_length}
        source = FrameSource(self.load_frame, TableReader(strict=True, allow_missing=True), is_fixed=True)
        super().__init__("co2", source, CARDS["co2"], **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The 2284 weeks, in parts per million."""
        from statsmodels.datasets import co2

        frame: pd.DataFrame = co2.load_pandas().data.astype("float64")
        frame.index.name = "date"
        return frame


class PublicDataModule(ForecastDataModule):
    """Public data set with the split of the literature, rows and values unchanged.

    `tsattn datasets list` names the data sets, `datasets info NAME` shows the card of one.

    Args:
        name: ``ETTh1``, ``ETTh2``, ``ETTm1``, ``ETTm2``, ``weather``, ``exchange_rate``, ``national_illness``,
            ``electricity``, ``traffic``, ``solar`` or ``vic_electricity``.
        root: the folder of the CSV files, by default `$TSATTN_DATA`, else `data`; missing files are downloaded.
        clean: mask numbers that stand for missing values, so that they are not scored. The benchmarks do not do so;
            therefore the data set is then called ``NAME_clean``.
        channels_as_series: whether each channel is a separate series, with one channel ``y``.
        until: a date; rows from this date on are left out, and the rest is split. Use it to check results of the usual
            test set in other windows. The data set is then called ``NAME_until_DATE``.
        **sizes: lengths and batch sizes, see `WindowOptions`.

    Raises:
        UserError: for an unknown name, an invalid date, or `clean` for a data set with nothing to mask.
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
            what = "clean masks placeholder numbers of missing values"
            raise UserError(f"{what}, but {name} has none; valid: {valid}")
        if until is not None and self.card.parts == "ett":
            raise UserError(f"{name} is split by months from its beginning, so until has no effect: leave it out")
        self.root, self.clean, self.channels_as_series, self.until = root, clean, channels_as_series, until
        end = None if until is None else iso_date(until)
        self._file = CardSource(self.card, root, clean, channels_as_series, until=end)
        full = f"{name}{'_clean' if clean else ''}{'' if until is None else f'_until_{until}'}"
        super().__init__(full, self._file, self.card, **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The whole file, with a column for each channel; UserError if it differs from the card."""
        panel = self._file.wide()
        return panel.to_frame().set_index(panel.time_name)


@dataclass(frozen=True)
class CardSource(Source):
    """The file of a public data set, or another file with the same columns; see `PublicDataModule`."""

    card: Card
    root: str | None = None
    clean: bool = False
    channels_as_series: bool = False
    path: Path | None = None  # another file with the same columns and regular time stamps
    frequency: str | None = None  # required frequency of this file; None infers it
    until: pd.Timestamp | None = None  # rows of the public file from this time stamp on are left out

    @override
    def prepare(self) -> None:
        fetch(self.card, data_root(self.root))

    @override
    def at(self, path: Path) -> Source:
        return replace(self, path=path)

    @override
    def for_task(self, task: Task) -> Source:
        return replace(self, frequency=task.frequency)

    @override
    def load(self) -> Panel:
        panel = self.wide()
        return panel.channels_as_series() if self.channels_as_series else panel

    def wide(self) -> Panel:
        """The whole file as one series; UserError if it differs from the card."""
        card = self.card
        if self.path is not None:
            reader = replace(_reader(card, allow_missing=self.clean), frequency=self.frequency)
            panel = _named_as(card, reader.read(self.path))
        else:
            path = fetch(card, data_root(self.root))
            panel = read_card(card, path)
            rows, channels = panel.values.shape
            if (rows, channels) != (card.rows, card.columns):
                but = f"{rows} rows x {channels} channels, but {card.name} has {card.rows} x {card.columns}"
                mend = "remove it to download it again, or read your own data with CSVDataModule"
                raise UserError(f"{path} has {but}; {mend}")
            if self.until is not None:
                end = int(panel.time.searchsorted(in_zone(self.until, getattr(panel.time, "tz", None), "until")))
                if not 0 < end < rows:
                    has = f"{card.name}, which has rows from {panel.time[0]} to {panel.time[-1]}"
                    raise UserError(f"until must lie within {has}, not at {self.until}")
                panel = panel.until(np.array([end]))
        if self.clean:
            standing = {sentinel.column: sentinel.value for sentinel in card.sentinels}
            gone = panel.values == [standing.get(name, np.nan) for name in panel.channels]
            panel = replace(panel, values=np.where(gone, np.nan, panel.values))
        return panel


def read_card(card: Card, path: Path) -> Panel:
    """The file of a data set as one series, with repaired names of channels and unchanged values."""
    has_header = card.date_column is not None
    table, where = read_cells(path, has_header=has_header), rows_of(path, has_header=has_header)
    if not has_header:
        table = table.set_axis(pd.date_range(card.first, periods=len(table), freq=card.frequency, name="date"), axis=0)
    elif card.on_grid and card.date_column in table.columns and len(table):
        first = time_stamps(table[card.date_column], where)[0]
        table[card.date_column] = pd.date_range(first, periods=len(table), freq=card.frequency)
    if card.channels:
        table = table[[name for name in table.columns if name in (card.date_column, *card.channels)]]
    return _named_as(card, _reader(card).read(table, str(path), row_of=where))


def _reader(card: Card, *, allow_missing: bool = False) -> TableReader:
    columns: dict[str, Any] = {"time_column": card.date_column, "target": card.channels or None}
    return TableReader(**columns, format="csv", strict=True, allow_missing=allow_missing)


def _named_as(card: Card, panel: Panel) -> Panel:
    return replace(panel, channels=tuple(card.renamed.get(name, name) for name in panel.channels))


def differences(card: Card, root: Path) -> list[str]:
    """List, in sentences, how the data of a card in `root` differ from it: checksum and size."""
    said = []
    try:
        if card.file is None:
            panel = CO2DataModule().source.load()
        else:
            found = sha256(root / card.file)
            if card.sums and found not in card.sums:
                said.append(f"its sha256 is {found}, not {' or '.join(card.sums)}")
            elif not card.sums and found != card.reported_sha256:
                said.append(reported(card, found))
            panel = read_card(card, root / card.file)
    except UserError as error:
        return [*said, str(error)]
    sizes = zip(("rows", "channels"), panel.values.shape, (card.rows, card.columns), strict=True)
    return said + [f"{word}: {found}, not {expected}" for word, found, expected in sizes if found != expected]
