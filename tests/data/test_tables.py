"""A strict reader mends nothing; lines of a CSV file are named as an editor shows them."""

import csv
import gzip
import inspect
import io
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonargparse import ArgumentParser

from tests.data.cases import said_by
from tsattn import Forecaster, diagnose
from tsattn.data import (
    CSVDataModule,
    DataOptions,
    FrameDataModule,
    MappedDataModule,
    PublicDataModule,
    TableReader,
    panel_from_frame,
)
from tsattn.data.mapped import convert
from tsattn.data.table_options import COLUMNS, TableOptions
from tsattn.data.tables import as_frame, opened, read_table, rows_of
from tsattn.errors import UserError

FRAME = pd.DataFrame(
    {
        "unique_id": ["a", "a", "b"],
        "ds": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01"]),
        "y": [1.0, np.nan, 3.0],
    }
)
CSV = b"unique_id,ds,y\na,2020-01-01,1.0\na,2020-01-02,\nb,2020-01-01,3.0\n"
PARQUET = io.BytesIO()
FRAME.to_parquet(PARQUET)


def written(folder: Path, content: bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path, read: Any = read_table) -> str:
    message = said_by(lambda: read(path))
    assert str(path) in message
    return message


def test_parquet_is_read_as_it_is(tmp_path: Path) -> None:
    for suffix in (".parquet", ".pq", ".PARQUET"):
        frame = read_table(written(tmp_path, PARQUET.getvalue(), f"table{suffix}"))
        pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)
    FRAME.set_index(["unique_id", "ds"]).to_parquet(tmp_path / "indexed.parquet")
    assert list(read_table(tmp_path / "indexed.parquet").index.names) == ["unique_id", "ds"]


@pytest.mark.parametrize(
    "ids",
    [
        *([1, 2, 10], [-1, 0, 7], ["007", "7", "8"], ["NA", "null", "nan"], ["1.0", "1", "2"], ["1", "b", "2"]),
        *(["True", "False", "x"], ["9" * 30, "1", "2"]),
    ],
    ids=str,
)
def test_ids_are_kept_as_written(tmp_path: Path, ids: list[object]) -> None:
    rows = "".join(f"{name},2020-01-01,NA\n" for name in ids)
    frame = read_table(written(tmp_path, f"unique_id,ds,y\n{rows}".encode()))
    assert frame["unique_id"].tolist() == ids
    assert frame["y"].isna().all()
    renamed = written(tmp_path, f"shop,ds,y\n{rows}".encode())
    assert read_table(renamed, id_column="shop")["shop"].tolist() == ids


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"", "is empty; it needs a header"),
        ("t.parquet", b"", "0 bytes"),
        ("t.csv", b"ds,y\n2020-01-01,1\n2020-01-02,2,3\n", "line 3"),
        ("t.csv", b"ds,y,y\n2020-01-01,1,2\n", "two columns 'y'"),
        ("t.csv", b'ds,y\n2020-01-01,"1\n', "regular CSV"),
        ("t.csv", b"a" * 200_000, "regular CSV"),
        ("t.parquet", CSV, "cannot be read as a Parquet file"),
        ("t.parquet", PARQUET.getvalue()[: len(PARQUET.getvalue()) // 2], "cut"),
        ("t.txt", CSV, r"\.csv.*`--data.format csv`"),
        ("t.csv.zip", CSV, r"\.parquet"),
    ],
    ids=str,
)
def test_unusable_file_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, said: str
) -> None:
    message = refusal(written(tmp_path, content, name))
    assert re.search(said, message), message
    assert "does not exist" in refusal(tmp_path / "gone.csv")
    assert "a folder" in refusal(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, b"date,y\n2024-01-01,1\n2024-01-02,2\n", "sales.csv")
    assert opened(path, "the frame")[1] == "sales.csv", "named from the working directory"


def test_a_million_columns_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the table was parsed")

    monkeypatch.setattr(pd, "read_csv", never)
    header = ",".join(f"c{i}" for i in range(1_000_000))
    message = refusal(written(tmp_path, f"{header}\n".encode()))
    assert "1000000 columns" in message
    assert "at most 100000" in message


