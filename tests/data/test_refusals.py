"""A table that cannot be used is refused in one sentence, which names the row or the column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import long_frame, refusal, wide_frame, with_cell

FIVE = long_frame({"a": 5})
ZONED = pd.Timestamp("2020-01-01", tz="UTC")
BERLIN = pd.Timestamp("2020-01-02", tz="Europe/Berlin")


def stamped(*stamps: object) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": pd.Series(stamps, dtype=object), "y": 1.0})


# frame, options, and what is said of it: parts between dots
CASES = [
    (FIVE.iloc[:0], {}, "no rows"),
    (with_cell("y", 6, np.inf), {"source": "sales.csv"}, "sales.csv, row 7: the value of y is infinite"),
    (with_cell("y", 6, "much"), {}, "row 7: much in column y is not a number"),
    (with_cell("y", 6, True), {}, "row 7: True in column y"),
    (with_cell("y", 6, 1j), {}, "row 7 ... column y"),
    (with_cell("y", 6, [1]), {}, "row 7 ... column y"),
    (with_cell("y", 6, 10**400), {}, "row 7 ... column y"),
    (FIVE.assign(y=1j), {}, "row 1 ... column y"),
    (FIVE.assign(y=pd.Timestamp("2020-01-01")), {}, "row 1 ... column y"),
    (with_cell("unique_id", 6, None), {}, "row 7: the id in column unique_id is missing"),
    (with_cell("unique_id", 6, ["a"]), {}, "column unique_id holds no ids"),
    (with_cell("unique_id", 6, 1j), {}, "row 7: 1j in column unique_id is a complex, not an id"),
    (FIVE.assign(y=np.nan), {}, "every target ... missing ... at least one"),
    (wide_frame().assign(x=np.nan, z=np.nan), {}, "value of x ... missing"),
    (wide_frame().assign(z="low"), {}, "row 1: low in column z"),
    (wide_frame().assign(z=True), {}, "row 1: True in column z"),
    # roles
    (wide_frame()[["date"]], {}, "no target column; its columns are date"),
    (wide_frame().rename(columns={"date": "when"}), {}, "no time column found ... when, x, z ... time_column=NAME"),
    (FIVE[["unique_id", "ds"]], {}, "y or target ... unique_id, ds"),
    (FIVE, {"target": "z"}, "no target column z; its columns are unique_id, ds, y"),
    (FIVE, {"id_column": "unique_di"}, "no id column unique_di (did you mean unique_id?)"),
    (FIVE, {"time_column": "z"}, "no time column z"),
    (FIVE, {"past_covariates": ["z"]}, "no past covariate column z"),
    (FIVE, {"future_covariates": "zz"}, "no future covariate column zz"),
    (FIVE, {"static": ["z"]}, "no static column z"),
    (FIVE.assign(p=1.0), {"past_covariates": "p", "static": "p"}, "column p ... past covariate and as static"),
    (wide_frame().set_axis(["date", "x", "x"], axis=1), {}, "two columns x"),
    # time stamps
    (pd.concat([FIVE, FIVE[2:3]]), {}, "row 6: time stamp 2020-01-03 ... series a is there twice ... row 3"),
    (wide_frame().iloc[[0, 1, 1, 2]], {}, "row 3 ... twice ... row 2"),
    (with_cell("ds", 6, "soon"), {}, "row 7: soon ... not a date"),
    (with_cell("ds", 6, None), {}, "row 7 ... not a date"),
    (FIVE.assign(ds=np.arange(5) / 2), {}, "row 1 ... column ds is not a date"),
    (FIVE.assign(ds=[f"300{i}-01-01" for i in range(5)]), {}, "row 1"),
    (stamped("2020-01-01", "2020-01-02T00:00Z", "2020-01-03"), {}, "row 2: ... time zone"),
    (stamped("2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03"), {}, "row 3: ... time zone"),
    (stamped("2020-01-01T00+01:00", "2020-01-02T00+01:00", "2020-01-03T00+02:00"), {}, "row 3: ... time zone"),
    (stamped(ZONED, BERLIN), {}, "row 2: ... time zone"),
    (stamped(ZONED.tz_localize(None), BERLIN), {}, "row 2: ... time zone"),
    (stamped(ZONED.to_pydatetime(), pd.Timestamp("2020-01-02").to_pydatetime()), {}, "row 2: ... time zone"),
    (long_frame({"a": 1, "b": 2}, "MS"), {}, "no series has the 3 rows ... give the frequency"),
    (FIVE, {"frequency": "hourly"}, "'hourly' is not a frequency"),
    # covariates and static columns
    (
        FIVE.assign(p=["hot", "1", "2", "3", "4"]),
        {"past_covariates": "p"},
        "row 1: hot in column p is not a number; a past covariate needs numbers, bools, or text without a number",
    ),
    (FIVE.assign(p=np.inf), {"past_covariates": "p"}, "row 1: the value of p is infinite"),
    (FIVE.assign(p=np.nan), {"past_covariates": "p"}, "every value of covariate p is missing"),
    (FIVE.assign(k=list("xxyxx")), {"static": "k"}, "row 3: static column k changes within series a, to y"),
    (FIVE.assign(k=["x", None, "x", "x", "x"]), {"static": "k"}, "row 2 ... k is missing"),
    (FIVE.assign(k=[[1]] * 5), {"static": "k"}, "static column k holds no categories"),
]


@pytest.mark.parametrize(("frame", "options", "said"), CASES)
def test_a_table_that_cannot_be_used_is_refused(frame: pd.DataFrame, options: dict[str, object], said: str) -> None:
    message = refusal(frame, **options)
    for part in said.split(" ... "):
        assert part in message
