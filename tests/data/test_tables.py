from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tsattn.data import panel_from_frame
from tsattn.data.table_options import TextFormat
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


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_table(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1, "a refusal is one line"
    assert str(path) in message
    return message


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".PARQUET"])
def test_parquet_is_read_as_it_is(tmp_path: Path, suffix: str) -> None:
    frame = read_table(written(tmp_path, PARQUET.getvalue(), f"table{suffix}"))
    pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)


def test_index_of_a_parquet_file_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "indexed.parquet"
    FRAME.set_index(["unique_id", "ds"]).to_parquet(path)
    assert list(read_table(path).index.names) == ["unique_id", "ds"]


@pytest.mark.parametrize(
    ("written_ids", "ids"),
    [
        (["1", "2", "10"], [1, 2, 10]),
        (["-1", "0", "7"], [-1, 0, 7]),
        (["007", "7", "8"], ["007", "7", "8"]),
        (["NA", "null", "nan"], ["NA", "null", "nan"]),
        (["1.0", "1", "2"], ["1.0", "1", "2"]),
        (["1", "b", "2"], ["1", "b", "2"]),
        (["True", "False", "x"], ["True", "False", "x"]),
        (["9" * 30, "1", "2"], ["9" * 30, "1", "2"]),
    ],
)
def test_ids_are_kept_as_written(tmp_path: Path, written_ids: list[str], ids: list[object]) -> None:
    rows = "".join(f"{name},2020-01-01,NA\n" for name in written_ids)
    path = written(tmp_path, f"unique_id,ds,y\n{rows}".encode())
    frame = read_table(path)
    assert frame["unique_id"].tolist() == ids
    assert frame["y"].isna().all()
    renamed = written(tmp_path, f"shop,ds,y\n{rows}".encode())
    assert read_table(renamed, id_column="shop")["shop"].tolist() == ids


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        pytest.param("t.csv", b"", ["empty", "header"], id="empty csv"),
        pytest.param("t.parquet", b"", ["0 bytes"], id="empty parquet"),
        pytest.param("t.csv", b"\n\n", ["empty", "header"], id="blank lines"),
        pytest.param("t.csv", CSV + b"caf\xe9,2020-01-01,1\n", ["UTF-8", "latin-1"], id="latin 1"),
        pytest.param("t.csv", "ds,y\n".encode("utf-16"), ["UTF-8", "utf-16"], id="utf 16"),
        pytest.param("t.csv", b"ds,y\n2020-01-01,1,2\n", ["fields"], id="rows too long"),
        pytest.param("t.csv", b"ds,y\n2020-01-01,1\n2020-01-02,2,3\n", ["line 3", "saw 3"], id="one row too long"),
        pytest.param("t.csv", b"ds,y,y\n2020-01-01,1,2\n", ["two columns 'y'"], id="column twice"),
        pytest.param("t.csv", b'ds,y\n2020-01-01,"1\n', ["regular CSV"], id="open quote"),
        pytest.param("t.csv", b"a" * 200_000, ["regular CSV"], id="endless header"),
        pytest.param("t.parquet", CSV, ["cannot be read as a Parquet file"], id="csv called parquet"),
        pytest.param("t.parquet", PARQUET.getvalue()[: len(PARQUET.getvalue()) // 2], ["cut"], id="half a parquet"),
        pytest.param("t.txt", CSV, [".csv", ".parquet", "`--data.format csv`"], id="other suffix"),
        pytest.param("t.csv.zip", CSV, [".csv", ".parquet"], id="archive"),
    ],
)
def test_unusable_file_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, fragments: list[str]
) -> None:
    message = refusal(written(tmp_path, content, name))
    for fragment in fragments:
        assert fragment in message


def test_messages_name_a_file_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, b"date,y\n2024-01-01,1\n2024-01-02,2\n", "sales.csv")
    assert opened(file, "the frame")[1] == str(file)
    monkeypatch.chdir(tmp_path)
    assert opened(file, "the frame")[1] == "sales.csv"
    assert "no such file" in refusal(tmp_path / "gone.csv")
    assert "a folder" in refusal(tmp_path)


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
    text = TextFormat(separator, decimal, encoding)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv", text=text), frame, check_dtype=False)
    assert rows_of(tmp_path / "t.csv", text)(1) == f"{tmp_path / 't.csv'}, line 3"


def test_dates_of_a_given_format_keep_their_zeros(tmp_path: Path) -> None:
    path = written(tmp_path, b"date,y\n010220,1\n020220,2\n")
    assert read_table(path)["date"].tolist() == [10220, 20220]
    assert read_table(path, text=TextFormat(date_format="%d%m%y"))["date"].tolist() == ["010220", "020220"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_is_named(tmp_path: Path, separator: str) -> None:
    path = written(tmp_path, CSV.replace(b",", separator.encode()))
    message = refusal(path)
    assert f"separates its cells with {separator!r}, not with ','; give that as separator" in message
    with pytest.raises(UserError, match="separates its cells with ',', not with ';'"):
        read_table(written(tmp_path, CSV), text=TextFormat(";"))


class Broken:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("out of order\nsince today")


@pytest.mark.parametrize(
    ("table", "fragments"),
    [
        (np.zeros((3, 2)), ["ndarray", "pandas"]),
        ("table.csv", ["str", "paths of files"]),
        (None, ["NoneType"]),
        (Broken(), ["out of order"]),
    ],
)
def test_what_is_no_frame_is_refused(table: object, fragments: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        as_frame(table, "it")
    message = str(caught.value)
    assert message.startswith("it ")
    assert len(message.splitlines()) == 1
    for fragment in fragments:
        assert fragment in message


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
    rows = 40_000
    frame = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020", periods=rows, freq="h"), "x": 7, "y": 0.25})
    frame["x"] = frame["x"].astype(str)
    frame.loc[rows - 2, "x"] = "seven"
    frame.loc[rows - 1, "unique_id"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert (tmp_path / "a.csv").stat().st_size > 1 << 20
    read = read_table(tmp_path / "a.csv")
    assert read["x"].tolist() == frame["x"].tolist()
    assert read["unique_id"].isna().to_numpy().nonzero()[0].tolist() == [rows - 1]
    with pytest.raises(UserError, match=f"a.csv, line {rows}: seven in column x is not a number"):
        panel_from_frame(tmp_path / "a.csv", target="x")
    with pytest.raises(UserError, match=f"a.csv, line {rows + 1}: the id in column unique_id is missing"):
        panel_from_frame(tmp_path / "a.csv")


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
