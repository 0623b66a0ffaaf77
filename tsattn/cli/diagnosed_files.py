"""`tsattn datasets diagnose`: what to know of a file before a model is trained on it."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["add_options", "diagnose_file"]

# like those of --data, without the lists that have a default of their own
_TEXTS = {
    "time_column": "of the time stamps (default: ds, timestamp or date)",
    "frequency": "of the time stamps (default: found)",
    "date_format": "of dates in text, such as %%d/%%m/%%y",
    "separator": "separator of a CSV file",
    "decimal": "decimal point of a CSV file",
    "encoding": "encoding of a CSV file",
    "comment": "first character of lines to skip in a CSV file",
}
_NAMES = {
    "id_column": "columns with the series id (default: unique_id or item_id)",
    "target": "columns to forecast, separated by commas (default: y, target, or all of a wide table)",
    "past_covariates": "columns known only in the past",
    "future_covariates": "columns known in the future, too",
    "static": "categorical columns, constant within a series",
}
_NUMBERS = {
    "context_length": "past steps that the model will see (default: 24)",
    "prediction_length": "steps to forecast (default: 96)",
    "skip_rows": "lines to skip before the header of a CSV file (default: 0)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the words of the command to its parser."""
    parser.add_argument("path", metavar="FILE", help=".csv, .csv.gz or .parquet file")
    for name, what in _NUMBERS.items():
        parser.add_argument(f"--{name}", metavar="N", type=int, help=what)
    for name, what in _NAMES.items():
        parser.add_argument(f"--{name}", metavar="NAMES", help=what)
    for name, what in _TEXTS.items():
        parser.add_argument(f"--{name}", metavar="NAME", help=what)
    parser.add_argument("--output", metavar="FILE", help=".csv or .parquet file for the table")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


def diagnose_file(options: argparse.Namespace) -> None:
    """Print what is found in a file, and write it.

    Raises:
        UserError: for a file that cannot be read, or an output that cannot be written.
    """
    from tsattn.diagnosis import diagnose

    output = None if options.output is None else Path(options.output)
    if output is not None:
        from tsattn.forecaster.forecast_files import check_output, write_frame

        check_output(output, options.overwrite, inputs=[options.path])
    given: dict[str, Any] = {name: getattr(options, name) for name in (*_NUMBERS, *_TEXTS)}
    for name in _NAMES:
        words = getattr(options, name)
        given[name] = None if words is None else [word.strip() for word in words.split(",")]
    found = diagnose(Path(options.path), **{name: value for name, value in given.items() if value is not None})
    print(_report(found, options.path))
    if output is not None:
        write_frame(found.astype({"series": str}), output, options.overwrite)
        print(f"{output}: these findings, a row each")


def _report(found: pd.DataFrame, path: str) -> str:
    """The findings in words, by kind."""
    from tsattn.diagnosis import KINDS
    from tsattn.errors import number_of, shown

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
