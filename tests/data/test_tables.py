from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tsattn import Forecaster
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


def test_csv_is_read_as_it_is(tmp_path: Path) -> None:
    frame = read_table(written(tmp_path, CSV))
    assert list(frame.columns) == ["unique_id", "ds", "y"]
    assert frame["unique_id"].tolist() == ["a", "a", "b"]
    assert frame["ds"].tolist() == ["2020-01-01", "2020-01-02", "2020-01-01"]
    np.testing.assert_array_equal(frame["y"], [1, np.nan, 3])


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".PARQUET"])
def test_parquet_is_read_as_it_is(tmp_path: Path, suffix: str) -> None:
    frame = read_table(written(tmp_path, PARQUET.getvalue(), f"table{suffix}"))
    pd.testing.assert_frame_equal(frame, FRAME, check_dtype=False)


def test_rows_of_a_parquet_file_are_counted_from_1() -> None:
    assert rows_of("t.parquet")(1) == "t.parquet, row 2"


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


@pytest.mark.parametrize("ids", [["1", "", "2"], ["a", "", "b"]])
def test_empty_id_is_missing(tmp_path: Path, ids: list[str]) -> None:
    path = written(tmp_path, "\n".join(["item_id,y", *(f"{name},1" for name in ids)]).encode())
    assert read_table(path)["item_id"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        pytest.param("t.csv", b"", ["empty", "header"], id="empty csv"),
        pytest.param("t.parquet", b"", ["0 bytes"], id="empty parquet"),
        pytest.param("t.csv", b"\n\n", ["empty", "header"], id="blank lines"),
        pytest.param("t.csv", CSV + b"caf\xe9,2020-01-01,1\n", ["UTF-8", f"byte {len(CSV) + 3}"], id="latin 1"),
        pytest.param("t.csv", "ds,y\n".encode("utf-16"), ["UTF-8", "byte 0"], id="utf 16"),
        pytest.param("t.csv", b"ds,y\n2020-01-01,1,2\n", ["fields"], id="rows too long"),
        pytest.param("t.csv", b"ds,y\n2020-01-01,1\n2020-01-02,2,3\n", ["line 3", "saw 3"], id="one row too long"),
        pytest.param("t.csv", b"ds,y,y\n2020-01-01,1,2\n", ["two columns 'y'"], id="column twice"),
        pytest.param("t.csv", b'ds,y\n2020-01-01,"1\n', ["regular CSV"], id="open quote"),
        pytest.param("t.csv", b"a" * 200_000, ["regular CSV"], id="endless header"),
        pytest.param("t.parquet", CSV, ["not a Parquet file"], id="csv called parquet"),
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


@pytest.mark.parametrize(("name", "what"), [("gone.csv", "no such file"), ("gone.txt", "no such file")])
def test_file_that_is_not_there_is_refused(tmp_path: Path, name: str, what: str) -> None:
    assert what in refusal(tmp_path / name)


def test_messages_name_a_file_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, b"date,y\n2024-01-01,1\n2024-01-02,2\n", "sales.csv")
    assert opened(file, "the frame")[1] == str(file)
    monkeypatch.chdir(tmp_path)
    assert opened(file, "the frame")[1] == "sales.csv"


def test_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    assert "a folder" in refusal(tmp_path / "folder.csv")
    assert "a folder" in refusal(tmp_path)


def test_a_million_columns_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the table was parsed")

    monkeypatch.setattr(pd, "read_csv", never)
    header = ",".join(f"c{i}" for i in range(1_000_000))
    message = refusal(written(tmp_path, f"{header}\n".encode()))
    assert "1000000 columns" in message
    assert "at most 100000" in message


