"""`tsattn datasets`: the public data sets, their cards and their files; a table of your own, looked at or converted."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import NoReturn

from tsattn.cli.own_words import SentenceParser
from tsattn.cli.table_words import OPTIONS, add_table_words, convert_table, diagnose_table
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.experiments.sentences import sentence
from tsattn.saved_folders import sha256

__all__ = ["run"]

_ACTIONS = {
    "list": "list the public data sets, and whether their files are here",
    "info": "show the card of a data set: source, licence, split and oddities",
    "fetch": "download the file of a data set, unless it is here",
    "check": "compare files with their cards",
    "convert": "convert your own table, of any size, to a folder that is read from disk",
    "diagnose": "check your own file before training: gaps, outliers and more",
}

_DESCRIPTION = "List, fetch and check public data sets; diagnose or convert your own table."

_ROOT = "folder of the files (default: $TSATTN_DATA, else data)"


def run(words: list[str]) -> int:
    """List, show, fetch or check data sets, look at a file or convert it; 0, or a `UserError` is raised."""
    options, unknown = _parser().parse_known_args(words or ["--help"])
    if unknown:
        valid = [*OPTIONS.get(options.action, ["--root"]), *(["--overwrite"] if options.action in OPTIONS else [])]
        raise UserError(sentence(f"unrecognized arguments: {' '.join(unknown)}", options=valid, data_sets=()))
    if options.action is None:
        raise UserError(f"datasets needs an action; valid: {one_of(_ACTIONS)}")
    root = data_root(options.root)
    if options.action == "list":
        print(_table(root))
    elif options.action == "info":
        print(_info(card_of(options.name), root))
    elif options.action == "fetch":
        print(_fetch(card_of(options.name), root))
    elif options.action == "convert":
        print(convert_table(options))
    elif options.action == "diagnose":
        diagnose_table(options)
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
                "convert": "convert needs a table and a folder to write: datasets convert IN OUT",
                "diagnose": "diagnose needs a file: datasets diagnose FILE",
            }
            known = f"{action} needs the name of a data set; valid: {one_of(CARDS)}"
            raise UserError(needs.get(action, known))
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tsattn datasets", description=_DESCRIPTION)
    parser.add_argument("--root", metavar="DIR", help=_ROOT)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for action, what in _ACTIONS.items():
        sub = actions.add_parser(action, help=what, description=f"{what.capitalize()}.")
        if action in ("info", "fetch"):
            sub.add_argument("name", metavar="NAME", help=f"one of {one_of(CARDS)}")
        elif action == "check":
            sub.add_argument("names", metavar="NAME", nargs="*", help=f"any of {one_of(CARDS)} (default: all)")
        elif action in OPTIONS:
            add_table_words(sub, action)
        if action not in OPTIONS:  # left out, it leaves what was given before the action
            sub.add_argument("--root", metavar="DIR", default=argparse.SUPPRESS, help=_ROOT)
    return parser


def _table(root: Path) -> str:
    """A line a data set, and what the last column means."""
    lines = [f"{'name':18}{'rows':>7}{'columns':>9}  {'frequency':11}file"]
    lines += [
        f"{card.name:18}{card.rows:>7}{card.columns:>9}  {card.frequency:11}{_where(card, root)}"
        for card in CARDS.values()
    ]
    return "\n".join([*lines, "", f"here: in {root}; `datasets fetch NAME` downloads a file that is not"])


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
    return textwrap.fill(
        text,
        100,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fetch(card: Card, root: Path) -> str:
    """The file is there afterwards, or a `UserError` says where to get it."""
    if card.file is None:
        return f"{card.name} is embedded in a package that tsattn requires: there is nothing to fetch"
    here = _where(card, root) == "here"
    path = fetch(card, root)
    found = sha256(path)
    verified = "is verified" if card.sums else f"cannot be verified against a known sum; {reported(card, found)}"
    return f"{path} {'was here already' if here else 'was downloaded'} and {verified}"


def _check(cards: list[Card], root: Path) -> None:
    """A line a data set, and one for each thing that differs; a `UserError` if anything does."""
    failed = []
    for card in cards or CARDS.values():
        if _where(card, root) == "not here":
            print(f"{card.name:18}not here")
            failed += [card.name] if cards else []
            continue
        said = _differences(card, root)
        print(f"{card.name:18}{'differs' if said else 'ok'}")
        for what in said:
            print(f"  {what}")
        failed += [card.name] if said else []
    if failed:
        raise UserError(f"not as on the card, or not in {root}: {one_of(failed)}")


def _differences(card: Card, root: Path) -> list[str]:
    import pandas as pd

    from tsattn.data.public.public_data import CO2DataModule, channels_frame, differences, frame_differences

    if card.file is not None:
        return differences(card, root / card.file)
    panel = CO2DataModule().source.load()
    frame = channels_frame(panel)
    return frame_differences(card, frame, pd.DatetimeIndex(frame.index), panel.frequency)
