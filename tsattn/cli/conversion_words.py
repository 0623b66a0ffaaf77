"""`tsattn datasets convert`: a table as a folder of arrays that is read from the disk."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from tsattn.errors import UserError, number_of

__all__ = ["OPTIONS", "add_words", "convert_table"]

_COLUMNS = {
    "--target": "columns to forecast",
    "--past_covariates": "columns known only in the past",
    "--future_covariates": "columns known in the future, too",
    "--static": "categorical columns, constant within a series",
}

OPTIONS = (
    *("--id_column", "--time_column", *_COLUMNS, "--weight_column", "--frequency", "--max_filled", "--date_format"),
    *("--separator", "--decimal", "--encoding", "--format", "--comment", "--skip_rows", "--overwrite"),
)


def add_words(parser: argparse.ArgumentParser) -> None:
    """Add the words after ``convert`` to its parser."""
    parser.add_argument("source", metavar="IN", help="CSV, Parquet or Arrow file, or a folder of them")
    parser.add_argument("folder", metavar="OUT", help="folder to write")
    parser.add_argument("--id_column", metavar="A,B", help="columns with the series id (default: unique_id or item_id)")
    parser.add_argument(
        "--time_column", metavar="NAME", help="column with the time stamps (default: ds, timestamp or date)"
    )
    for name, what in _COLUMNS.items():
        parser.add_argument(name, metavar="A,B", help=f"{what}, separated by commas")
    parser.add_argument("--weight_column", metavar="NAME", help="column with training weights")
    parser.add_argument("--frequency", metavar="FREQ", help="frequency, as h, D or MS (default: found)")
    parser.add_argument(
        "--max_filled", metavar="SHARE", default="0.5", help="largest share of filled rows in a series (default: 0.5)"
    )
    parser.add_argument("--date_format", metavar="FORMAT", help="format of dates in text, as %%d/%%m/%%y")
    parser.add_argument("--separator", metavar="CHAR", default=",", help="separator of CSV files (default: ,)")
    parser.add_argument("--decimal", metavar="CHAR", default=".", help="decimal point of CSV files (default: .)")
    parser.add_argument("--encoding", metavar="NAME", default="utf-8", help="encoding of CSV files (default: utf-8)")
    parser.add_argument("--format", metavar="KIND", help="format of files without an ending: csv or parquet")
    parser.add_argument("--comment", metavar="CHAR", default="", help="first character of lines to skip in CSV files")
    parser.add_argument(
        "--skip_rows", metavar="N", type=int, default=0, help="lines to skip before the header of CSV files"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder converted before")


def convert_table(options: argparse.Namespace) -> str:
    """Convert, and say what came of it.

    Raises:
        UserError: as `tsattn.data.mapped.convert`.
    """
    from tsattn.data.mapped import convert, open_panel
    from tsattn.data.table_options import TableOptions, TextFormat

    columns = {name: getattr(options, name) for name in ("time_column", "weight_column")}
    for name in ("id_column", *(word.removeprefix("--") for word in _COLUMNS)):
        given = getattr(options, name)
        columns[name] = None if given is None else [part.strip() for part in given.split(",") if part.strip()]
    text = TextFormat(**{field.name: getattr(options, field.name) for field in fields(TextFormat)})
    source, folder = Path(options.source).expanduser(), Path(options.folder).expanduser()
    rest = {"frequency": options.frequency, "max_filled": _share(options.max_filled), "text": text}
    convert(source, folder, TableOptions(**columns, **rest), overwrite=options.overwrite)
    panel = open_panel(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    what = f"{number_of(len(panel.time), 'row')} of {number_of(len(panel), 'series')}"
    return f"{folder}: {what}, frequency {panel.frequency}, {size / 1e9:.3g} GB"


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"max_filled must be from 0 to 1, a share of the rows of a series, not {text}")
    return share
