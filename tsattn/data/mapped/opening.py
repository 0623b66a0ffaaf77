"""The panel of a table larger than memory: that of a folder, converted first if need be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tsattn.data.mapped.convert import convert, keep_current
from tsattn.data.mapped.panel_folder import choose, is_panel_folder, open_panel, weight_cells
from tsattn.data.panel import Panel
from tsattn.data.table_options import TableOptions
from tsattn.data.weights import RowWeights
from tsattn.errors import UserError

__all__ = ["converted_folder", "opened_panel"]

logger = logging.getLogger("tsattn")

_ALIKE = RowWeights()


def converted_folder(table: Any) -> Path | None:
    """The folder that a table was converted to, if it is the path of one."""
    path = Path(table).expanduser() if isinstance(table, str | Path) else None
    return path if path is not None and is_panel_folder(path) else None


def opened_panel(
    path: Path,
    options: TableOptions,
    weights: RowWeights = _ALIKE,
    folder: Path | None = None,
    *,
    verify: bool = False,
) -> Panel:
    """The panel of a table.

    Args:
        path: a folder that a table was converted to; or a table, if there is a `folder`.
        options: how it is read; of a converted one, the columns that are wanted, all where none are named (of weights
            only one that is named).
        weights: how much series and stretches of time count in a training.
        folder: where a table is converted to, unless that was done before and the table is still the same.
        verify: see `open_panel`.

    Raises:
        UserError: for what cannot be opened or converted.
    """
    if folder is None:
        panel = choose(open_panel(path, verify=verify), options, str(path))
    else:
        panel = _current_panel(path, folder, options, verify)
    if options.weight_column is None and not weights:
        return panel
    return weights.on(panel, weight_cells(path if folder is None else folder, options.weight_column), str(path))


def _current_panel(path: Path, folder: Path, options: TableOptions, verify: bool) -> Panel:
    """The panel of a table that is converted unless it was, or is again where the folder is damaged."""
    keep_current(path, folder, options)
    try:
        return open_panel(folder, verify=verify)
    except UserError as error:
        logger.info("%s", error)
    logger.info("converting %s to %s", path, folder)
    convert(path, folder, options, overwrite=True)
    return open_panel(folder)
