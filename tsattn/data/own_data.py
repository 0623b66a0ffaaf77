"""Your own data: a frame, a CSV or Parquet file, a table larger than memory, or a panel."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule, FrameSource, WindowOptions
from tsattn.data.mapped import is_panel_folder
from tsattn.data.matching import with_future
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import fit_scaler
from tsattn.data.splits import ByCount, LastTenth, Split, SplitRule, asked_rule
from tsattn.data.table_options import TableOptions, TextFormat
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["CSVDataModule", "DataOptions", "FrameDataModule", "MappedDataModule", "PanelDataModule"]

_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")


@dataclass(frozen=True)
class DataOptions(WindowOptions, TextFormat, TableOptions):
    """Everything that you may say about a table of your own: columns, text, gaps, weights, split, windows.

    What is not described here is described in `Columns`, `TableOptions`, `TextFormat` and `WindowOptions`.

    Attributes:
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

    Raises:
        UserError: for two ways to split, or half of one, and what text cannot be written in.
    """

    id_column: str | list[str] | None = None  # type: ignore[assignment]  # names are joined by the reader
    target: str | list[str] | None = None
    frequency: Any = None
    text: TextFormat = field(default=TextFormat(), init=False, repr=False)  # its fields are options
    strict: bool = False
    train_fraction: float | None = None
    val_fraction: float | None = None
    val_rows: int | None = None
    test_rows: int | None = None
    val_from: str | None = None
    test_from: str | None = None
    series_weights: dict[str, float] | None = None
    row_weights: list[list[Any]] | None = None
    scaling: str = "series"
    reader: TableReader = field(init=False, repr=False)
    rule: SplitRule = field(init=False, repr=False)

    def __post_init__(self) -> None:
        WindowOptions.__post_init__(self)
        object.__setattr__(self, "reader", TableReader.of(vars(self), strict=self.strict))
        object.__setattr__(self, "rule", asked_rule(**{name: getattr(self, name) for name in _SPLIT}))


class FrameDataModule(ForecastDataModule):
    """Data frame: long (a row for each series and time stamp) or wide (a column for each series).

    Every series is split by the same rule: by fraction, by count or by date. Missing values are masked, gaps in time
    are filled with missing values, and nothing that has a value is dropped. `TableReader` says what is read from a
    frame.

    Args:
        frame: a pandas, polars or pyarrow frame, or any other with ``__arrow_c_stream__``.
        name: the name of the data set, as run folders and tables show it.
        **options: columns, text, split, lengths and batch sizes, see `DataOptions`.

    Raises:
        UserError: for an option that is not valid.
    """

    options = DataOptions
    source: FrameSource

    def __init__(self, frame: Any, name: str = "frame", **options: Any) -> None:
        given = DataOptions(**options)
        rule, sizes = given.rule, {one.name: getattr(given, one.name) for one in fields(WindowOptions)}
        super().__init__(name, FrameSource(frame, given.reader), rule, **sizes)
        if isinstance(rule, ByCount):
            self.parts = ("train", *(["val"] if rule.val else []), *(["test"] if rule.test else []))

    @property
    def future(self) -> Any:
        """A file of ids, time stamps and future covariates after the end of each series; None if the data have them."""
        return self.source.future

    @future.setter
    def future(self, given: Any) -> None:
        self.source.future = given


class CSVDataModule(FrameDataModule):
    """CSV or Parquet file: long (a row for each series and time stamp) or wide (a column for each series).

    The data set is named after the file.

    Args:
        path: a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.pq`` file, or a folder that a table was converted to
            (``datasets convert``).
        **options: columns, split, lengths and batch sizes, see `DataOptions`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(Path(path), name=Path(Path(path).name.removesuffix(".gz")).stem, **options)
        self.path = Path(path)


class MappedDataModule(CSVDataModule):
    """Series of any size: a CSV, Parquet or Arrow file, or a folder of such files, long or wide, as `FrameDataModule`.

    The table is converted once to a folder of arrays (``tsattn datasets convert`` does the same), which is
    opened as a `Panel` whose rows stay in files: memory holds a batch, and what the operating system likes to keep of
    the files. The folder is used again as long as the table and how it is read are the same.

    Args:
        path: the table, or a folder that one was converted to.
        folder: where to keep the arrays; beside the table as ``NAME.panel`` by default.
        verify: compare the checksums of arrays that are there, which reads all of them; sizes are always compared.
        **options: columns, split, lengths and batch sizes, see `DataOptions`.
    """

    def __init__(self, path: str, folder: str | None = None, verify: bool = False, **options: Any) -> None:
        super().__init__(path, **options)
        self.folder = self.path.with_name(f"{self.path.name}.panel") if folder is None else Path(folder)
        self.verify = verify
        self.source = _Converted(self.path, self.source.reader, folder=self.folder, verify=verify)


@dataclass
class _Converted(FrameSource):
    """A table that is converted if need be, once for any task; or the folder that one was converted to."""

    table: Path
    folder: Path | None = None
    verify: bool = False

    @override
    def load(self) -> Panel:
        folder = None if is_panel_folder(self.table) else self.folder
        panel = self.reader.converted(self.table, folder, verify=self.verify)
        return panel if self.future is None else with_future(panel, self.future, self.reader.text)

    @override
    def for_task(self, task: Task) -> _Converted:
        return self


class PanelDataModule(FrameDataModule):
    """A panel that is given, split by `LastTenth` unless another split is asked for.

    Args:
        **options: columns and text, by which the panel was read and a file to forecast from is; split, lengths and
            batch sizes: see `DataOptions`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(None, name="panel", **options)
        self.source = _Given(None, self.source.reader)
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
        whole = [Split(rows, rows, rows) for rows in panel.lengths.tolist()]
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
