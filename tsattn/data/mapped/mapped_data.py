"""Your own data, larger than memory: a table that is converted once, or a folder that was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.mapped.opening import opened_panel, refuse_weights, table_options
from tsattn.data.mapped.panel_folder import is_panel_folder
from tsattn.data.own_data import CSVDataModule
from tsattn.data.panel import Panel

__all__ = ["MappedDataModule"]


class MappedDataModule(CSVDataModule):
    """Series of any size: a CSV, Parquet or Arrow file, or a folder of such files, long or wide, as `FrameDataModule`.

    The table is converted once to a folder of arrays (``python -m tsattn datasets convert`` does the same), which is
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

    @override
    def load_panel(self) -> Panel:
        options = table_options(self.columns, self.frequency, self.max_filled, self.text)
        refuse_weights(self.weights, self.path)
        is_converted = is_panel_folder(self.path)
        return opened_panel(self.path, options, None if is_converted else self.folder, verify=self.verify)
