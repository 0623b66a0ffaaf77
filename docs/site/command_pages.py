"""Reference of the command line: a page for each command, from its own parser and its help."""

from __future__ import annotations

from typing import Any

from docs.site.markdown_parts import Entry, code_block, definitions, prose
from tsattn.cli.words import COMMANDS, OF_EXPERIMENTS, Group, groups, page
from tsattn.experiments.experiment import experiment_parser

__all__ = ["command_pages"]

_INDEX = """# Command line

Run `tsattn COMMAND ...`. `tsattn COMMAND --help` lists the options of a command, `--debug` shows the traceback of an
error, and `tsattn --version` prints the version. The [exit codes](../../how-to/when-it-fails.md) are 0, 1, 2, 130 and
141.
"""

_KEYS = """## Keys of a configuration

Each key of a [configuration](../configuration.md) is also an option: `--model.loss mae`, `--data.context_length 512`,
`--trainer.max_steps 500`. Set arguments of a [predictor](../predictors.md) by `--model.backbone.ARGUMENT`, and
arguments of an [attention](../attentions.md) by `--attention.ARGUMENT`.
"""


def command_pages() -> dict[str, str]:
    """The page of each command by its name, and `index`, which lists them."""
    rows = [Entry(f"{name}", what, anchor="") for name, what in COMMANDS.items()]
    links = "\n".join(f"[`{row.name}`]({row.name}.md)\n:   {prose(row.what)}\n" for row in rows)
    pages = {"index": f"{_INDEX}\n{links}"}
    for name, what in COMMANDS.items():
        parts = [f"# {name}\n\n{what[0].upper()}{what[1:]}.\n", *_parts(name, 2)]
        if name == "datasets":
            for action in groups(name)[0].options:
                parts += [f"## {action.name}\n", *_parts(f"datasets {action.name}", 3)]
        if name in OF_EXPERIMENTS or name == "tune":
            parts.append(_KEYS)
        if name in OF_EXPERIMENTS:
            parts.append(definitions(_class_helps(experiment_parser())))
        pages[name] = "\n".join(parts)
    return pages


def _parts(name: str, level: int) -> list[str]:
    """Usages, prose and groups of a page of the help."""
    usages, *others = page(name)
    parts = [code_block("text", str(usages))]
    for part in others:
        if isinstance(part, Group):
            entries = [Entry(one.name, one.what, one.value, one.default) for one in part.options]
            parts += [f"{'#' * level} {_title(part.title)}\n", definitions(entries)]
        else:
            parts.append(prose(" ".join(part.split())) + "\n")
    return parts


def _title(title: str) -> str:
    """The title of a group of the help, without what stands in brackets after it."""
    short = title.partition(" (")[0]
    return short[0].upper() + short[1:]


def _class_helps(parser: Any) -> list[Entry]:
    """The options that list the arguments of a class."""
    names = [name for action in parser._actions for name in action.option_strings if name.endswith(".help")]
    return [Entry(name, "lists the arguments of a class, and ends", "CLASS") for name in names]
