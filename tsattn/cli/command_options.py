"""The options of every command: `help.txt` is help, parser and reference.

A line of it that begins with `#` begins a page. A paragraph of indented lines is a group of options under its title;
all others are prose. A line of a group is the letters of the commands that have the option, where several share a
table; the option, with a word for its value (three dots: it may be repeated); what it does; and its default.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tsattn.attention import KINDS
from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.predictors import predictor_kinds

__all__ = ["ACTIONS", "COMMANDS", "OF_EXPERIMENTS", "Given", "Group", "Option", "Pair", "as_pairs", "flat", "groups"]
__all__ += ["help_text", "option_names", "own_options", "page", "taken", "unknown"]

Pair = tuple[str, str | None]  # a flag and its value

OF_EXPERIMENTS = ("fit", "validate", "test", "predict", "attention")
"""Commands that take an experiment."""
_TABLES = {
    **{name: ("experiments", name[0]) for name in OF_EXPERIMENTS},
    **{f"datasets {name}": ("tables", name[0]) for name in ("list", "info", "fetch", "convert", "diagnose")},
    "datasets check": ("tables", "k"),
}
"""The table that a page shares with others, and its letter there."""
_KEYS = ("--config", "--data", "--attention", "--seed_everything")  # of a configuration, without a dot
_OPEN = (*OF_EXPERIMENTS, "tune", "compare", "cost")  # take flags that are not listed
_ONCE = ("--run", "--resume", "--start", "--ckpt_path", "--input", "--output", "--figure")


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if (number := int(text)) < least:
            raise ValueError
        return number

    return read


def _share(text: str) -> float:
    if not 0 < float(text) < 1:
        raise ValueError
    return float(text)


def _names(text: str) -> list[str]:
    found = [*dict.fromkeys(name.strip() for name in text.split(",") if name.strip())]
    if not found:
        raise ValueError
    return found


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip())
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise ValueError
    return float(total)


_TYPES: dict[str, tuple[Callable[[str], Any], str]] = {
    "N": (_whole(1), "a whole number of at least 1"),
    "K": (_whole(2), "a whole number of at least 2"),
    "NUMBER": (int, "a whole number"),
    "SHARE": (float, "a number"),
    "MARGIN": (_share, "between 0 and 1"),
    "NAMES": (_names, "names with commas between them"),
    "STEPS": (lambda text: [*map(_whole(1), _names(text))], "whole numbers with commas between them"),
    "TIME": (_seconds, "a time like 90s, 30m, 2h or 1h30m"),
    "PERCENT": (yaml.safe_load, 'a number, or a list, such as "[80, 95]"'),
}
"""How a value is read, and what it must be, by its word; others are text."""


class Option(NamedTuple):
    """An option, or a free word: its name, a word for its value if it takes one, what it does, its default as YAML."""

    name: str
    value: str
    what: str
    default: str

    def parsed(self, text: str | None) -> Any:
        """The value that was typed; a `UserError` for none, or one of another kind."""
        if not self.value:
            if text is not None:
                raise UserError(f"{self.name} takes no value, not {text}: give it, or leave it out")
            return True
        if text is None:
            raise UserError(f"{self.name} needs a value")
        if self.default == "true":
            return {"true": True, "false": False}.get(text.lower(), text)
        read, what = _TYPES.get(self.value, (str, ""))
        try:
            return read(text)
        except (ValueError, yaml.YAMLError) as error:
            raise UserError(f"{self.name} must be {what}, not {text}") from error


class Group(NamedTuple):
    """Options under a title."""

    title: str
    options: tuple[Option, ...]


@lru_cache
def page(name: str) -> tuple[str | Group, ...]:
    """The paragraphs of a page; the first are its usages."""
    text = Path(__file__).with_name("help.txt").read_text("utf-8")
    pages = dict(part.split("\n", 1) for part in f"\n{text}".split("\n# ")[1:])
    table, letter = _TABLES.get(name, ("", ""))
    blocks = f"{pages[name]}\n{pages.get(table, '')}".strip().split("\n\n")
    parts: list[str | Group] = []
    for title, *lines in map(str.splitlines, blocks):
        if not lines or title.endswith(":") or not all(line.startswith("  ") for line in lines):
            parts.append("\n".join([title, *lines]))
            continue
        split = (line.split(maxsplit=1) if letter else ["", line.strip()] for line in lines)
        options = tuple(_option(rest) for letters, rest in split if letter in letters)
        parts += [Group(title, options)] if options else []
    return tuple(parts)


def _option(line: str) -> Option:
    name, _, rest = line.partition(" ")
    what, _, default = rest.strip().partition(" == ")
    value, _, after = what.partition(" ")
    return Option(name, *(value, after.strip()) if value.isupper() else ("", what), default)


def groups(name: str) -> list[Group]:
    """The groups of a page."""
    return [part for part in page(name) if isinstance(part, Group)]


COMMANDS = {one.name: one.what for one in groups("tsattn")[0].options}
"""What each command does."""
ACTIONS = [one.name for one in groups("datasets")[0].options]
"""Of `datasets`."""


def own_options(name: str) -> dict[str, Option]:
    """The options and free words of a page that are no keys of a configuration, by name."""
    listed = [option for group in groups(name) for option in group.options]
    if name in OF_EXPERIMENTS or name == "cost":
        listed = [one for one in listed if "." not in one.name and one.name not in _KEYS]
    return {one.name: one for one in listed if one.name not in ("--debug", "--help-all")}


def help_text(name: str) -> str:
    """What `--help` prints."""
    lines = []
    for part in page(name):
        if isinstance(part, str):
            lines += ["", part]
            continue
        lines += ["", f"{part.title}:"]
        width = 37 if any(option.name.startswith("-") for option in part.options) else 10
        for option, value, what, default in part.options:
            shown = f"{option} {value}".strip()
            lines.append(f"  {shown:{width}} {what}{f' (default: {default})' if default else ''}")
    if name == "fit":
        lines += ["", f"kinds of model: {one_of(predictor_kinds())}", f"kinds of attention: {one_of(KINDS)}"]
    usage, *rest = lines[1:]
    return "\n".join([usage if name == "tsattn" else "usage:\n  " + usage.replace("\n", "\n  "), *rest])


# words


class Given(NamedTuple):
    """Words after a command, taken apart.

    Attributes:
        typed: all of them.
        options: those of the command, with their defaults.
        free: words without a flag.
        others: flags that are no options of the command, with their values.
    """

    typed: list[str]
    options: Namespace
    free: list[str]
    others: list[Pair]


@lru_cache
def _flags() -> frozenset[str]:
    names = [*(name for name in COMMANDS if name != "datasets"), "datasets convert"]
    return frozenset(one.name for name in names for one in own_options(name).values() if not one.value)


def as_pairs(words: Iterable[str]) -> list[Pair]:
    """Flags with their values; a word without a flag stands alone."""
    pairs: list[Pair] = []
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-[\d.].*|-inf|-nan", word):
            name, equals, value = word.partition("=")
            pairs.append(("--config" if name == "-c" else name, value if equals else None))
        elif pairs and pairs[-1][1] is None and pairs[-1][0].startswith("-") and pairs[-1][0] not in _flags():
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((word, None))
    return pairs


def flat(pairs: Iterable[Pair]) -> list[str]:
    """Words of pairs."""
    return [word for pair in pairs for word in pair if word is not None]


def taken(name: str, words: list[str]) -> Given:
    """Take the words after a command apart, which are on its page; a `UserError` names one that is not valid."""
    known = own_options(name)
    values: dict[str, list[Any]] = {one: [] for one in known if one.startswith("-")}
    free, others, before = list[str](), list[Pair](), ""
    for flag, text in as_pairs(words):
        if flag in values:
            values[flag].append(known[flag].parsed(text))
        elif flag.startswith("-"):
            others.append((flag, text))
        elif before in values and not known[before].value and flag.lower() in ("true", "false"):
            raise UserError(f"{before} takes no value, not {flag}: give it, or leave it out")
        else:
            free.append(flag)
        before = flag
    if name not in _OPEN and (strange := [*(flag for flag, _ in others), *(free if len(values) == len(known) else [])]):
        raise unknown(strange[0], name)
    options = Namespace()
    for flag, found in values.items():
        option, is_many = known[flag], known[flag].value.endswith("...")
        if flag in _ONCE and name in OF_EXPERIMENTS and len({*map(str, found)}) > 1:
            raise UserError(f"{flag} is given {len(found)} times, as {one_of(map(str, found))}; give it once")
        default = yaml.safe_load(option.default) if option.default else None if option.value else False
        setattr(options, flag[2:].replace("-", "_"), (found or None) if is_many else found[-1] if found else default)
    return Given(list(words), options, free, others)


def option_names(name: str) -> list[str]:
    """The options of a page."""
    listed = dict.fromkeys(one.name for group in groups(name) for one in group.options)
    return [one for one in listed if one.startswith("-") and not one.endswith(".ARGUMENT")]


def unknown(word: str, name: str) -> UserError:
    """The error for a word that a command does not have."""
    valid = option_names(name)
    return UserError(f"unknown argument {word}{did_you_mean(word, valid)}; valid: {one_of(valid)}")
