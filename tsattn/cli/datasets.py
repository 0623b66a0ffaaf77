"""`tsattn datasets`: the public data sets, their cards and their files; a table of your own, looked at or converted."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tsattn.cli.words import SentenceParser
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.errors import UserError, did_you_mean, number_of, one_of, shown
from tsattn.experiments.configs import sentence
from tsattn.saved_folders import sha256

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OPTIONS", "run"]

_ACTIONS = {
    "list": "list the public data sets, and whether their files are here",
    "info": "show the card of a data set: source, licence, split and oddities",
    "fetch": "download the file of a data set, unless it is here",
    "check": "compare files with their cards",
    "convert": "convert your own table, of any size, to a folder that is read from disk",
    "diagnose": "check your own file before training: gaps, outliers and more",
}
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
"""Options of the actions that read a table of your own."""


def run(words: list[str]) -> int:
    """List, show, fetch or check data sets, look at a file or convert it; 0, or a `UserError` is raised."""
    options, unknown = _parser().parse_known_args(words or ["--help"])
    if unknown:
        valid = [*OPTIONS.get(options.action, ["--root"]), *(["--overwrite"] if options.action in OPTIONS else [])]
        raise UserError(sentence(f"unrecognized arguments: {' '.join(unknown)}", options=valid))
    if options.action is None:
        raise UserError(f"datasets needs an action; valid: {one_of(_ACTIONS)}")
    root = data_root(options.root)
    if options.action == "list":
        print(f"{'name':18}{'rows':>7}{'columns':>9}  {'frequency':11}file")
        for card in CARDS.values():
            print(f"{card.name:18}{card.rows:>7}{card.columns:>9}  {card.frequency:11}{_where(card, root)}")
        print(f"\nhere: in {root}; `datasets fetch NAME` downloads a file that is not")
    elif options.action == "info":
        print(_info(card_of(options.name), root))
    elif options.action == "fetch":
        print(_fetch(card_of(options.name), root))
    elif options.action == _CONVERT:
        print(_convert(options))
    elif options.action == _DIAGNOSE:
        _diagnose(options)
    else:
        _check([card_of(name) for name in options.names], root)
    return 0


class _Parser(SentenceParser):
    def error(self, message: str) -> NoReturn:
        """Raise one sentence."""
        action = self.prog.split()[-1]
        if "invalid choice" in message:
            wrong = message.split("invalid choice: ")[1].split(" (choose")[0].strip("'")
            raise UserError(f"unknown action {wrong!r}{did_you_mean(wrong, _ACTIONS)}; valid: {one_of(_ACTIONS)}")
        if "arguments are required" in message:
            needs = {
                _CONVERT: "convert needs a table and a folder to write: datasets convert IN OUT",
                _DIAGNOSE: "diagnose needs a file: datasets diagnose FILE",
            }
            raise UserError(needs.get(action, f"{action} needs the name of a data set; valid: {one_of(CARDS)}"))
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    what = "List, fetch and check public data sets; diagnose or convert your own table."
    parser = _Parser(prog="tsattn datasets", description=what)
    of_root = "folder of the files (default: $TSATTN_DATA, else data)"
    parser.add_argument("--root", metavar="DIR", help=of_root)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for action, what in _ACTIONS.items():
        sub = actions.add_parser(action, help=what, description=f"{what.capitalize()}.")
        if action in ("info", "fetch"):
            sub.add_argument("name", metavar="NAME", help=f"one of {one_of(CARDS)}")
        elif action == "check":
            sub.add_argument("names", metavar="NAME", nargs="*", help=f"any of {one_of(CARDS)} (default: all)")
        elif action == _CONVERT:
            sub.add_argument("source", metavar="IN", help="CSV, Parquet or Arrow file, or a folder of them")
            sub.add_argument("folder", metavar="OUT", help="folder to write")
        elif action == _DIAGNOSE:
            sub.add_argument("path", metavar="FILE", help=".csv, .csv.gz or .parquet file")
        for name in OPTIONS.get(action, ()):
            value, help_text, _ = _TABLE[name]
            kind: Any = {"N": int, "NAMES": _names, "SHARE": float}.get(value, str)
            sub.add_argument(name, metavar=value, type=kind, default=argparse.SUPPRESS, help=help_text)
        if action in OPTIONS:
            sub.add_argument("--overwrite", action="store_true", help="replace what was written before")
        else:  # left out, it leaves what was given before the action
            sub.add_argument("--root", metavar="DIR", default=argparse.SUPPRESS, help=of_root)
    return parser


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _where(card: Card, root: Path) -> str:
    if card.file is None:
        return "embedded"
    return "here" if (root / card.file).is_file() else "not here"


def _info(card: Card, root: Path) -> str:
    where = _where(card, root)
    facts = [("name", card.name), *card.facts()]
    if card.file is not None:
        facts.append(("here", str(root / card.file) if where == "here" else f"no, not in {root}"))
    width = 2 + max(len(word) for word, _ in facts)
    lines = [_wrapped(f"{word:{width}}", text) for word, text in facts]
    if card.oddities:
        lines += ["", "oddities", *(_wrapped("- ", str(oddity)) for oddity in card.oddities)]
    return "\n".join(lines)


def _wrapped(start: str, text: str) -> str:
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 100, initial_indent=start, subsequent_indent=" " * len(start), **whole)


def _fetch(card: Card, root: Path) -> str:
    """The file is there afterwards, or a `UserError` says where to get it."""
    if card.file is None:
        return f"{card.name} is embedded in a package that tsattn requires: there is nothing to fetch"
    here = _where(card, root) == "here"
    path = fetch(card, root)
    verified = "is verified" if card.sums else f"cannot be verified against a known sum; {reported(card, sha256(path))}"
    return f"{path} {'was here already' if here else 'was downloaded'} and {verified}"


def _check(cards: list[Card], root: Path) -> None:
    """A line a data set, and one for each thing that differs; a `UserError` if anything does."""
    from tsattn.data.public.public_data import differences

    failed = []
    for card in cards or CARDS.values():
        if _where(card, root) == "not here":
            print(f"{card.name:18}not here")
            failed += [card.name] if cards else []
            continue
        said = differences(card, root)
        print("\n  ".join([f"{card.name:18}{'differs' if said else 'ok'}", *said]))
        failed += [card.name] if said else []
    if failed:
        raise UserError(f"not as on the card, or not in {root}: {one_of(failed)}")


def _given(options: argparse.Namespace, action: str) -> dict[str, Any]:
    """The options that were typed."""
    names = [name.removeprefix("--") for name in OPTIONS[action] if name != "--output"]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def _convert(options: argparse.Namespace) -> str:
    """Convert a table, and say what came of it."""
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


def _diagnose(options: argparse.Namespace) -> None:
    """Print what is found in a file, and write it."""
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
