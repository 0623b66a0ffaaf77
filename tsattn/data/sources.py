"""Where the series of a data set come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from typing_extensions import override

from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.task import Task

__all__ = ["FrameSource", "Source"]


class Source(ABC):
    """Gives a panel, the same one each time; a subclass only loads it."""

    @abstractmethod
    def load(self) -> Panel:
        """All series, in original units."""

    def prepare(self) -> None:  # noqa: B027  # most have nothing to fetch
        """Fetch what is not on this machine yet; called on one process only."""

    def for_task(self, task: Task) -> Source:
        """The same source, read as a trained model needs it; by default as for any."""
        return self

    def at(self, path: Path) -> Source:
        """A file of such series, to forecast from; by default any CSV or Parquet file.

        Raises:
            UserError: for series that no file can hold.
        """
        return FrameSource(path)


class FrameSource(Source):
    """A frame or file of one's own, or a folder that a table was converted to.

    Args:
        table: a frame, or the path of a file or such a folder.
        reader: how it is read; by default columns and frequency are found.

    Attributes:
        future: a frame or file of ids, time stamps and future covariates after the end of each series; None where the
            table has them itself.
    """

    def __init__(self, table: object, reader: TableReader | None = None, future: object = None) -> None:
        self.table = table
        self.reader = TableReader() if reader is None else reader
        self.future = future

    @override
    def load(self) -> Panel:
        return self.reader.read(self.table, future=self.future)

    @override
    def for_task(self, task: Task) -> FrameSource:
        return FrameSource(self.table, self.reader.for_task(task), self.future)

    @override
    def at(self, path: Path) -> FrameSource:
        return FrameSource(path, self.reader.unweighted(), self.future)
