"""The public data sets that are read from a CSV file as their cards say, and how a file differs from its card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule, Source
from tsattn.data.panel import Panel
from tsattn.data.public.cards import (
    CARDS,
    Card,
    CrLf,
    Flat,
    Missing,
    Oddity,
    Sentinel,
    UnevenStep,
    card_of,
    data_root,
    fetch,
    reported,
)
from tsattn.data.reader import TableReader
from tsattn.data.splits import EttMonths, in_zone, iso_date
from tsattn.data.stamps import time_stamps
from tsattn.data.table_options import TextFormat
from tsattn.data.tables import lines_of, read_cells
from tsattn.errors import UserError, one_of
from tsattn.saved_folders import sha256
from tsattn.task import Task

__all__ = ["CardSource", "PublicDataModule", "channels_frame", "differences", "frame_differences"]


class PublicDataModule(ForecastDataModule):
    """Public data set with the split of the literature, rows and values unchanged.

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
        until: a date; rows from it on are left out, as if they had not come yet, and the rest is split. So findings in
            the usual test part are checked in other windows. Not the benchmark's protocol either: the data set is then
            called ``NAME_until_DATE``.
        **sizes: lengths and batch sizes, see `WindowOptions`.

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
        full = f"{name}{'_clean' if clean else ''}{'' if until is None else f'_until_{until}'}"
        super().__init__(full, self._file, self.card.rule, **sizes)

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
            reader = replace(_reader(card, allow_missing=self.clean), frequency=self.frequency)
            panel = _named_as(card, reader.read(self.path))
        else:
            path = self._fetch()
            panel = _read(card, path)
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
        if self.clean:
            values = panel.values.copy()
            for sentinel in card.sentinels:
                if sentinel.column in panel.channels:
                    column = values[:, panel.channels.index(sentinel.column)]
                    column[column == sentinel.value] = np.nan
            panel = replace(panel, values=values)
        return panel

    def _fetch(self) -> Path:
        return fetch(self.card, data_root(self.root))


def _read(card: Card, path: Path) -> Panel:
    """The file of a data set as one series: its channels under their repaired names, all values as given."""
    has_header = card.date_column is not None
    table, where = read_cells(path, has_header=has_header), lines_of(path, has_header=has_header)
    if card.date_column is None:
        table = table.set_axis(_grid(card.first, len(table), card).rename("date"), axis=0)
    elif card.on_grid and card.date_column in table.columns and len(table):
        first = time_stamps(table[card.date_column], where)[0]
        table[card.date_column] = _grid(first, len(table), card)
    if card.channels:
        table = table[[name for name in table.columns if name in (card.date_column, *card.channels)]]
    return _named_as(card, _reader(card).read(table, str(path), row_of=where))


def _reader(card: Card, *, allow_missing: bool = False) -> TableReader:
    """What reads files with the columns of a card, and mends nothing."""
    return TableReader(
        time_column=card.date_column,
        target=card.channels or None,
        text=TextFormat(format="csv"),
        strict=True,
        allow_missing=allow_missing,
    )


def _named_as(card: Card, panel: Panel) -> Panel:
    return replace(panel, channels=tuple(card.renamed.get(name, name) for name in panel.channels))


def _grid(first: Any, rows: int, card: Card) -> pd.DatetimeIndex:
    return pd.date_range(first, periods=rows, freq=card.frequency)


def channels_frame(panel: Panel) -> pd.DataFrame:
    """A wide panel as a frame of its channels over its time stamps."""
    return panel.to_frame().set_index(panel.time_name)


