"""Convert columns of a table to arrays: numbers, categories and ids, checked cell by cell (time stamps: `stamps.py`).

A category of a covariate is numbered from 1 by its place among the sorted texts; 0 is a category not seen in training.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tsattn.data.row_ranges import made_rows
from tsattn.errors import UserError, one_of, shown

logger = logging.getLogger("tsattn")

Categories = Mapping[str, tuple[str, ...]]
"""Sorted categories by name of covariate; numeric covariates are left out."""

# default names of id, time and target in long tables
LONG_TABLES = (("unique_id", "ds", "y"), ("item_id", "timestamp", "target"))
TARGETS = tuple(names[2] for names in LONG_TABLES)
ID_COLUMNS = tuple(names[0] for names in LONG_TABLES)
TIME_COLUMNS = ("date", "ds", "timestamp")
FOUND_TARGET = "target of a wide table"  # the role of columns that no one named

MOST = 256  # whole numbers up to this are exact in every precision of a training
UNSEEN = "(not seen in training)"
"""The text of a category that the training rows did not have."""


def in_categories(
    part: NDArray[np.float64] | None, names: Sequence[str], have: Categories, wanted: Categories, source: str
) -> NDArray[np.float64] | None:
    """Renumber covariates `(rows, columns)` by a trained model's categories; unseen categories are logged and get 0."""
    for name in names:
        if (name in have) != (name in wanted):
            kinds = ("categories", "numbers") if name in have else ("numbers", "categories")
            raise UserError(f"{source} has {kinds[0]} in covariate {shown(name)}; the model was trained on {kinds[1]}")
        if unseen := [one for one in have.get(name, ()) if one not in wanted[name] and one != UNSEEN]:
            says = "%s: covariate %s: %s not seen in training, replaced by the mean of the trained categories"
            logger.warning(says, source, shown(name), first_names(unseen, str))
    return None if part is None else recoded(part, have, names, wanted)


def recoded(
    part: NDArray[np.float64], have: Categories, names: Sequence[str], wanted: Categories
) -> NDArray[np.float64]:
    """Renumber columns by other categories; if `part` lies in a file, so does the result."""
    changed = {k: name for k, name in enumerate(names) if name in wanted and (*have[name],) != (*wanted[name],)}
    if not changed:
        return part

    def rows_of(rows: slice) -> NDArray[np.float64]:
        out = part[rows].astype(np.float64)
        for k, name in changed.items():
            number: dict[Any, float] = {text: float(place) for place, text in enumerate(wanted[name], 1)}
            codes = np.array([0.0, *(number.get(text, 0.0) for text in have[name]), np.nan])
            out[:, k] = codes[np.where(np.isnan(out[:, k]), -1, out[:, k]).astype(np.int64)]
        return out

    return made_rows(part, rows_of)


Where = Callable[[int], str]

DECIMAL = "decimal"
"""Key in the `attrs` of a frame that holds the decimal mark of its file, if it is not a point."""

JOINS = "/"
"""Separator between the parts of ids from several columns."""


def number_columns(frame: pd.DataFrame, names: Sequence[str], where: Where, role: str) -> NDArray[np.float64]:
    """Read columns as numbers `(rows, columns)`, NaN if missing; infinite numbers are refused."""
    if len(names) == 1:
        matrix = _numbers(frame[names[0]], where, role)[:, None]
    else:
        matrix = np.empty((len(frame), len(names)))
        for k, name in enumerate(names):
            matrix[:, k] = _numbers(frame[name], where, role)
    # a finite sum shows that all numbers are finite; an infinite sum may be an overflow, so look closer
    with np.errstate(over="ignore", invalid="ignore"):
        is_sure = bool(np.isfinite(matrix.sum()))
    if not is_sure and (is_infinite := np.isinf(matrix)).any():
        row, column = np.argwhere(is_infinite)[0].tolist()
        raise UserError(f"{where(row)}: the value of {shown(names[column])} is infinite; a finite number is needed")
    return matrix


