"""`tsattn datasets`: the public data sets, their cards and their files; a table of your own, looked at or converted."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.cli.command_options import Given
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.saved_folders import sha256

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["datasets_check", "datasets_convert", "datasets_diagnose", "datasets_fetch", "datasets_info"]
__all__ += ["datasets_list"]


def datasets_list(given: Given) -> None:
    """List the data sets."""
    root = data_root(given.options.root)
    print(f"{'name':18}{'rows':>7}{'columns':>9}  {'frequency':11}file")
    for card in CARDS.values():
        print(f"{card.name:18}{card.rows:>7}{card.columns:>9}  {card.frequency:11}{_where(card, root)}")
    print(f"\nhere: in {root}; `datasets fetch NAME` downloads a file that is not")


def _where(card: Card, root: Path) -> str:
    if card.file is None:
        return "embedded"
    return "here" if (root / card.file).is_file() else "not here"


def _named(given: Given, action: str) -> Card:
    if len(given.free) != 1:
        raise UserError(f"{action} needs the name of a data set; valid: {one_of(CARDS)}")
    return card_of(given.free[0])


def datasets_info(given: Given) -> None:
    """Show a card."""
    card, root = _named(given, "info"), data_root(given.options.root)
    facts = [("name", card.name), *card.facts()]
    if card.file is not None:
        facts.append(("here", str(root / card.file) if _where(card, root) == "here" else f"no, not in {root}"))
    width = 2 + max(len(word) for word, _ in facts)
    lines = [_wrapped(f"{word:{width}}", text) for word, text in facts]
    if card.oddities:
        lines += ["", "oddities", *(_wrapped("- ", str(oddity)) for oddity in card.oddities)]
    print("\n".join(lines))


def _wrapped(start: str, text: str) -> str:
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 100, initial_indent=start, subsequent_indent=" " * len(start), **whole)


def datasets_fetch(given: Given) -> None:
    """Download the file of a data set, unless it is there; a `UserError` says where to get it."""
    card, root = _named(given, "fetch"), data_root(given.options.root)
    if card.file is None:
        print(f"{card.name} is embedded in a package that tsattn requires: there is nothing to fetch")
        return
    was_here = _where(card, root) == "here"
    path = fetch(card, root)
    verified = "is verified" if card.sums else f"cannot be verified against a known sum; {reported(card, sha256(path))}"
    print(f"{path} {'was here already' if was_here else 'was downloaded'} and {verified}")


def datasets_check(given: Given) -> None:
    """Print a line a data set, and one for each thing that differs; a `UserError` if anything does."""
    from tsattn.data.public.public_data import differences

    root, cards, failed = data_root(given.options.root), [card_of(name) for name in given.free], []
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


def _typed(given: Given) -> dict[str, Any]:
    """The options of a table that were typed."""
    options = {name: value for name, value in vars(given.options).items() if value is not None}
    return {name: value for name, value in options.items() if name not in ("output", "overwrite")}


def datasets_convert(given: Given) -> None:
    """Convert a table, and say what came of it."""
    if len(given.free) != 2:
        raise UserError("convert needs a table and a folder to write: datasets convert IN OUT")
    from tsattn.data.mapped import convert, open_panel
    from tsattn.data.reader import TableReader

    source, folder = (Path(word).expanduser() for word in given.free)
    convert(source, folder, TableReader.of(_typed(given)).options, overwrite=given.options.overwrite)
    panel = open_panel(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    what = f"{number_of(len(panel.time), 'row')} of {number_of(len(panel), 'series')}"
    print(f"{folder}: {what}, frequency {panel.frequency}, {size / 1e9:.3g} GB")


def datasets_diagnose(given: Given) -> None:
    """Print what is found in a file, and write it."""
    if len(given.free) != 1:
        raise UserError("diagnose needs a file: datasets diagnose FILE")
    from tsattn.diagnosis import diagnose
    from tsattn.forecaster.forecast_files import check_output, write_frame

    path, output, overwrite = given.free[0], given.options.output, given.options.overwrite
    if output is not None:
        check_output(Path(output), overwrite, inputs=[path])
    found = diagnose(Path(path), **_typed(given))
    print(_report(found, path))
    if output is not None:
        write_frame(found.astype({"series": str}), Path(output), overwrite)
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