def differences(card: Card, path: Path) -> list[str]:
    """List where a file differs from its card, a sentence each: sum, size, time stamps, frequency and oddities.

    Args:
        card: of a data set that is read from a file.
        path: of the file.
    """
    found = sha256(path)
    said = []
    if card.sums and found not in card.sums:
        said.append(f"its sha256 is {found}, not {' or '.join(card.sums)}")
    elif not card.sums and found != card.reported_sha256:
        said.append(reported(card, found))
    try:
        panel = _read(card, path)
        frame, frequency = channels_frame(panel), panel.frequency
        stamps = pd.DatetimeIndex(frame.index)
        if card.on_grid and card.date_column is not None:  # those in the file, in whose place the frame has a grid
            stamps = time_stamps(read_cells(path)[card.date_column], lines_of(path))
            usual = pd.Series(stamps[1:] - stamps[:-1]).mode()[0]
            regular = _grid(stamps[0], 2, card)
            frequency = card.frequency if usual == regular[1] - regular[0] else str(usual)
    except UserError as error:
        return [*said, str(error)]
    text = path.read_bytes()
    header = text.partition(b"\n")[0].decode(errors="replace")
    broken = {name for name in header.strip("\r").split(",") if "\ufffd" in name}
    if broken != set(card.renamed):
        said.append(
            f"headers with U+FFFD: {one_of(sorted(broken)) or 'none'}, not {one_of(sorted(card.renamed)) or 'none'}"
        )
    if any(isinstance(oddity, CrLf) for oddity in card.oddities) and text.count(b"\r\n") != text.count(b"\n"):
        said.append("not all lines end in CR LF")
    return said + frame_differences(card, frame, stamps, frequency)


def frame_differences(card: Card, frame: pd.DataFrame, stamps: pd.DatetimeIndex, frequency: str) -> list[str]:
    """List where size, time stamps, frequency and odd values of a frame differ from the card.

    Args:
        card: of the data set.
        frame: its channels.
        stamps: the time stamps that were written, which those of the frame may replace by a grid.
        frequency: of `stamps`.
    """
    pairs = [
        ("rows", len(frame), card.rows),
        ("channels", frame.shape[1], card.columns),
        ("first time stamp", str(stamps[0]), card.first),
        ("last time stamp", str(stamps[-1]), card.last),
        ("frequency", frequency, card.frequency),
    ]
    said = [f"{word}: {found}, not {expected}" for word, found, expected in pairs if found != expected]
    if card.target not in frame.columns:
        said.append(f"it has no channel {card.target!r}; its channels are {one_of(frame.columns[:12])}")
    said += [why for oddity in card.oddities for why in _value_differences(oddity, frame, stamps)]
    if card.on_grid:
        minutes = np.asarray((stamps[1:] - stamps[:-1]) / pd.Timedelta(1, "min"))
        uneven = np.flatnonzero(minutes != pd.Series(minutes).mode()[0]).tolist()
        rows = [(row + 1, str(stamps[row + 1]), int(minutes[row])) for row in uneven]
        known = [(o.row, o.stamp, o.minutes) for o in card.oddities if isinstance(o, UnevenStep)]
        if rows != known:
            said.append(f"time stamps that do not come one step after the row before: {rows}, not {known}")
    return said


def _value_differences(oddity: Oddity, frame: pd.DataFrame, stamps: pd.DatetimeIndex) -> list[str]:
    """Where the values are not as an oddity says; nothing for one that values do not show."""
    if not isinstance(oddity, Flat | Sentinel | Missing):
        return []
    if oddity.column not in frame.columns:
        return [f"it has no channel {oddity.column!r}"]
    values = frame[oddity.column].to_numpy()
    if isinstance(oddity, Flat):  # from its row on, and not the row before
        row = int(stamps.searchsorted(pd.Timestamp(oddity.first)))
        others = np.flatnonzero(values[row:] != values[row])
        rows = int(others[0]) if others.size else len(values) - row
        is_later = row > 0 and values[row - 1] == values[row]
        found = Flat(oddity.column, oddity.first, 0 if is_later else rows, float(values[row]))
        return [] if found == oddity else [f"{found}, not for {oddity.rows}"]
    cells = int((values == oddity.value if isinstance(oddity, Sentinel) else np.isnan(values)).sum())
    return [] if cells == oddity.cells else [f"{oddity.column}: {cells} cells, where the card says: {oddity}"]
