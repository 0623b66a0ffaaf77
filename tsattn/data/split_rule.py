"""Where training, validation and test rows of a series end: rules, each of which is a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tsattn.data.splits import Split
from tsattn.errors import UserError

if TYPE_CHECKING:  # the cards of the data sets, which name rules, are read without pandas
    import pandas as pd

    from tsattn.data.frequency import Times

__all__ = [
    "AllRows",
    "BenchmarkShares",
    "ByCount",
    "ByDate",
    "ByShare",
    "EttMonths",
    "LastTenth",
    "Recut",
    "SplitRule",
    "asked_rule",
    "in_zone",
    "iso_date",
]


class SplitRule(Protocol):
    """What splits each series of a data set; all but those by date look at the number of rows alone."""

    def split(self, time: Times) -> Split:
        """The split of a series with these time stamps, or steps."""


@dataclass(frozen=True)
class ByShare:
    """The first `train` share of the rows, the next `val` share, each rounded down, and all the rest for testing.

    Raises:
        UserError: for shares that leave a part empty.
    """

    train: float = 0.7
    val: float = 0.1

    def __post_init__(self) -> None:
        if not (self.train > 0 and self.val > 0 and self.train + self.val < 1):
            raise UserError(
                f"split must be shares of train and val above 0 that sum to less than 1, not {self.train}, {self.val}"
            )

    def split(self, time: Sized) -> Split:
        """The split of so many rows."""
        train_end = _part(len(time), self.train)
        return Split(train_end, train_end + _part(len(time), self.val), len(time))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that tells rules apart."""
        return {"fractions": [self.train, self.val]}


@dataclass(frozen=True)
class BenchmarkShares:
    """70 / 10 / 20 percent as the literature on long-horizon forecasting rounds (Wu et al., Autoformer).

    Training and test take `int(0.7 n)` and `int(0.2 n)` rows, validation all those between. `ByShare` rounds validation
    instead and gives the rest to testing, which differs by a row or two.
    """

    def split(self, time: Sized) -> Split:
        """The split of so many rows."""
        return Split(int(len(time) * 0.7), len(time) - int(len(time) * 0.2), len(time))


@dataclass(frozen=True)
class EttMonths:
    """12, 4 and 4 months of 30 days, of `day` rows each; the rows after that belong to no part."""

    day: int

    def split(self, time: Sized) -> Split:
        """The same for all series."""
        return Split(12 * 30 * self.day, 16 * 30 * self.day, 20 * 30 * self.day)


@dataclass(frozen=True)
class ByCount:
    """The last `test` rows for testing, the `val` rows before them for validation, the rest for training.

    A series that is shorter than both gives up training first, then validation. Either may be 0.
    """

    val: int
    test: int

    def split(self, time: Sized) -> Split:
        """The split of so many rows."""
        val_end = max(0, len(time) - self.test)
        return Split(max(0, val_end - self.val), val_end, len(time))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that tells rules apart."""
        return {"rows": [self.val, self.test]}


@dataclass(frozen=True)
class ByDate:
    """Validation from the time stamp `val` on, testing from `test` on, each included; before them is training.

    Dates without a time zone are in that of the data.
    """

    val: pd.Timestamp
    test: pd.Timestamp

    def split(self, time: Times) -> Split:
        """The split of a series with these time stamps.

        Raises:
            UserError: for series that count steps, dates in the wrong order, and those with a time zone where the data
                have none.
        """
        tz = getattr(time, "tz", None)
        if not hasattr(time, "tz"):
            raise UserError("the data count steps, so they are not split by date; give val_rows and test_rows")
        val, test = self.dates_in(tz)
        if not val < test:
            raise UserError(f"the validation part must start before the test part, not at {val} and {test}")
        return Split(int(time.searchsorted(val)), int(time.searchsorted(test)), len(time))

    def dates_in(self, tz: Any) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Both dates in this time zone (None: without one) unless they name their own.

        Raises:
            UserError: for dates with a time zone where the data have none.
        """
        what = "val_from and test_from"
        val, test = (in_zone(date, tz, what) for date in (self.val, self.test))
        return val, test

    def to_dict(self) -> dict[str, Any]:
        """Plain data that tells rules apart."""
        return {"dates": [date.isoformat() for date in (self.val, self.test)]}


