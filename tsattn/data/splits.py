"""Splits of series into training, validation and test rows, the rules that make splits, and the windows of a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tsattn.errors import UserError, is_number, whole_number

if TYPE_CHECKING:  # cards of data sets use this module without pandas
    import pandas as pd

    from tsattn.data.frequency import Times

PART_WORDS = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Split:
    """Row numbers at which the parts end: train `[0, train_end)`, val `[train_end, val_end)`, test up to `test_end`.

    The whole horizon of a window lies inside its part; its context may reach back into the part before.
    """

    train_end: int
    val_end: int
    test_end: int

    def bounds(self, part: str) -> tuple[int, int]:
        """First row of ``train``, ``val`` or ``test``, and the row after its last row."""
        ends = {"train": (0, self.train_end), "val": (self.train_end, self.val_end)}
        return ends.get(part, (self.val_end, self.test_end))

    def with_validation(self, first: float, last: float) -> Split:
        """Validate on the validation rows between two shares; rows before them become training rows."""
        start, rows = self.train_end, self.val_end - self.train_end
        return replace(self, train_end=start + round(first * rows), val_end=start + round(last * rows))

    def all_for_training(self) -> Split:
        """Train on the rows of all parts."""
        return Split(self.test_end, self.test_end, self.test_end)

    def origins(self, part: str, context_length: int, prediction_length: int) -> range:
        """All rows at which a horizon may start in a part; UserError if the part is too short for a window."""
        start, end = self.bounds(part)
        words = f"the {PART_WORDS[part]} part"
        if end == start:
            move = "`val_rows` and `test_rows`, `val_from` and `test_from`, or `train_fraction` and `val_fraction`"
            raise UserError(f"{words} of the data has no rows; move {move}")
        L, T, rows = context_length, prediction_length, end - start
        if rows < T:
            part_rows = f"{words} of the data, {rows} rows"
            raise UserError(f"prediction_length {T} is longer than {part_rows}; valid: 1 to {rows}")
        if part != "train" and start < L:
            raise UserError(f"context_length {L} is longer than the {start} rows before {words}; valid: 1 to {start}")
        if end < max(start, L) + T:
            both = f"context_length {L} and prediction_length {T} need {L + T} rows"
            mend = f"lower them (--data.context_length, --data.prediction_length) to {end} together"
            raise UserError(f"{both}, but {words} has {end}; {mend}")
        return range(max(start, L), end - T + 1)

    def short_origins(self, part: str, context_length: int, prediction_length: int) -> range:
        """Origins of padded windows of a short series, perhaps none; a short training part gives one origin."""
        start, end = self.bounds(part)
        last = end - prediction_length
        first = min(context_length, last) if part == "train" else start
        return range(max(1, first), max(1, last + 1))


def all_origins(splits: Sequence[Split], part: str, context_length: int, prediction_length: int) -> list[range]:
    """The origins of a part for many series; UserError if no series is long enough for a whole window."""
    sizes = context_length, prediction_length
    if len(splits) == 1:
        return [splits[0].origins(part, *sizes)]

    def room(split: Split) -> tuple[int, int, int]:  # the series with most room has a window if any has
        start, end = split.bounds(part)
        return min(end - start, prediction_length), start, end

    try:
        max(splits, key=room).origins(part, *sizes)
    except UserError as error:
        raise UserError(f"every series is too short, even the longest: {error}") from error
    return [split.short_origins(part, *sizes) for split in splits]


class SplitRule(Protocol):
    """A rule that splits each series of a data set; all rules except by date use only the number of rows."""

    def split(self, time: Times) -> Split:
        """Split a series with these time stamps, or steps."""


@dataclass(frozen=True)
class ByShare:
    """The first `train` share of the rows, the next `val` share (rounded down), the rest for testing; no share is 0."""

    train: float = 0.7
    val: float = 0.1

    def __post_init__(self) -> None:
        is_valid = is_number(self.train) and is_number(self.val) and min(self.train, self.val) > 0
        if not (is_valid and self.train + self.val < 1):
            need = "train_fraction and val_fraction must be above 0 and sum to less than 1"
            raise UserError(f"{need}, not {self.train}, {self.val}")

    def split(self, time: Sized) -> Split:
        """Split by the number of rows."""
        # round up tiny errors: 0.7 * 90 is 63, but the product of floats is a little less
        products = [len(time) * share for share in (self.train, self.val)]
        are_whole = [math.isclose(product, round(product), rel_tol=1e-15) for product in products]
        train, val = (round(p) if is_whole else int(p) for p, is_whole in zip(products, are_whole, strict=True))
        return Split(train, train + val, len(time))


@dataclass(frozen=True)
class ByCount:
    """The last `test` rows for testing, the `val` rows before them for validation, the rest for training.

    A series shorter than `val + test` has no training rows, then fewer validation rows. Both numbers may be 0.
    """

    val: int
    test: int

    def split(self, time: Sized) -> Split:
        """Split by the number of rows."""
        val_end = max(0, len(time) - self.test)
        return Split(max(0, val_end - self.val), val_end, len(time))


@dataclass(frozen=True)
class ByDate:
    """Validation from the time stamp `val` on, testing from `test` on; stamps without a zone use the data's zone."""

    val: pd.Timestamp
    test: pd.Timestamp

    def split(self, time: Times) -> Split:
        """Split by time stamps; UserError for steps, dates in the wrong order, or a zone that the data lack."""
        if not hasattr(time, "tz"):
            raise UserError("the data count steps and have no dates: give val_rows and test_rows")
        val, test = (in_zone(date, time.tz, "val_from and test_from") for date in (self.val, self.test))
        if not val < test:
            raise UserError(f"the validation part must start before the test part, not at {val} and {test}")
        return Split(int(time.searchsorted(val)), int(time.searchsorted(test)), len(time))


