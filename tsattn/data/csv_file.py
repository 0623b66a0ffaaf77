"""Your own data: a CSV or Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsattn.data.frame_data import FrameDataModule
from tsattn.data.panel import Panel

__all__ = ["CSVDataModule"]


class CSVDataModule(FrameDataModule):
    """A CSV or Parquet file of many series (long) or of one series with many channels (wide).

    The data set is named after the file.

    Args:
        path: a ``.csv``, ``.parquet`` or ``.pq`` file.
        **options: columns, split, lengths and batch sizes, see `FrameDataModule`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(None, name=Path(path).stem, **options)
        self.path = Path(path)

    def load_panel(self) -> Panel:
        """The series in the file."""
        return self.load_input(self.path)
