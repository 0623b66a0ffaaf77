"""Your own data, larger than memory: a table that is converted once, or a folder that was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.continued import with_future
from tsattn.data.mapped.panel_folder import is_panel_folder
from tsattn.data.own_data import CSVDataModule
from tsattn.data.panel import Panel
from tsattn.data.sources import FrameSource
from tsattn.task import Task

__all__ = ["MappedDataModule"]


class MappedDataModule(CSVDataModule):
    """Series of any size: a CSV, Parquet or Arrow file, or a folder of such files, long or wide, as `FrameDataModule`.

    The table is converted once to a folder of arrays (``tsattn datasets convert`` does the same), which is
    opened as a `Panel` whose rows stay in files: memory holds a batch, and what the operating system likes to keep of
    the files. The folder is used again as long as the table and how it is read are the same.

    Args:
        path: the table, or a folder that one was converted to.
        folder: where to keep the arrays; beside the table as ``NAME.panel`` by default.
        verify: compare the checksums of arrays that are there, which reads all of them; sizes are always compared.
        **options: columns, split, lengths and batch sizes, see `FrameDataModule`.
    """

    def __init__(self, path: str, folder: str | None = None, verify: bool = False, **options: Any) -> None:
        super().__init__(path, **options)
        self.folder = self.path.with_name(f"{self.path.name}.panel") if folder is None else Path(folder)
        self.verify = verify
        self.source = _Converted(self)


class _Converted(FrameSource):
    """The table of a `MappedDataModule`, converted if need be."""

    def __init__(self, data: MappedDataModule) -> None:
        super().__init__(data.path, data.frames.reader)
        self.path, self.folder, self.verify = data.path, data.folder, data.verify

    @override
    def load(self) -> Panel:
        folder = None if is_panel_folder(self.path) else self.folder
        panel = self.reader.converted(self.path, folder, verify=self.verify)
        return panel if self.future is None else with_future(panel, self.future, self.reader.text)

    @override
    def for_task(self, task: Task) -> _Converted:
        return self  # it is converted once, for any
