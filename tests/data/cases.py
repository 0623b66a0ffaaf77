"""Frames to read, and what the tests of reading them share."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tsattn.data import Panel, panel_from_frame
from tsattn.errors import UserError

FREQUENCIES = ["min", "15min", "h", "D", "B", "W-SUN", "MS", "ME", "QS-JAN", "QE-DEC", "YS-JAN", "YE-DEC"]


def long_frame(lengths: dict[str, int], frequency: str = "D", first: str = "2020-01-01") -> pd.DataFrame:
    """Series of these lengths, each a few steps later than the one before; y counts the rows of the frame."""
    parts = []
    for number, (name, rows) in enumerate(lengths.items()):
        stamps = pd.date_range(first, periods=rows + 3 * number, freq=frequency)[3 * number :]
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps}))
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(y=np.arange(len(frame), dtype=float))


def wide_frame(rows: int = 10, frequency: str = "h") -> pd.DataFrame:
    """Channels x, that counts the rows, and z, that counts them down."""
    stamps = pd.date_range("2020-01-01", periods=rows, freq=frequency)
    return pd.DataFrame({"date": stamps, "x": np.arange(rows) * 1.0, "z": np.arange(rows)[::-1]})


def covariate_frame(steps_ahead: int = 4) -> pd.DataFrame:
    frame = long_frame({"a": 10 + steps_ahead, "b": 8 + steps_ahead})
    frame["price"] = frame.index * 10.0
    frame["promo"] = frame.index % 2 == 0
    frame["rain"] = frame.index * 0.5
    last = frame.groupby("unique_id")["ds"].transform("max")
    frame.loc[last - frame["ds"] < pd.Timedelta(steps_ahead, "D"), ["y", "rain"]] = np.nan
    return frame


def with_cell(column: str, row: int, value: object, lengths: dict[str, int] | None = None) -> pd.DataFrame:
    """Two series, or others, with one cell that holds something else."""
    frame = long_frame(lengths or {"a": 5, "b": 5}).astype({column: object})
    frame.loc[row, column] = value
    return frame


ROLES = {"past_covariates": ["rain"], "future_covariates": ["price", "promo"]}


def refusal(table: object, **options: object) -> str:
    return said_by(lambda: panel_from_frame(table, **options))


def said_by(call: Callable[[], object]) -> str:
    """The message of a `UserError`, which is one line."""
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1, "a refusal is one line"
    return message


def assert_same(panel: Panel, other: Panel) -> None:
    assert panel.ids == other.ids
    assert panel.frequency == other.frequency
    assert panel.time.tolist() == other.time.tolist()
    for name in ("past_names", "future_names", "static_names", "covariate_categories"):
        assert getattr(panel, name) == getattr(other, name), name
    arrays = ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static", "weights")
    for name in arrays:
        np.testing.assert_array_equal(getattr(panel, name), getattr(other, name), err_msg=name)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tsattn"]
