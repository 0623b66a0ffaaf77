"""The arguments of a class, described by its docstring and those of the classes that it hands them on to."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_type_hints

import griffe

from docs.site.markdown_parts import Entry, type_words, yaml_value

__all__ = ["described", "text_of"]


def text_of(cls: type[Any]) -> str:
    """What the docstring of a class says before its sections; Markdown."""
    parts = _sections(inspect.getdoc(cls) or "")
    return "\n\n".join(str(part.value) for part in parts if part.kind is griffe.DocstringSectionKind.text)


def described(cls: type[Any], names: list[str], *others: type[Any]) -> list[Entry]:
    """Each argument with its type, default and description.

    Args:
        cls: that takes them.
        names: of the arguments.
        others: classes that it hands arguments on to, beside its bases.

    Raises:
        LookupError: naming those that nothing describes.
    """
    classes = [one for one in (*cls.__mro__, *others) if one is not object]
    lacking = [name for name in names if not any(name in _descriptions(one) for one in classes)]
    if lacking:
        raise LookupError(f"no docstring of {cls.__module__}.{cls.__qualname__} or its bases describes {lacking}")
    return [_entry(name, classes) for name in names]


def _entry(name: str, classes: list[type[Any]]) -> Entry:
    what = next(_descriptions(one)[name] for one in classes if name in _descriptions(one))  # type: ignore[arg-type]
    parameters = [inspect.signature(one.__init__).parameters.get(name) for one in classes]
    default = next((one.default for one in parameters if one is not None), inspect.Parameter.empty)
    hints = (get_type_hints(one.__init__).get(name) for one in classes if name in inspect.signature(one).parameters)
    return Entry(name, what, type_words(next(hints, None)), yaml_value(default))


@cache
def _descriptions(cls: type[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    sections = {griffe.DocstringSectionKind.parameters}
    if is_dataclass(cls):  # whose fields are its arguments
        sections.add(griffe.DocstringSectionKind.attributes)
    for doc in (cls.__doc__, cls.__init__.__doc__):
        for part in _sections(inspect.cleandoc(doc or "")):
            if part.kind in sections:
                found |= {one.name.lstrip("*"): one.description for one in part.value}
    return found


def _sections(doc: str) -> list[Any]:
    return list(griffe.Docstring(doc).parse("google", warn_missing_types=False, warnings=False))
