"""A strict reader mends nothing; lines of a CSV file are named as an editor shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tsattn.data import TableReader
from tsattn.data.table_options import TextFormat
from tsattn.errors import UserError


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read a file strictly to a frame over its time stamps; by default days."""
    options = {"frequency": "D", "text": TextFormat(format="csv"), "time_column": "date", **options}
    panel = TableReader(strict=True, **options).read(path)
    return panel.to_frame().set_index(panel.time_name)


def written(folder: Path, content: str) -> Path:
    path = folder / "series.csv"
    path.write_bytes(content.encode())
    return path


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        read_csv(path, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1, "a refusal is one line"
    assert str(path) in message
    return message


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path, line_end: str, mark: str) -> None:
    path = written(tmp_path, mark + line_end.join(["x,date,z", "1,2020-01-01,2.5", "-3,2020-01-02,4e2", ""]))
    np.testing.assert_array_equal(read_csv(path).to_numpy(), [[1, 2.5], [-3, 400]])


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        ("date,x\n", ["no rows"]),
        ("date\n2020-01-01\n", ["no target column"]),
        ("time,x\n2020-01-01,1\n", ["no time column date", "time, x"]),
        ("date,x\n2020-01-01,1\n2020-13-01,2\n", ["line 3", "2020-13-01", "not a date", "2016-07-01"]),
        ("date,x\n1577836800,1\n1577840400,2\n", ["line 2", "1577836800", "not a date"]),
        ("date,x\nTrue,1\nFalse,2\n", ["line 2", "True", "not a date"]),
        ("date,x\n2020-01-01,1\n2020-01-02,2\n2020-01-02,3\n", ["line 4", "2020-01-02", "repeats", "must rise"]),
        ("date,x\n2020-01-01,1\n2020-01-03,2\n2020-01-02,3\n", ["line 4", "goes back behind", "must rise"]),
        ("date,x,z\n2020-01-01,1,1\n2020-01-02,2,two\n", ["line 3", "two", "column z", "not a number"]),
        ('date,x\n2020-01-01,"1,000"\n', ["line 2", "marks of thousands", "the decimal ','"]),
        ("date,x\n2020-01-01,1\n2020-01-02,True\n", ["line 3", "True", "not a number"]),
        ("date,x,z\n2020-01-01,1,1\n2020-01-02,2,\n", ["line 3", "value of z", "missing", "finite"]),
        ("date,x\n2020-01-01,1\n2020-01-02,nan\n", ["line 3", "missing"]),
        ("date,x\n2020-01-01,1\n2020-01-02,-inf\n", ["line 3", "value of x", "infinite"]),
        ("date,x\n2020-03-29T01:00+01:00,1\n2020-03-29T03:00,2\n", ["time zone"]),
        ("x,date\n1,5,2020-01-01\n2,6,2020-01-02\n", ["fields"]),
    ],
)
def test_unusable_content_is_refused_in_one_sentence(tmp_path: Path, content: str, fragments: list[str]) -> None:
    message = refusal(written(tmp_path, content))
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_plain_text_with_the_suffix_of_an_archive_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"series.csv.{suffix}"
    path.write_text("date,x\n2020-01-01,1\n2020-01-02,2\n")
    assert read_csv(path)["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("date,x\n\n2020-01-01,1\n\n\n2020-01-02,two\n", 6),
        ("date,x\n2020-01-01,1\n\n2020-13-01,2\n", 4),
        ('date,"x\n(ppm)"\n2020-01-01,1\n2020-01-02,two\n', 4),
    ],
)
def test_line_is_the_one_an_editor_shows(tmp_path: Path, content: str, line: int) -> None:
    assert f"line {line}:" in refusal(written(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        'date,x\n2020-01-01,"one\ntwo"\n',
        'date,x\n"one\ntwo",1\n',
        '"the\ndate",x\n2020-01-01,1\n',
        'date,"x\ny"\n2020-01-01,inf\n',
        "date,x\n2020-01-01,one\u2028two\n",
    ],
)
def test_line_breaks_in_cells_do_not_break_the_sentence(tmp_path: Path, content: str) -> None:
    refusal(written(tmp_path, content))


@pytest.mark.parametrize(("length", "place"), [(10_000, "line 2:"), (200_000, "row 1:")])
def test_long_text_in_a_cell_is_shown_in_part(tmp_path: Path, length: int, place: str) -> None:
    path = written(tmp_path, f"date,x\n2020-01-01,{'a' * length}\n")
    message = refusal(path)
    assert len(message) < 200 + len(str(path))
    assert place in message


def test_empty_cells_and_nothing_else_are_missing_values_where_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, "date,x,z\n2020-01-01,1,\n2020-01-02,,\n2020-01-03,3,5\n")
    frame = read_csv(path, allow_missing=True)
    np.testing.assert_array_equal(frame.to_numpy(), [[1, np.nan], [np.nan, np.nan], [3, 5]])
    for cell, said in (("inf", "infinite"), ("True", "True")):
        wrong = written(tmp_path, f"date,x\n2020-01-01,1\n2020-01-02,\n2020-01-03,{cell}\n")
        assert f"line 4: {said}" in refusal(wrong, allow_missing=True).replace("the value of x is ", "")


@pytest.mark.parametrize(
    ("values", "days", "fragments"),
    [
        ([1, 2, np.nan], [1, 2, 3], ["row 3", "x", "missing"]),
        ([1, np.inf, 3], [1, 2, 3], ["row 2", "x", "infinite"]),
        ([1, 2, 3], [2, 2, 3], ["row 2", "repeats"]),
        ([1, 2, 3], [2, 3, 1], ["row 3", "goes back"]),
        ([1, 2, 3], [1, 2, 4], ["row 1", "4 time stamps", "none of them may be filled"]),
    ],
)
@pytest.mark.parametrize("is_long", [False, True])
def test_a_strict_reader_of_frames_names_source_and_row(
    values: list[float], days: list[int], fragments: list[str], is_long: bool
) -> None:
    frame = pd.DataFrame({"ds": [pd.Timestamp(2020, 1, day) for day in days], "x": values})
    if is_long:
        other = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=3), "x": 1.0})
        # rows of series may lie between those of others
        frame = pd.concat([frame.assign(unique_id="a"), other.assign(unique_id="b")]).sort_index(kind="stable")
        fragments = [fragment for fragment in fragments if not fragment.startswith("row")]
    with pytest.raises(UserError) as caught:
        TableReader(target="x", strict=True, frequency="D").read(frame, "memory")
    for fragment in ["memory", *fragments]:
        assert fragment in str(caught.value)


def test_a_strict_reader_takes_what_needs_no_mending(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4), "x": [1.0, 2, 3, 4], "p": [5.0, 6, 7, 8]})
    frame.loc[3, "x"] = np.nan  # its row is the future of p
    panel = TableReader(target="x", future_covariates="p", strict=True).read(frame)
    assert panel.values[:, 0].tolist() == [1, 2, 3]
    assert panel.ahead is not None
    assert panel.ahead.tolist() == [[8]]
    missing = TableReader(target="x", past_covariates="p", strict=True, allow_missing=True).read(frame)
    np.testing.assert_array_equal(missing.values[:, 0], [1, 2, 3, np.nan])
    assert not [record for record in caplog.records if record.levelname == "WARNING"], "nothing is mended"
