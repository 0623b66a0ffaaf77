"""Read tables: CSV, Parquet and Arrow files, whole or in parts, and frames of any library."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tempfile
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tsattn.data.columns import DECIMAL, ID_COLUMNS, TIME_COLUMNS, category_text, id_columns, is_lazy
from tsattn.data.table_options import SUFFIXES, TableOptions
from tsattn.errors import UserError, check_file, first_line, one_of, shown

_PLAIN = TableOptions()
_MAX_COLUMNS = 100_000
_BUFFER = 1 << 20  # bytes of a column of a row group to read at a time
_SEPARATORS = ",;\t|"
_READ_AHEAD = 1 << 24  # most characters of a line to read at a time
_FRACTION = re.compile(r"-?(0|[1-9]\d*)(\.\d*(e[-+]?\d+)?|e[-+]?\d+)", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)  # ids that are plain whole numbers
# cells that pandas reads as missing; some of them are valid ids
_MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
_NO_TEXT = re.compile(
    rf"\s*([+-]?[\d.,_]*(e[+-]?\d+)?|[+-]?inf(inity)?|true|false|{'|'.join(map(re.escape, _MISSING))})\s*",
    re.IGNORECASE,
)


def read_table(
    path: str | Path, *, id_column: str | None = None, time_column: str | None = None, text: TableOptions = _PLAIN
) -> pd.DataFrame:
    """Read the table in a file; UserError names the file, the mistake, and its line if known.

    In a CSV file, empty cells and cells such as ``NA``, ``nan`` or ``null`` are missing. Series ids stay text (``NA``
    and ``007`` are ids), unless all are plain whole numbers. Static columns stay text, and dates if their format is
    given. Id and time columns with usual names need not be named.
    """
    path = Path(path)
    kind = text.kind_of(path)
    check_file(path)
    if kind is None:
        raise UserError(f"{path} is no table; valid are {one_of(SUFFIXES)} files, and others with `--data.format csv`")
    if kind == "csv":
        return read_cells(path, ids=(id_column, *ID_COLUMNS), texts=_texts(time_column, text), text=text)
    with _readable(path, kind, text):
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: it has 0 bytes")
        if kind == "arrow":
            with pa.memory_map(str(path)) as source:
                return as_frame(pa.ipc.open_file(source).read_all(), str(path))
        with pa.parquet.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            return as_frame(file.read(), str(path))


def table_parts(path: Path, columns: list[str] | None, rows: int, options: TableOptions) -> Iterator[pd.DataFrame]:
    """Read a file in parts, like `read_table`, except that all columns of ids of CSV files stay text."""
    names, text = (options.id_column, *ID_COLUMNS), options
    schema = schema_of(path, text)
    if schema is None:
        with _readable(path, "csv", text):
            read, _ = _options(path, names, _texts(options.time_column, text), text, in_parts=True)
            with _source(path, text) as source, pd.read_csv(source, chunksize=rows, **read) as reader:
                for frame in reader:
                    yield _marked(frame.reset_index(drop=True), text)
        return
    _check_names(path, schema.names)
    ids = next(filter(None, (id_columns(name, schema.names) for name in names)), ())
    saved = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    wanted = [*schema.names] if columns is None else [*columns, *ids, *(name for name in saved if name in schema.names)]
    kept, kind = [name for name in schema.names if name in wanted], str(text.kind_of(path))
    with _readable(path, kind, text):
        for batch in _batches(path, kind, kept, rows, ids, schema):
            table = pa.Table.from_batches([batch.select(kept)])
            for number, column in enumerate(table.schema):
                if pa.types.is_date(column.type):  # pandas would convert dates one by one, as objects
                    stamps = table.column(number).cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
                    table = table.set_column(number, column.name, stamps)
            yield table.to_pandas()


def schema_of(file: Path, text: TableOptions) -> pa.Schema | None:
    """The columns of a file; None for a CSV file, which has no types."""
    kind = text.kind_of(file)
    with _readable(file, str(kind), text):
        if kind == "parquet":
            return pa.parquet.read_schema(file)
        if kind == "arrow":
            with pa.memory_map(str(file)) as source:
                return pa.ipc.open_file(source).schema
    return None


def opened(
    table: Any, source: str, id_column: str | None = None, time_column: str | None = None, text: TableOptions = _PLAIN
) -> tuple[pd.DataFrame, str, Callable[[int], str] | None]:
    """Open a frame or a file; return the frame, its name for messages, and for a file a function that names rows."""
    if not isinstance(table, str | Path):
        return as_frame(table, source), source, None
    path = Path(table).expanduser()
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())  # messages name the file as the user does
    return read_table(path, id_column=id_column, time_column=time_column, text=text), str(path), rows_of(path, text)


def as_frame(table: Any, source: str) -> pd.DataFrame:
    """Turn any frame into a pandas frame; a Series becomes a column, ``y`` if it has no name."""
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, pd.Series):
        return table.to_frame("y" if table.name is None else table.name)
    if is_lazy(table):
        return as_frame(nw.from_native(table).collect().to_native(), source)
    if not hasattr(table, "__arrow_c_stream__"):
        valid = "pandas, polars and pyarrow frames, others with __arrow_c_stream__, and paths of files"
        raise UserError(f"{source} is a {type(table).__name__}; valid are {valid}")
    try:
        return pd.DataFrame(pa.table(table).to_pandas())
    except Exception as error:  # the other library may raise any error
        raise UserError(f"{source} cannot be turned into a pandas frame: {first_line(error)}") from error


def read_cells(
    path: Path,
    *,
    ids: Sequence[str | None] = (),
    texts: Sequence[str] = (),
    has_header: bool = True,
    text: TableOptions = _PLAIN,
) -> pd.DataFrame:
    """Read a CSV file; `texts` and the first existing column of `ids` (unless all are whole numbers) stay text."""
    with _readable(path, "csv", text), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.DtypeWarning)
        options, found = _options(path, ids, texts, text, has_header=has_header)
        try:  # read in pieces, which is faster, unless pieces disagree about the type of a column
            with _source(path, text) as source:
                table: pd.DataFrame = pd.read_csv(source, **{**options, "low_memory": True})
        except pd.errors.DtypeWarning:
            with _source(path, text) as source:
                table = pd.read_csv(source, **options)
    table = _marked(table, text)
    for name in found:
        column = table[name]
        first = column.first_valid_index()
        if first is not None and _WHOLE.fullmatch(column[first]) and whole_ids(column.dropna().unique()):
            numbers = pd.to_numeric(column)
            table[name] = numbers.astype("int64" if numbers.notna().all() else "Int64")
    return table


def whole_ids(texts: Collection[str]) -> bool:
    """Whether there are ids, and all are plain whole numbers."""
    return len(texts) > 0 and all(map(_WHOLE.fullmatch, texts))


def rows_of(path: Path, text: TableOptions = _PLAIN, *, has_header: bool = True) -> Callable[[int], str]:
    """Return a function that names a row (from 0) of a file: by its first line in a CSV file, else by its number."""

    def where(row: int) -> str:
        if text.kind_of(path) in ("parquet", "arrow"):
            return f"{path}, row {row + 1}"
        rows, numbers = -1 - has_header, list[int]()  # numbers: lines of a record; a quoted cell may have several

        def lines() -> Iterator[str]:
            for number, line in _lines(path, text):
                numbers.append(number)
                yield line

        with suppress(csv.Error):  # a cell is too long for Python's reader
            for record in csv.reader(lines(), delimiter=text.separator):
                rows += _is_row(record)
                if rows == row:
                    return f"{path}, line {numbers[0]}"
                numbers.clear()
        return f"{path}, row {row + 1}"

    return where


def _lines(path: Path, text: TableOptions) -> Iterator[tuple[int, str]]:
    number, is_quoted, begins = 0, False, True
    with (gzip.open if _is_packed(path) else open)(path, "rt", newline="", encoding=text.codec) as file:
        while line := str(file.readline(_READ_AHEAD)):  # a very long line comes in pieces
            number += begins
            is_comment = begins and text.comment and not is_quoted and line.lstrip().startswith(text.comment)
            begins = line.endswith(("\n", "\r"))
            if number > text.skip_rows and not is_comment:
                is_quoted ^= line.count('"') % 2 == 1
                yield number, line


@contextmanager
def _source(path: Path, text: TableOptions) -> Iterator[Any]:
    if not text.comment and not text.skip_rows:
        yield path
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as kept:
        kept.writelines(line for _, line in _lines(path, text))
        kept.seek(0)
        yield kept


def _options(
    path: Path,
    ids: Sequence[str | None],
    texts: Sequence[str],
    text: TableOptions,
    *,
    has_header: bool = True,
    in_parts: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    records = filter(_is_row, csv.reader((line for _, line in _lines(path, text)), delimiter=text.separator))
    first, second = next(records, []), list[str]()
    with suppress(csv.Error, UnicodeError):  # pandas gives a better message
        second = next(records, [])
    if has_header and len(first) == 1 and (other := max(_SEPARATORS, key=first[0].count)) in first[0]:
        also = ", and ',' as decimal if numbers have it" if other == ";" else ""
        says = f"separates its cells with {other!r}, not with {text.separator!r}"
        raise UserError(f"{path} {says}; give `--data.separator` (Python: `separator=`){also}")
    names: list[Any] = first if has_header else list(range(len(first)))
    _check_names(path, names)
    found = next(filter(None, (id_columns(name, names) for name in ids)), ())
    called = [name or f"Unnamed: {i}" for i, name in enumerate(names if found else ())]  # as pandas names them
    missing = {name: [""] if name in found else _MISSING for name in called}
    kept = [name for name in (*found, *texts) if name in names]
    if not in_parts:
        # a column with a text in its first row becomes text by itself, much faster than with an explicit dtype
        is_text = {name: not _NO_TEXT.fullmatch(cell) for name, cell in zip(names, second, strict=False)}
        kept = [name for name in kept if not is_text.get(name)]
    return {
        "header": "infer" if has_header else None,
        "index_col": False,
        "compression": "gzip" if _is_packed(path) and not text.comment and not text.skip_rows else None,
        "low_memory": False,
        "sep": text.separator,
        "decimal": text.decimal,
        # pandas skips a byte order mark by itself, and reads plain UTF-8 without a decoder
        "encoding": "utf-8" if text.codec == "utf-8-sig" else text.encoding,
        "dtype": dict.fromkeys(kept, "object") or None,  # pandas is slower with an empty dict
        "keep_default_na": not found,
        "na_values": missing if found else None,
    }, found


def _batches(
    file: Path, kind: str, columns: list[str], size: int, ids: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if kind == "arrow":
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield from (batch.slice(start, size) for start in range(0, len(batch), size))
        return
    texts = [name for name in ids if schema.field(name).type in (pa.string(), pa.large_string())]
    # without a buffer, all columns of a row group, perhaps the whole file, would be read at once
    with pa.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False, read_dictionary=texts) as parquet:
        yield from parquet.iter_batches(size, columns=columns)


@contextmanager
def _readable(path: Path, kind: str, text: TableOptions) -> Iterator[None]:
    check_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UserError:
        raise
    except UnicodeError as error:
        with path.open("rb") as file:
            start = file.read(2)
        name = "utf-16" if start in (BOM_UTF16_LE, BOM_UTF16_BE) else "such as latin-1 or cp1252"
        mend = "unpack it, or pack it as .csv.gz" if start == b"PK" else f"give its encoding, {name}"
        raise UserError(f"{path} is not {text.codec.removesuffix('-sig').upper()} text; {mend}") from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty; it needs a header and rows") from error
    except MemoryError as error:
        raise UserError(f"{path} is too large for the memory of this machine, or is damaged") from error
    except Exception as error:  # pyarrow raises many kinds of errors for damaged files
        reason = getattr(error, "strerror", None) or first_line(error).split("C error: ")[-1]
        if isinstance(error, pd.errors.ParserWarning):
            reason = "its rows have more fields than its header"
        names = {"csv": "a regular CSV table", "arrow": "an Arrow file", "parquet": "a Parquet file"}
        what = names.get(kind, "a table") + ("" if kind == "csv" else ", or is damaged or cut")
        raise UserError(f"{path} cannot be read as {what}: {reason}") from error


def _check_names(path: Path, names: Sequence[Any]) -> None:
    if len(names) > _MAX_COLUMNS:
        mend = "write many series as rows of unique_id, ds, y"
        raise UserError(f"{path} has {len(names)} columns; at most {_MAX_COLUMNS} are read: {mend}")
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{path} has two columns {shown(repr(repeated[0]))}: rename one")


def _texts(time_column: str | None, text: TableOptions) -> tuple[str, ...]:
    """Columns that stay text, as a part of a file with numbers alone would read them otherwise."""
    dates = TIME_COLUMNS if time_column is None else (time_column,)
    return (*text.static, *(() if text.date_format is None else dates))


def _static_text(cell: str) -> str:
    """The text of a category as a frame has it, whatever the other cells: ``2.50`` is 2.5, and ``007`` itself."""
    cell = cell.strip()
    if cell.lower() in ("true", "false"):
        return cell.capitalize()
    return category_text(float(cell)) if _FRACTION.fullmatch(cell) else cell


def _marked(table: pd.DataFrame, text: TableOptions) -> pd.DataFrame:
    for name in table.columns.intersection([*text.static]):
        table[name] = table[name].map({cell: _static_text(cell) for cell in table[name].dropna().unique()})
    if text.decimal != ".":
        table.attrs[DECIMAL] = text.decimal
    return table


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _is_row(record: list[str]) -> bool:
    return len(record) > 1 or any(cell.strip() for cell in record)
