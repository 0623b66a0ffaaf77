"""Keep the errors of all windows in an Arrow table, in memory or in a Parquet file; all scores are computed from it.

A row is a series, an origin and a channel. Shape letters: N rows, C channels, Q quantile levels, T horizon, M sums of a
total (`total_names`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.data import Panel
from tsattn.errors import UserError, check_file, first_line, one_of, shown
from tsattn.evaluation.reductions import group_scores, is_count, is_score, scores_of
from tsattn.evaluation.window_errors import completed, sum_names, total_names

BY = ("series", "step", "origin")
"""Groups that a user may ask scores by."""

METADATA = b"tsattn.errors"
MEMORY_LIMIT = 50_000_000  # bytes of rows
_FORMAT = 1
_PART = 1 << 16  # rows of a part, which is a row group of a file
_KEYS = {"series": "unique_id", "origin": "origin"}  # columns to sum rows by


class ErrorTable:
    """Errors of all windows, see `tsattn.evaluation.measure`.

    The keys of a row are ``unique_id`` (the id of the series), ``origin`` (the last time stamp or step before the
    horizon) and ``channel``. Then come the sums over the horizon that `sum_names` lists, and ``seasonal_error``, the
    divisor of MASE, NaN if unknown. An origin is exact to the second, by the clock of the data.

    Attributes:
        channels: the names of the C channels.
        levels: the Q quantile levels, none for point forecasts.
        path: the file with the rows; None if they are in memory or were not kept.
    """

    def __init__(
        self, schema: pa.Schema, totals: Tensor, rows: pa.Table | Path | None, steps: Tensor | None = None
    ) -> None:
        self.channels, self.levels = _described(schema)
        self.path = rows if isinstance(rows, Path) else None
        self._totals = totals  # (C, M)
        self._rows = rows
        self._steps = steps  # (T, C, M)

    @classmethod
    def collect(
        cls, parts: Iterable[pa.Table], path: str | Path | None, steps: Callable[[], Tensor | None] = lambda: None
    ) -> ErrorTable:
        """Collect rows of `error_rows` in the Parquet file `path` as they come, or in memory up to `MEMORY_LIMIT`.

        At the end ``steps`` returns `(T, C, M)` totals by step, or None.

        Raises:
            UserError: without rows or observed targets, or if the file cannot be written.
        """
        kept: list[pa.Table] = []
        totals, size = None, 0
        with nullcontext(kept.append) if path is None else _writing(Path(path)) as write:
            for part in parts:
                added = _totals(part)
                totals = added if totals is None else totals + added
                size += part.nbytes
                if path is not None or size <= MEMORY_LIMIT:
                    write(part)
            if totals is None:
                raise UserError("there are no windows to measure")
            if not totals[:, total_names(()).index("count")].any():
                raise UserError("there is no observed value to score: choose another split")
        rows = Path(path) if path is not None else pa.concat_tables(kept) if size <= MEMORY_LIMIT else None
        return cls(part.schema, totals, rows, steps())

    @classmethod
    def read(cls, path: str | Path) -> ErrorTable:
        """Open a file that `measure` has written; its rows are read for the totals, and not kept.

        Raises:
            UserError: if the file is missing or damaged, is not an error table, or was written by a newer version.
        """
        path = Path(path)
        check_file(path)
        with _saying(path, "read"):
            schema = pq.read_schema(path)
            _described(schema)
            # add parts in the order in which they were written, so that totals agree to the last digit
            totals = reduce(torch.add, map(_totals, _parts(path)))
        return cls(schema, totals, path)

    def scores(self) -> dict[str, float]:
        """Compute all scores by name, see `tsattn.evaluation.reductions`."""
        return scores_of(self._totals, self.levels)

    def totals_by(self, key: str) -> tuple[pd.Index[Any], Tensor]:
        """Sum the rows of each group: ``series``, ``origin``, ``channel``, or ``step`` of the horizon, 1 to T.

        Returns:
            the G groups (series in the order of the rows, origins in the order of time), and `(G, C, M)` totals, see
            `total_names`. By channel C is 1. By step every window counts at each step.

        Raises:
            UserError: for an unknown key, or if the rows, or the totals by step, were not kept.
        """
        if key == "channel":
            return pd.Index(self.channels, name=key), self._totals[:, None]
        if key == "step":
            if self._steps is None:
                raise UserError("this table has no totals by step: measure again with by_step=True")
            return pd.RangeIndex(1, len(self._steps) + 1, name=key), self._steps
        if key not in _KEYS:
            raise UserError(f"the key must be one of {one_of((*_KEYS, 'channel', 'step'))}, not {shown(key)}")
        numbers: dict[Any, int] = {}
        C, M = self._totals.shape
        totals = self._totals.new_zeros(0, C, M)
        for part in self._all_parts():
            keys: Any = part[_KEYS[key]]
            # ids with several parts are lists in Arrow and tuples in pandas
            is_list = pa.types.is_nested(keys.type)
            keys = pd.Series([*map(tuple, keys.to_pylist())], dtype=object) if is_list else keys.to_pandas()
            codes, names = pd.factorize(keys)
            places = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
            added = _totals(part, codes, len(places)).view(-1, C, M)
            totals = torch.cat([totals, totals.new_zeros(len(numbers) - len(totals), C, M)])
            totals.index_add_(0, torch.tensor(places), added)
        names = pd.Index([*numbers], name=_KEYS[key], tupleize_cols=False)
        order = np.argsort(names, kind="stable") if key == "origin" else np.arange(len(names))
        return names[order], totals[torch.from_numpy(order)]

    def scores_by(self, key: str) -> pd.DataFrame:
        """Compute the scores of each group of `totals_by`: a row for each group, with the columns of `scores`."""
        names, totals = self.totals_by(key)
        scores = pd.DataFrame(group_scores(totals, self.levels), index=names)
        return scores.astype({name: "int64" for name in scores if is_count(str(name))})

    def step_scores(self, score: str, channels: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Compute a score at each step of the horizon, `(T,)`, over the channels with these numbers, or over all."""
        _, totals = self.totals_by("step")
        return group_scores(totals if channels is None else totals[:, list(channels)], self.levels)[score]

    def frame(self) -> pd.DataFrame:
        """Return all rows; raise UserError if they were not kept."""
        frame: pd.DataFrame = pa.concat_tables(self._all_parts()).to_pandas()
        return frame

    def _all_parts(self) -> Iterator[pa.Table]:
        if self._rows is None:
            raise UserError("the rows of this table are too many for memory. Measure with `path=FILE`.")
        if isinstance(self._rows, Path):
            return _parts(self._rows)
        return (pa.Table.from_batches([batch]) for batch in self._rows.to_batches())


