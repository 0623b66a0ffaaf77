"""Columns of a table as arrays: numbers, series and categories, checked cell by cell (time stamps: `stamps.py`).

Every function takes `where`, which names a row (from 0) in messages, such as ``the frame, row 12``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.errors import UserError, shown

__all__ = [
    "DECIMAL",
    "MISSING",
    "category_codes",
    "category_text",
    "column_name",
    "column_names",
    "differs",
    "id_columns",
    "id_order",
    "joined_name",
    "match_ids",
    "number_columns",
    "series_numbers",
    "with_joined_ids",
]


MISSING = "missing"
"""The category of a series that has none."""

_JOINS = "/"

DECIMAL = "decimal"
"""Under which the `attrs` of a frame that was read from a file hold its mark of decimals, if that is no point."""


def column_names(columns: Any, what: str) -> tuple[str, ...]:
    """One name or any list of names as text, for numbers can name columns too; none for None.

    Raises:
        UserError: for anything else, which is called `what`.
    """
    if columns is None:
        return ()
    if isinstance(columns, str | Integral) and not isinstance(columns, bool):
        return (str(columns),)
    names = [*columns] if isinstance(columns, Iterable) and not isinstance(columns, bytes | dict) else [None]
    if any(name is None or isinstance(name, bool) or not isinstance(name, Hashable) for name in names):
        raise UserError(f"{what} must be the name of a column or a list of names, not {shown(repr(columns))}")
    return tuple(map(str, names))


def column_name(column: Any, what: str) -> str | None:
    """One name as text, see `column_names`."""
    if not isinstance(column, str | Integral | None) or isinstance(column, bool):
        raise UserError(f"{what} must be the name of a column, not {shown(repr(column))}")
    return None if column is None else str(column)


def joined_name(columns: Any, what: str) -> str | None:
    """The name of one column, or the names of several that make up one, such as ``store/item``.

    Raises:
        UserError: for what is no name.
    """
    if not isinstance(columns, list | tuple):
        return column_name(columns, what)
    names = column_names(columns, what)
    if not names or (len(names) > 1 and any(_JOINS in name for name in names)):
        raise UserError(f"{what} must name columns without {_JOINS!r} to join them, not {shown(repr(columns))}")
    return _JOINS.join(names)


def id_columns(name: str | None, columns: Collection[Hashable]) -> tuple[str, ...]:
    """The columns of a table that hold what is called `name`: it alone, or those whose names it joins; none without."""
    if name is None or name in columns:
        return () if name is None else (name,)
    parts = tuple(name.split(_JOINS))
    return parts if all(part in columns for part in parts) else ()


def with_joined_ids(frame: pd.DataFrame, name: str | None, source: str) -> pd.DataFrame:
    """A table with a column of the ids that several columns make up, such as ``A/7``, if it has not got it already.

    Raises:
        UserError: for cells that are no ids, and for different ones that would be the same joined.
    """
    parts = id_columns(name, frame.columns)
    if len(parts) < 2 or name is None:
        return frame
    numbers = np.zeros(len(frame), np.int64)
    for part in parts:
        try:
            codes, uniques = pd.factorize(frame[part])
        except TypeError as error:
            raise UserError(f"column {shown(part)} holds no ids; valid are texts and numbers") from error
        numbers = pd.factorize(numbers * (len(uniques) + 1) + codes + 1)[0]
    first_rows = frame.loc[~pd.Series(numbers, index=frame.index).duplicated(), [*parts]]
    joined = [
        None if any(map(pd.isna, key)) else _JOINS.join(map(category_text, key))
        for key in first_rows.itertuples(index=False, name=None)
    ]
    twice = [text for text, count in Counter(joined).items() if text is not None and count > 1]
    if twice:
        raise UserError(
            f"{source}: two series of columns {', '.join(map(shown, parts))} are both {shown(twice[0])} once joined; "
            f"write their ids without {_JOINS!r}"
        )
    return frame.assign(**{name: np.array(joined, dtype=object)[numbers]})


def number_columns(
    frame: pd.DataFrame, names: tuple[str, ...], where: Callable[[int], str], role: str
) -> NDArray[np.float64]:
    """`(rows, columns)` numbers, NaN where missing, none infinite."""
    matrix = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        matrix[:, k] = _numbers(frame[name], where, role)
    is_infinite = np.isinf(matrix)
    if is_infinite.any():
        row, column = np.argwhere(is_infinite)[0].tolist()
        raise UserError(f"{where(row)}: the value of {shown(names[column])} is infinite; a finite number is needed")
    return matrix


def _numbers(column: pd.Series, where: Callable[[int], str], role: str) -> NDArray[np.float64]:
    """A column as floats; bools are 0 and 1 in covariates alone."""
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and kind.kind in "iuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    cells, given = column.astype(object), column.notna().to_numpy()
    types = np.fromiter((_kind(cell) for cell in cells), dtype="U1", count=len(cells))
    is_covariate = role.endswith("covariate")
    if is_covariate and (types[given] == "b").all():
        return np.asarray(cells.where(given, np.nan), dtype=np.float64)
    if column.attrs.get(DECIMAL, ".") != ".":
        is_text = np.fromiter((isinstance(cell, str) for cell in cells), dtype=bool, count=len(cells))
        _refuse_points(cells, is_text & given, where, role)
    # pandas would drop imaginary parts and count bools and dates as numbers
    numbers = pd.to_numeric(cells.where(given & (types == "n"), np.nan), errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(np.isnan(numbers) & given)
    if wrong.size:
        row = int(wrong[0])
        raise UserError(
            f"{where(row)}: {shown(cells.iloc[row])} in column {shown(column.name)} is not a number; a {role} needs "
            f"numbers{', bools, or text without a number' if is_covariate else ''}{_advice(cells, row)}"
        )
    return numbers


def _advice(cells: pd.Series, row: int) -> str:
    """What to do about a cell that is no number; whether a comma marks decimals, other cells of the column may tell."""
    text = str(cells.iloc[row]).strip()
    if not re.fullmatch(r"[+-]?(\d{1,3}([,.' \u00a0\u202f]\d{3})+([.,]\d+)?|\d+,\d+)", text):
        return " (name text columns as static, or list the targets)"
    commas = [one.strip() for one in cells if isinstance(one, str) and "," in one]
    is_decimal = "," in text and all(re.fullmatch(r"[+-]?\d+,\d+", one) for one in commas)
    is_thousands = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", one) for one in commas)
    if is_decimal and is_thousands:
        read = text.replace(",", ".")
        return f" (remove the comma, or give the decimal ',' for {read})"
    if is_decimal:
        return " (of a CSV file with decimal commas, give the decimal ',')"
    return " (remove marks of thousands)"


def _refuse_points(cells: pd.Series, is_text: NDArray[np.bool_], where: Callable[[int], str], role: str) -> None:
    """Refuse a point in the text of a number with another mark of decimals, which would be read as one."""
    for row in np.flatnonzero(is_text).tolist():
        if re.fullmatch(r"\s*[+-]?\d+(\.\d+)+(,\d*)?\s*", cells.iloc[row]):
            raise UserError(
                f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} is not a number with the "
                f"decimal {cells.attrs[DECIMAL]!r}: a {role} needs numbers without a mark of thousands"
            )


def _kind(cell: object) -> str:
    """``b`` for bools, ``n`` for what may be read as a float, ``-`` for anything else."""
    if isinstance(cell, bool | np.bool_):
        return "b"
    if isinstance(cell, int):
        return "n" if abs(cell) < 1 << 1023 else "-"
    return "n" if isinstance(cell, str | Real | Decimal) else "-"


def series_numbers(
    ids: pd.Series | None, rows: int, where: Callable[[int], str]
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """The number of the series of each row, `(rows,)`, and the ids, sorted, so that the order of rows decides nothing.

    Raises:
        UserError: naming the row of an id that is missing, or is neither a text nor a number.
    """
    if ids is None:
        return np.zeros(rows, np.int64), ("series",)
    try:
        is_new = _is_new(ids)
        codes, uniques = pd.factorize(ids[is_new])
    except TypeError as error:
        raise UserError(f"column {shown(ids.name)} holds no ids; valid are texts and numbers") from error
    starts = np.flatnonzero(is_new)
    if (codes < 0).any():
        raise UserError(f"{where(int(starts[(codes < 0).argmax()]))}: the id in column {shown(ids.name)} is missing")
    names = [name.item() if isinstance(name, np.generic) else name for name in uniques.tolist()]
    # ids are saved with a model, as plain data
    strange = [number for number, name in enumerate(names) if not isinstance(name, str | int | float | tuple)]
    if strange:
        row = int(starts[(codes == strange[0]).argmax()])
        raise UserError(
            f"{where(row)}: {shown(names[strange[0]])} in column {shown(ids.name)} is a "
            f"{type(names[strange[0]]).__name__}, not an id; valid are texts and numbers"
        )
    order = id_order(names)
    numbers = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    lengths = np.diff(starts, append=rows)
    return numbers[codes].repeat(lengths), tuple(names[place] for place in order)


def _is_new(ids: pd.Series) -> NDArray[np.bool_]:
    """`(rows,)` whether a row may have another id than the row before: few have where rows are sorted by series."""
    if not isinstance(ids.dtype, pd.StringDtype) and not pd.api.types.is_numeric_dtype(ids.dtype):
        return np.ones(len(ids), dtype=bool)
    return np.concatenate([[True], differs(ids.array[1:], ids.array[:-1])])


def differs(one: Any, other: Any) -> NDArray[np.bool_]:
    """`(rows,)` whether two arrays of texts or numbers differ; what is missing differs from all."""
    is_other: NDArray[np.bool_] = pd.Series(one != other).fillna(True).to_numpy(bool)
    return is_other


def id_order(names: list[Any]) -> list[int]:
    """The places of ids in their order: numbers before texts, where there are both."""
    try:
        return sorted(range(len(names)), key=names.__getitem__)
    except TypeError:
        keys = [(1, str(name)) if isinstance(name, str | tuple) else (0, name) for name in names]
        return sorted(range(len(names)), key=keys.__getitem__)


def match_ids(ids: Sequence[Any], known: Sequence[Any]) -> dict[Any, Any]:
    """Which of the known ids each of some ids is, if it is one of them.

    Files and frames may write the same ids as text and as numbers, and whole numbers as floats: an id that is not known
    as it is, is the one that reads the same, if no other does.
    """
    places = {name: name for name in known}
    found = {name: places[name] for name in ids if name in places}
    taken = {*found.values()}
    others = [name for name in ids if name not in found]
    alike, given = (_by_text(names) for names in ([name for name in known if name not in taken], others))
    return {**found, **{name: alike[text] for text, name in given.items() if text in alike}}


def _by_text(names: list[Any]) -> dict[str, Any]:
    """Ids by how they read, but for those of which several read the same."""
    texts = [category_text(name) for name in names]
    count = Counter(texts)
    return {text: name for text, name in zip(texts, names, strict=True) if count[text] == 1}


def category_codes(
    frame: pd.DataFrame,
    columns: tuple[str, ...],
    series: NDArray[np.int64],
    names: tuple[Any, ...],
    where: Callable[[int], str],
    may_lack: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], tuple[tuple[str, ...], ...]]:
    """The category of each series in each static column, `(S, K)`, and the categories of each column.

    A series without any has the category `MISSING`. In the rows `may_lack` of the table a category may be missing, if
    another row of the series has it.
    """
    codes, categories = np.empty((len(names), len(columns)), np.int64), []
    for k, name in enumerate(columns):
        try:
            raw, uniques = pd.factorize(frame[name])
        except TypeError as error:
            raise UserError(f"static column {shown(name)} holds no categories; valid are texts and numbers") from error
        first_rows = np.full(len(names), len(frame))
        np.minimum.at(first_rows, series[raw >= 0], np.flatnonzero(raw >= 0))
        has_none = first_rows == len(frame)
        lacking = (raw < 0) & ~may_lack & ~has_none[series]
        if lacking.any():
            row = int(lacking.argmax())
            raise UserError(f"{where(row)}: the category in static column {shown(name)} is missing")
        texts = [category_text(value) for value in uniques.tolist()]
        known = sorted({*texts, *([MISSING] if has_none.any() else [])})
        number = {text: i for i, text in enumerate(known)}
        column = np.array([*(number[text] for text in texts), number.get(MISSING, -1)])[raw]
        codes[:, k] = np.append(column, number.get(MISSING, -1))[first_rows]
        changes = (column != codes[series, k]) & (raw >= 0)
        if changes.any():
            row = int(changes.argmax())
            raise UserError(
                f"{where(row)}: static column {shown(name)} changes within series {shown(names[series[row]])}, to "
                f"{shown(known[column[row]])}; it must be constant (or be a covariate)"
            )
        categories.append(tuple(known))
    return codes, tuple(categories)


def category_text(value: object) -> str:
    """A category as text; 1.0 is the category 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