@pytest.mark.parametrize(
    ("separator", "decimal", "encoding"),
    [(";", ",", "utf-8"), ("\t", ".", "latin-1"), ("\\t", ",", "cp1252"), ("|", ".", "utf-16"), (" ", ".", "utf-8")],
)
def test_other_separators_decimals_and_encodings_are_read(
    tmp_path: Path, separator: str, decimal: str, encoding: str
) -> None:
    frame = pd.DataFrame({"unique_id": ["Z\u00fcrich", "b"], "ds": ["01.02.20", "02.02.20"], "y": [1.5, -2.25]})
    real = "\t" if separator == "\\t" else separator
    frame.to_csv(tmp_path / "t.csv", sep=real, decimal=decimal, encoding=encoding, index=False)
    text = TableOptions(separator=separator, decimal=decimal, encoding=encoding)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv", text=text), frame, check_dtype=False)
    assert rows_of(tmp_path / "t.csv", text)(1) == f"{tmp_path / 't.csv'}, line 3"


def test_another_separator_is_named(tmp_path: Path) -> None:
    for separator in (";", "\t", "|"):
        message = refusal(written(tmp_path, CSV.replace(b",", separator.encode())))
        assert f"separates its cells with {separator!r}, not with ','; give `--data.separator`" in message
    with pytest.raises(UserError, match="separates its cells with ',', not with ';'"):
        read_table(written(tmp_path, CSV), text=TableOptions(separator=";"))
    path = written(tmp_path, b"date,y\n010220,1\n020220,2\n")
    assert read_table(path)["date"].tolist() == [10220, 20220]
    assert read_table(path, text=TableOptions(date_format="%d%m%y"))["date"].tolist() == ["010220", "020220"]


class Broken:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("out of order\nsince today")


def test_what_is_no_frame_is_refused() -> None:
    for table, said in (
        (np.zeros((3, 2)), "ndarray"),
        ("t.csv", "str"),
        (None, "NoneType"),
        (Broken(), "out of order"),
    ):
        with pytest.raises(UserError, match=f"^it .*{said}.*$") as caught:
            as_frame(table, "it")
        assert len(str(caught.value).splitlines()) == 1


