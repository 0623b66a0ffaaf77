"""Your own data, larger than memory: a Parquet or Arrow file, or a folder of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.mapped.build import Wanted
from tsattn.data.mapped.opening import Map, open_or_build
from tsattn.data.mapped.source import TableSource
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.roles import NO_NAME
from tsattn.data.sources import FrameSource
from tsattn.data.split_rule import asked_rule

__all__ = ["MappedDataModule"]


class MappedDataModule(ForecastDataModule):
    """Series of any size in a Parquet or Arrow file, or a folder of such files: long or wide, as `FrameDataModule`.

    The table is read in batches and written once, scaled, as float32 to a folder of memory maps; windows are cut out of
    these, so that memory holds a batch and what the operating system likes to keep of the files. The maps are used
    again as long as the files and the arguments are the same, and are built anew otherwise, or if they are damaged.

    A long table must hold the rows of each series together and in the order of time, with no time stamp missing or
    there twice. Missing values are masked. There are no covariates or static columns.

    Args:
        path: a ``.parquet``, ``.pq``, ``.arrow`` or ``.feather`` file, or a folder of them, read in the order of their
            names.
        folder: where to keep the maps, 4 bytes a value and 8 a row, and 1 more a value if any is missing; beside the
            source as ``NAME.mapped`` by default. It is for one source and one way to read it.
        verify: compare the checksums of maps that are there, which reads all of them; sizes are always compared.
        id_column: see `FrameDataModule`, as all up to `test_from`.
        time_column: column of time stamps or dates (no text).
        target: the column or columns to forecast.
        frequency: pandas frequency; None infers it.
        train_fraction: share of the rows of each series for training.
        val_fraction: share of the rows for validation.
        val_rows: rows of each series for validation.
        test_rows: rows of each series for testing.
        val_from: the first time stamp for validation.
        test_from: the first time stamp for testing.
        scaling: see `ForecastDataModule`.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.

    Attributes:
        panel: the last row of each series, NaN where missing, which the future is counted from. Set by `setup`.

    Raises:
        UserError: for two ways to split, or half of one.
    """

    can_recut = False

    def __init__(
        self,
        path: str,
        folder: str | None = None,
        verify: bool = False,
        id_column: str | None = None,
        time_column: str | None = None,
        target: str | list[str] | None = None,
        frequency: str | None = None,
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        scaling: str = "series",
        **sizes: Any,
    ) -> None:
        # of a file to forecast from, which must fit into memory
        reader = TableReader(id_column=id_column, time_column=time_column, target=target, frequency=frequency)
        rule = asked_rule(train_fraction, val_fraction, val_rows, test_rows, val_from, test_from)
        super().__init__(Path(path).stem, source=FrameSource(path, reader), rule=rule, scaling=scaling, **sizes)
        self.path = Path(path)
        self.folder = self.path.with_name(f"{self.path.name}.mapped") if folder is None else Path(folder)
        self.verify = verify
        self.frequency = frequency
        self._opened_by = reader, rule

    def setup(self, stage: str) -> None:
        """Open the map, and build it first if need be (called by the Trainer for every stage)."""
        if self._input is not None:
            super().setup(stage)
        elif not self._is_set_up:
            opened = self._open()
            panel = self._last_rows(opened)
            if self.task is None or self.scaler is None:
                self.task, self.scaler = self._new_task(panel), opened.scaler
            else:
                panel = self._obey(self.task, panel)
            self.panel, self._series, self._splits = panel, opened.series, opened.splits
            self._scaled = panel, self.task, self.scaler

    def _open(self) -> Map:
        reader, rule = self._opened_by
        target = reader.target if self.task is None else self.task.channels
        source = TableSource(self.path, reader.id_column, reader.time_column, target)
        frequency = self.frequency if self.task is None else self.task.frequency
        wanted = Wanted(rule, self.scaling, frequency, self.scaler, self._check_windows)
        return open_or_build(source, self.folder, wanted, verify=self.verify)

    def _last_rows(self, opened: Map) -> Panel:
        index, series = opened.index, opened.series
        rows = series.starts[1:] - 1
        values = (series.values[rows].double() * series.scale + series.mean).numpy()
        if series.observed is not None:
            values[~series.observed[rows].numpy()] = np.nan
        id_name, time_name = index.options["id"], index.options["time"]
        return Panel(
            ids=index.ids,
            channels=tuple(index.options["target"]),
            frequency=index.frequency,
            time=opened.last,
            starts=np.arange(len(series) + 1),
            values=values,
            past_covariates=None,
            past_names=(),
            future_covariates=None,
            future_names=(),
            ahead=None,
            ahead_starts=np.zeros(len(series) + 1, np.int64),
            static=None,
            static_names=(),
            static_categories=(),
            is_wide=id_name is None,
            id_name=Panel.id_name if id_name is None else id_name,
            time_name=NO_NAME if time_name.startswith("__index_level_") else time_name,
        )
