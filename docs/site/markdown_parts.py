"""Pieces of Markdown that generated pages are made of."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["Entry", "code_block", "definitions", "heading_id", "prose", "table", "type_words", "yaml_value"]


class Entry(NamedTuple):
    """Something with a name that a reader looks up.

    Attributes:
        name: as it is typed.
        what: says what it does; Markdown.
        value: what stands in the place of its value, or its type.
        default: as YAML has it; empty for none.
        anchor: that links lead to; empty for none.
        is_required: whether it has no default.
    """

    name: str
    what: str
    value: str = ""
    default: str = ""
    anchor: str = ""
    is_required: bool = False


def definitions(entries: Iterable[Entry]) -> str:
    """A list of names, each with what it means beneath it."""
    return "\n".join(map(_definition, entries))


def _definition(entry: Entry) -> str:
    term = f"`{entry.name}`"
    if entry.anchor:
        term = f'<span id="{entry.anchor}">{term}</span>'
    if entry.value:
        term += f' <span class="value">{_escaped(entry.value)}</span>'
    if entry.default:
        term += f' <span class="default">default `{entry.default}`</span>'
    if entry.is_required:
        term += ' <span class="default">must be given</span>'
    return f"{term}\n:   {prose(entry.what)}\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are Markdown."""
    head = [*head]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def code_block(language: str, text: str) -> str:
    """Code that is highlighted."""
    return f"```{language}\n{text.strip()}\n```\n"


def prose(text: str) -> str:
    """The words of a docstring or a help as Markdown of one paragraph, the marks of reStructuredText replaced."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", " ".join(text.split()))
    return re.sub(r"`([^`<]+) <[^`>]+>`_+", r"\1", text.replace("``", "`"))


def heading_id(text: str) -> str:
    """What a heading is linked by."""
    return re.sub(r"[^\w.-]+", "-", text.lower()).strip("-")


def yaml_value(value: Any) -> str:
    """A default as it is written in YAML."""
    if value is None or value is inspect.Parameter.empty:
        return "null" if value is None else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    return f"{value}"


_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "NoneType": "null"}


def type_words(hint: Any) -> str:
    """An annotation in the words of YAML."""
    if hint is None or hint is inspect.Parameter.empty or hint is Any:
        return ""
    if isinstance(hint, str):
        return hint
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_words(one) for one in inner))
    if origin is typing.Literal:
        return " or ".join(f"{one}" for one in inner)
    name = getattr(origin or hint, "__name__", str(hint))
    if name in ("Sequence", "list", "tuple"):
        return f"list of {_several(type_words(inner[0]))}" if inner else "list"
    if name in ("Mapping", "dict"):
        return "mapping"
    return _WORDS.get(name, name)


def _several(words: str) -> str:
    """The plural of the words of a type."""
    if " or " in words:
        return f"({words})"
    known = {"": "values", "list": "lists", "mapping": "mappings"}
    return known.get(words, words if words.startswith("list") else f"{words}s")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
