"""Reference of the command line: a page for each command, from its own parser and its help."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from docs.site.markdown_parts import Entry, code_block, definitions, prose, type_words, yaml_value
from tsattn.cli import _COMMANDS, _MODULES, _OF_EXPERIMENTS
from tsattn.cli.command_options import GROUPS, USAGES, Option
from tsattn.experiments.experiment import experiment_parser

__all__ = ["command_pages", "parser_entries"]

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
    rows = [Entry(f"{name}", what, anchor="") for name, what in _COMMANDS.items()]
    links = "\n".join(f"[`{row.name}`]({row.name}.md)\n:   {prose(row.what)}\n" for row in rows)
    pages = {"index": f"{_INDEX}\n{links}"}
    for name, what in _COMMANDS.items():
        body = _experiment(name) if name in _OF_EXPERIMENTS else _own_words(name)
        pages[name] = f"# {name}\n\n{what[0].upper()}{what[1:]}.\n\n{body}"
    return pages


def _experiment(name: str) -> str:
    """What people use, in groups, then what else the command has of its own."""
    parts = [code_block("text", "\n".join(f"tsattn {usage}" for usage in USAGES[name]))]
    for title, options in GROUPS.items():
        mine = [option for option in options if name in option.commands]
        if mine:
            parts += [f"## {_title(title)}\n", definitions(map(_entry, mine))]
    parts += [_KEYS, definitions(_class_helps(experiment_parser()))]
    return "\n".join(parts)


def _title(title: str) -> str:
    """The title of a group of the help, without what stands in brackets after it."""
    short = title.partition(" (")[0]
    return short[0].upper() + short[1:]


def _entry(option: Option) -> Entry:
    return Entry(option.name, option.what, option.value, option.default)


def _class_helps(parser: Any) -> list[Entry]:
    """The options that list the arguments of a class."""
    names = [name for action in parser._actions for name in action.option_strings if name.endswith(".help")]
    return [Entry(name, "lists the arguments of a class, and ends", "CLASS") for name in names]


def _own_words(name: str) -> str:
    module = importlib.import_module(f"tsattn.cli.{_MODULES.get(name, name)}")
    parser: argparse.ArgumentParser = module._parser()
    parts = [code_block("text", _usage(parser)), _text(parser.description), *_groups(parser, 2)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, sub in action.choices.items():
                parts += [f"## {word}\n", _text(sub.description), code_block("text", _usage(sub)), *_groups(sub, 3)]
    if name == "tune":
        parts.append(_KEYS)
    parts.append(_text(parser.epilog))
    return "\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    words = " ".join(parser.format_usage().removeprefix("usage: ").split())
    return words.replace(" [-h]", "")


def _groups(parser: argparse.ArgumentParser, level: int) -> list[str]:
    """What the help of a parser has, under the titles that it has there."""
    parts = []
    for group in parser._action_groups:
        entries = parser_entries(group._group_actions)
        if entries:
            parts += [f"{'#' * level} {_title(group.title or 'options')}\n", definitions(entries)]
    return parts


def parser_entries(actions: list[Any]) -> list[Entry]:
    """Options and words of a parser, but those that ask for help."""
    entries = []
    for action in actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        names = [one for one in action.option_strings if not one.endswith("+")]
        if any(one.endswith(".help") for one in names):
            continue
        flag = action.nargs == 0
        value = action.metavar or type_words(getattr(action, "_typehint", None))
        default = "" if flag or action.default in (None, argparse.SUPPRESS, False, []) else yaml_value(action.default)
        what = str(action.help).replace("%%", "%")
        if "(default" in what:
            default = ""
        name = ", ".join(names) or str(action.metavar)
        entries.append(Entry(name, what, str(value) if names and not flag else "", default))
    return entries


def _text(text: str | None) -> str:
    """The paragraphs of a description."""
    return "\n\n".join(prose(part) for part in (text or "").split("\n\n")) + "\n"