def _numbers(column: pd.Series, where: Where, role: str) -> NDArray[np.float64]:
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and kind.kind in "iuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    cells, given = column.astype(object), column.notna().to_numpy()
    is_covariate = role.endswith("covariate")
    named = {"b": (bool, np.bool_), "t": (str,), "n": (Real, Decimal), "-": (object,)}  # type n can be read as a float
    of_type = {
        cell: next(kind for kind, types in named.items() if issubclass(cell, types)) for cell in {*map(type, cells)}
    }
    kinds = cells.map(type).map(of_type).to_numpy()
    if is_covariate and (kinds[given] == "b").all():
        return np.asarray(cells.where(given, np.nan), dtype=np.float64)
    # select the cells first: pandas would drop imaginary parts and read bools and dates as numbers
    may_be = given & np.isin(kinds, ["n", "t"])
    decimal, advice = column.attrs.get(DECIMAL, "."), ", or give the decimal ',' of a CSV file"
    if decimal != ".":  # else pandas would read a point as a decimal mark
        may_be &= ~(cells.astype(str).str.fullmatch(r"\s*[+-]?\d+(\.\d+)+(,\d*)?\s*") & (kinds == "t")).to_numpy()
        advice = f", as the decimal is {decimal!r}"
    try:
        numbers = pd.to_numeric(cells.where(may_be, np.nan), errors="coerce").to_numpy(dtype=np.float64)
    except OverflowError:  # integers too large for a float
        small = np.array([not isinstance(cell, int) or abs(cell) < 1 << 1023 for cell in cells], dtype=bool)
        numbers = pd.to_numeric(cells.where(may_be & small, np.nan), errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(np.isnan(numbers) & given)
    if wrong.size:
        row, advice = int(wrong[0]), f"remove thousands separators{advice}"
        if not re.fullmatch(r"\s*[+-]?\d[\d,.' \u00a0\u202f]*", str(cells.iloc[row])):
            advice = "correct the cell, or empty it if it is missing"
            advice = "name text columns as static, or list the targets" if role == FOUND_TARGET else advice
        needs = "numbers, bools, or text without a number" if is_covariate else "numbers"
        cell = f"{shown(cells.iloc[row])} in column {shown(column.name)}"
        raise UserError(f"{where(row)}: {cell} is not a number; a {role} needs {needs} ({advice})")
    return numbers


def covariate_columns(
    frame: pd.DataFrame, names: Sequence[str], where: Where, role: str, categorical: Collection[str] | None
) -> tuple[NDArray[np.float64], dict[str, tuple[str, ...]]]:
    """Read covariates as numbers `(rows, columns)`, NaN if missing; also return the categories by covariate."""
    matrix, categories = np.empty((len(frame), len(names))), {}
    for k, name in enumerate(names):
        column = frame[name]
        if not (name in categorical if categorical is not None else _is_category(column)):
            matrix[:, k] = number_columns(frame, (name,), where, role)[:, 0]
            continue
        raw, uniques = _factorized(column, "static column" if role == "static" else "covariate", "categories")
        texts = [category_text(value) for value in uniques.tolist()]
        categories[name] = tuple(sorted({*texts} - {UNSEEN}))
        number = {text: float(place) for place, text in enumerate(categories[name], 1)} | {UNSEEN: 0.0}
        matrix[:, k] = np.array([*(number[text] for text in texts), np.nan])[raw]  # code -1 (missing) is the last entry
    return matrix, categories


def _factorized(column: pd.Series, what: str, of: str) -> tuple[NDArray[np.intp], Any]:
    try:
        return pd.factorize(column)
    except TypeError as error:
        raise UserError(f"{what} {shown(column.name)} holds no {of}; valid are texts and numbers") from error


def _is_category(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    cells = column.dropna()
    is_text = len(cells) > 0 and pd.api.types.infer_dtype(cells) == "string"
    return is_text and bool(pd.to_numeric(cells.astype(object), errors="coerce").isna().all())


def category_text(value: object) -> str:
    """The text of a category or id: of a whole number without a point, also if missing cells made it a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def id_columns(name: str | None, columns: Collection[Hashable]) -> tuple[str, ...]:
    """The columns of ids: column `name`, or the columns whose names `name` joins; none if `name` is None."""
    if name is None or name in columns:
        return () if name is None else (name,)
    parts = tuple(name.split(JOINS))
    return parts if all(part in columns for part in parts) else ()


def with_joined_ids(frame: pd.DataFrame, name: str | None, source: str) -> pd.DataFrame:
    """Add a column of ids joined from several columns, such as ``A/7``, unless the table already has it."""
    parts = id_columns(name, frame.columns)
    if len(parts) < 2 or name is None:
        return frame
    numbers = np.zeros(len(frame), np.int64)
    for part in parts:
        codes, uniques = _factorized(frame[part], "column", "ids")
        numbers = pd.factorize(numbers * (len(uniques) + 1) + codes + 1)[0]
    first_rows = frame.loc[~pd.Series(numbers, index=frame.index).duplicated(), [*parts]]
    joined = [
        None if any(map(pd.isna, key)) else JOINS.join(map(category_text, key))
        for key in first_rows.itertuples(index=False, name=None)
    ]
    if twice := [text for text, count in Counter(joined).items() if text is not None and count > 1]:
        both = f"ids from columns {', '.join(map(shown, parts))} are joined, and two of them become {shown(twice[0])}"
        raise UserError(f"{source}: {both}; write their ids without {JOINS!r}")
    return frame.assign(**{name: np.array(joined, dtype=object)[numbers]})


def series_numbers(ids: pd.Series | None, rows: int, where: Where) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Number the series of each row, `(rows,)`, and list the sorted ids; the order of rows does not matter."""
    if ids is None:
        return np.zeros(rows, np.int64), ("series",)
    starts, firsts, cells = np.arange(rows), ids, None
    if isinstance(ids.dtype, pd.StringDtype) or ids.dtype.kind in "iu":
        with suppress(UnicodeEncodeError):  # pyarrow refuses a lone surrogate
            cells = pa.table({"id": pa.array(ids, from_pandas=True)})["id"]
    if cells is not None:
        # in sorted rows few ids differ from the id before; a missing id differs from all ids
        differs = pc.fill_null(pc.not_equal(cells.slice(1), cells.slice(0, rows - 1)), True)
        is_first = pa.chunked_array([[True], *differs.chunks])
        starts = pc.indices_nonzero(is_first).to_numpy().astype(np.int64)
        firsts = cells.filter(is_first).to_pandas().rename(ids.name)
    codes, uniques = _factorized(firsts, "column", "ids")
    names = [name.item() if isinstance(name, np.generic) else name for name in uniques.tolist()]
    if (codes < 0).any():
        raise UserError(f"{where(int(starts[(codes < 0).argmax()]))}: the id in column {shown(ids.name)} is missing")
    for number, name in enumerate(names):
        if not isinstance(name, str | int | float | tuple):  # ids are saved with a model as plain data
            row, says = int(starts[(codes == number).argmax()]), f"is a {type(name).__name__}, not an id"
            cell = f"{shown(name)} in column {shown(ids.name)}"
            raise UserError(f"{where(row)}: {cell} {says}; valid are texts and numbers")
    order = id_order(names)
    numbers = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    return numbers[codes].repeat(np.diff(starts, append=rows)), tuple(names[place] for place in order)


def id_order(names: list[Any]) -> list[int]:
    """Sort the places of ids by id; numbers come before texts."""
    try:
        return sorted(range(len(names)), key=names.__getitem__)
    except TypeError:
        keys = [(1, str(name)) if isinstance(name, str | tuple) else (0, name) for name in names]
        return sorted(range(len(names)), key=keys.__getitem__)


def match_ids(ids: Sequence[Any], known: Sequence[Any]) -> dict[Any, Any]:
    """Map ids to equal known ids, or to known ids with the same unique text, as files may hold numbers as text."""
    places = {name: name for name in known}
    found = {name: places[name] for name in ids if name in places}
    taken = {*found.values()}

    def by_text(names: list[Any]) -> dict[str, Any]:
        texts = [category_text(name) for name in names]
        count = Counter(texts)
        return {text: name for text, name in zip(texts, names, strict=True) if count[text] == 1}

    alike = by_text([name for name in known if name not in taken])
    given = by_text([name for name in ids if name not in found])
    return {**found, **{name: alike[text] for text, name in given.items() if text in alike}}


def is_lazy(table: Any) -> bool:
    """Whether this is a lazy frame of a library that narwhals supports."""
    # skip pandas: narwhals raises on some frames that get a clearer message elsewhere
    is_pandas = isinstance(table, pd.DataFrame | pd.Series)
    return not is_pandas and isinstance(nw.from_native(table, pass_through=True), nw.LazyFrame)


def first_names(names: Iterable[Any], text: Callable[[Any], str] = repr) -> str:
    """The first few names, for messages."""
    some = [shown(text(name)) for name in islice(names, 13)]
    return (one_of(some[:12]) or "none") + (", ..." if len(some) > 12 else "")