@dataclass(frozen=True)
class LastTenth:
    """Validate on the last tenth, at least a horizon; no test. Train on all rows if no whole window would remain."""

    context_length: int
    prediction_length: int

    def split(self, time: Sized) -> Split:
        """Split by the number of rows."""
        rows = len(time)
        left = rows - max(self.prediction_length, round(0.1 * rows))
        return Split(left if left >= self.context_length + self.prediction_length else rows, rows, rows)


@dataclass(frozen=True)
class Recut:
    """A rule that cuts the splits of another rule again, for example to a block of rows before its test rows."""

    of: SplitRule
    cut: Callable[[Split], Split]

    def split(self, time: Times) -> Split:
        """Cut the split of the wrapped rule."""
        return self.cut(self.of.split(time))


def asked_rule(
    train_fraction: float | None = None,
    val_fraction: float | None = None,
    val_rows: int | None = None,
    test_rows: int | None = None,
    val_from: str | None = None,
    test_from: str | None = None,
) -> ByShare | ByCount | ByDate:
    """Make the rule for a user's options; UserError for two ways to split, an incomplete split, or an invalid date."""
    test_rows = 0 if val_rows == 0 and test_rows is None else test_rows
    shares, rows, dates = (train_fraction, val_fraction), (val_rows, test_rows), (val_from, test_from)
    ways = {"train_fraction and val_fraction": shares, "val_rows and test_rows": rows, "val_from and test_from": dates}
    given = [way for way, pair in ways.items() if pair != (None, None)]
    if len(given) > 1:
        raise UserError(f"the data can be split in one way only: leave out {given[0]} or {given[1]}")
    if given and ways[given[0]] != shares and None in ways[given[0]]:
        other = "" if rows == (None, None) else "; give the other, too, 0 for none"
        raise UserError(f"a split needs both {given[0]}{other}")
    for what, count in (("val_rows", val_rows), ("test_rows", test_rows)):
        if count is not None:
            whole_number(what, count, least=0)
    if val_rows is not None and test_rows is not None:
        return ByCount(val_rows, test_rows)
    if val_from is not None and test_from is not None:
        return ByDate(iso_date(val_from), iso_date(test_from))
    return ByShare(0.7 if train_fraction is None else train_fraction, 0.1 if val_fraction is None else val_fraction)


def iso_date(text: Any) -> pd.Timestamp:
    """Read a date or time stamp in ISO 8601; UserError for anything else."""
    import pandas as pd

    # only ISO 8601: pandas would read 01/02/2016 with the month first
    stamp = pd.to_datetime(str(text), format="ISO8601", errors="coerce")
    if not isinstance(stamp, pd.Timestamp):
        steps = ", or split data that count steps by val_rows and test_rows" if str(text).isdecimal() else ""
        raise UserError(f"{text!r} is not a date; write it like 2016-07-01 or 2016-07-01 00:00{steps}")
    return stamp


def in_zone(date: pd.Timestamp, tz: Any, what: str) -> pd.Timestamp:
    """Give a date the zone `tz` if it has none; UserError if it has a zone and `tz` is None. Messages name `what`."""
    if date.tz is None:
        return date.tz_localize(tz, ambiguous=True, nonexistent="shift_forward")
    if tz is None:
        raise UserError(f"the data have no time zone, so {what} must have none either, not {date}")
    return date
