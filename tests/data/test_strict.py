from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tsattn.data import TableReader
from tsattn.data.table_options import TextFormat
from tsattn.errors import UserError


def read_csv(
    path: Path, *, date_column: str = "date", columns: list[str] | None = None, **options: Any
) -> pd.DataFrame:
    """What a strict reader makes of a file, a frame over its time stamps; days, where nothing is said of them."""
    options = {"frequency": "D", "text": TextFormat(format="csv"), **options}
    panel = TableReader(time_column=date_column, target=columns, strict=True, **options).read(path)
    return panel.to_frame().set_index(panel.time_name)


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "series.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        read_csv(path, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1, "a refusal is one line"
    assert str(path) in message
    return message


def frame_or_refusal(path: Path, **options: object) -> pd.DataFrame | str:
    try:
        return read_csv(path, **options)
    except UserError as error:
        return str(error)


def test_good_file_becomes_floats_over_time_stamps(tmp_path: Path) -> None:
    path = written(tmp_path, "x,date,z\n1,2020-01-01 00:00:00,2.5\n-3,2020-01-01 01:00:00,4e2\n")
    frame = read_csv(path, frequency="h")
    assert list(frame.columns) == ["x", "z"]
    assert frame.index.name == "date"
    assert list(frame.index) == [pd.Timestamp("2020-01-01 00:00"), pd.Timestamp("2020-01-01 01:00")]
    assert (frame.dtypes == "float64").all()
    np.testing.assert_array_equal(frame.to_numpy(), [[1, 2.5], [-3, 400]])


def test_date_column_may_have_another_name(tmp_path: Path) -> None:
    path = written(tmp_path, "ds,y\n2020-01-01,1\n2020-01-02,2\n")
    assert read_csv(path, date_column="ds").index.name == "ds"
    assert "no time column date" in refusal(path)


def test_columns_name_the_channels_that_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "ds,a,b,day\n2020-01-01,1,2,Monday\n2020-01-02,3,4,Tuesday\n")
    frame = read_csv(path, date_column="ds", columns=["b", "a"])
    assert list(frame.columns) == ["b", "a"]
    np.testing.assert_array_equal(frame.to_numpy(), [[2, 1], [4, 3]])
    assert "has no target column c; its columns are ds, a, b, day" in refusal(
        path, date_column="ds", columns=["a", "c"]
    )


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path, line_end: str, mark: str) -> None:
    path = written(tmp_path, mark + line_end.join(["date,x", "2020-01-01,1", "2020-01-02,2", ""]))
    assert read_csv(path)["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        pytest.param("date,x\n", ["no rows"], id="header only"),
        pytest.param("date\n2020-01-01\n", ["no target column"], id="dates only"),
        pytest.param("time,x\n2020-01-01,1\n", ["no time column date", "time, x"], id="no date column"),
        pytest.param(
            "date,x\n2020-01-01,1\n2020-13-01,2\n", ["line 3", "2020-13-01", "not a date", "2016-07-01"], id="bad date"
        ),
        pytest.param("date,x\n1577836800,1\n1577840400,2\n", ["line 2", "1577836800", "not a date"], id="numeric date"),
        pytest.param("date,x\nTrue,1\nFalse,2\n", ["line 2", "True", "not a date"], id="bool date"),
        pytest.param(
            "date,x\n2020-01-01,1\n2020-01-02,2\n2020-01-02,3\n",
            ["line 4", "2020-01-02", "repeats", "must rise"],
            id="date repeats",
        ),
        pytest.param(
            "date,x\n2020-01-01,1\n2020-01-03,2\n2020-01-02,3\n",
            ["line 4", "2020-01-02", "goes back behind", "must rise"],
            id="date goes back",
        ),
        pytest.param(
            "date,x,z\n2020-01-01,1,1\n2020-01-02,2,two\n", ["line 3", "two", "column z", "not a number"], id="text"
        ),
        pytest.param('date,x\n2020-01-01,"1,000"\n', ["line 2", "give the decimal ','"], id="thousands separator"),
        pytest.param("date,x\n2020-01-01,1\n2020-01-02,True\n", ["line 3", "True", "not a number"], id="one bool"),
        pytest.param(
            "date,x,z\n2020-01-01,1,1\n2020-01-02,2,\n", ["line 3", "value of z", "missing", "finite"], id="empty cell"
        ),
        pytest.param("date,x\n2020-01-01,1\n2020-01-02,nan\n", ["line 3", "missing"], id="nan"),
        pytest.param("date,x\n2020-01-01,1\n2020-01-02,-inf\n", ["line 3", "value of x", "infinite"], id="infinite"),
        pytest.param(
            "date,x\n2020-03-29T01:00+01:00,1\n2020-03-29T03:00,2\n", ["time zone"], id="a time zone in one row"
        ),
    ],
)
def test_unusable_content_is_refused_in_one_sentence(tmp_path: Path, content: str, fragments: list[str]) -> None:
    message = refusal(written(tmp_path, content))
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("date,x\n2020-01-01,1,5\n2020-01-02,2,6\n", id="date first"),
        pytest.param("x,date\n1,5,2020-01-01\n2,6,2020-01-02\n", id="date last"),
    ],
)
def test_rows_longer_than_the_header_are_never_shifted(tmp_path: Path, content: str) -> None:
    assert "not a date" not in refusal(written(tmp_path, content))


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_plain_text_with_the_suffix_of_an_archive_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"series.csv.{suffix}"
    path.write_text("date,x\n2020-01-01,1\n2020-01-02,2\n")
    assert read_csv(path)["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        pytest.param("date,x\n\n2020-01-01,1\n\n\n2020-01-02,two\n", 6, id="value after blank lines"),
        pytest.param("date,x\n2020-01-01,1\n\n2020-13-01,2\n", 4, id="date after a blank line"),
        pytest.param("date,x\n2020-01-01,1\n\n2020-01-01,2\n", 4, id="repeat after a blank line"),
        pytest.param('date,"x\n(ppm)"\n2020-01-01,1\n2020-01-02,two\n', 4, id="header on two lines"),
    ],
)
def test_line_is_the_one_an_editor_shows(tmp_path: Path, content: str, line: int) -> None:
    assert f"line {line}:" in refusal(written(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('date,x\n2020-01-01,"one\ntwo"\n', id="in a value"),
        pytest.param('date,x\n"one\ntwo",1\n', id="in a date"),
        pytest.param('"the\ndate",x\n2020-01-01,1\n', id="in a column name that is listed"),
        pytest.param('date,"x\ny"\n2020-01-01,inf\n', id="in the name of an infinite column"),
        pytest.param("date,x\n2020-01-01,one\u2028two\n", id="unicode line separator"),
    ],
)
def test_line_breaks_in_cells_do_not_break_the_sentence(tmp_path: Path, content: str) -> None:
    assert len(refusal(written(tmp_path, content)).splitlines()) == 1


