"""Where the user wants training, validation and test rows to end: by share, by count or by date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tsattn.data.frequency import Times
from tsattn.data.splits import Split
from tsattn.errors import UserError

__all__ = ["SplitRule", "in_zone", "iso_date"]


@dataclass(frozen=True)
class SplitRule:
    """One way to split every series alike; the arguments are those of `FrameDataModule`.

    Attributes:
        fractions: shares of the rows for training and validation; what holds unless one of the others is given.
        rows: rows for validation and testing, or None.
        dates: first time stamps of validation and testing, or None.
    """

    fractions: tuple[float, float]
    rows: tuple[int, int] | None
    dates: tuple[pd.Timestamp, pd.Timestamp] | None

    @classmethod
    def of(
        cls,
        train_fraction: float | None,
        val_fraction: float | None,
        val_rows: int | None,
        test_rows: int | None,
        val_from: str | None,
        test_from: str | None,
    ) -> SplitRule:
        """The rule that these arguments give, of which one way at most is used.

        Raises:
            UserError: for two ways to split, half of one, no rows, or what is no date.
        """
        ways = {
            "train_fraction and val_fraction": (train_fraction, val_fraction),
            "val_rows and test_rows": (val_rows, test_rows),
            "val_from and test_from": (val_from, test_from),
        }
        given = [way for way, (one, other) in ways.items() if one is not None or other is not None]
        if len(given) > 1:
            raise UserError(f"data is split in one way: {given[0]}, or {given[1]}")
        for way, (one, other) in list(ways.items())[1:]:
            if (one is None) != (other is None):
                raise UserError(f"a split needs both {way}")
        for what, rows in (("val_rows", val_rows), ("test_rows", test_rows)):
            if rows is not None and rows < 1:
                raise UserError(f"{what} must be at least 1, not {rows}")
        return cls(
            (0.7 if train_fraction is None else train_fraction, 0.1 if val_fraction is None else val_fraction),
            None if val_rows is None or test_rows is None else (val_rows, test_rows),
            None if val_from is None or test_from is None else (iso_date(val_from), iso_date(test_from)),
        )

    def split(self, time: Times) -> Split:
        """The split of a series with these time stamps, or steps.

        Raises:
            UserError: for a split by date of series that count steps.
        """
        if self.dates is not None:
            if not isinstance(time, pd.DatetimeIndex):
                raise UserError("the data count steps, so they are not split by date; give val_rows and test_rows")
            return Split.by_date(time, *self.dates_in(time.tz))
        return self.split_rows(len(time))

    def split_rows(self, num_rows: int) -> Split:
        """The split of a series of so many rows, by a rule without dates."""
        if self.rows is not None:
            return Split.by_count(num_rows, *self.rows)
        return Split.by_fraction(num_rows, *self.fractions)

    def dates_in(self, tz: Any) -> tuple[pd.Timestamp, pd.Timestamp]:
        """The dates of a rule that has them, in this time zone (None: without one) unless they name their own.

        Raises:
            UserError: for dates with a time zone where the data have none.
        """
        assert self.dates is not None
        val, test = (in_zone(date, tz, "val_from and test_from") for date in self.dates)
        return val, test

    def to_dict(self) -> dict[str, Any]:
        """Plain data that tells rules apart."""
        if self.rows is not None:
            return {"rows": list(self.rows)}
        if self.dates is not None:
            return {"dates": [date.isoformat() for date in self.dates]}
        return {"fractions": list(self.fractions)}


def iso_date(text: Any) -> pd.Timestamp:
    """A date or time stamp in ISO 8601.

    Raises:
        UserError: for anything else.
    """
    # strictly, as 01/02/2016 would be read with the month first
    stamp = pd.to_datetime(str(text), format="ISO8601", errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        raise UserError(f"{text!r} is not a date; write it like 2016-07-01 or 2016-07-01 00:00")
    return stamp


def in_zone(date: pd.Timestamp, tz: Any, what: str) -> pd.Timestamp:
    """A date in a time zone, or None of these, unless it names its own.

    Args:
        date: the date.
        tz: the time zone.
        what: gave the date, for the message.

    Raises:
        UserError: for a date with a time zone where there is none.
    """
    if date.tz is None:
        return date.tz_localize(tz, ambiguous=True, nonexistent="shift_forward")
    if tz is None:
        raise UserError(f"the data have no time zone, so {what} must have none either, not {date}")
    return date