def test_wide_tables_of_a_thousand_columns_are_read(tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(1000))
    assert read_table(written(tmp_path, f"{header}\n{','.join(['1'] * 1000)}\n".encode())).shape == (1, 1000)


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


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (
            ["1,005", "2,250"],
            "remove the comma, or give the decimal ',' for 1.005",
        ),
        (["1,005", "2,5"], "of a CSV file with decimal commas, give the decimal ','"),
        (["0,005", "2,250"], "of a CSV file with decimal commas, give the decimal ','"),
        (["1,005", "2,250,000"], "remove marks of thousands"),
        (["1,005.5", "2,250"], "remove marks of thousands"),
        (["1 005", "2 250"], "remove marks of thousands"),
        (["Monday", "2,250"], "name text columns as static, or list the targets"),
    ],
)
def test_the_advice_of_a_comma_in_a_number_is_right(tmp_path: Path, cells: list[str], advice: str) -> None:
    rows = "".join(f"2024-01-0{day};{cell}\n" for day, cell in enumerate(cells, 1))
    path = written(tmp_path, f"ds;y\n{rows}".encode())
    with pytest.raises(UserError) as caught:
        Forecaster("persistence", data={"separator": ";"}).predict(path)
    said = f"{path}, line 2: {cells[0]} in column y is not a number; a target needs numbers ({advice})"
    assert str(caught.value) == said


def test_what_is_not_utf_8_asks_for_its_encoding(tmp_path: Path) -> None:
    path = written(tmp_path, "unique_id,ds,y\nM\u00fcnchen,2020-01-01,1\n".encode("latin-1"))
    assert "is not UTF-8 text (byte 16); give its encoding, such as latin-1" in refusal(path)
    assert read_table(path, text=TextFormat(encoding="latin-1"))["unique_id"].tolist() == ["M\u00fcnchen"]


def test_pyarrow_tables_become_frames() -> None:
    pd.testing.assert_frame_equal(as_frame(pa.Table.from_pandas(FRAME), "it"), FRAME, check_dtype=False)


class Interchange:
    """A frame that knows nothing but the interchange protocol."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self.table.__dataframe__(nan_as_null, allow_copy)


class Broken:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("out of order\nsince today")


def test_interchange_protocol_is_enough() -> None:
    table = pa.table({"unique_id": ["a", "b"], "y": [1.0, 2.0]})
    frame = as_frame(Interchange(table), "it")
    assert frame["unique_id"].tolist() == ["a", "b"]
    assert frame["y"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("table", "fragments"),
    [
        (np.zeros((3, 2)), ["ndarray", "pandas"]),
        ("table.csv", ["str", "read_table"]),
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


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The file cut off, or with some bytes written over."""
    overwrite = st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=4))
    return st.one_of(
        st.integers(0, len(whole)).map(lambda end: whole[:end]),
        st.lists(overwrite, min_size=1, max_size=2).map(
            lambda changes: _overwritten(whole, changes),
        ),
    )


def _overwritten(whole: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    content = bytearray(whole)
    for start, patch in changes:
        content[start : start + len(patch)] = patch
    return bytes(content)


def answer_to(path: Path) -> type:
    """What reading a file gives: a frame, or a refusal in one line that names the file."""
    try:
        answer: pd.DataFrame | UserError = read_table(path)
    except UserError as error:
        answer = error
    if isinstance(answer, UserError):
        assert len(str(answer).splitlines()) == 1
        assert str(path) in str(answer)
    return type(answer)


def test_any_bytes_called_csv_give_a_frame_or_a_refusal(tmp_path: Path) -> None:
    answers = []

    @fuzz
    @given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), damaged(CSV)))
    @example(content=b"\x00")
    @example(content=b"a,b\n\x00,1\n")
    @example(content=b'"a\n')
    @example(content=b"\xef\xbb\xbf")
    @example(content=b"unique_id\n\n")
    def check(content: bytes) -> None:
        answers.append(answer_to(written(tmp_path, content, "fuzz.csv")))

    check()
    assert min(answers.count(pd.DataFrame), answers.count(UserError)) > 3, "both were drawn"


def test_any_bytes_called_parquet_give_a_frame_or_a_refusal(tmp_path: Path) -> None:
    answers = []

    @fuzz
    @given(content=st.one_of(st.binary(max_size=60), damaged(PARQUET.getvalue())))
    def check(content: bytes) -> None:
        answers.append(answer_to(written(tmp_path, content, "fuzz.parquet")))

    check()
    assert min(answers.count(pd.DataFrame), answers.count(UserError)) > 3, "both were drawn"


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


def test_parquet_of_too_many_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.files._MAX_COLUMNS", 5)
    pq.write_table(pa.table({f"c{i}": [1] for i in range(6)}), tmp_path / "wide.parquet")
    assert "6 columns" in refusal(tmp_path / "wide.parquet")


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