def check_by(by: str) -> str:
    """Check that `by` is one of `BY`, and return it; raise UserError otherwise."""
    if by not in BY:
        raise UserError(f"by must be one of {one_of(BY)}, not {shown(by)}")
    return by


def check_group(by: str, id_name: str) -> None:
    """Raise UserError for scores by series if the column of ids has the name of another column of the scores."""
    if by == "series" and (id_name == "forecaster" or is_score(id_name)):
        raise UserError(f"rename column {shown(id_name)} of the series: the scores have a column of that name")


def scores_by(tables: Mapping[str, ErrorTable], by: str, panel: Panel) -> pd.DataFrame:
    """Compute all scores of each group of windows (or, by step, of errors) of each forecaster.

    The index has the name of the forecaster (``forecaster``) and the group. A group by series is an id, under its name
    in the panel, or the column of a wide panel. ``step`` counts from 1. ``origin`` is the last time stamp or step
    before the horizon, exact to the second. When clocks are set back, the repeated hour is one group.

    Raises:
        UserError: for an unknown `by`, or if a table was measured without its rows or steps.
    """
    key = "channel" if check_by(by) == "series" and panel.is_wide else by
    frames = {name: table.scores_by(key) for name, table in tables.items()}
    frame = pd.concat(frames, names=["forecaster", panel.id_name if by == "series" else by])
    zone = panel.time.tz if by == "origin" and isinstance(panel.time, pd.DatetimeIndex) else None
    if zone is None:
        return frame
    index: Any = frame.index
    origins = index.levels[1]
    local = origins.tz_localize(zone, ambiguous=np.zeros(len(origins), dtype=bool), nonexistent="shift_forward")
    return frame.set_axis(index.set_levels(local, level=1))


