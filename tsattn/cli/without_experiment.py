"""`tsattn export`, `datasets`, `cost` and `kernels`: commands that parse no experiment."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.cli.words import Given, session, take_descriptions, unknown
from tsattn.data.public.cards import CARDS, Card, card_of, data_root, fetch, reported
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.experiments.run_folder import RunFolder
from tsattn.saved_folders import sha256, write_whole

if TYPE_CHECKING:
    import pandas as pd

_DTYPES = ("float64", "float32", "bfloat16", "float16")
_NOTE = """\
Flops to form scores are measured on the plain reference: it forms every pair
with every component, then masks. The next row counts what the chosen
implementation executes on a CPU, zero-padded components included."""


def export(given: Given) -> None:
    """Export a run."""
    options = given.options
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
        print(f"  attention {plain} is written out, as the kernels of this package are not in the file")


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


def _named(given: Given, action: str) -> tuple[Card, Path]:
    if len(given.free) != 1:
        raise UserError(f"{action} needs the name of a data set; valid: {one_of(CARDS)}")
    return card_of(given.free[0]), data_root(given.options.root)


def datasets_info(given: Given) -> None:
    """Show a card."""
    card, root = _named(given, "info")
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


def datasets_fetch(given: Given) -> None:
    """Download the file of a data set, unless it is there; a `UserError` says where to get it."""
    card, root = _named(given, "fetch")
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
        is_here = _where(card, root) != "not here"
        said = differences(card, root) if is_here else []
        print("\n  ".join([f"{card.name:18}{'differs' if said else 'ok' if is_here else 'not here'}", *said]))
        failed += [card.name] if said or (cards and not is_here) else []
    if failed:
        raise UserError(f"not as on the card, or not in {root}: {one_of(failed)}")


def _typed(given: Given) -> dict[str, Any]:
    """The options of a table that were typed."""
    others = ("output", "overwrite")
    return {name: value for name, value in vars(given.options).items() if value is not None and name not in others}


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

    lines = [f"{path}: {number_of(len(found), 'finding') if len(found) else 'nothing was found'}"]
    for kind, part in found.groupby("kind", sort=False):
        lines += ["", f"{kind}: {KINDS[str(kind)]}"]
        for row in part.itertuples():
            names = dict.fromkeys(name for name in (shown(row.series), str(row.column)) if name)
            text = f"- {', '.join(names)} ({row.where}): {row.sentence}"
            lines.append(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


def cost(given: Given) -> None:
    """Print the costs of an attention as a table."""
    described, others = take_descriptions(given.others)
    options = given.options
    if strange := [*(name for name, _ in others), *given.free]:
        raise unknown(strange[0], "cost")
    if options.dtype not in _DTYPES:
        raise UserError(f"--dtype must be one of {one_of(_DTYPES)}, not {options.dtype}")
    needed = {"attention": described or None, **vars(options), "max_length": 0}
    if missing := [f"--{name}" for name, value in needed.items() if value is None]:
        raise UserError(f"cost needs {' and '.join(missing)}")

    import torch

    from tsattn.attention import build_attention
    from tsattn.attention.cost import closed_form, measured, measured_key_bytes
    from tsattn.experiments.configs import with_values

    whole = with_values({"model": {"backbone": {"attention": "standard"}}}, described)
    description = whole["model"]["backbone"]["attention"]
    length = options.max_length or options.tokens
    sizes = {"d_model": options.d_model, "num_heads": options.num_heads, "max_length": length}
    attention = build_attention(description, **sizes, causal=options.causal)
    form, found = closed_form(attention, options.tokens), measured(attention, options.tokens)
    dtype = getattr(torch, options.dtype)
    notes = [_NOTE] if found.score_flops > form.score_flops else []
    held: int | None = None
    try:
        held = measured_key_bytes(attention, options.tokens, dtype)
    except UserError as reason:
        notes.append(f"The cache is not measured: {reason}.")
    rows: dict[str, tuple[int | None, int | None]] = {
        "score parameters, a head": (form.score_params_per_head, None),
        "score parameters, all heads": (form.score_params, found.score_params),
        "flops to make queries and keys": (form.projection_flops, found.projection_flops),
        "flops to form scores, a head": (form.score_flops_per_head, found.score_flops // options.num_heads),
        "flops to form scores, all heads": (form.score_flops, found.score_flops),
        "flops executed on a CPU, with values": (None, found.executed_flops),
        "cached key numbers, a key head": (form.cached_keys_per_head, None),
        "cached key numbers, all key heads": (form.cached_keys, None),
        f"cached key bytes, {options.dtype}": (form.cached_key_bytes(dtype), held),
    }
    lines = [f"{'one attention layer':36}{'closed form':>20}{'measured':>20}"]
    for name, both in rows.items():
        cells = (f"{'' if number is None else f'{number:,}':>20}" for number in both)
        lines.append(f"{name:36}{''.join(cells)}".rstrip())
    print("\n".join([*lines, *([""] if notes else []), *notes]))


def kernels(given: Given) -> None:
    """Say which kernels are in use, or why none."""
    from tsattn.ops.native.chunking import chunk_sizes, tuned_file
    from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
    from tsattn.ops.native.library import VARIABLE, build_library, find_library, why_no_kernels

    word = os.environ.get(VARIABLE, "auto")
    if given.options.build:
        print(f"{'built':20}{build_library(word).path}")
    if given.options.tune:
        from tsattn.ops.native.size_tuning import tune_sizes

        if why_no_kernels() is not None:
            raise UserError(f"there are no kernels to measure: {why_no_kernels()}")
        tune_sizes(print)
    found, facts = find_library(word), [("instruction sets", one_of(one.name for one in sets_of_this_cpu()))]
    if found.library is None or found.instruction_set is None:
        facts.append(("in use", f"none: {found.why_none}"))
    else:
        facts.append(("in use", f"{found.instruction_set.name}, {found.library.tsattn_lanes()} numbers at once"))
        facts.append(("from", f"{'this package' if found.came_along else 'compiled here'}: {found.path}"))
    if found.compiler:
        facts.append(("compiler", f"{' '.join(found.compiler.command)}: {found.compiler.version}"))
    if found.library is not None:
        sizes, path = chunk_sizes(), tuned_file()
        origin = f"measured: {path}" if path is not None and path.is_file() else "by the sizes of the caches"
        long = f"{sizes.shared_blocks_long} where keys pass the second cache"
        facts.append(
            ("sizes", f"{sizes.chunk_keys} keys by {sizes.shared_blocks} blocks of queries ({long}), {origin}")
        )
    facts += [("went wrong", str(one)) for one in found.complaints if str(one) != found.why_none]
    print("\n".join(f"{name:20}{what}" for name, what in facts))
