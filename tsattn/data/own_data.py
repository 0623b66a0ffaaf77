"""Your own data, in memory: a frame, or a CSV or Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frequency import Times
from tsattn.data.mapped.opening import opened_panel, refuse_weights, table_options
from tsattn.data.mapped.panel_folder import is_panel_folder
from tsattn.data.panel import Panel
from tsattn.data.reader import check_max_filled, panel_from_frame
from tsattn.data.split_rule import SplitRule
from tsattn.data.splits import Split
from tsattn.data.tables import as_frame, read_table, rows_of
from tsattn.data.text_format import TextFormat
from tsattn.data.weights import RowWeights, without_column

__all__ = ["CSVDataModule", "FrameDataModule"]


class FrameDataModule(ForecastDataModule):
    """A frame of many series (long: a row a series and time stamp) or of one (wide: a row a time stamp).

    Every series is split alike: by fraction, by count or by date. Missing values are masked, gaps in time are filled
    with missing values, and nothing that has a value is dropped. `panel_from_frame` says what is read from a frame.

    Args:
        frame: a pandas, polars or pyarrow frame, or any other with ``__arrow_c_stream__`` or ``__dataframe__``.
        name: the name of the data set, as run folders and tables show it.
        id_column: column of series ids; found by itself if named ``unique_id`` or ``item_id``. None of these: wide.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the column or columns to forecast; found by itself if named ``y`` or ``target`` in a long frame, all
            columns without another role in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency, or ``1`` where time counts steps; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing, where time stamps are missing.
        date_format: how dates in text are written, such as ``%d/%m/%y``; None: ISO 8601, or the one format that fits
            all of them.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        train_fraction: share of the rows of each series for training, the first ones; 0.7 unless another split is
            given.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing. 0.1 by default.
        val_rows: instead of shares: rows of each series for validation, those before the last `test_rows`.
        test_rows: rows of each series for testing, the last ones.
        val_from: instead of shares: the first time stamp for validation, as 2020-01-01.
        test_from: the first time stamp for testing.
        weight_column: column of weights, numbers of at least 0: how much the targets of a row count in a training. 0
            leaves them out, as if they were missing; they still count in contexts, scales and every score.
        series_weights: weights of series by their ids, or of the columns of a wide frame; 1 for all others.
        row_weights: stretches of time, ``[first, last, weight]`` each, both ends included. Weights that say something
            of the same row are multiplied, and only their ratios matter.
        scaling: see `ForecastDataModule`.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.

    Attributes:
        future: a file of ids, time stamps and future covariates after the end of each series; None where the data have
            them themselves.

    Raises:
        UserError: for two ways to split, or half of one, and what text cannot be written in.
    """

    def __init__(
        self,
        frame: Any,
        name: str = "frame",
        id_column: str | None = None,
        time_column: str | None = None,
        target: str | list[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static: Sequence[str] = (),
        frequency: str | int | None = None,
        max_filled: float = 0.5,
        date_format: str | None = None,
        separator: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        weight_column: str | None = None,
        series_weights: dict[str, float] | None = None,
        row_weights: list[list[Any]] | None = None,
        scaling: str = "series",
        **sizes: Any,
    ) -> None:
        super().__init__(name, scaling=scaling, **sizes)
        self.frame = frame
        self.future: Path | None = None
        self.columns: dict[str, Any] = {
            "id_column": id_column,
            "time_column": time_column,
            "target": target,
            "past_covariates": tuple(past_covariates),
            "future_covariates": tuple(future_covariates),
            "static": tuple(static),
        }
        self.frequency = frequency
        check_max_filled(max_filled)
        self.max_filled = max_filled
        self.text = TextFormat(separator, decimal, encoding, date_format)
        self.weights = RowWeights.of(weight_column, series_weights, row_weights)
        self.rule = SplitRule.of(train_fraction, val_fraction, val_rows, test_rows, val_from, test_from)

    @override
    def load_panel(self) -> Panel:
        return self._panel(self.frame, "the frame", weights=self.weights)

    @override
    def load_input(self, path: Path) -> Panel:
        """The series in a CSV or Parquet file, or in a folder that a table was converted to."""
        return self._file(path)

    @override
    def split(self, time: Times) -> Split:
        return self.rule.split(time)

    def _file(self, path: Path, weights: RowWeights | None = None) -> Panel:
        if is_panel_folder(path):
            refuse_weights(weights, path)
            return opened_panel(path, table_options(self.columns, self.frequency, self.max_filled, self.text))
        named = {name: self.columns[name] for name in ("id_column", "time_column")}
        table = read_table(path, text=self.text, **named)
        return self._panel(table, str(path), rows_of(path, self.text), weights)

    def _panel(
        self,
        table: Any,
        source: str,
        row_of: Callable[[int], str] | None = None,
        weights: RowWeights | None = None,
    ) -> Panel:
        if weights is None and self.weights is not None:
            table = without_column(as_frame(table, source), self.weights.column)
        task, columns, frequency = self.task, self.columns, self.frequency
        categorical = None if task is None else [*task.categories_by_covariate]
        if task is not None:
            table, frequency = as_frame(table, source), task.frequency
            if set(task.channels) <= set(map(str, table.columns)):
                columns = {**columns, "target": task.channels}  # of other columns none is a channel
        return panel_from_frame(
            table,
            **columns,
            frequency=frequency,
            max_filled=self.max_filled,
            text=self.text,
            source=source,
            row_of=row_of,
            future=self.future,
            weights=weights,
            categorical=categorical,
        )


class CSVDataModule(FrameDataModule):
    """A CSV or Parquet file of many series (long) or of one series with many channels (wide).

    The data set is named after the file.

    Args:
        path: a ``.csv``, ``.parquet`` or ``.pq`` file, or a folder that a table was converted to
            (``datasets convert``).
        **options: columns, split, lengths and batch sizes, see `FrameDataModule`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(None, name=Path(path).stem, **options)
        self.path = Path(path)

    @override
    def load_panel(self) -> Panel:
        return self._file(self.path, self.weights)