def error_rows(
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    ids: Sequence[Any],
    channels: Sequence[str],
    levels: tuple[float, ...],
    *,
    counts_steps: bool = False,
) -> Iterator[pa.Table]:
    """Make rows from the errors of batches. Errors stay on their device until there are enough to fetch together.

    A batch of B windows has `(B,)` int64 numbers of series, `(B,)` last time stamps before the horizon, and
    `(B, C, K + 1)` sums and seasonal errors. Time stamps are seconds since 1970-01-01, or steps.
    """
    try:
        known = pa.array(list(ids))
    except (pa.ArrowException, TypeError, OverflowError):  # mixed types of ids, and huge ones, become text
        known = pa.array(list(map(str, ids)))
    names, C = pa.array(channels, pa.string()), len(channels)
    schema = _schema(known.type, channels, levels, counts_steps=counts_steps)

    def fetched(waiting: list[tuple[Tensor, ...]]) -> pa.Table:
        series, origin, values = (torch.cat(parts).cpu().numpy() for parts in zip(*waiting, strict=True))
        time = pa.array(origin.astype(np.int64).repeat(C) * (1 if counts_steps else 1000))
        keys = [known.take(pa.array(series.repeat(C))), time.cast(schema.field("origin").type)]
        columns = values.astype(np.float64).reshape(-1, values.shape[-1]).T
        return pa.Table.from_arrays(
            [*keys, names.take(pa.array(np.tile(np.arange(C), len(series)))), *map(pa.array, columns)], schema=schema
        )

    waiting: list[tuple[Tensor, ...]] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(series) for series, *_ in waiting) * C >= _PART:
            yield fetched(waiting)
            waiting = []
    if waiting:
        yield fetched(waiting)


def _schema(
    ids: pa.DataType, channels: Sequence[str], levels: Sequence[float], *, counts_steps: bool = False
) -> pa.Schema:
    """The schema of rows, with a description of its columns in the metadata."""
    origin = pa.int64() if counts_steps else pa.timestamp("ms")
    keys = [("unique_id", ids), ("origin", origin), ("channel", pa.string())]
    sums = [(name, pa.float64()) for name in (*sum_names(levels), "seasonal_error")]
    about = {"format": _FORMAT, "channels": [*channels], "levels": [*levels], "counts_steps": counts_steps}
    return pa.schema([*keys, *sums], metadata={METADATA: json.dumps(about)})


def _described(schema: pa.Schema) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The channels and quantile levels of rows; raise ValueError if this version cannot read them as an error table."""
    about = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
    if "format" not in about:
        raise ValueError("it is no error table")
    if about["format"] > _FORMAT:
        raise ValueError("it was written by a newer version of tsattn")
    if schema.names != _schema(pa.string(), about["channels"], about["levels"]).names:
        raise ValueError("its columns are not those of an error table")
    return tuple(about["channels"]), tuple(about["levels"])


def _totals(rows: pa.Table, group: NDArray[np.int64] | None = None, num_groups: int = 1) -> Tensor:
    """Totals `(G * C, M)` of N rows, group by group; `group (N,)` is the number of the group of each row."""
    channels, _ = _described(rows.schema)
    channel = pc.index_in(rows["channel"], value_set=pa.array(channels, pa.string()))
    if channel.null_count:
        raise ValueError("it has rows of an unknown channel")
    values = torch.from_numpy(np.stack([rows[name].to_numpy() for name in rows.column_names[3:]], axis=1))
    C = len(channels)
    numbers = torch.from_numpy(channel.to_numpy().astype(np.int64) + (0 if group is None else C * group))
    added = completed(values[:, :-1], values[:, -1])
    return added.new_zeros(num_groups * C, added.shape[1]).index_add_(0, numbers, added)


@contextmanager
def _writing(path: Path) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that adds rows to a Parquet file; the file gets its name at the end, if all went well."""
    partial = path.with_name(f"{path.name}.partial")
    writer: Any = None

    def write(part: pa.Table) -> None:
        nonlocal writer
        with _saying(path, "written"):
            if writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(partial, part.schema, compression="zstd")
            writer.write_table(part, row_group_size=len(part))

    try:
        yield write
        with _saying(path, "written"):
            writer.close()
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        if writer is not None:
            with suppress(OSError, ValueError):  # else garbage collection would write the end of the file
                writer.close()
            partial.unlink(missing_ok=True)


@contextmanager
def _saying(path: Path, done: str) -> Iterator[None]:
    """Turn errors of a file that is ``written`` or ``read`` into a UserError of one sentence."""
    faults = (OSError,) if done == "written" else (OSError, ValueError, KeyError, TypeError)  # as pyarrow raises
    try:
        yield
    except UserError:
        raise
    except faults as error:
        number = getattr(error, "errno", None)  # pyarrow changes the system's message
        reason = os.strerror(number) if number else first_line(error)
        raise UserError(f"{path} cannot be {done}: {reason}") from error


def _parts(path: Path) -> Iterator[pa.Table]:
    """The row groups of a file, in the order of writing."""
    with _saying(path, "read"), pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)