fuzz = settings(
    max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@fuzz
@given(
    ids=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\n\ufeff"), min_size=1, max_size=6), min_size=1
    )
)
def test_no_id_is_lost_or_merged(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "ids.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["unique_id", "y"], *([name, "1"] for name in ids)])
    assert [str(name) for name in read_table(path)["unique_id"]] == ids


def test_columns_whose_kind_shows_late_are_read_as_a_whole(tmp_path: Path) -> None:
    """The parser reads such a file in pieces."""
    rows, path = 40_000, tmp_path / "a.csv"
    frame = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020", periods=rows, freq="h"), "x": "7", "y": 0.25})
    frame.loc[rows - 2, "x"] = "seven"
    frame.loc[rows - 1, "unique_id"] = None
    frame.to_csv(path, index=False)
    assert path.stat().st_size > 1 << 20
    read = read_table(path)
    assert read["x"].tolist() == frame["x"].tolist()
    assert read["unique_id"].isna().to_numpy().nonzero()[0].tolist() == [rows - 1]
    with pytest.raises(UserError, match=f"a.csv, line {rows}: seven in column x is not a number"):
        panel_from_frame(path, target="x")
    with pytest.raises(UserError, match=f"a.csv, line {rows + 1}: the id in column unique_id is missing"):
        panel_from_frame(path)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """A file that is cut off, or some bytes of which are written over."""
    place = st.integers(0, len(whole) - 1)
    patches = st.tuples(place, st.binary(min_size=1, max_size=4))
    return place.map(lambda end: whole[:end]) | patches.map(
        lambda patch: whole[: patch[0]] + patch[1] + whole[patch[0] + len(patch[1]) :]
    )


@pytest.mark.parametrize(("name", "whole"), [("fuzz.csv", CSV), ("fuzz.parquet", PARQUET.getvalue())])
def test_any_bytes_give_a_frame_or_a_refusal(tmp_path: Path, name: str, whole: bytes) -> None:
    answers = []

    @fuzz
    @given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | damaged(whole))
    @example(content=b"\x00")
    @example(content=b"a,b\n\x00,1\n")
    @example(content=b'"a\n')
    @example(content=b"\xef\xbb\xbf")
    @example(content=b"unique_id\n\n")
    def check(content: bytes) -> None:
        path = written(tmp_path, content, name)
        try:
            answer: pd.DataFrame | UserError = read_table(path)
        except UserError as error:
            answer = error
        answers.append(type(answer))
        if isinstance(answer, UserError):
            assert len(str(answer).splitlines()) == 1
            assert str(path) in str(answer)

    check()
    assert min(answers.count(pd.DataFrame), answers.count(UserError)) > 3, "both were drawn"


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read a file strictly to a frame over its time stamps; by default days."""
    options = {"frequency": "D", "format": "csv", "time_column": "date", **options}
    panel = TableReader(strict=True, **options).read(path)
    return panel.to_frame().set_index(panel.time_name)


def strict_refusal(folder: Path, content: str, **options: object) -> str:
    path = written(folder, content.encode(), "series.csv")
    return refusal(path, lambda path: read_csv(path, **options)).replace(str(path), "FILE")


LONG = "a" * 10_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("date,x\n", "no rows"),
        ("time,x\n2020-01-01,1\n", "no time column date.*time, x"),
        ("date,x\n2020-01-01,1\n2020-13-01,2\n", "line 3: 2020-13-01 .*not a date.*2016-07-01"),
        ("date,x\n1577836800,1\n1577840400,2\n", "line 2: 1577836800 .*not a date"),
        ("date,x\n2020-01-01,1\n2020-01-02,2\n2020-01-02,3\n", "line 4: .*2020-01-02.* repeats .*sort the rows"),
        ("date,x\n2020-01-01,1\n2020-01-03,2\n2020-01-02,3\n", "line 4: .*goes back before.*sort the rows"),
        ("date,x,z\n2020-01-01,1,1\n2020-01-02,2,two\n", "line 3: two in column z is not a number"),
        ('date,x\n2020-01-01,"1,000"\n', "line 2: .*thousands separators.*the decimal ','"),
        ("date,x,z\n2020-01-01,1,1\n2020-01-02,2,\n", "line 3: the value of z is missing.*finite"),
        ("date,x\n2020-01-01,1\n2020-01-02,-inf\n", "line 3: the value of x is infinite"),
        ("date,x\n2020-03-29T01:00+01:00,1\n2020-03-29T03:00,2\n", "time zone"),
        ("x,date\n1,5,2020-01-01\n2,6,2020-01-02\n", "fields"),
        # lines are those that an editor shows
        ("date,x\n\n2020-01-01,1\n\n\n2020-01-02,two\n", "line 6:"),
        ('date,"x\n(ppm)"\n2020-01-01,1\n2020-01-02,two\n', "line 4:"),
        # breaks within cells do not break the sentence, nor do long ones fill it
        ('date,x\n"one\ntwo",1\n', ""),
        ('date,"x\ny"\n2020-01-01,inf\n', ""),
        (f"date,x\n2020-01-01,{LONG}\n", "line 2:"),
        (f"date,x\n2020-01-01,{20 * LONG}\n", "row 1:"),
    ],
)
def test_unusable_content_is_refused_in_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    message = strict_refusal(tmp_path, content)
    assert re.search(said, message), message
    assert len(message) < 220


def test_texts_of_every_kind_are_read(tmp_path: Path) -> None:
    lines = ["x,date,z", "1,2020-01-01,2.5", "-3,2020-01-02,4e2", ""]
    # plain text may have the suffix of an archive
    for mark, end, suffix in (("", "\n", ".gz"), ("\ufeff", "\r\n", ".zst"), ("", "\r", "")):
        path = written(tmp_path, (mark + end.join(lines)).encode(), f"table.csv{suffix}")
        np.testing.assert_array_equal(read_csv(path).to_numpy(), [[1, 2.5], [-3, 400]])
    gaps = "date,x,z\n2020-01-01,1,\n2020-01-02,,\n2020-01-03,3,5\n"
    frame = read_csv(written(tmp_path, gaps.encode()), allow_missing=True)
    np.testing.assert_array_equal(frame.to_numpy(), [[1, np.nan], [np.nan, np.nan], [3, 5]])
    for cell, said in (("inf", "line 4: the value of x is infinite"), ("True", "line 4: True")):
        assert said in strict_refusal(tmp_path, gaps.replace("3,5", f"{cell},5"), allow_missing=True)


@pytest.mark.parametrize(
    ("values", "days", "said"),
    [
        ([1, 2, np.nan], [1, 2, 3], "row 3.* x .*missing"),
        ([1, np.inf, 3], [1, 2, 3], "row 2.* x .*infinite"),
        ([1, 2, 3], [2, 2, 3], "row 2.*repeats"),
        ([1, 2, 3], [2, 3, 1], "row 3.*goes back"),
        ([1, 2, 3], [1, 2, 4], "row 1.*4 time stamps.*max_filled 0 allows no gaps"),
    ],
)
def test_a_strict_reader_of_frames_names_source_and_row(values: list[float], days: list[int], said: str) -> None:
    frame = pd.DataFrame({"ds": [pd.Timestamp(2020, 1, day) for day in days], "x": values})
    other = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=3), "x": 1.0})
    # rows of series may lie between those of others
    both = pd.concat([frame.assign(unique_id="a"), other.assign(unique_id="b")]).sort_index(kind="stable")
    for table, expected in ((frame, said), (both, said.partition(".*")[2])):
        with pytest.raises(UserError, match=f"memory.*{expected}"):
            TableReader(target="x", strict=True, frequency="D").read(table, "memory")


def test_a_strict_reader_takes_what_needs_no_mending(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4), "x": [1.0, 2, 3, 4], "p": [5.0, 6, 7, 8]})
    frame.loc[3, "x"] = np.nan  # its row is the future of p
    panel = TableReader(target="x", future_covariates="p", strict=True).read(frame)
    assert panel.values[:, 0].tolist() == [1, 2, 3]
    assert panel.ahead.tolist() == [[8]]
    missing = TableReader(target="x", past_covariates="p", strict=True, allow_missing=True).read(frame)
    np.testing.assert_array_equal(missing.values[:, 0], [1, 2, 3, np.nan])
    assert not [record for record in caplog.records if record.levelname == "WARNING"], "nothing is mended"


def test_a_packed_file_of_joined_ids_and_comments_is_read_and_converted(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=9)
    parts = [
        pd.DataFrame({"store": s, "item": i, "day": days, "sold": 1.0 * i}) for s in ("007", "N/A") for i in (3, 12)
    ]
    frame = pd.concat(parts, ignore_index=True)
    lines = frame.to_csv(index=False).splitlines()
    text = ["exported, by: someone;", "# units: pieces", lines[0], *lines[1:9], "  # a break", *lines[9:], "# end"]
    path = written(tmp_path, gzip.compress("\n".join(text).encode()), "sales.csv.gz")
    columns: dict[str, Any] = {"id_column": ["store", "item"], "time_column": "day", "target": "sold"}
    options = TableOptions(**columns, comment="#", skip_rows=1)
    convert(path, tmp_path / "arrays", options)
    for panel in (TableReader(**columns, comment="#", skip_rows=1).read(path), panel_from_frame(tmp_path / "arrays")):
        assert (panel.id_name, panel.ids) == ("store/item", ("007/12", "007/3", "N/A/12", "N/A/3"))
        assert panel.values[:, 0].tolist() == [12.0] * 9 + [3.0] * 9 + [12.0] * 9 + [3.0] * 9
    path.write_bytes(gzip.compress("\n".join(text).replace("2024-01-04,3.0", "2024-01-04,three").encode()))
    with pytest.raises(UserError, match=r"sales\.csv\.gz, line 7: three in column sold is not a number"):
        TableReader(**columns, comment="#", skip_rows=1).read(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"gz cannot be read as a regular CSV table: "):
        TableReader(**columns, comment="#", skip_rows=1).read(path)


@pytest.mark.parametrize(
    ("columns", "ids", "message"),
    [
        (["a", "b"], [("x/y", "z"), ("x", "y/z")], "ids from columns a, b are joined, and two of them become x/y/z"),
        (["a", "b"], [("x", "1"), ("x", None)], "row 10: the id in column a/b is missing"),
        (["a", "c"], [("x", "1")], "has no id column a/c; its columns are a, b, ds, y"),
        (["a/b", "c"], [("x", "1")], "id_column must name columns without '/', not"),
    ],
)
def test_ids_that_cannot_be_joined_are_refused(columns: list[str], ids: list[tuple[Any, Any]], message: str) -> None:
    days = pd.date_range("2024-01-01", periods=9)
    frame = pd.concat([pd.DataFrame({"a": a, "b": b, "ds": days, "y": 1.0}) for a, b in ids], ignore_index=True)
    with pytest.raises(UserError, match=message):
        panel_from_frame(frame, id_column=columns)


READING = {one.name: one.default for one in fields(TableOptions)} | {"series_weights": None, "row_weights": None}
FEWER = {
    DataOptions: set(),
    Forecaster: {*READING} - {*COLUMNS, "frequency"},
    # which takes options of text as `**text`
    diagnose: {*READING} - {*COLUMNS, "frequency"},
}


@pytest.mark.parametrize("taker", FEWER)
def test_signatures_have_the_names_and_defaults_of_the_one_list(taker: Any) -> None:
    own = {name: one.default for name, one in inspect.signature(taker).parameters.items() if name in READING}
    assert own == {name: default for name, default in READING.items() if name not in FEWER[taker]}


@pytest.mark.parametrize("kind", [CSVDataModule, MappedDataModule, FrameDataModule, PublicDataModule])
def test_the_command_line_knows_every_type(kind: type[Any]) -> None:
    parser = ArgumentParser()
    parser.add_class_arguments(kind, "data")
    assert not [one.dest for one in parser._actions if "Unvalidated" in str(getattr(one, "_typehint", ""))]
