"""Your own data, in memory: a frame, a CSV or Parquet file, or a panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import fit_scaler
from tsattn.data.sources import FrameSource
from tsattn.data.split_rule import AllRows, ByCount, LastTenth, asked_rule
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["CSVDataModule", "FrameDataModule", "PanelDataModule"]


class FrameDataModule(ForecastDataModule):
    """Data frame: long (a row for each series and time stamp) or wide (a column for each series).

    Every series is split alike: by fraction, by count or by date. Missing values are masked, gaps in time are filled
    with missing values, and nothing that has a value is dropped. `TableReader` says what is read from a frame.

    Args:
        frame: a pandas, polars or pyarrow frame, or any other with ``__arrow_c_stream__`` or ``__dataframe__``.
        name: the name of the data set, as run folders and tables show it.
        id_column: column of series ids, or several that make up one (``[store, item]``); found by itself if named
            ``unique_id`` or ``item_id``. None of these: wide.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the column or columns to forecast; found by itself if named ``y`` or ``target`` in a long frame, all
            columns without another role in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency as text, offset or length of time, or ``1`` where time counts steps; None infers it.
        max_filled: the share of the rows of a series that may be filled as missing, where time stamps are missing.
        date_format: how dates in text are written, such as ``%d/%m/%y``; None: ISO 8601, or the one format that fits
            all of them.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        format: ``csv`` or ``parquet``, of a file whose name does not say it.
        comment: the character that begins the lines of CSV files that are not read, such as ``#``; empty for none.
        skip_rows: lines before the header of CSV files.
        strict: nothing is mended: time stamps must rise from row to row of a series, without a gap, and no cell may be
            empty.
        train_fraction: share of the rows of each series for training, the first ones; 0.7 unless another split is
            given.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing. 0.1 by default.
        val_rows: instead of shares: rows of each series for validation, those before the last `test_rows`. 0 alone
            trains on all rows.
        test_rows: rows of each series for testing, the last ones.
        val_from: instead of shares: the first time stamp for validation, as 2020-01-01.
        test_from: the first time stamp for testing.
        weight_column: column of weights, numbers of at least 0: how much the targets of a row count in a training. 0
            leaves them out, as if they were missing; they still count in contexts, scales and every score.
        series_weights: weights of series by their ids, or of the columns of a wide frame; 1 for all others.
        row_weights: stretches of time, ``[first, last, weight]`` each, both ends included, a date alone as the
            whole day. Weights that say something of the same row are multiplied, and only their ratios matter.
        scaling: ``series``, each series by its own mean and standard deviation, so that small ones count as much as
            large ones; ``global``, all by one a channel.
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
        id_column: str | list[str] | None = None,
        time_column: str | None = None,
        target: str | list[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static: Sequence[str] = (),
        frequency: Any = None,
        max_filled: float = 0.5,
        date_format: str | None = None,
        separator: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
        format: str | None = None,
        comment: str = "",
        skip_rows: int = 0,
        strict: bool = False,
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
        reader = TableReader.of(locals(), strict=strict)
        rule = asked_rule(train_fraction, val_fraction, val_rows, test_rows, val_from, test_from)
        super().__init__(name, source=FrameSource(frame, reader), rule=rule, scaling=scaling, **sizes)
        if isinstance(rule, ByCount):
            self.parts = ("train", *(["val"] if rule.val else []), *(["test"] if rule.test else []))

    @property
    def frames(self) -> FrameSource:
        """The source: what it reads, and how."""
        assert isinstance(self.source, FrameSource)
        return self.source

    @property
    def future(self) -> Any:
        """The file of future covariates, see above."""
        return self.frames.future

    @future.setter
    def future(self, given: Any) -> None:
        self.frames.future = given


class CSVDataModule(FrameDataModule):
    """CSV or Parquet file: long (a row for each series and time stamp) or wide (a column for each series).

    The data set is named after the file.

    Args:
        path: a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.pq`` file, or a folder that a table was converted to
            (``datasets convert``).
        **options: columns, split, lengths and batch sizes, see `FrameDataModule`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(Path(path), name=Path(Path(path).name.removesuffix(".gz")).stem, **options)
        self.path = Path(path)


class PanelDataModule(FrameDataModule):
    """A panel that is given, split by `LastTenth` unless another split is asked for.

    Args:
        **options: columns and text, by which the panel was read and a file to forecast from is; split, lengths and
            batch sizes: see `FrameDataModule`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(None, name="panel", **options)
        self.source = _Given(None, self.frames.reader)
        if all(options.get(name) is None for name in _SPLIT):
            self.rule = LastTenth(self.context_length, self.prediction_length)

    def give(self, panel: Panel) -> None:
        """Take the panel, before `setup`."""
        self.panel = panel
        if isinstance(self.rule, LastTenth):
            parts = [self.rule.split(range(rows)) for rows in panel.lengths.tolist()]
            self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)

    def describe(self) -> tuple[Task, Scaler]:
        """The task of the panel, and the scale of all of its rows, for what is not trained; it may be short."""
        panel = self.panel
        assert panel is not None
        whole = [AllRows().split(panel.time_of(number)) for number in range(len(panel))]
        return self._new_task(panel), fit_scaler(panel, whole, self.scaling, self.transform)


class _Given(FrameSource):
    """Series that were given in Python, of which only the ends are saved."""

    @override
    def load(self) -> Panel:
        raise UserError(
            "the series of this run were given in Python and are not in its folder: `predict --run DIR --input FILE` "
            "forecasts from a file, and tsattn.load(DIR) takes frames"
        )

    @override
    def for_task(self, task: Task) -> _Given:
        return self


_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
