"""The panel of a table larger than memory: that of a folder, converted first if need be."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.data.columns import column_name, column_names
from tsattn.data.grid import normalise_frequency
from tsattn.data.mapped.convert import convert, keep_current
from tsattn.data.mapped.panel_folder import choose, open_panel
from tsattn.data.mapped.source import TableOptions
from tsattn.data.panel import Panel
from tsattn.data.text_format import TextFormat
from tsattn.errors import UserError

__all__ = ["opened_panel", "refuse_weights", "table_options"]

logger = logging.getLogger("tsattn")


def table_options(
    columns: Mapping[str, Any], frequency: str | int | None, max_filled: float, text: TextFormat
) -> TableOptions:
    """How a table is read, of the arguments of `panel_from_frame`.

    Args:
        columns: which column is what.
        frequency: of the data; None infers it.
        max_filled: the share of the rows of a series that may be filled.
        text: how text is written.

    Raises:
        UserError: for an argument that is not valid.
    """
    target = columns.get("target")
    return TableOptions(
        id_column=column_name(columns.get("id_column"), "id_column"),
        time_column=column_name(columns.get("time_column"), "time_column"),
        target=None if target is None else column_names(target, "target"),
        **{name: column_names(columns.get(name), name) for name in ("past_covariates", "future_covariates", "static")},
        frequency=None if frequency is None else normalise_frequency(frequency),
        max_filled=max_filled,
        text=text,
    )


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
