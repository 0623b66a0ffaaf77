"""Reading the file of a public data set as its card says, and holding the card against the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.csv_cells import lines_of, read_cells
from tsattn.data.files import sha256_of
from tsattn.data.panel import Panel
from tsattn.data.public.cards import Card, CrLf, Flat, Missing, Oddity, Sentinel, UnevenStep
from tsattn.data.public.download import reported
from tsattn.data.reader import TableReader
from tsattn.data.stamps import time_stamps
from tsattn.data.table_options import TextFormat
from tsattn.errors import UserError, one_of

__all__ = [
    "card_reader",
    "channels_frame",
    "differences",
    "frame_differences",
    "mask_sentinels",
    "named_as",
    "read_card_file",
]


def read_card_file(card: Card, path: Path) -> Panel:
    """The file of a data set as one series: the channels of its card under their repaired names, all values as given.

    Raises:
        UserError: naming what is wrong with the file.
    """
    has_header = card.date_column is not None
    table, where = read_cells(path, has_header=has_header), lines_of(path, has_header=has_header)
    if card.date_column is None:
        table = table.set_axis(_grid(card.first, len(table), card).rename("date"), axis=0)
    elif card.on_grid and card.date_column in table.columns and len(table):
        first = time_stamps(table[card.date_column], where)[0]
        table[card.date_column] = _grid(first, len(table), card)
    if card.channels:
        table = table[[name for name in table.columns if name in (card.date_column, *card.channels)]]
    return named_as(card, card_reader(card).read(table, str(path), row_of=where))


def card_reader(card: Card, *, allow_missing: bool = False) -> TableReader:
    """What reads files with the columns of a card, and mends nothing."""
    return TableReader(
        time_column=card.date_column,
        target=card.channels or None,
        text=TextFormat(format="csv"),
        strict=True,
        allow_missing=allow_missing,
    )


def named_as(card: Card, panel: Panel) -> Panel:
    """The panel with the repaired names of its channels."""
    return replace(panel, channels=tuple(card.renamed.get(name, name) for name in panel.channels))


def mask_sentinels(panel: Panel, card: Card) -> Panel:
    """The panel with NaN where its numbers stand for missing values."""
    values = panel.values.copy()
    for sentinel in card.sentinels:
        if sentinel.column in panel.channels:
            column = values[:, panel.channels.index(sentinel.column)]
            column[column == sentinel.value] = np.nan
    return replace(panel, values=values)


def channels_frame(panel: Panel) -> pd.DataFrame:
    """A wide panel as a frame of its channels over its time stamps."""
    return panel.to_frame().set_index(panel.time_name)


def _grid(first: Any, rows: int, card: Card) -> pd.DatetimeIndex:
    return pd.date_range(first, periods=rows, freq=card.frequency)


def differences(card: Card, path: Path) -> list[str]:
    """Where the file differs from its card, a sentence each; empty if nowhere.

    Sum, rows, columns, time stamps, frequency and every oddity that the file can show are compared.

    Args:
        card: of a data set that is read from a file.
        path: of the file.
    """
    found = sha256_of(path)
    said = []
    if card.sums and found not in card.sums:
        said.append(f"its sha256 is {found}, not {' or '.join(card.sums)}")
    elif not card.sums and found != card.reported_sha256:
        said.append(reported(card, found))
    try:
        panel = read_card_file(card, path)
        frame = channels_frame(panel)
        stamps = _written_stamps(card, path, frame)
        frequency = _usual_frequency(card, stamps) if card.on_grid else panel.frequency
    except UserError as error:
        return [*said, str(error)]
    return said + _text_differences(card, path) + frame_differences(card, frame, stamps, frequency)


def frame_differences(card: Card, frame: pd.DataFrame, stamps: pd.DatetimeIndex, frequency: str) -> list[str]:
    """Where size, time stamps, frequency and odd values of a frame differ from the card.

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
    return said + _oddity_differences(card, frame, stamps)


