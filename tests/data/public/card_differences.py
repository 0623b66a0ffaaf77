"""How a file differs from its card, in all that the card says of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from tsattn.data.public import public_data
from tsattn.data.public.cards import Card, Oddity
from tsattn.data.stamps import time_stamps
from tsattn.data.tables import read_cells, rows_of
from tsattn.errors import UserError, one_of


def differences(card: Card, path: Path) -> list[str]:
    """List where a file differs from its card, a sentence each: sum, size, time stamps, frequency and oddities."""
    sized = ("rows: ", "channels: ")  # said again below
    card_here = replace(card, file=path.name)
    said = [one for one in public_data.differences(card_here, path.parent) if not one.startswith(sized)]
    try:
        panel = public_data.read_card(card, path)
        frame, frequency = panel.to_frame().set_index(panel.time_name), panel.frequency
        stamps = pd.DatetimeIndex(frame.index)
        if card.on_grid and card.date_column is not None:  # those in the file, in whose place the frame has a grid
            stamps = time_stamps(read_cells(path)[card.date_column], rows_of(path))
            usual = pd.Series(stamps[1:] - stamps[:-1]).mode()[0]
            regular = pd.date_range(stamps[0], periods=2, freq=card.frequency)
            frequency = card.frequency if usual == regular[1] - regular[0] else str(usual)
    except UserError as error:
        return [*said, *([] if str(error) in said else [str(error)])]
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