@pytest.mark.parametrize(("length", "place"), [(10_000, "line 2:"), (200_000, "row 1:")])
def test_long_text_in_a_cell_is_shown_in_part(tmp_path: Path, length: int, place: str) -> None:
    path = written(tmp_path, f"date,x\n2020-01-01,{'a' * length}\n")
    message = refusal(path)
    assert len(message) < 200 + len(str(path))
    assert place in message


def test_empty_cells_are_missing_values_where_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, "date,x,z\n2020-01-01,1,\n2020-01-02,,\n2020-01-03,3,5\n")
    frame = read_csv(path, allow_missing=True)
    assert (frame.dtypes == "float64").all()
    np.testing.assert_array_equal(frame.to_numpy(), [[1, np.nan], [np.nan, np.nan], [3, 5]])


@pytest.mark.parametrize(
    ("cells", "fragments"),
    [
        pytest.param(["1", "", "inf"], ["line 4", "infinite"], id="infinite"),
        pytest.param(["1", "", "True"], ["line 4", "True"], id="bool among numbers"),
    ],
)
def test_allowing_empty_cells_allows_nothing_else(tmp_path: Path, cells: list[str], fragments: list[str]) -> None:
    rows = [f"2020-01-0{day},{cell}" for day, cell in enumerate(cells, start=1)]
    message = refusal(written(tmp_path, "\n".join(["date,x", *rows])), allow_missing=True)
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(
    ("values", "days", "fragments"),
    [
        pytest.param([1, 2, np.nan], [1, 2, 3], ["row 3", "x", "missing"], id="missing"),
        pytest.param([1, np.inf, 3], [1, 2, 3], ["row 2", "x", "infinite"], id="infinite"),
        pytest.param([1, 2, 3], [2, 2, 3], ["row 2", "repeats"], id="repeats"),
        pytest.param([1, 2, 3], [2, 3, 1], ["row 3", "goes back"], id="goes back"),
        pytest.param([1, 2, 3], [1, 2, 4], ["row 1", "4 time stamps", "none of them may be filled"], id="gap"),
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
    reader = TableReader(target="x", strict=True, frequency="D")
    with pytest.raises(UserError) as caught:
        reader.read(frame, "memory")
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
    frame.loc[3, "x"] = -np.inf
    with pytest.raises(UserError, match=r"row 4.*infinite"):
        TableReader(target="x", strict=True, allow_missing=True).read(frame)