@dataclass(frozen=True)
class LastTenth:
    """Validation has the last tenth of each series, and at least one horizon; there is no test part.

    Where what is left for training does not hold a whole window, the series is for training alone.
    """

    context_length: int
    prediction_length: int

    def split(self, time: Sized) -> Split:
        """The split of so many rows."""
        rows, L, T = len(time), self.context_length, self.prediction_length
        held_out = max(T, round(0.1 * rows))
        return Split(rows - held_out if rows - held_out >= L + T else rows, rows, rows)


@dataclass(frozen=True)
class AllRows:
    """All rows for training, up to where the parts of another rule end if one is given."""

    of: SplitRule | None = None

    def split(self, time: Times) -> Split:
        """Training alone."""
        end = len(time) if self.of is None else self.of.split(time).test_end
        return Split(end, end, end)


@dataclass(frozen=True)
class Recut:
    """A rule whose splits are cut anew, such as into a block of rows before its test part."""

    of: SplitRule
    cut: Callable[[Split], Split]

    def split(self, time: Times) -> Split:
        """What is cut of the split of the rule that this wraps."""
        return self.cut(self.of.split(time))


def _part(rows: int, share: float) -> int:
    """A share of the rows, rounded down; 0.7 of 90 is 63, though as floats their product is a little less."""
    product = rows * share
    whole = round(product)
    return whole if math.isclose(product, whole, rel_tol=1e-15) else int(product)


def asked_rule(
    train_fraction: float | None,
    val_fraction: float | None,
    val_rows: int | None,
    test_rows: int | None,
    val_from: str | None,
    test_from: str | None,
) -> ByShare | ByCount | ByDate:
    """The rule that a user asks for by the arguments of `FrameDataModule`, of which one way at most is used.

    Raises:
        UserError: for two ways to split, half of one, no rows, or what is no date.
    """
    ways = {
        "train_fraction and val_fraction": (train_fraction, val_fraction),
        "val_rows and test_rows": (val_rows, test_rows),
        "val_from and test_from": (val_from, test_from),
    }
    if val_rows == 0 and test_rows is None:
        ways["val_rows and test_rows"] = (0, test_rows := 0)
    given = [way for way, (one, other) in ways.items() if one is not None or other is not None]
    if len(given) > 1:
        raise UserError(f"data is split in one way: {given[0]}, or {given[1]}")
    for way, (one, other) in list(ways.items())[1:]:
        if (one is None) != (other is None):
            raise UserError(f"a split needs both {way}")
    for what, rows in (("val_rows", val_rows), ("test_rows", test_rows)):
        if rows is not None and rows < 0:
            raise UserError(f"{what} must be at least 0, not {rows}")
    if val_rows is not None and test_rows is not None:
        return ByCount(val_rows, test_rows)
    if val_from is not None and test_from is not None:
        return ByDate(iso_date(val_from), iso_date(test_from))
    usual = ByShare()
    return ByShare(
        usual.train if train_fraction is None else train_fraction, usual.val if val_fraction is None else val_fraction
    )


def iso_date(text: Any) -> pd.Timestamp:
    """A date or time stamp in ISO 8601.

    Raises:
        UserError: for anything else.
    """
    import pandas as pd

    # strictly, as 01/02/2016 would be read with the month first
    stamp = pd.to_datetime(str(text), format="ISO8601", errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        steps = ", or split data that count steps by val_rows and test_rows" if str(text).isdecimal() else ""
        raise UserError(f"{text!r} is not a date; write it like 2016-07-01 or 2016-07-01 00:00{steps}")
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