def _oddity_differences(card: Card, frame: pd.DataFrame, stamps: pd.DatetimeIndex) -> list[str]:
    """Where values and time stamps are not as odd as the card says."""
    said = [why for oddity in card.oddities for why in _value_differences(oddity, frame, stamps)]
    rows = _uneven_steps(stamps)
    known = [(o.row, o.stamp, o.minutes) for o in card.oddities if isinstance(o, UnevenStep)]
    if card.on_grid and rows != known:
        said.append(f"time stamps that do not come one step after the row before: {rows}, not {known}")
    return said


def _value_differences(oddity: Oddity, frame: pd.DataFrame, stamps: pd.DatetimeIndex) -> list[str]:
    """Where the values are not as an oddity says; nothing for one that values do not show."""
    if not isinstance(oddity, Flat | Sentinel | Missing):
        return []
    if oddity.column not in frame.columns:
        return [f"it has no channel {oddity.column!r}"]
    values = frame[oddity.column].to_numpy()
    if isinstance(oddity, Flat):
        run = _run_from(values, int(stamps.searchsorted(pd.Timestamp(oddity.first))))
        found = Flat(oddity.column, oddity.first, *run)
        return [] if found == oddity else [f"{found}, not for {oddity.rows}"]
    odd = values == oddity.value if isinstance(oddity, Sentinel) else np.isnan(values)
    cells = int(odd.sum())
    return [] if cells == oddity.cells else [f"{oddity.column}: {cells} cells, where the card says: {oddity}"]


def _run_from(values: NDArray[np.float64], row: int) -> tuple[int, float]:
    """How many rows keep the value of `row` from there on, 0 if the row before has it too; and that value."""
    value = float(values[row])
    others = np.flatnonzero(values[row:] != value)
    rows = int(others[0]) if others.size else len(values) - row
    return (0 if row and values[row - 1] == value else rows), value


def _uneven_steps(stamps: pd.DatetimeIndex) -> list[tuple[int, str, int]]:
    """Row, time stamp and minutes since the row before, of rows that do not come the usual step after it."""
    minutes = np.asarray((stamps[1:] - stamps[:-1]) / pd.Timedelta(1, "min"))
    usual = pd.Series(minutes).mode()[0]
    rows = [int(row) + 1 for row in np.flatnonzero(minutes != usual)]
    return [(row, str(stamps[row]), int(minutes[row - 1])) for row in rows]


def _written_stamps(card: Card, path: Path, frame: pd.DataFrame) -> pd.DatetimeIndex:
    """The time stamps in the file, where the frame has those of a grid instead."""
    if not card.on_grid or card.date_column is None:
        return pd.DatetimeIndex(frame.index)
    return time_stamps(read_cells(path)[card.date_column], lines_of(path))


def _usual_frequency(card: Card, stamps: pd.DatetimeIndex) -> str:
    """That of the card if most time stamps have it, else their usual step."""
    usual = pd.Series(stamps[1:] - stamps[:-1]).mode()[0]
    regular = _grid(stamps[0], 2, card)
    return card.frequency if usual == regular[1] - regular[0] else str(usual)


def _text_differences(card: Card, path: Path) -> list[str]:
    """Where headers and line ends differ from the card."""
    text = path.read_bytes()
    header = text.partition(b"\n")[0].decode(errors="replace")
    said = []
    broken = {name for name in header.strip("\r").split(",") if "\ufffd" in name}
    if broken != set(card.renamed):
        said.append(
            f"headers with U+FFFD: {one_of(sorted(broken)) or 'none'}, not {one_of(sorted(card.renamed)) or 'none'}"
        )
    crlf = any(isinstance(oddity, CrLf) for oddity in card.oddities)
    if crlf and text.count(b"\r\n") != text.count(b"\n"):
        said.append("not all lines end in CR LF")
    return said
