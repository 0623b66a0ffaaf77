"""Descriptions: plain data that names a kind and its arguments, checked against a table of kinds.

A description is a kind's name, ``mlr``, or ``{kind: mlr, ranks: [32, 16, 16]}``. Being plain data, it can stand in
YAML, on the command line, in a notebook and in a checkpoint that is loaded without unpickling code.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from tsattn.errors import UserError, one_of

__all__ = ["Description", "call", "defaults", "keyword_arguments", "parse"]

Description: TypeAlias = str | Mapping[str, Any]

T = TypeVar("T")


def parse(
    description: object,
    *,
    what: str,
    table: Mapping[str, type[T]],
    base: type[Any],
    arguments: Callable[[type[T]], list[str]],
) -> tuple[str, type[T], dict[str, Any]]:
    """Name, class and arguments that a description means.

    Args:
        description: what somebody wrote.
        what: the word for it in messages, e.g. ``attention``.
        table: the kinds by name. A name with a dot is imported: ``my_package.MyAttention``.
        base: the class that an imported kind must derive from.
        arguments: the arguments that a description of a class may name.

    Raises:
        UserError: for a wrong kind or argument; the message lists the valid ones.
    """
    if isinstance(description, str):
        description = {"kind": description}
    if not isinstance(description, Mapping) or not isinstance(description.get("kind"), str):
        raise UserError(
            f"{what} must be one of {one_of(table)}, or {{kind: NAME, argument: value}}, not {description!r}"
        )
    chosen = dict(description)
    kind = chosen.pop("kind")
    cls = table[kind] if kind in table else _imported(kind, what=what, table=table, base=base)
    valid = arguments(cls)
    for name in chosen:
        if name not in valid:
            raise UserError(f"{what} {kind} has no argument {name!r}; valid: {one_of(valid)}")
    return kind, cls, chosen


def keyword_arguments(function: Callable[..., object]) -> list[str]:
    """The names of the keyword-only parameters of a function or class."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


def defaults(function: Callable[..., object]) -> dict[str, Any]:
    """The default values of the keyword-only parameters that have one."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is not inspect.Parameter.empty
    }


def call(function: Callable[..., T], *args: Any, what: str, chosen: Mapping[str, Any], **given: Any) -> T:
    """Call with the arguments `chosen` by a description and those `given` by the code.

    Raises:
        UserError: if a chosen argument has the wrong type.
    """
    try:
        return function(*args, **given, **chosen)
    except (TypeError, AttributeError) as error:
        if not chosen:
            raise
        raise UserError(f"{what} cannot be made with {dict(chosen)}: {error}") from error


def _imported(kind: str, *, what: str, table: Iterable[str], base: type[Any]) -> type[Any]:
    module, _, name = kind.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError):
        found = None
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise UserError(f"unknown {what} {kind!r}; valid: {one_of(table)}")
    return found
