"""The public data sets that are read from a CSV file as their cards say, and how a file differs from its card."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule, FrameSource, Source
from tsattn.data.panel import Panel
from tsattn.data.public.cards import CARDS, Card, Oddity, card_of, data_root, fetch, reported
from tsattn.data.reader import TableReader
from tsattn.data.splits import in_zone, iso_date
from tsattn.data.stamps import time_stamps
from tsattn.data.table_options import TextFormat
from tsattn.data.tables import lines_of, read_cells
from tsattn.errors import UserError, one_of
from tsattn.saved_folders import sha256
from tsattn.task import Task

__all__ = ["CO2DataModule", "CardSource", "PublicDataModule", "channels_frame", "differences", "frame_differences"]


class _Weeks(FrameSource):
    """The strict frame; files that are forecast from are read as one's own."""

    @override
    def for_task(self, task: Task) -> FrameSource:
        return self

    @override
    def at(self, path: Path) -> FrameSource:
        return FrameSource(path)


class CO2DataModule(ForecastDataModule):
    """Weekly atmospheric CO2, split 70 / 10 / 20 percent in time; missing weeks are masked, never dropped.

    Source: Keeling and Whorf, Scripps CO2 program, 1958-2001, as shipped inside statsmodels (public domain): 2284
    weeks in parts per million at Mauna Loa, 59 of them missing. It needs no download.

    Args:
        context_length: past weeks that a model sees, L.
        prediction_length: weeks that it forecasts, T.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    def __init__(self, context_length: int = 208, prediction_length: int = 52, **sizes: Any) -> None:
        sizes |= {"context_length": context_length, "prediction_length": prediction_length}
        source = _Weeks(self.load_frame, TableReader(strict=True, allow_missing=True))
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
        if until is not None and self.card.parts == "ett":
            raise UserError(f"the parts of {name} are months from its beginning, so that until leaves out none of them")
        self.root, self.clean, self.channels_as_series, self.until = root, clean, channels_as_series, until
        end = None if until is None else iso_date(until)
        self._file = CardSource(self.card, root, clean, channels_as_series, until=end)
        full = f"{name}{'_clean' if clean else ''}{'' if until is None else f'_until_{until}'}"
        super().__init__(full, self._file, self.card, **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The whole file, a column a channel; UserError if it is not the one that the card describes."""
        return channels_frame(self._file.wide())


@dataclass(frozen=True)
class CardSource(Source):
    """The file of a public data set, or another one like it; see `PublicDataModule`."""

    card: Card
    root: str | None = None
    clean: bool = False
    channels_as_series: bool = False
    path: Path | None = None  # another file with the same columns: its time stamps must be regular
    frequency: str | None = None  # that its time stamps must have; None infers it
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
        """The whole file as one series; UserError if it is not the one that the card describes."""
        card = self.card
        if self.path is not None:
            reader = replace(_reader(card, allow_missing=self.clean), frequency=self.frequency)
            panel = _named_as(card, reader.read(self.path))
        else:
            path = fetch(card, data_root(self.root))
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


def _read(card: Card, path: Path) -> Panel:
    """The file of a data set as one series: its channels under their repaired names, all values as given."""
    has_header = card.date_column is not None
    table, where = read_cells(path, has_header=has_header), lines_of(path, has_header=has_header)
    if not has_header:
        table = table.set_axis(_grid(card.first, len(table), card).rename("date"), axis=0)
    elif card.on_grid and card.date_column in table.columns and len(table):
        table[card.date_column] = _grid(time_stamps(table[card.date_column], where)[0], len(table), card)
    if card.channels:
        table = table[[name for name in table.columns if name in (card.date_column, *card.channels)]]
    return _named_as(card, _reader(card).read(table, str(path), row_of=where))


def _reader(card: Card, *, allow_missing: bool = False) -> TableReader:
    columns: dict[str, Any] = {"time_column": card.date_column, "target": card.channels or None}
    return TableReader(**columns, text=TextFormat(format="csv"), strict=True, allow_missing=allow_missing)


def _named_as(card: Card, panel: Panel) -> Panel:
    return replace(panel, channels=tuple(card.renamed.get(name, name) for name in panel.channels))


def _grid(first: Any, rows: int, card: Card) -> pd.DatetimeIndex:
    return pd.date_range(first, periods=rows, freq=card.frequency)


def channels_frame(panel: Panel) -> pd.DataFrame:
    """A wide panel as a frame of its channels over its time stamps."""
    return panel.to_frame().set_index(panel.time_name)


def differences(card: Card, path: Path) -> list[str]:
    """List where a file differs from its card, a sentence each: sum, size, time stamps, frequency and oddities."""
    found, said = sha256(path), []
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
    broken, known = {name for name in header.strip("\r").split(",") if "\ufffd" in name}, set(card.renamed)
    if broken != known:
        said.append(f"headers with U+FFFD: {one_of(sorted(broken)) or 'none'}, not {one_of(sorted(known)) or 'none'}")
    if any(oddity.kind == "crlf" for oddity in card.oddities) and text.count(b"\r\n") != text.count(b"\n"):
        said.append("not all lines end in CR LF")
    return said + frame_differences(card, frame, stamps, frequency)


def frame_differences(card: Card, frame: pd.DataFrame, stamps: pd.DatetimeIndex, frequency: str) -> list[str]:
    """List where size, time stamps, frequency and odd values of a frame differ from the card.

    `stamps`, which have the frequency, are those that were written; those of the frame may be a grid in their place.
    """
    minutes = np.asarray((stamps[1:] - stamps[:-1]) / pd.Timedelta(1, "min"))
    uneven = np.flatnonzero(card.on_grid & (minutes != pd.Series(minutes).mode()[0])).tolist()
    steps = [(row + 1, str(stamps[row + 1]), int(minutes[row])) for row in uneven]
    known = [(one.row, one.stamp, one.minutes) for one in card.oddities if one.kind == "uneven_step"]
    pairs = [
        ("rows", len(frame), card.rows),
        ("channels", frame.shape[1], card.columns),
        ("first time stamp", str(stamps[0]), card.first),
        ("last time stamp", str(stamps[-1]), card.last),
        ("frequency", frequency, card.frequency),
        ("time stamps that do not come one step after the row before", steps, known if card.on_grid else []),
    ]
    said = [f"{word}: {found}, not {expected}" for word, found, expected in pairs if found != expected]
    if card.target not in frame.columns:
        said.append(f"it has no channel {card.target!r}; its channels are {one_of(frame.columns[:12])}")
    return said + [
        why for oddity in card.oddities if oddity.column for why in _value_differences(oddity, frame, stamps)
    ]


def _value_differences(oddity: Oddity, frame: pd.DataFrame, stamps: pd.DatetimeIndex) -> list[str]:
    if oddity.column not in frame.columns:
        return [f"it has no channel {oddity.column!r}"]
    values = frame[oddity.column].to_numpy()
    if oddity.kind == "flat":  # from its row on, and not the row before
        row = int(stamps.searchsorted(pd.Timestamp(oddity.first)))
        others = np.flatnonzero(values[row:] != values[row])
        rows = int(others[0]) if others.size else len(values) - row
        is_later = row > 0 and values[row - 1] == values[row]
        found = replace(oddity, rows=0 if is_later else rows, value=float(values[row]))
        return [] if found == oddity else [f"{found}, not for {oddity.rows}"]
    cells = int((values == oddity.value if oddity.kind == "sentinel" else np.isnan(values)).sum())
    return [] if cells == oddity.cells else [f"{oddity.column}: {cells} cells, where the card says: {oddity}"]
