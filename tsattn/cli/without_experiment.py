"""`tsattn export`, `datasets`, `cost` and `kernels`: commands without an experiment."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.cli.words import Words, session, take_descriptions
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.experiments.run_folder import RunFolder
from tsattn.saved_folders import sha256, write_whole

if TYPE_CHECKING:
    import pandas as pd


def export(words: Words) -> None:
    """Export a run."""
    options = words.options
    if options.run is None:
        raise UserError("export needs a trained model: --run DIR, the folder that `fit` has written")
    folder = RunFolder(options.run)
    folder.check_trained()
    from tsattn.experiments.result import fitted_in
    from tsattn.forecaster.forecast_files import check_output
    from tsattn.predictors.exporting import FORMATS, exported, format_of

    ending = next((end for end, one in FORMATS.items() if one == options.format), next(iter(FORMATS)))
    output = Path(options.output or folder.path / f"model{ending}")
    form = format_of(output.suffix, options.format)
    check_output(output, options.overwrite, endings=FORMATS)
    with session():
        content, facts = exported(fitted_in(folder, options.ckpt_path), form)
        write_whole(output, lambda file: file.write(content), overwrite=options.overwrite)
    print(f"{output}: {facts['model']}, {len(content) / 1e6:.1f} MB")
    for name, one in {**facts["inputs"], **facts["outputs"]}.items():
        shape = ", ".join(map(str, one["shape"]))
        print(f"  {'gives' if name in facts['outputs'] else 'takes'} {name} ({shape}) {one['dtype']}")
    if plain := one_of(kind for kind, impl in facts["attention"].items() if impl == "reference"):
        print(f"  attention {plain} is exported as plain operators: the file does not contain tsattn's kernels")


def datasets_list(words: Words) -> None:
    """List the data sets."""
    root = data_root(words.options.root)
    print(f"{'name':18}{'rows':>7}{'columns':>9}  {'frequency':11}file")
    for card in CARDS.values():
        print(f"{card.name:18}{card.rows:>7}{card.columns:>9}  {card.frequency:11}{_where(card, root)}")
    print(f"\nhere: in {root}; download a missing file with `tsattn datasets fetch NAME`")


def _where(card: Card, root: Path) -> str:
    if card.file is None:
        return "embedded"
    return "here" if (root / card.file).is_file() else "not here"


def _named(words: Words, action: str) -> tuple[Card, Path]:
    if len(words.free) != 1:
        raise UserError(f"{action} needs the name of a data set; valid: {one_of(CARDS)}")
    return card_of(words.free[0]), data_root(words.options.root)


def datasets_info(words: Words) -> None:
    """Show a card."""
    card, root = _named(words, "info")
    facts = dict([("name", card.name), *card.facts()])
    if card.file is not None:
        facts["here"] = str(root / card.file) if _where(card, root) == "here" else f"no, not in {root}"
    width = 2 + max(map(len, facts))
    print("\n".join(_wrapped(f"{word:{width}}", text) for word, text in facts.items()))
    if card.oddities:
        print("\n".join(["\noddities", *(_wrapped("- ", str(oddity)) for oddity in card.oddities)]))


def _wrapped(start: str, text: str) -> str:
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 100, initial_indent=start, subsequent_indent=" " * len(start), **whole)


def datasets_fetch(words: Words) -> None:
    """Download the file of a data set if it is missing; a `UserError` says where to get it."""
    card, root = _named(words, "fetch")
    if card.file is None:
        print(f"{card.name} is embedded in a package that tsattn requires: there is nothing to fetch")
        return
    was_here = _where(card, root) == "here"
    path = fetch(card, root)
    verified = "is verified" if card.sums else f"cannot be verified against a known sum; {reported(card, sha256(path))}"
    print(f"{path} {'was here already' if was_here else 'was downloaded'} and {verified}")


def datasets_check(words: Words) -> None:
    """Print a line for each data set and each difference; raise `UserError` if there are differences."""
    from tsattn.data.public.public_data import differences

    root, cards, failed = data_root(words.options.root), [card_of(name) for name in words.free], []
    for card in cards or CARDS.values():
        is_here = _where(card, root) != "not here"
        said = differences(card, root) if is_here else []
        print("\n  ".join([f"{card.name:18}{'differs' if said else 'ok' if is_here else 'not here'}", *said]))
        failed += [card.name] if said or (cards and not is_here) else []
    if failed:
        raise UserError(f"missing from {root}, or different from the card: {one_of(failed)}")


def _typed(words: Words) -> dict[str, Any]:
    others = ("output", "overwrite")
    return {name: value for name, value in vars(words.options).items() if value is not None and name not in others}


def datasets_convert(words: Words) -> None:
    """Convert a table and describe the result."""
    if len(words.free) != 2:
        raise UserError("convert needs a table and a folder to write: datasets convert IN OUT")
    from tsattn.data.mapped import convert, open_panel
    from tsattn.data.reader import TableReader

    source, folder = (Path(word).expanduser() for word in words.free)
    convert(source, folder, TableReader.of(_typed(words)).options, overwrite=words.options.overwrite)
    panel = open_panel(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    what = f"{number_of(len(panel.time), 'row')} of {number_of(len(panel), 'series')}"
    print(f"{folder}: {what}, frequency {panel.frequency}, {size / 1e9:.3g} GB")


def datasets_diagnose(words: Words) -> None:
    """Diagnose a file; print and write the findings."""
    if len(words.free) != 1:
        raise UserError("diagnose needs a file: datasets diagnose FILE")
    from tsattn.diagnosis import diagnose
    from tsattn.forecaster.forecast_files import check_output, write_frame

    path, output, overwrite = words.free[0], words.options.output, words.options.overwrite
    if output is not None:
        check_output(Path(output), overwrite, inputs=[path])
    found = diagnose(Path(path), **_typed(words))
    print(_report(found, path))
    if output is not None:
        write_frame(found.astype({"series": str}), Path(output), overwrite)
        print(f"{output}: the findings, one row each")


def _report(found: pd.DataFrame, path: str) -> str:
    from tsattn.diagnosis import KINDS

    lines = [f"{path}: {number_of(len(found), 'finding') if len(found) else 'nothing was found'}"]
    for kind, part in found.groupby("kind", sort=False):
        lines += ["", f"{kind}: {KINDS[str(kind)]}"]
        for row in part.itertuples():
            names = dict.fromkeys(name for name in (shown(row.series), str(row.column)) if name)
            text = f"- {', '.join(names)} ({row.where}): {row.sentence}"
            lines.append(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


def cost(words: Words) -> None:
    """Print the costs of an attention as a table."""
    described, _ = take_descriptions(words.pairs)
    options = words.options
    needed = {"attention": described or None, **vars(options), "max_length": 0}
    if missing := [f"--{name}" for name, value in needed.items() if value is None]:
        raise UserError(f"cost needs {' and '.join(missing)}")

    import torch

    from tsattn.attention import build_attention
    from tsattn.attention.cost import cost_table
    from tsattn.experiments.configs import with_values

    whole = with_values({"model": {"backbone": {"attention": "standard"}}}, described)
    length = options.max_length or options.tokens
    sizes = {"d_model": options.d_model, "num_heads": options.num_heads, "max_length": length}
    attention = build_attention(whole["model"]["backbone"]["attention"], **sizes, causal=options.causal)
    print(cost_table(attention, options.tokens, getattr(torch, options.dtype)))


def kernels(words: Words) -> None:
    """Print which kernels are in use, or why there are none."""
    from tsattn.ops.native.library import VARIABLE, build_library, why_no_kernels
    from tsattn.ops.native.record import kernel_facts

    word = os.environ.get(VARIABLE, "auto")
    if words.options.build:
        print(f"{'built':20}{build_library(word).path}")
    if words.options.tune:
        from tsattn.ops.native.size_tuning import tune_sizes

        if why_no_kernels() is not None:
            raise UserError(f"there are no kernels to measure: {why_no_kernels()}")
        tune_sizes(print)
    print("\n".join(f"{name:20}{what}" for name, what in kernel_facts(word).items()))
