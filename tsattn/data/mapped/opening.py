"""The panel of a table larger than memory: that of a folder, converted first if need be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tsattn.data.mapped.convert import convert, keep_current
from tsattn.data.mapped.panel_folder import choose, is_panel_folder, open_panel
from tsattn.data.panel import Panel
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError

__all__ = ["converted_folder", "opened_panel", "refuse_weights"]

logger = logging.getLogger("tsattn")


def converted_folder(table: Any) -> Path | None:
    """The folder that a table was converted to, if it is the path of one."""
    path = Path(table).expanduser() if isinstance(table, str | Path) else None
    return path if path is not None and is_panel_folder(path) else None


def refuse_weights(weights: object, path: Path) -> None:
    """Refuse weights of what a table was converted to.

    Raises:
        UserError: if there are any.
    """
    if weights is not None:
        raise UserError(f"{path} was converted, and has no weights; weights need a table that is read into memory")


def opened_panel(path: Path, options: TableOptions, folder: Path | None = None, *, verify: bool = False) -> Panel:
    """The panel of a table.

    Args:
        path: a folder that a table was converted to; or a table, if there is a `folder`.
        options: how it is read; of a converted one, the columns that are wanted, all where none are named.
        folder: where a table is converted to, unless that was done before and the table is still the same.
        verify: see `open_panel`.

    Raises:
        UserError: for what cannot be opened or converted.
    """
    if folder is None:
        return choose(open_panel(path, verify=verify), options, str(path))
    keep_current(path, folder, options)
    try:
        return open_panel(folder, verify=verify)
    except UserError as error:
        logger.info("%s", error)
    logger.info("converting %s to %s", path, folder)
    convert(path, folder, options, overwrite=True)
    return open_panel(folder)
