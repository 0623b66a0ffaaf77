"""Your own data: a frame, a CSV or Parquet file, a table larger than memory, or a panel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.continued import with_future
from tsattn.data.data_options import SPLIT, DataOptions, WindowOptions
from tsattn.data.datamodule import ForecastDataModule, FrameSource
from tsattn.data.mapped import is_panel_folder
from tsattn.data.panel import Panel
from tsattn.data.splits import ByCount, LastTenth
from tsattn.errors import UserError
from tsattn.task import Task

__all__ = ["CSVDataModule", "FrameDataModule", "MappedDataModule", "PanelDataModule"]


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
        if all(options.get(name) is None for name in SPLIT):
            self.rule = LastTenth(self.context_length, self.prediction_length)

    def give(self, panel: Panel) -> None:
        """Take the panel, before `setup`."""
        self.panel = panel
        if isinstance(self.rule, LastTenth):
            parts = [self.rule.split(range(rows)) for rows in panel.lengths.tolist()]
            self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)


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
