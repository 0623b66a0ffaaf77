"""`tsattn datasets convert` and `diagnose`: a table of your own, as arrays on the disk or looked at."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.errors import number_of, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OPTIONS", "add_table_words", "convert_table", "diagnose_table"]

_CONVERT, _DIAGNOSE = "convert", "diagnose"
_BOTH = (_CONVERT, _DIAGNOSE)
_TABLE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "--id_column": ("NAMES", "columns with the series id (default: unique_id or item_id)", _BOTH),
    "--time_column": ("NAME", "column with the time stamps (default: ds, timestamp or date)", _BOTH),
    "--target": ("NAMES", "columns to forecast, separated by commas (default: y, target, or a wide table's)", _BOTH),
    "--past_covariates": ("NAMES", "columns known only in the past", _BOTH),
    "--future_covariates": ("NAMES", "columns known in the future, too", _BOTH),
    "--static": ("NAMES", "categorical columns, constant within a series", _BOTH),
    "--weight_column": ("NAME", "column with training weights", (_CONVERT,)),
    "--context_length": ("N", "past steps that the model will see (default: 24)", (_DIAGNOSE,)),
    "--prediction_length": ("N", "steps to forecast (default: 96)", (_DIAGNOSE,)),
    "--frequency": ("FREQ", "frequency, as h, D or MS (default: found)", _BOTH),
    "--max_filled": ("SHARE", "largest share of filled rows in a series (default: 0.5)", (_CONVERT,)),
    "--date_format": ("FORMAT", "format of dates in text, as %%d/%%m/%%y", _BOTH),
    "--separator": ("CHAR", "separator of CSV files (default: ,)", _BOTH),
    "--decimal": ("CHAR", "decimal point of CSV files (default: .)", _BOTH),
    "--encoding": ("NAME", "encoding of CSV files (default: utf-8)", _BOTH),
    "--format": ("KIND", "format of files without an ending: csv or parquet", (_CONVERT,)),
    "--comment": ("CHAR", "first character of lines to skip in CSV files", _BOTH),
    "--skip_rows": ("N", "lines to skip before the header of a CSV file (default: 0)", _BOTH),
    "--output": ("FILE", ".csv or .parquet file for the table", (_DIAGNOSE,)),
}
OPTIONS = {action: [name for name, (_, _, actions) in _TABLE.items() if action in actions] for action in _BOTH}


def add_table_words(parser: argparse.ArgumentParser, action: str) -> None:
    """Add the words of `convert` or `diagnose` to a parser."""
    if action == _CONVERT:
        parser.add_argument("source", metavar="IN", help="CSV, Parquet or Arrow file, or a folder of them")
        parser.add_argument("folder", metavar="OUT", help="folder to write")
    else:
        parser.add_argument("path", metavar="FILE", help=".csv, .csv.gz or .parquet file")
    for name in OPTIONS[action]:
        value, what, _ = _TABLE[name]
        kind: Any = {"N": int, "NAMES": _names, "SHARE": float}.get(value, str)
        parser.add_argument(name, metavar=value, type=kind, default=argparse.SUPPRESS, help=what)
    parser.add_argument("--overwrite", action="store_true", help="replace what was written before")


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _given(options: argparse.Namespace, action: str) -> dict[str, Any]:
    """The options that were typed."""
    names = [name.removeprefix("--") for name in OPTIONS[action] if name != "--output"]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def convert_table(options: argparse.Namespace) -> str:
    """Convert, and say what came of it.

    Raises:
        UserError: as `tsattn.data.mapped.convert`.
    """
    from tsattn.data.mapped import convert, open_panel
    from tsattn.data.table_options import TableOptions, given_options

    given = given_options(_given(options, _CONVERT))
    del given["weights"]
    source, folder = Path(options.source).expanduser(), Path(options.folder).expanduser()
    convert(source, folder, TableOptions(**given), overwrite=options.overwrite)
    panel = open_panel(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    what = f"{number_of(len(panel.time), 'row')} of {number_of(len(panel), 'series')}"
    return f"{folder}: {what}, frequency {panel.frequency}, {size / 1e9:.3g} GB"


def diagnose_table(options: argparse.Namespace) -> None:
    """Print what is found in a file, and write it.

    Raises:
        UserError: for a file that cannot be read, or an output that cannot be written.
    """
    from tsattn.diagnosis import diagnose
    from tsattn.forecaster.forecast_files import check_output, write_frame

    output = getattr(options, "output", None)
    if output is not None:
        check_output(Path(output), options.overwrite, inputs=[options.path])
    found = diagnose(Path(options.path), **_given(options, _DIAGNOSE))
    print(_report(found, options.path))
    if output is not None:
        write_frame(found.astype({"series": str}), Path(output), options.overwrite)
        print(f"{output}: these findings, a row each")


def _report(found: pd.DataFrame, path: str) -> str:
    """The findings in words, by kind."""
    from tsattn.diagnosis import KINDS

    if not len(found):
        return f"{path}: nothing was found"
    lines = [f"{path}: {number_of(len(found), 'finding')}"]
    for kind, part in found.groupby("kind", sort=False):
        lines += ["", f"{kind}: {KINDS[str(kind)]}"]
        for row in part.itertuples():
            names = dict.fromkeys(name for name in (shown(row.series), str(row.column)) if name)
            text = f"- {', '.join(names)} ({row.where}): {row.sentence}"
            lines.append(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)
